// SPDX-License-Identifier: GPL-2.0
//! What the host's root and tools use: the control device and `/proc`.

pub(super) mod changes;
pub mod control_device;
pub mod procfs;
