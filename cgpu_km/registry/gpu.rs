// SPDX-License-Identifier: GPL-2.0
//! A GPU, and how it is divided among its instances.

use crate::{
    attach::GpuFacts,
    failure::Failure,
    os_interface::{
        thread::{
            Thread,
            ThreadPriority, //
        },
        Gate, //
    },
    policy::{
        channel_limit::default_limit,
        sched::{
            InstanceId,
            Rules,
            Terms, //
        },
        GpuId, //
    },
    sched::Conductor,
    uapi::{
        Cause,
        CHANNELS_MAX,
        MAX_INSTANCES_PER_GPU,
        WEIGHT_MAX, //
    }, //
};
use kernel::{
    new_mutex,
    prelude::*,
    sync::{
        Arc,
        Mutex, //
    }, //
};

/// A GPU of this host.
#[pin_data]
pub struct HostGpu {
    facts: GpuFacts,
    /// Runs the conductor.
    thread: Thread<Conductor>,
    /// Taken before a tenant's state. Held for computations only, and not while a tenant is waited
    /// for: reports about all instances take it.
    #[pin]
    division: Mutex<Division>,
}

/// The parts of the GPU that are given to instances.
struct Division {
    allotments: KVec<Allotment>,
}

/// One instance's part.
struct Allotment {
    instance: u32,
    limit: u64,
    /// Of groups and channels on a runlist.
    channels: u32,
    weight: u32,
}

/// Whether limits may add up to more than the GPU's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overcommit {
    /// They may.
    Allowed,
    /// They may not; one that is there already may stay, and shrink.
    Refused,
}

impl HostGpu {
    /// A GPU without instances.
    #[inline(never)] // As `probe` of attach.rs.
    pub(super) fn new(facts: GpuFacts) -> Result<Arc<Self>> {
        let conductor = Conductor::new()?;
        let thread = Thread::start(
            c"cgpu-sched",
            facts.minor,
            ThreadPriority::Prompt,
            conductor,
        )?;
        Arc::pin_init(
            pin_init!(Self {
                facts,
                thread,
                division <- new_mutex!(Division {
                    allotments: KVec::new(),
                }),
            }),
            GFP_KERNEL,
        )
    }

    /// The driver's facts about it.
    pub fn facts(&self) -> &GpuFacts {
        &self.facts
    }

    /// How the accounting names it.
    pub fn id(&self) -> GpuId {
        GpuId(self.facts.device_instance)
    }

    /// The conductor, which shares its time.
    pub fn conductor(&self) -> &Conductor {
        self.thread.task()
    }

    /// How its compute time is shared.
    pub fn rules(&self) -> Rules {
        self.conductor().rules()
    }

    /// Changes how its compute time is shared; refused where a number is none that there is, or the
    /// weights of the instances or their number do not fit.
    pub fn set_rules(&self, change: impl FnOnce(&mut Rules)) -> Result<(), Failure> {
        Ok(self.conductor().set_rules(change)?)
    }

    /// The part of the largest weight that the instances leave.
    pub fn free_weight(&self) -> u32 {
        let division = self.division.lock();
        let weights = division.allotments.iter().map(|a| a.weight);
        WEIGHT_MAX.saturating_sub(weights.fold(0, u32::saturating_add))
    }

    /// The sum of its instances' limits, bytes.
    pub fn allotted(&self) -> u64 {
        self.division.lock().allotted()
    }

    /// The weight of an instance; `None` once it is destroyed.
    pub fn weight(&self, instance: u32) -> Option<u32> {
        let division = self.division.lock();
        division.find(instance).map(|a| a.weight)
    }

    /// Changes a weight.
    pub(super) fn set_weight(&self, instance: u32, weight: u32) -> Result<(), Failure> {
        check_weight(weight)?;
        let mut division = self.division.lock();
        let allotment = division.find_mut(instance);
        let allotment = allotment.ok_or(Cause::NoSuchInstance)?;
        let id = InstanceId(instance);
        self.conductor()
            .set_terms(id, |terms| terms.weight = weight)?;
        allotment.weight = weight;
        Ok(())
    }

    /// Gives a new instance its part. Returns how many groups and channels, each, it may have on a
    /// runlist.
    pub(super) fn allot(
        &self,
        instance: u32,
        limit: u64,
        weight: u32,
        overcommit: Overcommit,
        gate: &Arc<Gate>,
    ) -> Result<u32, Failure> {
        check_weight(weight)?;
        let mut division = self.division.lock();
        if division.allotments.len() >= MAX_INSTANCES_PER_GPU {
            return Err(Cause::TooMany.into());
        }
        self.check_limit(division.allotted(), 0, limit, overcommit)?;
        let channels = default_limit(self.rules().max_instances);
        let allotment = Allotment {
            instance,
            limit,
            channels,
            weight,
        };
        division.allotments.reserve(1, GFP_KERNEL)?;
        let terms = Terms {
            weight,
            high_priority: false,
            suspended: false,
            burst: None,
        };
        self.conductor()
            .add(InstanceId(instance), terms, gate.clone())?;
        division.allotments.push(allotment, GFP_KERNEL)?;
        Ok(channels)
    }

    /// Changes a limit, here and, where that works, by `apply`. The caller makes one change of an
    /// instance at a time. Those of others go on beside it.
    pub(super) fn set_limit(
        &self,
        instance: u32,
        limit: u64,
        overcommit: Overcommit,
        apply: impl FnOnce() -> Result<(), Cause>,
    ) -> Result<(), Failure> {
        let mut division = self.division.lock();
        let all = division.allotted();
        let allotment = division.find_mut(instance).ok_or(Cause::NoSuchInstance)?;
        let old = allotment.limit;
        self.check_limit(all.saturating_sub(old), old, limit, overcommit)?;
        // Until it is known which one holds, neither is given to others.
        allotment.limit = limit.max(old);
        drop(division);
        self.apply(instance, apply, |allotment, applied| {
            allotment.limit = if applied { limit } else { old };
        })
    }

    /// Makes a change elsewhere by `apply`, without the lock, and has `settle` write into the
    /// allotment what holds from now on: it is told whether the change was made.
    fn apply(
        &self,
        instance: u32,
        apply: impl FnOnce() -> Result<(), Cause>,
        settle: impl FnOnce(&mut Allotment, bool),
    ) -> Result<(), Failure> {
        let applied = apply();
        if let Some(allotment) = self.division.lock().find_mut(instance) {
            settle(allotment, applied.is_ok());
        }
        Ok(applied?)
    }

    /// Changes how many groups and channels, each, an instance may have on a runlist, here and,
    /// where that works, by `apply`. As for [`HostGpu::set_limit`].
    pub(super) fn set_channel_limit(
        &self,
        instance: u32,
        limit: u32,
        overcommit: Overcommit,
        apply: impl FnOnce() -> Result<(), Cause>,
    ) -> Result<(), Failure> {
        if !(1..=CHANNELS_MAX).contains(&limit) {
            return Err(Cause::ChannelsOutOfRange.into());
        }
        let mut division = self.division.lock();
        let others = division
            .allotments
            .iter()
            .filter(|a| a.instance != instance);
        let others = others.fold(0, |sum: u32, a| sum.saturating_add(a.channels));
        let allotment = division.find_mut(instance).ok_or(Cause::NoSuchInstance)?;
        let old = allotment.channels;
        let fits = others.saturating_add(limit) <= CHANNELS_MAX || limit <= old;
        if !fits && overcommit == Overcommit::Refused {
            return Err(Cause::ChannelsAboveRunlist.into());
        }
        allotment.channels = limit.max(old);
        drop(division);
        self.apply(instance, apply, |allotment, applied| {
            allotment.channels = if applied { limit } else { old };
        })
    }

    /// Takes the part of a destroyed instance back.
    pub(super) fn retract(&self, instance: u32) {
        let mut division = self.division.lock();
        division.allotments.retain(|a| a.instance != instance);
        // This waits for a call of the thread's.
        drop(division);
        self.conductor().remove(InstanceId(instance));
    }

    /// Whether an instance may have a limit, beside `others` bytes for the others. A limit that
    /// shrinks may always stay beside the others.
    fn check_limit(
        &self,
        others: u64,
        old: u64,
        new: u64,
        overcommit: Overcommit,
    ) -> Result<(), Cause> {
        let memory = self.facts.memory_bytes;
        if new == 0 {
            return Err(Cause::LimitZero);
        }
        if new > memory {
            return Err(Cause::LimitAboveGpu);
        }
        let fits = others.checked_add(new).is_some_and(|sum| sum <= memory);
        if fits || new <= old || overcommit == Overcommit::Allowed {
            Ok(())
        } else {
            Err(Cause::LimitsAboveGpu)
        }
    }
}

impl Division {
    fn allotted(&self) -> u64 {
        let limits = self.allotments.iter().map(|a| a.limit);
        limits.fold(0, u64::saturating_add)
    }

    fn find(&self, instance: u32) -> Option<&Allotment> {
        self.allotments.iter().find(|a| a.instance == instance)
    }

    fn find_mut(&mut self, instance: u32) -> Option<&mut Allotment> {
        self.allotments.iter_mut().find(|a| a.instance == instance)
    }
}

fn check_weight(weight: u32) -> Result<(), Cause> {
    if (1..=WEIGHT_MAX).contains(&weight) {
        Ok(())
    } else {
        Err(Cause::WeightOutOfRange)
    }
}
