// SPDX-License-Identifier: GPL-2.0 OR MIT
//! `inst create`: an instance on one GPU, or one on each of several, all or none.

use super::{effect, target};
use crate::{
    args::{managed_modes, name, size, weight},
    capabilities::Capabilities,
    cdi,
    control::Control,
    error::{gpus, Facts, Failure, Problem},
    host::Host,
    json::{device_path, InstanceId},
    output::Report,
    selector::Selector,
    size::{Amount, Bytes},
    text::table,
    verb::Verb,
};
use cgpu_uapi::{
    Gpu, InstanceCreate, InstanceKey, InstanceSetLimit, Limited, ManagedMode, Name, CGPUFS_MOUNT,
    FLAG_OVERCOMMIT, WEIGHT_DEFAULT,
};
use clap::Args;
use nix::errno::Errno;
use serde::Serialize;
use std::path::Path;
use zerocopy::FromZeros;

const EXAMPLES: &str = "\
Examples:
  cgpuctl inst create train --gpu 0 --mem 24GiB --weight 30
  cgpuctl inst create pair --gpu 0,1 --mem 25%";

/// Make an instance on one GPU or, as one tenant, on several.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct InstCreate {
    /// Name of the instance: 1 to 63 letters, digits, dots, underscores, hyphens.
    #[arg(value_parser = name)]
    name: Name,
    /// GPU, by minor number, nvidia-smi's index (index:0), UUID or PCI address, or all; several
    /// make one tenant.
    #[arg(
        long = "gpu",
        value_name = "GPU",
        required = true,
        value_delimiter = ','
    )]
    gpus: Vec<Selector>,
    #[command(flatten)]
    terms: Terms,
}

/// The terms of a new instance.
#[derive(Args)]
pub(crate) struct Terms {
    /// Memory limit on each of the GPUs, like 8GiB, 500MB or 50% of it.
    #[arg(long, value_name = "SIZE")]
    mem: Amount,
    /// Share of the compute, relative to the other instances' weights. It has an effect under the
    /// policies weight, fixed and weight-lazy (`cgpuctl gpu set`), and none under native.
    #[arg(long, value_name = "1-100", default_value_t = WEIGHT_DEFAULT, value_parser = weight())]
    weight: u32,
    /// Let the limits on a GPU add up to more than its memory.
    #[arg(long)]
    overcommit: bool,
    /// Mode of managed memory (cudaMallocManaged) that does not fit.
    #[arg(
        long,
        value_name = "MODE",
        value_parser = managed_modes(),
        default_value = ManagedMode::Spill.name()
    )]
    managed: ManagedMode,
    /// Sets of calls that it may make: compute, utility, graphics, video, profiling, rdma.
    #[arg(
        long = "capabilities",
        alias = "caps",
        value_name = "SET,…",
        default_value = "compute,utility"
    )]
    caps: Capabilities,
    /// Limit of the host's memory that the driver holds for it, on each of the GPUs. The default is
    /// proportional to the instance's share of the GPU's memory.
    #[arg(long, value_name = "SIZE|default", value_parser = size)]
    pub(crate) host_mem: Option<u64>,
}

#[derive(Serialize)]
struct CreateMembers {
    instances: Vec<CreatedInstance>,
    warnings: Vec<String>,
}

#[derive(Serialize)]
struct CreatedInstance {
    #[serde(flatten)]
    id: InstanceId,
    weight: u32,
    memory_limit_bytes: u64,
    managed_mode: &'static str,
}

impl Verb for InstCreate {
    fn attempt(&self) -> String {
        format!("create {}", target::called(&self.name))
    }

    fn run(&self, host: &dyn Host) -> Result<Report, Failure> {
        let control = target::open(host)?;
        let gpus = control.gpus()?;
        let minors = target::select(&gpus, &self.gpus)?;
        // First, so that an instance that was made can be given to a container.
        let mounted = host.mount_cgpufs()?;
        let requests = self.terms.requests(self.name, &minors, &gpus);
        let made = create_all(&*control, requests, self.terms.host_mem).inspect_err(|_| {
            if mounted {
                // The failure to report is the other one; a mount left over does no harm.
                let _ = host.unmount_cgpufs(Path::new(CGPUFS_MOUNT));
                host.remove_mount_point();
            }
        })?;
        let mut warnings = self.terms.warnings(&*control, &minors, &gpus)?;
        warnings.extend(name_without_device(&self.name));
        Ok(report(warnings, &made)?)
    }
}

impl Terms {
    /// The limit on a GPU.
    fn limit(&self, minor: u32, gpus: &[Gpu]) -> Bytes {
        let gpu = gpus.iter().find(|gpu| gpu.minor == minor);
        self.mem.of(gpu.map_or(0, |gpu| gpu.memory_bytes))
    }

    /// The requests for a tenant on these GPUs.
    pub(crate) fn requests(&self, name: Name, minors: &[u32], gpus: &[Gpu]) -> Vec<InstanceCreate> {
        let requests = minors.iter().map(|&minor| {
            let key = InstanceKey::new(name, minor);
            let mut request = request(key, self.limit(minor, gpus), self.weight);
            request.managed_mode = self.managed.number();
            request.capabilities = self.caps.0;
            request.flags = flags(self.overcommit);
            request
        });
        requests.collect()
    }

    /// Warnings about effects of these terms that people do not expect.
    pub(crate) fn warnings(
        &self,
        control: &dyn Control,
        minors: &[u32],
        gpus: &[Gpu],
    ) -> Result<Vec<String>, Problem> {
        let small = minors
            .iter()
            .filter_map(|&minor| effect::small_limit(self.limit(minor, gpus)));
        let mut warnings: Vec<String> = small.collect();
        warnings.dedup();
        let gpus = control.gpu_compute()?;
        let used = gpus.iter().filter(|gpu| minors.contains(&gpu.minor));
        let effect = |gpu| effect::of_new_weight(gpu, self.weight, "`--weight`");
        warnings.extend(used.filter_map(effect));
        Ok(warnings)
    }
}

/// The warning about a name that CDI does not know.
pub(crate) fn name_without_device(name: &Name) -> Option<String> {
    let name = name.as_str().filter(|name| !cdi::is_name(name))?;
    Some(format!(
        "there is no CDI device for {name:?}: a CDI name ends in a letter or a digit"
    ))
}

/// The flags of a request that sets a limit.
pub(crate) fn flags(overcommit: bool) -> u32 {
    if overcommit {
        FLAG_OVERCOMMIT
    } else {
        0
    }
}

/// The request for an instance.
pub(crate) fn request(key: InstanceKey, limit: Bytes, weight: u32) -> InstanceCreate {
    let mut request = InstanceCreate::new_zeroed();
    request.key = key;
    request.memory_limit_bytes = limit.0;
    request.weight = weight;
    request
}

/// Makes the instances in turn, with this limit of the host's memory, where one is given. When one
/// fails, those before it are removed again.
pub(crate) fn create_all(
    control: &dyn Control,
    requests: Vec<InstanceCreate>,
    host_mem: Option<u64>,
) -> Result<Vec<InstanceCreate>, Failure> {
    let mut made: Vec<InstanceCreate> = Vec::new();
    for mut request in requests {
        let (name, minor) = (request.key.name, request.key.gpu_minor);
        let mut done = control.create(&mut request);
        if let (Ok(()), Some(limit)) = (done, host_mem) {
            done = set_host_mem(control, request.key, limit);
            if done.is_err() {
                made.push(request);
            }
        }
        if let Err(errno) = done {
            let facts = Facts::about(control, &name, Some(minor));
            let attempt = format!("create {} on GPU {minor}", target::called(&name));
            let mut failure = Problem::explain(errno, &facts).when(attempt);
            failure.aftermath = undo(control, &made);
            return Err(failure);
        }
        made.push(request);
    }
    Ok(made)
}

/// Limits the host's memory that the driver holds for a new instance.
fn set_host_mem(control: &dyn Control, key: InstanceKey, limit: u64) -> Result<(), Errno> {
    let mut request = InstanceSetLimit::new_zeroed();
    request.key = key;
    request.what = Limited::HostMemory.number();
    request.limit = limit;
    control.set_limit(&request)
}

/// Removes what was made, and says what became of it.
fn undo(control: &dyn Control, made: &[InstanceCreate]) -> Option<String> {
    let (removed, kept): (Vec<_>, Vec<_>) = made
        .iter()
        .rev()
        .map(|request| &request.key)
        .partition(|key| control.destroy(key).is_ok());
    let minors = |keys: Vec<&InstanceKey>| {
        let mut minors: Vec<_> = keys.iter().map(|key| key.gpu_minor).collect();
        minors.sort_unstable();
        gpus(&minors)
    };
    match (removed.is_empty(), kept.is_empty()) {
        (true, true) => None,
        (_, true) => Some(format!(
            "; what this command had made on {} was removed again",
            minors(removed)
        )),
        _ => Some(format!(
            "; what this command had made on {} could not be removed again",
            minors(kept)
        )),
    }
}

fn report(warnings: Vec<String>, made: &[InstanceCreate]) -> Result<Report, Problem> {
    let members = CreateMembers {
        instances: made
            .iter()
            .map(|request| CreatedInstance {
                id: InstanceId::new(&request.key, request.id),
                weight: request.weight,
                memory_limit_bytes: request.memory_limit_bytes,
                managed_mode: ManagedMode::name_of(request.managed_mode),
            })
            .collect(),
        warnings: warnings.clone(),
    };
    let rows = made.iter().map(|request| {
        [
            request.key.name.as_str().unwrap_or_default().to_owned(),
            request.key.gpu_minor.to_string(),
            device_path(request.id),
            Bytes(request.memory_limit_bytes).to_string(),
            request.weight.to_string(),
        ]
    });
    let text = table(["NAME", "GPU", "DEVICE", "LIMIT", "WEIGHT"], rows);
    Ok(Report::new(members, text)?.warn(warnings))
}
