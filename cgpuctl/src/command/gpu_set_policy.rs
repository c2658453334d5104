// SPDX-License-Identifier: GPL-2.0 OR MIT
//! `gpu set-policy`.

use super::{effect, target};
use crate::{
    args::{bursts, periods, policies},
    compute,
    control::Control,
    error::{Facts, Failure, Problem},
    host::Host,
    output::Report,
    selector::{Selector, SelectorError},
    text::lines,
    verb::Verb,
};
use cgpu_uapi::{set, GpuCompute, GpuSetCompute, Period, Policy};
use clap::Args;
use serde::Serialize;
use std::slice;
use zerocopy::FromZeros;

const EXAMPLES: &str = "\
Examples:
  cgpuctl gpu set-policy 0 weight
  cgpuctl gpu set-policy 0 weight --period interactive";

/// Change how a GPU's compute time is shared, also while programs run.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct GpuSetPolicy {
    /// GPU, by minor number, nvidia-smi's index (index:0), UUID or PCI address.
    #[arg(value_name = "GPU", value_parser = one_gpu)]
    pub(crate) gpu: Selector,
    /// Policy, by name or number.
    #[arg(value_name = "POLICY", value_parser = policies())]
    pub(crate) policy: Policy,
    /// Length of a turn: short ones lower latency, long ones lose less to switching.
    #[arg(long, value_parser = periods())]
    pub(crate) period: Option<Period>,
    /// Instances among which the policy fixed-equal divides the GPU. It also sets the default
    /// limits of channels and clients of new instances.
    #[arg(
        long,
        alias = "max-inst",
        value_name = "1-64",
        value_parser = clap::value_parser!(u32).range(1..=64)
    )]
    pub(crate) max_instances: Option<u32>,
    /// Part that instances of high priority may take before weights count again, percent.
    #[arg(
        long,
        alias = "prio-ratio",
        value_name = "1-99",
        value_parser = clap::value_parser!(u32).range(1..=99)
    )]
    pub(crate) priority_percent: Option<u32>,
    /// Most GPU time that an instance is owed after it had no work, milliseconds.
    #[arg(long, value_name = "0-10000", value_parser = bursts())]
    pub(crate) burst: Option<u32>,
}

#[derive(Serialize)]
struct PolicyMembers {
    #[serde(flatten)]
    gpu: compute::GpuCompute,
    previous_policy: u32,
    previous_policy_name: &'static str,
    warnings: Vec<String>,
}

impl Verb for GpuSetPolicy {
    fn attempt(&self) -> String {
        format!("set the policy of {}", self.gpu)
    }

    fn run(&self, host: &dyn Host) -> Result<Report, Failure> {
        let control = target::open(host)?;
        let gpus = control.gpus()?;
        let minors = target::select(&gpus, slice::from_ref(&self.gpu))?;
        let minor = minors.first().copied().unwrap_or_default();
        let before = one(&*control, minor)?;
        control
            .set_gpu_compute(&self.request(minor))
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
            "GPU {minor}: policy {}, was {}; period {}, max_instances {}, priority_percent {}, \
             burst {} ms",
            named(&after),
            named(&before),
            Period::name_of(after.period),
            after.max_instances,
            after.priority_percent,
            after.burst_ms
        )]);
        let warning = effect::of_policy(&after, &control.instances()?);
        let warnings: Vec<String> = warning.into_iter().collect();
        let members = PolicyMembers {
            gpu: (&after).into(),
            previous_policy: before.policy,
            previous_policy_name: Policy::name_of(before.policy),
            warnings: warnings.clone(),
        };
        Ok(Report::new(members, text)?.warn(warnings))
    }
}

impl GpuSetPolicy {
    /// The request for one GPU.
    pub(crate) fn request(&self, minor: u32) -> GpuSetCompute {
        let mut request = GpuSetCompute::new_zeroed();
        request.gpu_minor = minor;
        request.set = set::POLICY;
        request.policy = self.policy.number();
        let period = self.period.map(Period::number);
        for (bit, field, value) in [
            (set::PERIOD, &mut request.period, period),
            (
                set::MAX_INSTANCES,
                &mut request.max_instances,
                self.max_instances,
            ),
            (
                set::PRIORITY_PERCENT,
                &mut request.priority_percent,
                self.priority_percent,
            ),
            (set::BURST, &mut request.burst_ms, self.burst),
        ] {
            if let Some(value) = value {
                request.set |= bit;
                *field = value;
            }
        }
        request
    }
}

fn named(gpu: &GpuCompute) -> String {
    format!("{} {}", gpu.policy, Policy::name_of(gpu.policy))
}

/// Reads the name of a single GPU.
fn one_gpu(text: &str) -> Result<Selector, String> {
    match text.parse() {
        Ok(Selector::All) => Err("a policy is set on one GPU at a time; name it".to_owned()),
        Ok(selector) => Ok(selector),
        Err(error) => Err(SelectorError::to_string(&error)),
    }
}

/// How a GPU is shared now.
fn one(control: &dyn Control, minor: u32) -> Result<GpuCompute, Problem> {
    let all = control.gpu_compute()?;
    let found = all.into_iter().find(|gpu| gpu.minor == minor);
    found.ok_or_else(|| Problem::NoSuchGpu {
        wanted: format!("GPU {minor}"),
        present: vec![],
    })
}
