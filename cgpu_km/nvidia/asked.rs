// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The controls by which the module asks a driver about its GPUs, when it attaches to it.

use super::handle::ControlCmd;

/// The numbers of a GPU, of which one makes its device.
pub const GPU_GET_ID_INFO: ControlCmd = ControlCmd(0x0202);
/// Pairs, of which [`INFO_MIG_MODE`] is one.
pub const GPU_GET_INFO_V2: ControlCmd = ControlCmd(0x2080_0102);
/// The name of the product.
pub const GPU_GET_NAME_STRING: ControlCmd = ControlCmd(0x2080_0110);
/// The UUID.
pub const GPU_GET_GID_INFO: ControlCmd = ControlCmd(0x2080_014a);
/// Pairs, of which [`INFO_PER_RUNLIST`] is one.
pub const FIFO_GET_INFO: ControlCmd = ControlCmd(0x2080_1109);
/// The [architecture](super::architecture).
pub const MC_GET_ARCH_INFO: ControlCmd = ControlCmd(0x2080_1701);

/// The index of the MIG mode (`NV2080_CTRL_GPU_INFO_INDEX_GPU_SMC_MODE`, ctrl2080gpu.h).
pub const INFO_MIG_MODE: u32 = 0x2a;
/// The index of whether each runlist has ids of its own
/// (`NV2080_CTRL_FIFO_INFO_INDEX_IS_PER_RUNLIST_CHANNEL_RAM_SUPPORTED`, ctrl2080fifo.h).
pub const INFO_PER_RUNLIST: u32 = 7;
