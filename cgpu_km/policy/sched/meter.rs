// SPDX-License-Identifier: GPL-2.0
//! Windows where channels cannot be switched off: what was launched runs on, so no more is let pass than fits.
//!
//! The doorbell of whoever has the window is metered. What a launch takes is known from those before (`queue.rs`), so it is known
//! when all that was let pass is over: then the window ends. A launch that would end more than half a kernel after the window's
//! time waits for the next one, but the first one passes whatever it takes. What the window was longer than it should be, or
//! shorter, is carried into the next turns. So an instance never has more on the GPU than its window, whatever it queues.
//!
//! Of one of whom nothing is known all launches pass until its queue is full and the length of its kernels was measured: such a
//! window is as long as its queue. One whose doorbell was open before, because nobody competed, has the first window, and is stopped
//! in it until it is known how much it had queued.
//!
//! Kernels that are short cost more to be metered than is won. Their doorbell is opened when they were counted, and
//! shut as much earlier as their queue takes.
//!
//! Where work runs on though it should not, because a kernel is longer than those before, the first kernel of the next window takes
//! longer than it should. That is charged to whoever had the window before, and the window lasts as much longer.

use super::account::{signed, Mode};
use super::authority::{Gate, InstanceId, Nanos, MS, US};
use super::queue::Told;
use super::{Passage, Scheduler};

/// So long after its time somebody wakes up, as a rule: so much sooner the next one is let go.
pub(super) const LATE: Nanos = 50 * US;
/// A window in which nothing could be measured ends this long after its time.
const LONGEST_LESSON: Nanos = 5000 * MS;
/// Others' work is made up for as long as it takes no more than so many times the window.
const MOST: u64 = 4;
/// Less than this is no work of others.
const UNSURE: Nanos = 60 * US;

/// No more launches than one in this time are metered, beside so many at the beginning of a window: of one of whom nothing is
/// known, and of others.
pub(super) const OFTEN: Nanos = 400 * US;
const AT_FIRST: u64 = 128;
const AT_ONCE: u64 = 32;

/// How far the end of the window is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Closing {
    /// It has not begun.
    No,
    /// The holder's gate is shut; no task has stopped there yet.
    Shut,
    /// Its next launch waits; what it has queued is over then.
    Drains(Nanos),
    /// Its next launch waits; then it is let go to see how much it has queued.
    Counts(Nanos),
}

impl Closing {
    /// Whether the holder's gate is to be shut.
    pub(super) fn is_shut(self) -> bool {
        self != Self::No
    }

    /// Whether its gate is armed some time after it was opened.
    pub(super) fn rearms(self) -> bool {
        self == Self::No
    }

    /// Whether its next launch has been made to wait.
    pub(super) fn is_over(self) -> bool {
        matches!(self, Self::Drains(_) | Self::Counts(_))
    }

    /// Whether its gate is shut and it is to stop there.
    pub(super) fn waits(self) -> bool {
        self == Self::Shut
    }
}

impl Scheduler {
    /// Whether windows end when what was launched has ended.
    pub(super) fn drains(&self) -> bool {
        !self.capabilities.switch && self.capabilities.doorbell
    }

    /// How many compete.
    pub(super) fn count_competing(&self) -> u64 {
        u64::try_from(self.fleet.competing().count()).unwrap_or(1)
    }

    /// The doorbells of all that work are open now: what they launch nobody counts.
    pub(super) fn lose_count(&mut self) {
        for instance in self.fleet.instances_mut() {
            if instance.gate == Gate::Open {
                instance.queue.lose_count();
            }
        }
    }

    /// A program of the instance launches, at a gate that is metered: what becomes of it. [`Scheduler::next`] is to be
    /// asked where [`Scheduler::deadline`] is another one afterwards.
    pub fn launched(&mut self, now: Nanos, id: InstanceId) -> Passage {
        self.charge(now);
        let Some(suspended) = self.fleet.find(id).map(|i| i.terms.suspended) else {
            return Passage::Passes;
        };
        self.heard_of(now, id, false);
        let passes = match self.mode {
            _ if suspended => false,
            Mode::Native => true,
            Mode::Free | Mode::Slices => self.is_alone(id),
            Mode::Windows if self.turn.holder == Some(id) => self.admits(now, id),
            Mode::Windows => false,
        };
        let mode = self.mode;
        let Some(instance) = self.fleet.find_mut(id) else {
            return Passage::Passes;
        };
        if passes && mode != Mode::Windows {
            instance.queue.pass(now, now);
        }
        if passes {
            if instance.want_gate != Gate::Metered || mode != Mode::Windows {
                self.wake_at(now);
            }
            return Passage::Passes;
        }
        instance.parked_since = instance.parked_since.or(Some(now));
        instance.queue.hold();
        let at = match self.turn.closing {
            Closing::Drains(at) | Closing::Counts(at) if self.turn.holder == Some(id) => {
                at.saturating_sub(LATE).max(now)
            }
            _ => now,
        };
        self.wake_at(at);
        Passage::Waits
    }

    /// Whether nobody else competes, and it is under no cap.
    fn is_alone(&self, id: InstanceId) -> bool {
        let mut competing = self.fleet.competing();
        competing.all(|i| i.id == id && self.rules.cap(i.terms.weight).is_none())
    }

    /// Whether a launch of the holder passes.
    fn admits(&mut self, now: Nanos, id: InstanceId) -> bool {
        if self.turn.closing.is_shut() {
            return false;
        }
        let first = self.turn.heard.is_none();
        let begins = match first {
            true => self.first_launch(now, id),
            false => now,
        };
        let told = match self.fleet.find_mut(id) {
            Some(instance) => instance.queue.hear(now),
            None => Told::Nothing,
        };
        if let Told::Full(others) = told {
            self.others_ran(now, others);
        }
        let until = self.turn.until;
        let Some(instance) = self.fleet.find_mut(id) else {
            return true;
        };
        let queue = &mut instance.queue;
        if queue.is_uncounted() && !queue.learns() {
            let counted = match told {
                Told::Filled(since, launches) => queue.count(now, Some((since, launches))),
                Told::Length => queue.count(now, None),
                Told::Nothing | Told::Full(_) => {
                    queue.pass(now, begins);
                    return true;
                }
            };
            if let Some(until) = counted {
                self.turn.closing = Closing::Counts(until);
                return false;
            }
        }
        let fits = queue.would_end(begins) <= until.saturating_add(queue.half());
        let passes = first || fits || queue.learns();
        if !passes {
            self.turn.closing = Closing::Drains(queue.ends());
            return false;
        }
        queue.pass(now, begins);
        self.turn.armed_at = queue.ends().max(now);
        self.turn.metered = self.turn.metered.saturating_add(1);
        let heard = self.turn.heard.unwrap_or(now);
        let most = if queue.learns() { AT_FIRST } else { AT_ONCE };
        let often = now.saturating_sub(heard) / OFTEN + most < self.turn.metered;
        if (queue.may_open() || often) && !self.turn.opens {
            self.turn.opens = true;
            self.wake_at(now);
        }
        true
    }

    /// The holder launches for the first time in its window: when the GPU can begin with it.
    fn first_launch(&mut self, now: Nanos, id: InstanceId) -> Nanos {
        let before = match self.turn.since {
            Some(_) => self.turn.before,
            None => self.turn.last,
        };
        let switch = match before == Some(id) {
            true => 0,
            false => self.costs.switch,
        };
        // It may have been let go a moment before the one before it was over.
        let begins = now.max(self.turn.ended_at).saturating_add(switch);
        self.turn.heard = Some(now);
        self.begins(begins);
        begins
    }

    /// The holder can begin then.
    fn begins(&mut self, at: Nanos) {
        if let Some(since) = self.turn.since {
            let shift = at.saturating_sub(since);
            self.turn.since = Some(since.saturating_add(shift));
            self.turn.until = self.turn.until.saturating_add(shift);
        }
    }

    /// Moves the end of the window of `id` on. When to look next; `None`: it is over.
    pub(super) fn close(&mut self, now: Nanos, id: InstanceId) -> Option<Nanos> {
        let until = self.turn.until;
        let queue = self.fleet.find(id).map(|i| i.queue);
        let queue = queue.filter(|_| self.drains());
        let Some(queue) = queue else {
            return (now < until).then_some(until);
        };
        match self.turn.closing {
            Closing::No => {}
            Closing::Shut => return Some(Nanos::MAX),
            Closing::Drains(at) => {
                let at = at.saturating_sub(LATE);
                return (now < at).then_some(at);
            }
            Closing::Counts(at) => {
                let at = at.saturating_sub(LATE);
                if now < at {
                    return Some(at);
                }
                self.turn.closing = Closing::No;
                self.turn.armed_at = now;
                return Some(Nanos::MAX);
            }
        }
        if !self.turn.opens && (queue.learns() || queue.is_uncounted()) {
            let latest = until.saturating_add(LONGEST_LESSON);
            return (now < latest).then_some(latest);
        }
        if !self.turn.opens {
            let end = until.max(queue.ends());
            return (now < end).then_some(end);
        }
        if queue.is_negligible() || self.goes_on(now, id) {
            return (now < until).then_some(until);
        }
        let at = until.saturating_sub(queue.behind().saturating_add(queue.half()));
        if now < at {
            return Some(at);
        }
        self.turn.closing = Closing::Shut;
        if self.fleet.find(id).is_some_and(|i| i.gate == Gate::Open) {
            self.turn.armed_at = now;
        }
        Some(Nanos::MAX)
    }

    /// The holder was heard of at a gate that was not metered, or not any more; `stopped`: it sleeps there.
    pub(super) fn heard_in_window(&mut self, now: Nanos, id: InstanceId, stopped: bool) {
        if !self.drains() {
            return;
        }
        if self.turn.heard.is_none() {
            self.first_launch(now, id);
        }
        let Some(instance) = self.fleet.find_mut(id) else {
            return;
        };
        match self.turn.closing {
            Closing::Shut if stopped => {
                self.turn.closing = Closing::Drains(instance.queue.stop(now));
            }
            Closing::No if !stopped => self.turn.opens = true,
            _ => {}
        }
    }

    /// Others' work ran for so long before the holder's first kernel had ended.
    fn others_ran(&mut self, now: Nanos, others: Nanos) {
        let Some(since) = self.turn.since.filter(|_| others > UNSURE) else {
            return;
        };
        let most = self.turn.until.saturating_sub(since).saturating_mul(MOST);
        let mut ran = others.min(most);
        let before = self.turn.before.and_then(|id| self.fleet.find_mut(id));
        if let Some(before) = before {
            // A holder who only says so is not to have its neighbour's time.
            ran = ran.min(before.queue.most_left().unwrap_or(ran));
            before.queue.ran_on(now, others);
        }
        self.begins(since.saturating_add(ran));
        self.ran_on(self.turn.before, ran);
    }

    /// What the one who had the last window has launched is not over: when it is. It is charged for that.
    pub(super) fn runs_on(&mut self, now: Nanos) -> Option<Nanos> {
        let last = self.turn.last.filter(|_| self.drains())?;
        let ends = self.fleet.find(last)?.queue.ends();
        if ends <= now.saturating_add(LATE) {
            return None;
        }
        let uncharged = ends.saturating_sub(self.turn.ended_at.max(now));
        if ends > self.turn.ended_at {
            self.turn.ended_at = ends;
            self.ran_on(Some(last), uncharged);
        }
        Some(ends.saturating_sub(LATE))
    }

    /// A window in which its holder was learnt is charged as one that was as long as it should be, and a kernel.
    pub(super) fn forgives(&self, id: InstanceId, since: Nanos, used: i64) -> i64 {
        if !self.turn.learns || !self.drains() {
            return used;
        }
        let kernel = self.fleet.find(id).map_or(0, |i| i.queue.half());
        let whole = self.turn.until.saturating_sub(since);
        used.min(signed(whole.saturating_add(kernel)))
    }
}
