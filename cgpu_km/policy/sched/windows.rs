// SPDX-License-Identifier: GPL-2.0
//! The plan: how the GPU is shared now, and in windows whose turn it is.
//!
//! A *turn* gives each instance that competes its part, in windows one after the other. What a window was
//! longer or shorter than it should have been is carried into the next turn, so shares hold over time
//! whatever the calls took. Under a hard policy a turn lasts its length though everybody was served:
//! that is the cap. Otherwise the next one begins at once, and nothing is left over.

use super::account::{signed, Mode};
use super::authority::{Gate, InstanceId, Nanos, MS};
use super::fleet::{Instance, LONGEST_SILENCE};
use super::rules::Policy;
use super::Scheduler;

/// How long a doorbell stays open in a window until it is armed again to see whether there is work yet.
const REARM: Nanos = 4 * MS;
/// The same for instances of high priority, which give way sooner.
const REARM_HIGH: Nanos = MS;
/// Silence, in time that the instance had the GPU, of which the driver's samples are asked.
const LONG_SILENCE: Nanos = 20 * MS;

/// A launch so long after its program was taken to have no work, with its channels on, may have followed a kernel. A silence like
/// that is not believed at once the next time.
const LONG_PAUSE: Nanos = 64 * MS;

/// Where in its turn the GPU is.
#[derive(Debug)]
pub(super) struct Turn {
    pub(super) number: u64,
    pub(super) began: Nanos,
    pub(super) length: Nanos,
    pub(super) holder: Option<InstanceId>,
    /// Who had the last window.
    pub(super) last: Option<InstanceId>,
    /// When the holder had the GPU to itself; `None` while the calls for it are made.
    pub(super) since: Option<Nanos>,
    /// When the last call that made room took effect.
    pub(super) free_at: Nanos,
    /// When the window is to end.
    pub(super) until: Nanos,
    /// Since when the holder's gate has been armed.
    pub(super) armed_at: Nanos,
    pub(super) rearm_at: Nanos,
    pub(super) switches: u64,
}

impl Turn {
    pub(super) const fn new() -> Self {
        Self {
            number: 0,
            began: 0,
            length: 0,
            holder: None,
            last: None,
            since: None,
            free_at: 0,
            until: 0,
            armed_at: 0,
            rearm_at: 0,
            switches: 0,
        }
    }

    /// An instance is gone.
    pub(super) fn forget(&mut self, id: InstanceId) {
        if self.holder == Some(id) {
            self.holder = None;
            self.since = None;
        }
    }

    /// Windows begin again after a time without. A turn that would be over by now is not gone on with.
    fn resume(&mut self, now: Nanos) {
        if now >= self.began.saturating_add(self.length) {
            self.length = 0;
        }
    }

    /// Whether somebody is to have a window that has not begun.
    pub(super) fn is_due(&self) -> bool {
        self.holder.is_some() && self.since.is_none()
    }

    /// Whether somebody's window has begun.
    pub(super) fn is_under_way(&self) -> bool {
        self.holder.is_some() && self.since.is_some()
    }

    /// A call took effect then.
    pub(super) fn took_effect(&mut self, at: Nanos) {
        self.free_at = self.free_at.max(at);
    }

    /// How much of its present window an instance has used.
    pub(super) fn used_by(&self, id: InstanceId, now: Nanos) -> Nanos {
        match self.since {
            Some(since) if self.holder == Some(id) => now.saturating_sub(since),
            _ => 0,
        }
    }
}

/// How long after a launch in its window the gate of an instance is armed again.
fn rearm(instance: &Instance) -> Nanos {
    match instance.terms.high_priority {
        true => REARM_HIGH,
        false => REARM,
    }
}

impl Scheduler {
    /// The scheduler begins to look after a GPU that the driver shared so far: whoever has channels may
    /// have work on it, and is heard of only when that ends.
    pub(super) fn presume(&mut self) {
        for at in 0..self.fleet.instances().count() {
            let Some(id) = self.fleet.instances().nth(at).map(|i| i.id) else {
                break;
            };
            if self.fleet.compute_groups(id) > 0 {
                if let Some(instance) = self.fleet.find_mut(id) {
                    instance.seen();
                }
            }
        }
    }

    /// Something changed that the plan follows from: the turn is not worth finishing.
    pub(super) fn replan(&mut self, now: Nanos) {
        self.charge(now);
        self.end_window(now);
        for instance in self.fleet.instances_mut() {
            instance.owed = instance.owed.min(0);
        }
        self.turn.length = 0;
        self.end_slices();
    }

    /// A doorbell was touched.
    pub(super) fn rang(&mut self, now: Nanos, id: InstanceId) {
        match self.mode {
            Mode::Slices if self.competes(id) => self.heard_in_slices(now, id),
            _ => self.charge(now),
        }
        let Some(instance) = self.fleet.find_mut(id) else {
            return;
        };
        instance.gate_touched = true;
        let parked = instance.gate == Gate::Shut;
        match instance.gate {
            Gate::Shut => instance.parked_since = instance.parked_since.or(Some(now)),
            Gate::Armed => instance.gate = Gate::Open,
            Gate::Open => {}
        }
        self.heard_of(now, id, parked);
    }

    /// Somebody launched, or `parked` before it could.
    fn heard_of(&mut self, now: Nanos, id: InstanceId, parked: bool) {
        let sliced = self.mode == Mode::Slices && self.competes(id);
        let in_window = self.turn.holder == Some(id);
        let since = self.turn.since.map(|since| since.max(self.turn.armed_at));
        let soft = self.rules.policy == Policy::Soft;
        let Some(instance) = self.fleet.find_mut(id) else {
            return;
        };
        instance.heard_at = now;
        let released = core::mem::replace(&mut instance.released, false);
        if released {
            // It was not its kernels that kept it silent.
            instance.silent = 0;
        }
        match since {
            _ if sliced => instance.silent = 0,
            Some(_) if in_window && released => instance.heard(now, 0),
            Some(since) if in_window => instance.heard(now, now.saturating_sub(since)),
            // Its channels are being switched on: a kernel of it can have ended already.
            None if in_window && instance.working => instance.heard(now, 0),
            _ if instance.working => instance.launched_outside(now),
            _ => {
                if now >= instance.idle_since.saturating_add(LONG_PAUSE) {
                    instance.thinks = 0;
                }
                instance.silent = 0;
                instance.fresh = parked;
                instance.working = true;
                if soft {
                    instance.granted = 0;
                }
            }
        }
        if in_window {
            self.turn.rearm_at = now.saturating_add(rearm(instance));
        }
    }

    /// Decides what everybody should have now.
    pub(super) fn plan(&mut self, now: Nanos) {
        // Each round but the last takes an instance for idle or ends a window; more than a few cannot
        // follow from one moment.
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
                    self.end_slices();
                }
            }
            let settled = match mode {
                Mode::Windows => self.advance(now),
                Mode::Slices => self.watch_slices(now),
                Mode::Native | Mode::Free => true,
            };
            if settled {
                break;
            }
        }
        self.wish(now);
    }

    fn choose(&self) -> Mode {
        if self.rules.policy == Policy::Native || !self.capabilities.windows() {
            return Mode::Native;
        }
        let mut competing = 0usize;
        let mut capped = false;
        for instance in self.fleet.competing() {
            competing += 1;
            capped |= self.rules.cap(instance.terms.weight).is_some();
        }
        match competing {
            0 => Mode::Free,
            1 if !capped => Mode::Free,
            _ if !capped && self.slices_hold() => Mode::Slices,
            _ => Mode::Windows,
        }
    }

    /// Moves the turn on to `now`. Returns false where that changed who competes.
    fn advance(&mut self, now: Nanos) -> bool {
        if let (Some(id), Some(since)) = (self.turn.holder, self.turn.since) {
            let (armed, patience, high, long, retry_at) = match self.fleet.find(id) {
                Some(i) if i.competes() => (
                    i.gate == Gate::Armed && self.capabilities.doorbell,
                    self.patience(i, since).saturating_sub(i.counted_silence()),
                    i.terms.high_priority,
                    i.has_long_kernels()
                        .then_some(i.silent.saturating_add(i.explained)),
                    i.gate_retry_at,
                ),
                _ => {
                    self.end_window(now);
                    return false;
                }
            };
            let silent_since = self.turn.armed_at.max(since);
            let silent_at = silent_since.saturating_add(patience);
            let silent = now.saturating_sub(silent_since);
            if long.is_some_and(|before| before.saturating_add(silent) >= LONGEST_SILENCE) {
                // It is waited for, as long as the samples find it.
                self.doubt(now, true);
            }
            if armed && now >= silent_at {
                if self.fell_silent(now, id, silent) {
                    return false;
                }
            } else if !high && self.somebody_urgent() {
                self.end_window(now);
            } else if now < self.turn.until {
                let look_at = if armed {
                    silent_at
                } else {
                    self.turn.rearm_at.max(now).max(retry_at)
                };
                self.deadline = Some(look_at.min(self.turn.until));
            } else {
                self.end_window(now);
            }
        } else if self.turn.holder.is_some_and(|id| !self.competes(id)) {
            self.turn.holder = None;
        }
        self.turn.holder.is_some() || self.pick(now)
    }

    /// How long the holder of a window that began at `since` may be silent.
    ///
    /// Its gaps reach from the arming of its gate to the next launch, and the gate is armed some time after a launch: kernels
    /// are longer than they tell by that time. Where the gate was armed sooner, as when a window begins, it may be silent for
    /// as long as such a kernel takes. Who was seen to think is not waited for.
    fn patience(&self, instance: &Instance, since: Nanos) -> Nanos {
        let patience = instance.patience();
        if instance.thinks > 0 {
            return patience;
        }
        let heard_at = instance.heard_at.max(since);
        let open = self.turn.armed_at.saturating_sub(heard_at);
        let unseen = rearm(instance).saturating_sub(open);
        patience.max(instance.gap.saturating_add(unseen).saturating_add(MS))
    }

    /// The holder has been silent for too long: it gives way. Returns whether it does not compete any more.
    fn fell_silent(&mut self, now: Nanos, id: InstanceId, silent: Nanos) -> bool {
        let samples = self.capabilities.samples;
        let instance = self.fleet.find_mut(id);
        if instance.is_some_and(|i| samples && i.is_worth_asking(silent)) {
            // It keeps its window meanwhile.
            self.turn.armed_at = now;
            self.deadline = Some(self.turn.until);
            self.doubt(now, true);
            self.next_sample = now;
            return false;
        }
        let instance = self.fleet.find_mut(id);
        let high = instance.as_ref().is_some_and(|i| i.terms.high_priority);
        let idle = instance.is_some_and(|i| i.is_idle(silent));
        let long = |i: &Instance| i.silent >= LONG_SILENCE;
        // (Who has priority is believed, and must not wait for a sample to be read.)
        if !high && (idle || self.fleet.find(id).is_some_and(long)) {
            self.doubt(now, idle);
        }
        // The silence is counted.
        self.turn.armed_at = now;
        if !idle {
            self.end_window(now);
        }
        if let Some(instance) = self.fleet.find_mut(id) {
            // What it does not use it loses; but who has priority may come back in this turn.
            if !instance.terms.high_priority {
                instance.owed = instance.owed.min(0);
            }
            instance.working = !idle;
            instance.idle_since = now;
            instance.dense = None;
        }
        if idle {
            // Not switched off, since it does not compete.
            self.end_window(now);
        }
        idle
    }

    pub(super) fn competes(&self, id: InstanceId) -> bool {
        self.fleet.find(id).is_some_and(Instance::competes)
    }

    /// Whether an instance that competes is switched off when its window ends.
    fn switched_off(&self, id: InstanceId) -> bool {
        self.capabilities.switch && self.competes(id)
    }

    /// All calls for the holder were made: its window begins.
    pub(super) fn begin_window(&mut self, now: Nanos) {
        let Some(id) = self.turn.holder else {
            return;
        };
        if self.turn.since.is_some() {
            return;
        }
        let made_room = self.turn.free_at;
        let since = if self.turn.last == Some(id) {
            // Its context is still on the GPU.
            made_room
        } else {
            made_room.saturating_add(self.costs.switch_saved)
        };
        self.turn.last = Some(id);
        let tail = if self.switched_off(id) {
            self.costs.disabled_after
        } else {
            0
        };
        let Some(instance) = self.fleet.find_mut(id) else {
            return;
        };
        instance.fresh = false;
        instance.account.windows = instance.account.windows.saturating_add(1);
        let owed = u64::try_from(instance.owed).unwrap_or(0);
        self.turn.since = Some(since);
        self.turn.until = since.saturating_add(owed.saturating_sub(tail));
        self.turn.armed_at = since;
        self.turn.rearm_at = now.saturating_add(REARM_HIGH);
        self.turn.switches = self.turn.switches.saturating_add(1);
    }

    /// The window ends now: what it was is charged.
    fn end_window(&mut self, now: Nanos) {
        let (Some(id), since) = (self.turn.holder.take(), self.turn.since.take()) else {
            return;
        };
        let Some(since) = since else {
            return;
        };
        let off = self.switched_off(id);
        let end = if off {
            now.saturating_add(self.costs.disabled_after)
        } else {
            now
        };
        let used = end.saturating_sub(since);
        let armed_at = self.turn.armed_at.max(since);
        if let Some(instance) = self.fleet.find_mut(id) {
            instance.owed = instance.owed.saturating_sub(signed(used));
            instance.account.given = instance.account.given.saturating_add(used);
            if off {
                instance.account.preemptions = instance.account.preemptions.saturating_add(1);
            }
            if instance.gate == Gate::Armed {
                let silent = now.saturating_sub(armed_at);
                instance.silent = instance.silent.saturating_add(silent);
            }
        }
    }

    /// Whoever had the last window was switched off later than was reckoned with.
    pub(super) fn overran(&mut self, late: Nanos) {
        let last = self.turn.last;
        if let Some(instance) = last.and_then(|id| self.fleet.find_mut(id)) {
            instance.owed = instance.owed.saturating_sub(signed(late));
            instance.account.given = instance.account.given.saturating_add(late);
        }
    }
}
