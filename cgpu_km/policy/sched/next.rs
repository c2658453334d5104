// SPDX-License-Identifier: GPL-2.0
//! The next call: what differs between what everybody should have and what was done.
//!
//! Making room comes first (switching off, shutting gates), then time slices, then letting in: at no moment
//! does a change give the GPU to more than who should have it before or after.

use super::account::Mode;
use super::authority::{Action, CallError, Engine, Gate, Nanos, RmName, MS, SWITCH_MAX};
use super::fleet::{Channel, Fleet};
use super::Scheduler;

/// The first wait after a failed call; doubled for each further one.
const RETRY: Nanos = 10 * MS;
const RETRY_DOUBLINGS: u32 = 7;

/// A call that is being made.
#[derive(Debug)]
pub(super) struct Pending {
    action: Action,
}

pub(super) fn retry_at(now: Nanos, failed: u32) -> Nanos {
    let doublings = failed.saturating_sub(1).min(RETRY_DOUBLINGS);
    now.saturating_add(RETRY << doublings)
}

/// Whether a channel should be off.
fn should_be_off(fleet: &Fleet, channel: &Channel) -> bool {
    fleet
        .find(channel.owner)
        .is_some_and(|owner| match channel.engine {
            Engine::Compute => !owner.want_compute,
            Engine::Other => !owner.want_others,
        })
}

impl Scheduler {
    /// What to do now. Until its [`super::Event::Answer`] has come there is nothing else.
    pub fn next(&mut self, now: Nanos) -> Option<Action> {
        if self.pending.is_some() {
            self.deadline = None;
            return None;
        }
        self.plan(now);
        let mut action = self.difference(now);
        let begun = action.is_none()
            && !self.held_back
            && match self.mode {
                Mode::Windows => {
                    self.begin_window(now);
                    true
                }
                Mode::Slices => self.open_slices(now),
                Mode::Native | Mode::Free => false,
            };
        if begun {
            // With the window's end as the deadline.
            self.plan(now);
            action = self.difference(now);
            if self.turn.is_due() && !self.held_back {
                // That window was over at once, and the next one is to begin.
                self.wake_at(now);
            }
        }
        if let Some(action) = action {
            self.pending = Some(Pending { action });
            self.deadline = None;
        }
        action
    }

    pub(super) fn wake_at(&mut self, at: Nanos) {
        self.deadline = Some(self.deadline.map_or(at, |deadline| deadline.min(at)));
    }

    /// A call is due, and may not be made before `at`: a window that needs it cannot begin.
    fn hold_back(&mut self, at: Nanos) {
        self.held_back = true;
        self.wake_at(at);
    }

    fn difference(&mut self, now: Nanos) -> Option<Action> {
        let wait = self.limit.wait(now);
        self.held_back = false;
        let call = self
            .switch(now, true, wait)
            .or_else(|| self.gate(now, true))
            .or_else(|| self.slice(now, wait))
            .or_else(|| self.switch(now, false, wait))
            .or_else(|| self.gate(now, false))
            .or_else(|| self.read_samples(now, wait))?;
        if !matches!(call, Action::SetGate { .. }) {
            self.limit.take(now);
        }
        Some(call)
    }

    /// Gates that are to be shut, or the others.
    fn gate(&mut self, now: Nanos, shut: bool) -> Option<Action> {
        if !self.capabilities.doorbell {
            return None;
        }
        let mut retry = None::<Nanos>;
        let mut found = None;
        for instance in self.fleet.instances_mut() {
            if instance.gate == instance.want_gate || (instance.want_gate == Gate::Shut) != shut {
                continue;
            }
            if instance.gate_retry_at > now {
                let at = instance.gate_retry_at;
                retry = Some(retry.map_or(at, |retry| retry.min(at)));
                continue;
            }
            // Before it is done: a ring that follows at once must find it so.
            instance.set_gate();
            found = Some(Action::SetGate {
                instance: instance.id,
                gate: instance.gate,
            });
            break;
        }
        if let Some(at) = retry {
            self.wake_at(at);
        }
        found
    }

    /// Channels to be switched off, or on.
    fn switch(&mut self, now: Nanos, disable: bool, wait: Option<Nanos>) -> Option<Action> {
        if !self.capabilities.switch {
            return None;
        }
        self.switched.truncate(0);
        let mut retry = None::<Nanos>;
        let mut alone = false;
        // Those that have failed go one by one, so that the one at fault does not hinder the others.
        for failed in [false, true] {
            for channel in self.fleet.channels() {
                let wanted = should_be_off(&self.fleet, channel);
                if wanted != disable || channel.off == Some(wanted) || alone {
                    continue;
                }
                if (channel.failed > 0) != failed {
                    continue;
                }
                if channel.retry_at > now {
                    retry = Some(retry.map_or(channel.retry_at, |at| at.min(channel.retry_at)));
                    continue;
                }
                if self.switched.len() >= SWITCH_MAX {
                    break;
                }
                // There is room: SWITCH_MAX places were reserved.
                let _ = self.switched.push(channel.name);
                alone = failed;
            }
            if !self.switched.is_empty() {
                break;
            }
        }
        if let Some(at) = retry {
            self.wake_at(at);
        }
        if self.switched.is_empty() {
            return None;
        }
        if let Some(at) = wait {
            self.hold_back(at);
            return None;
        }
        let Self {
            fleet, switched, ..
        } = self;
        for channel in fleet.channels_mut() {
            channel.in_call = switched.contains(&channel.name);
        }
        Some(Action::Switch { disable })
    }

    /// Time slices, and the preemption that makes one of 0 take effect.
    fn slice(&mut self, now: Nanos, wait: Option<Nanos>) -> Option<Action> {
        if !self.capabilities.timeslice {
            return None;
        }
        let mut retry = None::<Nanos>;
        let mut found = None;
        for instance in self.fleet.instances() {
            let groups = self.fleet.compute_groups(instance.id);
            let each = match u32::try_from(groups) {
                Ok(groups) if groups > 1 => instance.want_slice / groups,
                _ => instance.want_slice,
            };
            for group in self.fleet.groups() {
                if group.owner != instance.id || group.engine != Engine::Compute {
                    continue;
                }
                let preempt = group.preempt && self.capabilities.preempt;
                let is_set = group.slice == Some(each);
                if (is_set && !preempt) || found.is_some() {
                    continue;
                }
                if group.retry_at > now {
                    retry = Some(retry.map_or(group.retry_at, |at| at.min(group.retry_at)));
                } else if is_set {
                    found = Some((Action::Preempt { group: group.name }, group.name));
                } else {
                    let action = Action::SetTimeslice {
                        group: group.name,
                        microseconds: each,
                    };
                    found = Some((action, group.name));
                }
            }
        }
        if let Some(at) = retry {
            self.wake_at(at);
        }
        let (action, name) = found?;
        if let Some(at) = wait {
            self.hold_back(at);
            return None;
        }
        for group in self.fleet.groups_mut() {
            group.in_call = group.name == name;
        }
        Some(action)
    }

    /// The answer to the pending action.
    pub(super) fn answered(&mut self, now: Nanos, began: Nanos, result: Result<(), CallError>) {
        let Some(pending) = self.pending.take() else {
            return;
        };
        if result == Err(CallError::Unsupported) {
            self.unsupported(now, pending.action);
        }
        match pending.action {
            Action::SetGate { instance, .. } => {
                if let Some(instance) = self.fleet.find_mut(instance) {
                    instance.gate_answered(now, result);
                }
            }
            Action::Switch { disable } => self.switch_answered(now, began, disable, result),
            Action::SetTimeslice {
                group,
                microseconds,
            } => self.group_answered(now, group, result, Some(microseconds)),
            Action::Preempt { group } => self.group_answered(now, group, result, None),
            Action::ReadSamples => {}
        }
    }

    fn switch_answered(
        &mut self,
        now: Nanos,
        began: Nanos,
        disable: bool,
        result: Result<(), CallError>,
    ) {
        if result.is_ok() {
            self.fleet.switched(disable.then_some(now));
        }
        // A name can be that of a new channel by now, which was not meant.
        if let (Err(CallError::Gone), [only]) = (result, &*self.switched) {
            if self.fleet.channels().any(|c| c.in_call) {
                self.fleet.free(*only);
            }
            return;
        }
        let Self {
            fleet, switched, ..
        } = self;
        let named = |c: &&mut Channel| switched.contains(&c.name);
        for channel in fleet.channels_mut().filter(named).filter(|c| !c.in_call) {
            channel.off = None;
        }
        for channel in self.fleet.channels_mut().filter(|c| c.in_call) {
            channel.in_call = false;
            if result.is_ok() {
                channel.off = Some(disable);
                channel.failed = 0;
            } else {
                channel.off = None;
                channel.failed = channel.failed.saturating_add(1);
                // Alone at once; then with pauses.
                channel.retry_at = if channel.failed == 1 {
                    now
                } else {
                    retry_at(now, channel.failed - 1)
                };
            }
        }
        if result.is_ok() {
            let (after, rest) = if disable {
                (self.costs.disabled_after, self.costs.disabled_rest)
            } else {
                (self.costs.enabled_after, self.costs.enabled_rest)
            };
            let soonest = began.saturating_add(after);
            // A call that took long has waited for a lock first.
            let effect = soonest.max(now.saturating_sub(rest));
            // Where somebody has the GPU meanwhile, it is no end of a window: a channel is new, or its instance suspended, or the
            // call failed before.
            let between = match self.mode {
                Mode::Windows => !self.turn.is_under_way(),
                Mode::Slices => !self.slices.are_open(),
                Mode::Native | Mode::Free => false,
            };
            if disable && between {
                self.overran(effect.saturating_sub(soonest));
            }
            self.turn.took_effect(effect);
        }
    }

    /// `slice` is what was set, or `None` for a preemption.
    fn group_answered(
        &mut self,
        now: Nanos,
        name: RmName,
        result: Result<(), CallError>,
        slice: Option<u32>,
    ) {
        let Some(group) = self.fleet.groups_mut().find(|g| g.name == name) else {
            return;
        };
        if !core::mem::replace(&mut group.in_call, false) {
            // It is a new one of that name: nobody knows whether the call came before it.
            group.slice = None;
            return;
        }
        if result == Err(CallError::Gone) {
            self.fleet.free(name);
            return;
        }
        if result.is_err() {
            group.failed = group.failed.saturating_add(1);
            group.retry_at = retry_at(now, group.failed);
            return;
        }
        group.failed = 0;
        group.preempt = slice == Some(0);
        if slice.is_some() {
            group.slice = slice;
        }
    }

    /// The driver cannot do it: the plan goes on without.
    fn unsupported(&mut self, now: Nanos, action: Action) {
        let mut left = self.capabilities;
        match action {
            Action::SetGate { .. } => left.doorbell = false,
            Action::SetTimeslice { .. } => left.timeslice = false,
            Action::Switch { .. } => left.switch = false,
            Action::Preempt { .. } => left.preempt = false,
            Action::ReadSamples => left.samples = false,
        }
        self.set_capabilities(now, left);
    }
}
