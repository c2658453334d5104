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
    text::{lines, list_table, Column, Shown},
    verb::Verb,
};
use cgpu_uapi::Instance;
use clap::Args;

/// List all instances.
#[derive(Args)]
#[command(after_help = "Examples:\n  cgpuctl inst list -o wide")]
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
            Some(Form::Wide) => any_table(&instances, Shown::Wide),
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

/// Memory that counts against the limit, which `nvidia-smi` shows in the container.
pub(crate) fn charged(i: &Instance) -> Bytes {
    Bytes(json::charged(i))
}

/// The instances, for people: what matters most, in 80 columns.
pub(crate) fn instance_table(instances: &[Instance]) -> String {
    any_table(instances, Shown::Narrow)
}

fn any_table(instances: &[Instance], width: Shown) -> String {
    if instances.is_empty() {
        return "No instances.\n".to_owned();
    }
    list_table(&COLUMNS, width, instances)
}

const fn column(
    head: &'static str,
    shown: Shown,
    cell: fn(&Instance) -> String,
) -> Column<Instance> {
    Column { head, shown, cell }
}

/// The columns of a list of instances; a wide one has the parts of their memory, too.
const COLUMNS: [Column<Instance>; 16] = [
    column("NAME", Shown::Always, |i| {
        i.key.name.as_str().unwrap_or_default().to_owned()
    }),
    column("GPU", Shown::Always, |i| i.key.gpu_minor.to_string()),
    column("DEVICE", Shown::Always, |i| device_path(i.id)),
    column("USED", Shown::Always, |i| charged(i).to_string()),
    column("LIMIT", Shown::Always, |i| bytes(i.memory_limit_bytes)),
    column("OBJECTS", Shown::Wide, |i| bytes(i.memory_used_bytes)),
    column("CONTEXTS", Shown::Wide, |i| bytes(i.memory_overhead_bytes)),
    column("MANAGED", Shown::Wide, |i| bytes(i.memory_managed_bytes)),
    column("SPILLED", Shown::Wide, |i| bytes(i.memory_spilled_bytes)),
    column("OBJECTS PEAK", Shown::Wide, |i| bytes(i.memory_peak_bytes)),
    column("REFUSED MEM", Shown::Always, |i| {
        i.memory_refused.to_string()
    }),
    column("REFUSED CALLS", Shown::Wide, |i| {
        i.calls_refused.to_string()
    }),
    column("WEIGHT", Shown::Always, |i| i.weight.to_string()),
    column("PROCESSES", Shown::Always, |i| i.processes.to_string()),
    column("CHANNELS", Shown::Wide, |i| {
        format!("{}/{}", i.channels, i.channel_limit)
    }),
    column("CAPABILITIES", Shown::Wide, |i| {
        Capabilities(i.capabilities).to_string()
    }),
];

fn bytes(bytes: u64) -> String {
    Bytes(bytes).to_string()
}
