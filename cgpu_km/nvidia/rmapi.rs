// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The interface that the driver has for other kernel modules, which nvidia-modeset uses: the same calls
//! that programs make, with parameters in kernel memory and the rights of the kernel.
//!
//! `nvidia_get_rm_ops()` (kernel-open/nvidia/nv-modeset-interface.c) gives a table of functions to who knows the
//! driver's version. One of them takes a struct (`nvidia_kernel_rmapi_ops_t`, nv-kernel-rmapi-ops.h): which
//! call, and a union of the calls' own structs.

use super::fb;
use super::handle::ControlCmd;
use super::names::{names, Names};
use super::version::Branch;

/// Where the number of the call stands, 32 bits.
pub const OPERATION: usize = 0;
/// Where the call's own struct begins.
pub const ARGUMENT: usize = 8;
/// Bytes of the struct with its largest member in any branch: NVOS46 of 64 bytes.
pub const SIZE: usize = 72;

/// `NV01_FREE`, with NVOS00.
pub const FREE: u32 = 0x00;
/// `NV04_ALLOC`, with NVOS21 or NVOS64.
pub const ALLOC: u32 = 0x15;
/// `NV04_CONTROL`, with NVOS54.
pub const CONTROL: u32 = 0x36;

/// Whether `NV04_ALLOC` takes NVOS64, as it does since 580.
pub const fn has_long_alloc(branch: Branch) -> bool {
    matches!(branch, Branch::R580 | Branch::R595)
}

/// Controls that tell a program more than is its own: of all GPUs and processes, of a GPU's whole memory. None
/// has an address among its parameters, but for [`fb::FB_GET_INFO`] that of its list.
pub const fn tells_too_much(cmd: ControlCmd) -> bool {
    use Names::*;
    let has_memory = matches!(
        cmd,
        fb::FB_GET_INFO | fb::FB_GET_INFO_V2 | fb::FB_GET_REGIONS
    );
    let lists = names(cmd);
    has_memory
        || matches!(
            lists,
            Some(Attached | Probed | Instances | Active | Groups | Processes)
        )
}

/// `NVA06C_CTRL_CMD_SET_TIMESLICE`, with [`timeslice`](super::params::timeslice).
pub const SET_TIMESLICE: ControlCmd = ControlCmd(0xa06c_0103);
/// `NVA06C_CTRL_CMD_PREEMPT`, with [`preempt`](super::params::preempt).
pub const PREEMPT: ControlCmd = ControlCmd(0xa06c_0105);
/// `NV2080_CTRL_CMD_FIFO_DISABLE_CHANNELS`, with [`disable_channels`].
pub const DISABLE_CHANNELS: ControlCmd = ControlCmd(0x2080_110b);

/// `NV2080_CTRL_FIFO_DISABLE_CHANNELS_PARAMS` (ctrl2080fifo.h), the same in all branches. No program's call
/// with it is let through, so it is in no table.
pub mod disable_channels {
    use crate::nvidia::wire::{Field, Items};
    /// Its size in bytes.
    pub const SIZE: usize = 536;
    /// Channels that one call can name.
    pub const MOST: usize = 64;
    /// 1: off, and preempted; 0: on again.
    pub const DISABLE: Field<u8> = Field::at(0);
    /// How many are named.
    pub const NUM_CHANNELS: Field<u32> = Field::at(4);
    /// Their clients.
    pub const H_CLIENT_LIST: Items<u32> = Items::at(24, MOST);
    /// Their handles.
    pub const H_CHANNEL_LIST: Items<u32> = Items::at(280, MOST);
}
