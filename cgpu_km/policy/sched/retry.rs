// SPDX-License-Identifier: GPL-2.0
//! When a call that failed may be made again.

use super::{
    authority::SWITCH_MAX,
    time::{
        Nanos,
        MS, //
    }, //
};

/// The pause after the first failure. It doubles with each further one.
const FIRST_PAUSE: Nanos = 10 * MS;
/// The pause doubles so often at most: to 1.28 s.
const MOST_DOUBLINGS: u32 = 7;

/// How often a call has failed in a row, and the moment from which on it may be made again.
#[derive(Clone, Copy, Debug)]
pub(super) struct Retry {
    failures: u32,
    at: Nanos,
    /// The next call may be for so many things.
    together: usize,
}

impl Retry {
    /// The state of a call that has not failed.
    pub(super) const NEVER_FAILED: Self = Self {
        failures: 0,
        at: 0,
        together: SWITCH_MAX,
    };

    /// The moment from which on the call may be made.
    pub(super) fn at(self) -> Nanos {
        self.at
    }

    /// Whether the last call failed.
    pub(super) fn has_failed(self) -> bool {
        self.together < SWITCH_MAX
    }

    /// How many things the next call may be for.
    pub(super) fn together(self) -> usize {
        self.together
    }

    /// Notes that the call was made.
    pub(super) fn succeeded(&mut self) {
        *self = Self::NEVER_FAILED;
    }

    /// Notes that the call failed: the next one waits.
    pub(super) fn failed(&mut self, now: Nanos) {
        self.failures = self.failures.saturating_add(1);
        self.at = now.saturating_add(Self::pause(self.failures));
        self.together = 1;
    }

    /// Notes that a call for `count` things failed. The next one is for half of them, and waits
    /// only if this one was for this thing alone.
    pub(super) fn failed_together(&mut self, now: Nanos, count: usize) {
        if count > 1 {
            self.at = now;
            self.together = count / 2;
        } else {
            self.failed(now);
        }
    }

    fn pause(failures: u32) -> Nanos {
        FIRST_PAUSE << failures.saturating_sub(1).min(MOST_DOUBLINGS)
    }
}
