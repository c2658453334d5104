// SPDX-License-Identifier: GPL-2.0 OR MIT
//! How much memory an allocation takes: of a GPU, and in the end of the host.
//!
//! `vidmemConstruct_IMPL()` (src/nvidia/src/kernel/mem_mgr/video_mem.c) takes pages from the
//! physical memory allocator (PMA), of a size that `memmgrDeterminePageSize_IMPL()`
//! (gpu/mem_mgr/mem_mgr.c) chooses, and tells the size of the object afterwards. What is sure, for
//! every GPU of the open driver (Turing and later), in 535 to 595:
//!
//! * `attr` names a page size, or the driver chooses: 2 MiB for 2 MiB and more, 64 KiB below.
//! * PMA gives no less than 64 KiB at a time. An object of 4 KiB pages tells a size in steps of 4
//!   KiB all the same, so the told size can be less than what is gone: a charge must not follow it
//!   down.
//! * The alignment moves an object and makes none bigger, but at a fixed address, which the module
//!   lets no program choose. But a small object then has a frame of 2 MiB to itself, which nobody
//!   can have whole. So the charge is rounded to the alignment, up to 2 MiB.
//! * Compression rounds to its own unit, of at most 256 KiB. This only matters below 2 MiB.
//! * Size 0 is refused; the width, height and pitch of a picture are not looked at for the size.
//!
//! The recordings (H200) have the second case of the first rule only: each of their allocations, of
//! 2 MiB to 1 GiB, took its size rounded to 2 MiB. Not covered: memory that is also the host's
//! (NUMA machines), where contiguous pieces come in powers of two.

/// Bytes, in and out: what was taken.
pub use super::generated::params::memory::LEN as SIZE;
pub use super::generated::params::memory::{
    ALIGNMENT,
    ATTR,
    ATTR2,
    FLAGS,
    H_VA_SPACE, //
};

/// In [`FLAGS`]: the program chooses the address, or where it is to lie
/// (`NVOS32_ALLOC_FLAGS_FIXED_ADDRESS_ALLOCATE`, `NVOS32_ALLOC_FLAGS_USE_BEGIN_END`).
pub const FLAGS_PLACED: u32 = 0x0002_0010;
/// In [`FLAGS`]: [`ALIGNMENT`] counts (`NVOS32_ALLOC_FLAGS_ALIGNMENT_HINT` and `_FORCE`).
pub const FLAGS_ALIGNMENT: u32 = 0x0000_0180;
/// In [`FLAGS`]: a range of an address space, no memory (`NVOS32_ALLOC_FLAGS_VIRTUAL`). The class
/// of video memory refuses it.
pub const FLAGS_VIRTUAL: u32 = 0x0008_0000;
/// In [`FLAGS`], of a range: its page tables are made as they are needed
/// (`NVOS32_ALLOC_FLAGS_LAZY`), are somebody else's (`NVOS32_ALLOC_FLAGS_EXTERNALLY_MANAGED`).
pub const FLAGS_LAZY: u32 = 0x0000_0400;
/// See [`FLAGS_LAZY`].
pub const FLAGS_EXTERNALLY_MANAGED: u32 = 0x0040_0000;
/// In [`FLAGS`], of a range: it reads as zeros where nothing is mapped
/// (`NVOS32_ALLOC_FLAGS_SPARSE`).
pub const FLAGS_SPARSE: u32 = 0x0400_0000;
/// In the flags of the older heap interface: the caller chose the handle
/// (`NVOS32_ALLOC_FLAGS_MEMORY_HANDLE_PROVIDED`).
pub const FLAGS_MEMORY_HANDLE_PROVIDED: u32 = 0x0000_4000;

/// In [`ATTR2`]: the GPU's firmware is to know the memory, whatever kind it is
/// (`NVOS32_ATTR2_REGISTER_MEMDESC_TO_PHYS_RM`).
pub const ATTR2_FIRMWARE_KNOWS: u32 = 1 << 31;
/// [`ATTR2`]: the parameters name a node of the host's memory
/// (`NVOS32_ATTR2_FIXED_NUMA_NODE_ID_YES`).
pub const ATTR2_FIXED_NODE: u32 = 1 << 7;
/// [`ATTR2`], since 580: the memory is to be near one half of the GPU
/// (`NVOS32_ATTR2_ENABLE_LOCALIZED_MEMORY`).
pub const ATTR2_LOCALIZED: u32 = 3 << 29;
/// Those bits of [`ATTR2`] that the driver never gets.
pub const ATTR2_WITHHELD: u32 = ATTR2_FIRMWARE_KNOWS | ATTR2_FIXED_NODE | ATTR2_LOCALIZED;

/// In [`ATTR`], of host memory: it is to be in one piece (`NVOS32_ATTR_PHYSICALITY_CONTIGUOUS`).
pub const ATTR_CONTIGUOUS: u32 = 2 << 27;
/// [`ATTR_CONTIGUOUS`] and what may stand in its place.
const ATTR_PHYSICALITY: u32 = 3 << 27;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
/// The least that PMA gives, and the driver's page below a huge one.
const BIG: u64 = 64 * KIB;
const HUGE: u64 = 2 * MIB;
/// The largest unit of compression (`comprPageSize`).
const COMPRESSION: u64 = 256 * KIB;

/// Whether memory is asked for in video memory (`NVOS32_ATTR_LOCATION` is `VIDMEM`). With the
/// others (`PCI`, `ANY`) the class of video memory refuses, and the older heap interface makes
/// memory of the host (`_rmVidHeapControlAllocCommon()`).
pub const fn is_video(attr: u32) -> bool {
    (attr >> 25) & 0x3 == 0
}

/// Whether it is to be extended GPU memory: the host's, on machines that join both
/// (`NVOS32_ATTR2_USE_EGM`).
pub const fn uses_egm(attr2: u32) -> bool {
    attr2 & 1 << 24 != 0
}

/// Bytes of a page of the memory (`NVOS32_ATTR_PAGE_SIZE`, `NVOS32_ATTR2_PAGE_SIZE_HUGE`), but at
/// least what PMA gives.
const fn page(size: u64, attr: u32, attr2: u32) -> u64 {
    match ((attr >> 23) & 0x3, (attr2 >> 20) & 0x3) {
        // Default.
        (0, _) if size >= HUGE => HUGE,
        // Default, 4 KiB, big.
        (0..=2, _) => BIG,
        // Huge.
        (_, 2) => 512 * MIB,
        (_, 3) => 256 * GIB,
        _ => HUGE,
    }
}

/// The size of the pages by which a GPU's address space shows memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum PageSize {
    /// 4 KiB.
    #[default]
    Small,
    /// 64 KiB.
    Big,
    /// 2 MiB or more.
    Huge,
}

impl PageSize {
    /// The largest that all of some numbers are multiples of; the numbers are or-ed together. So
    /// the driver chooses (`uvm_map_external_allocation_on_gpu()`, uvm_map_external.c).
    pub const fn dividing(numbers: u64) -> Self {
        if numbers % BIG != 0 {
            Self::Small
        } else if numbers % HUGE != 0 {
            Self::Big
        } else {
            Self::Huge
        }
    }

    /// The largest of which there is a whole page in so many bytes, or else the smallest.
    const fn largest_in(size: u64) -> Self {
        if size >= HUGE {
            Self::Huge
        } else if size >= BIG {
            Self::Big
        } else {
            Self::Small
        }
    }

    /// Bytes of the least page of that size.
    pub const fn bytes(self) -> u64 {
        match self {
            Self::Small => 4 * KIB,
            Self::Big => BIG,
            Self::Huge => HUGE,
        }
    }
}

/// The pages of which the driver makes video memory, the largest ones by which it can be mapped.
pub fn page_size(size: u64, attr: u32, attr2: u32) -> PageSize {
    match (attr >> 23) & 0x3 {
        1 => PageSize::Small,
        _ => PageSize::dividing(page(size, attr, attr2)),
    }
}

/// The same of the parameters of `NV01_MEMORY_LOCAL_USER`; 4 KiB where they are too short.
pub fn page_size_of(params: &[u8]) -> PageSize {
    let of = || {
        Some(page_size(
            SIZE.get(params)?,
            ATTR.get(params)?,
            ATTR2.get(params)?,
        ))
    };
    of().unwrap_or_default()
}

/// Whether the driver makes the page tables of a range of addresses with the range
/// (`virtmemConstruct_IMPL()` in virtual_mem.c, `gvaspaceAlloc_IMPL()` in gpu_vaspace.c), and not
/// when something is mapped there. CUDA asks for none. Sparse ranges are taken for such; their
/// tables are fewer.
pub const fn makes_tables(flags: u32) -> bool {
    flags & FLAGS_SPARSE != 0 || flags & (FLAGS_LAZY | FLAGS_EXTERNALLY_MANAGED) == 0
}

/// Bytes that the driver takes for a request for `size`; more than there can be where no `u64`
/// holds them.
pub fn taken(size: u64, flags: u32, attr: u32, attr2: u32, alignment: u64) -> u64 {
    let mut unit = page(size, attr, attr2);
    // NVOS32_ATTR_COMPR
    if (attr >> 12) & 0x3 != 0 {
        unit = unit.max(COMPRESSION);
    }
    if flags & FLAGS_ALIGNMENT != 0 {
        unit = unit.max(alignment.min(HUGE).next_power_of_two());
    }
    size.checked_next_multiple_of(unit).unwrap_or(u64::MAX)
}

/// The same of the parameters of `NV01_MEMORY_LOCAL_USER`; `None` where they are too short.
pub fn taken_bytes(params: &[u8]) -> Option<u64> {
    Some(taken(
        SIZE.get(params)?,
        FLAGS.get(params)?,
        ATTR.get(params)?,
        ATTR2.get(params)?,
        ALIGNMENT.get(params)?,
    ))
}

/// Bytes of the host's memory that the driver takes for a request for `size`.
///
/// Those are whole pages of the size that is asked for. If none is, the driver takes those of the
/// host, and since 580 the largest that fit (`_memmgrPickDefaultSysmemPageSize()`, mem_mgr.c);
/// here it is always the latter. One piece is as large as the next power of two
/// (`nv_alloc_contig_pages()`, kernel-open/nvidia/nv-vm.c).
pub fn host_taken(size: u64, attr: u32, attr2: u32) -> u64 {
    let unit = match (attr >> 23) & 0x3 {
        0 => PageSize::largest_in(size).bytes(),
        1 => PageSize::Small.bytes(),
        _ => page(size, attr, attr2),
    };
    let whole = size.checked_next_multiple_of(unit);
    let taken = whole.and_then(|whole| match attr & ATTR_PHYSICALITY {
        ATTR_CONTIGUOUS => whole.checked_next_power_of_two(),
        _ => Some(whole),
    });
    taken.unwrap_or(u64::MAX)
}

/// The same of the parameters of `NV01_MEMORY_SYSTEM`; `None` where they are too short.
pub fn host_bytes(params: &[u8]) -> Option<u64> {
    Some(host_taken(
        SIZE.get(params)?,
        ATTR.get(params)?,
        ATTR2.get(params)?,
    ))
}

/// Bytes that the driver keeps for each page of a program's memory that is registered, at most.
///
/// Up to branch 570: the page itself in one list, a pointer and what it points to in another
/// (`os_lock_user_pages()`, os-mlock.c; `nvos_create_alloc()`, nv.c), its address in the driver's
/// own and in that for an IOMMU (mem_desc.c, io_vaspace.c), and an entry of a scatter list
/// (nv-dma.c): 8 + 8 + 32 + 8 + 8 + 32 bytes.
const REGISTERED_PAGE: u64 = 96;

/// Bytes of the host's memory that the driver takes for its lists when it registers a program's
/// memory from `start` to `last`; more than there can be where that is no range.
pub fn registered_taken(start: u64, last: u64) -> u64 {
    let page = PageSize::Small.bytes();
    let pages = (start % page).checked_add(last).map(|last| last / page);
    let bytes = pages.and_then(|pages| pages.checked_add(1)?.checked_mul(REGISTERED_PAGE));
    bytes.unwrap_or(u64::MAX)
}
