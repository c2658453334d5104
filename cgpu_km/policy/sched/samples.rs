// SPDX-License-Identifier: GPL-2.0
//! What the driver's samples tell: that somebody is at work who launches nothing.
//!
//! About six times a second the driver notes whose process is on the compute engine, in a ring of the last ten
//! seconds. That is too coarse to measure a share by. But a program in the middle of a kernel of a second
//! and one that thinks are silent alike, and a sample tells them apart. So the ring is read while
//! somebody is doubted: was silent for long, or was taken to have no work a moment ago. Nobody reads it otherwise.

use super::account::Mode;
use super::authority::{Action, Nanos, MS};
use super::{ProcessId, Scheduler, Terms};

/// For how long who was taken to have no work is doubted, and who was silent for long; and how often the samples are
/// asked meanwhile.
const DOUBT_IDLE: Nanos = 2000 * MS;
const DOUBT_SILENT: Nanos = 700 * MS;
const EVERY: Nanos = 350 * MS;
/// The newest sample is not older than this.
const PERIOD: Nanos = 170 * MS;

/// A sample of the driver's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// When it was taken, by the driver's clock, which begins anywhere; 0: there is none here.
    pub stamp: Nanos,
    /// Whose process was on the compute engine, if any was.
    pub process: Option<ProcessId>,
}

impl Scheduler {
    /// Somebody may have no work, or a long kernel: samples are wanted.
    pub(super) fn doubt(&mut self, now: Nanos, idle: bool) {
        if now >= self.doubt_until {
            self.next_sample = now;
        }
        let length = if idle { DOUBT_IDLE } else { DOUBT_SILENT };
        self.doubt_until = self.doubt_until.max(now.saturating_add(length));
        if idle {
            self.uneven_until = self.doubt_until;
        }
    }

    /// Reading the samples, if that is due.
    pub(super) fn read_samples(&mut self, now: Nanos, wait: Option<Nanos>) -> Option<Action> {
        if !self.capabilities.samples || now >= self.doubt_until || self.mode == Mode::Native {
            return None;
        }
        let at = self.next_sample.max(wait.unwrap_or(0));
        if at > now {
            self.wake_at(at);
            return None;
        }
        self.next_sample = now.saturating_add(EVERY);
        Some(Action::ReadSamples)
    }

    /// The driver's ring has these samples, in any order: whoever is in a new one has work.
    pub fn samples(&mut self, now: Nanos, ring: impl Iterator<Item = Sample> + Clone) {
        let newest = ring.clone().map(|sample| sample.stamp).max().unwrap_or(0);
        let known = core::mem::replace(&mut self.sampled_until, newest);
        self.charge(now);
        let capped = |terms: Terms| self.rules.cap(terms.weight).is_some();
        for Sample { stamp, process } in ring.filter(|sample| sample.stamp > known) {
            let owner = process.and_then(|process| self.fleet.owner_of(process));
            let age = newest.saturating_sub(stamp).saturating_add(PERIOD);
            // What was seen before somebody was last heard of tells nothing of its silence.
            let at = now.saturating_sub(age);
            for instance in self.fleet.instances_mut().filter(|i| at > i.heard_at) {
                match process {
                    Some(_) if owner == Some(instance.id) => instance.seen(),
                    // Under a cap nobody is at work for much of the time.
                    None if !capped(instance.terms) => {
                        instance.nobody = instance.nobody.saturating_add(1);
                    }
                    _ => {}
                }
            }
        }
    }
}
