// SPDX-License-Identifier: GPL-2.0
//! How long kernels take: the compute engine's time, which is that of `tests/gpu_model` on the
//! GPU's clock. Time slices, preemption and channels that are switched off are the model's.
//!
//! A kernel takes time if its first parameter is [`TIMED`]; the second is then its length in
//! nanoseconds. All others end at once, and the model never hears of them.

use crate::{
    kernels::Parameters,
    names::{ChannelId, ObjectId},
};
use gpu_model::gpu::Gpu as Model;
use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

/// The first parameter of a kernel that takes time: "takes ns".
pub const TIMED: u64 = u64::from_le_bytes(*b"takes ns");
/// No kernel takes longer.
const LONGEST: u64 = 10_000_000_000;
/// A group's slice before anybody has set one: the driver's own (2 ms on an H200).
const SLICE: u64 = 2_000_000;

/// How long a kernel with these parameters takes, in nanoseconds; 0: it ends at once.
pub fn length(parameters: &Parameters) -> u64 {
    match *parameters {
        [TIMED, length, ..] => length.min(LONGEST),
        _ => 0,
    }
}

/// A channel that the model knows.
#[derive(Debug)]
struct Lane {
    number: u32,
    group: ObjectId,
}

/// The engine. Groups and channels are the model's from their first kernel that takes time on.
#[derive(Debug, Default)]
pub struct ComputeTime {
    model: Model,
    /// The clock at the model's time 0; 0: it has not begun.
    base: u64,
    groups: BTreeMap<ObjectId, u32>,
    lanes: BTreeMap<ChannelId, Lane>,
    /// Slices that were set, in nanoseconds.
    slices: BTreeMap<ObjectId, u64>,
    /// Groups with a context, and whether their kernels run to the end before they are preempted.
    waits: BTreeMap<ObjectId, bool>,
    /// Channels whose kernels have ended, and nobody has been told.
    ended: VecDeque<ChannelId>,
}

impl ComputeTime {
    /// A channel of a group has launched a kernel of this length, at this moment of the clock, as
    /// all moments here. It ends at once if the model has no room for it.
    pub fn submit(&mut self, now: u64, (id, group): (ChannelId, ObjectId), length: u64, off: bool) {
        if self.base == 0 {
            self.base = now;
        }
        self.catch_up(now);
        let lane = self.lane(id, group, off);
        if !lane.is_some_and(|number| self.model.submit(number, length)) {
            self.ended.push_back(id);
        }
    }

    /// The model's number of a channel.
    fn lane(&mut self, id: ChannelId, group: ObjectId, off: bool) -> Option<u32> {
        if let Some(lane) = self.lanes.get(&id) {
            return Some(lane.number);
        }
        let of_group = match self.groups.get(&group) {
            Some(number) => *number,
            None => {
                let slice = self.slices.get(&group).copied().unwrap_or(SLICE);
                let number = self.model.try_add_group(slice)?;
                let waits = self.waits.get(&group).copied().unwrap_or(false);
                self.model.set_waits(number, waits);
                self.groups.insert(group, number);
                number
            }
        };
        let number = self.model.try_add_channel(of_group)?;
        self.model.switch(number, off);
        self.lanes.insert(id, Lane { number, group });
        Some(number)
    }

    /// A channel is gone, with its kernel. So is its group, if it was the last of it.
    pub fn remove(&mut self, id: ChannelId) {
        self.ended.retain(|ended| *ended != id);
        let Some(lane) = self.lanes.remove(&id) else {
            return;
        };
        self.model.remove_channel(lane.number);
        if !self.lanes.values().any(|other| other.group == lane.group) {
            if let Some(group) = self.groups.remove(&lane.group) {
                self.model.remove_group(group);
            }
        }
    }

    /// A group is gone.
    pub fn forget(&mut self, group: ObjectId) {
        self.slices.remove(&group);
        self.waits.remove(&group);
    }

    /// A group gets a context, whose kernels are not preempted until somebody says otherwise (mode
    /// WFI).
    pub fn begin_context(&mut self, group: ObjectId) {
        self.waits.entry(group).or_insert(true);
    }

    /// Whether kernels of a group run to their end before they are preempted: modes WFI and CTA.
    pub fn set_waits(&mut self, now: u64, group: ObjectId, waits: bool) {
        self.catch_up(now);
        self.waits.insert(group, waits);
        if let Some(number) = self.groups.get(&group) {
            self.model.set_waits(*number, waits);
        }
    }

    /// A channel is switched off, or on.
    pub fn switch(&mut self, now: u64, id: ChannelId, off: bool) {
        self.catch_up(now);
        if let Some(lane) = self.lanes.get(&id) {
            self.model.switch(lane.number, off);
        }
    }

    /// A group gets a slice of so many microseconds.
    pub fn set_slice(&mut self, now: u64, group: ObjectId, microseconds: u64) {
        self.catch_up(now);
        let slice = microseconds.saturating_mul(1000);
        self.slices.insert(group, slice);
        if let Some(number) = self.groups.get(&group) {
            self.model.set_timeslice(*number, slice);
        }
    }

    /// Takes the running work of a group off the engine.
    pub fn preempt(&mut self, now: u64, group: ObjectId) {
        self.catch_up(now);
        if let Some(number) = self.groups.get(&group) {
            self.model.preempt(*number);
        }
    }

    /// Lets time pass up to now.
    fn catch_up(&mut self, now: u64) {
        let now = now.saturating_sub(self.base);
        while self.base != 0 && self.model.now() < now {
            let ended = self.model.advance(now);
            let of = |lane: &Lane| Some(lane.number) == ended;
            let lane = self.lanes.iter().find(|(_, lane)| of(lane));
            self.ended.extend(lane.map(|(id, _)| *id));
        }
    }

    /// A channel whose kernel has ended by now; to be called until there is none.
    pub fn advance(&mut self, now: u64) -> Option<ChannelId> {
        self.catch_up(now);
        self.ended.pop_front()
    }

    /// How long nothing ends by itself from now on; `None`: nothing will.
    pub fn quiet(&self, now: u64) -> Option<Duration> {
        if !self.ended.is_empty() {
            return Some(Duration::ZERO);
        }
        let next = self.model.next().filter(|_| !self.lanes.is_empty())?;
        let next = next.saturating_add(self.base);
        Some(Duration::from_nanos(next.saturating_sub(now)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn channel(number: u32) -> ChannelId {
        ChannelId { runlist: 0, number }
    }

    fn group(handle: u32) -> ObjectId {
        ObjectId { client: 1, handle }
    }

    /// The engine's time, which begins at 1 here.
    fn engine() -> ComputeTime {
        ComputeTime {
            base: 1,
            ..ComputeTime::default()
        }
    }

    /// Which channels' kernels end up to a moment, in their order.
    fn ended(engine: &mut ComputeTime, until: u64) -> Vec<u32> {
        std::iter::from_fn(|| engine.advance(1 + until))
            .map(|id| id.number)
            .collect()
    }

    #[test]
    fn only_marked_kernels_take_time() {
        assert_eq!(length(&[TIMED, 5, 0, 0, 0, 0, 0, 0]), 5);
        assert_eq!(length(&[5, TIMED, 0, 0, 0, 0, 0, 0]), 0);
        assert_eq!(length(&[TIMED, u64::MAX, 0, 0, 0, 0, 0, 0]), LONGEST);
    }

    #[test]
    fn a_kernel_ends_after_its_length() {
        let mut engine = engine();
        engine.submit(1, (channel(3), group(7)), 4 * MS, false);
        assert!(ended(&mut engine, 4 * MS - 1).is_empty());
        assert!(engine.quiet(4 * MS).expect("one runs") <= Duration::from_millis(1));
        assert_eq!(ended(&mut engine, 5 * MS), [3]);
        assert!(ended(&mut engine, 50 * MS).is_empty());
    }

    #[test]
    fn slices_divide_the_time() {
        let mut engine = engine();
        engine.set_slice(1, group(7), 6000);
        engine.set_slice(1, group(8), 2000);
        let mut ran = [0; 2];
        for lane in [0, 1, 0, 1] {
            engine.submit(1, (channel(lane), group(7 + lane)), MS / 2, false);
        }
        for now in (0..400 * MS).step_by(10_000) {
            while let Some(id) = engine.advance(1 + now) {
                ran[id.number as usize] += 1;
                engine.submit(1 + now, (id, group(7 + id.number)), MS / 2, false);
            }
        }
        let share = f64::from(ran[0]) / f64::from(ran[0] + ran[1]);
        assert!((0.7..0.8).contains(&share), "{ran:?}");
    }

    #[test]
    fn a_channel_that_is_off_stands_still() {
        let mut engine = engine();
        engine.submit(1, (channel(3), group(7)), 4 * MS, true);
        assert!(ended(&mut engine, 20 * MS).is_empty());
        engine.switch(1 + 20 * MS, channel(3), false);
        assert!(ended(&mut engine, 22 * MS).is_empty());
        engine.switch(1 + 22 * MS, channel(3), true);
        assert!(ended(&mut engine, 40 * MS).is_empty());
        engine.switch(1 + 40 * MS, channel(3), false);
        assert_eq!(ended(&mut engine, 50 * MS), [3]);
    }

    #[test]
    fn kernels_are_preempted_in_mode_cilp_alone() {
        let mut engine = engine();
        let run = |engine: &mut ComputeTime, from: u64| {
            let lane = (channel(3), group(7));
            engine.submit(1 + from, lane, 4 * MS, false);
            assert!(ended(engine, from + MS).is_empty());
            engine.switch(1 + from + MS, channel(3), true);
            let ended = ended(engine, from + 50 * MS).len();
            engine.switch(1 + from + 50 * MS, channel(3), false);
            ended
        };
        engine.begin_context(group(7));
        assert_eq!(run(&mut engine, 0), 1);
        engine.set_waits(1 + 50 * MS, group(7), false);
        // It was set before; a further object of the context changes nothing.
        engine.begin_context(group(7));
        assert_eq!(run(&mut engine, 50 * MS), 0);
    }

    #[test]
    fn what_is_gone_ends_nothing() {
        let mut engine = engine();
        engine.submit(1, (channel(3), group(7)), 4 * MS, false);
        engine.remove(channel(3));
        engine.forget(group(7));
        assert!(ended(&mut engine, 50 * MS).is_empty());
        assert_eq!(engine.quiet(0), None);
        assert!(engine.groups.is_empty() && engine.slices.is_empty());
    }

    #[test]
    fn groups_beyond_the_model_take_no_time() {
        let mut engine = engine();
        let begin =
            |engine: &mut ComputeTime, n| engine.submit(1, (channel(n), group(n)), MS, false);
        (0..100).for_each(|n| begin(&mut engine, n));
        let at_once = ended(&mut engine, 0).len();
        assert!(at_once > 0 && at_once < 100);
        engine.remove(channel(0));
        begin(&mut engine, 100);
        assert!(ended(&mut engine, 0).is_empty());
    }
}
