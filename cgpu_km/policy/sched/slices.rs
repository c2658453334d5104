// SPDX-License-Identifier: GPL-2.0
//! Time slices: all channels are on, and the hardware goes round, each channel group for its part
//! of a turn.
//!
//! No call is made while slices last, and a change costs a fifth of what it costs in windows. But
//! an instance that runs dry loses the rest of its slice and waits for a round. So slices are taken
//! if all that compete have launched without a pause for a second of windows, and it is watched
//! whether each has its part.
//!
//! # The instance that has the GPU
//!
//! A program whose queue is full launches when a kernel of it ends, so never while another one has
//! the GPU. The doorbell of the instance that was heard of last is open, all others are armed: the
//! next one that is heard of has the GPU from then on. That is an interruption or two for each in a
//! turn, and what each had is known to half a kernel. The part that it lacks is carried on as in
//! windows.
//!
//! # What ends them
//!
//! Some instance had much less or more than its part: it stopped, or waits for its kernels. Or
//! several are heard of in turns too short to be slices: they launch whether they have the GPU or
//! not, which says nothing of who has it. Then there are windows again, and slices are left alone
//! for a time, which doubles until they have lasted.

use super::{
    authority::{
        InstanceId,
        Position, //
    },
    habits::Dense,
    instance::SchedInstance,
    plan::Planned,
    scheduler::Scheduler,
    time::{
        earlier,
        portion,
        signed,
        Nanos,
        MS,
        US, //
    }, //
};

/// For how long all must have launched densely in their windows.
const DENSE_FOR: Nanos = 1000 * MS;
/// A slice is as long as so many gaps between launches, or longer: who has the GPU is known to a
/// part of a gap.
const GAPS_IN_SLICE: u64 = 8;
/// An instance that was heard of is not listened for again so soon: if several launched all the
/// time, each would interrupt the other at every launch.
const REARM_AFTER: Nanos = MS;
/// The time that each one is known to have had is off by less than one part in so many, beside half
/// a kernel at each change.
const TOLERANCE: u64 = 64;
/// So many changes may follow each other at once, beside those of a turn.
const CHANGES_AT_ONCE: u64 = 4;
/// The time that an instance may be owed beside the slices of a round: the calls at the beginning
/// take their time.
const SLACK: Nanos = 2 * MS;

/// A round of slices of all that compete.
struct Round {
    length: Nanos,
    /// The parts of all.
    all: u64,
}

impl Round {
    /// The slice of an instance of so many parts.
    fn slice(&self, parts: u64) -> Nanos {
        portion(self.length, parts, self.all)
    }

    /// The time that it may be owed, or owe, while slices do.
    fn slack(&self, parts: u64) -> i64 {
        let most = self.slice(parts.min(self.all.saturating_sub(parts)));
        signed(most.saturating_add(most / 4).saturating_add(SLACK))
    }
}

impl Scheduler {
    /// The round of those that compete.
    fn round(&self) -> Round {
        Round {
            length: self.turn_length(),
            all: self.competing_parts(),
        }
    }

    /// Whether those that compete are such as can share by slices.
    fn slices_fit(&self) -> bool {
        let has = self.mechanisms;
        let fits = |i: &SchedInstance| {
            i.habits.dense().is_some() && !i.terms.high_priority && self.fleet.takes_slices(i.id)
        };
        has.timeslice && has.switch && has.doorbell && self.fleet.competing().all(fits)
    }

    /// Whether those that compete share by slices, and can go on so.
    pub(super) fn slices_hold(&self) -> bool {
        self.slices.are_on() && self.slices_fit()
    }

    /// Whether an instance launches densely enough for slices of this length to begin.
    fn is_ready_for_slice(&self, now: Nanos, instance: &SchedInstance, slice: Nanos) -> bool {
        let is_dense = |dense: Dense| {
            now >= dense.since.saturating_add(DENSE_FOR)
                && dense.gap.saturating_mul(GAPS_IN_SLICE) <= slice
        };
        slice >= self.costs.shortest_window
            && instance.trials.may_begin(now)
            && instance.habits.dense().is_some_and(is_dense)
    }

    /// A turn of windows is over: whether slices begin.
    pub(super) fn begin_slices(&mut self, now: Nanos) -> bool {
        if self.doubt.holds(now) {
            return false;
        }
        let round = self.round();
        let is_ready = |i: &SchedInstance| {
            let slice = round.slice(self.rules.parts(i.terms.weight));
            self.is_ready_for_slice(now, i, slice)
        };
        let ready = self.slices_fit() && self.fleet.competing().all(is_ready);
        // With nothing to be made up for.
        let least = signed(self.costs.least_window);
        let even = |i: &SchedInstance| i.balance.owed().saturating_abs() <= least;
        let even = self.fleet.competing().all(even);
        let were_prepared = self.slices.prepare(ready);
        if !(ready && were_prepared && even) {
            return false;
        }
        for instance in self.fleet.instances_mut() {
            instance.balance.slices_begin();
        }
        // In the order of the windows.
        let first = self.fleet.competing().next().map(|i| i.id);
        self.slices.begin(now, first);
        true
    }

    /// Lets all channels be on, because the first instance has the GPU to itself. Returns whether
    /// they were not before.
    pub(super) fn open_slices(&mut self, now: Nanos) -> bool {
        if self.slices.are_open() {
            return false;
        }
        self.slices.open();
        // Its time counts from the moment at which it could run, not from the call.
        self.charged_until = self.turn.free_at().max(self.slices.began()).min(now);
        true
    }

    /// Ends slices that did not give each instance its part.
    fn fail_slices(&mut self, now: Nanos) {
        self.slices.end();
        let lasted = now.saturating_sub(self.slices.began());
        for instance in self.fleet.instances_mut().filter(|i| i.competes()) {
            instance.trials.failed(now, lasted);
        }
    }

    /// The time from one change of the runner to the next, at least, on average: half a slice.
    fn change_every(&self) -> Nanos {
        let count = self.fleet.count_competing();
        portion(self.turn_length(), 1, count.saturating_mul(2))
    }

    /// Notes that an instance that competes was heard of.
    pub(super) fn heard_in_slices(&mut self, now: Nanos, id: InstanceId) {
        if !self.slices.is_runner(id) {
            // Nobody has the GPU while it changes hands.
            let changed = self.charged_until.saturating_add(self.costs.switch);
            self.charged_until = changed.min(now);
        }
        self.charge(now);
        let every = self.change_every();
        let last = self.slices.change_runner(now, id, every);
        if last == Some(id) {
            return;
        }
        self.turn.changes_hands();
        let Some(runner) = self.fleet.find_mut(id) else {
            return;
        };
        runner.account.windows = runner.account.windows.saturating_add(1);
        // The new runner was at work for about half a kernel before it was heard of.
        let half = signed(runner.habits.dense().map_or(0, |dense| dense.gap / 2));
        runner.had_after_all(half);
        runner.balance.forget(half);
        if let Some(last) = last.and_then(|id| self.fleet.find_mut(id)) {
            last.had_after_all(-half);
            last.balance.forget(half);
        }
    }

    /// Charges time in which the instance that was heard of last had the GPU.
    pub(super) fn charge_slices(&mut self, spent: Nanos) {
        let rules = self.rules;
        let all = self.competing_parts();
        let runner = self.slices.runner();
        for instance in self.fleet.instances_mut().filter(|i| i.competes()) {
            let part = portion(spent, rules.parts(instance.terms.weight), all);
            instance.balance.forget(signed(part / TOLERANCE));
            instance.balance.earned(part);
            if runner == Some(instance.id) {
                instance.had(spent);
            }
        }
    }

    /// Ends slices that no longer give each instance its part; otherwise sets when to look again.
    pub(super) fn watch_slices(&mut self, now: Nanos) -> Planned {
        self.charge(now);
        let mut left = Nanos::MAX;
        let mut holds = true;
        let round = self.round();
        for instance in self.fleet.competing() {
            let parts = self.rules.parts(instance.terms.weight);
            let most = round.slack(parts);
            let owed = instance.balance.owed();
            holds &= owed.saturating_abs() <= most;
            // How far it may go yet, and how fast it goes.
            let (room, speed) = if self.slices.is_runner(instance.id) {
                (most.saturating_add(owed), round.all.saturating_sub(parts))
            } else {
                (most.saturating_sub(owed), parts)
            };
            left = left.min(portion(u64::try_from(room).unwrap_or(0), round.all, speed));
        }
        if !holds {
            self.fail_slices(now);
            return Planned::ChooseAgain;
        }
        let early = self.change_every().saturating_mul(CHANGES_AT_ONCE);
        let early = early.saturating_add(round.length);
        if self.slices.changes_are_ahead_of(now.saturating_add(early)) {
            // Nobody knows what each had.
            for instance in self.fleet.instances_mut() {
                instance.balance.undo_slices();
            }
            self.fail_slices(now);
            return Planned::ChooseAgain;
        }
        self.wake_at(now.saturating_add(left.max(REARM_AFTER)));
        Planned::Settled
    }

    /// Sets the slices of those that compete, if there are to be any.
    pub(super) fn wish_slices(&mut self) {
        if !self.slices.are_prepared() {
            return;
        }
        let (rules, round) = (self.rules, self.round());
        for instance in self.fleet.instances_mut().filter(|i| i.competes()) {
            let slice = round.slice(rules.parts(instance.terms.weight));
            instance.slice_us = u32::try_from(slice / US).unwrap_or(u32::MAX);
        }
    }

    /// Sets the channels and doorbells of those that share by slices.
    pub(super) fn wish_doors_in_slices(&mut self, now: Nanos) {
        let mut look_at = None;
        for instance in self.fleet.instances_mut().filter(|i| i.competes()) {
            let is_runner = self.slices.is_runner(instance.id);
            instance.want_compute(self.slices.are_open() || is_runner);
            let again = instance.habits.heard_at().saturating_add(REARM_AFTER);
            let is_open = instance.door.position() == Position::Open;
            instance.door.want(if is_runner {
                Position::Open
            } else if is_open && now < again {
                look_at = earlier(look_at, again);
                Position::Open
            } else {
                Position::Armed
            });
        }
        if let Some(at) = look_at {
            self.wake_at(at);
        }
    }
}
