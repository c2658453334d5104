// SPDX-License-Identifier: GPL-2.0
//! Bursts: an instance that wakes with service owed to it has the GPU at once.
//!
//! Each instance has a lag (`lag.rs`), as in virtual-time schedulers: what its share came to while
//! it had no work, `burst` at most. One that wakes takes the GPU from those that turns serve, and
//! keeps it until its lag is used up or it stops. This is a token bucket whose rate is the share
//! and whose depth is the burst, as the budget of a CBS server is (Abeni and Buttazzo, RTSS '98).
//! BVT's warp too lets a wake-up run, by a bounded amount, before those that used their shares
//! (Duda and Cheriton, SOSP '99). Lag against a weighted share is EEVDF's (Stoica et al., RTSS
//! '96). `docs/design/scheduling.md` says what follows from it.

use super::{
    authority::InstanceId,
    instance::SchedInstance,
    rules::{
        BURST_DEFAULT,
        WHOLE, //
    },
    scheduler::Scheduler,
    time::{
        portion,
        Nanos,
        MS, //
    },
    turn::OpenWindow, //
};
use crate::uapi::Mode;

/// An instance that used up its lag and has not stopped for so long is served by turns.
const AWAKE: Nanos = 1000 * MS;

impl Scheduler {
    /// The most that an instance is ever owed.
    pub(super) fn burst_of(&self, instance: &SchedInstance) -> Nanos {
        instance.terms.burst.unwrap_or(self.rules.burst)
    }

    /// The burst by which the use of an instance is measured. One without a burst is measured as
    /// the others are, or its use of late would be that of a moment.
    fn use_span(&self, instance: &SchedInstance) -> Nanos {
        let burst = self.burst_of(instance);
        burst.max(self.rules.burst).max(BURST_DEFAULT)
    }

    /// The share at which the lag of an instance grows, in parts of [`WHOLE`]: among those that
    /// compete or did a moment ago, so that instances that sleep in turns gain nothing.
    fn lag_share(&self, now: Nanos, instance: &SchedInstance) -> u64 {
        let counts = |other: &SchedInstance| other.id == instance.id || other.is_around(now);
        self.share_among(instance, counts)
    }

    /// Whether the lag of an instance grows with what the GPU gives: it does not make use of its
    /// share, or is paid for that now.
    fn lag_grows(&self, instance: &SchedInstance) -> bool {
        let habits = &instance.habits;
        let offered = self.turn.holder() == Some(instance.id);
        let silent = !habits.is_working() || habits.is_mute() && !offered;
        (silent || instance.lag.rules()) && !instance.terms.suspended
    }

    /// Grows the lags of the instances that `which` picks by their parts of `time`.
    fn grow(&mut self, now: Nanos, time: Nanos, which: impl Fn(&Self, &SchedInstance) -> bool) {
        let by = |scheduler: &Self, instance: &SchedInstance| {
            if !scheduler.lag_grows(instance) || !which(scheduler, instance) {
                return None;
            }
            let entitled = portion(time, scheduler.lag_share(now, instance), WHOLE);
            // The part of its window that has passed is not charged yet.
            let used = scheduler.turn.used_by(instance.id, now);
            Some((entitled, scheduler.burst_of(instance).saturating_add(used)))
        };
        self.update_each(by, |instance, (entitled, burst)| {
            instance.lag.grow(entitled, burst);
        });
    }

    /// Lets `see` look at each instance beside the others. If `see` returns something, `change`
    /// changes the instance by it.
    pub(super) fn update_each<T>(
        &mut self,
        see: impl Fn(&Self, &SchedInstance) -> Option<T>,
        change: impl Fn(&mut SchedInstance, T),
    ) {
        for at in 0..self.fleet.instances().count() {
            let seen = self.fleet.instances().nth(at);
            let Some(seen) = seen.and_then(|instance| see(self, instance)) else {
                continue;
            };
            if let Some(instance) = self.fleet.instances_mut().nth(at) {
                change(instance, seen);
            }
        }
    }

    /// Grows the lags until `now`, except those that grow with each window. A cap is a part of all
    /// time, a share is a part of the time that others have.
    pub(super) fn grow_lags(&mut self, now: Nanos) {
        let passed = now.saturating_sub(self.lags_until);
        self.lags_until = now;
        if passed == 0 {
            return;
        }
        self.note_use(now, passed);
        let in_windows = self.mode == Mode::Windows;
        self.grow(now, passed, |scheduler, instance| {
            let mut others = scheduler.fleet.competing().filter(|i| i.id != instance.id);
            let capped = scheduler.rules.cap(instance.terms.weight).is_some();
            capped || !in_windows && others.next().is_some()
        });
    }

    /// Notes what instances had until now, and what their shares came to in the time that passed.
    fn note_use(&mut self, now: Nanos, passed: Nanos) {
        let by = |scheduler: &Self, instance: &SchedInstance| {
            let current = scheduler.current_share(instance, now);
            let had = instance.account.gpu_time.saturating_add(current);
            let share = scheduler.lag_share(now, instance);
            let in_company = share < WHOLE && instance.is_around(now);
            let entitled = in_company.then(|| portion(passed, share, WHOLE));
            Some((had, entitled, scheduler.use_span(instance)))
        };
        self.update_each(by, |instance, (had, entitled, burst)| {
            instance.recent_use.note(now, had, entitled, burst);
        });
    }

    /// Grows the lags by a window that is over, of length `used`.
    pub(super) fn grow_lags_by_window(&mut self, now: Nanos, used: Nanos) {
        self.grow(now, used, |scheduler, instance| {
            scheduler.rules.cap(instance.terms.weight).is_none()
        });
    }

    /// Takes off the lag of an instance, that stopped in a window that its turn gave it, what it
    /// would be owed anew while the others have their parts of the turn.
    pub(super) fn had_its_turn(&mut self, now: Nanos, window: OpenWindow) {
        let used = now.saturating_sub(window.since);
        let turn = self.turn_length();
        let by_turn = |i: &&SchedInstance| !i.lag.rules();
        let Some(holder) = self.fleet.find(window.holder).filter(by_turn) else {
            return;
        };
        let share = self.lag_share(now, holder);
        let others = |time| portion(time, WHOLE.saturating_sub(share), WHOLE);
        let most = others(portion(turn, share, WHOLE));
        let ahead = others(used);
        if let Some(holder) = self.fleet.find_mut(window.holder) {
            holder.lag.get_ahead(ahead, most);
        }
    }

    /// Limits each lag to the instance's burst, which may have been changed. An instance whose
    /// burst is not worth a window has no windows by its lag.
    pub(super) fn limit_lags(&mut self) {
        let (burst, least) = (self.rules.burst, self.costs.least_window);
        for instance in self.fleet.instances_mut() {
            let burst = instance.terms.burst.unwrap_or(burst);
            instance.lag.limit(burst);
            if burst < least {
                instance.lag.keep();
            }
        }
    }

    /// Lets an instance that had no work and has some again have the GPU at once, if its lag and
    /// the budget allow that.
    pub(super) fn wakes(&mut self, now: Nanos, id: InstanceId) {
        let least = self.costs.least_window;
        let Some(instance) = self.fleet.find(id) else {
            return;
        };
        if instance.lag.is_being_spent() || instance.lag.owed() < least || instance.terms.suspended
        {
            return;
        }
        // High priority is limited by its part, not by the budget.
        let high_priority = instance.terms.high_priority;
        let interrupts = high_priority
            || self.leaves_share(now, instance) && self.wake_budget.pay(now, self.costs.wake_up);
        if !interrupts && !instance.habits.had_series() {
            // Nobody knows when it stops: turns serve it.
            return;
        }
        if let Some(instance) = self.fleet.find_mut(id) {
            instance.lag.wake(now, interrupts);
        }
    }

    /// Whether an instance leaves a part of its share to others: of late it had less than that, or
    /// less of it than the others. One that turns have served for a while comes first if it had
    /// less.
    ///
    /// A program that pauses between its steps and has its share nevertheless is owed nothing for
    /// the pauses: a service beside it would wait for it as if both left theirs.
    fn leaves_share(&self, now: Nanos, instance: &SchedInstance) -> bool {
        let used = |i: &SchedInstance| i.recent_use.of_share(self.use_span(i));
        let own = used(instance);
        let had_less = |i: &&SchedInstance| i.id != instance.id && used(i) < own;
        let mut those = self.fleet.competing().filter(had_less);
        let kept_waiting =
            |i: &SchedInstance| !i.lag.rules() && i.habits.has_worked_for(now, AWAKE);
        those.all(|i| own < WHOLE && !kept_waiting(i))
    }

    /// Whether turns serve an instance that competes.
    fn turns_serve_somebody(&self) -> bool {
        self.fleet.competing().any(|i| !i.lag.rules())
    }

    /// The lag at which an instance that used up its own has its next window. It is nearly what its
    /// share of a turn comes to while the others have theirs, and no more than it can be owed.
    fn rest(&self, now: Nanos, instance: &SchedInstance) -> Nanos {
        let share = self.lag_share(now, instance);
        let part = portion(self.turn_length(), share, WHOLE);
        let rest = portion(part, WHOLE.saturating_sub(share), WHOLE);
        let rest = (rest / 4).saturating_mul(3).max(self.costs.least_window);
        rest.min(self.burst_of(instance))
    }

    /// The instance that is to have the GPU before those that turns serve. High priority comes
    /// first, then an instance that woke and has lag left, then the one that lags most for its
    /// share.
    pub(super) fn next_burst(&self, now: Nanos) -> Option<InstanceId> {
        // Those that turns serve do not wait for longer than the longest burst.
        if self.turn.burst_time() >= self.longest_burst() && self.turns_serve_somebody() {
            return None;
        }
        let lags = |i: &SchedInstance| {
            let parts = self.rules.parts(i.terms.weight);
            let waited = i.lag.owed() / parts.max(1);
            (i.terms.high_priority, i.lag.is_being_spent(), waited)
        };
        let takes_turns = self.bursts_take_turns();
        // One of high priority that turns serve would end the window at once.
        let is_urgent = self.is_somebody_urgent();
        let may = |i: &&SchedInstance| {
            let enough = i.lag.is_being_spent() || i.lag.owed() >= self.rest(now, i);
            let is_too_soon = takes_turns && !i.terms.high_priority && !self.has_rested(now, i);
            let gives_way = is_urgent && !i.terms.high_priority;
            i.lag.rules() && i.may_burst() && enough && !is_too_soon && !gives_way
        };
        let most = self.fleet.competing().filter(may).max_by_key(|i| lags(i));
        most.map(|i| i.id)
    }

    /// Whether instances that turns serve have a window between two windows by lag. So an instance
    /// that always has work waits no longer than in turns.
    fn bursts_take_turns(&self) -> bool {
        self.rules.overlaps() && self.turns_serve_somebody()
    }

    /// Whether the others could have had their parts of a turn since the last window of an instance
    /// by lag. Theirs may have been a little shorter, because calls took their time.
    fn has_rested(&self, now: Nanos, instance: &SchedInstance) -> bool {
        let turn = self.turn_length();
        let part = portion(turn, self.lag_share(now, instance), WHOLE);
        let long = turn.saturating_sub(part) / 4 * 3;
        instance.lag.has_rested(now, long)
    }

    /// How long bursts may last before the instances that turns serve have their windows.
    fn longest_burst(&self) -> Nanos {
        let bursts = self.fleet.competing().filter(|i| i.lag.rules());
        bursts.map(|i| self.burst_of(i)).max().unwrap_or(0)
    }

    /// Lets turns serve all instances from now on, because none is owed a window by its turn or by
    /// its lag.
    pub(super) fn serve_all_by_turns(&mut self) {
        for instance in self.fleet.instances_mut().filter(|i| i.competes()) {
            instance.lag.keep();
        }
    }

    /// Whether the holder of the window gives way to an instance that woke.
    pub(super) fn gives_way_to_burst(&self, now: Nanos, holder: InstanceId) -> bool {
        let Some(holder) = self.fleet.find(holder) else {
            return false;
        };
        let next = self.next_burst(now).and_then(|id| self.fleet.find(id));
        let next = next.filter(|next| next.lag.is_being_spent());
        next.is_some_and(|next| {
            let (urgent, held) = (next.terms.high_priority, holder.terms.high_priority);
            // Of the same priority it comes before those that turns serve.
            urgent && !held || urgent == held && !holder.lag.rules()
        })
    }

    /// How long the window of an instance that spends its lag may be: until that is used up, but
    /// for a turn's length at most, after which another one may lag more.
    pub(super) fn burst_length(&self, now: Nanos, instance: &SchedInstance) -> Nanos {
        let share = self.lag_share(now, instance);
        let drain = WHOLE.saturating_sub(share).max(WHOLE / 100);
        let length = portion(instance.lag.owed(), WHOLE, drain);
        let longest = if self.rules.overlaps() {
            // Others wait for no longer than in turns.
            portion(self.turn_length(), share, WHOLE)
        } else {
            self.rules.turn()
        };
        length.min(longest)
    }

    /// Notes that the window of an instance is over, after `used`, and whether its lag is used up.
    pub(super) fn burst_ended(&mut self, now: Nanos, id: InstanceId, used: Nanos) {
        let least = self.costs.least_window;
        let Some(instance) = self.fleet.find_mut(id) else {
            return;
        };
        if !instance.lag.rules() {
            return;
        }
        if instance.lag.owed() < least {
            // High priority has its part of each turn before the others.
            let awake = if instance.terms.high_priority {
                0
            } else {
                AWAKE
            };
            instance.lag.use_up(now, awake);
        }
        instance.lag.end_window(now);
        self.turn.add_burst(used);
    }
}
