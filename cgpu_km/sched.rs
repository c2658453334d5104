// SPDX-License-Identifier: GPL-2.0
//! The scheduler of a GPU at work: [`crate::policy::sched`] with a clock, a thread, gates and the
//! driver's kernel interface.
//!
//! There is one [`Conductor`] for each GPU, with a thread of its own. The thread sleeps until
//! something happens: a doorbell was touched, or the operator changed a rule. It has a timer only
//! if the scheduler names a deadline. Then it asks the scheduler what to do, and does it, without
//! the scheduler's lock.
//!
//! # Locks
//!
//! The scheduler's lock comes after `mmap_lock`, a GPU's division and a tenant's state: an access
//! to a doorbell is reported under the first, channels that are made or freed under the last. It is
//! held for computations only. The locks of the list of instances and of the boosts are taken
//! alone. The lock of the driver's interface is the innermost of all, held only to look at it.
//!
//! Tasks of programs take the locks of the scheduler, of the boosts and of the interface. A program
//! can have such a task not run for long. An operator's task, which takes that of the list of
//! instances, may not run for long on a busy host. The thread lends its priority to the holder of
//! any of them ([`RtMutex`]) but that of the interface. That one is a spinlock, in which no task is
//! taken off its processor. None is held while memory is made or given back.
//!
//! The interface is taken away only after the thread's call into the driver has ended, if it makes
//! one ([`Conductor::wait_for_call`]). A program's call that uses the interface keeps it until the
//! call ends.
//!
//! # Calls on programs' clients
//!
//! The driver looks for the client and the object of a control without a lock ([`ClientUse`]). So
//! the thread shares the client's lock over a control of a program's group, as the program's own
//! controls do. It does not wait for that lock, which a program can hold for long: it tries again
//! later. A close of the client's file tells the scheduler that the client is leaving, and waits
//! for the thread's call in the same way. The client's channels run on until it is freed, and so
//! the scheduler has them until then: it switches channels by a client of its own.
//!
//! [`ClientUse`]: crate::proxy::ClientUse

use crate::{
    client_locks::ClientLocks,
    nvidia::{
        handle::ClientHandle,
        status::NvStatus, //
    },
    os_interface::{
        clock::now,
        log::{
            pr_info,
            pr_warn, //
        },
        rmapi::KernelClient,
        thread::{
            Alarm,
            ThreadTask, //
        },
        Gate,
        RtMutex,
        RtMutexGuard, //
    },
    policy::{
        sched::{
            Authority,
            CallError,
            ChangeRefused,
            Costs,
            Engine,
            Event,
            GpuView,
            InstanceId,
            InstanceView,
            Mechanisms,
            NewChannel,
            Position,
            RmName,
            Room,
            Rules,
            Scheduler,
            Terms,
            SWITCH_MAX, //
        },
        Boost,
        BoostCall,
        Boosts,
        ChannelChange,
        ChannelEvent, //
    },
    store::{
        Exhausted,
        List, //
    },
    uapi::MAX_INSTANCES_PER_GPU, //
};
use kernel::{
    new_condvar,
    new_spinlock,
    prelude::*,
    sync::{
        atomic::{
            Acquire,
            Atomic,
            Release, //
        },
        Arc,
        CondVar,
        SpinLock, //
    }, //
};

/// The scheduler of one GPU, its thread and what it acts through.
#[pin_data]
pub struct Conductor {
    #[pin]
    scheduler: RtMutex<Scheduler>,
    #[pin]
    instances: RtMutex<List<InstanceHands>>,
    /// The boosts that the instances want. Taken alone.
    #[pin]
    boosts: RtMutex<Boosts>,
    /// The driver's kernel interface, while the GPU is open.
    #[pin]
    driver: SpinLock<Option<Arc<KernelClient>>>,
    /// The thread's calls into the driver.
    #[pin]
    calls: SpinLock<ThreadCalls>,
    /// One of them has ended.
    #[pin]
    call_ended: CondVar,
    #[pin]
    alarm: Alarm,
    stopping: Atomic<bool>,
}

/// Calls of the thread's into the driver.
#[derive(Default)]
struct ThreadCalls {
    under_way: bool,
    /// How many have ended.
    ended: u64,
}

/// An instance, as far as the conductor acts on it.
struct InstanceHands {
    id: InstanceId,
    gate: Arc<Gate>,
    /// Those of its tenant, once it has one.
    locks: Option<Arc<ClientLocks>>,
}

impl Conductor {
    /// A conductor without instances; the driver shares the GPU as it likes until a policy is set.
    pub fn new() -> Result<Arc<Self>> {
        let scheduler = Scheduler::new(Mechanisms::DOORBELL, Costs::MEASURED, Rules::DEFAULT);
        let scheduler = scheduler.map_err(|_| ENOMEM)?;
        let conductor = Arc::pin_init(
            pin_init!(Self {
                scheduler <- RtMutex::new(scheduler),
                instances <- RtMutex::new(List::new()),
                boosts <- RtMutex::new(Boosts::default()),
                driver <- new_spinlock!(None),
                calls <- new_spinlock!(ThreadCalls::default()),
                call_ended <- new_condvar!(),
                alarm <- Alarm::new(),
                stopping: Atomic::new(false),
            }),
            GFP_KERNEL,
        )?;
        conductor.make_room().map_err(|_| ENOMEM)?;
        Ok(conductor)
    }

    /// Makes room for all instances that a GPU can have, before anybody else has these locks.
    fn make_room(&self) -> Result<(), Exhausted> {
        *self.instances.lock() = List::with_room(MAX_INSTANCES_PER_GPU)?;
        self.scheduler.lock().make_room()?;
        self.boosts.lock().make_room()
    }

    /// Works on the scheduler, with the time, and wakes the thread, which looks what follows.
    fn change<R>(&self, work: impl FnOnce(&mut Scheduler, u64) -> R) -> R {
        let result = work(&mut self.scheduler(), now());
        self.alarm.ring();
        result
    }

    /// The scheduler, for any task but the thread.
    fn scheduler(&self) -> RtMutexGuard<'_, Scheduler> {
        self.take(&self.scheduler)
    }

    /// The boosts, for any task but the thread.
    fn boosts(&self) -> RtMutexGuard<'_, Boosts> {
        self.take(&self.boosts)
    }

    /// The instances, for any task but the thread.
    fn instances(&self) -> RtMutexGuard<'_, List<InstanceHands>> {
        self.take(&self.instances)
    }

    /// Takes a lock that the thread takes as well. If another task has it, the thread is woken to
    /// wait for it, too: with the thread's priority that task comes to run at once.
    fn take<'a, T>(&self, lock: &'a RtMutex<T>) -> RtMutexGuard<'a, T> {
        lock.try_lock().unwrap_or_else(|| {
            self.alarm.ring();
            lock.lock()
        })
    }

    /// The driver's kernel interface, if it has it.
    pub fn driver(&self) -> Option<Arc<KernelClient>> {
        self.driver.lock().clone()
    }

    /// The GPU was just opened: from now on the driver can be called. Whatever it refuses as not
    /// supported is not tried again.
    pub fn adopt(&self, driver: Arc<KernelClient>) {
        let former = self.driver.lock().replace(driver);
        // Not under the lock: it calls the driver.
        drop(former);
        self.boosts().attach();
        self.change(|scheduler, now| scheduler.set_mechanisms(now, Mechanisms::ALL));
    }

    /// The GPU is to be closed: gives the driver's interface back, when no call of the thread's is
    /// under way. The caller drops it without a lock.
    pub fn release(&self) -> Option<Arc<KernelClient>> {
        let driver = self.driver.lock().take();
        self.wait_for_call();
        self.boosts().detach();
        self.change(|scheduler, now| scheduler.set_mechanisms(now, Mechanisms::DOORBELL));
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
            } => Event::Channel(NewChannel {
                instance: id,
                group: name(group),
                channel: name(change.object),
                engine: if compute {
                    Engine::Compute
                } else {
                    Engine::Other
                },
                process,
            }),
        };
        // There is room for a new channel: it was expected, before the driver was asked for it.
        let _ = self.scheduler().event(now(), event);
        // A new channel is on: the thread looks whether it may be.
        if change.what != ChannelEvent::Gone {
            self.alarm.ring();
        }
    }

    /// An instance is about to have so many channels and groups: makes room, so that each can be
    /// noted once the driver has made it. The memory is made without the scheduler's lock, and
    /// charged to nobody: a task that waits for memory with the lock held would keep the GPU from
    /// all. There is at most twice as much of it as the limits of channels allow.
    ///
    /// # Errors
    ///
    /// There is no memory.
    pub fn expect_channels(&self, id: InstanceId, channels: usize) -> Result<(), Exhausted> {
        loop {
            let wanted = self.scheduler().expect_channels(id, channels);
            let Some(wanted) = wanted else {
                return Ok(());
            };
            let room = Room::of(wanted)?;
            let former = self.scheduler().move_to(room);
            drop(former);
        }
    }

    /// Adds an instance, whose registers are behind `gate`.
    ///
    /// # Errors
    ///
    /// The rules cannot give it what they promise, or no memory was left.
    pub fn add(&self, id: InstanceId, terms: Terms, gate: Arc<Gate>) -> Result<(), ChangeRefused> {
        let hands = InstanceHands {
            id,
            gate,
            locks: None,
        };
        // There is room for as many as a GPU can have.
        let added = self.instances().push(hands);
        added.map_err(|_| ChangeRefused::Exhausted)?;
        let boosts = self.boosts().add(id);
        let added = boosts.map_err(|_| ChangeRefused::Exhausted);
        let add = |()| self.change(|scheduler, now| scheduler.add(now, id, terms));
        let added = added.and_then(add);
        if added.is_err() {
            self.boosts().remove(id);
            self.forget_hands(id);
        }
        added
    }

    /// An instance's tenant has these locks. Until it is told so, the thread makes no calls on the
    /// clients of its programs.
    pub fn set_client_locks(&self, id: InstanceId, locks: Arc<ClientLocks>) {
        let mut instances = self.instances();
        if let Some(hands) = instances.iter_mut().find(|hands| hands.id == id) {
            hands.locks = Some(locks);
        }
    }

    /// Removes an instance.
    pub fn remove(&self, id: InstanceId) {
        self.boosts().remove(id);
        self.change(|scheduler, now| scheduler.remove(now, id));
        self.forget_hands(id);
        self.wait_for_call();
    }

    fn forget_hands(&self, id: InstanceId) {
        let mut instances = self.instances();
        let place = instances.iter().position(|hands| hands.id == id);
        let former = place.and_then(|place| instances.swap_remove(place));
        drop(instances);
        // It may be the last that has the gate.
        drop(former);
    }

    /// A client is about to go with its file: the thread makes no further call on it.
    pub fn leave_client(&self, client: ClientHandle) {
        let _ = self.scheduler().event(now(), Event::ClientLeaving(client));
    }

    /// Waits until the call into the driver has ended that the thread is making, if it makes one.
    /// What was taken from the thread before, no later call of its uses.
    pub fn wait_for_call(&self) {
        let mut calls = self.calls.lock();
        let ended = calls.ended;
        while calls.under_way && calls.ended == ended {
            self.call_ended.wait(&mut calls);
        }
    }

    /// The rules of the GPU.
    pub fn rules(&self) -> Rules {
        self.scheduler().rules()
    }

    /// The mechanisms that work on the GPU.
    pub fn mechanisms(&self) -> Mechanisms {
        self.scheduler().mechanisms()
    }

    /// Changes the rules of the GPU.
    ///
    /// # Errors
    ///
    /// The new ones are no rules, or cannot give the instances what they would promise.
    pub fn set_rules(&self, change: impl FnOnce(&mut Rules)) -> Result<(), ChangeRefused> {
        self.change(|scheduler, now| {
            let mut rules = scheduler.rules();
            change(&mut rules);
            scheduler.set_rules(now, rules)
        })
    }

    /// Changes the terms of an instance.
    ///
    /// # Errors
    ///
    /// There is no such instance, or the rules cannot give it what they would promise.
    pub fn set_terms(
        &self,
        id: InstanceId,
        change: impl FnOnce(&mut Terms),
    ) -> Result<(), ChangeRefused> {
        self.change(|scheduler, now| {
            let view = scheduler.instance_view(now, id);
            let mut terms = view.ok_or(ChangeRefused::NoSuchInstance)?.terms;
            change(&mut terms);
            scheduler.set_terms(now, id, terms)
        })
    }

    /// How the GPU is shared now.
    pub fn view(&self) -> GpuView {
        self.scheduler().view()
    }

    /// How an instance stands now.
    pub fn instance_view(&self, id: InstanceId) -> Option<InstanceView> {
        self.scheduler().instance_view(now(), id)
    }

    /// A program of an instance touched its doorbell while that was not open.
    pub fn rang(&self, id: InstanceId) {
        // Only a new channel can fail.
        let _ = self.change(|scheduler, now| scheduler.event(now, Event::Rang(id)));
    }

    /// The programs of an instance want this boost together from now on.
    pub fn want_boost(&self, id: InstanceId, boost: Boost) {
        self.boosts().want(id, boost);
        self.alarm.ring();
    }

    /// Whether the driver was asked for the highest clock.
    pub fn is_boosted(&self) -> bool {
        self.boosts().is_on(now())
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
                pr_info!("the driver refused to raise a GPU's clocks: {asked:?}\n");
            }
        }
    }

    /// Takes the scheduler's actions until there are no more; when to look again.
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
        let instances = self.instances.lock();
        let found = instances.iter().find(|hands| hands.id == id);
        found.map(|hands| hands.gate.clone())
    }

    /// The locks of the clients of a group's tenant.
    fn locks_of(&self, group: RmName) -> Result<Arc<ClientLocks>, CallError> {
        let id = self.scheduler.lock().owner(group)?;
        let instances = self.instances.lock();
        let hands = instances.iter().find(|hands| hands.id == id);
        hands
            .and_then(|hands| hands.locks.clone())
            .ok_or(CallError::Busy)
    }
}

impl ThreadTask for Conductor {
    fn run(&self) {
        let mut channels = List::new();
        if channels.reserve(SWITCH_MAX).is_err() {
            pr_warn!("no memory for the scheduler of a GPU: its compute time is not shared\n");
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

/// How a conductor acts on its GPU.
struct Hands<'a>(&'a Conductor);

impl Hands<'_> {
    /// Calls the driver.
    fn call(&self, work: impl FnOnce(&KernelClient) -> Result<NvStatus>) -> Result<(), CallError> {
        self.under_way().make(work)
    }

    /// Calls the driver for a program's group, which is not freed meanwhile.
    fn call_for(
        &self,
        group: RmName,
        work: impl FnOnce(&KernelClient) -> Result<NvStatus>,
    ) -> Result<(), CallError> {
        // First: a task that says that the client is leaving waits for the call afterwards.
        let call = self.under_way();
        let locks = self.0.locks_of(group)?;
        let _shared = locks.try_share(group.client).ok_or(CallError::Busy)?;
        call.make(work)
    }

    /// Begins a call.
    fn under_way(&self) -> ThreadCall<'_> {
        self.0.calls.lock().under_way = true;
        ThreadCall(self.0)
    }
}

/// The thread makes a call into the driver, or looks whether it may. Others
/// [wait](Conductor::wait_for_call) until this is dropped.
struct ThreadCall<'a>(&'a Conductor);

impl ThreadCall<'_> {
    fn make(&self, work: impl FnOnce(&KernelClient) -> Result<NvStatus>) -> Result<(), CallError> {
        // The interface was taken away this very moment.
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

impl Drop for ThreadCall<'_> {
    fn drop(&mut self) {
        let mut calls = self.0.calls.lock();
        calls.under_way = false;
        calls.ended = calls.ended.wrapping_add(1);
        drop(calls);
        self.0.call_ended.notify_all();
    }
}

impl Authority for Hands<'_> {
    fn set_timeslice(&mut self, group: RmName, microseconds: u32) -> Result<(), CallError> {
        self.call_for(group, |driver| driver.set_timeslice(group, microseconds))
    }

    fn switch(&mut self, channels: &[RmName], disable: bool) -> Result<(), CallError> {
        self.call(|driver| driver.switch(channels, disable))
    }

    fn preempt(&mut self, group: RmName) -> Result<(), CallError> {
        self.call_for(group, |driver| driver.preempt(group))
    }

    fn set_gate(&mut self, instance: InstanceId, position: Position) -> Result<(), CallError> {
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
