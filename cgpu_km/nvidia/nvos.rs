// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The arguments of the escapes, and the request codes that carry them.

pub use super::generated::nvos::*;

use super::wire::Field;

/// Type ("magic") of the request codes (`NV_IOCTL_MAGIC`, nv-ioctl-numbers.h).
pub const MAGIC: u8 = b'F';
/// Bytes of what [`nvos64::P_RIGHTS_REQUESTED`] points to (`RS_ACCESS_MASK`, rs_access.h).
pub const ACCESS_MASK_SIZE: usize = 4;

/// One GPU in the answer to `NV_ESC_CARD_INFO`, with the fields of [`card_info`].
pub type Card = [u8; card_info::SIZE];

/// Bytes of one GPU id in the argument of `NV_ESC_ATTACH_GPUS_TO_FD`.
pub const GPU_ID_SIZE: usize = 4;

/// Sizes of the argument of `NV_ESC_EXPORT_TO_DMABUF_FD` (`nv_ioctl_export_to_dma_buf_fd_t`,
/// nv-ioctl.h): before 570, and since.
pub const DMA_BUF_SIZES: [usize; 2] = [2600, 2608];

/// [`nvos32::FUNCTION`]: allocate.
pub const FUNCTION_ALLOC_SIZE: u32 = 2;
/// [`nvos32::FUNCTION`]: free.
pub const FUNCTION_FREE: u32 = 3;

/// [`nvos64::FLAGS`]: the same for an allocation, whose [`nvos64::PARAMS_SIZE`] then counts.
pub const ALLOC_FLAG_FINN_SERIALIZED: u32 = 0x1;

/// [`nvos32::FUNCTION`]: asks how large the heap is and what is free of it.
pub const FUNCTION_INFO: u32 = 5;
/// [`nvos30::FLAGS`]: whether the lists count (0) or one channel does (`NVOS30_FLAGS_CHANNEL`).
pub const IDLE_CHANNELS_WHICH: u32 = 0xf0;
/// [`nvos46::FLAGS`]: what was mapped before in the same place stays in use by the GPU
/// (`NVOS46_FLAGS_DEFER_TLB_INVALIDATION`).
pub const MAP_DEFERS_TLB_INVALIDATION: u32 = 1 << 31;
/// [`nvos46::FLAGS`]: the GPU may only read what is mapped (`NVOS46_FLAGS_ACCESS_READ_ONLY`). If
/// the memory is freed while it is mapped, the driver takes this bit for
/// [`UNMAP_DEFERS_TLB_INVALIDATION`] (`_unmapInterMapping()`, rs_client.c).
pub const MAP_READ_ONLY: u32 = 1;
/// [`nvos46::FLAGS`]: into addresses that have been taken before
/// (`NVOS46_FLAGS_DMA_UNICAST_REUSE_ALLOC`). If they are mapped, the driver frees them when it
/// cleans up, whoever's they are (`dmaAllocMapping_GM107()`, virt_mem_allocator_gm107.c).
pub const MAP_REUSES_ADDRESSES: u32 = 1 << 29;
/// [`nvos46::FLAGS`]: the driver maps it for the host's kernel as well
/// (`NVOS46_FLAGS_KERNEL_MAPPING_ENABLE`).
pub const MAP_FOR_KERNEL: u32 = 1 << 5;
/// [`nvos39::FLAGS`], and those of the class: the driver maps the memory of a context for DMA for
/// the host's kernel (`NVOS03_FLAGS_MAPPING_KERNEL`, `NVOS03_FLAGS_TYPE_NOTIFIER`).
pub const DMA_FOR_KERNEL: u32 = 1 << 20;
/// [`nvos46::FLAGS`]: another kind of page than the object has (`NVOS46_FLAGS_PAGE_KIND_VIRTUAL`,
/// `NVOS46_FLAGS_PAGE_KIND_OVERRIDE_YES`).
pub const MAP_OF_OTHER_KIND: u32 = 1 << 3 | 1 << 19;
/// [`nvos47::FLAGS`]: what is unmapped stays in use by the GPU
/// (`NVOS47_FLAGS_DEFER_TLB_INVALIDATION`).
pub const UNMAP_DEFERS_TLB_INVALIDATION: u32 = 1;

/// The address of a mapping by `NV_ESC_RM_MAP_MEMORY_DMA`, which stands before the status
/// (`NVOS46_PARAMETERS`, nvos.h).
pub fn mapped_at(bytes: &[u8]) -> u64 {
    let address = Field::at(bytes.len().saturating_sub(16));
    address.get(bytes).unwrap_or(0)
}

/// The first address that `NV_ESC_RM_UNMAP_MEMORY_DMA` unmaps, and how many. Since 550 NVOS47 has
/// 48 bytes, and says how many; 0: those of the mapping that begins there (`NVOS47_PARAMETERS`,
/// nvos.h).
pub fn unmapped_part(bytes: &[u8]) -> (u64, u64) {
    const ADDRESS: Field<u64> = Field::at(24);
    const LENGTH: Field<u64> = Field::at(32);
    let length = LENGTH.get(bytes).filter(|_| bytes.len() >= 48);
    (ADDRESS.get(bytes).unwrap_or(0), length.unwrap_or(0))
}

/// The question about a handle: the class of its object
/// (`NV0000_CTRL_CMD_CLIENT_GET_HANDLE_INFO_INDEX_CLASSID`).
pub const HANDLE_INFO_CLASS: u32 = 2;

/// In the index of an event: it is one of an engine that has done something, and has a place of its
/// own among those (`NV01_EVENT_NONSTALL_INTR`, nvos.h).
pub const EVENT_OF_AN_ENGINE: u32 = 0x0800_0000;

/// The same: nothing but that it has happened is told (`NV01_EVENT_WITHOUT_EVENT_DATA`, nvos.h).
pub const EVENT_WITHOUT_DATA: u32 = 0x1000_0000;

/// Number and argument size in a request code. The driver looks at nothing else in it
/// (`nvidia_ioctl()`, nv.c).
pub fn request_parts(code: u32) -> (u8, usize) {
    let [nr, _, low, high] = code.to_le_bytes();
    // The upper two bits are the direction.
    (nr, usize::from(u16::from_le_bytes([low, high & 0x3f])))
}

/// The request code of an escape with an argument of `size` bytes, both read and written; `None`
/// for a size that no code can hold (16 KiB and more).
pub fn request_code(nr: u8, size: usize) -> Option<u32> {
    let size = u16::try_from(size).ok().filter(|size| *size < 1 << 14)?;
    let [low, high] = size.to_le_bytes();
    Some(u32::from_le_bytes([nr, MAGIC, low, high | 0xc0]))
}
