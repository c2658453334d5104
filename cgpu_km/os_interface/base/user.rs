// SPDX-License-Identifier: GPL-2.0
//! Copies from and to the memory of the calling process. They extend [`UserAddr`], which the pure
//! code passes around.
//!
//! Nothing is known about an address. It may be unmapped, or point into the kernel, which every
//! copy refuses. Another thread may change the bytes at any time.

use super::extra;
use crate::proxy::UserAddr;
use kernel::{
    error::to_result,
    prelude::*,
    uaccess::{
        UserPtr,
        UserSlice, //
    }, //
};

impl UserAddr {
    /// An address from a register or a parameter struct.
    pub const fn new(address: u64) -> Self {
        Self(address)
    }

    /// The address as a number, for a parameter struct.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The address `bytes` further on. It may wrap: a copy there reads the process's own memory,
    /// or fails.
    pub const fn offset(self, bytes: u64) -> Self {
        Self(self.0.wrapping_add(bytes))
    }

    fn slice(self, len: usize) -> Result<UserSlice> {
        let address = usize::try_from(self.0).map_err(|_| EFAULT)?;
        Ok(UserSlice::new(UserPtr::from_addr(address), len))
    }

    /// Fills `bytes` from this address; `EFAULT` if the memory cannot be read. Read once, decide
    /// on the copy, act on the copy.
    pub(in crate::os_interface) fn read(self, bytes: &mut [u8]) -> Result {
        if bytes.is_empty() {
            return Ok(());
        }
        self.slice(bytes.len())?.reader().read_slice(bytes)
    }

    /// Copies `bytes` to this address; `EFAULT` if the memory cannot be written.
    pub(in crate::os_interface) fn write(self, bytes: &[u8]) -> Result {
        if bytes.is_empty() {
            return Ok(());
        }
        self.slice(bytes.len())?.writer().write_slice(bytes)
    }
    /// Stores a word at this address, which is a multiple of its size, in one go; `EFAULT` if the
    /// memory cannot be written.
    pub(in crate::os_interface) fn write_word(self, word: u32) -> Result {
        let address = usize::try_from(self.0).map_err(|_| EFAULT)?;
        // SAFETY: Any address may be asked for: one that is not the process's is refused.
        // CAST: `c_ulong` is 64 bits wide.
        to_result(unsafe { extra::cgpu_shim_put_word(address as c_ulong, word) })
    }
}
