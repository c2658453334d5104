// SPDX-License-Identifier: GPL-2.0
//! `/proc/cgpu_km`: what there is and how it is used, in the formats that cGPU's users know.
//!
//! ```text
//! version                the module's version
//! <minor>/policy         number of the compute policy                      written by root
//! <minor>/max_inst       instances among which the fair policy divides     written by root
//! <minor>/free_weight    what the weights leave of 100
//! <minor>/NAME/id        instance number, N of /dev/cgpuN
//! <minor>/NAME/memsize   memory limit, bytes                               written by root
//! <minor>/NAME/meminfo   "Free: BYTES", then "PID: PID Mem: BYTES" for each process
//! <minor>/NAME/weight    1 to 100                                          written by root
//! <minor>/NAME/suspended 1: kept off the GPU, else 0                       written by root
//! <minor>/NAME/status    everything else, one "key: value" a line
//! ```
//!
//! `<minor>` is the GPU's, `N` of `/dev/nvidiaN`. A container's `/proc` shows the names, but opening
//! a file fails there (see `os_interface/procfs.rs`).
//!
//! The files take a GPU's and a tenant's lock and never the registry's, under which they are removed:
//! the removal waits for them.

use crate::{
    os_interface::{
        procfs::{Access, Folder, TextFile},
        Printed,
    },
    policy::{sched::Policy, ManagedMode},
    registry::{Gpu, Instance, Overcommit, VERSION},
    uapi,
};
use core::{num::IntErrorKind, str::FromStr};
use kernel::{prelude::*, seq_file::SeqFile, seq_print, str::CString, sync::Arc};

/// Makes `/proc/cgpu_km`.
pub fn root() -> Result<Folder> {
    let mut folder = Folder::new(None, c"cgpu_km")?;
    folder.add(c"version", Access::Read, Version)?;
    Ok(folder)
}

/// Makes the folder of a GPU.
pub fn gpu_folder(root: &Arc<Folder>, gpu: &Arc<Gpu>) -> Result<Folder> {
    let name = CString::try_from_fmt(fmt!("{}", gpu.facts().minor))?;
    let mut folder = Folder::new(Some(root), &name)?;
    folder.add(c"policy", Access::ReadWrite, Compute(gpu.clone()))?;
    folder.add(c"max_inst", Access::ReadWrite, MaxInstances(gpu.clone()))?;
    folder.add(c"free_weight", Access::Read, FreeWeight(gpu.clone()))?;
    Ok(folder)
}

/// Makes the folder of an instance in that of its GPU.
pub fn instance_folder(gpu: &Arc<Folder>, instance: &Arc<Instance>) -> Result<Folder> {
    let name = instance.tenant().name().as_str().ok_or(EINVAL)?;
    let name = CString::try_from_fmt(fmt!("{name}"))?;
    let mut folder = Folder::new(Some(gpu), &name)?;
    folder.add(c"id", Access::Read, Id(instance.clone()))?;
    folder.add(c"memsize", Access::ReadWrite, MemSize(instance.clone()))?;
    folder.add(c"meminfo", Access::Read, MemInfo(instance.clone()))?;
    folder.add(c"weight", Access::ReadWrite, Weight(instance.clone()))?;
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

/// The kernel crate lacks this errno (asm-generic/errno.h).
const EOPNOTSUPP: i32 = 95;

struct Version;

impl TextFile for Version {
    fn show(&self, out: &SeqFile) -> Result {
        seq_print!(out, "{VERSION}\n");
        Ok(())
    }
}

/// The compute policy, by number.
struct Compute(Arc<Gpu>);

impl TextFile for Compute {
    fn show(&self, out: &SeqFile) -> Result {
        seq_print!(out, "{}\n", self.0.policy().number());
        Ok(())
    }

    fn store(&self, text: &str) -> Result {
        let policy = Policy::from_number(number(text)?);
        // EOPNOTSUPP: there is no such policy.
        self.0
            .set_policy(policy.ok_or(Error::from_errno(-EOPNOTSUPP))?)?;
        Ok(())
    }
}

struct MaxInstances(Arc<Gpu>);

impl TextFile for MaxInstances {
    fn show(&self, out: &SeqFile) -> Result {
        seq_print!(out, "{}\n", self.0.max_instances());
        Ok(())
    }

    fn store(&self, text: &str) -> Result {
        self.0.set_max_instances(number(text)?)?;
        Ok(())
    }
}

struct FreeWeight(Arc<Gpu>);

impl TextFile for FreeWeight {
    fn show(&self, out: &SeqFile) -> Result {
        seq_print!(out, "{}\n", self.0.free_weight());
        Ok(())
    }
}

struct Id(Arc<Instance>);

impl TextFile for Id {
    fn show(&self, out: &SeqFile) -> Result {
        seq_print!(out, "{}\n", self.0.id());
        Ok(())
    }
}

struct MemSize(Arc<Instance>);

impl TextFile for MemSize {
    fn show(&self, out: &SeqFile) -> Result {
        let usage = self.0.usage().ok_or(ENODEV)?;
        seq_print!(out, "{}\n", usage.share.limit);
        Ok(())
    }

    fn store(&self, text: &str) -> Result {
        self.0.set_limit(number(text)?, Overcommit::Refused)?;
        Ok(())
    }
}

struct MemInfo(Arc<Instance>);

impl TextFile for MemInfo {
    fn show(&self, out: &SeqFile) -> Result {
        let shown = self.0.memory(
            |free| seq_print!(out, "Free: {free}\n"),
            |process, bytes| seq_print!(out, "PID: {} Mem: {bytes}\n", process.0),
        );
        shown.ok_or(ENODEV)
    }
}

struct Weight(Arc<Instance>);

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

struct Suspended(Arc<Instance>);

impl TextFile for Suspended {
    fn show(&self, out: &SeqFile) -> Result {
        let served = self.0.served().ok_or(ENODEV)?;
        seq_print!(out, "{}\n", u8::from(served.terms.suspended));
        Ok(())
    }

    fn store(&self, text: &str) -> Result {
        let suspended = match number::<u32>(text)? {
            0 => false,
            1 => true,
            _ => return Err(ERANGE),
        };
        self.0.set_suspended(suspended)?;
        Ok(())
    }
}

struct Status(Arc<Instance>);

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
        let mode = match share.managed_mode {
            ManagedMode::Spill => "spill",
            ManagedMode::Charge => "charge",
            ManagedMode::Deny => "deny",
        };
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
            seq_print!(out, "compute_working: {}\n", u8::from(served.working));
            seq_print!(out, "compute_given_ns: {}\n", account.given);
            seq_print!(out, "compute_windows: {}\n", account.windows);
            seq_print!(out, "compute_preemptions: {}\n", account.preemptions);
            seq_print!(out, "compute_parked_ns: {}\n", account.parked);
        }
        let gate = instance.gate();
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
