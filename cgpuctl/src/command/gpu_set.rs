// SPDX-License-Identifier: GPL-2.0 OR MIT
//! `gpu set`: several rules of one GPU or more at once, all or none. And `gpu set-policy`.

use super::{effect, target};
use crate::{
    args::{bursts, periods, policies},
    compute,
    control::Control,
    error::{gpus, Facts, Failure, Problem},
    host::Host,
    output::Report,
    selector::Selector,
    text::lines,
    verb::Verb,
};
use cgpu_uapi::{set, GpuCompute, GpuSetCompute, Period, Policy};
use clap::{ArgGroup, Args};
use nix::errno::Errno;
use serde::Serialize;
use zerocopy::FromZeros;

const EXAMPLES: &str = "\
Examples:
  cgpuctl gpu set 0 --policy weight
  cgpuctl gpu set all --period interactive";

/// Change how a GPU's compute time is shared, also while programs run.
///
/// Either all rules that are named change, on all GPUs that are named, or none.
#[derive(Args)]
#[command(
    override_usage = "cgpuctl gpu set [OPTIONS] <GPU>",
    after_help = EXAMPLES,
    group = ArgGroup::new("rules")
        .required(true)
        .multiple(true)
        .args(["policy", "period", "max_instances", "priority_percent", "burst"])
)]
pub(crate) struct GpuSet {
    #[command(flatten)]
    gpus: GpusToSet,
    /// Policy, by name or number.
    #[arg(long, value_name = "POLICY", value_parser = policies())]
    policy: Option<Policy>,
    #[command(flatten)]
    others: OtherRules,
}

/// Change the policy of a GPU and its other rules: an alias of `gpu set --policy`.
#[derive(Args)]
pub(crate) struct GpuSetPolicy {
    #[command(flatten)]
    gpus: GpusToSet,
    /// Policy, by name or number.
    #[arg(value_name = "POLICY", value_parser = policies())]
    policy: Policy,
    #[command(flatten)]
    others: OtherRules,
}

/// The GPUs whose rules change.
#[derive(Args)]
#[group(skip)]
struct GpusToSet {
    /// GPU, by minor number, nvidia-smi's index (index:0), UUID or PCI address, or all; several
    /// like 0,1.
    #[arg(
        value_name = "GPU",
        value_delimiter = ',',
        num_args = 1,
        required = true
    )]
    gpus: Vec<Selector>,
}

/// The rules beside the policy.
#[derive(Args, Clone, Copy)]
#[group(skip)]
pub(crate) struct OtherRules {
    /// Length of a turn: short ones lower latency, long ones lose less to switching. It has no
    /// effect under native.
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
    /// Part that instances of high priority may take before weights count again, percent. It has
    /// no effect under native.
    #[arg(
        long,
        alias = "prio-ratio",
        value_name = "1-99",
        value_parser = clap::value_parser!(u32).range(1..=99)
    )]
    pub(crate) priority_percent: Option<u32>,
    /// Most GPU time that an instance is owed after it had no work, milliseconds. It has no effect
    /// under native.
    #[arg(long, value_name = "0-10000", value_parser = bursts())]
    pub(crate) burst: Option<u32>,
}

/// New rules of a GPU; what is `None` stays.
#[derive(Clone, Copy)]
pub(crate) struct NewRules {
    pub(crate) policy: Option<Policy>,
    pub(crate) others: OtherRules,
}

/// A rule that is set: `period interactive, was latency`.
pub(crate) struct SetRule {
    what: &'static str,
    now: String,
    was: String,
}

#[derive(Serialize)]
struct RulesMembers {
    /// `gpu set-policy` of one GPU has its members here as well.
    #[serde(flatten)]
    only: Option<ChangedGpu>,
    gpus: Vec<ChangedGpu>,
    warnings: Vec<String>,
}

#[derive(Serialize)]
struct ChangedGpu {
    #[serde(flatten)]
    gpu: compute::GpuCompute,
    previous_policy: u32,
    previous_policy_name: &'static str,
    previous_period: &'static str,
    previous_max_instances: u32,
    previous_priority_percent: u32,
    previous_burst_ms: u32,
}

/// A GPU before and after a change.
type Changed = (GpuCompute, GpuCompute);

impl Verb for GpuSet {
    fn attempt(&self) -> String {
        attempt(&self.gpus.gpus)
    }

    fn run(&self, host: &dyn Host) -> Result<Report, Failure> {
        let rules = NewRules {
            policy: self.policy,
            others: self.others,
        };
        let (changed, warnings) = change(host, &self.gpus.gpus, &rules)?;
        let line = |(was, _): &Changed| {
            let minor = was.minor;
            let rules = rules.against(was).into_iter();
            rules.map(move |rule| format!("GPU {minor}: {rule}"))
        };
        let text = lines(changed.iter().flat_map(line));
        Ok(report(changed, warnings, false, text)?)
    }
}

impl Verb for GpuSetPolicy {
    fn attempt(&self) -> String {
        attempt(&self.gpus.gpus)
    }

    fn run(&self, host: &dyn Host) -> Result<Report, Failure> {
        let rules = NewRules {
            policy: Some(self.policy),
            others: self.others,
        };
        let (changed, warnings) = change(host, &self.gpus.gpus, &rules)?;
        let line = |(was, now): &Changed| {
            format!(
                "GPU {}: policy {}, was {}; period {}, max_instances {}, priority_percent {}, \
                 burst {} ms",
                now.minor,
                Policy::name_of(now.policy),
                Policy::name_of(was.policy),
                Period::name_of(now.period),
                now.max_instances,
                now.priority_percent,
                now.burst_ms
            )
        };
        let text = lines(changed.iter().map(line));
        let is_one = changed.len() == 1;
        Ok(report(changed, warnings, is_one, text)?)
    }
}

impl std::fmt::Display for SetRule {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}, was {}", self.what, self.now, self.was)
    }
}

impl NewRules {
    /// The request for one GPU.
    pub(crate) fn request(&self, minor: u32) -> GpuSetCompute {
        let mut request = GpuSetCompute::new_zeroed();
        request.gpu_minor = minor;
        let others = &self.others;
        for (bit, field, value) in [
            (
                set::POLICY,
                &mut request.policy,
                self.policy.map(Policy::number),
            ),
            (
                set::PERIOD,
                &mut request.period,
                others.period.map(Period::number),
            ),
            (
                set::MAX_INSTANCES,
                &mut request.max_instances,
                others.max_instances,
            ),
            (
                set::PRIORITY_PERCENT,
                &mut request.priority_percent,
                others.priority_percent,
            ),
            (set::BURST, &mut request.burst_ms, others.burst),
        ] {
            if let Some(value) = value {
                request.set |= bit;
                *field = value;
            }
        }
        request
    }

    /// The GPU as it becomes with them.
    pub(crate) fn applied_to(&self, was: &GpuCompute) -> GpuCompute {
        let others = &self.others;
        let mut now = *was;
        now.policy = self.policy.map_or(was.policy, Policy::number);
        now.period = others.period.map_or(was.period, Period::number);
        now.max_instances = others.max_instances.unwrap_or(was.max_instances);
        now.priority_percent = others.priority_percent.unwrap_or(was.priority_percent);
        now.burst_ms = others.burst.unwrap_or(was.burst_ms);
        now
    }

    /// Those alone that differ from a GPU's.
    pub(crate) fn differing(&self, was: &GpuCompute) -> Self {
        let Self { policy, others } = self;
        Self {
            policy: policy.filter(|policy| policy.number() != was.policy),
            others: OtherRules {
                period: others.period.filter(|period| period.number() != was.period),
                max_instances: others.max_instances.filter(|n| *n != was.max_instances),
                priority_percent: others
                    .priority_percent
                    .filter(|n| *n != was.priority_percent),
                burst: others.burst.filter(|burst| *burst != was.burst_ms),
            },
        }
    }

    /// The rules that they set, beside those of a GPU.
    pub(crate) fn against(&self, was: &GpuCompute) -> Vec<SetRule> {
        let others = &self.others;
        let ms = |burst: u32| format!("{burst} ms");
        let all = [
            (
                "policy",
                self.policy.map(|policy| policy.name().to_owned()),
                Policy::name_of(was.policy).to_owned(),
            ),
            (
                "period",
                others.period.map(|period| period.name().to_owned()),
                Period::name_of(was.period).to_owned(),
            ),
            (
                "max_instances",
                others.max_instances.map(|n| n.to_string()),
                was.max_instances.to_string(),
            ),
            (
                "priority_percent",
                others.priority_percent.map(|n| n.to_string()),
                was.priority_percent.to_string(),
            ),
            ("burst", others.burst.map(ms), ms(was.burst_ms)),
        ];
        let set = all.into_iter().filter_map(|(what, now, was)| {
            let now = now?;
            Some(SetRule { what, now, was })
        });
        set.collect()
    }

    /// Warnings about effects of these rules on a GPU that has them now.
    pub(crate) fn warnings(
        &self,
        gpu: &GpuCompute,
        instances: &[cgpu_uapi::Instance],
    ) -> Vec<String> {
        let policy = self.policy.and_then(|_| effect::of_policy(gpu, instances));
        let others = effect::of_rules(gpu, &self.request(gpu.minor));
        policy.into_iter().chain(others).collect()
    }
}

fn attempt(selectors: &[Selector]) -> String {
    match selectors {
        [Selector::All] => "change the rules of all GPUs".to_owned(),
        [one] => format!("change the rules of {one}"),
        _ => "change the rules of these GPUs".to_owned(),
    }
}

/// Sets the rules of each GPU in turn. When one is refused, those before it get their old ones
/// back.
fn change(
    host: &dyn Host,
    selectors: &[Selector],
    rules: &NewRules,
) -> Result<(Vec<Changed>, Vec<String>), Failure> {
    let control = target::open(host)?;
    let gpus = control.gpus()?;
    let minors = target::select(&gpus, selectors)?;
    let all = control.gpu_compute()?;
    let was: Result<Vec<_>, _> = minors.iter().map(|minor| one(&all, *minor)).collect();
    let was = was?;
    for (place, before) in was.iter().enumerate() {
        let minor = before.minor;
        if let Err(errno) = control.set_gpu_compute(&rules.request(minor)) {
            let facts = Facts {
                gpu: Some(minor),
                instances: control.instances().unwrap_or_default(),
                gpus,
                ..Facts::default()
            };
            let attempt = format!("change the rules of GPU {minor}");
            let mut failure = Problem::explain(errno, &facts).when(attempt);
            failure.aftermath = undo(&*control, was.get(..place).unwrap_or_default());
            return Err(failure);
        }
    }
    let all = control.gpu_compute()?;
    let instances = control.instances()?;
    let mut changed = Vec::new();
    let mut warnings = Vec::new();
    for before in was {
        let now = one(&all, before.minor)?;
        warnings.extend(rules.warnings(&now, &instances));
        changed.push((before, now));
    }
    Ok((changed, warnings))
}

/// Puts back the rules that GPUs had, and says what became of it.
fn undo(control: &dyn Control, changed: &[GpuCompute]) -> Option<String> {
    if changed.is_empty() {
        return None;
    }
    let former = |gpu: &GpuCompute| -> Result<(), Errno> {
        let mut request = GpuSetCompute::new_zeroed();
        request.gpu_minor = gpu.minor;
        request.set =
            set::POLICY | set::PERIOD | set::MAX_INSTANCES | set::PRIORITY_PERCENT | set::BURST;
        request.policy = gpu.policy;
        request.period = gpu.period;
        request.max_instances = gpu.max_instances;
        request.priority_percent = gpu.priority_percent;
        request.burst_ms = gpu.burst_ms;
        control.set_gpu_compute(&request)
    };
    let kept: Vec<_> = changed.iter().filter(|gpu| former(gpu).is_err()).collect();
    let kept: Vec<_> = kept.iter().map(|gpu| gpu.minor).collect();
    Some(if kept.is_empty() {
        "; what this command had changed before was changed back".to_owned()
    } else {
        format!(
            "; this command had changed {} before, and could not change it back",
            gpus(&kept)
        )
    })
}

fn report(
    changed: Vec<Changed>,
    warnings: Vec<String>,
    is_flat: bool,
    text: String,
) -> Result<Report, Problem> {
    let gpu = |(was, now): &Changed| ChangedGpu {
        gpu: now.into(),
        previous_policy: was.policy,
        previous_policy_name: Policy::name_of(was.policy),
        previous_period: Period::name_of(was.period),
        previous_max_instances: was.max_instances,
        previous_priority_percent: was.priority_percent,
        previous_burst_ms: was.burst_ms,
    };
    let members = RulesMembers {
        only: changed.first().filter(|_| is_flat).map(gpu),
        gpus: changed.iter().map(gpu).collect(),
        warnings: warnings.clone(),
    };
    Ok(Report::new(members, text)?.warn(warnings))
}

/// How a GPU is shared.
fn one(all: &[GpuCompute], minor: u32) -> Result<GpuCompute, Problem> {
    let found = all.iter().find(|gpu| gpu.minor == minor).copied();
    found.ok_or_else(|| Problem::NoSuchGpu {
        wanted: format!("GPU {minor}"),
        present: vec![],
    })
}
