// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The protocol of NVIDIA's kernel driver as data: what its calls look like and which are let
//! through, for each branch of the driver.
//!
//! Nothing here decides or acts. Layouts and sizes come from NVIDIA's own headers, as a C compiler
//! tells them (`tests/abi/generate.py`); which classes, controls and commands are in the tables
//! comes from the lists beside that generator, which say why.

pub mod architecture;
pub mod asked;
pub mod capability;
pub mod class;
pub mod control;
pub mod escape;
pub mod fb;
mod generated;
pub mod handle;
pub mod memory;
pub mod names;
pub mod nvos;
pub mod params;
pub mod rmapi;
pub mod rusd;
pub mod samples;
pub mod status;
pub mod tables;
pub mod title;
pub mod uvm;
pub mod version;
pub mod wire;

#[cfg(test)]
mod tests;
