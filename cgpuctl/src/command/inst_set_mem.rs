// SPDX-License-Identifier: GPL-2.0 OR MIT
//! `inst set-mem`.

use super::{open, small_limit, target};
use crate::cli::SetMem;
use crate::control::Host;
use crate::error::{Failure, Problem};
use crate::json;
use crate::output::{lines, Report};
use crate::size::Bytes;
use cgpu_uapi::{Instance, InstanceSetMemory, FLAG_OVERCOMMIT};
use zerocopy::FromZeros;

const VERB: &str = "set the memory limit of";

pub(super) fn run(host: &dyn Host, args: &SetMem) -> Result<Report, Failure> {
    let name = &args.target.name;
    let fail = |problem: Problem| problem.when(format!("{VERB} {}", target::called(name)));
    let control = open(host).map_err(fail)?;
    let instances = target::instances(&*control, name, &args.target.gpus).map_err(fail)?;
    target::each(&*control, &instances, (VERB, "set"), |instance| {
        let mut request = InstanceSetMemory::new_zeroed();
        request.key = target::key(*name, instance.key.gpu_minor);
        request.memory_limit_bytes = args.mem.0;
        request.flags = if args.overcommit { FLAG_OVERCOMMIT } else { 0 };
        control.set_memory(&request)
    })?;
    report(args, &instances).map_err(fail)
}

/// `before`: the instances as they were.
fn report(args: &SetMem, before: &[Instance]) -> Result<Report, Problem> {
    let used = |i: &Instance| i.memory_used_bytes.saturating_add(i.memory_overhead_bytes);
    let over = before.iter().filter(|i| used(i) > args.mem.0).map(|i| {
        format!(
            "{} are in use on GPU {}: new allocations fail until {} are freed",
            Bytes(used(i)),
            i.key.gpu_minor,
            Bytes(used(i) - args.mem.0)
        )
    });
    let warnings: Vec<_> = small_limit(args.mem).into_iter().chain(over).collect();
    let body = json::MemorySet {
        instances: before
            .iter()
            .map(|i| json::MemorySetInstance {
                id: i.into(),
                memory_limit_bytes: args.mem.0,
                previous_memory_limit_bytes: i.memory_limit_bytes,
            })
            .collect(),
        warnings: warnings.clone(),
    };
    let text = lines(before.iter().map(|i| {
        format!(
            "{} on GPU {}: limit {}, was {}",
            i.key.name.as_str().unwrap_or_default(),
            i.key.gpu_minor,
            args.mem,
            Bytes(i.memory_limit_bytes)
        )
    }));
    Ok(Report::new(body, text)?.warn(warnings))
}
