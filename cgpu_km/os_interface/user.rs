// SPDX-License-Identifier: GPL-2.0
//! Memory of the calling process.

use core::{
    fmt,
    ptr::{without_provenance, without_provenance_mut},
};
use kernel::{bindings, prelude::*};

/// An address in the calling process. Nothing is known of it: it may be unmapped, change under our
/// eyes, or point into the kernel, which every access refuses.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct UserAddr(u64);

impl UserAddr {
    /// An address as it came in a register or in a parameter struct.
    pub const fn new(address: u64) -> Self {
        Self(address)
    }

    /// The number, to be put into a parameter struct.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// Whether this is the null pointer, by which callers say that there is nothing.
    pub const fn is_null(self) -> bool {
        self.0 == 0
    }

    /// The address `bytes` further; an overflow wraps round and is refused by the access.
    pub const fn offset(self, bytes: u64) -> Self {
        Self(self.0.wrapping_add(bytes))
    }

    /// Copies `bytes.len()` bytes from here; `EFAULT` where they cannot be read. The bytes may be
    /// others a moment later: read once, decide on the copy, act on the copy.
    ///
    /// (`UserSlice` asks for each copy what kernel memory `bytes` are in, and whether so many are there, which the
    /// length of a slice says already.)
    pub(super) fn read(self, bytes: &mut [u8]) -> Result {
        // CAST: `c_ulong` and `usize` are 64 bits wide.
        let (from, len) = (self.0 as usize, bytes.len() as c_ulong);
        let from = without_provenance::<c_void>(from);
        // SAFETY: `bytes` are ours and so many. Any address may be asked for: what is none of the program's is refused.
        match unsafe { bindings::_copy_from_user(bytes.as_mut_ptr().cast(), from, len) } {
            0 => Ok(()),
            _ => Err(EFAULT),
        }
    }

    /// Copies `bytes` to here; `EFAULT` where they cannot be written.
    pub(super) fn write(self, bytes: &[u8]) -> Result {
        // CAST: `c_ulong` and `usize` are 64 bits wide.
        let (to, len) = (self.0 as usize, bytes.len() as c_ulong);
        let to = without_provenance_mut::<c_void>(to);
        // SAFETY: As in `read`.
        match unsafe { bindings::_copy_to_user(to, bytes.as_ptr().cast(), len) } {
            0 => Ok(()),
            _ => Err(EFAULT),
        }
    }
}

impl fmt::Debug for UserAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}
