// SPDX-License-Identifier: GPL-2.0
//! A model of how a GPU shares its compute engine (`model.c`), programs that use it, and the
//! scheduler of `cgpu_km` that divides it among them. Virtual time, no randomness but a fixed
//! sequence: every run gives the same figures.
//!
//! | module | what |
//! | --- | --- |
//! | [`gpu`] | the model, safely |
//! | [`world`] | programs of a certain depth that launch when a kernel ends, and their doorbells |
//! | [`lab`] | what was done by hand on a real GPU, done to the model |
//! | [`driven`] | the scheduler drives the model, through calls that take time |
//! | [`serving`] | services, to which requests come at random, beside saturated programs |
//! | [`services`] | the cases about them |
//! | [`cases`] | the cases of `make bench-weights` |

pub mod cases;
pub mod driven;
pub mod gpu;
pub mod lab;
pub mod pauses;
pub mod services;
pub mod serving;
pub mod world;

/// A time or a length of time, in nanoseconds.
pub type Nanos = u64;
/// One microsecond.
pub const US: Nanos = 1_000;
/// One millisecond.
pub const MS: Nanos = 1_000_000;
