// SPDX-License-Identifier: GPL-2.0
//! The control device and `/proc`, for the host's root and tools.

pub(super) mod changes;
pub mod control_device;
pub mod procfs;
