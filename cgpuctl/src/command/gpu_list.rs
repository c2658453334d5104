// SPDX-License-Identifier: GPL-2.0 OR MIT
//! `gpu list`.

use super::target;
use crate::{
    args::{Form, Listing},
    error::Failure,
    host::Host,
    json::{self, known},
    output::Report,
    selector::index,
    size::Bytes,
    text::{lines, table},
    verb::Verb,
};
use cgpu_uapi::{text, Gpu, Policy};
use clap::Args;
use serde::Serialize;

/// List the GPUs: what they have and what of it is given out.
#[derive(Args)]
pub(crate) struct GpuList {
    #[command(flatten)]
    listing: Listing,
}

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
        let text = match self.listing.format() {
            Some(Form::Name) => lines(gpus.iter().map(|gpu| gpu.minor.to_string())),
            Some(Form::Wide) => wide_table(&gpus),
            Some(Form::Json) | None => gpu_table(&gpus),
        };
        Ok(Report::new(members, text)?)
    }

    fn wants_json(&self) -> bool {
        self.listing.is_json()
    }
}

const NONE: &str = "No GPUs.\n";

/// The GPUs, for people: what matters most.
pub(crate) fn gpu_table(gpus: &[Gpu]) -> String {
    if gpus.is_empty() {
        return NONE.to_owned();
    }
    let rows = gpus.iter().map(|gpu| {
        [
            gpu.minor.to_string(),
            known(&gpu.name).unwrap_or_else(|| "-".to_owned()),
            text(&gpu.pci).to_owned(),
            Bytes(gpu.memory_bytes).to_string(),
            Bytes(gpu.allotted_bytes).to_string(),
            Bytes(gpu.used_bytes).to_string(),
            gpu.instances.to_string(),
            policy(gpu),
        ]
    });
    let head = [
        "GPU",
        "NAME",
        "PCI",
        "MEMORY",
        "GIVEN OUT",
        "USED",
        "INSTANCES",
        "POLICY",
    ];
    table(head, rows)
}

fn policy(gpu: &Gpu) -> String {
    format!("{} {}", gpu.policy, Policy::name_of(gpu.policy))
}

/// The GPUs with all their names.
fn wide_table(gpus: &[Gpu]) -> String {
    if gpus.is_empty() {
        return NONE.to_owned();
    }
    let rows = gpus.iter().map(|gpu| {
        [
            gpu.minor.to_string(),
            index(gpus, gpu).to_string(),
            known(&gpu.name).unwrap_or_else(|| "-".to_owned()),
            text(&gpu.pci).to_owned(),
            text(&gpu.uuid).to_owned(),
            Bytes(gpu.memory_bytes).to_string(),
            Bytes(gpu.allotted_bytes).to_string(),
            Bytes(gpu.used_bytes).to_string(),
            format!("{} of {}", gpu.instances, gpu.max_instances),
            policy(gpu),
        ]
    });
    let head = [
        "GPU",
        "INDEX",
        "NAME",
        "PCI",
        "UUID",
        "MEMORY",
        "GIVEN OUT",
        "USED",
        "INSTANCES",
        "POLICY",
    ];
    table(head, rows)
}
