// SPDX-License-Identifier: GPL-2.0
//! The plan: how the GPU is shared now, and what each instance should have because of that.

use super::{
    authority::{
        InstanceId,
        Position, //
    },
    instance::{
        ChannelsOn,
        SchedInstance,
        DEFAULT_SLICE_US, //
    },
    scheduler::Scheduler,
    time::Nanos,
    time_alone::TimeAlone, //
};
use crate::uapi::{
    Mode,
    Policy, //
};

/// Whether the mode that the plan has chosen is the right one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Planned {
    /// It is.
    Settled,
    /// Something changed on which the choice depends: it is to be made once more.
    ChooseAgain,
}

impl Scheduler {
    /// A doorbell was touched.
    pub(super) fn rang(&mut self, now: Nanos, id: InstanceId) {
        self.grow_lags(now);
        let in_slices = self.mode == Mode::Slices && self.fleet.competes(id);
        if in_slices {
            self.heard_in_slices(now, id);
        } else {
            self.charge(now);
        }
        let Some(instance) = self.fleet.find_mut(id) else {
            return;
        };
        let was_mute = instance.habits.is_mute();
        let is_first = instance.habits.heard_at() == 0;
        let ring = instance.ring(now);
        let mut wakes = false;
        let holds = self.turn.holder() == Some(id);
        match self.turn.open_window_mut() {
            _ if in_slices => instance.habits.excuse_silence(),
            Some(window) if holds => {
                let silent = if ring.was_let_go {
                    0
                } else {
                    now.saturating_sub(window.listens_since())
                };
                window.rearm_at = now.saturating_add(instance.rearm_after());
                if was_mute {
                    // Nobody knows whether a kernel ended or it thought.
                    instance.lag.forget();
                }
                instance.habits.goes_on(now, silent);
            }
            // Its channels are being switched on: a kernel of it can have ended already.
            None if holds && instance.habits.is_working() => instance.habits.launched(now, 0),
            _ if instance.habits.is_working() => wakes = instance.launched_outside(now),
            _ => {
                instance.habits.began_work(now);
                instance.waits_for_first_window = ring.blocked;
                if self.rules.policy == Policy::WeightLazy {
                    instance.balance.renew_part();
                }
                wakes = instance.thinks();
                if !wakes && !is_first {
                    // It may have been at work.
                    instance.lag.forget();
                }
            }
        }
        if wakes {
            self.wakes(now, id);
        }
    }

    /// Decides what each instance should have now.
    pub(super) fn plan(&mut self, now: Nanos) {
        self.grow_lags(now);
        // Each round but the last takes an instance for idle or ends a window; more than a few
        // cannot follow from one moment.
        for _ in 0..=self.fleet.instances().count().saturating_add(2) {
            self.deadline = None;
            let mode = self.choose();
            if mode != self.mode {
                self.charge(now);
                self.end_window(now);
                self.mode = mode;
                if mode == Mode::Windows {
                    self.turn.resume(now);
                }
                if mode != Mode::Slices {
                    self.slices.end();
                }
            }
            self.note_time_alone(now);
            let planned = match mode {
                Mode::Windows => self.advance(now),
                Mode::Slices => self.watch_slices(now),
                Mode::Native | Mode::Free => Planned::Settled,
            };
            if planned == Planned::Settled {
                break;
            }
        }
        self.wish(now);
    }

    /// Notes which instance has the GPU to itself. When another one comes, the driver's samples
    /// tell how it worked, because its launches were not heard.
    fn note_time_alone(&mut self, now: Nanos) {
        let mut competing = self.fleet.competing().map(|i| i.id);
        let (first, second) = (competing.next(), competing.next());
        let lasting = self.alone.filter(TimeAlone::lasts);
        self.alone = match (self.mode, first, lasting) {
            (Mode::Free, Some(id), Some(alone)) if alone.of() == id => Some(alone),
            (Mode::Free, Some(id), _) => Some(TimeAlone::new(id, now)),
            (Mode::Windows | Mode::Slices, ..) => match lasting {
                Some(alone) if second.is_some() && self.fleet.competes(alone.of()) => {
                    alone.ended(now)
                }
                Some(_) => None,
                None => self.alone,
            },
            (Mode::Native | Mode::Free, ..) => None,
        };
    }

    fn choose(&self) -> Mode {
        if self.rules.policy == Policy::Native || !self.mechanisms.switch {
            return Mode::Native;
        }
        let cap = |i: &SchedInstance| self.rules.cap(i.terms.weight).is_some();
        let capped = self.fleet.competing().any(cap);
        match self.fleet.competing().count() {
            0 => Mode::Free,
            1 if !capped => Mode::Free,
            _ if !capped && self.slices_hold() => Mode::Slices,
            _ => Mode::Windows,
        }
    }

    /// Sets what each instance should have.
    fn wish(&mut self, now: Nanos) {
        let (mode, mechanisms) = (self.mode, self.mechanisms);
        let holder = self.turn.holder();
        let least = self.costs.least_window;
        for instance in self.fleet.instances_mut() {
            instance.channels_on = ChannelsOn::All;
            instance.waits_for_first_window &= mode == Mode::Windows;
            instance.slice_us = DEFAULT_SLICE_US;
            match mode {
                Mode::Native => instance.door.want(Position::Open),
                Mode::Free | Mode::Slices if instance.habits.is_working() => {
                    instance.door.want(Position::Open);
                }
                Mode::Free | Mode::Slices => instance.door.want(Position::Armed),
                Mode::Windows if holder == Some(instance.id) => {}
                Mode::Windows => instance.wait_for_window(least),
            }
        }
        if mode == Mode::Windows {
            self.wish_of_holder(now);
        }
        for instance in self.fleet.instances_mut() {
            if instance.terms.suspended {
                instance.suspend(mechanisms);
            }
            if !mechanisms.doorbell {
                instance.door.want(Position::Open);
            }
        }
        if mode == Mode::Slices {
            self.wish_doors_in_slices(now);
        }
        self.wish_slices();
    }

    /// Sets where the doorbells of the window's holder should be: armed when it begins and some
    /// time after each launch.
    fn wish_of_holder(&mut self, now: Nanos) {
        let holder = self.turn.holder().and_then(|id| self.fleet.find_mut(id));
        let Some(holder) = holder else {
            return;
        };
        let stands = holder.door.position();
        let given_at = self.turn.given_at();
        let Some(window) = self.turn.open_window_mut() else {
            // A gate that was opened by a launch just now is not armed again first. If it were, a
            // program that launches sooner than the call is answered would have it armed for ever,
            // and its window would never begin.
            let heard_since = |given_at| holder.habits.heard_at() > given_at;
            let heard = holder.lag.rules() || given_at.is_some_and(heard_since);
            holder.door.want(match stands {
                Position::Open if heard => stands,
                _ => Position::Armed,
            });
            return;
        };
        if stands == Position::Open && now < window.rearm_at {
            holder.door.want(Position::Open);
            return;
        }
        holder.door.want(Position::Armed);
        if stands != Position::Armed {
            window.armed_at = now;
        }
    }
}
