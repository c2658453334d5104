// SPDX-License-Identifier: GPL-2.0
//! The structs of one call, as they are handed to the driver.

use crate::nvidia::nvos;

/// One separately copied struct of a call.
///
/// The driver copies each struct when it gets to it, so each has memory of its own. What the driver
/// writes back to one struct leaves the others as they were checked.
#[derive(Debug)]
pub struct Part<'a> {
    /// The struct without its hole: first what the driver is to read, then what it wrote.
    pub bytes: &'a mut [u8],
    /// The stretch of the struct that is not in `bytes`.
    pub hole: Hole,
    /// The place of the pointer to this part. `None` for the first part, whose address is the
    /// argument of the `ioctl`. The forwarder puts the part's address there for the driver, and the
    /// program's own pointer back afterwards. The pointer to an empty part stays as it is.
    pub pointer: Option<PointerAt>,
}

impl<'a> Part<'a> {
    /// The argument of the `ioctl`.
    pub fn argument(bytes: &'a mut [u8]) -> Self {
        Self {
            bytes,
            hole: Hole::default(),
            pointer: None,
        }
    }

    /// A struct that an earlier part points to.
    pub fn pointed(bytes: &'a mut [u8], pointer: PointerAt) -> Self {
        Self {
            bytes,
            hole: Hole::default(),
            pointer: Some(pointer),
        }
    }

    /// Bytes of the whole struct.
    pub fn size(&self) -> usize {
        self.bytes.len().saturating_add(self.hole.len)
    }

    /// The pieces of the struct that are there, each with its place.
    pub fn pieces(&self) -> [(usize, &[u8]); 2] {
        self.hole.pieces(self.bytes)
    }

    /// The place and the bytes that are taken from what the driver wrote.
    pub fn results(&mut self) -> (usize, &mut [u8]) {
        let (place, at) = self.hole.results();
        (place, self.bytes.get_mut(at..).unwrap_or_default())
    }
}

/// Bytes in the middle of a struct that the driver copies but does not look at: unused room in a
/// list.
///
/// The driver reads whatever stands there. Its results are taken from behind the hole alone,
/// because everything before it is input.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hole {
    /// The offset at which it begins; 0: there is none.
    pub at: usize,
    /// Its length in bytes; also 0 when the list is full.
    pub len: usize,
}

impl Hole {
    /// The bytes before and behind the hole, each with its place in the struct.
    fn pieces<'a>(&self, bytes: &'a [u8]) -> [(usize, &'a [u8]); 2] {
        let (before, behind) = bytes.split_at(self.at.min(bytes.len()));
        [(0, before), (self.end(), behind)]
    }

    /// The start of the results: in the struct, and in its bytes without the hole.
    pub(super) fn results(&self) -> (usize, usize) {
        (self.end(), self.at)
    }

    /// The offset at which it ends.
    fn end(&self) -> usize {
        self.at.saturating_add(self.len)
    }
}

/// Place of a 64-bit pointer: a byte offset in an earlier part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PointerAt {
    /// Index of the part that holds the pointer.
    pub part: usize,
    /// Its offset there.
    pub offset: usize,
}

/// The pointer to the control's parameters in `NV_ESC_RM_CONTROL`.
pub(super) const CONTROL_PARAMS: PointerAt = PointerAt {
    part: 0,
    offset: nvos::nvos54::PARAMS.offset(),
};

/// A descriptor's number in a part that is to stand for a held file.
#[derive(Debug)]
pub struct FileAt<'a, H> {
    /// The file.
    pub file: &'a H,
    /// Index of the part that holds the number, 32 bits wide.
    pub part: usize,
    /// Its offset there.
    pub offset: usize,
}
