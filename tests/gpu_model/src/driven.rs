// SPDX-License-Identifier: GPL-2.0
//! The scheduler of `cgpu_km` drives the model, as the module's thread drives a GPU: one call at a
//! time, each of which takes its time and has its effect within it.

use cgpu_km::{
    nvidia::handle::{ClientHandle, ObjectHandle},
    policy::{
        sched::{
            Action, Costs, Engine, Event, InstanceId, Mechanisms, NewChannel, Position, RmName,
            Rules, Sample, Scheduler, Terms,
        },
        ProcessId,
    },
};

use crate::{
    gpu::{DriverCall, NONE},
    world::{Habit, World},
    Nanos, MS, US,
};

/// The time from an event or a deadline to the moment at which the scheduler's thread runs.
const WAKE: Nanos = 50 * US;
/// How long it takes to take pages away or to put them back.
const GATE: Nanos = 10 * US;
/// The time slice that a program's group has from the driver.
const DEFAULT_SLICE: Nanos = 2048 * US;

/// A call under way.
#[derive(Debug)]
struct CallUnderWay {
    action: Action,
    channels: Vec<RmName>,
    began: Nanos,
    effect_at: Option<Nanos>,
    done_at: Nanos,
}

/// The model, its programs, each in an instance of its own, and the scheduler.
#[derive(Debug)]
pub struct Driven {
    /// The GPU and the programs; program N is in instance N.
    pub world: World,
    /// The scheduler.
    pub sched: Scheduler,
    call: Option<CallUnderWay>,
    /// When the thread looks again.
    wake_at: Option<Nanos>,
    /// Calls into the driver, and when each began.
    pub calls: Vec<Nanos>,
    /// How long each waits for a lock before anything is done.
    pub lock: Nanos,
    /// How long the moving of a gate waits for a processor before anything is done.
    pub gate_waits: Nanos,
    /// The program that was the first of its instance, for each program.
    firsts: Vec<usize>,
}

/// The name of an instance's channel group.
fn group_of(program: usize) -> RmName {
    name(program, 1)
}

fn channel_of(program: usize) -> RmName {
    name(program, 2)
}

fn name(program: usize, object: u32) -> RmName {
    let client = u32::try_from(program).expect("few") + 1;
    RmName {
        client: ClientHandle(client),
        object: ObjectHandle(object),
    }
}

fn program_of(name: RmName) -> usize {
    usize::try_from(name.client.0).expect("few") - 1
}

/// Each program is a process.
fn process(program: usize) -> ProcessId {
    ProcessId(i32::try_from(program).expect("few") + 1)
}

fn id_of(program: usize) -> InstanceId {
    InstanceId(u32::try_from(program).expect("few"))
}

/// How long a program has been without the GPU.
#[derive(Debug, Default)]
pub struct Waiting {
    had: Nanos,
    since: Nanos,
}

impl Waiting {
    /// Nanoseconds since the last look that found that it had the GPU since the look before.
    pub fn look(&mut self, driven: &Driven, program: usize) -> Nanos {
        let (had, now) = (driven.world.ran(program), driven.world.now());
        if had > self.had {
            (self.had, self.since) = (had, now);
        }
        now - self.since
    }
}

impl Driven {
    /// A scheduler with these mechanisms and rules, and without an instance.
    pub fn new(mechanisms: Mechanisms, rules: Rules) -> Self {
        Self {
            world: World::new(),
            sched: Scheduler::new(mechanisms, Costs::MEASURED, rules).expect("room"),
            call: None,
            wake_at: Some(0),
            calls: Vec::new(),
            lock: 0,
            gate_waits: 0,
            firsts: Vec::new(),
        }
    }

    /// Adds an instance with a program in it, which begins a millisecond after its context was
    /// made.
    pub fn add(&mut self, habit: Habit, terms: Terms) -> usize {
        let program = self.world.programs.len();
        let now = self.world.now();
        self.sched.add(now, id_of(program), terms).expect("fits");
        self.begin_program(habit, program)
    }

    /// Calls into the driver a second, from the beginning.
    pub fn calls_per_second(&self) -> f64 {
        self.calls.len() as f64 * 1e9 / self.world.now() as f64
    }

    /// Adds a program to the instance of another one.
    pub fn add_beside(&mut self, habit: Habit, other: usize) -> usize {
        self.begin_program(habit, self.firsts[other])
    }

    fn begin_program(&mut self, habit: Habit, first: usize) -> usize {
        let program = self.world.add(habit, DEFAULT_SLICE);
        let now = self.world.now();
        self.world.programs[program].begin_at(now + MS);
        self.firsts.push(first);
        let channel = Event::Channel(NewChannel {
            instance: id_of(first),
            group: group_of(program),
            channel: channel_of(program),
            engine: Engine::Compute,
            process: process(program),
        });
        self.sched.event(now, channel).expect("room");
        self.wake();
        program
    }

    /// Changes an instance's terms.
    pub fn set_terms(&mut self, program: usize, terms: Terms) {
        let now = self.world.now();
        self.sched
            .set_terms(now, id_of(program), terms)
            .expect("fits");
        self.wake();
    }

    /// Changes the rules.
    pub fn set_rules(&mut self, rules: Rules) {
        let now = self.world.now();
        self.sched.set_rules(now, rules).expect("fits");
        self.wake();
    }

    fn wake(&mut self) {
        let at = self.world.now() + WAKE;
        self.wake_at = Some(self.wake_at.map_or(at, |wake| wake.min(at)));
    }

    /// Lets time pass.
    pub fn run(&mut self, length: Nanos) {
        let end = self.world.now() + length;
        loop {
            let now = self.world.now();
            if self.call.is_none() && self.wake_at.is_some_and(|at| at <= now) {
                self.begin(now);
            }
            let next = match &self.call {
                Some(call) => Some(call.effect_at.unwrap_or(call.done_at)),
                None => self.wake_at,
            };
            if let Some(program) = self.world.run(next.map_or(end, |at| at.min(end))) {
                self.rang(program);
                continue;
            }
            self.progress();
            if self.world.now() >= end {
                return;
            }
        }
    }

    /// A page fault: a program touched a doorbell that is not open.
    fn rang(&mut self, program: usize) {
        let rang = Event::Rang(id_of(self.firsts[program]));
        self.opens(program);
        self.sched.event(self.world.now(), rang).expect("room");
        self.wake();
    }

    /// An armed gate is open for all programs of an instance when one has touched it.
    fn opens(&mut self, program: usize) {
        if self.world.gate(program) != Position::Open {
            return;
        }
        let first = self.firsts[program];
        for other in (0..self.firsts.len()).filter(|p| self.firsts[*p] == first) {
            self.world.set_gate(other, Position::Open);
        }
    }

    /// Runs the thread: it begins a call, or sleeps.
    fn begin(&mut self, now: Nanos) {
        self.sched.event(now, Event::Tick).expect("room");
        let Some(action) = self.sched.next(now) else {
            self.wake_at = self.sched.deadline().map(|at| at.max(now) + WAKE);
            return;
        };
        self.wake_at = None;
        let channels = self.sched.switched().to_vec();
        let (effect_at, done_at) = match action {
            Action::SetGate { .. } => (now + self.gate_waits, now + self.gate_waits + GATE),
            _ => {
                let call = self.world.gpu.call(match action {
                    Action::Switch { disable: true } => DriverCall::Disable,
                    Action::Switch { disable: false } => DriverCall::Enable,
                    Action::Preempt { .. } => DriverCall::Preempt,
                    Action::ReadSamples => DriverCall::ReadSamples,
                    _ => DriverCall::Timeslice,
                });
                let begins = now + self.lock;
                (begins + call.effect, begins + call.length)
            }
        };
        if !matches!(action, Action::SetGate { .. }) {
            self.calls.push(now);
        }
        self.call = Some(CallUnderWay {
            action,
            channels,
            began: now,
            effect_at: Some(effect_at),
            done_at,
        });
    }

    /// Lets the call under way take effect, or end, if that is due.
    fn progress(&mut self) {
        let now = self.world.now();
        let Some(call) = &mut self.call else {
            return;
        };
        if call.effect_at.is_some_and(|at| at <= now) {
            call.effect_at = None;
            let (action, channels) = (call.action, call.channels.clone());
            self.take_effect(now, action, &channels);
        }
        let done = self
            .call
            .take_if(|c| c.effect_at.is_none() && c.done_at <= now);
        if let Some(call) = done {
            let answer = Event::Answer {
                began: call.began,
                result: Ok(()),
            };
            self.sched.event(now, answer).expect("room");
            self.wake_at = Some(now);
        }
    }

    fn take_effect(&mut self, now: Nanos, action: Action, channels: &[RmName]) {
        match action {
            Action::SetGate { instance, gate } => {
                let first = usize::try_from(instance.0).expect("few");
                for program in (0..self.firsts.len()).filter(|p| self.firsts[*p] == first) {
                    self.world.set_gate(program, gate);
                }
            }
            Action::SetTimeslice {
                group,
                microseconds,
            } => {
                let group = self.world.programs[program_of(group)].group;
                let slice = Nanos::from(microseconds) * US;
                self.world.gpu.set_timeslice(group, slice);
            }
            Action::Switch { disable } => {
                for channel in channels {
                    let channel = self.world.programs[program_of(*channel)].channel;
                    self.world.gpu.switch(channel, disable);
                }
            }
            Action::Preempt { group } => {
                let group = self.world.programs[program_of(group)].group;
                self.world.gpu.preempt(group);
            }
            Action::ReadSamples => {
                let ring = (0..).map_while(|back| self.world.gpu.sample(back));
                let ring = ring.map(|sample| Sample {
                    stamp: sample.at,
                    process: self.process_of(sample.group),
                });
                let ring: Vec<_> = ring.collect();
                self.sched.samples(now, ring.iter().copied());
            }
        }
    }

    /// The process that has a group of the model, if any has.
    fn process_of(&self, group: u32) -> Option<ProcessId> {
        let mut programs = self.world.programs.iter();
        let program = programs.position(|p| group != NONE && p.group == group);
        program.map(process)
    }

    /// Whether a program's doorbell is open: launching costs it nothing.
    pub fn is_open(&self, program: usize) -> bool {
        let now = self.world.now();
        let view = self.sched.instance_view(now, id_of(program));
        view.is_some_and(|v| v.gate == Position::Open)
    }
}
