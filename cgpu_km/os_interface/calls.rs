// SPDX-License-Identifier: GPL-2.0
//! Calls into the driver: who makes them, in which memory and with which files at hand.

pub(super) mod caller;
pub(super) mod descriptor;
pub(super) mod open_file;
pub(super) mod worker;
