// SPDX-License-Identifier: GPL-2.0
//! The end of a window where channels cannot be switched off: what was launched runs on, so the window lasts until that has
//! ended.
//!
//! The gate is shut as much earlier as that takes. The task stops there when its next kernel ends, and `queue.rs` says how
//! much it has queued then. When that is over the window ends, and all of it is charged. So nobody's work runs in
//! another's window, whatever it is; only the window's length is not as wanted, by half a kernel, or where its
//! whole queue is longer than its part of a turn. That is carried into the next turns.
//!
//! What is queued is found out at the end of a window, too, where it takes no time of the others that
//! is not made up for.

use super::authority::{Gate, InstanceId, Nanos, MS, US};
use super::queue::Queue;
use super::Scheduler;

/// So much longer than it should be a window may become for finding out what is queued.
const LONGER_BY: Nanos = 64 * MS;
/// Later than this after its time nobody wakes up, as a rule.
const LATEST: Nanos = 300 * US;

/// Nobody who comes waits for longer until those who run already give way to it.
const SLICE: Nanos = 2048 * US;

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
    /// It has launched and fills its queue; its gate is shut then.
    Fills {
        stopped: Nanos,
        filled: Nanos,
        until: Nanos,
    },
    /// Its gate is shut again.
    Filled { stopped: Nanos, filled: Nanos },
}

impl Closing {
    /// Whether the holder's gate is to be shut.
    pub(super) fn is_shut(self) -> bool {
        match self {
            Self::Shut | Self::Drains(_) | Self::Paused { .. } | Self::Filled { .. } => true,
            Self::No | Self::LetGo { .. } | Self::Fills { .. } => false,
        }
    }

    /// Whether its gate is shut and it is to stop there.
    pub(super) fn waits(self) -> bool {
        matches!(self, Self::Shut | Self::Filled { .. })
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
    fn drains(&self) -> bool {
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
            Closing::Fills {
                stopped,
                filled,
                until,
            } if now >= until => {
                self.turn.closing = Closing::Filled { stopped, filled };
                self.turn.armed_at = now;
                Some(Nanos::MAX)
            }
            Closing::Paused { until, .. } | Closing::Fills { until, .. } => Some(until),
            Closing::LetGo { .. } | Closing::Filled { .. } => Some(Nanos::MAX),
        }
    }

    fn begin_to_close(&mut self, now: Nanos, id: InstanceId) -> Option<Nanos> {
        let until = self.turn.until;
        let queue = self.fleet.find(id).map(|i| i.queue);
        let queue = queue.filter(|queue| self.drains() && queue.is_worth_waiting());
        let Some(queue) = queue else {
            return (now < until).then_some(until);
        };
        // It stops when a kernel ends: half a kernel later, more or less. But first it is to fill its queue.
        let half = queue.kernel().unwrap_or(0) / 2;
        let at = until.saturating_sub(queue.left().saturating_add(half));
        let at = match self.turn.heard {
            Some(heard) => at.max(heard.saturating_add(half)),
            None => until,
        };
        if now < at {
            return Some(at);
        }
        if self.turn.heard.is_none() {
            return None;
        }
        let latest = until.saturating_add(LONGER_BY);
        if self.turn.launches < queue.wanted() && now < latest {
            return Some(latest);
        }
        if self.goes_on(id) {
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
        let may_try = now < self.turn.until.saturating_add(LONGER_BY);
        let late = self.turn.late;
        let switch = (self.turn.launches == 1 && self.turn.anew).then_some(self.costs.switch);
        let Some(instance) = self.fleet.find_mut(id) else {
            return;
        };
        let queue = &mut instance.queue;
        match self.turn.closing {
            Closing::No => {
                let first = self.turn.launches == 0;
                if first {
                    self.turn.heard = Some(now);
                    self.turn.anew = released && self.turn.before != Some(id);
                }
                self.turn.launches = self.turn.launches.saturating_add(1);
                let kernel = queue.launched(now, armed_at, switch);
                let wanted = self.turn.launches < queue.wanted();
                if first || wanted || !queue.is_steady() {
                    queue.expect(now);
                    self.turn.rearm_at = now;
                }
                self.started(kernel);
            }
            Closing::Shut if stopped => {
                self.turn.launches = self.turn.launches.saturating_add(1);
                let kernel = queue.launched(now, armed_at, switch);
                self.turn.closing = Closing::after(now, queue, may_try, late);
                self.started(kernel);
            }
            Closing::LetGo { stopped, wanted } => {
                self.turn.late = now.saturating_sub(wanted).min(LATEST);
                self.turn.closing = Closing::Fills {
                    stopped,
                    filled: now,
                    until: queue.full_at(now),
                };
            }
            Closing::Filled {
                stopped: before,
                filled,
            } if stopped => {
                queue.tried(before, filled, now);
                self.turn.closing = Closing::after(now, queue, may_try, late);
            }
            _ => {}
        }
    }

    /// A kernel was launched and started at these moments. If it is the first of the window others' work ran until then.
    fn started(&mut self, kernel: Option<(Nanos, Nanos)>) {
        let (Some((launched, started)), Some(since)) = (kernel, self.turn.since) else {
            return;
        };
        if !self.turn.anew || self.turn.heard != Some(launched) {
            return;
        }
        let ready = launched.saturating_add(self.costs.switch);
        let others = started.saturating_sub(ready).min(SLICE);
        let started = ready.saturating_add(others);
        if started > since {
            self.turn.since = Some(started);
            let shift = started.saturating_sub(since);
            self.turn.until = self.turn.until.saturating_add(shift);
        }
        // Then they also ran until it was launched.
        let before = launched.saturating_sub(self.turn.ended_at).min(LATEST);
        let ran_on = if others > UNSURE {
            others.saturating_add(before)
        } else {
            0
        };
        self.ran_on(self.turn.before, ran_on);
    }
}
