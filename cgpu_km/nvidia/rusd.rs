// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The page of `RM_USER_SHARED_DATA` (class 0xde): what stands where (`NV00DE_SHARED_DATA`, cl00de.h).
//!
//! A GPU has one such page, of host memory, which the driver and the firmware write and every program
//! that has the object can map, for reading. It consists of sections. Each begins with a number by which
//! a reader knows that he has read it whole: the number is the same before and after, and valid.

use super::version::Branch;

/// Bytes of the page.
pub const PAGE: usize = 4096;

/// What the number at the beginning of a section is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stamp {
    /// Since 570, of sections that are written when something changes: counts up from `RUSD_SEQ_START`,
    /// odd while they are written. 0: never written.
    Counter,
    /// Since 550, of sections that are polled: the time in ns. 0: there are no data. All ones, or odd
    /// above `RUSD_SEQ_START`: being written.
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
/// What a beginning adds to a [`Stamp::Pair`] (`RUSD_SEQ_BASE0`).
pub const PAIR_BEGIN: u64 = 1 << 20;
/// What an end adds (`RUSD_SEQ_BASE1`).
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

/// What a section tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// Two words of 32 bits: size of BAR1 and what is free of it, KiB.
    Bar1,
    /// Two words of 64 bits: all memory and what is free of it, bytes.
    Memory,
    /// Both, behind each other.
    Bar1AndMemory,
    /// The size of BAR1 in the upper half of the first word, what is free of it in the lower half of
    /// the second one, then how often the firmware failed.
    Bar1InHalves,
    /// The state of the hardware: clocks, temperatures, power, errors.
    Hardware,
    /// What all programs do together, or each of them: utilisation.
    Activity,
}

/// A part of the page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Section {
    /// Its first byte; a multiple of 8.
    pub at: usize,
    /// Its length in bytes, with the stamp; a multiple of 8.
    pub length: usize,
    /// What its stamp is.
    pub stamp: Stamp,
    /// What it tells.
    pub content: Content,
}

/// The sections of a branch, in order.
pub type Layout = &'static [Section];

const fn counted(at: usize, length: usize, content: Content) -> Section {
    Section {
        at,
        length,
        stamp: Stamp::Counter,
        content,
    }
}

const fn polled(at: usize, length: usize, content: Content) -> Section {
    Section {
        at,
        length,
        stamp: Stamp::Time,
        content,
    }
}

/// The sections of the page of this branch.
pub const fn layout(branch: Branch) -> Layout {
    match branch {
        Branch::R535 => R535,
        Branch::R550 => R550,
        Branch::R570 => R570,
        Branch::R580 => R580,
        Branch::R595 => R595,
    }
}

/// Bytes of the page that have a meaning (`sizeof(NV00DE_SHARED_DATA)`).
pub fn length(branch: Branch) -> u64 {
    let last = layout(branch).last();
    let end = last.map_or(0, |section| section.at + section.length);
    u64::try_from(end).unwrap_or(0)
}

const R535: Layout = &[Section {
    at: 0,
    length: 16,
    stamp: Stamp::Half,
    content: Content::Bar1InHalves,
}];

const R550: Layout = &[
    Section {
        at: 0,
        length: 32,
        stamp: Stamp::Pair,
        content: Content::Bar1AndMemory,
    },
    polled(32, 24, Content::Hardware),  // clkPublicDomainInfos
    polled(56, 16, Content::Hardware),  // clkThrottleReason
    polled(72, 16, Content::Activity),  // perfDevUtil
    polled(88, 104, Content::Hardware), // memEcc
    polled(192, 16, Content::Hardware), // perfCurrentPstate
    polled(208, 16, Content::Hardware), // powerLimitGpu
    polled(224, 16, Content::Hardware), // temperature
    polled(240, 40, Content::Hardware), // memRowRemap
    polled(280, 24, Content::Hardware), // avgPowerUsage
    polled(304, 16, Content::Hardware), // instPowerUsage
];

const R570: Layout = &[
    counted(0, 16, Content::Bar1),
    counted(16, 24, Content::Memory),
    counted(40, 16, Content::Hardware),  // shadowErrCont
    counted(56, 16, Content::Hardware),  // grInfo
    polled(72, 24, Content::Hardware),   // clkPublicDomainInfos
    polled(96, 16, Content::Hardware),   // clkThrottleReason
    polled(112, 48, Content::Activity),  // perfDevUtil
    polled(160, 104, Content::Hardware), // memEcc
    polled(264, 16, Content::Hardware),  // perfCurrentPstate
    polled(280, 16, Content::Hardware),  // powerLimitGpu
    polled(296, 16, Content::Hardware),  // temperatures
    polled(312, 16, Content::Hardware),
    polled(328, 40, Content::Hardware), // memRowRemap
    polled(368, 24, Content::Hardware), // avgPowerUsage
    polled(392, 24, Content::Hardware), // instPowerUsage
    polled(416, 48, Content::Hardware), // pciBusData
];

const R580: Layout = &[
    counted(0, 16, Content::Bar1),
    counted(16, 24, Content::Memory),
    counted(40, 16, Content::Hardware),   // shadowErrCont
    counted(56, 16, Content::Hardware),   // grInfo
    polled(72, 24, Content::Hardware),    // clkPublicDomainInfos
    polled(96, 1880, Content::Hardware),  // clkThrottleInfo
    polled(1976, 48, Content::Activity),  // perfDevUtil
    polled(2024, 240, Content::Hardware), // memEcc
    polled(2264, 16, Content::Hardware),  // perfCurrentPstate
    polled(2280, 16, Content::Hardware),  // powerLimitGpu
    polled(2296, 16, Content::Hardware),  // temperatures
    polled(2312, 16, Content::Hardware),
    polled(2328, 16, Content::Hardware),
    polled(2344, 16, Content::Hardware),
    polled(2360, 16, Content::Hardware),
    polled(2376, 40, Content::Hardware), // memRowRemap
    polled(2416, 24, Content::Hardware), // avgPowerUsage
    polled(2440, 24, Content::Hardware), // instPowerUsage
    polled(2464, 16, Content::Hardware), // powerPolicyStatus
    polled(2480, 48, Content::Hardware), // pciBusData
    polled(2528, 72, Content::Hardware), // fanCoolerStatus
];

const R595: Layout = &[
    counted(0, 16, Content::Bar1),
    counted(16, 24, Content::Memory),
    counted(40, 16, Content::Hardware),   // shadowErrCont
    counted(56, 16, Content::Hardware),   // grInfo
    polled(72, 40, Content::Hardware),    // clkPublicDomainInfos
    polled(112, 1880, Content::Hardware), // clkThrottleInfo
    polled(1992, 48, Content::Activity),  // perfDevUtil
    polled(2040, 240, Content::Hardware), // memEcc
    polled(2280, 16, Content::Hardware),  // perfCurrentPstate
    polled(2296, 16, Content::Hardware),  // powerLimitGpu
    polled(2312, 16, Content::Hardware),  // temperatures
    polled(2328, 16, Content::Hardware),
    polled(2344, 16, Content::Hardware),
    polled(2360, 16, Content::Hardware),
    polled(2376, 16, Content::Hardware),
    polled(2392, 40, Content::Hardware),  // memRowRemap
    polled(2432, 24, Content::Hardware),  // avgPowerUsage
    polled(2456, 24, Content::Hardware),  // instPowerUsage
    polled(2480, 16, Content::Hardware),  // powerPolicyStatus
    polled(2496, 48, Content::Hardware),  // pciBusData
    polled(2544, 72, Content::Hardware),  // fanCoolerStatus
    polled(2616, 528, Content::Activity), // procUtil
];
