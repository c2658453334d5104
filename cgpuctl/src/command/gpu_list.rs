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
    text::{lines, list_table, Column, Shown},
    verb::Verb,
};
use cgpu_uapi::{text, Gpu, Policy};
use clap::Args;
use serde::Serialize;

/// List the GPUs with their total, allotted and used memory.
#[derive(Args)]
#[command(after_help = "Examples:\n  cgpuctl gpu list -o wide")]
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
            Some(Form::Wide) => any_table(&gpus, Shown::Wide),
            Some(Form::Json) | None => gpu_table(&gpus),
        };
        Ok(Report::new(members, text)?)
    }

    fn wants_json(&self) -> bool {
        self.listing.is_json()
    }
}

/// The GPUs, for people: what matters most.
pub(crate) fn gpu_table(gpus: &[Gpu]) -> String {
    any_table(gpus, Shown::Narrow)
}

fn any_table(gpus: &[Gpu], width: Shown) -> String {
    if gpus.is_empty() {
        return "No GPUs.\n".to_owned();
    }
    let rows: Vec<IndexedGpu> = gpus.iter().map(|gpu| (index(gpus, gpu), *gpu)).collect();
    list_table(&COLUMNS, width, &rows)
}

/// A GPU with its index.
type IndexedGpu = (usize, Gpu);

const fn column(
    head: &'static str,
    shown: Shown,
    cell: fn(&IndexedGpu) -> String,
) -> Column<IndexedGpu> {
    Column { head, shown, cell }
}

/// The columns of a list of GPUs; a wide one has all their names, too.
const COLUMNS: [Column<IndexedGpu>; 11] = [
    column("GPU", Shown::Always, |(_, gpu)| gpu.minor.to_string()),
    column("INDEX", Shown::Wide, |(index, _)| index.to_string()),
    column("NAME", Shown::Always, |(_, gpu)| {
        known(&gpu.name).unwrap_or_else(|| "-".to_owned())
    }),
    column("PCI", Shown::Always, |(_, gpu)| text(&gpu.pci).to_owned()),
    column("UUID", Shown::Wide, |(_, gpu)| text(&gpu.uuid).to_owned()),
    column("MEMORY", Shown::Always, |(_, gpu)| {
        Bytes(gpu.memory_bytes).to_string()
    }),
    column("ALLOTTED", Shown::Always, |(_, gpu)| {
        Bytes(gpu.allotted_bytes).to_string()
    }),
    column("USED", Shown::Always, |(_, gpu)| {
        Bytes(gpu.used_bytes).to_string()
    }),
    column("INSTANCES", Shown::Narrow, |(_, gpu)| {
        gpu.instances.to_string()
    }),
    column("INSTANCES", Shown::Wide, |(_, gpu)| {
        format!("{} of {}", gpu.instances, gpu.max_instances)
    }),
    column("POLICY", Shown::Always, |(_, gpu)| {
        Policy::name_of(gpu.policy).to_owned()
    }),
];
