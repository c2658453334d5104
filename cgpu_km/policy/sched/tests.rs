// SPDX-License-Identifier: GPL-2.0
//! The scheduler against a backend that does what it is told and notes it. How well the shares hold
//! is shown on the model of a GPU (`tests/gpu_model`); here is what must hold whatever the GPU
//! does.

use super::*;
use crate::{
    nvidia::handle::{
        ClientHandle,
        ObjectHandle, //
    },
    policy::ProcessId, //
};

mod behaviour;
mod channels;
mod random;
mod samples;

const A: InstanceId = InstanceId(1);
const B: InstanceId = InstanceId(2);

fn terms(weight: u32) -> Terms {
    Terms {
        weight,
        high_priority: false,
        suspended: false,
        burst: None,
    }
}

fn rules(policy: Policy) -> Rules {
    Rules {
        policy,
        ..Rules::DEFAULT
    }
}

/// The one process of an instance.
fn process(instance: InstanceId) -> ProcessId {
    ProcessId(1000 + i32::try_from(instance.0).expect("few"))
}

fn name(instance: InstanceId, object: u32) -> RmName {
    RmName {
        client: ClientHandle(instance.0),
        object: ObjectHandle(object),
    }
}

/// The answer to a call.
type Answers = dyn FnMut(&Action, &[RmName]) -> Result<(), CallError>;

/// A scheduler, a clock and what the calls have done.
struct Bench {
    sched: Scheduler,
    now: Nanos,
    /// Channels that are off, gates and slices as set.
    off: Vec<RmName>,
    gates: Vec<(InstanceId, Position)>,
    slices: Vec<(RmName, u32)>,
    done: Vec<(Nanos, Action)>,
    /// The answer to each call.
    failing: Box<Answers>,
}

impl Bench {
    fn new(policy: Policy, mechanisms: Mechanisms) -> Self {
        Self {
            sched: Scheduler::new(mechanisms, Costs::MEASURED, rules(policy)).expect("room"),
            now: 0,
            off: Vec::new(),
            gates: Vec::new(),
            slices: Vec::new(),
            done: Vec::new(),
            failing: Box::new(|_, _| Ok(())),
        }
    }

    /// Adds an instance with one compute group of `channels` channels.
    fn instance(&mut self, id: InstanceId, terms: Terms, channels: u32) {
        self.sched.add(self.now, id, terms).expect("fits");
        for channel in 0..channels {
            self.event(Event::Channel(NewChannel {
                instance: id,
                group: name(id, 1),
                channel: name(id, 100 + channel),
                engine: Engine::Compute,
                process: process(id),
            }));
        }
    }

    /// Two instances of these weights that share by weight, on a driver that refuses nothing.
    fn of_two(weights: [u32; 2]) -> Self {
        let mut bench = Self::new(Policy::Weight, Mechanisms::ALL);
        bench.instance(A, terms(weights[0]), 8);
        bench.instance(B, terms(weights[1]), 8);
        bench
    }

    fn event(&mut self, event: Event) {
        self.sched.event(self.now, event).expect("room");
    }

    fn set_policy(&mut self, policy: Policy) {
        let set = self.sched.set_rules(self.now, rules(policy));
        set.expect("fits");
    }

    fn set_terms(&mut self, id: InstanceId, terms: Terms) {
        let set = self.sched.set_terms(self.now, id, terms);
        set.expect("is there and fits");
    }

    /// Suspends an instance, and does what follows.
    fn suspend(&mut self, id: InstanceId) {
        let terms = self.view(id).terms;
        self.set_terms(
            id,
            Terms {
                suspended: true,
                ..terms
            },
        );
        self.settle();
    }

    /// Resumes an instance, and does what follows.
    fn resume(&mut self, id: InstanceId) {
        let terms = self.view(id).terms;
        self.set_terms(
            id,
            Terms {
                suspended: false,
                ..terms
            },
        );
        self.settle();
    }

    /// The driver's ring has these samples.
    fn see<const N: usize>(&mut self, samples: [Sample; N]) {
        self.sched.samples(self.now, samples.into_iter());
    }

    fn view(&self, id: InstanceId) -> InstanceView {
        let view = self.sched.instance_view(self.now, id);
        view.expect("is there")
    }

    fn mode(&self) -> Mode {
        self.sched.view().mode
    }

    fn gate(&self, id: InstanceId) -> Position {
        let set = self.gates.iter().rev().find(|(of, _)| *of == id);
        set.map_or(Position::Open, |(_, gate)| *gate)
    }

    /// A program of the instance launches: heard of where the gate is not open.
    fn ring(&mut self, id: InstanceId) {
        match self.gate(id) {
            Position::Open => return,
            Position::Armed => self.gates.push((id, Position::Open)),
            Position::Shut => {}
        }
        self.event(Event::Rang(id));
    }

    /// Takes the actions that are due now; each call into the driver takes 0.3 ms.
    fn settle(&mut self) {
        while let Some(action) = self.sched.next(self.now) {
            let began = self.now;
            let channels = self.sched.switched().to_vec();
            let result = (self.failing)(&action, &channels);
            if !matches!(action, Action::SetGate { .. }) {
                self.now += 300 * US;
            }
            if result.is_ok() {
                match action {
                    Action::SetGate { instance, gate } => self.gates.push((instance, gate)),
                    Action::SetTimeslice {
                        group,
                        microseconds,
                    } => self.slices.push((group, microseconds)),
                    Action::Switch { disable } => {
                        self.off.retain(|c| !channels.contains(c));
                        if disable {
                            self.off.extend(channels);
                        }
                    }
                    Action::Preempt { .. } | Action::ReadSamples => {}
                }
            }
            self.done.push((began, action));
            self.event(Event::Answer { began, result });
        }
    }

    /// Lets time pass; instances in `busy` launch every 0.1 ms while their channels are on.
    fn run(&mut self, length: Nanos, busy: &[InstanceId]) {
        let end = self.now + length;
        self.settle();
        while self.now < end {
            for id in busy {
                if !self.is_off(*id) {
                    self.ring(*id);
                }
            }
            self.settle();
            let step = self.now + 100 * US;
            self.now = step;
            if self.sched.deadline().is_some_and(|at| at <= self.now) {
                self.event(Event::Tick);
            }
        }
        self.settle();
    }

    fn is_off(&self, id: InstanceId) -> bool {
        self.off.iter().any(|c| c.client.0 == id.0)
    }

    fn given(&self, id: InstanceId) -> Nanos {
        self.view(id).account.gpu_time
    }

    /// Calls into the driver since the beginning.
    fn calls(&self) -> usize {
        let call = |(_, action): &&(Nanos, Action)| !matches!(action, Action::SetGate { .. });
        self.done.iter().filter(call).count()
    }
}
