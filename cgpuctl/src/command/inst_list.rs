// SPDX-License-Identifier: GPL-2.0 OR MIT
//! `inst list`.

use super::open;
use crate::control::{Control, Host};
use crate::error::{Facts, Failure, Problem};
use crate::json;
use crate::output::{table, Report};
use crate::size::Bytes;
use cgpu_uapi::Instance;

pub(super) fn run(host: &dyn Host) -> Result<Report, Failure> {
    report(host).map_err(|problem| problem.when("list the instances"))
}

fn report(host: &dyn Host) -> Result<Report, Problem> {
    let instances = all(&*open(host)?)?;
    let body = json::Instances {
        instances: instances.iter().map(json::Instance::from).collect(),
    };
    Report::new(body, instance_table(&instances))
}

/// All instances, by name and GPU.
pub(super) fn all(control: &dyn Control) -> Result<Vec<Instance>, Problem> {
    let mut instances = control
        .instances()
        .map_err(|errno| Problem::explain(errno, &Facts::default()))?;
    instances.sort_by_key(|i| (i.key.name.0, i.key.gpu_minor));
    Ok(instances)
}

/// The instances, for people.
pub(super) fn instance_table(instances: &[Instance]) -> String {
    if instances.is_empty() {
        return "No instances.\n".to_owned();
    }
    let rows = instances.iter().map(|i| {
        [
            i.key.name.as_str().unwrap_or_default().to_owned(),
            i.key.gpu_minor.to_string(),
            json::device_path(i.id),
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
