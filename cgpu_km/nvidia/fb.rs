// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The controls that report how much memory a GPU has, and what it can do with it: a list of index
//! and number. The index says what the number is. The numbers of memory are in KiB.

pub use super::generated::params::{
    fb_region,
    fb_regions, //
};

use super::{
    generated::params::{
        fb_get_info,
        fb_get_info_v2,
        fb_pair, //
    },
    handle::ControlCmd,
    wire::Field, //
};

/// A report of how much memory there is (ctrl2080fb.h).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FbReport {
    /// Pairs behind [`fb_get_info::FB_INFO_LIST`].
    Info,
    /// Pairs in the parameters, from [`LIST_V2`] on.
    InfoV2,
    /// The pieces that the memory has: a list in the parameters ([`fb_regions`]).
    Regions,
}

/// The control of [`FbReport::InfoV2`], which the module calls itself.
pub const FB_GET_INFO_V2: ControlCmd = ControlCmd(0x2080_1303);

/// The bits of an [`INDEX`] of `NV2080_CTRL_CMD_GPU_GET_INFO_V2` that say which number
/// (`NV2080_CTRL_GPU_INFO_INDEX_INDEX`, ctrl2080gpu.h). Its list has the form of
/// [`FbReport::InfoV2`]'s.
pub const GPU_INDEX_MASK: u32 = 0x00ff_ffff;
/// Whether memory can be given to other devices by a dma-buf
/// (`NV2080_CTRL_GPU_INFO_INDEX_DMABUF_CAPABILITY`; the same in 535 to 595).
pub const GPU_DMABUF_CAPABILITY: u32 = 0x3d;

/// How many pieces the list of [`FbReport::Regions`] has room for
/// (`NV2080_CTRL_CMD_FB_GET_FB_REGION_INFO_MAX_ENTRIES`). 535 to 595 have the same number, and
/// differ in the length of a piece.
pub const MOST_REGIONS: usize = 16;

/// How many pairs the list of [`FbReport::Info`] has.
pub const COUNT: Field<u32> = fb_get_info::FB_INFO_LIST_SIZE;
/// How many pairs the list of [`FbReport::InfoV2`] has.
pub const COUNT_V2: Field<u32> = fb_get_info_v2::FB_INFO_LIST_SIZE;
/// Offset of the list in the parameters of [`FbReport::InfoV2`].
pub const LIST_V2: usize = fb_get_info_v2::FB_INFO_LIST;
/// Bytes of a pair.
pub const PAIR: usize = fb_pair::SIZE;
/// In a pair: which number.
pub const INDEX: Field<u32> = fb_pair::INDEX;
/// In a pair: the number.
pub const DATA: Field<u32> = fb_pair::DATA;

/// Numbers of a list (`NV2080_CTRL_FB_INFO_INDEX_*`, ctrl2080fb.h; the same in 535 to 595).
pub mod index {
    /// KiB of the aperture through which the CPU sees memory.
    pub const BAR1_SIZE: u32 = 0x05;
    /// KiB of memory that can be used.
    pub const RAM_SIZE: u32 = 0x07;
    /// KiB of memory: the GPU's size.
    pub const TOTAL_RAM_SIZE: u32 = 0x08;
    /// KiB that can be allocated: CUDA's total.
    pub const HEAP_SIZE: u32 = 0x09;
    /// KiB that can be allocated and mapped for the CPU.
    pub const MAPPABLE_HEAP_SIZE: u32 = 0x0a;
    /// KiB of the largest free piece.
    pub const LARGEST_FREE_REGION_SIZE: u32 = 0x12;
    /// The start of that, in KiB.
    pub const LARGEST_FREE_REGION_BASE: u32 = 0x13;
    /// KiB free.
    pub const HEAP_FREE: u32 = 0x16;
    /// KiB free in the aperture.
    pub const BAR1_AVAIL_SIZE: u32 = 0x1d;
    /// KiB of the largest free piece of the aperture.
    pub const BAR1_MAX_CONTIGUOUS_AVAIL_SIZE: u32 = 0x1f;
    /// KiB of memory without what is set aside.
    pub const USABLE_RAM_SIZE: u32 = 0x20;
    /// KiB of memory that confidential computing protects; 0 without it.
    pub const PROTECTED_MEM_SIZE_TOTAL: u32 = 0x33;
    /// KiB of it that are free.
    pub const PROTECTED_MEM_SIZE_FREE: u32 = 0x34;
}
