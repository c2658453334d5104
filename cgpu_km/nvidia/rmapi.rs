// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The interface that the driver has for other kernel modules, which nvidia-modeset uses: the same
//! calls that programs make, with parameters in kernel memory and the rights of the kernel.
//!
//! `nvidia_get_rm_ops()` (kernel-open/nvidia/nv-modeset-interface.c) gives a table of functions to
//! a caller that knows the driver's version. One of them takes a struct
//! (`nvidia_kernel_rmapi_ops_t`, nv-kernel-rmapi-ops.h): which call, and a union of the calls' own
//! structs.

pub use super::generated::kernel::{
    disable_channels,
    operations,
    request, //
};

use super::{
    control::Care,
    escape::Escape,
    fb::FbReport,
    handle::ControlCmd,
    tables::Tables,
    version::Branch,
    wire::Field, //
};

/// The number of the call.
pub const OPERATION: Field<u32> = request::OP;
/// Offset of the call's own struct.
pub const ARGUMENT: usize = request::PARAMS;
/// Bytes of the struct with its largest member in any branch: NVOS46 of 64 bytes, of 580 and later.
pub const SIZE: usize = 72;

/// `NV01_FREE`, with NVOS00.
pub const FREE: u32 = 0x00;
/// `NV04_ALLOC`, with NVOS21 or NVOS64.
pub const ALLOC: u32 = 0x15;
/// `NV04_MAP_MEMORY`, with NVOS33.
pub const MAP: u32 = 0x21;
/// `NV04_UNMAP_MEMORY`, with NVOS34.
pub const UNMAP: u32 = 0x22;
/// `NV04_MAP_MEMORY_DMA`, with NVOS46.
pub const MAP_DMA: u32 = 0x2e;
/// `NV04_UNMAP_MEMORY_DMA`, with NVOS47.
pub const UNMAP_DMA: u32 = 0x2f;
/// `NV04_CONTROL`, with NVOS54.
pub const CONTROL: u32 = 0x36;

/// [`nvos33::FLAGS`](super::nvos::nvos33::FLAGS) for a mapping whose physical address is told, for
/// whoever puts it into programs' memory as nvidia-drm does (`NVOS33_FLAGS_MEM_SPACE_USER`), and
/// that is written to (`NVOS33_FLAGS_ACCESS_WRITE_ONLY`), as CUDA maps a doorbell.
pub const MAP_FOR_PROGRAMS: u32 = 1 << 14 | 2;

/// The parameters of a control that [no program may see](super::control::Care::is_unseen).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnseenParams {
    /// There is no address in them.
    Flat,
    /// Their only address is that of a list of pairs, index and number, as [`FbReport::Info`] has.
    WithPairs,
}

/// The parameters of a branch's control, if no program may see them. One such control is the
/// module's own question, which no program asks.
pub fn unseen(branch: Branch, cmd: ControlCmd) -> Option<UnseenParams> {
    if cmd == GET_HANDLE_INFO {
        return Some(UnseenParams::Flat);
    }
    let entry = Tables::of(branch)?.control(cmd)?;
    if !entry.care.is_unseen() {
        None
    } else if entry.care == Care::Memory(FbReport::Info) {
        Some(UnseenParams::WithPairs)
    } else {
        Some(UnseenParams::Flat)
    }
}

/// The operation of an escape whose answer no program may see: those that end mappings, or make
/// them for a GPU. Their structs have addresses that the driver compares, and follows none.
pub const fn unseen_operation(escape: Escape) -> Option<u32> {
    match escape {
        Escape::RmUnmapMemory => Some(UNMAP),
        Escape::RmMapMemoryDma => Some(MAP_DMA),
        Escape::RmUnmapMemoryDma => Some(UNMAP_DMA),
        _ => None,
    }
}

/// Whether `NV04_ALLOC` takes NVOS64, as it does since 580.
pub const fn has_long_alloc(branch: Branch) -> bool {
    matches!(branch, Branch::R580 | Branch::R595)
}

/// Whether `NV_ESC_RM_MAP_MEMORY` can leave the place of a mapping behind, for the next one of the
/// same thread: since 570 it goes from one half of the call to the other in a slot of the thread
/// (`TLS_ENTRY_ID_MAPPING_CONTEXT`: `osMapPciMemoryAreaUser()` in os.c fills it,
/// `RmCreateMmapContextLocked()` in osapi.c empties it, if it comes so far).
pub const fn has_mapping_slot(branch: Branch) -> bool {
    !matches!(branch, Branch::R535 | Branch::R550)
}

/// `NVA06C_CTRL_CMD_SET_TIMESLICE`, with [`timeslice`](super::params::timeslice).
pub const SET_TIMESLICE: ControlCmd = ControlCmd(0xa06c_0103);
/// `NVA06C_CTRL_CMD_PREEMPT`, with [`preempt`](super::params::preempt).
pub const PREEMPT: ControlCmd = ControlCmd(0xa06c_0105);
/// `NV2080_CTRL_CMD_GR_SET_CTXSW_PREEMPTION_MODE`, with
/// [`preemption_mode`](super::params::preemption_mode).
pub const SET_PREEMPTION_MODE: ControlCmd = ControlCmd(0x2080_1210);
/// `NV0000_CTRL_CMD_CLIENT_GET_HANDLE_INFO`, with [`handle_info`](super::params::handle_info).
pub const GET_HANDLE_INFO: ControlCmd = ControlCmd(0x0d02);
/// `NV2080_CTRL_CMD_FIFO_DISABLE_CHANNELS`, with [`disable_channels`].
pub const DISABLE_CHANNELS: ControlCmd = ControlCmd(0x2080_110b);

/// `NV2080_CTRL_CMD_PERF_GET_GPUMON_PERFMON_UTIL_SAMPLES_V2`, with
/// [`gpumon`](super::params::gpumon).
pub const GPUMON_SAMPLES: ControlCmd = ControlCmd(0x2080_2096);
/// `NV2080_CTRL_CMD_PERF_BOOST`, with [`perf_boost`](super::params::perf_boost).
pub const PERF_BOOST: ControlCmd = ControlCmd(0x2080_200a);
