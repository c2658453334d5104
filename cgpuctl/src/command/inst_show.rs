// SPDX-License-Identifier: GPL-2.0 OR MIT
//! `inst show`: everything about an instance, on each GPU that has one of this name.

use super::{open, target};
use crate::capabilities::Capabilities;
use crate::cli::Show;
use crate::control::Host;
use crate::error::{Failure, Problem};
use crate::json;
use crate::output::{pairs, Report};
use crate::size::Bytes;
use cgpu_uapi::{Instance, ManagedMode};

pub(super) fn run(host: &dyn Host, args: &Show) -> Result<Report, Failure> {
    report(host, args)
        .map_err(|problem| problem.when(format!("show {}", target::called(&args.name))))
}

fn report(host: &dyn Host, args: &Show) -> Result<Report, Problem> {
    let control = open(host)?;
    let instances = target::shown(&*control, args)?;
    let body = json::Instances {
        instances: instances.iter().map(json::Instance::from).collect(),
    };
    let text: Vec<_> = instances.iter().map(block).collect();
    Report::new(body, text.join("\n"))
}

fn block(i: &Instance) -> String {
    pairs([
        ("name", i.key.name.as_str().unwrap_or_default().to_owned()),
        ("GPU", i.key.gpu_minor.to_string()),
        ("device", json::device_path(i.id)),
        ("weight", i.weight.to_string()),
        ("capabilities", Capabilities(i.capabilities).to_string()),
        ("memory limit", Bytes(i.memory_limit_bytes).to_string()),
        ("  used", Bytes(i.memory_used_bytes).to_string()),
        ("  contexts", Bytes(i.memory_overhead_bytes).to_string()),
        ("  reserved", Bytes(i.memory_reserved_bytes).to_string()),
        ("  peak", Bytes(i.memory_peak_bytes).to_string()),
        (
            "managed memory",
            format!(
                "{}, {} on the GPU, {} spilled to the host, {} refused",
                ManagedMode::name_of(i.managed_mode),
                Bytes(i.memory_managed_bytes),
                Bytes(i.memory_spilled_bytes),
                i.managed_refused
            ),
        ),
        ("refused allocations", i.memory_refused.to_string()),
        ("refused calls", i.calls_refused.to_string()),
        (
            "open files",
            format!(
                "{} of the GPU, {} of the tenant's control and UVM",
                i.open_files, i.tenant_open_files
            ),
        ),
        ("processes", i.processes.to_string()),
    ])
}
