// SPDX-License-Identifier: GPL-2.0
//! Programs for the test VM.

pub mod attacks;
pub mod bench;
pub mod cgroup;
pub mod chaos;
pub mod container;
pub mod demo;
pub mod hammer;
pub mod inside;
pub mod process;
pub mod race;
pub mod rm;
pub mod scale;
pub mod storm;
pub mod suite;
pub mod uvm;
