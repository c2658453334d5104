// SPDX-License-Identifier: GPL-2.0 OR MIT
//! `inst set-priority`, `inst suspend` and `inst resume`.

use super::{open, target};
use crate::cli::{SetPriority, Target};
use crate::control::Host;
use crate::error::{Failure, Problem};
use crate::json;
use crate::output::{lines, Report};
use cgpu_uapi::{set, Instance, InstanceSetCompute, Priority};
use zerocopy::FromZeros;

pub(super) fn priority(host: &dyn Host, args: &SetPriority) -> Result<Report, Failure> {
    let verb = ("set the priority of", "set");
    let high = args.priority == Priority::High;
    let set = change(host, &args.target, verb, |request| {
        request.set = set::HIGH_PRIORITY;
        request.high_priority = u32::from(high);
    })?;
    let word = args.priority.name();
    let body = json::PrioritySet {
        instances: set
            .iter()
            .map(|i| json::PrioritySetInstance {
                id: i.into(),
                high_priority: high,
            })
            .collect(),
    };
    told(&set, &format!("priority {word}"), body).map_err(|e| failed(e, verb.0, &args.target))
}

pub(super) fn suspend(host: &dyn Host, args: &Target, suspended: bool) -> Result<Report, Failure> {
    let verb = if suspended {
        ("suspend", "suspended")
    } else {
        ("resume", "resumed")
    };
    let set = change(host, args, verb, |request| {
        request.set = set::SUSPENDED;
        request.suspended = u32::from(suspended);
    })?;
    let body = json::SuspendedSet {
        instances: set
            .iter()
            .map(|i| json::SuspendedSetInstance {
                id: i.into(),
                suspended,
            })
            .collect(),
    };
    told(&set, verb.1, body).map_err(|e| failed(e, verb.0, args))
}

fn failed(problem: Problem, verb: &str, target: &Target) -> Failure {
    problem.when(format!("{verb} {}", target::called(&target.name)))
}

/// Changes the instances that were named, and returns them.
fn change(
    host: &dyn Host,
    args: &Target,
    verb: (&str, &str),
    fill: impl Fn(&mut InstanceSetCompute),
) -> Result<Vec<Instance>, Failure> {
    let fail = |problem| failed(problem, verb.0, args);
    let control = open(host).map_err(fail)?;
    let instances = target::instances(&*control, &args.name, &args.gpus).map_err(fail)?;
    target::each(&*control, &instances, verb, |instance| {
        let mut request = InstanceSetCompute::new_zeroed();
        request.key = target::key(args.name, instance.key.gpu_minor);
        fill(&mut request);
        control.set_instance_compute(&request)
    })?;
    Ok(instances)
}

fn told(
    instances: &[Instance],
    what: &str,
    body: impl serde::Serialize,
) -> Result<Report, Problem> {
    let text = lines(instances.iter().map(|i| {
        format!(
            "{} on GPU {}: {what}",
            i.key.name.as_str().unwrap_or_default(),
            i.key.gpu_minor
        )
    }));
    Report::new(body, text)
}
