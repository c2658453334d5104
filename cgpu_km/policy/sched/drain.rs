// SPDX-License-Identifier: GPL-2.0
//! The end of a window where channels cannot be switched off: what was launched runs on, so the window lasts until that has
//! ended.
//!
//! The gate is shut as much earlier as that takes. The task stops there when its next kernel ends, and `queue.rs` says how
//! much it has queued then. When that is over the window ends, and all of it is charged. So nobody's work runs in
//! another's window; only the window's length is not as wanted, by half a kernel, or where the whole queue is longer than
//! its part of a turn. That is carried into the next turns. What is queued is found out at the end of a window, too:
//! others get back the time that it takes.
//!
//! Where that is not known, or not right, work runs on in the next window. There the first kernel takes longer than it
//! should, and if that is long the next ones are listened to. What they took too long is charged to whoever had the window
//! before, and the window lasts as much longer.

use super::authority::{Gate, InstanceId, Nanos, US};
use super::queue::{Queue, SETTLED};
use super::Scheduler;

/// So long after its time somebody wakes up, as a rule, until that is known; and no later than that.
pub(super) const LATE: Nanos = 70 * US;
const LATEST: Nanos = 300 * US;
/// The slice of a channel group, if nobody has set one: nobody who comes waits for longer until one who runs already gives
/// way to it.
pub(super) const SLICE: Nanos = 2048 * US;
/// Where others' work runs beside the holder's, it does within this time.
const LISTEN: Nanos = SLICE + 600 * US;
/// Others' work is made up for as long as it takes no more than so many times the window.
const MOST: u64 = 4;
/// Less than this is no work of others.
const UNSURE: Nanos = 20 * US;

/// How far the end of the window is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Closing {
    /// It has not begun.
    No,
    /// The holder's gate is shut; no task has stopped there yet.
    Shut,
    /// It has stopped: what it has queued is over then.
    Drains(Nanos),
    /// It has stopped, and is let go then to see how much it has queued.
    Paused { stopped: Nanos, until: Nanos },
    /// It was let go for that, wanted at that moment.
    LetGo { stopped: Nanos, wanted: Nanos },
    /// It has launched then and fills its queue; when it has, its next launch tells. Where there is time, its gate is shut
    /// by then, so that it is the last one.
    Fills {
        stopped: Nanos,
        filled: Nanos,
        shut: bool,
    },
}

impl Closing {
    /// Whether the holder's gate is to be shut.
    pub(super) fn is_shut(self) -> bool {
        match self {
            Self::Shut | Self::Drains(_) | Self::Paused { .. } => true,
            Self::Fills { shut, .. } => shut,
            Self::No | Self::LetGo { .. } => false,
        }
    }

    /// Whether its gate is armed some time after it was opened.
    pub(super) fn rearms(self) -> bool {
        matches!(self, Self::No | Self::Fills { shut: false, .. })
    }

    /// Whether its gate is shut and it is to stop there.
    pub(super) fn waits(self) -> bool {
        matches!(self, Self::Shut | Self::Fills { shut: true, .. })
    }

    /// It has stopped: what comes next.
    fn after(now: Nanos, queue: &mut Queue, may_try: bool, late: Nanos) -> Self {
        let pause = if may_try { queue.pause(now) } else { None };
        match pause {
            Some(pause) => Self::Paused {
                stopped: now,
                until: now.saturating_add(pause.saturating_sub(late)),
            },
            None => Self::Drains(now.saturating_add(queue.drain())),
        }
    }
}

impl Scheduler {
    /// Whether windows end when what was launched has ended.
    pub(super) fn drains(&self) -> bool {
        !self.capabilities.switch && self.capabilities.doorbell
    }

    /// Moves the end of the window of `id` on. When to look next; `None`: it is over.
    pub(super) fn close(&mut self, now: Nanos, id: InstanceId) -> Option<Nanos> {
        match self.turn.closing {
            Closing::No => self.begin_to_close(now, id),
            Closing::Shut => Some(Nanos::MAX),
            Closing::Drains(until) => (now < until).then_some(until),
            Closing::Paused { stopped, until } if now >= until => {
                let wanted = until;
                self.turn.closing = Closing::LetGo { stopped, wanted };
                Some(Nanos::MAX)
            }
            Closing::Paused { until, .. } => Some(until),
            Closing::Fills {
                stopped,
                filled,
                shut: false,
            } => {
                let queue = self.fleet.find(id).map(|i| i.queue);
                let at = queue.and_then(|queue| queue.full_at(filled));
                if at.is_some_and(|at| now >= at) {
                    self.turn.closing = Closing::Fills {
                        stopped,
                        filled,
                        shut: true,
                    };
                    return Some(Nanos::MAX);
                }
                at.or(Some(Nanos::MAX))
            }
            Closing::LetGo { .. } | Closing::Fills { .. } => Some(Nanos::MAX),
        }
    }

    fn begin_to_close(&mut self, now: Nanos, id: InstanceId) -> Option<Nanos> {
        let until = self.turn.until;
        let competing = self.count_competing();
        let queue = self.fleet.find(id).map(|i| i.queue);
        let queue = queue.filter(|queue| self.drains() && queue.is_worth_waiting());
        let (Some(queue), Some(heard)) = (queue, self.turn.heard) else {
            return (now < until).then_some(until);
        };
        // It stops when a kernel ends: half a kernel later, more or less. But first it is to fill its queue.
        let half = queue.kernel().unwrap_or(0) / 2;
        let at = until.saturating_sub(queue.left().saturating_add(half));
        let at = at.max(heard.saturating_add(half));
        if now < at {
            return Some(at);
        }
        let (longer, _) = queue.longer_by(competing);
        let latest = until.saturating_add(longer);
        let learns = queue.is_new() && self.turn.launches < queue.wanted();
        if learns && now < latest && !self.turn.listens(now) {
            return Some(latest);
        }
        if self.goes_on(now, id) {
            return (now < until).then_some(until);
        }
        self.turn.closing = Closing::Shut;
        if self.fleet.find(id).is_some_and(|i| i.gate == Gate::Open) {
            self.turn.armed_at = now;
        }
        Some(Nanos::MAX)
    }

    /// The holder launched, or would have.
    pub(super) fn heard_in_window(
        &mut self,
        now: Nanos,
        id: InstanceId,
        stopped: bool,
        released: bool,
    ) {
        if !self.drains() {
            return;
        }
        let armed_at = self.turn.armed_at;
        let late = self.turn.late;
        let first = self.turn.launches == 1 && self.turn.anew;
        let listens = self.turn.listens(now);
        let filling = self.turn.launches == 1;
        let competing = self.count_competing();
        let Some(instance) = self.fleet.find_mut(id) else {
            return;
        };
        let queue = &mut instance.queue;
        let (_, longer) = queue.longer_by(competing);
        let may_try = now < self.turn.until.saturating_add(longer);
        match self.turn.closing {
            Closing::No => {
                if self.turn.launches == 0 {
                    self.turn.heard = Some(now);
                    self.turn.anew = released && self.turn.before != Some(id);
                }
                if !listens {
                    self.turn.launches = self.turn.launches.saturating_add(1);
                }
                let switch = first.then_some(self.costs.switch);
                let alone = !queue.is_expected();
                let others = queue.launched(now, armed_at, switch, listens, filling);
                // While little is known of it each ring is one of two, so that some are when nobody runs beside it.
                let wanted = self.turn.launches < queue.wanted() || (alone && !queue.is_steady());
                self.others_ran(now, first, others);
                let listens = self.turn.listens(now);
                if let Some(instance) = self.fleet.find_mut(id) {
                    let queue = &mut instance.queue;
                    let again = match self.turn.heard == Some(now) {
                        true => Some(queue.fills(now)),
                        false => (listens || wanted).then(|| queue.await_next(now, listens)),
                    };
                    if let Some(after) = again {
                        self.turn.rearm_at = now.saturating_add(after);
                    }
                }
            }
            Closing::Shut if stopped => {
                let switch = first.then_some(self.costs.switch);
                let others = queue.launched(now, armed_at, switch, listens, filling);
                self.turn.closing = Closing::after(now, queue, may_try, late);
                self.turn.launches = self.turn.launches.saturating_add(1);
                self.others_ran(now, first, others);
            }
            Closing::LetGo { stopped, wanted } => {
                self.turn.late = now.saturating_sub(wanted).min(LATEST);
                self.turn.rearm_at = now.saturating_add(SETTLED);
                let filled = now;
                self.turn.closing = Closing::Fills {
                    stopped,
                    filled,
                    shut: false,
                };
            }
            Closing::Fills {
                stopped: before,
                filled,
                shut,
            } => {
                if !shut && queue.is_filling(before, filled, now) {
                    self.turn.rearm_at = now.saturating_add(SETTLED);
                    return;
                }
                queue.tried(before, filled, armed_at, now);
                self.turn.closing = match stopped {
                    true => Closing::after(now, queue, may_try, late),
                    false => Closing::Shut,
                };
            }
            _ => {}
        }
    }

    /// Others' work ran for so long before the holder's kernel that has just ended; `first`: the first of its window.
    fn others_ran(&mut self, now: Nanos, first: bool, others: Option<Nanos>) {
        let (Some(others), Some(since), Some(heard)) = (others, self.turn.since, self.turn.heard)
        else {
            return;
        };
        // A holder who only says so is not to have its neighbour's time: what is known of that one counts.
        let before = self.turn.before.and_then(|id| self.fleet.find(id));
        let left = before.and_then(|before| before.queue.most_left());
        let most = self.turn.until.saturating_sub(since).saturating_mul(MOST);
        let most = most.min(left.unwrap_or(most));
        let mut ran = if others > UNSURE { others.min(most) } else { 0 };
        let mut shift = ran;
        if first {
            // The window began with it; and what ran then, ran before that, too.
            let ready = heard.saturating_add(self.costs.switch);
            shift = ready.saturating_add(ran).saturating_sub(since);
            if ran > 0 {
                let before = heard.saturating_sub(self.turn.ended_at);
                ran = ran.saturating_add(before.min(LATEST));
            }
        }
        if first || (self.turn.listens(now) && self.turn.others < most) {
            self.turn.since = Some(since.saturating_add(shift));
            self.turn.until = self.turn.until.saturating_add(shift);
            self.turn.others = self.turn.others.saturating_add(ran);
            self.ran_on(self.turn.before, ran);
            if others >= SLICE / 2 {
                self.turn.listens_until = now.saturating_add(LISTEN);
            }
        }
    }
}
