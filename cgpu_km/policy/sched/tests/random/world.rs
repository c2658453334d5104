// SPDX-License-Identifier: GPL-2.0
//! The world around the scheduler: instances with their doorbells, channels as the driver has them,
//! programs that launch, and the thread that does what the scheduler wants.

use super::{
    super::{
        fleet::GroupSlice,
        *, //
    },
    steps::{
        Step,
        Work,
        BURST,
        LATE,
        QUIET,
        RESTLESS,
        STARVED, //
    }, //
};
use proptest::prelude::*;
use std::collections::VecDeque;

/// Calls in a second. CAST: few.
const MOST_CALLS: usize = CALLS_PER_SECOND as usize + BURST;
/// The group and the channel that a program makes and frees all the time, and how long each takes.
const CHURNED: u32 = 9;
const CHURN: Nanos = 400 * US;

type Checked = Result<(), TestCaseError>;

#[derive(Debug)]
pub(super) struct Member {
    id: InstanceId,
    terms: Terms,
    added_at: Nanos,
    /// The position of its doorbells.
    gate: Position,
    /// Since when a task of it sleeps there.
    blocked_since: Option<Nanos>,
    /// When a task that slept does what it wanted to do.
    wakes_at: Option<Nanos>,
    /// When its program launches next.
    ring_at: Option<Nanos>,
    account: Account,
    /// When it was last as it should be.
    right_at: Nanos,
}

#[derive(Debug)]
struct Group {
    name: RmName,
    owner: InstanceId,
    engine: Engine,
    slice: u32,
}

#[derive(Debug)]
struct Channel {
    name: RmName,
    group: RmName,
    owner: InstanceId,
    engine: Engine,
    off: bool,
}

/// An action that was named and not answered.
#[derive(Debug)]
pub(super) struct OpenCall {
    action: Action,
    channels: Vec<RmName>,
    began: Nanos,
    done: Option<Result<(), CallError>>,
}

pub(super) struct SchedWorld {
    pub(super) sched: Scheduler,
    now: Nanos,
    next_id: u32,
    members: Vec<Member>,
    groups: Vec<Group>,
    channels: Vec<Channel>,
    /// Objects that were freed, which the scheduler has not heard of.
    untold: Vec<Event>,
    /// The mechanisms that the driver has.
    driver: Mechanisms,
    call: Option<OpenCall>,
    /// When calls into the driver of the last second began.
    calls: VecDeque<Nanos>,
    /// Wakes of the thread in the last second that only a deadline caused.
    wakes: VecDeque<Nanos>,
    /// Actions named since something happened or time passed.
    actions: usize,
    /// The time that all were given, at this number of windows.
    given: (Nanos, u64, Nanos),
    answers: u32,
    stamp: Nanos,
    /// No call fails, and the operator does nothing.
    at_peace: bool,
}

impl SchedWorld {
    pub(super) fn new() -> Self {
        let rules = rules(Policy::Native);
        let sched = Scheduler::new(Mechanisms::DOORBELL, Costs::MEASURED, rules);
        Self {
            sched: sched.expect("room"),
            now: 1000 * MS,
            next_id: 0,
            members: Vec::new(),
            groups: Vec::new(),
            channels: Vec::new(),
            untold: Vec::new(),
            driver: Mechanisms::DOORBELL,
            call: None,
            calls: VecDeque::new(),
            wakes: VecDeque::new(),
            actions: 0,
            given: (0, 0, 0),
            answers: 0,
            stamp: 0,
            at_peace: false,
        }
    }

    pub(super) fn step(&mut self, step: Step) -> Checked {
        if !matches!(step, Step::Ask | Step::Perform) {
            self.actions = 0;
        }
        match step {
            Step::Add(terms) => self.add(terms),
            Step::Remove(at) => self.remove(at),
            Step::Terms(at, terms) => {
                if let Some(at) = some(at, self.members.len()) {
                    let member = &mut self.members[at];
                    if self.sched.set_terms(self.now, member.id, terms).is_ok() {
                        member.terms = terms;
                    }
                }
            }
            Step::Rules(rules) => {
                let _ = self.sched.set_rules(self.now, rules);
            }
            Step::Adopt(means) => {
                self.driver = means;
                self.sched.set_mechanisms(self.now, Mechanisms::ALL);
            }
            Step::Release => {
                for client in 0..self.members.len() {
                    self.free_client(client);
                }
                // The call that is under way is waited for.
                self.perform(false);
                self.driver = Mechanisms::DOORBELL;
                self.sched.set_mechanisms(self.now, Mechanisms::DOORBELL);
            }
            Step::Channel {
                owner,
                client,
                group,
                object,
                engine,
                process,
            } => self.channel(owner, client, group, object, engine, process),
            Step::FreeChannel(at, told) => {
                if let Some(at) = some(at, self.channels.len()) {
                    self.free(self.channels[at].name, told);
                }
            }
            Step::FreeGroup(at, told) => {
                if let Some(at) = some(at, self.groups.len()) {
                    self.free(self.groups[at].name, told);
                }
            }
            Step::Remake => self.remake(),
            Step::FreeClient(at) => self.free_client(at),
            Step::Tell => self.tell(),
            Step::Ring(at) => {
                if let Some(at) = some(at, self.members.len()) {
                    self.ring(at);
                }
            }
            Step::Samples(processes) => {
                self.stamp += 170 * MS;
                let newest = self.stamp;
                let ring = (0..).zip(processes).map(|(back, process)| Sample {
                    stamp: newest.saturating_sub(back * 170 * MS),
                    process: (process > 0).then_some(ProcessId(process)),
                });
                let ring: Vec<_> = ring.collect();
                self.sched.samples(self.now, ring.into_iter());
            }
            Step::Tick => self.event(Event::Tick),
            Step::Pass(length) => {
                // The thread is late by so much at most, or a call takes so long.
                let busy = self.call.is_some() || self.sched.deadline().is_some();
                self.now += if busy { length.min(LATE) } else { length };
            }
            Step::Ask => {
                self.ask()?;
            }
            Step::Perform => self.perform(false),
            Step::Answer(fine) => self.answer(!fine),
            Step::Work(length, work) => self.work(length, work)?,
        }
        self.check()
    }

    /// Checks from now on that every instance is where it should be, after a moment.
    pub(super) fn leave_in_peace(&mut self) {
        self.at_peace = true;
        for member in &mut self.members {
            member.right_at = self.now;
        }
    }

    fn event(&mut self, event: Event) {
        self.sched.event(self.now, event).expect("room");
    }

    fn add(&mut self, terms: Terms) {
        if self.members.len() >= 5 {
            return;
        }
        let id = InstanceId(self.next_id);
        if self.sched.add(self.now, id, terms).is_err() {
            return;
        }
        self.next_id += 1;
        self.members.push(Member {
            id,
            terms,
            added_at: self.now,
            gate: Position::Open,
            blocked_since: None,
            wakes_at: None,
            ring_at: None,
            account: Account::default(),
            right_at: self.now,
        });
    }

    /// Removes an instance, whose programs end first.
    fn remove(&mut self, at: usize) {
        let Some(at) = some(at, self.members.len()) else {
            return;
        };
        self.free_client(at);
        let id = self.members.remove(at).id;
        self.sched.remove(self.now, id);
        self.forget_given();
    }

    fn channel(
        &mut self,
        owner: usize,
        client: u32,
        group: u32,
        object: u32,
        engine: Engine,
        process: i32,
    ) {
        let Some(owner) = some(owner, self.members.len()) else {
            return;
        };
        // A handle is free again when the scheduler has heard of it.
        self.tell();
        let id = self.members[owner].id;
        let name = |object| RmName {
            client: ClientHandle(id.0 * 2 + client + 1),
            object: ObjectHandle(object),
        };
        let (channel, group) = (
            name(10 + object),
            name(if group == 0 { 10 + object } else { group }),
        );
        if self.channels.iter().any(|c| c.name == channel) {
            return;
        }
        self.made(owner, channel, group, engine, ProcessId(process + 1));
    }

    /// Makes a channel, and its group if there was none.
    fn made(
        &mut self,
        owner: usize,
        channel: RmName,
        group: RmName,
        engine: Engine,
        process: ProcessId,
    ) {
        let owner = self.members[owner].id;
        let known = self.groups.iter().find(|g| g.name == group);
        let engine = known.map_or(engine, |group| group.engine);
        if known.is_none() {
            self.groups.push(Group {
                name: group,
                owner,
                engine,
                slice: instance::DEFAULT_SLICE_US,
            });
        }
        self.channels.push(Channel {
            name: channel,
            group,
            owner,
            engine,
            off: false,
        });
        self.event(Event::Channel(NewChannel {
            instance: owner,
            group,
            channel,
            engine,
            process,
        }));
    }

    fn free(&mut self, name: RmName, told: bool) {
        self.groups.retain(|g| g.name != name);
        self.channels.retain(|c| c.name != name && c.group != name);
        self.untold.push(Event::Freed(name));
        if told {
            self.tell();
        }
    }

    /// Frees the object of the call under way and makes another one of its name.
    fn remake(&mut self) {
        let Some(call) = &self.call else {
            return;
        };
        let name = match call.action {
            Action::SetTimeslice { group, .. } | Action::Preempt { group } => group,
            Action::Switch { .. } => call.channels[0],
            Action::SetGate { .. } | Action::ReadSamples => return,
        };
        let found = self
            .channels
            .iter()
            .find(|c| c.name == name || c.group == name);
        let Some((channel, group, owner, engine)) =
            found.map(|c| (c.name, c.group, c.owner, c.engine))
        else {
            return;
        };
        self.free(name, true);
        // The call is made when it is gone, or when the new one is there.
        self.answers += 1;
        if self.answers % 2 == 0 {
            self.perform(false);
        }
        let owner = self.members.iter().position(|m| m.id == owner);
        let owner = owner.expect("it has channels");
        self.made(owner, channel, group, engine, ProcessId(1));
    }

    fn tell(&mut self) {
        for event in std::mem::take(&mut self.untold) {
            self.event(event);
        }
    }

    /// Both clients of an instance.
    fn free_client(&mut self, at: usize) {
        let Some(at) = some(at, self.members.len()) else {
            return;
        };
        self.tell();
        let id = self.members[at].id;
        self.groups.retain(|g| g.owner != id);
        self.channels.retain(|c| c.owner != id);
        for client in 1..=2 {
            self.event(Event::ClientFreed(ClientHandle(id.0 * 2 + client)));
        }
    }

    /// A program of an instance stores to its doorbell.
    fn ring(&mut self, at: usize) {
        let now = self.now;
        let member = &mut self.members[at];
        match member.gate {
            Position::Open => return,
            Position::Armed => member.gate = Position::Open,
            Position::Shut => member.blocked_since = member.blocked_since.or(Some(now)),
        }
        let id = member.id;
        self.event(Event::Rang(id));
        self.actions = 0;
    }

    /// Asks the scheduler what to do. Returns whether there is something.
    fn ask(&mut self) -> Result<bool, TestCaseError> {
        let action = self.sched.next(self.now);
        if self.call.is_some() {
            prop_assert_eq!(action, None, "while a call is under way");
            return Ok(false);
        }
        let Some(action) = action else {
            return Ok(false);
        };
        let channels = self.sched.switched().to_vec();
        self.is_there(action, &channels)?;
        self.actions += 1;
        // No doorbell is moved more than twice, no channel is switched twice in one
        // direction, and a group gets a slice and a preemption; and samples are read.
        let most = 2 * self.members.len() + 2 * self.channels.len() + 2 * self.groups.len() + 1;
        prop_assert!(
            self.actions <= most + self.untold.len(),
            "{} actions at a moment: {action:?}",
            self.actions
        );
        if !matches!(action, Action::SetGate { .. }) {
            self.calls.push_back(self.now);
            keep_a_second(&mut self.calls, self.now);
            prop_assert!(
                self.calls.len() <= MOST_CALLS,
                "{} calls in a second",
                self.calls.len()
            );
        }
        self.call = Some(OpenCall {
            action,
            channels,
            began: self.now,
            done: None,
        });
        Ok(true)
    }

    /// The objects of an action are there, but for those that were freed and not told.
    fn is_there(&self, action: Action, channels: &[RmName]) -> Checked {
        let freed = |name: RmName| {
            self.untold.iter().any(|event| match event {
                Event::Freed(gone) => *gone == name || gone.client == name.client,
                _ => false,
            })
        };
        match action {
            Action::SetGate { instance, .. } => {
                prop_assert!(self.members.iter().any(|m| m.id == instance), "{action:?}");
            }
            Action::SetTimeslice { group, .. } | Action::Preempt { group } => {
                let known = self.groups.iter().any(|g| g.name == group);
                prop_assert!(known || freed(group), "{action:?}");
            }
            Action::Switch { .. } => {
                prop_assert!(!channels.is_empty() && channels.len() <= SWITCH_MAX);
                for (at, name) in channels.iter().enumerate() {
                    let known = self.channels.iter().any(|c| c.name == *name);
                    prop_assert!(known || freed(*name), "{action:?} of {name:?}");
                    prop_assert!(!channels[..at].contains(name), "twice: {channels:?}");
                }
            }
            Action::ReadSamples => {}
        }
        Ok(())
    }

    /// Performs the call, or fails.
    fn perform(&mut self, fails: bool) {
        let now = self.now;
        let Some(call) = self.call.as_mut().filter(|call| call.done.is_none()) else {
            return;
        };
        let supported = match call.action {
            Action::SetGate { .. } => true,
            Action::SetTimeslice { .. } => self.driver.timeslice,
            Action::Switch { .. } => self.driver.switch,
            Action::Preempt { .. } => self.driver.preempt,
            Action::ReadSamples => self.driver.samples,
        };
        let there = |name: &RmName| self.channels.iter().any(|c| c.name == *name);
        let group_there = |name: RmName| self.groups.iter().any(|g| g.name == name);
        let gone = match call.action {
            Action::SetGate { .. } | Action::ReadSamples => false,
            Action::SetTimeslice { group, .. } | Action::Preempt { group } => !group_there(group),
            Action::Switch { .. } => !call.channels.iter().all(there),
        };
        let result = match (supported, gone, fails) {
            (false, ..) => Err(CallError::Unsupported),
            (_, true, _) => Err(CallError::Gone),
            (_, _, true) => Err(CallError::Failed),
            _ => Ok(()),
        };
        call.done = Some(result);
        match call.action {
            Action::SetGate { instance, gate } if result.is_ok() => {
                if let Some(member) = self.members.iter_mut().find(|m| m.id == instance) {
                    member.gate = gate;
                    if gate != Position::Shut && member.blocked_since.take().is_some() {
                        member.wakes_at = Some(now + 20 * US);
                    }
                }
            }
            Action::SetTimeslice {
                group,
                microseconds,
            } if result.is_ok() => {
                if let Some(group) = self.groups.iter_mut().find(|g| g.name == group) {
                    group.slice = microseconds;
                }
            }
            Action::Switch { disable } => {
                // One that fails may have done it for some.
                let count = match result {
                    Ok(()) => call.channels.len(),
                    Err(CallError::Failed) => call.channels.len() / 2,
                    Err(_) => 0,
                };
                for name in &call.channels[..count] {
                    if let Some(channel) = self.channels.iter_mut().find(|c| c.name == *name) {
                        channel.off = disable;
                    }
                }
            }
            _ => {}
        }
    }

    fn answer(&mut self, fails: bool) {
        self.perform(fails);
        let Some(call) = self.call.take() else {
            return;
        };
        let result = call.done.expect("was performed");
        if result.is_err() {
            self.actions = 0;
        }
        self.event(Event::Answer {
            began: call.began,
            result,
        });
    }

    /// The thread works, and programs launch.
    pub(super) fn work(&mut self, length: Nanos, work: Work) -> Checked {
        let end = self.now + length;
        loop {
            self.answer(false);
            while self.ask()? {
                self.answers += 1;
                let failing = work.fails > 0 && self.answers % work.fails == 0;
                let gate = matches!(
                    self.call.as_ref().map(|c| c.action),
                    Some(Action::SetGate { .. })
                );
                let takes = if gate { work.call / 30 } else { work.call };
                if takes > 0 {
                    self.now += takes;
                    self.actions = 0;
                }
                self.answer(failing);
                self.check()?;
            }
            if self.at_peace {
                self.is_in_order(self.starved())?;
            }
            self.plan_rings(work.busy, work.pace);
            let rings = self.members.iter().flat_map(|m| [m.ring_at, m.wakes_at]);
            let rings = rings.flatten().min();
            let deadline = self.sched.deadline();
            let churn = work.churns.then(|| self.now + CHURN);
            let next = [rings, deadline, churn].into_iter().flatten().min();
            let next = next.unwrap_or(end).max(self.now);
            if next >= end {
                self.now = self.now.max(end);
                return self.check();
            }
            if next > self.now {
                self.actions = 0;
            }
            self.now = next;
            for at in 0..self.members.len() {
                let member = &mut self.members[at];
                let wakes = member.wakes_at.take_if(|at| *at <= next).is_some();
                let rings = member.ring_at.take_if(|at| *at <= next).is_some();
                if wakes || rings {
                    self.ring(at);
                }
            }
            if churn.is_some_and(|at| at <= next) {
                self.churn(work.busy);
            } else if rings.is_none_or(|at| at > next) {
                self.wakes.push_back(next);
                keep_a_second(&mut self.wakes, next);
                // An instance that was seen to think is listened to every 0.5 ms: a wake for the
                // gate, one for the silence after it. Then there are the calls.
                prop_assert!(
                    self.wakes.len() <= 4000 + MOST_CALLS,
                    "{} wakes in a second: {:?}",
                    self.wakes.len(),
                    self.sched
                );
            }
            self.event(Event::Tick);
            self.check()?;
        }
    }

    /// Lets the first busy instance make a channel, or free it.
    fn churn(&mut self, busy: u32) {
        let at = usize::try_from(busy.trailing_zeros()).expect("few");
        let Some(member) = self.members.get(at) else {
            return;
        };
        let group = RmName {
            client: ClientHandle(member.id.0 * 2 + 1),
            object: ObjectHandle(CHURNED),
        };
        if self.groups.iter().any(|g| g.name == group) {
            self.free(group, true);
        } else {
            self.channel(at, 0, CHURNED, CHURNED, Engine::Compute, 0);
        }
        self.actions = 0;
    }

    /// Lets programs launch again that are busy, do not sleep and have the GPU. The scheduler hears
    /// of it if the gate is not open.
    fn plan_rings(&mut self, busy: u32, pace: Nanos) {
        let now = self.now;
        for (at, member) in (0u32..).zip(&mut self.members) {
            let mut own = self.channels.iter().filter(|c| c.owner == member.id);
            let on = own.any(|c| c.engine == Engine::Compute && !c.off);
            let may = busy & (1 << at) != 0 && on && member.blocked_since.is_none();
            if !may {
                member.ring_at = None;
            } else if member.gate != Position::Open {
                member.ring_at = member.ring_at.or(Some(now + pace));
            } else {
                member.ring_at = None;
            }
        }
    }

    /// For how long an instance may have no window: those that woke have their bursts first, in two
    /// turns.
    pub(super) fn starved(&self) -> Nanos {
        let rules = self.sched.rules();
        let bursts = self
            .members
            .iter()
            .map(|m| m.terms.burst.unwrap_or(rules.burst));
        STARVED + 2 * bursts.max().unwrap_or(0)
    }

    /// Stops all launches and checks that the thread comes to rest.
    pub(super) fn rest(&mut self) -> Checked {
        let end = self.now + RESTLESS;
        while self.now < end {
            self.work(1000 * MS, QUIET)?;
            if self.sched.deadline().is_none() {
                let calls = self.sched.view().calls;
                self.work(10_000 * MS, QUIET)?;
                prop_assert_eq!(self.sched.view().calls, calls);
                prop_assert_eq!(self.sched.deadline(), None);
                return Ok(());
            }
        }
        prop_assert!(false, "no rest: {:?}", self.sched);
        Ok(())
    }

    /// Checks that every instance is where it should be, or has not been for so long at most.
    pub(super) fn is_in_order(&mut self, most: Nanos) -> Checked {
        let means = self.sched.mechanisms();
        let mode = self.sched.view().mode;
        let held = matches!(mode, Mode::Windows);
        let now = self.now;
        for member in &mut self.members {
            let channels = || self.channels.iter().filter(|c| c.owner == member.id);
            // Of those that have a name in the driver.
            let groups = || {
                let own = |g: &&Group| g.owner == member.id && g.engine == Engine::Compute;
                let is_named = |g: &&Group| channels().all(|channel| channel.name != g.name);
                self.groups.iter().filter(own).filter(is_named)
            };
            let right = if member.terms.suspended {
                member.gate == Position::Shut
                    && (!means.switch || channels().all(|c| c.off))
                    && (means.switch || !means.timeslice || groups().all(|g| g.slice == 0))
            } else if held {
                // By turns.
                most == 0 || member.blocked_since.is_none() || channels().next().is_none()
            } else {
                let slice = |g: &Group| mode != Mode::Slices && g.slice != 0 || g.slice > 0;
                member.gate != Position::Shut
                    && (mode == Mode::Slices || !means.switch || channels().all(|c| !c.off))
                    && (mode != Mode::Native || member.gate == Position::Open)
                    && (!means.timeslice || groups().all(slice))
            };
            if right {
                member.right_at = now;
            }
            let since = now - member.right_at;
            prop_assert!(since <= most, "{member:?} for {since} ns: {:?}", self.sched);
        }
        Ok(())
    }

    /// Checks what has to hold at any moment.
    fn check(&mut self) -> Checked {
        self.believes_what_is()?;
        let view = self.sched.view();
        let mut all = 0;
        for member in &mut self.members {
            let found = self.sched.instance_view(self.now, member.id);
            let Some(seen) = found else {
                return Err(TestCaseError::fail(format!("no view of {member:?}")));
            };
            prop_assert_eq!(seen.terms, member.terms);
            let (before, account) = (member.account, seen.account);
            let age = self.now - member.added_at;
            prop_assert!(
                account.blocked <= age && account.blocked >= before.blocked,
                "{seen:?}"
            );
            prop_assert!(account.windows >= before.windows);
            prop_assert!(account.preemptions >= before.preemptions);
            all += account.gpu_time;
            member.account = account;
        }
        // A window that ends early is charged until its channels are off, and others' work is
        // charged to be there from up to 300 us before it was heard of.
        let (given, switches, at) = self.given;
        let slack = (view.switches - switches + 4) * 600 * US;
        let passed = self.now - at;
        prop_assert!(
            all <= given + passed + slack,
            "{all} given, before {given}, in {passed}"
        );
        // An instance that has the GPU while a call is made is charged when that is over, or when
        // its window begins.
        if passed > 0 && self.call.is_none() && !self.sched.turn.is_due() {
            self.given = (all, view.switches, self.now);
        }
        for instance in self.sched.fleet.instances() {
            // The part of its window that it has had is not charged yet.
            let used = self.sched.turn.used_by(instance.id, self.now);
            let most = self.sched.burst_of(instance) + used;
            prop_assert!(instance.lag.owed() <= most, "{most}: {instance:?}");
            prop_assert!(!instance.lag.rules() || instance.competes() || instance.terms.suspended);
        }
        for gone in [self.next_id, u32::MAX].map(InstanceId) {
            prop_assert_eq!(self.sched.instance_view(self.now, gone), None);
        }
        Ok(())
    }

    fn forget_given(&mut self) {
        let view = |m: &Member| self.sched.instance_view(self.now, m.id);
        let given = |m| view(m).map_or(0, |view| view.account.gpu_time);
        self.given.0 = self.members.iter().map(given).sum();
    }

    /// Checks that all that the scheduler takes for done was done, except what is under way.
    fn believes_what_is(&self) -> Checked {
        if self.call.is_some() || !self.untold.is_empty() {
            return Ok(());
        }
        let fleet = &self.sched.fleet;
        prop_assert_eq!(fleet.instances().count(), self.members.len());
        for instance in fleet.instances() {
            let gate = self
                .members
                .iter()
                .find(|m| m.id == instance.id)
                .map(|m| m.gate);
            // A task that came while it was being armed sleeps, and comes again at once.
            let comes = (gate, instance.door.position()) == (Some(Position::Armed), Position::Open);
            prop_assert!(
                comes || gate == Some(instance.door.position()),
                "{gate:?}: {instance:?}"
            );
        }
        prop_assert_eq!(fleet.channels().count(), self.channels.len());
        for channel in fleet.channels() {
            let real = self.channels.iter().find(|c| c.name == channel.name);
            let off = real.map(|c| c.off);
            prop_assert!(
                off.is_some() && (channel.off.is_none() || channel.off == off),
                "{off:?}: {channel:?}"
            );
        }
        prop_assert_eq!(fleet.groups().count(), self.groups.len());
        for group in fleet.groups() {
            let real = self.groups.iter().find(|g| g.name == group.name);
            let slice = real.map(|g| g.slice);
            prop_assert!(
                slice.is_some_and(|us| group.slice == GroupSlice::Unknown || group.slice.is(us)),
                "{slice:?}: {group:?}"
            );
        }
        Ok(())
    }
}

fn some(at: usize, of: usize) -> Option<usize> {
    (of > 0).then(|| at % of)
}

fn keep_a_second(moments: &mut VecDeque<Nanos>, now: Nanos) {
    while moments.front().is_some_and(|at| *at + 1000 * MS <= now) {
        moments.pop_front();
    }
}
