// SPDX-License-Identifier: GPL-2.0
//! Programs for the test VM.

pub mod hammer;
pub mod process;
pub mod rm;
