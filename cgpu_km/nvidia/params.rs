// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The parameters of classes and controls that are looked at.

pub use super::generated::params::*;
use super::{
    class::Kind,
    handle::ObjectHandle, //
};

/// The GPU that a new `NV01_DEVICE_0` stands for.
pub use super::generated::params::nv0080::DEVICE_ID;

/// [`nva06c::ENGINE_TYPE`]: the first engine that only copies (`NV2080_ENGINE_TYPE_COPY0`,
/// cl2080_notification.h). Those of compute and graphics come before.
pub const ENGINE_TYPE_COPY0: u32 = 9;
/// [`gid_info::FLAGS`]: the 16 bytes of the UUID instead of its text
/// (`NV2080_GPU_CMD_GPU_GET_GID_FLAGS_FORMAT_BINARY` with `TYPE_SHA1`, ctrl2080gpu.h).
pub const GID_BINARY: u32 = 2;
/// [`timeslice::TIMESLICE_US`] of a new channel group, in microseconds: `TIMEOUT_128` of `SCALE_3`
/// (`kfifoChannelGroupGetDefaultTimeslice_GV100()`, kernel_fifo_gv100.c; the same since Maxwell).
pub const DEFAULT_TIMESLICE_US: u64 = 128 << 3;
/// Most of [`preempt::TIMEOUT_US`](preempt) (`NVA06C_CTRL_CMD_PREEMPT_MAX_MANUAL_TIMEOUT_US`,
/// ctrla06c.h).
pub const MOST_PREEMPT_TIMEOUT_US: u32 = 1_000_000;
/// [`preemption_mode::FLAGS`]: the mode of compute work is set
/// (`NV2080_CTRL_GR_SET_CTXSW_PREEMPTION_MODE_FLAGS_CILP_SET`, ctrl2080gr.h).
pub const SETS_CILP: u32 = 1;
/// [`preemption_mode::CILP_PREEMPT_MODE`]: a kernel stops at any instruction
/// (`NV2080_CTRL_SET_CTXSW_PREEMPTION_MODE_COMPUTE_CILP`).
pub const CILP: u32 = 2;
/// The bits of [`perf_boost::FLAGS`] that say what to do; 3 is nothing
/// (`NV2080_CTRL_PERF_BOOST_FLAGS_CMD`, ctrl2080perf.h).
pub const PERF_BOOST_FLAGS_CMD: u32 = 0x3;
/// [`PERF_BOOST_FLAGS_CMD`]: what there was is taken back (`_CMD_CLEAR`).
pub const PERF_BOOST_CLEAR: u32 = 0;
/// [`PERF_BOOST_FLAGS_CMD`]: to the highest (`_CMD_BOOST_TO_MAX`).
pub const PERF_BOOST_TO_MAX: u32 = 2;
/// [`perf_boost::FLAGS`]: for CUDA (`NV2080_CTRL_PERF_BOOST_FLAGS_CUDA_YES`). CUDA boosts and
/// clears with it.
pub const PERF_BOOST_CUDA: u32 = 1 << 4;
/// Most of [`perf_boost::DURATION`], in seconds.
pub const MOST_PERF_BOOST_S: u32 = 3600;
/// [`perf_boost::DURATION`]: until it is cleared.
pub const PERF_BOOST_INFINITE: u32 = 0xffff_ffff;
/// [`export_object::TYPE`], [`import_object::TYPE`]: an object of the resource manager
/// (`NV0000_CTRL_OS_UNIX_EXPORT_OBJECT_TYPE_RM`, ctrl0000unix.h).
pub const EXPORT_TYPE_RM: u32 = 1;
/// [`export_object::FLAGS`]: nothing is to be exported
/// (`NV0000_CTRL_OS_UNIX_EXPORT_OBJECT_TO_FD_FLAGS_EMPTY_FD`).
pub const EXPORT_FLAG_EMPTY: u32 = 1;
/// [`import_objects::OBJECT_TYPES`]: nothing was there
/// (`NV0000_CTRL_CMD_OS_UNIX_IMPORT_OBJECT_TYPE_NONE`).
pub const IMPORT_TYPE_NONE: u8 = 0;
/// Ends the lists of GPU ids (`NV0000_CTRL_GPU_INVALID_ID`, ctrl0000gpu.h).
pub const GPU_ID_END: u32 = 0xffff_ffff;

/// Whether host memory that is registered with these flags of `NV_ESC_RM_ALLOC_MEMORY` is cached
/// (`NVOS02_FLAGS_COHERENCY` is `CACHED` or `WRITE_BACK`, which the driver takes for the same).
/// Without it the driver takes what is at the address for registers of a device too, by their
/// frames and not by pages (`osCreateOsDescriptorFromIoMemory()`, osmemdesc.c).
pub const fn is_cached_host_memory(flags: u32) -> bool {
    matches!((flags >> 12) & 0xf, 1 | 5)
}

/// In the flags of `NV_ESC_RM_ALLOC_MEMORY`: the GPU's firmware is to know the memory
/// (`NVOS02_FLAGS_REGISTER_MEMDESC_TO_PHYS_RM`, since 570).
pub const FLAG_FIRMWARE_KNOWS: u32 = 1 << 27;

/// Whether these flags of `NV_ESC_RM_ALLOC_MEMORY` ask for an object alone (`NVOS02_FLAGS_ALLOC` is
/// `NONE`), and not for memory behind it.
pub const fn is_without_memory(flags: u32) -> bool {
    (flags >> 16) & 3 == 1
}

/// Whether `NV_ESC_RM_ALLOC_MEMORY` with these flags asks for host memory in one piece
/// (`NVOS02_FLAGS_PHYSICALITY` is `CONTIGUOUS`).
pub const fn is_in_one_piece(flags: u32) -> bool {
    (flags >> 4) & 0xf == 0
}

/// Whether `NV_ESC_RM_ALLOC_MEMORY` of host memory with these flags prepares a mapping at once:
/// there is memory, and `NVOS02_FLAGS_MAPPING` is not `NO_MAP` (`RmIoctl()` in
/// src/nvidia/arch/nvalloc/unix/src/escape.c).
pub const fn is_mapped_at_once(flags: u32) -> bool {
    !is_without_memory(flags) && flags >> 30 != 1
}

/// Whether an engine runs compute or graphics: the engine itself, its parts under MIG
/// (`NV2080_ENGINE_TYPE_GR0` to `GR7`), or 0 (`NULL`), which leaves it open.
pub const fn is_compute_engine(engine: u32) -> bool {
    engine < ENGINE_TYPE_COPY0
}

/// Whether an engine copies and does nothing else (`NV2080_ENGINE_TYPE_COPY0` to `COPY19` and
/// `COMP_DECOMP_COPY0` to `19`).
pub const fn is_copy_engine(engine: u32) -> bool {
    matches!(engine, ENGINE_TYPE_COPY0..=18 | 52..=61 | 64..=83)
}

/// The engine that the parameters of a group of channels, or of a channel, name; `None`: they are
/// of something else.
pub fn engine(kind: Kind, params: &[u8]) -> Option<u32> {
    match kind {
        Kind::ChannelGroup => nva06c::ENGINE_TYPE.get(params),
        Kind::Channel => channel::ENGINE_TYPE.get(params),
        _ => None,
    }
}

/// The memory for which an object of NVLink's fabric is to be made; `None` where the parameters
/// leave that for later (`NV00F8_ALLOC_FLAGS_FLEXIBLE_FLA`, cl00f8.h), which CUDA does not.
pub fn fabric_memory(params: &[u8]) -> Option<ObjectHandle> {
    const FLEXIBLE: u32 = 1;
    let memory = fabric::H_VID_MEM
        .get(params)
        .filter(|memory| *memory != 0)?;
    let sticks = fabric::ALLOC_FLAGS.get(params)? & FLEXIBLE == 0;
    sticks.then_some(ObjectHandle(memory))
}

/// Bytes that the page tables of a new address space take, as measured on an H200 with driver 580
/// (docs/measurements/2026-11-22-page-tables.md): nothing where they are somebody else's
/// (`NV_VASPACE_ALLOCATION_FLAGS_IS_EXTERNALLY_OWNED`, nvos.h), UVM's above all, which are charged
/// as they come.
pub fn address_space_tables(params: &[u8]) -> u64 {
    const EXTERNALLY_OWNED: u32 = 1 << 3;
    match vaspace::FLAGS.get(params) {
        Some(flags) if flags & EXTERNALLY_OWNED != 0 => 0,
        _ => 20 << 10,
    }
}

/// To whom a share policy gives the use of an object: its [`share_policy::TYPE`] and
/// [`nvos57::TYPE`](super::nvos::nvos57::TYPE) (`RS_SHARE_TYPE_*`, rs_access.h).
pub mod share_type {
    /// Nobody.
    pub const NONE: u16 = 0;
    /// Every client.
    pub const ALL: u16 = 1;
    /// The clients of the same user.
    pub const OS_SECURITY_TOKEN: u16 = 2;
    /// The clients of the same process.
    pub const PID: u16 = 4;
    /// The clients of the same MIG partition.
    pub const SMC_PARTITION: u16 = 5;
    /// The clients of the same GPU.
    pub const GPU: u16 = 6;
}
