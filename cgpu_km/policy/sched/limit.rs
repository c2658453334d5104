// SPDX-License-Identifier: GPL-2.0
//! No storms: how many calls into the driver the scheduler may ask for.
//!
//! Every call holds the GPU's lock in the driver for 0.2 to 0.7 ms, in which other programs' calls
//! wait. A tenant that makes and frees channels, or rings and falls silent, as fast as it can must
//! not turn that into a standstill. A bucket of tokens, one a call, is filled evenly.

use super::time::Nanos;

/// Calls into the driver in a second, over any second but for its first [`BURST`]: windows of 3 ms
/// under the period `interactive`, two calls each, and samples.
pub const CALLS_PER_SECOND: u64 = 800;
/// Calls that may follow each other at once after a quiet time: 16 instances are switched when a
/// competition begins.
const BURST: u64 = 64;
/// The pause that belongs to a call.
const EVERY: Nanos = 1_000_000_000 / CALLS_PER_SECOND;

/// How many calls were made, and when the next one may be.
#[derive(Debug)]
pub(super) struct CallLimit {
    /// When the calls made so far would all be due, had they been made at the allowed rate.
    due: Nanos,
    calls: u64,
}

impl CallLimit {
    pub(super) const fn new() -> Self {
        Self { due: 0, calls: 0 }
    }

    /// Calls so far.
    pub(super) fn calls(&self) -> u64 {
        self.calls
    }

    /// The moment at which the next call may be made; `None`: now.
    pub(super) fn wait(&self, now: Nanos) -> Option<Nanos> {
        // With this one they are BURST.
        let at = self.due.saturating_sub(EVERY * (BURST - 1));
        (at > now).then_some(at)
    }

    /// The same for a call that nobody waits for: half of the tokens are left for others.
    pub(super) fn wait_for_spare(&self, now: Nanos) -> Option<Nanos> {
        let at = self.due.saturating_sub(EVERY * (BURST / 2));
        (at > now).then_some(at)
    }

    /// Counts a call.
    pub(super) fn take(&mut self, now: Nanos) {
        self.due = self.due.max(now).saturating_add(EVERY);
        self.calls = self.calls.saturating_add(1);
    }

    /// The call that was counted last did not reach the driver.
    pub(super) fn give_back(&mut self) {
        self.due = self.due.saturating_sub(EVERY);
        self.calls = self.calls.saturating_sub(1);
    }
}
