// SPDX-License-Identifier: GPL-2.0
//! The commands about compute time.

use super::records::{
    read,
    read_list,
    write_list, //
};
use crate::{
    failure::Failure,
    os_interface::{
        clock::now,
        UserAddr, //
    },
    policy::sched::{
        Nanos,
        Rules,
        MS, //
    },
    registry::{
        HostGpu,
        Registry,
        TenantInstance, //
    },
    uapi::{
        self,
        mechanism,
        request,
        set,
        state,
        Cause,
        Period,
        Policy, //
    }, //
};
use kernel::{
    alloc::KVVec,
    prelude::*, //
};
use zerocopy::FromZeros;

/// One of these commands.
pub(super) fn run(registry: &Registry, cmd: u32, at: UserAddr) -> Result<(), Failure> {
    match cmd {
        request::GPU_SET_COMPUTE => {
            let wish: uapi::GpuSetCompute = read(at)?;
            registry.gpu(wish.gpu_minor)?.set_rules(rules(wish)?)
        }
        request::INSTANCE_SET_COMPUTE => {
            let wish: uapi::InstanceSetCompute = read(at)?;
            let instance = registry.find(&wish.key.name, wish.key.gpu_minor)?;
            let burst = own_burst(&wish)?;
            instance.set_terms(|terms| {
                if wish.set & set::HIGH_PRIORITY != 0 {
                    terms.high_priority = wish.high_priority != 0;
                }
                if wish.set & set::SUSPENDED != 0 {
                    terms.suspended = wish.suspended != 0;
                }
                if wish.set & set::INSTANCE_BURST != 0 {
                    terms.burst = burst;
                }
            })
        }
        request::GPU_COMPUTE => {
            let list = read_list::<uapi::GpuCompute>(at)?;
            let mut records = KVVec::new();
            registry.gpus(|gpu, _, _| Ok(records.push(gpu_record(gpu), GFP_KERNEL)?))?;
            write_list(at, list, &records)
        }
        request::INSTANCE_COMPUTE => {
            let list = read_list::<uapi::InstanceCompute>(at)?;
            let mut records = KVVec::new();
            registry.instances(|instance| {
                // One that was destroyed this very moment has nothing any more.
                if let Some(record) = instance_record(instance) {
                    records.push(record, GFP_KERNEL)?;
                }
                Ok(())
            })?;
            write_list(at, list, &records)
        }
        _ => Err(Cause::UnknownCommand.into()),
    }
}

/// The burst of its own that an instance is to have; `None`: that of its GPU.
fn own_burst(wish: &uapi::InstanceSetCompute) -> Result<Option<Nanos>, Failure> {
    match wish.burst_ms {
        uapi::BURST_OF_GPU => Ok(None),
        burst if burst <= uapi::BURST_MS_MAX => Ok(Some(u64::from(burst) * MS)),
        _ => Err(Cause::UnknownPolicy.into()),
    }
}

/// A burst in milliseconds. The rules and terms have none that does not fit.
fn milliseconds(burst: Nanos) -> u32 {
    u32::try_from(burst / MS).unwrap_or(u32::MAX)
}

/// The change of a GPU's rules that is wished for, all of it or nothing.
fn rules(wish: uapi::GpuSetCompute) -> Result<impl FnOnce(&mut Rules), Failure> {
    let named = move |bit| wish.set & bit != 0;
    let policy = named(set::POLICY).then(|| Policy::from_number(wish.policy));
    let period = named(set::PERIOD).then(|| Period::from_number(wish.period));
    // Named, but not known.
    if policy == Some(None) || period == Some(None) {
        return Err(Cause::UnknownPolicy.into());
    }
    Ok(move |rules: &mut Rules| {
        rules.policy = policy.flatten().unwrap_or(rules.policy);
        rules.period = period.flatten().unwrap_or(rules.period);
        if named(set::MAX_INSTANCES) {
            rules.max_instances = wish.max_instances;
        }
        if named(set::PRIORITY_PERCENT) {
            rules.priority_percent = wish.priority_percent;
        }
        if named(set::BURST) {
            rules.burst = u64::from(wish.burst_ms) * MS;
        }
    })
}

fn gpu_record(gpu: &HostGpu) -> uapi::GpuCompute {
    let conductor = gpu.conductor();
    let (rules, view) = (conductor.rules(), conductor.view());
    let mut record = uapi::GpuCompute::new_zeroed();
    record.minor = gpu.facts().minor;
    record.policy = rules.policy.number();
    record.period = rules.period.number();
    record.mode = view.mode.number();
    record.max_instances = rules.max_instances;
    record.priority_percent = rules.priority_percent;
    record.burst_ms = milliseconds(rules.burst);
    let can = conductor.mechanisms();
    record.mechanisms = bits([
        (can.timeslice, mechanism::TIMESLICE),
        (can.switch, mechanism::SWITCH),
        (can.preempt, mechanism::PREEMPT),
        (can.doorbell, mechanism::DOORBELL),
        (can.samples, mechanism::SAMPLES),
    ]);
    record.switches = view.switches;
    record.calls = view.calls;
    record.now_ns = now();
    record
}

/// The bits that are set.
fn bits<const N: usize>(all: [(bool, u32); N]) -> u32 {
    let set = all.into_iter().filter(|(is_set, _)| *is_set);
    set.fold(0, |bits, (_, bit)| bits | bit)
}

fn instance_record(instance: &TenantInstance) -> Option<uapi::InstanceCompute> {
    let served = instance.served()?;
    let mut record = uapi::InstanceCompute::new_zeroed();
    record.key.name = *instance.tenant().name();
    record.key.gpu_minor = instance.gpu().facts().minor;
    record.id = instance.id();
    record.weight = served.terms.weight;
    record.state = bits([
        (served.terms.high_priority, state::HIGH_PRIORITY),
        (served.terms.suspended, state::SUSPENDED),
        (served.working, state::WORKING),
        (served.running, state::RUNNING),
    ]);
    record.blocked_tasks = instance.gate().blocked();
    record.gpu_time_ns = served.account.gpu_time;
    record.windows = served.account.windows;
    record.preemptions = served.account.preemptions;
    record.blocked_ns = served.account.blocked;
    record.owed_ns = served.owed;
    record.burst_ms = served.terms.burst.map_or(uapi::BURST_OF_GPU, milliseconds);
    Some(record)
}
