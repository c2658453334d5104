// SPDX-License-Identifier: GPL-2.0
//! GPU time that an instance had of late: one that has its share is owed nothing for its pauses.

use super::{
    rules::WHOLE,
    time::{portion, Nanos},
};

/// Use is looked at over one to two times as long as so many bursts: 8 s for one of 200 ms, in
/// which requests that come at random ask for little more than on average.
const BURSTS: u64 = 40;

/// All GPU time of an instance, and all that its share came to, at a moment.
#[derive(Clone, Copy, Debug)]
struct Mark {
    at: Nanos,
    had: Nanos,
    entitled: Nanos,
}

/// All GPU time of an instance at two moments of late, and all that its share came to.
///
/// The share is the one of each moment: who was alone on the GPU was entitled to all of it, and
/// that is not held against it when another one comes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RecentUse {
    before: Option<Mark>,
    last: Option<Mark>,
    entitled: Nanos,
}

impl RecentUse {
    /// Its share of the GPU came to so much more.
    pub(super) fn entitle(&mut self, to: Nanos) {
        self.entitled = self.entitled.saturating_add(to);
    }

    /// It has had so much in all; it is owed `burst` at most.
    pub(super) fn note(&mut self, now: Nanos, had: Nanos, burst: Nanos) {
        let span = burst.saturating_mul(BURSTS);
        let is_recent = |last: Mark| now < last.at.saturating_add(span);
        if !self.last.is_some_and(is_recent) {
            self.before = self.last;
            self.last = Some(Mark {
                at: now,
                had,
                entitled: self.entitled,
            });
        }
    }

    /// How much of its share of the GPU it had of late, in parts of [`WHOLE`], if it has had so
    /// much in all. 0 until that is known.
    pub(super) fn of_share(&self, had: Nanos) -> u64 {
        self.before.map_or(0, |before| {
            let entitled = self.entitled.saturating_sub(before.entitled);
            portion(WHOLE, had.saturating_sub(before.had), entitled)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::sched::time::MS;

    #[test]
    fn time_alone_counts_as_own_share() {
        let mut recent = RecentUse::default();
        let (mut now, mut had) = (0, 0);
        let mut second = |recent: &mut RecentUse, share: u64, used: u64| {
            recent.note(now, had, 200 * MS);
            now += 1000 * MS;
            had += used * MS;
            recent.entitle(portion(1000 * MS, share, WHOLE));
            recent.of_share(had)
        };
        for _ in 0..20 {
            second(&mut recent, WHOLE, 900);
        }
        let first = second(&mut recent, WHOLE / 2, 400);
        assert!(first > 880 * WHOLE / 1000 && first < 900 * WHOLE / 1000);
        // Of late means two spans of 8 s at most.
        let after = (0..16).map(|_| second(&mut recent, WHOLE / 2, 400)).last();
        assert_eq!(after, Some(800 * WHOLE / 1000));
    }
}
