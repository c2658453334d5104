// SPDX-License-Identifier: GPL-2.0 OR MIT
//! `inst set`: several settings of an instance at once, all or none.

use super::{
    inst_set_burst::InstSetBurst,
    inst_set_caps::InstSetCaps,
    inst_set_channels::InstSetChannels,
    inst_set_limit::InstSetLimit,
    inst_set_managed::InstSetManaged,
    inst_set_mem::InstSetMem,
    inst_set_priority::InstSetPriority,
    inst_set_weight::InstSetWeight,
    setting::{self, Before, Undo},
    target,
};
use crate::{
    args::{burst_or_gpu, channels, count, managed_modes, priorities, size, weight, Target},
    capabilities::Capabilities,
    control::Control,
    error::{Facts, Failure, Problem},
    host::Host,
    json::InstanceId,
    output::Report,
    size::Amount,
    text::{enumerate, lines},
    verb::Verb,
};
use cgpu_uapi::{Limited, ManagedMode, Priority};
use clap::Args;
use nix::errno::Errno;
use serde::Serialize;
use serde_json::{Map, Value};
use std::borrow::Borrow;

const EXAMPLES: &str = "\
Examples:
  cgpuctl inst set train --mem 30GiB --priority high
  cgpuctl inst set pair --gpu 0 --weight 10";

/// Change settings of an instance, also while programs run: all that are named, or none.
///
/// When one of them is refused, those that were changed before it get their old values back.
#[derive(Args)]
#[command(override_usage = "cgpuctl inst set [OPTIONS] <NAME>", after_help = EXAMPLES)]
pub(crate) struct InstSet {
    #[command(flatten)]
    target: Target,
    #[command(flatten)]
    settings: Settings,
    /// Let the limits on a GPU add up to more than it has.
    #[arg(long)]
    overcommit: bool,
}

/// The new values.
#[derive(Args)]
#[group(required = true, multiple = true)]
pub(super) struct Settings {
    /// Memory limit, like 8GiB, 500MB or 50% of the GPU. One below what is used is accepted: new
    /// allocations fail until enough was freed.
    #[arg(long, value_name = "SIZE")]
    pub(super) mem: Option<Amount>,
    /// Share of the compute, relative to the other instances' weights. It has an effect under the
    /// policies weight, fixed and weight-lazy (`cgpuctl gpu set`), and none under native.
    #[arg(long, value_name = "1-100", value_parser = weight())]
    pub(super) weight: Option<u32>,
    /// Priority. It has no effect under the policy native.
    #[arg(long, value_parser = priorities())]
    pub(super) priority: Option<Priority>,
    /// GPU time that the instance can be owed after it had no work, in milliseconds, or "gpu" for
    /// that of its GPU. It has no effect under the policy native.
    #[arg(long, value_name = "0-10000|gpu", value_parser = burst_or_gpu)]
    pub(super) burst: Option<u32>,
    /// Sets of calls that it may make: compute, utility, graphics, video, profiling, rdma. Calls
    /// that are no longer allowed are refused from then on.
    #[arg(long = "capabilities", alias = "caps", value_name = "SET,…")]
    pub(super) caps: Option<Capabilities>,
    /// Mode of managed memory (cudaMallocManaged) that is mapped from now on.
    #[arg(long, value_name = "MODE", value_parser = managed_modes())]
    pub(super) managed: Option<ManagedMode>,
    /// Limit of channels on a runlist, and of groups of channels. A CUDA program takes 20 of both.
    #[arg(long, value_name = "1-2044", value_parser = channels())]
    pub(super) channels: Option<u32>,
    /// Limit of RM clients. A CUDA program has 2 to 5.
    #[arg(long, value_name = "NUMBER|default", value_parser = count)]
    pub(super) clients: Option<u64>,
    /// Limit of RM objects. A CUDA program has up to 370.
    #[arg(long, value_name = "NUMBER|default", value_parser = count)]
    pub(super) objects: Option<u64>,
    /// Limit of RM objects that are events. A CUDA program has 8 to 15.
    #[arg(long, value_name = "NUMBER|default", value_parser = count)]
    pub(super) events: Option<u64>,
    /// Limit of BAR1. A CUDA program takes 2MiB.
    #[arg(long, value_name = "SIZE|default", value_parser = size)]
    pub(super) bar1: Option<u64>,
    /// Limit of the host's memory that the driver holds. A CUDA program takes 73MB.
    #[arg(long, value_name = "SIZE|default", value_parser = size)]
    pub(super) host_mem: Option<u64>,
    /// Limit of open files of the nodes, and of keys by which programs wait for events. A CUDA
    /// program has up to 43, and one for each mapping of host memory and each export.
    #[arg(long, value_name = "NUMBER|default", value_parser = count)]
    pub(super) files: Option<u64>,
    /// Limit of mappings of the GPU's registers. A CUDA program has 2, and each child that it forks
    /// as many.
    #[arg(long, value_name = "NUMBER|default", value_parser = count)]
    pub(super) mappings: Option<u64>,
    /// Limit of objects behind descriptors. A CUDA program has one for each piece of memory that it
    /// exports (cuMemExportToShareableHandle), and those of NCCL have 48.
    #[arg(long, value_name = "NUMBER|default", value_parser = count)]
    pub(super) exports: Option<u64>,
}

/// One setting of several.
pub(super) trait Step {
    /// Follows "cannot": `set the weight of`.
    fn attempt(&self) -> &'static str;
    /// As in "the weight could not be set back".
    fn what(&self) -> String;
    /// `weight 5, was 1`
    fn line(&self, was: &Before) -> String;
    /// The value and the one before.
    fn members(&self, was: &Before, into: &mut Map<String, Value>) -> serde_json::Result<()>;
    /// Changes one instance.
    fn set(&self, control: &dyn Control, was: &Before) -> Result<(), Errno>;
    /// Puts the value back that one instance had.
    fn undo(&self, control: &dyn Control, was: &Before) -> Result<(), Errno>;
    /// Sentences that the new value deserves.
    fn warnings(&self, before: &[Before]) -> Vec<String>;
}

/// A setting with the words that tell it from others.
struct Named<S> {
    setting: S,
    key: &'static str,
    label: &'static str,
}

impl<S: Undo> Step for Named<S> {
    fn attempt(&self) -> &'static str {
        S::ATTEMPT
    }

    fn what(&self) -> String {
        format!("the {}", self.label)
    }

    fn line(&self, was: &Before) -> String {
        let (now, before) = (self.setting.value(was), self.setting.before(was));
        format!("{} {now}, was {before}", self.label)
    }

    fn members(&self, was: &Before, into: &mut Map<String, Value>) -> serde_json::Result<()> {
        let value = serde_json::to_value(self.setting.value(was))?;
        into.insert(self.key.to_owned(), value);
        let value = serde_json::to_value(self.setting.before(was))?;
        into.insert(format!("previous_{}", self.key), value);
        Ok(())
    }

    fn set(&self, control: &dyn Control, was: &Before) -> Result<(), Errno> {
        self.setting.set(control, was)
    }

    fn undo(&self, control: &dyn Control, was: &Before) -> Result<(), Errno> {
        self.setting.former(was).set(control, was)
    }

    fn warnings(&self, before: &[Before]) -> Vec<String> {
        self.setting.warnings(before).unwrap_or_default()
    }
}

/// A setting under the key of its own verb.
fn step<S: Undo + 'static>(label: &'static str, setting: S) -> Box<dyn Step> {
    Box::new(Named {
        setting,
        key: S::KEY,
        label,
    })
}

impl InstSet {
    /// The change of an instance to these settings.
    pub(super) fn new(target: Target, settings: Settings, overcommit: bool) -> Self {
        Self {
            target,
            settings,
            overcommit,
        }
    }

    /// Whether it leaves other instances more memory.
    pub(super) fn lowers_memory(&self, was: &Before) -> bool {
        let limit = self
            .settings
            .mem
            .map(|mem| mem.of(was.memory_bytes.unwrap_or_default()));
        limit.is_some_and(|limit| limit.0 < was.instance.memory_limit_bytes)
    }

    /// The new weight, if it is set.
    pub(super) fn weight(&self) -> Option<u32> {
        self.settings.weight
    }

    /// The settings, those first that are refused for what other instances have.
    pub(super) fn steps(&self) -> Vec<Box<dyn Step>> {
        let all = [self.shared(), self.limits(), self.own()];
        all.into_iter().flatten().collect()
    }

    /// Those that the instances of a GPU share.
    fn shared(&self) -> Vec<Box<dyn Step>> {
        let Settings {
            mem,
            weight,
            channels,
            ..
        } = self.settings;
        let overcommit = self.overcommit;
        let steps = [
            mem.map(|mem| step("memory limit", InstSetMem { mem, overcommit })),
            weight.map(|weight| step("weight", InstSetWeight { weight })),
            channels.map(|channels| {
                step(
                    "channels",
                    InstSetChannels {
                        channels,
                        overcommit,
                    },
                )
            }),
        ];
        steps.into_iter().flatten().collect()
    }

    fn limits(&self) -> Vec<Box<dyn Step>> {
        let Settings {
            clients,
            objects,
            events,
            bar1,
            host_mem,
            files,
            mappings,
            exports,
            ..
        } = self.settings;
        let limits = [
            (Limited::Clients, clients, "client_limit"),
            (Limited::Objects, objects, "object_limit"),
            (Limited::Events, events, "event_limit"),
            (Limited::Bar1, bar1, "bar1_limit_bytes"),
            (Limited::HostMemory, host_mem, "host_mem_limit_bytes"),
            (Limited::Files, files, "file_limit"),
            (Limited::Mappings, mappings, "mapping_limit"),
            (Limited::Exports, exports, "export_limit"),
        ];
        let limits = limits.into_iter().filter_map(|(what, limit, key)| {
            let setting = InstSetLimit {
                what,
                limit: limit?,
            };
            let label = what.name();
            let step: Box<dyn Step> = Box::new(Named {
                setting,
                key,
                label,
            });
            Some(step)
        });
        limits.collect()
    }

    /// Those that are the instance's own.
    fn own(&self) -> Vec<Box<dyn Step>> {
        let Settings {
            priority,
            burst,
            caps,
            managed,
            ..
        } = self.settings;
        let steps = [
            caps.map(|caps| step("capabilities", InstSetCaps { caps })),
            managed.map(|managed| step("managed memory", InstSetManaged { managed })),
            priority.map(|priority| step("priority", InstSetPriority { priority })),
            burst.map(|burst| step("burst", InstSetBurst { burst })),
        ];
        steps.into_iter().flatten().collect()
    }
}

#[derive(Serialize)]
struct SetMembers {
    instances: Vec<SetInstance>,
    warnings: Vec<String>,
}

#[derive(Serialize)]
struct SetInstance {
    #[serde(flatten)]
    id: InstanceId,
    #[serde(flatten)]
    values: Map<String, Value>,
}

impl Verb for InstSet {
    fn attempt(&self) -> String {
        format!("change {}", target::called(&self.target.name))
    }

    fn run(&self, host: &dyn Host) -> Result<Report, Failure> {
        let control = target::open(host)?;
        let before = setting::before(&*control, &self.target)?;
        let steps = self.steps();
        set_all(&*control, &steps, &before)?;
        let warnings: Vec<_> = steps.iter().flat_map(|s| s.warnings(&before)).collect();
        let text = before.iter().flat_map(|was| {
            let which = target::label(&was.instance);
            steps
                .iter()
                .map(move |step| format!("{which}: {}", step.line(was)))
        });
        let instance = |was: &Before| {
            let mut values = Map::new();
            for step in &steps {
                step.members(was, &mut values)?;
            }
            let id = (&was.instance).into();
            Ok(SetInstance { id, values })
        };
        let instances: serde_json::Result<_> = before.iter().map(instance).collect();
        let members = SetMembers {
            instances: instances.map_err(|_| Problem::Output { errno: Errno::EIO })?,
            warnings: warnings.clone(),
        };
        Ok(Report::new(members, lines(text))?.warn(warnings))
    }
}

/// Changes the settings of each instance in turn. When one is refused, all those before it get
/// their old values back.
pub(super) fn set_all<B: Borrow<Before>>(
    control: &dyn Control,
    steps: &[Box<dyn Step>],
    before: &[B],
) -> Result<(), Failure> {
    let mut done = Vec::new();
    for was in before.iter().map(Borrow::borrow) {
        let (name, minor) = (was.instance.key.name, was.instance.key.gpu_minor);
        for step in steps {
            if let Err(errno) = step.set(control, was) {
                let facts = Facts::about(control, &name, Some(minor));
                let called = target::called(&name);
                let mut failure = Problem::explain(errno, &facts)
                    .when(format!("{} {called} on GPU {minor}", step.attempt()));
                failure.aftermath = undo(control, &done);
                return Err(failure);
            }
            done.push((was, &**step));
        }
    }
    Ok(())
}

/// Puts back what was changed, the last first, and says what became of it.
fn undo(control: &dyn Control, done: &[(&Before, &dyn Step)]) -> Option<String> {
    if done.is_empty() {
        return None;
    }
    let undone = done.iter().rev();
    let kept = undone.filter(|(was, step)| step.undo(control, was).is_err());
    let mut kept: Vec<_> = kept
        .map(|(was, step)| format!("{} on GPU {}", step.what(), was.instance.key.gpu_minor))
        .collect();
    kept.reverse();
    Some(if kept.is_empty() {
        "; what this command had changed before was changed back".to_owned()
    } else {
        format!(
            "; this command had changed {} before, and could not change it back",
            enumerate(&kept, "and")
        )
    })
}
