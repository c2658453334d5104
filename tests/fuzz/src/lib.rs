// SPDX-License-Identifier: GPL-2.0
//! Fuzzing of what decides: the module's `nvidia`, `policy` and `proxy` between a hostile container
//! and a driver, both made of the input ([docs/design/fuzzing.md]).
//!
//! The functions of [`run`] take any bytes and panic when something is wrong with the module: it
//! charges less than the driver holds, lets more be held than the limit, names another tenant's
//! client to the driver, reads an argument twice, keeps a reservation or has something left at the
//! end. Those of [`kubernetes`] do the same for `cgpu-dra`. `fuzz.py` builds them with libFuzzer;
//! `cargo test` runs them on a few inputs.

pub mod driver;
#[cfg(feature = "kubernetes")]
pub mod kubernetes;
#[cfg(feature = "kubernetes")]
pub mod node;
pub mod program;
pub mod run;
#[cfg(feature = "seeds")]
pub mod seeds;
pub mod stream;
pub mod uvm;
