// SPDX-License-Identifier: GPL-2.0
//! Structs out of the program's memory.

use super::Call;
use super::Errno;
use super::UserAddr;
use crate::store::List;
use core::ops::Deref;
use core::ops::DerefMut;

/// Bytes that are kept without an allocation: all of RM's outer structs but one, and the parameters of
/// most classes and controls.
const INLINE: usize = 128;

/// Bytes of one struct.
pub(super) enum Bytes {
    /// The first so many of these.
    Inline([u8; INLINE], usize),
    /// Those that are too many for that.
    Allocated(List<u8>),
}

impl Bytes {
    /// `len` zeros.
    pub(super) fn zeros(len: usize) -> Result<Self, Errno> {
        Ok(match len <= INLINE {
            true => Self::Inline([0; INLINE], len),
            false => Self::Allocated(List::filled(len, 0)?),
        })
    }
}

impl Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Inline(bytes, len) => bytes.get(..*len).unwrap_or(&[]),
            Self::Allocated(bytes) => bytes,
        }
    }
}

impl DerefMut for Bytes {
    fn deref_mut(&mut self) -> &mut [u8] {
        match self {
            Self::Inline(bytes, len) => bytes.get_mut(..*len).unwrap_or(&mut []),
            Self::Allocated(bytes) => bytes,
        }
    }
}

/// A struct that was copied from the program's memory and is copied back after the call.
pub(super) struct Copied {
    pub(super) at: UserAddr,
    pub(super) bytes: Bytes,
}

impl Copied {
    /// Copies `len` bytes; `EFAULT` where they cannot be read, `ENOMEM`.
    pub(super) fn read(call: &mut impl Call, at: UserAddr, len: usize) -> Result<Self, Errno> {
        let mut bytes = Bytes::zeros(len)?;
        call.read(at, &mut bytes)?;
        Ok(Self { at, bytes })
    }

    /// Copies them back; `EFAULT` where they cannot be written.
    pub(super) fn write_back(&self, call: &mut impl Call) -> Result<(), Errno> {
        call.write(self.at, &self.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_and_large_are_the_same_to_their_users() {
        for len in [0, 1, INLINE - 1, INLINE, INLINE + 1, 9264] {
            let mut bytes = Bytes::zeros(len).expect("memory");
            assert_eq!(*bytes, vec![0; len]);
            if let Some(last) = bytes.last_mut() {
                *last = 7;
            }
            assert_eq!(
                bytes.iter().map(|b| usize::from(*b)).sum::<usize>(),
                7 * len.min(1)
            );
            assert_eq!(matches!(bytes, Bytes::Inline(..)), len <= INLINE);
        }
    }
}
