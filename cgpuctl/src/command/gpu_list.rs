// SPDX-License-Identifier: GPL-2.0 OR MIT
//! `gpu list`.

use super::target;
use crate::{
    error::Failure,
    host::Host,
    json::{self, known},
    output::Report,
    size::Bytes,
    text::table,
    verb::Verb,
};
use cgpu_uapi::{text, Gpu, Policy};
use clap::Args;
use serde::Serialize;

/// List the GPUs: what they have and what of it is given out.
#[derive(Args)]
pub(crate) struct GpuList;

#[derive(Serialize)]
struct GpuListMembers {
    gpus: Vec<json::Gpu>,
}

impl Verb for GpuList {
    fn attempt(&self) -> String {
        "list the GPUs".to_owned()
    }

    fn run(&self, host: &dyn Host) -> Result<Report, Failure> {
        let gpus = target::open(host)?.gpus()?;
        let members = GpuListMembers {
            gpus: gpus.iter().map(json::Gpu::from).collect(),
        };
        Ok(Report::new(members, gpu_table(&gpus))?)
    }
}

/// The GPUs, for people.
pub(crate) fn gpu_table(gpus: &[Gpu]) -> String {
    if gpus.is_empty() {
        return "No GPUs.\n".to_owned();
    }
    let rows = gpus.iter().map(|gpu| {
        [
            gpu.minor.to_string(),
            known(&gpu.name).unwrap_or_else(|| "-".to_owned()),
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
