// SPDX-License-Identifier: GPL-2.0
//! The scheduler of a GPU at work: [`crate::policy::sched`] with a clock, a thread and the means to act.
//!
//! There is one [`Conductor`] for each GPU, and a thread of it. The thread sleeps, without a timer where the
//! scheduler names no deadline, until something happens: a doorbell was touched, the operator changed a
//! rule. Then it asks the scheduler what to do, and does it, without the scheduler's lock.
//!
//! # Locks
//!
//! The scheduler's comes after `mmap_lock`, a GPU's division and a gate's state, since whoever touches a
//! doorbell tells it under these, and whoever makes or frees a channel under a tenant's state. It is held for
//! computations only. That of the list of gates is taken alone. That of the driver's interface is the innermost of
//! all, held to look at it. The thread holds `calls` over its calls, with nothing else; who takes the interface away
//! waits for that. (A program's call that uses the interface keeps it until it is over.)

use crate::{
    nvidia::status::NvStatus,
    os_interface::{
        rmapi::KernelClient,
        thread::{now, Alarm, Task},
        Gate, Position,
    },
    policy::{
        sched::{
            self, Authority, CallError, Capabilities, Costs, Engine, Event, GpuView, InstanceId,
            InstanceView, Period, Policy, Refused, RmName, Rules, Scheduler, Terms, SWITCH_MAX,
        },
        Boost, BoostCall, Boosts, ChannelChange, ChannelEvent,
    },
    store::List,
};
use kernel::{
    new_mutex,
    prelude::*,
    sync::{
        atomic::{Acquire, Atomic, Release},
        Arc, Mutex,
    },
};

/// Instances among which the fair policy divides a GPU, until told otherwise.
const MAX_INSTANCES_DEFAULT: u32 = 16;
/// What instances of high priority may take together, percent, until told otherwise.
const PRIORITY_PERCENT_DEFAULT: u32 = 80;

/// Who shares one GPU's time.
#[pin_data]
pub struct Conductor {
    #[pin]
    scheduler: Mutex<Scheduler>,
    #[pin]
    gates: Mutex<KVec<(InstanceId, Arc<Gate>)>>,
    /// What the instances want of the clocks. Taken alone.
    #[pin]
    boosts: Mutex<Boosts>,
    /// The driver's kernel interface, while the GPU is open and where there is one.
    #[pin]
    driver: Mutex<Option<Arc<KernelClient>>>,
    /// Held by the thread while it calls the driver.
    #[pin]
    calls: Mutex<()>,
    #[pin]
    alarm: Alarm,
    stopping: Atomic<bool>,
}

impl Conductor {
    /// Without instances; the driver shares the GPU as it likes until a policy is set.
    pub fn new() -> Result<Arc<Self>> {
        let rules = Rules {
            policy: Policy::Native,
            period: Period::Latency,
            max_instances: MAX_INSTANCES_DEFAULT,
            priority_percent: PRIORITY_PERCENT_DEFAULT,
        };
        let scheduler = Scheduler::new(Capabilities::DOORBELL, Costs::MEASURED, rules);
        let scheduler = scheduler.map_err(|_| ENOMEM)?;
        Arc::pin_init(
            pin_init!(Self {
                scheduler <- new_mutex!(scheduler),
                gates <- new_mutex!(KVec::new()),
                boosts <- new_mutex!(Boosts::new()),
                driver <- new_mutex!(None),
                calls <- new_mutex!(()),
                alarm <- Alarm::new(),
                stopping: Atomic::new(false),
            }),
            GFP_KERNEL,
        )
    }

    /// Works on the scheduler, with the time, and has the thread look what follows.
    fn change<R>(&self, work: impl FnOnce(&mut Scheduler, u64) -> R) -> R {
        let result = work(&mut self.scheduler.lock(), now());
        self.alarm.ring();
        result
    }

    /// The driver's kernel interface, if it has it.
    pub fn driver(&self) -> Option<Arc<KernelClient>> {
        self.driver.lock().clone()
    }

    /// From now on it can call the driver, for a GPU that was just opened. (What the driver then refuses as
    /// not supported is left away again.)
    pub fn adopt(&self, driver: Arc<KernelClient>) {
        *self.driver.lock() = Some(driver);
        self.boosts.lock().attach();
        self.change(|scheduler, now| scheduler.set_capabilities(now, Capabilities::ALL));
    }

    /// Gives the driver's interface back, before the GPU is closed, when no call of the thread's is under way. To
    /// be dropped without a lock.
    pub fn release(&self) -> Option<Arc<KernelClient>> {
        let driver = self.driver.lock().take();
        drop(self.calls.lock());
        self.boosts.lock().detach();
        self.change(|scheduler, now| scheduler.set_capabilities(now, Capabilities::DOORBELL));
        driver
    }

    /// A channel or a channel group of an instance came or went.
    pub fn channel_changed(&self, id: InstanceId, change: &ChannelChange) {
        let name = |object| RmName {
            client: change.client,
            object,
        };
        let event = match change.what {
            ChannelEvent::Gone => Event::Freed(name(change.object)),
            ChannelEvent::Made {
                group,
                compute,
                process,
            } => Event::Channel {
                instance: id,
                group: name(group),
                channel: name(change.object),
                engine: match compute {
                    true => Engine::Compute,
                    false => Engine::Other,
                },
                process,
            },
        };
        let noted = self.scheduler.lock().event(now(), event);
        if noted.is_err() {
            pr_warn!("no memory to note a channel: it keeps to no weight\n");
        }
        // A new channel is on: the thread looks whether it may be.
        if change.what != ChannelEvent::Gone {
            self.alarm.ring();
        }
    }

    /// Adds an instance, whose registers are behind `gate`.
    pub fn add(&self, id: InstanceId, terms: Terms, gate: Arc<Gate>) -> Result<(), Refused> {
        let added = self.gates.lock().push((id, gate), GFP_KERNEL);
        added.map_err(|_| Refused::Exhausted)?;
        let boosts = self.boosts.lock().add(id);
        let added = boosts.map_err(|_| Refused::Exhausted);
        let add = |()| self.change(|scheduler, now| scheduler.add(now, id, terms));
        let added = added.and_then(add);
        if added.is_err() {
            self.boosts.lock().remove(id);
            self.gates.lock().retain(|(other, _)| *other != id);
        }
        added
    }

    /// Removes an instance.
    pub fn remove(&self, id: InstanceId) {
        self.boosts.lock().remove(id);
        self.change(|scheduler, now| scheduler.remove(now, id));
        self.gates.lock().retain(|(other, _)| *other != id);
    }

    /// The rules of the GPU.
    pub fn rules(&self) -> Rules {
        self.scheduler.lock().rules()
    }

    /// What can be done to the GPU.
    pub fn capabilities(&self) -> Capabilities {
        self.scheduler.lock().capabilities()
    }

    /// Changes the rules of the GPU. `change` says whether the new ones are rules at all; where it does not, this
    /// returns `false` and they stay as they were.
    pub fn set_rules(&self, change: impl FnOnce(&mut Rules) -> bool) -> Result<bool, Refused> {
        self.change(|scheduler, now| {
            let mut rules = scheduler.rules();
            if !change(&mut rules) {
                return Ok(false);
            }
            scheduler.set_rules(now, rules).map(|()| true)
        })
    }

    /// Changes the terms of an instance.
    pub fn set_terms(
        &self,
        id: InstanceId,
        change: impl FnOnce(&mut Terms),
    ) -> Result<(), Refused> {
        self.change(|scheduler, now| {
            let view = scheduler.instance_view(now, id);
            let mut terms = view.ok_or(Refused::NoSuchInstance)?.terms;
            change(&mut terms);
            scheduler.set_terms(now, id, terms)
        })
    }

    /// How the GPU is shared now.
    pub fn view(&self) -> GpuView {
        self.scheduler.lock().view()
    }

    /// How an instance stands now.
    pub fn instance_view(&self, id: InstanceId) -> Option<InstanceView> {
        let scheduler = self.scheduler.lock();
        scheduler.instance_view(now(), id)
    }

    /// A program of an instance touched its doorbell while that was not open.
    pub fn rang(&self, id: InstanceId) {
        // Only a new channel can fail.
        let _ = self.change(|scheduler, now| scheduler.event(now, Event::Rang(id)));
    }

    /// The programs of an instance want this boost together from now on.
    pub fn want_boost(&self, id: InstanceId, boost: Boost) {
        self.boosts.lock().want(id, boost);
        self.alarm.ring();
    }

    /// Whether the driver was asked for the highest clock.
    pub fn is_boosted(&self) -> bool {
        self.boosts.lock().is_on(now())
    }

    /// Asks the driver for the boost that is wanted; when to look again.
    fn boost(&self) -> Option<u64> {
        loop {
            let mut boosts = self.boosts.lock();
            let Some(call) = boosts.next(now()) else {
                return boosts.deadline(now());
            };
            drop(boosts);
            let asked = Hands(self).call(|driver| driver.boost(call));
            // A GPU without such clocks says so at the first time.
            if asked.is_err() && call != BoostCall::Clear {
                pr_info!("the driver does not raise a GPU's clocks: {asked:?}\n");
            }
        }
    }

    /// Does what the scheduler wants until it wants nothing more; when to look again.
    fn conduct(&self, channels: &mut List<RmName>) -> Option<u64> {
        loop {
            let mut scheduler = self.scheduler.lock();
            let Some(action) = scheduler.next(now()) else {
                return scheduler.deadline();
            };
            channels.truncate(0);
            for name in scheduler.switched() {
                // There is room for as many as there can be.
                let _ = channels.push(*name);
            }
            drop(scheduler);
            let began = now();
            let result = Hands(self).perform(action, channels);
            let answer = Event::Answer { began, result };
            let _ = self.scheduler.lock().event(now(), answer);
        }
    }

    fn gate(&self, id: InstanceId) -> Option<Arc<Gate>> {
        let gates = self.gates.lock();
        let found = gates.iter().find(|(other, _)| *other == id);
        found.map(|(_, gate)| gate.clone())
    }
}

impl Task for Conductor {
    fn run(&self) {
        let mut channels = List::new();
        if channels.reserve(SWITCH_MAX).is_err() {
            pr_warn!("no memory for the scheduler of a GPU: its time is not shared\n");
            return;
        }
        while !self.stopping.load(Acquire) {
            let boost = self.boost();
            let deadline = self.conduct(&mut channels);
            self.alarm
                .sleep([boost, deadline].into_iter().flatten().min());
        }
    }

    fn stop(&self) {
        self.stopping.store(true, Release);
        self.alarm.ring();
    }
}

/// What the conductor can do.
struct Hands<'a>(&'a Conductor);

impl Hands<'_> {
    /// Calls the driver.
    fn call(&self, work: impl FnOnce(&KernelClient) -> Result<NvStatus>) -> Result<(), CallError> {
        let _calls = self.0.calls.lock();
        // It was taken away this very moment.
        let driver = self.0.driver().ok_or(CallError::Unsupported)?;
        match work(&driver).map_err(|_| CallError::Failed)? {
            NvStatus::NV_OK => Ok(()),
            NvStatus::NV_ERR_NOT_SUPPORTED => Err(CallError::Unsupported),
            NvStatus::NV_ERR_INVALID_OBJECT_HANDLE
            | NvStatus::NV_ERR_OBJECT_NOT_FOUND
            | NvStatus::NV_ERR_INVALID_CLIENT
            | NvStatus::NV_ERR_INVALID_CHANNEL => Err(CallError::Gone),
            _ => Err(CallError::Failed),
        }
    }
}

impl Authority for Hands<'_> {
    fn capabilities(&self) -> Capabilities {
        match self.0.driver().is_some() {
            true => Capabilities::ALL,
            false => Capabilities::DOORBELL,
        }
    }

    fn set_timeslice(&mut self, group: RmName, microseconds: u32) -> Result<(), CallError> {
        self.call(|driver| driver.set_timeslice(group, microseconds))
    }

    fn switch(&mut self, channels: &[RmName], disable: bool) -> Result<(), CallError> {
        self.call(|driver| driver.switch(channels, disable))
    }

    fn preempt(&mut self, group: RmName) -> Result<(), CallError> {
        self.call(|driver| driver.preempt(group))
    }

    fn set_gate(&mut self, instance: InstanceId, gate: sched::Gate) -> Result<(), CallError> {
        let position = match gate {
            sched::Gate::Open => Position::Open,
            sched::Gate::Armed => Position::Armed,
            sched::Gate::Shut => Position::Shut,
        };
        match self.0.gate(instance) {
            Some(gate) => gate.set(position).map_err(|_| CallError::Failed),
            // It was destroyed this very moment.
            None => Ok(()),
        }
    }

    fn read_samples(&mut self) -> Result<(), CallError> {
        let mut read = None;
        self.call(|driver| {
            let (status, ring) = driver.samples()?;
            read = Some(ring);
            Ok(status)
        })?;
        if let Some(ring) = read {
            let mut scheduler = self.0.scheduler.lock();
            scheduler.samples(now(), ring.iter());
        }
        Ok(())
    }
}
