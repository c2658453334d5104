// SPDX-License-Identifier: GPL-2.0
//! No storms: how many calls into the driver the scheduler may ask for.
//!
//! Every call holds the GPU's lock in the driver for 0.2 to 0.7 ms, in which other programs' calls wait. A
//! tenant that makes and frees channels, or rings and falls silent, as fast as it can must not turn that
//! into a standstill. A bucket of tokens, one a call, filled evenly.

use super::authority::Nanos;

/// Calls into the driver in a second, over any second but for the first [`BURST`] of it.
pub const CALLS_PER_SECOND: u64 = 600;
/// Calls that may follow each other at once, after a quiet time: switching 16 instances at the
/// beginning of a competition.
const BURST: u64 = 64;
const NS_PER_CALL: Nanos = 1_000_000_000 / CALLS_PER_SECOND;

#[derive(Debug)]
pub(super) struct Limit {
    /// When the calls made so far would all be due, had they been made at the allowed rate.
    due: Nanos,
    /// Calls so far.
    pub(super) calls: u64,
}

impl Limit {
    pub(super) const fn new() -> Self {
        Self { due: 0, calls: 0 }
    }

    /// When the next call may be made, if not now.
    pub(super) fn wait(&self, now: Nanos) -> Option<Nanos> {
        // With this one they are BURST.
        let at = self.due.saturating_sub(NS_PER_CALL * (BURST - 1));
        (at > now).then_some(at)
    }

    /// A call is made.
    pub(super) fn take(&mut self, now: Nanos) {
        self.due = self.due.max(now).saturating_add(NS_PER_CALL);
        self.calls = self.calls.saturating_add(1);
    }
}
