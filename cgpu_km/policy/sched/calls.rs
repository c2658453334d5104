// SPDX-License-Identifier: GPL-2.0
//! The next call: what differs between what each instance should have and what was done.
//!
//! Making room comes first (switching off, shutting gates, slices of 0), then letting in: at no
//! moment does a change give the GPU to more than those that should have it before or after. Where
//! slices share the GPU they are set before anybody is let in. Otherwise they come last, with calls
//! that nothing else is about to need: a tenant that makes and frees groups changes the slices of
//! all its groups each time, and nobody waits for that.

use super::{
    authority::{
        Action,
        Engine,
        Position,
        RmName,
        SWITCH_MAX, //
    },
    fleet::{
        Fleet,
        GroupSlice,
        SchedChannel,
        SchedGroup, //
    },
    instance::SchedInstance,
    scheduler::Scheduler,
    time::{
        earlier,
        Nanos, //
    }, //
};
use crate::uapi::Mode;

/// Gates and channels are moved in one of two ways.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MoveWay {
    /// Shut, or switched off: room is made.
    Out,
    /// Anything else.
    In,
}

/// The slices that are set at a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WhichSlices {
    /// Those of 0, which stop a group.
    Stops,
    All,
}

/// Something to do, and when to look again for what has to wait.
struct NextCall<T> {
    what: Option<T>,
    retry: Option<Nanos>,
}

/// Whether a channel should be off.
fn should_be_off(fleet: &Fleet, channel: &SchedChannel) -> bool {
    let owner = fleet.find(channel.owner);
    owner.is_some_and(|owner| owner.wants_off(channel.engine))
}

impl Scheduler {
    /// The action to take now. Until its [`super::Event::Answer`] has come there is nothing else.
    pub fn next(&mut self, now: Nanos) -> Option<Action> {
        if self.pending.is_some() {
            self.deadline = None;
            return None;
        }
        self.plan(now);
        let mut action = self.difference(now);
        if action.is_none() && !self.held_back && self.begin_what_is_due(now) {
            // With the window's end as the deadline.
            self.plan(now);
            action = self.difference(now);
            if self.turn.is_due() && !self.held_back {
                // That window was over at once, and the next one is to begin.
                self.wake_at(now);
            }
        }
        if action.is_none() && self.mode != Mode::Slices {
            let wait = self.limit.wait_for_spare(now);
            action = self.set_slice(now, wait, WhichSlices::All);
            if action.is_some() {
                self.limit.take(now);
            }
        }
        if action.is_some() {
            self.pending = action;
            self.deadline = None;
        }
        action
    }

    /// Begins the window, or the slices, for which all calls were made. Returns whether there may
    /// be more to do.
    fn begin_what_is_due(&mut self, now: Nanos) -> bool {
        match self.mode {
            Mode::Windows => {
                self.begin_window(now);
                true
            }
            Mode::Slices => self.open_slices(now),
            Mode::Native | Mode::Free => false,
        }
    }

    /// Lets the next holder in before the last one is switched off, where calls overlap with work.
    fn overlap(&mut self, now: Nanos, wait: Option<Nanos>) -> Option<Action> {
        let changes = self.mode == Mode::Windows && self.turn.is_due();
        if !self.rules.overlaps() || !changes {
            return None;
        }
        self.switch(now, MoveWay::In, wait)
    }

    fn difference(&mut self, now: Nanos) -> Option<Action> {
        let wait = self.limit.wait(now);
        let slices = match self.mode {
            Mode::Slices => WhichSlices::All,
            Mode::Native | Mode::Free | Mode::Windows => WhichSlices::Stops,
        };
        self.held_back = false;
        let action = self
            .overlap(now, wait)
            .or_else(|| self.switch(now, MoveWay::Out, wait))
            .or_else(|| self.move_gate(now, MoveWay::Out))
            .or_else(|| self.set_slice(now, wait, slices))
            .or_else(|| self.switch(now, MoveWay::In, wait))
            .or_else(|| self.move_gate(now, MoveWay::In))
            .or_else(|| self.read_samples(now, wait))?;
        if !matches!(action, Action::SetGate { .. }) {
            self.limit.take(now);
        }
        Some(action)
    }

    /// Takes what was found, if it may be done now.
    fn take<T>(&mut self, found: NextCall<T>, wait: Option<Nanos>) -> Option<T> {
        if let Some(at) = found.retry {
            self.wake_at(at);
        }
        let what = found.what?;
        if let Some(at) = wait {
            self.held_back = true;
            self.wake_at(at);
            return None;
        }
        Some(what)
    }

    /// Moves a gate: by `way` one that is to be shut, or any other.
    fn move_gate(&mut self, now: Nanos, way: MoveWay) -> Option<Action> {
        if !self.mechanisms.doorbell {
            return None;
        }
        let mut found = NextCall {
            what: None,
            retry: None,
        };
        for instance in self.fleet.instances_mut() {
            let door = &mut instance.door;
            let shuts = door.wanted() == Position::Shut;
            if !door.is_to_be_moved() || shuts != (way == MoveWay::Out) {
                continue;
            }
            if door.movable_at() > now {
                found.retry = earlier(found.retry, door.movable_at());
                continue;
            }
            door.begin_move();
            found.what = Some(Action::SetGate {
                instance: instance.id,
                gate: door.position(),
            });
            break;
        }
        self.take(found, None)
    }

    /// Switches channels off or on, by `way`.
    fn switch(&mut self, now: Nanos, way: MoveWay, wait: Option<Nanos>) -> Option<Action> {
        if !self.mechanisms.switch {
            return None;
        }
        self.switched.truncate(0);
        let disable = way == MoveWay::Out;
        self.list_channels(disable);
        let mut found = NextCall {
            what: None,
            retry: None,
        };
        if self.switched.is_empty() {
            found.retry = self.list_failed_channels(now, disable);
        }
        found.what = (!self.switched.is_empty()).then_some(Action::Switch { disable });
        let action = self.take(found, wait)?;
        let Self {
            fleet, switched, ..
        } = self;
        for channel in fleet.channels_mut() {
            channel.in_call = switched.contains(&channel.name);
        }
        Some(action)
    }

    /// Lists the channels to be switched whose last call did not fail, as many as one call can
    /// name.
    fn list_channels(&mut self, disable: bool) {
        for channel in self.fleet.channels() {
            let due = is_to_be_switched(&self.fleet, channel, disable);
            if due && !channel.retry.has_failed() && self.switched.len() < SWITCH_MAX {
                // There is room: SWITCH_MAX places were reserved.
                let _ = self.switched.push(channel.name);
            }
        }
    }

    /// Lists channels to be switched whose last call failed; when to look again. They go by halves,
    /// then by halves of these, until the one at fault is alone and does not hinder the others.
    fn list_failed_channels(&mut self, now: Nanos, disable: bool) -> Option<Nanos> {
        let (mut retry, mut most) = (None, SWITCH_MAX);
        for channel in self.fleet.channels() {
            if !is_to_be_switched(&self.fleet, channel, disable) || !channel.retry.has_failed() {
                continue;
            }
            if channel.retry.at() > now {
                retry = earlier(retry, channel.retry.at());
                continue;
            }
            let together = channel.retry.together();
            if self.switched.is_empty() {
                most = together;
            }
            if together < most || self.switched.len() >= most {
                continue;
            }
            // There is room: SWITCH_MAX places were reserved.
            let _ = self.switched.push(channel.name);
        }
        retry
    }

    /// Sets a time slice, or preempts the group whose slice of 0 is to take effect.
    fn set_slice(&mut self, now: Nanos, wait: Option<Nanos>, which: WhichSlices) -> Option<Action> {
        if !self.mechanisms.timeslice {
            return None;
        }
        let found = self.find_slice(now, which);
        let (action, name) = self.take(found, wait)?;
        for group in self.fleet.groups_mut() {
            group.in_call = group.name == name;
        }
        Some(action)
    }

    /// The first group whose slice differs, or that is to be preempted.
    fn find_slice(&self, now: Nanos, which: WhichSlices) -> NextCall<(Action, RmName)> {
        let mut retry = None;
        let is_meant = |i: &&SchedInstance| which == WhichSlices::All || i.slice_us == 0;
        for instance in self.fleet.instances().filter(is_meant) {
            // Under `native` each group has the driver's own slice.
            let count = match self.mode {
                Mode::Native => 1,
                _ => self.fleet.count_compute_groups(instance.id),
            };
            let each = match u32::try_from(count) {
                Ok(count) if count > 1 => instance.slice_us / count,
                _ => instance.slice_us,
            };
            let own = |g: &&SchedGroup| {
                let is_own = g.owner == instance.id && g.engine == Engine::Compute;
                is_own && !g.is_leaving && !g.is_nameless
            };
            for group in self.fleet.groups().filter(own) {
                let is_to_preempt = group.slice == GroupSlice::ToPreempt;
                let action = if !group.slice.is(each) {
                    Action::SetTimeslice {
                        group: group.name,
                        microseconds: each,
                    }
                } else if is_to_preempt && self.mechanisms.preempt {
                    Action::Preempt { group: group.name }
                } else {
                    continue;
                };
                if group.retry.at() > now {
                    retry = earlier(retry, group.retry.at());
                    continue;
                }
                return NextCall {
                    what: Some((action, group.name)),
                    retry,
                };
            }
        }
        NextCall { what: None, retry }
    }
}

/// Whether a channel should be in that state and is not known to be.
fn is_to_be_switched(fleet: &Fleet, channel: &SchedChannel, disable: bool) -> bool {
    should_be_off(fleet, channel) == disable && channel.off != Some(disable)
}
