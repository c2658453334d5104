// SPDX-License-Identifier: GPL-2.0
//! The last time in which at most one instance had work. Its gate was open, so its launches were
//! not heard. The driver's samples of that time tell whether it paused.

use super::time::{Nanos, MS};

/// Free time of this length has samples enough to tell of an instance, six a second.
const WORTH_SAMPLES: Nanos = 2000 * MS;

/// The last time that the GPU was free in the sense of [`Mode::Free`](crate::uapi::Mode).
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct FreeTime {
    since: Nanos,
    until: Nanos,
}

impl FreeTime {
    /// It begins.
    pub(super) fn begin(&mut self, now: Nanos) {
        (self.since, self.until) = (now, now);
    }

    /// It ends, because another instance has work too. Whether its samples are worth reading.
    pub(super) fn end(&mut self, now: Nanos) -> bool {
        self.until = now;
        now >= self.since.saturating_add(WORTH_SAMPLES)
    }

    /// Whether a moment lies in it. None does before it ends.
    pub(super) fn contains(&self, at: Nanos) -> bool {
        (self.since..self.until).contains(&at)
    }
}
