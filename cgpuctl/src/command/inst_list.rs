// SPDX-License-Identifier: GPL-2.0 OR MIT
//! `inst list`.

use super::target;
use crate::{
    args::{Form, Listing},
    capabilities::Capabilities,
    control::Control,
    error::{Failure, Problem},
    host::Host,
    json::{self, device_path},
    output::Report,
    size::Bytes,
    text::{lines, table},
    verb::Verb,
};
use cgpu_uapi::Instance;
use clap::Args;

/// List all instances.
#[derive(Args)]
pub(crate) struct InstList {
    #[command(flatten)]
    listing: Listing,
}

impl Verb for InstList {
    fn attempt(&self) -> String {
        "list the instances".to_owned()
    }

    fn run(&self, host: &dyn Host) -> Result<Report, Failure> {
        let instances = all(&*target::open(host)?)?;
        let members = json::Instances::from(&instances[..]);
        let text = match self.listing.format() {
            Some(Form::Name) => names(&instances),
            Some(Form::Wide) => wide_table(&instances),
            Some(Form::Json) | None => instance_table(&instances),
        };
        Ok(Report::new(members, text)?)
    }

    fn wants_json(&self) -> bool {
        self.listing.is_json()
    }
}

/// Each name once, although a tenant has an instance on each of its GPUs.
fn names(instances: &[Instance]) -> String {
    let mut names: Vec<_> = instances
        .iter()
        .filter_map(|i| i.key.name.as_str())
        .collect();
    names.dedup();
    lines(names)
}

/// All instances, by name and GPU.
pub(crate) fn all(control: &dyn Control) -> Result<Vec<Instance>, Problem> {
    let mut instances = control.instances()?;
    instances.sort_by_key(|i| (i.key.name.0, i.key.gpu_minor));
    Ok(instances)
}

/// What counts against the limit, which is what `nvidia-smi` shows in the container.
pub(crate) fn charged(i: &Instance) -> Bytes {
    let parts = [
        i.memory_used_bytes,
        i.memory_overhead_bytes,
        i.memory_managed_bytes,
    ];
    Bytes(parts.into_iter().fold(0, u64::saturating_add))
}

/// The instances, for people: what matters most, in 80 columns.
pub(crate) fn instance_table(instances: &[Instance]) -> String {
    if instances.is_empty() {
        return NONE.to_owned();
    }
    let rows = instances.iter().map(|i| {
        [
            i.key.name.as_str().unwrap_or_default().to_owned(),
            i.key.gpu_minor.to_string(),
            device_path(i.id),
            charged(i).to_string(),
            Bytes(i.memory_limit_bytes).to_string(),
            i.memory_refused.to_string(),
            i.weight.to_string(),
            i.processes.to_string(),
        ]
    });
    let head = [
        "NAME",
        "GPU",
        "DEVICE",
        "USED",
        "LIMIT",
        "REFUSED",
        "WEIGHT",
        "PROCESSES",
    ];
    table(head, rows)
}

const NONE: &str = "No instances.\n";

/// The instances with what their memory is made of.
fn wide_table(instances: &[Instance]) -> String {
    if instances.is_empty() {
        return NONE.to_owned();
    }
    let rows = instances.iter().map(|i| {
        [
            i.key.name.as_str().unwrap_or_default().to_owned(),
            i.key.gpu_minor.to_string(),
            device_path(i.id),
            charged(i).to_string(),
            Bytes(i.memory_limit_bytes).to_string(),
            Bytes(i.memory_used_bytes).to_string(),
            Bytes(i.memory_overhead_bytes).to_string(),
            Bytes(i.memory_managed_bytes).to_string(),
            Bytes(i.memory_spilled_bytes).to_string(),
            Bytes(i.memory_peak_bytes).to_string(),
            i.memory_refused.to_string(),
            i.weight.to_string(),
            i.processes.to_string(),
            format!("{}/{}", i.channels, i.channel_limit),
            Capabilities(i.capabilities).to_string(),
        ]
    });
    let head = [
        "NAME",
        "GPU",
        "DEVICE",
        "USED",
        "LIMIT",
        "OBJECTS",
        "CONTEXTS",
        "MANAGED",
        "SPILLED",
        "PEAK",
        "REFUSED",
        "WEIGHT",
        "PROCESSES",
        "CHANNELS",
        "CAPABILITIES",
    ];
    table(head, rows)
}
