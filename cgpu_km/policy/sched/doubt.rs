// SPDX-License-Identifier: GPL-2.0
//! Whether the driver's samples are worth reading.

use super::time::{
    Nanos,
    MS, //
};

/// For how long an instance is doubted that was taken to have no work.
const DOUBT_IF_IDLE: Nanos = 2000 * MS;
/// For how long one is doubted that was silent for long.
const DOUBT_IF_SILENT: Nanos = 700 * MS;
/// How often samples are read meanwhile.
const READ_EVERY: Nanos = 350 * MS;

/// Some instance may have no work, or a long kernel.
#[derive(Debug)]
pub(super) struct Doubt {
    /// Samples are wanted until then.
    until: Nanos,
    /// Turns are of uneven length until then, so that samples find every instance.
    uneven_until: Nanos,
    next_sample: Nanos,
    /// The moment of the last sample that was read, by the driver's clock.
    sampled_until: Nanos,
}

/// Why an instance is doubted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DoubtReason {
    /// It is taken to have no work, or its long kernel is waited for.
    Idle,
    /// It was silent for long.
    Silent,
}

impl Doubt {
    pub(super) const fn new() -> Self {
        Self {
            until: 0,
            uneven_until: 0,
            next_sample: 0,
            sampled_until: 0,
        }
    }

    /// An instance is doubted.
    pub(super) fn begin(&mut self, now: Nanos, reason: DoubtReason) {
        if !self.holds(now) {
            self.next_sample = now;
        }
        let length = match reason {
            DoubtReason::Idle => DOUBT_IF_IDLE,
            DoubtReason::Silent => DOUBT_IF_SILENT,
        };
        self.until = self.until.max(now.saturating_add(length));
        if reason == DoubtReason::Idle {
            self.uneven_until = self.until;
        }
    }

    /// Whether an instance is doubted.
    pub(super) fn holds(&self, now: Nanos) -> bool {
        now < self.until
    }

    /// Whether turns are to be of uneven length.
    pub(super) fn wants_uneven_turns(&self, now: Nanos) -> bool {
        now < self.uneven_until
    }

    /// When samples are to be read next.
    pub(super) fn next_sample(&self) -> Nanos {
        self.next_sample
    }

    /// Samples are to be read as soon as possible.
    pub(super) fn hurry(&mut self, now: Nanos) {
        self.next_sample = now;
    }

    /// Samples are being read.
    pub(super) fn samples_asked(&mut self, now: Nanos) {
        self.next_sample = now.saturating_add(READ_EVERY);
    }

    /// Samples were read, up to this moment of the driver's clock, or none were there (0); up to
    /// which one they were before.
    pub(super) fn samples_read(&mut self, newest: Nanos) -> Nanos {
        let before = self.sampled_until;
        if newest > 0 {
            self.sampled_until = newest;
        }
        before
    }
}
