// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Counts of what the kubelet has asked for claims: how often it failed, and how often it was slow.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, Instant},
};

/// A call for a claim that takes this long is slow. Most take milliseconds.
pub const SLOW: Duration = Duration::from_secs(5);

/// The kubelet's calls, each counted for each of its claims.
#[derive(Debug, Default)]
pub struct Calls {
    /// `NodePrepareResources`.
    pub prepare: Count,
    /// `NodeUnprepareResources`.
    pub unprepare: Count,
}

/// How often something was done.
#[derive(Debug, Default)]
pub struct Count {
    all: AtomicU64,
    failed: AtomicU64,
    slow: AtomicU64,
}

impl Count {
    /// Begins to do it. It has failed if what this gives back is dropped as it is, as when the
    /// kubelet does not wait for the answer.
    pub fn begin(&self) -> Doing<'_> {
        Doing {
            count: self,
            began: Instant::now(),
            is_done: false,
        }
    }

    /// How often it was done or failed, how often it failed, and how often it was slow.
    pub fn numbers(&self) -> [u64; 3] {
        [&self.all, &self.failed, &self.slow].map(|n| n.load(Ordering::Relaxed))
    }
}

/// Something that is being done.
#[derive(Debug)]
pub struct Doing<'a> {
    count: &'a Count,
    began: Instant,
    is_done: bool,
}

impl Doing<'_> {
    /// It went well.
    pub fn done(mut self) {
        self.is_done = true;
    }
}

impl Drop for Doing<'_> {
    fn drop(&mut self) {
        let Count { all, failed, slow } = self.count;
        let add = |to: &AtomicU64, is: bool| to.fetch_add(u64::from(is), Ordering::Relaxed);
        add(all, true);
        add(failed, !self.is_done);
        add(slow, self.began.elapsed() >= SLOW);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_call_is_counted_as_it_went() {
        let count = Count::default();
        count.begin().done();
        assert_eq!(count.numbers(), [1, 0, 0]);
        drop(count.begin());
        assert_eq!(count.numbers(), [2, 1, 0]);
        let mut slow = count.begin();
        slow.began -= SLOW;
        slow.done();
        assert_eq!(count.numbers(), [3, 1, 1]);
    }
}
