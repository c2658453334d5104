// SPDX-License-Identifier: GPL-2.0
//! Memory of the calling process.

use crate::proxy::UserAddr;
use kernel::{
    prelude::*,
    uaccess::{UserPtr, UserSlice},
};

// Nothing is known of an address: it may be unmapped, change under our eyes, or point into the
// kernel, which every access refuses.
impl UserAddr {
    /// An address as it came in a register or in a parameter struct.
    pub const fn new(address: u64) -> Self {
        Self(address)
    }

    /// The number, to be put into a parameter struct.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The address `bytes` further; an overflow wraps round and is refused by the access.
    pub const fn offset(self, bytes: u64) -> Self {
        Self(self.0.wrapping_add(bytes))
    }

    fn slice(self, len: usize) -> Result<UserSlice> {
        let address = usize::try_from(self.0).map_err(|_| EFAULT)?;
        Ok(UserSlice::new(UserPtr::from_addr(address), len))
    }

    /// Copies `bytes.len()` bytes from here; `EFAULT` where that cannot be read. The bytes may be
    /// others a moment later: read once, decide on the copy, act on the copy.
    pub(in crate::os_interface) fn read(self, bytes: &mut [u8]) -> Result {
        if bytes.is_empty() {
            return Ok(());
        }
        self.slice(bytes.len())?.reader().read_slice(bytes)
    }

    /// Copies `bytes` to here; `EFAULT` where that cannot be written.
    pub(in crate::os_interface) fn write(self, bytes: &[u8]) -> Result {
        if bytes.is_empty() {
            return Ok(());
        }
        self.slice(bytes.len())?.writer().write_slice(bytes)
    }
}
