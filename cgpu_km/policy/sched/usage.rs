// SPDX-License-Identifier: GPL-2.0
//! What an instance had of the GPU of late: one that has its share is owed nothing for its pauses.

use super::{
    rules::WHOLE,
    time::{portion, Nanos},
};

/// Use is looked at over one to two times as long as so many bursts: 8 s for one of 200 ms, in
/// which requests that come at random ask for little more than on average.
const BURSTS: u64 = 40;

/// What an instance had in all, at a moment.
#[derive(Clone, Copy, Debug)]
struct Mark {
    at: Nanos,
    had: Nanos,
}

/// What an instance had in all at two moments of late.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RecentUse {
    before: Option<Mark>,
    last: Option<Mark>,
}

impl RecentUse {
    /// It has had so much in all; it is owed `burst` at most.
    pub(super) fn note(&mut self, now: Nanos, had: Nanos, burst: Nanos) {
        let span = burst.saturating_mul(BURSTS);
        let is_recent = |last: Mark| now < last.at.saturating_add(span);
        if !self.last.is_some_and(is_recent) {
            self.before = self.last;
            self.last = Some(Mark { at: now, had });
        }
    }

    /// How much of its share of the GPU it had of late, in parts of [`WHOLE`], if it has had so
    /// much in all. 0 until that is known.
    pub(super) fn of_share(&self, now: Nanos, had: Nanos, share: u64) -> u64 {
        self.before.map_or(0, |before| {
            let entitled = portion(now.saturating_sub(before.at), share, WHOLE);
            portion(WHOLE, had.saturating_sub(before.had), entitled)
        })
    }
}
