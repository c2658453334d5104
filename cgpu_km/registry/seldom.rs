// SPDX-License-Identifier: GPL-2.0
//! Lines of the host's log that a tenant can cause, and how often they come.

use crate::os_interface::clock::now;
use kernel::sync::atomic::{
    Atomic,
    Full,
    Relaxed, //
};

/// The time between two lines, nanoseconds.
const TOLD_EVERY_NS: u64 = 60_000_000_000;

/// When the host's log was told last, by [`now`]; 0: it was not.
pub(super) struct Seldom(Atomic<u64>);

impl Seldom {
    pub(super) fn new() -> Self {
        Self(Atomic::new(0))
    }

    /// Whether it is time for a line. One task is told so.
    pub(super) fn is_due(&self) -> bool {
        let (told, now) = (self.0.load(Relaxed), now());
        let is_due = told == 0 || now.saturating_sub(told) >= TOLD_EVERY_NS;
        is_due && self.0.cmpxchg(told, now, Full).is_ok()
    }
}
