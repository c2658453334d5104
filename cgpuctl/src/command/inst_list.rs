// SPDX-License-Identifier: GPL-2.0 OR MIT
//! `inst list`.

use super::target;
use crate::{
    control::Control,
    error::{Failure, Problem},
    host::Host,
    json::{self, device_path},
    output::Report,
    size::Bytes,
    text::table,
    verb::Verb,
};
use cgpu_uapi::Instance;
use clap::Args;

/// List all instances.
#[derive(Args)]
pub(crate) struct InstList;

impl Verb for InstList {
    fn attempt(&self) -> String {
        "list the instances".to_owned()
    }

    fn run(&self, host: &dyn Host) -> Result<Report, Failure> {
        let instances = all(&*target::open(host)?)?;
        let members = json::Instances::from(&instances[..]);
        Ok(Report::new(members, instance_table(&instances))?)
    }
}

/// All instances, by name and GPU.
pub(crate) fn all(control: &dyn Control) -> Result<Vec<Instance>, Problem> {
    let mut instances = control.instances()?;
    instances.sort_by_key(|i| (i.key.name.0, i.key.gpu_minor));
    Ok(instances)
}

/// The instances, for people.
pub(crate) fn instance_table(instances: &[Instance]) -> String {
    if instances.is_empty() {
        return "No instances.\n".to_owned();
    }
    let rows = instances.iter().map(|i| {
        [
            i.key.name.as_str().unwrap_or_default().to_owned(),
            i.key.gpu_minor.to_string(),
            device_path(i.id),
            Bytes(i.memory_limit_bytes).to_string(),
            Bytes(i.memory_used_bytes).to_string(),
            Bytes(i.memory_peak_bytes).to_string(),
            Bytes(i.memory_managed_bytes).to_string(),
            Bytes(i.memory_spilled_bytes).to_string(),
            i.memory_refused.to_string(),
            i.weight.to_string(),
            i.processes.to_string(),
        ]
    });
    table(
        [
            "NAME",
            "GPU",
            "DEVICE",
            "LIMIT",
            "USED",
            "PEAK",
            "MANAGED",
            "SPILLED",
            "REFUSED",
            "WEIGHT",
            "PROCESSES",
        ],
        rows,
    )
}
