// SPDX-License-Identifier: GPL-2.0
//! The scheduler of one GPU: what it holds, and how it is told of what happens.

use super::{
    authority::{
        Action,
        CallError,
        InstanceId,
        Mechanisms,
        RmName,
        SWITCH_MAX, //
    },
    budget::WakeBudget,
    costs::Costs,
    doubt::Doubt,
    fleet::{
        Fleet,
        NewChannel,
        Room, //
    },
    instance::SchedInstance,
    limit::CallLimit,
    rules::{
        Misfit,
        Rules,
        Terms, //
    },
    stage::SliceStage,
    time::Nanos,
    time_alone::TimeAlone,
    turn::GpuTurn, //
};
use crate::{
    nvidia::handle::ClientHandle,
    store::{
        Exhausted,
        List, //
    },
    uapi::{
        Mode,
        Policy, //
    }, //
};

/// Something that happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// An instance has a new channel. A channel that the driver has just made is on.
    Channel(NewChannel),
    /// A group (with all its channels) or a channel was freed.
    Freed(RmName),
    /// A client was freed or its file closed, with all that it had.
    ClientFreed(ClientHandle),
    /// A client's file is being closed. Its channels may run until the client is freed, and are
    /// switched until then. No call is made on its groups any more.
    ClientLeaving(ClientHandle),
    /// A program of the instance touched its doorbell while the gate was not open. If the gate was
    /// armed, the program went on and the gate is open now. If it was shut, the program sleeps.
    Rang(InstanceId),
    /// The action that [`Scheduler::next`] named last was tried.
    Answer {
        /// When the call was begun.
        began: Nanos,
        /// The driver's answer.
        result: Result<(), CallError>,
    },
    /// Time has passed.
    Tick,
}

/// Why the scheduler refuses what the operator wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeRefused {
    /// The policy cannot give what would be promised.
    Misfit(Misfit),
    /// There is no such instance.
    NoSuchInstance,
    /// No memory was left.
    Exhausted,
}

impl From<Exhausted> for ChangeRefused {
    fn from(_: Exhausted) -> Self {
        Self::Exhausted
    }
}

impl From<Misfit> for ChangeRefused {
    fn from(misfit: Misfit) -> Self {
        Self::Misfit(misfit)
    }
}

/// The scheduler of one GPU.
#[derive(Debug)]
pub struct Scheduler {
    pub(super) mechanisms: Mechanisms,
    pub(super) costs: Costs,
    pub(super) rules: Rules,
    pub(super) fleet: Fleet,
    pub(super) turn: GpuTurn,
    pub(super) slices: SliceStage,
    pub(super) doubt: Doubt,
    pub(super) alone: Option<TimeAlone>,
    pub(super) mode: Mode,
    /// The time until then is charged to the instances that had the GPU, but for a window's.
    pub(super) charged_until: Nanos,
    /// The action that is being tried.
    pub(super) pending: Option<Action>,
    /// The channels of the last [`Action::Switch`].
    pub(super) switched: List<RmName>,
    pub(super) limit: CallLimit,
    pub(super) wake_budget: WakeBudget,
    /// Lags have grown until then.
    pub(super) lags_until: Nanos,
    /// A call is due and has to wait for the limit: a window that needs it cannot begin.
    pub(super) held_back: bool,
    pub(super) deadline: Option<Nanos>,
}

impl Scheduler {
    /// A scheduler without instances.
    ///
    /// # Errors
    ///
    /// No memory was left.
    pub fn new(mechanisms: Mechanisms, costs: Costs, rules: Rules) -> Result<Self, Exhausted> {
        let mut switched = List::new();
        switched.reserve(SWITCH_MAX)?;
        Ok(Self {
            mechanisms,
            costs,
            rules,
            fleet: Fleet::new(),
            turn: GpuTurn::new(),
            slices: SliceStage::new(),
            doubt: Doubt::new(),
            alone: None,
            mode: Mode::Free,
            charged_until: 0,
            pending: None,
            switched,
            limit: CallLimit::new(),
            wake_budget: WakeBudget::new(),
            lags_until: 0,
            held_back: false,
            deadline: None,
        })
    }

    /// Makes room for all instances that a GPU can have, before there is any. None is then added
    /// with a wait for memory under the scheduler's lock.
    ///
    /// # Errors
    ///
    /// No memory was left.
    pub fn make_room(&mut self) -> Result<(), Exhausted> {
        self.fleet.make_room()
    }

    /// The mechanisms that work here: fewer than at first if the driver refused one for good.
    pub fn mechanisms(&self) -> Mechanisms {
        self.mechanisms
    }

    /// Changes what works here: the driver's interface was found, or went away.
    pub fn set_mechanisms(&mut self, now: Nanos, mechanisms: Mechanisms) {
        self.mechanisms = mechanisms;
        self.replan(now);
    }

    /// The operator's rules.
    pub fn rules(&self) -> Rules {
        self.rules
    }

    /// Changes the rules of the GPU.
    ///
    /// # Errors
    ///
    /// The new rules cannot give these instances what they would promise.
    pub fn set_rules(&mut self, now: Nanos, rules: Rules) -> Result<(), ChangeRefused> {
        rules.admit(self.fleet.instances().map(|i| i.terms.weight))?;
        self.charge(now);
        if self.rules.policy == Policy::Native {
            self.presume();
        }
        self.rules = rules;
        self.limit_lags();
        self.replan(now);
        Ok(())
    }

    /// Adds an instance, which has no channels yet.
    ///
    /// # Errors
    ///
    /// The rules cannot give it what they promise, or no memory was left.
    pub fn add(&mut self, now: Nanos, id: InstanceId, terms: Terms) -> Result<(), ChangeRefused> {
        let others = self.fleet.instances().map(|i| i.terms.weight);
        self.rules
            .admit(others.chain(core::iter::once(terms.weight)))?;
        self.fleet.add(SchedInstance::new(id, terms))?;
        self.replan(now);
        Ok(())
    }

    /// Removes an instance and all that is known of its channels. Its gate means nothing any more:
    /// the caller lets the tasks go that sleep at it.
    pub fn remove(&mut self, now: Nanos, id: InstanceId) {
        self.fleet.remove(id);
        self.turn.forget(id);
        for other in self.fleet.instances_mut() {
            // With the one that is gone slices may have failed.
            other.trials.forgive(now);
        }
        self.replan(now);
    }

    /// Changes the terms of an instance.
    ///
    /// # Errors
    ///
    /// There is no such instance, or the rules cannot give it what they would promise.
    pub fn set_terms(
        &mut self,
        now: Nanos,
        id: InstanceId,
        terms: Terms,
    ) -> Result<(), ChangeRefused> {
        let weights = self.fleet.instances().map(|i| {
            if i.id == id {
                terms.weight
            } else {
                i.terms.weight
            }
        });
        self.rules.admit(weights)?;
        // By the terms until now: an instance that is resumed had nothing while it was suspended.
        self.charge(now);
        let instance = self
            .fleet
            .find_mut(id)
            .ok_or(ChangeRefused::NoSuchInstance)?;
        instance.terms = terms;
        self.limit_lags();
        self.replan(now);
        Ok(())
    }

    /// An instance is about to have so many channels and groups in all. Asked before the driver
    /// makes one, so that to note it takes no memory then.
    ///
    /// `None`: there is room. Otherwise for how many there is to be: the caller
    /// [moves](Self::move_to) all to a [`Room`] for so many and asks again.
    pub fn expect_channels(&mut self, id: InstanceId, channels: usize) -> Option<usize> {
        self.fleet.expect_channels(id, channels)
    }

    /// Moves its channels to a larger room, if it is one. Gives the other one back.
    pub fn move_to(&mut self, room: Room) -> Room {
        self.fleet.move_to(room)
    }

    /// Something happened.
    ///
    /// # Errors
    ///
    /// No memory was left to note a new channel that was not
    /// [expected](Self::expect_channels). Nothing else fails.
    pub fn event(&mut self, now: Nanos, event: Event) -> Result<(), Exhausted> {
        match event {
            Event::Channel(new) => self.fleet.add_channel(new)?,
            Event::Freed(name) => self.fleet.free(name),
            Event::ClientFreed(client) => self.fleet.free_client(client),
            Event::ClientLeaving(client) => self.fleet.leave_client(client),
            Event::Rang(id) => self.rang(now, id),
            Event::Answer { began, result } => self.answered(now, began, result),
            Event::Tick => {}
        }
        Ok(())
    }

    /// When [`Scheduler::next`] is to be asked again although nothing happened; `None`: never.
    pub fn deadline(&self) -> Option<Nanos> {
        self.deadline
    }

    /// The instance that has this group, on which a call is to be made.
    ///
    /// # Errors
    ///
    /// [`CallError::Gone`] once the group is gone, [`CallError::Busy`] once its client is leaving.
    pub fn owner(&self, group: RmName) -> Result<InstanceId, CallError> {
        let found = self.fleet.groups().find(|found| found.name == group);
        let found = found.ok_or(CallError::Gone)?;
        if found.is_leaving {
            return Err(CallError::Busy);
        }
        Ok(found.owner)
    }

    /// The channels of the [`Action::Switch`] that was named last.
    pub fn switched(&self) -> &[RmName] {
        &self.switched
    }

    /// The scheduler is to be asked again then, or sooner.
    pub(super) fn wake_at(&mut self, at: Nanos) {
        self.deadline = super::time::earlier(self.deadline, at);
    }

    /// The driver shared the GPU until now: an instance that has channels may have work on it, and
    /// is heard of only when that ends.
    fn presume(&mut self) {
        for at in 0..self.fleet.instances().count() {
            let Some(id) = self.fleet.instances().nth(at).map(|i| i.id) else {
                break;
            };
            if self.fleet.count_compute_groups(id) > 0 {
                if let Some(instance) = self.fleet.find_mut(id) {
                    instance.habits.seen();
                }
            }
        }
    }

    /// Something changed that the plan follows from: the turn is not worth finishing.
    fn replan(&mut self, now: Nanos) {
        self.charge(now);
        self.end_window(now);
        for instance in self.fleet.instances_mut() {
            instance.balance.forfeit();
        }
        self.turn.length = 0;
        self.slices.end();
    }
}
