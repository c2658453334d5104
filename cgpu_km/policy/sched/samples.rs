// SPDX-License-Identifier: GPL-2.0
//! The driver's samples: they tell that an instance is at work that launches nothing.
//!
//! About six times a second the driver notes whose process is on the compute engine, in a ring of
//! the last ten seconds. That is too coarse to measure a share by. But a program in the middle of a
//! kernel of a second and one that thinks are silent alike, and a sample tells them apart. So the
//! ring is read while an instance is doubted: it was silent for long, or was taken to have no work
//! a moment ago. Nobody reads it otherwise.

use super::{
    authority::Action,
    instance::SchedInstance,
    rules::Terms,
    scheduler::Scheduler,
    time::{Nanos, MS},
};
use crate::{policy::ProcessId, uapi::Mode};

/// The newest sample is not older than this.
const PERIOD: Nanos = 170 * MS;

/// So many samples tell how much of the time an instance was at work.
const ENOUGH_TO_LEARN: usize = 12;

/// A sample of the driver's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// When it was taken, by the driver's clock, which begins anywhere; 0: there is none here.
    pub stamp: Nanos,
    /// The process that was on the compute engine, if one was.
    pub process: Option<ProcessId>,
}

impl Scheduler {
    /// Reading the samples, if that is due.
    pub(super) fn read_samples(&mut self, now: Nanos, wait: Option<Nanos>) -> Option<Action> {
        if !self.mechanisms.samples || !self.doubt.holds(now) || self.mode == Mode::Native {
            return None;
        }
        let at = self.doubt.next_sample().max(wait.unwrap_or(0));
        if at > now {
            self.wake_at(at);
            return None;
        }
        self.doubt.samples_asked(now);
        Some(Action::ReadSamples)
    }

    /// The driver's ring has these samples, in any order: an instance that is in a new one has
    /// work.
    pub fn samples(&mut self, now: Nanos, ring: impl Iterator<Item = Sample> + Clone) {
        let newest = ring.clone().map(|sample| sample.stamp).max().unwrap_or(0);
        let known = self.doubt.samples_read(newest);
        self.charge(now);
        let free_time = self.free_time;
        // The moments of new samples, by this clock, and which processes they saw.
        let seen = ring
            .filter(|sample| sample.stamp > known)
            .map(|Sample { stamp, process }| {
                let age = newest.saturating_sub(stamp).saturating_add(PERIOD);
                (now.saturating_sub(age), process)
            });
        let was_free = |(at, _): &(Nanos, Option<ProcessId>)| free_time.contains(*at);
        self.learn_pauses(seen.clone().filter(was_free).map(|(_, process)| process));
        let capped = |terms: Terms| self.rules.cap(terms.weight).is_some();
        for (at, process) in seen.filter(|sample| !was_free(sample)) {
            let owner = process.and_then(|process| self.fleet.owner_of(process));
            // A sample from before an instance was last heard of tells nothing of its silence.
            let silent_then = |i: &&mut SchedInstance| at > i.habits.heard_at();
            for instance in self.fleet.instances_mut().filter(silent_then) {
                match process {
                    Some(_) if owner == Some(instance.id) => {
                        instance.habits.seen();
                        instance.lag.forget();
                    }
                    // Under a cap nobody is at work for much of the time.
                    None if !capped(instance.terms) => instance.habits.nobody_seen(),
                    _ => {}
                }
            }
        }
    }

    /// Samples of the free time saw these processes. An instance that paused for much of it is
    /// known to pause, and is owed its burst: it left the GPU to others, who did not want it.
    fn learn_pauses(&mut self, seen: impl Iterator<Item = Option<ProcessId>> + Clone) {
        let all = seen.clone().count();
        if all < ENOUGH_TO_LEARN {
            return;
        }
        let by = |scheduler: &Self, instance: &SchedInstance| {
            let owners = seen.clone().flatten();
            let owners = owners.filter_map(|process| scheduler.fleet.owner_of(process));
            let at_work = owners.filter(|owner| *owner == instance.id).count();
            let paused = at_work > 0 && at_work.saturating_mul(4) <= all.saturating_mul(3);
            paused.then(|| scheduler.burst_of(instance))
        };
        self.update_each(by, |instance, burst| {
            instance.habits.seen_to_pause();
            instance.lag.grow(burst, burst);
        });
    }
}
