// SPDX-License-Identifier: GPL-2.0
//! One instance of a GPU, as its scheduler knows it.

use super::{
    authority::{
        CallError,
        Engine,
        InstanceId,
        Mechanisms,
        Position, //
    },
    balance::Balance,
    door::{
        DoorState,
        Ring, //
    },
    habits::{
        Habits,
        LONGEST_SILENCE, //
    },
    lag::Lag,
    rules::Terms,
    time::{
        signed,
        Nanos,
        MS,
        US, //
    },
    trials::SliceTrials,
    usage::RecentUse,
    views::Account, //
};

/// The time slice that the driver gives a channel group by default, in microseconds: 128 us times 2
/// to the fourth. CUDA also asks for that (recordings), and 2,048 us were measured.
pub(super) const DEFAULT_SLICE_US: u32 = 2048;
/// A launch so soon after an instance was switched off may follow a kernel that ended before.
const SETTLES_WITHIN: Nanos = 2 * MS;
/// How long a doorbell stays open in a window until it is armed again.
const REARM_AFTER: Nanos = 4 * MS;
/// The same for an instance that was seen to think, because its stop is to be known soon.
const REARM_THINKING_AFTER: Nanos = 500 * US;
/// A doorbell is armed this much later at most.
const ARMED_WITHIN: Nanos = 250 * US;
/// The same for an instance of high priority, which gives way sooner.
pub(super) const REARM_HIGH_AFTER: Nanos = MS;
/// An instance that was heard of within this counts for the shares at which lags grow.
const RECENTLY: Nanos = 2000 * MS;

/// Which channels of an instance should be on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ChannelsOn {
    /// All.
    All,
    /// All but those for compute and graphics.
    Others,
    /// None: it is suspended.
    None,
}

/// An instance.
#[derive(Debug)]
pub(super) struct SchedInstance {
    pub(super) id: InstanceId,
    pub(super) terms: Terms,
    pub(super) habits: Habits,
    pub(super) door: DoorState,
    pub(super) balance: Balance,
    pub(super) lag: Lag,
    pub(super) trials: SliceTrials,
    /// For how many channels, and as many groups, there is room: the most that it ever had.
    pub(super) room: usize,
    pub(super) account: Account,
    pub(super) recent_use: RecentUse,
    /// The channels that should be on.
    pub(super) channels_on: ChannelsOn,
    /// The time slice that its compute groups should have together, in microseconds.
    pub(super) slice_us: u32,
    /// It had no work until a task of it stopped at its gate, and no window since.
    pub(super) waits_for_first_window: bool,
    /// Since when its channels are off, if they are.
    pub(super) off_since: Option<Nanos>,
}

impl SchedInstance {
    pub(super) fn new(id: InstanceId, terms: Terms) -> Self {
        Self {
            id,
            terms,
            habits: Habits::new(),
            door: DoorState::new(),
            balance: Balance::default(),
            lag: Lag::default(),
            trials: SliceTrials::default(),
            room: 0,
            account: Account::default(),
            recent_use: RecentUse::default(),
            channels_on: ChannelsOn::All,
            slice_us: DEFAULT_SLICE_US,
            waits_for_first_window: false,
            off_since: None,
        }
    }

    /// Whether it wants the GPU and may have it.
    pub(super) fn competes(&self) -> bool {
        self.habits.is_working() && !self.terms.suspended
    }

    /// Whether it wants the GPU, or did a moment ago.
    pub(super) fn is_around(&self, now: Nanos) -> bool {
        self.competes() || !self.terms.suspended && self.habits.was_heard_since(now, RECENTLY)
    }

    /// Whether its channels for this engine should be off.
    pub(super) fn wants_off(&self, engine: Engine) -> bool {
        match engine {
            Engine::Compute => self.channels_on != ChannelsOn::All,
            Engine::Other => self.channels_on == ChannelsOn::None,
        }
    }

    /// Whether its channels for compute should be on.
    pub(super) fn want_compute(&mut self, on: bool) {
        self.channels_on = if on {
            ChannelsOn::All
        } else {
            ChannelsOn::Others
        };
    }

    /// Sets the gate and the channels that it should have while another instance has the window.
    pub(super) fn wait_for_window(&mut self, least: Nanos) {
        if !self.habits.is_working() && self.has_credit(least) {
            // It has the GPU at once when it wakes, and what it launches need not wait for a call.
            self.door.want(Position::Armed);
            return;
        }
        if !self.habits.is_working() || self.waits_for_first_window {
            // No work, or what it has waits at the gate: nothing to switch off.
            self.door.want(Position::Shut);
            return;
        }
        self.channels_on = ChannelsOn::Others;
        let stands = self.door.position();
        self.door
            .want(if self.terms.high_priority || stands == Position::Shut {
                Position::Armed
            } else {
                stands
            });
    }

    /// Whether its silences are pauses: it was seen to think, or is believed to, because it keeps
    /// others waiting.
    pub(super) fn thinks(&self) -> bool {
        self.terms.high_priority || self.habits.has_thought()
    }

    /// Whether its kernels follow each other with pauses in between.
    pub(super) fn has_series(&self) -> bool {
        self.thinks() && self.habits.is_in_series()
    }

    /// Whether it is owed enough to have the GPU at once when it wakes.
    fn has_credit(&self, least: Nanos) -> bool {
        self.thinks() && self.lag.owed() >= least
    }

    /// Whether it may have windows outside of turns: it has launched since it gave way.
    pub(super) fn may_burst(&self) -> bool {
        self.competes() && !self.habits.is_mute()
    }

    /// Sets what it should have while it is suspended.
    pub(super) fn suspend(&mut self, mechanisms: Mechanisms) {
        self.door.want(Position::Shut);
        self.channels_on = ChannelsOn::None;
        if !mechanisms.switch {
            self.slice_us = 0;
        }
    }

    /// How long after a launch in its window its gate is armed again.
    pub(super) fn rearm_after(&self) -> Nanos {
        if self.habits.has_thought() || self.thinks() && self.habits.was_in_series() {
            REARM_THINKING_AFTER
        } else if self.thinks() {
            REARM_HIGH_AFTER
        } else {
            REARM_AFTER
        }
    }

    /// Whether its silence is a long kernel's. High priority keeps others waiting, so it is not
    /// believed to be busy for so long.
    pub(super) fn has_long_kernels(&self) -> bool {
        self.habits.has_long_kernels() && !self.terms.high_priority
    }

    /// How long it may be silent in a window that began at `since`, in which its gate was armed at
    /// `armed_at`.
    ///
    /// Its gaps reach from the arming of its gate to the next launch, and the gate is armed some
    /// time after a launch: kernels are longer than the gaps by that time. If the gate was armed
    /// sooner, as when a window begins, it may be silent for as long as such a kernel takes. An
    /// instance that was seen to think is not waited for.
    pub(super) fn patience(&self, since: Nanos, armed_at: Nanos) -> Nanos {
        let heard_at = self.habits.heard_at().max(since);
        let open = armed_at.saturating_sub(heard_at);
        if self.has_series() {
            // If the gate was open for longer, its last launch may have been a moment ago.
            let usual = self.rearm_after();
            let unseen = if open > usual.saturating_add(ARMED_WITHIN) {
                usual
            } else {
                usual.saturating_sub(open)
            };
            return self.habits.pause().saturating_add(unseen);
        }
        let patience = self.habits.patience(self.has_long_kernels());
        if self.habits.has_thought() {
            return patience;
        }
        let unseen = self.rearm_after().saturating_sub(open);
        patience.max(self.habits.gap().saturating_add(unseen).saturating_add(MS))
    }

    /// How much of its silence before this window counts: none while a task that was let go is
    /// bound to launch, unless that takes too long.
    pub(super) fn counted_silence(&self) -> Nanos {
        if self.is_bound_to_launch() {
            0
        } else {
            self.habits.silence()
        }
    }

    fn is_bound_to_launch(&self) -> bool {
        self.door.has_let_go() && self.habits.silence() <= LONGEST_SILENCE
    }

    /// Whether it has no work, now that it was silent for longer than it may: for `silent` in this
    /// window.
    pub(super) fn is_idle(&mut self, silent: Nanos) -> bool {
        self.habits.add_silence(silent);
        // High priority is assumed idle sooner, because it keeps the others waiting.
        if self.terms.high_priority {
            return true;
        }
        !self.is_bound_to_launch() && self.habits.believes_silence()
    }

    /// Whether the driver is to be asked for samples first, now that it was silent for longer than
    /// it may.
    pub(super) fn is_worth_asking(&mut self, silent: Nanos) -> bool {
        !self.terms.high_priority && self.habits.ask_again(silent)
    }

    /// Notes that it launched outside its window. Returns whether it wakes.
    pub(super) fn launched_outside(&mut self, now: Nanos) -> bool {
        let settled = |since: Nanos| now >= since.saturating_add(SETTLES_WITHIN);
        if self.off_since.is_some_and(settled) {
            self.habits.launched_off(now)
        } else {
            self.habits.launched(now, 0);
            false
        }
    }

    /// Notes that one of its programs touched a doorbell.
    pub(super) fn ring(&mut self, now: Nanos) -> Ring {
        let ring = self.door.ring(now);
        self.habits.touched(now);
        if ring.was_let_go {
            self.habits.excuse_silence();
        }
        ring
    }

    /// Notes that its gate was moved, or is where it was.
    pub(super) fn door_answered(&mut self, now: Nanos, result: Result<(), CallError>) {
        let slept = self.door.end_move(now, result);
        self.account.blocked = self.account.blocked.saturating_add(slept);
    }

    /// Charges GPU time that it had.
    pub(super) fn had(&mut self, time: Nanos) {
        if self.lag.rules() {
            self.lag.spend(time);
        } else {
            self.balance.had(signed(time));
        }
        self.account.gpu_time = self.account.gpu_time.saturating_add(time);
    }

    /// Charges GPU time that it had beyond what was charged before; below 0: less than that.
    pub(super) fn had_after_all(&mut self, time: i64) {
        self.balance.had(time);
        self.account.gpu_time = self.account.gpu_time.saturating_add_signed(time);
    }
}
