// SPDX-License-Identifier: GPL-2.0
//! When an instance may share by time slices again after they failed.

use super::time::{
    Nanos,
    MS, //
};

/// How long slices are left alone after they failed; doubled at each further time.
const HOLD_OFF: Nanos = 4000 * MS;
/// Slices are left alone for no longer than this.
const LONGEST_HOLD_OFF: Nanos = 128_000 * MS;
const MOST_DOUBLINGS: u32 = 8;
/// Slices that lasted for so long had not failed before.
const LASTING: Nanos = 10_000 * MS;

/// How slices went for an instance.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SliceTrials {
    not_before: Nanos,
    failures: u32,
}

impl SliceTrials {
    /// Whether it may share by slices now.
    pub(super) fn may_begin(&self, now: Nanos) -> bool {
        now >= self.not_before
    }

    /// Notes that slices failed after they had lasted for so long.
    pub(super) fn failed(&mut self, now: Nanos, lasted: Nanos) {
        if lasted >= LASTING {
            self.failures = 0;
        }
        let hold_off = (HOLD_OFF << self.failures).min(LONGEST_HOLD_OFF);
        self.not_before = now.saturating_add(hold_off);
        self.failures = self.failures.saturating_add(1).min(MOST_DOUBLINGS);
    }

    /// Forgets the failures, because an instance that may have caused them is gone.
    pub(super) fn forgive(&mut self, now: Nanos) {
        self.failures = 0;
        self.not_before = self.not_before.min(now.saturating_add(HOLD_OFF));
    }
}
