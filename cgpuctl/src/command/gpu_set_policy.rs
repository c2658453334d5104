// SPDX-License-Identifier: GPL-2.0 OR MIT
//! `gpu set-policy`.

use super::{open, target};
use crate::cli::SetPolicy;
use crate::control::{Control, Host};
use crate::error::{Facts, Failure, Problem};
use crate::json;
use crate::output::{lines, Report};
use cgpu_uapi::{set, GpuCompute, GpuSetCompute, Period, Policy};
use std::slice;
use zerocopy::FromZeros;

pub(super) fn run(host: &dyn Host, args: &SetPolicy) -> Result<Report, Failure> {
    report(host, args).map_err(|problem| problem.when(format!("set the policy of {}", args.gpu)))
}

fn report(host: &dyn Host, args: &SetPolicy) -> Result<Report, Problem> {
    let control = open(host)?;
    let explain = |errno| Problem::explain(errno, &Facts::default());
    let gpus = control.gpus().map_err(explain)?;
    let minors = target::select(&gpus, slice::from_ref(&args.gpu))?;
    let minor = minors.first().copied().unwrap_or_default();
    let before = one(&*control, minor)?;
    control
        .set_gpu_compute(&request(args, minor))
        .map_err(|errno| {
            let facts = Facts {
                gpu: Some(minor),
                instances: control.instances().unwrap_or_default(),
                gpus,
                ..Facts::default()
            };
            Problem::explain(errno, &facts)
        })?;
    let after = one(&*control, minor)?;
    let text = lines([format!(
        "GPU {minor}: policy {}, was {}; period {}, max_inst {}, priority ratio {} %",
        named(&after),
        named(&before),
        Period::name_of(after.period),
        after.max_instances,
        after.priority_percent
    )]);
    let body = json::PolicySet {
        gpu: (&after).into(),
        previous_policy: before.policy,
        previous_policy_name: Policy::name_of(before.policy),
    };
    Report::new(body, text)
}

fn named(gpu: &GpuCompute) -> String {
    format!("{} {}", gpu.policy, Policy::name_of(gpu.policy))
}

/// What to ask of the module for one GPU.
pub(super) fn request(args: &SetPolicy, minor: u32) -> GpuSetCompute {
    let mut request = GpuSetCompute::new_zeroed();
    request.gpu_minor = minor;
    request.set = set::POLICY;
    request.policy = args.policy.number();
    if let Some(period) = args.period {
        request.set |= set::PERIOD;
        request.period = period.number();
    }
    if let Some(number) = args.max_inst {
        request.set |= set::MAX_INSTANCES;
        request.max_instances = number;
    }
    if let Some(percent) = args.prio_ratio {
        request.set |= set::PRIORITY_PERCENT;
        request.priority_percent = percent;
    }
    request
}

/// How a GPU is shared now.
fn one(control: &dyn Control, minor: u32) -> Result<GpuCompute, Problem> {
    let all = control
        .gpu_compute()
        .map_err(|errno| Problem::explain(errno, &Facts::default()))?;
    let found = all.into_iter().find(|gpu| gpu.minor == minor);
    found.ok_or_else(|| Problem::NoSuchGpu {
        wanted: format!("GPU {minor}"),
        present: vec![],
    })
}
