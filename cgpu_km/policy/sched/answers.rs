// SPDX-License-Identifier: GPL-2.0
//! The answer to the call that was made.

use super::{
    authority::{
        Action,
        CallError,
        RmName, //
    },
    fleet::{
        GroupSlice,
        SchedChannel, //
    },
    scheduler::Scheduler,
    time::Nanos, //
};
use crate::uapi::Mode;

impl Scheduler {
    /// The answer to the pending action.
    pub(super) fn answered(&mut self, now: Nanos, began: Nanos, result: Result<(), CallError>) {
        let Some(action) = self.pending.take() else {
            return;
        };
        if result == Err(CallError::Unsupported) {
            self.set_mechanisms(now, self.mechanisms.without(action));
        }
        match action {
            Action::SetGate { instance, .. } => {
                if let Some(instance) = self.fleet.find_mut(instance) {
                    instance.door_answered(now, result);
                }
            }
            Action::Switch { disable } => {
                self.channels_answered(now, disable, result);
                if result.is_ok() {
                    self.switch_took_effect(now, began, disable);
                }
            }
            Action::SetTimeslice {
                group,
                microseconds,
            } => self.group_answered(now, group, result, Some(microseconds)),
            Action::Preempt { group } => self.group_answered(now, group, result, None),
            Action::ReadSamples => {}
        }
    }

    /// Notes which channels are on now.
    fn channels_answered(&mut self, now: Nanos, disable: bool, result: Result<(), CallError>) {
        if result.is_ok() {
            self.fleet.switched(disable.then_some(now));
        }
        // By now the name can be that of a new channel, which the call did not mean.
        if let (Err(CallError::Gone), [only]) = (result, &*self.switched) {
            if self.fleet.channels().any(|c| c.in_call) {
                self.fleet.free(*only);
            }
            return;
        }
        let Self {
            fleet, switched, ..
        } = self;
        let count = switched.len();
        let named = |c: &&mut SchedChannel| c.in_call || switched.contains(&c.name);
        for channel in fleet.channels_mut().filter(named) {
            if !core::mem::replace(&mut channel.in_call, false) {
                // A new channel has that name.
                channel.off = None;
            } else if result.is_ok() {
                channel.off = Some(disable);
                channel.retry.succeeded();
            } else {
                channel.off = None;
                channel.retry.failed_together(now, count);
            }
        }
    }

    /// Notes from which moment on a switch of channels holds.
    fn switch_took_effect(&mut self, now: Nanos, began: Nanos, disable: bool) {
        let (after, rest) = if disable {
            (self.costs.disabled_after, self.costs.disabled_rest)
        } else {
            (self.costs.enabled_after, self.costs.enabled_rest)
        };
        let soonest = began.saturating_add(after);
        // A call that took long has waited for a lock first.
        let effect = soonest.max(now.saturating_sub(rest));
        // If an instance has the GPU meanwhile, this is no end of a window: a channel is new, or
        // its instance suspended, or the call failed before.
        let between = match self.mode {
            Mode::Windows => self.turn.open_window().is_none(),
            Mode::Slices => !self.slices.are_open(),
            Mode::Native | Mode::Free => false,
        };
        if disable && between {
            self.overran(effect.saturating_sub(self.off_soonest(began)));
        }
        self.turn.took_effect(effect);
    }

    /// Notes the answer to a call for a group. `slice_us` is the slice that was set, `None` for a
    /// preemption.
    fn group_answered(
        &mut self,
        now: Nanos,
        name: RmName,
        result: Result<(), CallError>,
        slice_us: Option<u32>,
    ) {
        if result == Err(CallError::Busy) {
            self.limit.give_back();
            // All groups of the client wait: a tenant may have many.
            for group in self.fleet.groups_mut() {
                if group.name.client == name.client {
                    group.in_call = false;
                    group.retry.failed(now);
                }
            }
            return;
        }
        let Some(group) = self.fleet.groups_mut().find(|g| g.name == name) else {
            return;
        };
        if !core::mem::replace(&mut group.in_call, false) {
            // A new group has that name: nobody knows whether the call came before it.
            group.slice = GroupSlice::Unknown;
            return;
        }
        if result == Err(CallError::Gone) {
            self.fleet.free(name);
            return;
        }
        if result.is_err() {
            group.retry.failed(now);
            return;
        }
        group.retry.succeeded();
        group.slice = slice_us.map_or(group.slice.preempted(), GroupSlice::set);
    }
}
