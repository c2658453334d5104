// SPDX-License-Identifier: GPL-2.0
//! The device files that stand for tenants: host nodes with numbers of our own, and proxy nodes
//! that show the driver's numbers.

pub mod cgpufs;
pub mod devices;
