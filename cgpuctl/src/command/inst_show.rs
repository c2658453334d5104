// SPDX-License-Identifier: GPL-2.0 OR MIT
//! `inst show`: everything about an instance, on each GPU that has one of this name.

use super::{inst_list::charged, inst_refused, target};
use crate::{
    args::name,
    capabilities::Capabilities,
    error::{Failure, Problem},
    host::Host,
    json::{self, device_path},
    output::Report,
    selector::Selector,
    size::Bytes,
    text::pairs,
    verb::Verb,
};
use cgpu_uapi::{Instance, InstanceLimit, Limited, ManagedMode, Name};
use clap::Args;
use serde::Serialize;

/// Show everything about an instance.
#[derive(Args)]
#[command(after_help = "Examples:\n  cgpuctl inst show train --refused")]
pub(crate) struct InstShow {
    /// Name of the instance.
    #[arg(value_parser = name)]
    name: Name,
    /// Only on this GPU, named as `inst create` takes it; all GPUs with this name if left out.
    #[arg(long = "gpu", value_name = "GPU", value_delimiter = ',')]
    gpus: Vec<Selector>,
    /// Show instead which calls were refused, how often, and which capabilities would allow them.
    #[arg(long)]
    refused: bool,
}

impl Verb for InstShow {
    fn attempt(&self) -> String {
        let which = target::called(&self.name);
        if self.refused {
            format!("show what {which} was refused")
        } else {
            format!("show {which}")
        }
    }

    fn run(&self, host: &dyn Host) -> Result<Report, Failure> {
        let control = target::open(host)?;
        let instances = target::tenant_on(&*control, &self.name, &self.gpus)?;
        if self.refused {
            return Ok(inst_refused::report(&*control, instances)?);
        }
        let mut members = ShowMembers { instances: vec![] };
        let mut text = Vec::new();
        for instance in &instances {
            let limits = control.limits(&instance.key).map_err(Problem::from)?;
            text.push(block(instance, &limits));
            members.instances.push(ShownInstance {
                instance: instance.into(),
                limits: limits.iter().map(json::LimitReport::from).collect(),
            });
        }
        Ok(Report::new(members, text.join("\n"))?)
    }
}

#[derive(Serialize)]
struct ShowMembers {
    instances: Vec<ShownInstance>,
}

#[derive(Serialize)]
struct ShownInstance {
    #[serde(flatten)]
    instance: json::Instance,
    limits: Vec<json::LimitReport>,
}

fn block(i: &Instance, limits: &[InstanceLimit]) -> String {
    let limits = limits.iter().map(|l| {
        let amount = |amount| match Limited::from_number(l.what) {
            Some(Limited::Bar1 | Limited::HostMemory) => Bytes(amount).to_string(),
            _ => amount.to_string(),
        };
        let (used, limit) = (amount(l.used), amount(l.limit));
        let said = format!("{used} of {limit}, {} refused", l.refused);
        (Limited::name_of(l.what), said)
    });
    let mut rows = vec![
        ("name", i.key.name.as_str().unwrap_or_default().to_owned()),
        ("GPU", i.key.gpu_minor.to_string()),
        ("device", device_path(i.id)),
        ("weight", i.weight.to_string()),
        ("capabilities", Capabilities(i.capabilities).to_string()),
        ("memory limit", Bytes(i.memory_limit_bytes).to_string()),
        ("  used", charged(i).to_string()),
        ("    objects", Bytes(i.memory_used_bytes).to_string()),
        ("    contexts", Bytes(i.memory_overhead_bytes).to_string()),
        ("    managed", Bytes(i.memory_managed_bytes).to_string()),
        ("  reserved", Bytes(i.memory_reserved_bytes).to_string()),
        ("  objects peak", Bytes(i.memory_peak_bytes).to_string()),
        (
            "managed memory",
            format!(
                "{}, {} spilled to the host, {} refused",
                ManagedMode::name_of(i.managed_mode),
                Bytes(i.memory_spilled_bytes),
                i.managed_refused
            ),
        ),
        (
            "channels",
            format!(
                "{} of {} on a runlist, {} refused",
                i.channels, i.channel_limit, i.channels_refused
            ),
        ),
        ("refused memory", i.memory_refused.to_string()),
        ("refused calls", i.calls_refused.to_string()),
        (
            "open files",
            format!(
                "{} of the GPU, {} of the tenant's control and UVM",
                i.open_files, i.tenant_open_files
            ),
        ),
        ("processes", i.processes.to_string()),
    ];
    rows.extend(limits);
    pairs(&rows)
}
