// SPDX-License-Identifier: GPL-2.0
//! `/proc/cgpu_km`: what there is and how it is used, in the formats that cGPU's users know.
//!
//! ```text
//! version                the module's version
//! <minor>/policy         number of the compute policy                      written by root
//! <minor>/max_inst       instances among which the fair policy divides     written by root
//! <minor>/prio_ratio     what high priority may take, percent, 1 to 99     written by root
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
    os_interface::{
        procfs::{Access, ProcFolder, TextFile},
        Printed,
    },
    policy::sched::Policy,
    registry::{HostGpu, Overcommit, TenantInstance, VERSION},
    uapi,
};
use core::{num::IntErrorKind, str::FromStr};
use kernel::{prelude::*, seq_file::SeqFile, seq_print, str::CString, sync::Arc};

/// Makes `/proc/cgpu_km`.
pub fn root() -> Result<ProcFolder> {
    let mut folder = ProcFolder::new(None, c"cgpu_km")?;
    folder.add(c"version", Access::Read, ModuleVersion)?;
    Ok(folder)
}

/// Makes the folder of a GPU.
pub fn gpu_folder(root: &Arc<ProcFolder>, gpu: &Arc<HostGpu>) -> Result<ProcFolder> {
    let name = CString::try_from_fmt(fmt!("{}", gpu.facts().minor))?;
    let mut folder = ProcFolder::new(Some(root), &name)?;
    folder.add(c"policy", Access::ReadWrite, Compute(gpu.clone()))?;
    folder.add(c"max_inst", Access::ReadWrite, MaxInstances(gpu.clone()))?;
    folder.add(c"prio_ratio", Access::ReadWrite, PriorityRatio(gpu.clone()))?;
    folder.add(c"free_weight", Access::Read, FreeWeight(gpu.clone()))?;
    folder.add(c"status", Access::Read, GpuStatus(gpu.clone()))?;
    Ok(folder)
}

/// Makes the folder of an instance in that of its GPU.
pub fn instance_folder(
    gpu: &Arc<ProcFolder>,
    instance: &Arc<TenantInstance>,
) -> Result<ProcFolder> {
    let name = instance.tenant().name().as_str().ok_or(EINVAL)?;
    let name = CString::try_from_fmt(fmt!("{name}"))?;
    let mut folder = ProcFolder::new(Some(gpu), &name)?;
    folder.add(c"id", Access::Read, InstanceNumber(instance.clone()))?;
    folder.add(c"memsize", Access::ReadWrite, MemSize(instance.clone()))?;
    folder.add(c"meminfo", Access::Read, MemInfo(instance.clone()))?;
    folder.add(c"weight", Access::ReadWrite, Weight(instance.clone()))?;
    folder.add(
        c"highprio",
        Access::ReadWrite,
        HighPriority(instance.clone()),
    )?;
    folder.add(c"suspended", Access::ReadWrite, Suspended(instance.clone()))?;
    folder.add(c"status", Access::Read, Status(instance.clone()))?;
    Ok(folder)
}

/// A number as it was written: `ERANGE` where it is too large, `EINVAL` where it is none.
fn number<N: FromStr<Err = core::num::ParseIntError>>(text: &str) -> Result<N> {
    text.parse().map_err(|e: N::Err| match e.kind() {
        IntErrorKind::PosOverflow | IntErrorKind::NegOverflow => ERANGE,
        _ => EINVAL,
    })
}

/// A switch as it was written: `ERANGE` where it is a number but neither 0 nor 1.
fn switch(text: &str) -> Result<bool> {
    match number::<u32>(text)? {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(ERANGE),
    }
}

struct ModuleVersion;

impl TextFile for ModuleVersion {
    fn show(&self, out: &SeqFile) -> Result {
        seq_print!(out, "{VERSION}\n");
        Ok(())
    }
}

/// The compute policy, by number.
struct Compute(Arc<HostGpu>);

impl TextFile for Compute {
    fn show(&self, out: &SeqFile) -> Result {
        seq_print!(out, "{}\n", self.0.policy().number());
        Ok(())
    }

    fn store(&self, text: &str) -> Result {
        let policy = Policy::from_number(number(text)?);
        let policy = policy.ok_or(Failure::Cause(uapi::Cause::UnknownPolicy))?;
        Ok(self.0.set_rules(|rules| rules.policy = policy)?)
    }
}

struct MaxInstances(Arc<HostGpu>);

impl TextFile for MaxInstances {
    fn show(&self, out: &SeqFile) -> Result {
        seq_print!(out, "{}\n", self.0.max_instances());
        Ok(())
    }

    fn store(&self, text: &str) -> Result {
        let most = number(text)?;
        let set = self.0.set_rules(|rules| rules.max_instances = most);
        Ok(set.map_err(out_of_range)?)
    }
}

/// What a number is told that is none that there is: `ERANGE`, as by every other file.
fn out_of_range(failure: Failure) -> Failure {
    match failure {
        Failure::Cause(uapi::Cause::UnknownPolicy) => ERANGE.into(),
        other => other,
    }
}

struct PriorityRatio(Arc<HostGpu>);

impl TextFile for PriorityRatio {
    fn show(&self, out: &SeqFile) -> Result {
        let rules = self.0.conductor().rules();
        seq_print!(out, "{}\n", rules.priority_percent);
        Ok(())
    }

    fn store(&self, text: &str) -> Result {
        let percent = number(text)?;
        let set = self.0.set_rules(|rules| rules.priority_percent = percent);
        Ok(set.map_err(out_of_range)?)
    }
}

struct GpuStatus(Arc<HostGpu>);

impl TextFile for GpuStatus {
    fn show(&self, out: &SeqFile) -> Result {
        let conductor = self.0.conductor();
        let (rules, view) = (conductor.rules(), conductor.view());
        let can = conductor.mechanisms();
        seq_print!(out, "policy: {}\n", rules.policy.name());
        seq_print!(out, "period: {}\n", rules.period.name());
        seq_print!(out, "mode: {}\n", view.mode.name());
        seq_print!(out, "means_timeslice: {}\n", u8::from(can.timeslice));
        seq_print!(out, "means_switch: {}\n", u8::from(can.switch));
        seq_print!(out, "means_preempt: {}\n", u8::from(can.preempt));
        seq_print!(out, "means_doorbell: {}\n", u8::from(can.doorbell));
        seq_print!(out, "means_samples: {}\n", u8::from(can.samples));
        seq_print!(out, "boosted: {}\n", u8::from(conductor.is_boosted()));
        seq_print!(out, "switches: {}\n", view.switches);
        seq_print!(out, "calls: {}\n", view.calls);
        Ok(())
    }
}

struct FreeWeight(Arc<HostGpu>);

impl TextFile for FreeWeight {
    fn show(&self, out: &SeqFile) -> Result {
        seq_print!(out, "{}\n", self.0.free_weight());
        Ok(())
    }
}

struct InstanceNumber(Arc<TenantInstance>);

impl TextFile for InstanceNumber {
    fn show(&self, out: &SeqFile) -> Result {
        seq_print!(out, "{}\n", self.0.id());
        Ok(())
    }
}

struct MemSize(Arc<TenantInstance>);

impl TextFile for MemSize {
    fn show(&self, out: &SeqFile) -> Result {
        let usage = self.0.usage().ok_or(ENODEV)?;
        seq_print!(out, "{}\n", usage.share.limit);
        Ok(())
    }

    fn store(&self, text: &str) -> Result {
        rebalance(self.0.set_limit(number(text)?, Overcommit::Refused)?);
        Ok(())
    }
}

struct MemInfo(Arc<TenantInstance>);

impl TextFile for MemInfo {
    fn show(&self, out: &SeqFile) -> Result {
        let shown = self.0.memory(
            |free| seq_print!(out, "Free: {free}\n"),
            |process, bytes| seq_print!(out, "PID: {} Mem: {bytes}\n", process.0),
        );
        shown.ok_or(ENODEV)
    }
}

struct Weight(Arc<TenantInstance>);

impl TextFile for Weight {
    fn show(&self, out: &SeqFile) -> Result {
        let weight = self.0.weight().ok_or(ENODEV)?;
        seq_print!(out, "{weight}\n");
        Ok(())
    }

    fn store(&self, text: &str) -> Result {
        self.0.set_weight(number(text)?)?;
        Ok(())
    }
}

struct Suspended(Arc<TenantInstance>);

impl TextFile for Suspended {
    fn show(&self, out: &SeqFile) -> Result {
        let served = self.0.served().ok_or(ENODEV)?;
        seq_print!(out, "{}\n", u8::from(served.terms.suspended));
        Ok(())
    }

    fn store(&self, text: &str) -> Result {
        let suspended = switch(text)?;
        Ok(self.0.set_terms(|terms| terms.suspended = suspended)?)
    }
}

struct HighPriority(Arc<TenantInstance>);

impl TextFile for HighPriority {
    fn show(&self, out: &SeqFile) -> Result {
        let served = self.0.served().ok_or(ENODEV)?;
        seq_print!(out, "{}\n", u8::from(served.terms.high_priority));
        Ok(())
    }

    fn store(&self, text: &str) -> Result {
        let high = switch(text)?;
        Ok(self.0.set_terms(|terms| terms.high_priority = high)?)
    }
}

struct Status(Arc<TenantInstance>);

impl TextFile for Status {
    fn show(&self, out: &SeqFile) -> Result {
        let instance = &self.0;
        let usage = instance.usage().ok_or(ENODEV)?;
        let (share, nodes, facts) = (usage.share, instance.nodes(), instance.gpu().facts());
        seq_print!(out, "gpu_minor: {}\n", facts.minor);
        seq_print!(out, "gpu_uuid: {}\n", facts.uuid_text());
        seq_print!(out, "gpu_pci: {}\n", uapi::text(&facts.pci));
        seq_print!(out, "memory_limit_bytes: {}\n", share.limit);
        seq_print!(out, "memory_used_bytes: {}\n", share.used);
        seq_print!(out, "memory_overhead_bytes: {}\n", share.overhead);
        seq_print!(out, "memory_reserved_bytes: {}\n", share.reserved);
        seq_print!(out, "memory_free_bytes: {}\n", share.free());
        seq_print!(out, "memory_peak_bytes: {}\n", share.peak);
        seq_print!(out, "memory_overhead_peak_bytes: {}\n", share.overhead_peak);
        seq_print!(out, "memory_over_limit: {}\n", u8::from(share.over()));
        seq_print!(out, "memory_over_limit_count: {}\n", share.over_count);
        let mode = share.managed_mode.name();
        seq_print!(out, "managed_mode: {mode}\n");
        seq_print!(out, "memory_managed_bytes: {}\n", share.managed);
        seq_print!(out, "memory_managed_peak_bytes: {}\n", share.managed_peak);
        seq_print!(out, "memory_spilled_bytes: {}\n", share.spilled);
        seq_print!(out, "managed_refused: {}\n", share.managed_refused);
        seq_print!(out, "memory_refused: {}\n", share.refused);
        seq_print!(out, "calls_refused: {}\n", share.refused_calls);
        let capabilities = Printed(&usage.capabilities);
        seq_print!(out, "capabilities: {capabilities}\n");
        seq_print!(out, "rm_objects: {}\n", share.objects);
        seq_print!(out, "rm_clients: {}\n", share.clients);
        seq_print!(out, "processes: {}\n", usage.processes);
        seq_print!(out, "open_files: {}\n", usage.open_files);
        seq_print!(out, "tenant_open_files: {}\n", usage.tenant_open_files);
        if let Some(served) = instance.served() {
            let account = served.account;
            seq_print!(
                out,
                "compute_suspended: {}\n",
                u8::from(served.terms.suspended)
            );
            seq_print!(
                out,
                "compute_high_priority: {}\n",
                u8::from(served.terms.high_priority)
            );
            seq_print!(out, "compute_working: {}\n", u8::from(served.working));
            seq_print!(out, "compute_given_ns: {}\n", account.gpu_time);
            seq_print!(out, "compute_windows: {}\n", account.windows);
            seq_print!(out, "compute_preemptions: {}\n", account.preemptions);
            seq_print!(out, "compute_parked_ns: {}\n", account.blocked);
        }
        let gate = instance.gate();
        seq_print!(out, "compute_shut: {}\n", u8::from(gate.is_shut()));
        seq_print!(out, "compute_parked_tasks: {}\n", gate.parked());
        seq_print!(out, "compute_parkings: {}\n", gate.parkings());
        seq_print!(out, "node: {}:{}\n", nodes.own.major, nodes.own.minor);
        seq_print!(
            out,
            "control_node: {}:{}\n",
            nodes.control.major,
            nodes.control.minor
        );
        seq_print!(out, "uvm_node: {}:{}\n", nodes.uvm.major, nodes.uvm.minor);
        Ok(())
    }
}
