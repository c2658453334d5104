// SPDX-License-Identifier: GPL-2.0
//! GPU time that an instance had of late: one that has its share is owed nothing for its pauses.

use super::{
    rules::WHOLE,
    time::{
        portion,
        Nanos, //
    }, //
};

/// Use is measured over the time of so many bursts, up to twice that: 8 s for bursts of 200 ms. In
/// that time requests that come at random ask for little more than on average.
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
/// Time counts only if the instance was there and others were. An instance that is alone takes
/// nothing from others, and one that has not come yet leaves nothing to them.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RecentUse {
    before: Option<Mark>,
    last: Option<Mark>,
    had: Nanos,
    had_in_company: Nanos,
    entitled: Nanos,
}

impl RecentUse {
    /// Notes that the instance has had `had` in all, and that its share of the time since the last
    /// call came to `entitled`; `None` if it was alone or not there. It is owed `burst` at most.
    pub(super) fn note(&mut self, now: Nanos, had: Nanos, entitled: Option<Nanos>, burst: Nanos) {
        if let Some(entitled) = entitled {
            self.entitled = self.entitled.saturating_add(entitled);
            let more = had.saturating_sub(self.had);
            self.had_in_company = self.had_in_company.saturating_add(more);
        }
        self.had = had;
        let span = burst.saturating_mul(BURSTS);
        let is_recent = |last: Mark| now < last.at.saturating_add(span);
        if !self.last.is_some_and(is_recent) {
            let mark = Mark {
                at: now,
                had: self.had_in_company,
                entitled: self.entitled,
            };
            self.before = self.last.or(Some(mark));
            self.last = Some(mark);
        }
    }

    /// How much of its share of the GPU it had of late, in parts of [`WHOLE`]. 0 until its share
    /// has come to `enough` to tell.
    pub(super) fn of_share(&self, enough: Nanos) -> u64 {
        let part = |before: Mark| {
            let entitled = self.entitled.saturating_sub(before.entitled);
            let had = self.had_in_company.saturating_sub(before.had);
            (entitled >= enough).then(|| portion(WHOLE, had, entitled))
        };
        self.before.and_then(part).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::sched::time::MS;

    const BURST: Nanos = 200 * MS;

    /// An instance, the seconds that passed, and what it had in all.
    #[derive(Default)]
    struct Life {
        recent: RecentUse,
        seconds: u64,
        had: Nanos,
    }

    impl Life {
        /// A second in which it has so many milliseconds, and its share is such: what it had of
        /// its share then.
        fn second(&mut self, used: u64, share: Option<u64>) -> u64 {
            self.seconds += 1;
            self.had += used * MS;
            let entitled = share.map(|share| portion(1000 * MS, share, WHOLE));
            let now = self.seconds * 1000 * MS;
            self.recent.note(now, self.had, entitled, BURST);
            self.recent.of_share(BURST)
        }
    }

    #[test]
    fn time_alone_does_not_count() {
        let mut life = Life::default();
        for _ in 0..20 {
            assert_eq!(life.second(900, None), 0);
        }
        for _ in 0..40 {
            assert_eq!(life.second(400, Some(WHOLE / 2)), 800 * WHOLE / 1000);
        }
    }

    #[test]
    fn use_is_forgotten_after_two_spans() {
        let mut life = Life::default();
        let busy = (0..40).map(|_| life.second(1000, Some(WHOLE / 2))).last();
        assert_eq!(busy, Some(2 * WHOLE));
        assert!(life.second(250, Some(WHOLE / 2)) > WHOLE);
        let after = (0..16).map(|_| life.second(250, Some(WHOLE / 2))).last();
        assert_eq!(after, Some(WHOLE / 2));
    }

    #[test]
    fn little_time_tells_nothing() {
        let mut recent = RecentUse::default();
        for at in 0..4 {
            recent.note(at * 100 * MS, at * 90 * MS, Some(50 * MS), BURST);
            assert_eq!(recent.of_share(BURST), 0);
        }
    }
}
