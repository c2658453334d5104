// SPDX-License-Identifier: GPL-2.0
//! Numbers of page frames, and how many there are.

use super::extra;
use kernel::{
    page::PAGE_SIZE,
    prelude::*, //
};

/// The number of a page frame: a physical address over the page's size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame(u64);

impl Frame {
    /// The frame with this number.
    pub(in crate::os_interface) const fn new(number: u64) -> Self {
        Self(number)
    }

    /// Its number.
    pub(in crate::os_interface) const fn number(self) -> u64 {
        self.0
    }

    /// Whether it lies in the `length` bytes of physical memory from `start` on.
    pub fn is_within(self, start: u64, length: u64) -> bool {
        // CAST: a page's size.
        let address = self.0.checked_mul(PAGE_SIZE as u64);
        address.is_some_and(|address| address >= start && address - start < length)
    }

    /// Whether it is memory that the kernel knows, host memory most of all.
    pub fn is_memory(self) -> bool {
        // SAFETY: Any number may be asked for.
        // CAST: `c_ulong` is 64 bits wide.
        unsafe { extra::cgpu_shim_frame_is_memory(self.0 as c_ulong) }
    }
}

/// Bytes of memory that the host has.
pub fn host_memory() -> u64 {
    // SAFETY: There is no precondition.
    unsafe { extra::cgpu_shim_host_memory() }
}
