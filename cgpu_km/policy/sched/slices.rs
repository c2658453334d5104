// SPDX-License-Identifier: GPL-2.0
//! Time slices: everybody's channels are on, and the hardware goes round, each channel group for its part of a turn.
//!
//! No call is made while it lasts, and a change costs a fifth of what it costs in windows. But who runs dry loses the
//! rest of its slice and waits for a round. So slices are taken where all that compete have launched without a pause for
//! a second of windows, and it is watched whether each has its part.
//!
//! # Who has the GPU
//!
//! A program whose queue is full launches when a kernel of it ends, so never while another one has the GPU. The doorbell of
//! whoever was heard of last is open, all others are armed: the next one that is heard of has the GPU from then on. That
//! is an interruption or two for each in a turn, and what each had is known to half a kernel. What it had less than its
//! part is carried on as in windows.
//!
//! # What ends it
//!
//! Somebody had much less or more than its part: it stopped, or waits for its kernels. Or several are heard of
//! in turns too short to be slices: they launch whether they have the GPU or not, which says nothing of who has it. Then
//! there are windows again, and slices are left alone for a time, which doubles until they have lasted.

use super::account::{portion, signed};
use super::authority::{Gate, InstanceId, Nanos, MS, US};
use super::fleet::Instance;
use super::Scheduler;

/// For how long all must have launched densely in their windows.
const DENSE_FOR: Nanos = 1000 * MS;
/// A slice is as long as so many gaps between launches, or longer: who has the GPU is known to a part of a gap.
const GAPS_IN_SLICE: u64 = 8;
/// Who was just heard of is not listened for again so soon: where several launch all the time each would interrupt
/// the other at every launch.
const REARM: Nanos = MS;
/// How long slices are left alone after they have failed; doubled at each further time up to the longest, unless they had
/// lasted for long.
const HOLD_OFF: Nanos = 4000 * MS;
const HOLD_OFF_MOST: Nanos = 128_000 * MS;
const DOUBLINGS: u32 = 8;
const LASTING: Nanos = 10_000 * MS;
/// What is known of each one's time is off by less than one part in so many, beside half a kernel at each change.
const TOLERANCE: u64 = 64;
/// So many changes may follow each other at once, beside those of a turn.
const CHANGES_AT_ONCE: u64 = 4;
/// What somebody may be owed beside the slices of a round: the calls at the beginning take their time.
const SLACK: Nanos = 2 * MS;

/// Whether there are slices, and how they went.
#[derive(Debug)]
pub(super) struct Slices {
    on: bool,
    /// Everybody's slice is set in a turn of windows before they begin.
    set: bool,
    /// All channels may be on; before, the first one has the GPU alone, as in a window.
    open: bool,
    began: Nanos,
    /// Who was heard of last.
    runner: Option<InstanceId>,
    /// When the changes of runner so far would all be due, were there two of each in a turn.
    changes_due: Nanos,
}

impl Slices {
    pub(super) const fn new() -> Self {
        Self {
            on: false,
            set: false,
            open: false,
            began: 0,
            runner: None,
            changes_due: 0,
        }
    }

    /// Whether somebody has the GPU by now.
    pub(super) fn are_open(&self) -> bool {
        self.open
    }

    /// Whether an instance has the GPU.
    pub(super) fn is_runner(&self, id: InstanceId) -> bool {
        self.runner == Some(id)
    }
}

/// What an instance has seen of slices.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Record {
    /// When it may share by them again.
    not_before: Nanos,
    /// How often they have failed.
    failed: u32,
}

impl Record {
    /// Whether it may share by them now.
    fn may_begin(&self, now: Nanos) -> bool {
        now >= self.not_before
    }

    /// They did not do, after they had lasted for so long.
    fn fail(&mut self, now: Nanos, lasted: Nanos) {
        if lasted >= LASTING {
            self.failed = 0;
        }
        let hold_off = (HOLD_OFF << self.failed).min(HOLD_OFF_MOST);
        self.not_before = now.saturating_add(hold_off);
        self.failed = self.failed.saturating_add(1).min(DOUBLINGS);
    }

    /// One of those with whom they have failed is gone.
    fn forgive(&mut self, now: Nanos) {
        self.failed = 0;
        self.not_before = self.not_before.min(now.saturating_add(HOLD_OFF));
    }
}

impl Scheduler {
    /// Whether those that compete are such as can share by slices.
    fn slices_fit(&self) -> bool {
        let means = self.capabilities;
        let fits = |i: &Instance| {
            i.dense.is_some() && !i.terms.high_priority && self.fleet.compute_groups(i.id) > 0
        };
        means.timeslice && means.switch && means.doorbell && self.fleet.competing().all(fits)
    }

    /// Whether they do share by slices.
    pub(super) fn slices_hold(&self) -> bool {
        self.slices.on && self.slices_fit()
    }

    /// A turn of windows is over: whether slices begin.
    pub(super) fn begin_slices(&mut self, now: Nanos) -> bool {
        if now < self.doubt_until {
            return false;
        }
        let (length, all) = (self.turn_length(), self.competing_parts());
        let ready = |i: &Instance| {
            let slice = portion(length, self.rules.parts(i.terms.weight), all);
            slice >= self.costs.shortest_window
                && i.slices.may_begin(now)
                && i.dense.is_some_and(|dense| {
                    now >= dense.since.saturating_add(DENSE_FOR)
                        && dense.gap.saturating_mul(GAPS_IN_SLICE) <= slice
                })
        };
        // With nothing to be made up for.
        let least = signed(self.costs.least_window);
        let even = |i: &Instance| i.owed.saturating_abs() <= least;
        let ready = self.slices_fit() && self.fleet.competing().all(ready);
        let begins = ready && self.slices.set && self.fleet.competing().all(even);
        self.slices.set = ready;
        if !begins {
            return false;
        }
        // In the order of the windows.
        self.slices.runner = self.fleet.competing().next().map(|i| i.id);
        for instance in self.fleet.instances_mut() {
            instance.owed_before = instance.owed;
        }
        self.slices.began = now;
        self.slices.changes_due = now;
        self.slices.open = false;
        self.slices.on = true;
        true
    }

    /// The first one has the GPU to itself: all channels may be on from now on. Whether that is new.
    pub(super) fn open_slices(&mut self, now: Nanos) -> bool {
        if self.slices.open {
            return false;
        }
        self.slices.open = true;
        // From the moment on when it could run, not when that was asked for.
        self.charged_until = self.turn.free_at.max(self.slices.began).min(now);
        true
    }

    /// They are of no use any more; who had too little of them has more of the next turn.
    pub(super) fn end_slices(&mut self) {
        self.slices.set = false;
        self.slices.on = false;
    }

    /// They did not do for those that compete.
    fn fail_slices(&mut self, now: Nanos) {
        self.end_slices();
        let lasted = now.saturating_sub(self.slices.began);
        for instance in self.fleet.instances_mut().filter(|i| i.competes()) {
            instance.slices.fail(now, lasted);
        }
    }

    /// An instance is gone, with which they may have failed.
    pub(super) fn forgive_slices(&mut self, now: Nanos) {
        for instance in self.fleet.instances_mut() {
            instance.slices.forgive(now);
        }
    }

    /// How often the runner changes at most, over time: twice as often as slices end.
    fn change_every(&self) -> Nanos {
        let count = self.fleet.count_competing();
        portion(self.turn_length(), 1, count.saturating_mul(2))
    }

    /// Somebody that competes was heard of.
    pub(super) fn heard_in_slices(&mut self, now: Nanos, id: InstanceId) {
        if !self.slices.is_runner(id) {
            // Nobody has the GPU while it changes hands.
            let changed = self.charged_until.saturating_add(self.costs.switch);
            self.charged_until = changed.min(now);
        }
        self.charge(now);
        let last = self.slices.runner.replace(id);
        if last == Some(id) {
            return;
        }
        let each = self.change_every();
        self.slices.changes_due = self.slices.changes_due.max(now).saturating_add(each);
        self.turn.switches = self.turn.switches.saturating_add(1);
        if let Some(instance) = self.fleet.find_mut(id) {
            instance.account.windows = instance.account.windows.saturating_add(1);
        }
        // It was at work for half a kernel before, more or less.
        let dense = self.fleet.find(id).and_then(|i| i.dense);
        let half = dense.map_or(0, |dense| dense.gap / 2);
        for (id, had) in [(Some(id), signed(half)), (last, -signed(half))] {
            let Some(instance) = id.and_then(|id| self.fleet.find_mut(id)) else {
                continue;
            };
            instance.owed = instance.owed.saturating_sub(had);
            instance.forget(signed(half));
            let given = &mut instance.account.given;
            *given = given.saturating_add_signed(had);
        }
    }

    /// Charges time in which whoever was heard of last had the GPU.
    pub(super) fn charge_slices(&mut self, spent: Nanos) {
        let rules = self.rules;
        let all = self.competing_parts();
        let runner = self.slices.runner;
        for instance in self.fleet.instances_mut().filter(|i| i.competes()) {
            let part = portion(spent, rules.parts(instance.terms.weight), all);
            instance.forget(signed(part / TOLERANCE));
            instance.owed = instance.owed.saturating_add(signed(part));
            if runner == Some(instance.id) {
                instance.owed = instance.owed.saturating_sub(signed(spent));
                instance.account.given = instance.account.given.saturating_add(spent);
            }
        }
    }

    /// Whether slices do, at `now`; sets when to look again.
    pub(super) fn watch_slices(&mut self, now: Nanos) -> bool {
        self.charge(now);
        let length = self.turn_length();
        let mut left = Nanos::MAX;
        let mut holds = true;
        let all = self.competing_parts();
        for instance in self.fleet.competing() {
            let parts = self.rules.parts(instance.terms.weight);
            let most = portion(length, parts.min(all.saturating_sub(parts)), all);
            let most = signed(most.saturating_add(most / 4).saturating_add(SLACK));
            holds &= instance.owed.saturating_abs() <= most;
            // How far it may go yet, and how fast it goes.
            let (room, speed) = match self.slices.is_runner(instance.id) {
                true => (
                    most.saturating_add(instance.owed),
                    all.saturating_sub(parts),
                ),
                false => (most.saturating_sub(instance.owed), parts),
            };
            left = left.min(portion(u64::try_from(room).unwrap_or(0), all, speed));
        }
        if !holds {
            self.fail_slices(now);
            return false;
        }
        let early = self.change_every().saturating_mul(CHANGES_AT_ONCE);
        let early = early.saturating_add(length);
        if self.slices.changes_due > now.saturating_add(early) {
            // Nobody knows what each had.
            for instance in self.fleet.instances_mut() {
                instance.owed = instance.owed_before;
            }
            self.fail_slices(now);
            return false;
        }
        self.wake_at(now.saturating_add(left.max(REARM)));
        true
    }

    /// Sets the slices of those that compete, if there are to be any.
    pub(super) fn wish_slices(&mut self) {
        if !self.slices.set {
            return;
        }
        let (rules, all) = (self.rules, self.competing_parts());
        let length = self.turn_length();
        for instance in self.fleet.instances_mut().filter(|i| i.competes()) {
            let slice = portion(length, rules.parts(instance.terms.weight), all);
            instance.want_slice = u32::try_from(slice / US).unwrap_or(u32::MAX);
        }
    }

    /// Sets the channels and doorbells of those that share by slices.
    pub(super) fn wish_gates(&mut self, now: Nanos) {
        let mut look_at = None::<Nanos>;
        for instance in self.fleet.instances_mut().filter(|i| i.competes()) {
            instance.want_compute = self.slices.open || self.slices.is_runner(instance.id);
            let again = instance.heard_at.saturating_add(REARM);
            instance.want_gate = if self.slices.is_runner(instance.id) {
                Gate::Open
            } else if instance.gate == Gate::Open && now < again {
                look_at = Some(look_at.map_or(again, |at| at.min(again)));
                Gate::Open
            } else {
                Gate::Armed
            };
        }
        if let Some(at) = look_at {
            self.wake_at(at);
        }
    }
}
