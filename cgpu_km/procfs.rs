// SPDX-License-Identifier: GPL-2.0
//! `/proc/cgpu_km`: what there is and how it is used, in the formats that cGPU's users know.
//!
//! ```text
//! version                the module's version
//! <minor>/policy         number of the compute policy                      written by root
//! <minor>/max_inst       parts into which `fixed-equal` divides            written by root
//! <minor>/prio_ratio     what high priority may take, percent, 1 to 99     written by root
//! <minor>/burst_ms       most GPU time that an instance is owed, ms         written by root
//! <minor>/free_weight    what the weights leave of 100
//! <minor>/status         how compute time is shared now, one "key: value" a line
//! <minor>/NAME/id        instance number, N of /dev/cgpuN
//! <minor>/NAME/memsize   memory limit, bytes                               written by root
//! <minor>/NAME/meminfo   "Free: BYTES", then "PID: PID Mem: BYTES" for each process
//! <minor>/NAME/weight    1 to 100                                          written by root
//! <minor>/NAME/highprio  1: of high priority, else 0                       written by root
//! <minor>/NAME/suspended 1: kept off the GPU, else 0                       written by root
//! <minor>/NAME/status    everything else, one "key: value" a line
//! ```
//!
//! `<minor>` is the GPU's, `N` of `/dev/nvidiaN`. A container's `/proc` shows the names, but
//! opening a file fails there (see `os_interface/procfs.rs`).
//!
//! The files take a GPU's and a tenant's lock and never the registry's, under which they are
//! removed: the removal waits for them.

use crate::{
    dispatch::rebalance,
    failure::Failure,
    os_interface::procfs::{
        seq_print,
        ProcFolder,
        Text,
        TextFile, //
    },
    policy::{
        sched::{
            Policy,
            MS, //
        },
        Limited, //
    },
    registry::{
        HostGpu,
        Overcommit,
        TenantInstance,
        VERSION, //
    },
    uapi, //
};
use core::{
    fmt::Display,
    num::IntErrorKind,
    str::FromStr, //
};
use kernel::{
    prelude::*,
    str::CString,
    sync::Arc, //
};

const MODULE_FILES: [TextFile<()>; 1] = [read(c"version", |(), out| line(out, VERSION))];

const GPU_FILES: [TextFile<HostGpu>; 6] = [
    written(
        c"policy",
        |gpu, out| line(out, gpu.rules().policy.number()),
        |gpu, text| {
            let policy = Policy::from_number(number(text)?);
            let policy = policy.ok_or(Failure::Cause(uapi::Cause::UnknownPolicy))?;
            Ok(gpu.set_rules(|rules| rules.policy = policy)?)
        },
    ),
    written(
        c"max_inst",
        |gpu, out| line(out, gpu.rules().max_instances),
        |gpu, text| {
            let most = number(text)?;
            let set = gpu.set_rules(|rules| rules.max_instances = most);
            Ok(set.map_err(out_of_range)?)
        },
    ),
    written(
        c"prio_ratio",
        |gpu, out| line(out, gpu.rules().priority_percent),
        |gpu, text| {
            let percent = number(text)?;
            let set = gpu.set_rules(|rules| rules.priority_percent = percent);
            Ok(set.map_err(out_of_range)?)
        },
    ),
    written(
        c"burst_ms",
        |gpu, out| line(out, gpu.rules().burst / MS),
        |gpu, text| {
            let burst = u64::from(number::<u32>(text)?) * MS;
            let set = gpu.set_rules(|rules| rules.burst = burst);
            Ok(set.map_err(out_of_range)?)
        },
    ),
    read(c"free_weight", |gpu, out| line(out, gpu.free_weight())),
    read(c"status", show_gpu),
];

const INSTANCE_FILES: [TextFile<TenantInstance>; 7] = [
    read(c"id", |instance, out| line(out, instance.id())),
    written(
        c"memsize",
        |instance, out| line(out, instance.usage().ok_or(ENODEV)?.share.limit),
        |instance, text| {
            rebalance(instance.set_limit(number(text)?, Overcommit::Refused)?);
            Ok(())
        },
    ),
    read(c"meminfo", |instance, out| {
        let shown = instance.memory(
            |free| seq_print!(out, "Free: {free}\n"),
            |process, bytes| seq_print!(out, "PID: {} Mem: {bytes}\n", process.0),
        );
        shown.ok_or(ENODEV)
    }),
    written(
        c"weight",
        |instance, out| line(out, instance.weight().ok_or(ENODEV)?),
        |instance, text| Ok(instance.set_weight(number(text)?)?),
    ),
    written(
        c"highprio",
        |instance, out| {
            let served = instance.served().ok_or(ENODEV)?;
            line(out, u8::from(served.terms.high_priority))
        },
        |instance, text| {
            let high = switch(text)?;
            Ok(instance.set_terms(|terms| terms.high_priority = high)?)
        },
    ),
    written(
        c"suspended",
        |instance, out| {
            let served = instance.served().ok_or(ENODEV)?;
            line(out, u8::from(served.terms.suspended))
        },
        |instance, text| {
            let suspended = switch(text)?;
            Ok(instance.set_terms(|terms| terms.suspended = suspended)?)
        },
    ),
    read(c"status", show_instance),
];

/// A file for reading.
const fn read<T>(name: &'static CStr, show: fn(&T, &Text) -> Result) -> TextFile<T> {
    let store = None;
    TextFile { name, show, store }
}

/// A file that root can write to.
const fn written<T>(
    name: &'static CStr,
    show: fn(&T, &Text) -> Result,
    store: fn(&T, &str) -> Result,
) -> TextFile<T> {
    let store = Some(store);
    TextFile { name, show, store }
}

/// Makes `/proc/cgpu_km`.
pub fn root() -> Result<ProcFolder> {
    let mut folder = ProcFolder::new(None, c"cgpu_km")?;
    folder.add(&Arc::new((), GFP_KERNEL)?, &MODULE_FILES)?;
    Ok(folder)
}

/// Makes the folder of a GPU.
pub fn gpu_folder(root: &Arc<ProcFolder>, gpu: &Arc<HostGpu>) -> Result<ProcFolder> {
    let name = CString::try_from_fmt(format_args!("{}", gpu.facts().minor))?;
    let mut folder = ProcFolder::new(Some(root), &name)?;
    folder.add(gpu, &GPU_FILES)?;
    Ok(folder)
}

/// Makes the folder of an instance in that of its GPU.
pub fn instance_folder(
    gpu: &Arc<ProcFolder>,
    instance: &Arc<TenantInstance>,
) -> Result<ProcFolder> {
    let name = instance.tenant().name().as_str().ok_or(EINVAL)?;
    let name = CString::try_from_fmt(format_args!("{name}"))?;
    let mut folder = ProcFolder::new(Some(gpu), &name)?;
    folder.add(instance, &INSTANCE_FILES)?;
    Ok(folder)
}

/// A number as it was written: `ERANGE` if it is too large, `EINVAL` if it is none.
fn number<N: FromStr<Err = core::num::ParseIntError>>(text: &str) -> Result<N> {
    text.parse().map_err(|e: N::Err| match e.kind() {
        IntErrorKind::PosOverflow | IntErrorKind::NegOverflow => ERANGE,
        _ => EINVAL,
    })
}

/// A switch as it was written: `ERANGE` if it is a number but neither 0 nor 1.
fn switch(text: &str) -> Result<bool> {
    match number::<u32>(text)? {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(ERANGE),
    }
}

/// The error for a number that a rule does not have: `ERANGE`, as in every other file.
fn out_of_range(failure: Failure) -> Failure {
    match failure {
        Failure::Cause(uapi::Cause::UnknownPolicy) => ERANGE.into(),
        other => other,
    }
}

/// Prints a file that is one value.
fn line(out: &Text, value: impl Display) -> Result {
    seq_print!(out, "{value}\n");
    Ok(())
}

/// Prints "key: value" lines.
macro_rules! lines {
    ($out:expr, $($key:ident: $value:expr,)*) => {
        $(seq_print!($out, "{}: {}\n", stringify!($key), $value);)*
    };
}

fn show_gpu(gpu: &HostGpu, out: &Text) -> Result {
    let conductor = gpu.conductor();
    let (rules, view) = (conductor.rules(), conductor.view());
    let can = conductor.mechanisms();
    lines!(
        out,
        policy: rules.policy.name(),
        period: rules.period.name(),
        mode: view.mode.name(),
        mechanism_timeslice: u8::from(can.timeslice),
        mechanism_switch: u8::from(can.switch),
        mechanism_preempt: u8::from(can.preempt),
        mechanism_doorbell: u8::from(can.doorbell),
        mechanism_samples: u8::from(can.samples),
        boosted: u8::from(conductor.is_boosted()),
        switches: view.switches,
        calls: view.calls,
    );
    Ok(())
}

fn show_instance(instance: &TenantInstance, out: &Text) -> Result {
    let usage = instance.usage().ok_or(ENODEV)?;
    let (share, facts) = (usage.share, instance.gpu().facts());
    lines!(
        out,
        gpu_minor: facts.minor,
        gpu_uuid: facts.uuid_text(),
        gpu_pci: uapi::text(&facts.pci),
        memory_limit_bytes: share.limit,
        memory_used_bytes: share.used,
        memory_overhead_bytes: share.overhead,
        memory_reserved_bytes: share.reserved,
        memory_free_bytes: share.free(),
        memory_peak_bytes: share.peak,
        memory_overhead_peak_bytes: share.overhead_peak,
        memory_over_limit: u8::from(share.over()),
        memory_over_limit_count: share.over_count,
        managed_mode: share.managed_mode.name(),
        memory_managed_bytes: share.managed,
        memory_managed_peak_bytes: share.managed_peak,
        memory_spilled_bytes: share.spilled,
        managed_refused: share.managed_refused,
        channel_limit: share.channel_limit,
        channels: share.channels,
        channels_refused: share.channels_refused,
        memory_refused: share.refused,
        calls_refused: share.refused_calls,
        capabilities: &usage.capabilities,
        rm_objects: share.objects,
        rm_clients: share.clients,
        processes: usage.processes,
        open_files: usage.open_files,
        tenant_open_files: usage.tenant_open_files,
    );
    for what in Limited::ALL {
        let (name, view) = (what.name(), instance.limit_of(what).ok_or(ENODEV)?);
        seq_print!(out, "{name}_limit: {}\n{name}: {}\n", view.limit, view.used);
        seq_print!(out, "{name}_refused: {}\n", view.refused);
    }
    if let Some(served) = instance.served() {
        lines!(
            out,
            compute_suspended: u8::from(served.terms.suspended),
            compute_high_priority: u8::from(served.terms.high_priority),
            compute_working: u8::from(served.working),
            compute_gpu_time_ns: served.account.gpu_time,
            compute_windows: served.account.windows,
            compute_preemptions: served.account.preemptions,
            compute_blocked_ns: served.account.blocked,
            compute_owed_ns: served.owed,
            compute_burst_ms: served.terms.burst.unwrap_or(instance.gpu().rules().burst) / MS,
        );
    }
    let (gate, nodes) = (instance.gate(), instance.nodes());
    lines!(
        out,
        compute_shut: u8::from(gate.is_shut()),
        compute_blocked_tasks: gate.blocked(),
        compute_blocked_count: gate.times_blocked(),
        node: nodes.own,
        control_node: nodes.control,
        uvm_node: nodes.uvm,
    );
    Ok(())
}
