// SPDX-License-Identifier: GPL-2.0
//! The driver's samples: they show that an instance is at work although it launches nothing.
//!
//! About six times a second the driver notes whose process is on the compute engine, in a ring of
//! the last ten seconds. That is too coarse to measure a share by. But a program in the middle of a
//! kernel of a second and one that thinks are silent alike, and a sample tells them apart. So the
//! ring is read while an instance is doubted: it was silent for long, or was taken to have no work
//! a moment ago. It is read once more when others come to an instance that had the GPU to itself
//! (`time_alone.rs`).

use super::{
    authority::Action,
    instance::SchedInstance,
    rules::Terms,
    scheduler::Scheduler,
    time::{
        Nanos,
        MS, //
    },
    time_alone::SeenAtWork, //
};
use crate::{
    policy::ProcessId,
    uapi::Mode, //
};

/// The newest sample is not older than this.
const PERIOD: Nanos = 170 * MS;

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
        let others_came = self.alone.is_some_and(|alone| alone.wants_samples());
        let wanted = others_came || self.doubt.holds(now);
        if !self.mechanisms.samples || !wanted || self.mode == Mode::Native {
            return None;
        }
        let due = if others_came {
            now
        } else {
            self.doubt.next_sample()
        };
        let at = due.max(wait.unwrap_or(0));
        if at > now {
            self.wake_at(at);
            return None;
        }
        self.doubt.samples_asked(now);
        if let Some(alone) = &mut self.alone {
            alone.samples_asked();
        }
        Some(Action::ReadSamples)
    }

    /// The driver's ring has these samples, in any order: an instance that is in a new one has
    /// work.
    pub fn samples(&mut self, now: Nanos, ring: impl Iterator<Item = Sample> + Clone) {
        let newest = ring.clone().map(|sample| sample.stamp).max().unwrap_or(0);
        let known = self.doubt.samples_read(newest);
        self.charge(now);
        // The moment of a sample, by this clock.
        let moment = |stamp: Nanos| {
            let age = newest.saturating_sub(stamp).saturating_add(PERIOD);
            now.saturating_sub(age)
        };
        let noted = ring.filter(|sample| sample.stamp > 0);
        let alone = self.alone;
        self.learn_whether_paused(now, noted.clone().map(|s| (moment(s.stamp), s.process)));
        for Sample { stamp, process } in noted.filter(|sample| sample.stamp > known) {
            let at = moment(stamp);
            let seen = self.fleet.seen_at_work(process);
            // One that is alone has its gate open: that it is not heard of is no silence.
            let was_alone = |id| alone.is_some_and(|alone| alone.of() == id && alone.contains(at));
            // A sample from before an instance was last heard of tells nothing of its silence.
            let silent_then = |i: &&mut SchedInstance| at > i.habits.heard_at() && !was_alone(i.id);
            // Under a cap nobody is at work for much of the time.
            let rules = self.rules;
            let capped = |terms: Terms| rules.cap(terms.weight).is_some();
            for instance in self.fleet.instances_mut().filter(silent_then) {
                match seen {
                    SeenAtWork::Instance(id) if id == instance.id => {
                        instance.habits.seen();
                        instance.lag.forget();
                    }
                    SeenAtWork::Nobody if !capped(instance.terms) => instance.habits.nobody_seen(),
                    _ => {}
                }
            }
        }
    }

    /// An instance had the GPU to itself until others came. If it paused for much of that time, it
    /// is known to pause, and is owed its burst: it left the GPU to others, who did not want it. If
    /// not, it is owed nothing.
    fn learn_whether_paused(
        &mut self,
        now: Nanos,
        seen: impl Iterator<Item = (Nanos, Option<ProcessId>)>,
    ) {
        let Some(alone) = self.alone else {
            return;
        };
        let seen = seen.map(|(at, process)| (at, self.fleet.seen_at_work(process)));
        let Some(paused) = alone.paused(now, seen) else {
            return;
        };
        self.alone = None;
        let burst = self.fleet.find(alone.of()).map(|i| self.burst_of(i));
        let instance = self.fleet.find_mut(alone.of()).filter(|i| i.competes());
        let (Some(instance), Some(burst)) = (instance, burst) else {
            return;
        };
        if !paused {
            instance.lag.forget();
            return;
        }
        instance.habits.seen_to_pause();
        instance.lag.grow(burst, burst);
        // It has work now. If it only were owed, turns would serve it until it stops and wakes, and
        // a service that falls behind meanwhile does not stop.
        self.wakes(now, alone.of());
    }
}
