// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The page of `RM_USER_SHARED_DATA` (class 0xde): what stands where (`NV00DE_SHARED_DATA`,
//! cl00de.h).
//!
//! A GPU has one such page of host memory. The driver and the firmware write it, and every program
//! that has the object can map it for reading. It consists of sections. Each begins with a number,
//! the stamp. A reader has read a section whole if its stamp is valid and the same before and
//! after.

/// Bytes of the page.
pub const PAGE: usize = 4096;

/// The form of the number at the beginning of a section.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stamp {
    /// Since 570, of sections that are written when something changes. It counts up from
    /// `RUSD_SEQ_START`, and is odd while the section is written. 0: never written.
    Counter,
    /// Since 550, of sections that are polled: the time in nanoseconds. 0: there are no data. All
    /// ones, or odd above `RUSD_SEQ_START`: being written.
    Time,
    /// 550: two counts, of beginnings and of ends, in the remainders of two neighbouring divisors.
    Pair,
    /// 535: in the lower half of the word, odd while it is written. The upper half is data.
    Half,
}

/// The first value of [`Stamp::Counter`] (`RUSD_SEQ_START`).
pub const SEQ_START: u64 = 0xff00_0000_0000_0000;
/// Of a polled section that is being written (`RUSD_TIMESTAMP_WRITE_IN_PROGRESS`).
pub const WRITE_IN_PROGRESS: u64 = u64::MAX;
/// The number that a beginning adds to a [`Stamp::Pair`] (`RUSD_SEQ_BASE0`).
pub const PAIR_BEGIN: u64 = 1 << 20;
/// The number that an end adds (`RUSD_SEQ_BASE1`).
pub const PAIR_END: u64 = PAIR_BEGIN - 1;
/// After how many changes a pair begins anew (`RUSD_SEQ_WRAP_VAL`).
pub const PAIR_WRAP: u64 = 1 << 18;

impl Stamp {
    /// Whether a section with this word at its beginning has data that are not being written.
    pub const fn is_valid(self, word: u64) -> bool {
        match self {
            Self::Counter | Self::Time => word != 0 && (word < SEQ_START || word & 1 == 0),
            Self::Pair => {
                let begun = word % PAIR_END;
                let ended = (PAIR_BEGIN - word % PAIR_BEGIN) % PAIR_BEGIN;
                begun == ended
            }
            Self::Half => word & 1 == 0,
        }
    }
}

/// The content of a section.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// Two words of 32 bits: size of BAR1 and what is free of it, KiB.
    Bar1,
    /// Two words of 64 bits: all memory and what is free of it, bytes.
    Memory,
    /// Both, behind each other.
    Bar1AndMemory,
    /// The size of BAR1 in the upper half of the first word, what is free of it in the lower half
    /// of the second one, then how often the firmware failed.
    Bar1InHalves,
    /// The state of the hardware: clocks, temperatures, power, errors.
    Hardware,
    /// The activity of all programs together, or of each of them: utilisation.
    Activity,
}

/// The sections of a branch's page, in order ([`Tables::shared_data`](super::tables::Tables)).
pub type Layout = &'static [Section];

/// A part of the page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Section {
    /// Its first byte; a multiple of 8.
    pub at: usize,
    /// Its length in bytes, with the stamp; a multiple of 8.
    pub length: usize,
    /// The form of its stamp.
    pub stamp: Stamp,
    /// Its content.
    pub content: Content,
}

pub(super) const fn section(at: usize, length: usize, stamp: Stamp, content: Content) -> Section {
    Section {
        at,
        length,
        stamp,
        content,
    }
}

/// Bytes of the page that have a meaning (`sizeof(NV00DE_SHARED_DATA)`).
pub fn length(layout: Layout) -> u64 {
    let end = layout.last().map_or(0, |last| last.at + last.length);
    u64::try_from(end).unwrap_or(0)
}
