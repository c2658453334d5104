// SPDX-License-Identifier: GPL-2.0
//! Programs for the test VM.

pub mod cgroup;
pub mod container;
pub mod demo;
pub mod hammer;
pub mod process;
pub mod rm;
pub mod suite;
