// SPDX-License-Identifier: GPL-2.0
//! The counts that the processes of the storm share.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

/// Kinds of steps.
pub(super) const KINDS: usize = 20;

/// Shared by all processes.
#[repr(C)]
pub(super) struct PagesBoard {
    pub(super) steps: [AtomicU64; KINDS],
    pub(super) reads: AtomicU64,
    pub(super) faults: AtomicU64,
    pub(super) foreign: AtomicU64,
    pub(super) odd: AtomicU64,
    pub(super) outlived: AtomicU64,
    pub(super) lost: AtomicU64,
    /// Not 0: on the driver's own nodes, where findings are no news.
    pub(super) direct: AtomicU32,
    /// The number of the last tag.
    pub(super) tags: AtomicU32,
}

/// The upper half of each tag.
const TAG: u64 = 0x007a_90f9 << 32;

/// Whether a word is a tag of any object.
pub(super) fn is_tag(word: u64) -> bool {
    word & !0xffff_ffff == TAG
}

impl PagesBoard {
    /// A tag that nothing has had.
    pub(super) fn tag(&self) -> u64 {
        TAG | u64::from(self.tags.fetch_add(1, Relaxed))
    }
}

/// One more.
pub(super) fn count(counter: &AtomicU64) -> u64 {
    counter.fetch_add(1, Relaxed) + 1
}
