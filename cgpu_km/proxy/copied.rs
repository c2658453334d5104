// SPDX-License-Identifier: GPL-2.0
//! Structs out of the program's memory.

use super::{
    call::{
        Call,
        Errno,
        UserAddr, //
    },
    part::Hole, //
};
use crate::store::List;
use core::ops::{
    Deref,
    DerefMut, //
};

/// Bytes of most of RM's outer structs: the fewer, the less it costs to set them to zero.
const SHORT: usize = 48;
/// Bytes that are kept without an allocation: all of RM's outer structs but one, and the parameters
/// of most classes and controls.
const INLINE: usize = 128;

/// Bytes of one struct.
pub(super) enum Bytes {
    /// The first so many of these.
    Short([u8; SHORT], usize),
    /// The first so many of these.
    Inline([u8; INLINE], usize),
    /// Those that do not fit there.
    Allocated(List<u8>),
}

impl Bytes {
    /// `len` zeros.
    pub(super) fn zeros(len: usize) -> Result<Self, Errno> {
        Ok(if len <= SHORT {
            Self::Short([0; SHORT], len)
        } else if len <= INLINE {
            Self::Inline([0; INLINE], len)
        } else {
            Self::Allocated(List::zeros(len)?)
        })
    }

    /// Makes room for `len` bytes instead of those here. In place, because to hand on a struct of
    /// this size costs more than what is done with it.
    fn resize(&mut self, len: usize) -> Result<(), Errno> {
        match self {
            Self::Short(_, here) if len <= SHORT => *here = len,
            Self::Inline(_, here) if len <= INLINE => *here = len,
            _ => *self = Self::zeros(len)?,
        }
        Ok(())
    }
}

impl Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Short(bytes, len) => bytes.get(..*len).unwrap_or(&[]),
            Self::Inline(bytes, len) => bytes.get(..*len).unwrap_or(&[]),
            Self::Allocated(bytes) => bytes,
        }
    }
}

impl DerefMut for Bytes {
    fn deref_mut(&mut self) -> &mut [u8] {
        match self {
            Self::Short(bytes, len) => bytes.get_mut(..*len).unwrap_or(&mut []),
            Self::Inline(bytes, len) => bytes.get_mut(..*len).unwrap_or(&mut []),
            Self::Allocated(bytes) => bytes,
        }
    }
}

/// A struct that was copied from the program's memory and is copied back after the call.
pub(super) struct Copied {
    pub(super) at: UserAddr,
    pub(super) bytes: Bytes,
    /// The stretch of it that was not copied.
    pub(super) hole: Hole,
}

impl Copied {
    /// Nothing, from nowhere: room for [`Copied::take`].
    #[inline]
    pub(super) const fn none() -> Self {
        Self {
            at: UserAddr(0),
            bytes: Bytes::Short([0; SHORT], 0),
            hole: Hole { at: 0, len: 0 },
        }
    }

    /// Copies `len` bytes to here; `EFAULT` if they cannot be read, `ENOMEM`.
    pub(super) fn take(
        &mut self,
        call: &mut impl Call,
        at: UserAddr,
        len: usize,
    ) -> Result<(), Errno> {
        self.at = at;
        self.bytes.resize(len)?;
        self.hole = Hole::default();
        call.read(at, &mut self.bytes)
    }

    /// Copies a struct without its hole. The bytes `behind` it were copied before.
    pub(super) fn take_around(
        &mut self,
        call: &mut impl Call,
        at: UserAddr,
        hole: Hole,
        behind: &[u8],
    ) -> Result<(), Errno> {
        self.at = at;
        self.bytes
            .resize(hole.at.checked_add(behind.len()).ok_or(Errno::EINVAL)?)?;
        self.hole = hole;
        let (before, rest) = self.bytes.split_at_mut(hole.at);
        rest.copy_from_slice(behind);
        call.read(at, before)
    }

    /// Copies `len` bytes; as [`Copied::take`].
    pub(super) fn read(call: &mut impl Call, at: UserAddr, len: usize) -> Result<Self, Errno> {
        let mut copied = Self::none();
        copied.take(call, at, len)?;
        Ok(copied)
    }

    /// Copies back what can have changed; `EFAULT` if that cannot be written.
    pub(super) fn write_back(&self, call: &mut impl Call) -> Result<(), Errno> {
        let (place, at) = self.hole.results();
        let results = self.bytes.get(at..).unwrap_or_default();
        call.write(self.at.behind(place)?, results)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_and_large_copies_behave_alike() {
        for len in [0, 1, SHORT, SHORT + 1, INLINE - 1, INLINE, INLINE + 1, 9264] {
            let mut bytes = Bytes::zeros(len).expect("memory");
            assert_eq!(*bytes, vec![0; len]);
            if let Some(last) = bytes.last_mut() {
                *last = 7;
            }
            assert_eq!(
                bytes.iter().map(|b| usize::from(*b)).sum::<usize>(),
                7 * len.min(1)
            );
            assert_eq!(matches!(bytes, Bytes::Allocated(_)), len > INLINE);
        }
    }

    #[test]
    fn reused_bytes_have_the_new_size() {
        for before in [0, 7, SHORT + 1, INLINE, INLINE + 1] {
            for len in [0, 1, SHORT, SHORT + 1, INLINE, INLINE + 1, 9264] {
                let mut bytes = Bytes::zeros(before).expect("memory");
                bytes.resize(len).expect("memory");
                assert_eq!(bytes.len(), len);
                assert_eq!(matches!(bytes, Bytes::Allocated(_)), len > INLINE);
            }
        }
    }
}
