// SPDX-License-Identifier: GPL-2.0 OR MIT
//! `gpu list`.

use super::open;
use crate::control::Host;
use crate::error::{Facts, Failure, Problem};
use crate::json;
use crate::output::{table, Report};
use crate::size::Bytes;
use cgpu_uapi::{text, Gpu, Policy};

pub(super) fn run(host: &dyn Host) -> Result<Report, Failure> {
    report(host).map_err(|problem| problem.when("list the GPUs"))
}

fn report(host: &dyn Host) -> Result<Report, Problem> {
    let gpus = open(host)?
        .gpus()
        .map_err(|errno| Problem::explain(errno, &Facts::default()))?;
    let body = json::Gpus {
        gpus: gpus.iter().map(json::Gpu::from).collect(),
    };
    Report::new(body, gpu_table(&gpus))
}

/// The GPUs, for people.
pub(super) fn gpu_table(gpus: &[Gpu]) -> String {
    if gpus.is_empty() {
        return "No GPUs.\n".to_owned();
    }
    let rows = gpus.iter().map(|gpu| {
        [
            gpu.minor.to_string(),
            json::known(&gpu.name).unwrap_or_else(|| "-".to_owned()),
            text(&gpu.pci).to_owned(),
            text(&gpu.uuid).to_owned(),
            Bytes(gpu.memory_bytes).to_string(),
            Bytes(gpu.allotted_bytes).to_string(),
            Bytes(gpu.used_bytes).to_string(),
            gpu.instances.to_string(),
            format!("{} {}", gpu.policy, Policy::name_of(gpu.policy)),
        ]
    });
    table(
        [
            "GPU",
            "NAME",
            "PCI",
            "UUID",
            "MEMORY",
            "GIVEN OUT",
            "USED",
            "INSTANCES",
            "POLICY",
        ],
        rows,
    )
}
