// SPDX-License-Identifier: GPL-2.0
//! A part of an address space.

use crate::policy::ids::{
    FileId,
    GpuId, //
};

/// A part of an address space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// The UVM file, which is the address space.
    pub file: FileId,
    /// On this GPU alone.
    pub gpu: Option<GpuId>,
    /// The first byte.
    pub base: u64,
    /// The last byte.
    pub last: u64,
}

/// The last of `length` bytes from `base` on; `None`: there are none, or they reach beyond the end
/// of the address space.
pub(super) fn last_of(base: u64, length: u64) -> Option<u64> {
    base.checked_add(length.checked_sub(1)?)
}
