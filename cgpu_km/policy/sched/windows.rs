// SPDX-License-Identifier: GPL-2.0
//! Windows: one instance at a time has its channels on.
//!
//! A *turn* gives each instance that competes its part, in windows one after the other. If a window
//! was longer or shorter than it should have been, that is carried into the next turn, so shares
//! hold over time whatever the calls took. Under a hard policy a turn lasts its length though every
//! instance was served: that is the cap. Otherwise the next one begins at once, and nothing is left
//! over.

use super::{
    authority::{
        InstanceId,
        Position, //
    },
    doubt::DoubtReason,
    habits::LONGEST_SILENCE,
    instance::REARM_HIGH_AFTER,
    plan::Planned,
    scheduler::Scheduler,
    time::{
        Nanos,
        MS, //
    },
    turn::OpenWindow, //
};

/// The driver's samples are asked about a silence of this length, in time that the instance had the
/// GPU.
const SILENCE_WORTH_SAMPLES: Nanos = 20 * MS;

/// The things to look at in a window.
struct Watch {
    gate: WatchedGate,
    high_priority: bool,
    /// The samples say that it is in a long kernel, and it has been silent for as long as any other
    /// instance may be.
    waited_for: bool,
}

/// The gate of the holder of a window.
enum WatchedGate {
    /// Its silence counts.
    Armed {
        /// How long it has been silent in the window.
        silent: Nanos,
        /// The moment from which on it is silent for too long.
        silent_at: Nanos,
    },
    /// Nothing is heard of it.
    Unarmed {
        /// When the gate may be armed again.
        rearm_at: Nanos,
    },
}

impl Watch {
    /// How long the holder has been silent, if that is too long.
    fn silent_for_too_long(&self, now: Nanos) -> Option<Nanos> {
        match self.gate {
            WatchedGate::Armed { silent, silent_at } => (now >= silent_at).then_some(silent),
            WatchedGate::Unarmed { .. } => None,
        }
    }

    /// When to look again.
    fn look_at(&self) -> Nanos {
        match self.gate {
            WatchedGate::Armed { silent_at, .. } => silent_at,
            WatchedGate::Unarmed { rearm_at } => rearm_at,
        }
    }
}

impl Scheduler {
    /// Moves the turn on to `now`.
    pub(super) fn advance(&mut self, now: Nanos) -> Planned {
        if let Some(window) = self.turn.open_window() {
            let Some(watch) = self.watch(now, window) else {
                self.end_window(now);
                return Planned::ChooseAgain;
            };
            if watch.waited_for {
                // It is waited for as long as the samples find it at work.
                self.doubt.begin(now, DoubtReason::Idle);
            }
            if let Some(silent) = watch.silent_for_too_long(now) {
                if self.fell_silent(now, window, silent) {
                    return Planned::ChooseAgain;
                }
            } else if self.is_interrupted(now, window.holder, watch.high_priority) {
                self.end_window(now);
            } else if now < window.until {
                self.deadline = Some(watch.look_at().min(window.until));
            } else {
                self.end_window(now);
            }
        } else if self
            .turn
            .holder()
            .is_some_and(|id| !self.fleet.competes(id))
        {
            self.turn.end_window(now);
        }
        match self.turn.holder() {
            Some(_) => Planned::Settled,
            None => self.pick(now),
        }
    }

    /// Whether another instance has the GPU before the holder of the window.
    fn is_interrupted(&self, now: Nanos, holder: InstanceId, high_priority: bool) -> bool {
        !high_priority && self.is_somebody_urgent() || self.gives_way_to_burst(now, holder)
    }

    /// The things to look at in a window; `None`: its holder does not compete any more.
    fn watch(&self, now: Nanos, window: OpenWindow) -> Option<Watch> {
        let holder = self.fleet.find(window.holder).filter(|i| i.competes())?;
        let silent_since = window.listens_since();
        let silent = now.saturating_sub(silent_since);
        let patience = holder.patience(window.since, window.armed_at);
        let patience = patience.saturating_sub(holder.counted_silence());
        let whole_silence = holder.habits.whole_silence().saturating_add(silent);
        let gate = if holder.door.position() == Position::Armed && self.mechanisms.doorbell {
            WatchedGate::Armed {
                silent,
                silent_at: silent_since.saturating_add(patience),
            }
        } else {
            WatchedGate::Unarmed {
                rearm_at: window.rearm_at.max(now).max(holder.door.movable_at()),
            }
        };
        Some(Watch {
            gate,
            high_priority: holder.terms.high_priority,
            waited_for: holder.has_long_kernels() && whole_silence >= LONGEST_SILENCE,
        })
    }

    /// Makes the holder give way, because it has been silent for too long. Returns whether it does
    /// not compete any more.
    fn fell_silent(&mut self, now: Nanos, window: OpenWindow, silent: Nanos) -> bool {
        let has_samples = self.mechanisms.samples;
        let Some(holder) = self.fleet.find_mut(window.holder) else {
            return false;
        };
        if let Some(window) = self.turn.open_window_mut() {
            // The silence is counted.
            window.armed_at = now;
        }
        if has_samples && holder.is_worth_asking(silent) {
            // It keeps its window meanwhile.
            self.deadline = Some(window.until);
            self.doubt.begin(now, DoubtReason::Idle);
            self.doubt.hurry(now);
            return false;
        }
        let series = holder.has_series();
        let idle = holder.is_idle(silent);
        let high_priority = holder.terms.high_priority;
        // High priority is believed, and must not wait for a sample to be read.
        if !high_priority && !holder.has_series() {
            if idle {
                self.doubt.begin(now, DoubtReason::Idle);
            } else if holder.habits.silence() >= SILENCE_WORTH_SAMPLES {
                self.doubt.begin(now, DoubtReason::Silent);
            }
        }
        if high_priority {
            // It may come back in this turn. So it is charged while it counts as at work: its lag
            // does not grow by its own window.
            self.close_window(now, false);
            self.had_its_turn(now, window);
        } else if !idle {
            self.end_window(now);
        }
        if let Some(holder) = self.fleet.find_mut(window.holder) {
            if !high_priority {
                // It loses the time that it does not use.
                holder.balance.forfeit();
            }
            holder.habits.gave_way(now, idle);
        }
        if idle && !high_priority {
            // Not switched off, because it does not compete.
            self.end_window(now);
        }
        let burst = self.fleet.find(window.holder).map(|i| self.burst_of(i));
        if let (Some(holder), Some(burst)) = (self.fleet.find_mut(window.holder), burst) {
            if series && holder.lag.rules() {
                // That it stopped is known late, which is not its fault.
                holder.lag.grow(holder.habits.paused(silent), burst);
            } else if holder.lag.rules() {
                self.wake_budget.waste(now, silent);
            }
            holder.lag.keep();
        }
        idle
    }

    /// Whether an instance that competes is switched off when its window ends.
    fn is_switched_off(&self, id: InstanceId) -> bool {
        self.mechanisms.switch && self.fleet.competes(id)
    }

    /// Begins the window of the holder, for which all calls were made.
    pub(super) fn begin_window(&mut self, now: Nanos) {
        if !self.turn.is_due() {
            return;
        }
        let Some(id) = self.turn.holder() else {
            return;
        };
        let made_room = self.turn.free_at();
        let since = if self.turn.last() == Some(id) {
            // Its context is still on the GPU.
            made_room
        } else {
            made_room.saturating_add(self.costs.switch_saved)
        };
        let tail = if self.is_switched_off(id) {
            self.off_after()
        } else {
            0
        };
        let length = self.window_length(now, id);
        let Some(holder) = self.fleet.find_mut(id) else {
            return;
        };
        // The launch that woke it says that it has work for a while. Any other launch that left
        // its gate open before the window began says nothing of the window.
        let rearm_at = if holder.lag.rules() {
            now.saturating_add(REARM_HIGH_AFTER)
        } else {
            now
        };
        holder.waits_for_first_window = false;
        holder.lag.go_on();
        holder.account.windows = holder.account.windows.saturating_add(1);
        let until = since.saturating_add(length.saturating_sub(tail));
        self.turn.open(id, since, until, rearm_at);
    }

    /// From the end of a window to the moment its holder is off the GPU.
    fn off_after(&self) -> Nanos {
        let off = self.costs.disabled_after;
        if self.rules.overlaps() {
            off.saturating_add(self.costs.enabled_call)
        } else {
            off
        }
    }

    /// The soonest moment at which a call that began at `began` has the last holder off the GPU.
    pub(super) fn off_soonest(&self, began: Nanos) -> Nanos {
        if self.rules.overlaps() {
            let soonest = self.turn.ended_at().saturating_add(self.off_after());
            soonest.max(began)
        } else {
            began.saturating_add(self.costs.disabled_after)
        }
    }

    /// How long the window of an instance is to be.
    fn window_length(&self, now: Nanos, id: InstanceId) -> Nanos {
        match self.fleet.find(id) {
            Some(holder) if holder.lag.rules() => self.burst_length(now, holder),
            Some(holder) => u64::try_from(holder.balance.owed()).unwrap_or(0),
            None => 0,
        }
    }

    /// Ends the window now and charges its time.
    pub(super) fn end_window(&mut self, now: Nanos) {
        let holder = self.turn.open_window().map(|window| window.holder);
        let off = holder.is_some_and(|holder| self.is_switched_off(holder));
        self.close_window(now, off);
    }

    /// The same; `off`: its holder is switched off then.
    fn close_window(&mut self, now: Nanos, off: bool) {
        let Some(window) = self.turn.end_window(now) else {
            return;
        };
        let end = if off {
            now.saturating_add(self.off_after())
        } else {
            now
        };
        let used = end.saturating_sub(window.since);
        if let Some(holder) = self.fleet.find_mut(window.holder) {
            holder.had(used);
            if off {
                holder.account.preemptions = holder.account.preemptions.saturating_add(1);
            }
            if holder.door.position() == Position::Armed {
                let silent = now.saturating_sub(window.listens_since());
                holder.habits.add_silence(silent);
            }
        }
        self.grow_lags_by_window(now, used);
        self.burst_ended(now, window.holder, used);
    }

    /// Charges the holder of the last window for being switched off later than expected.
    pub(super) fn overran(&mut self, late: Nanos) {
        let last = self.turn.last();
        if let Some(last) = last.and_then(|id| self.fleet.find_mut(id)) {
            last.had(late);
        }
    }
}
