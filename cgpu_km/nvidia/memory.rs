// SPDX-License-Identifier: GPL-2.0 OR MIT
//! How much video memory an allocation takes.

/// Bytes, in and out: what was taken.
pub use super::generated::params::memory::LEN as SIZE;
pub use super::generated::params::memory::{ALIGNMENT, ATTR, ATTR2, FLAGS};

/// In [`FLAGS`]: a range of an address space, no memory (`NVOS32_ALLOC_FLAGS_VIRTUAL`).
pub const FLAGS_VIRTUAL: u32 = 0x0008_0000;
/// In the flags of the older heap interface: the caller chose the handle
/// (`NVOS32_ALLOC_FLAGS_MEMORY_HANDLE_PROVIDED`).
pub const FLAGS_MEMORY_HANDLE_PROVIDED: u32 = 0x0000_4000;

/// Video memory is taken in pages of 2 MiB.
const PAGE: u64 = 2 << 20;

/// Whether the place asked for (`NVOS32_ATTR_LOCATION`) can be video memory.
pub const fn is_video(attr: u32) -> bool {
    let location = (attr >> 25) & 0x3;
    location != 1
}

/// Whether it is to be extended GPU memory: the host's, on machines that join both
/// (`NVOS32_ATTR2_USE_EGM`).
pub const fn uses_egm(attr2: u32) -> bool {
    attr2 & 1 << 24 != 0
}

/// Bytes that the driver takes for a request for `size`.
pub fn taken(size: u64, _attr: u32, _attr2: u32, alignment: u64) -> u64 {
    let unit = PAGE.max(alignment.checked_next_power_of_two().unwrap_or(PAGE));
    size.checked_next_multiple_of(unit).unwrap_or(u64::MAX)
}

/// The same of the parameters of `NV01_MEMORY_LOCAL_USER`; `None` where they are too short.
pub fn taken_bytes(params: &[u8]) -> Option<u64> {
    Some(taken(
        SIZE.get(params)?,
        ATTR.get(params)?,
        ATTR2.get(params)?,
        ALIGNMENT.get(params)?,
    ))
}
