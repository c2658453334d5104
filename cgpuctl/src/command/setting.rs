// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Settings of an instance: one walk for all verbs that change one.

use super::target;
use crate::{
    args::Target,
    control::Control,
    error::{Failure, Problem},
    host::Host,
    json::InstanceId,
    output::Report,
    text::lines,
    verb::Verb,
};
use cgpu_uapi::{GpuCompute, Instance, InstanceKey, InstanceLimit, BURST_OF_GPU};
use clap::Args;
use nix::errno::Errno;
use serde::{ser::SerializeMap, Serialize, Serializer};
use std::fmt::Display;

/// An instance as it was before a change.
#[derive(Clone)]
pub(crate) struct Before {
    pub(crate) instance: Instance,
    /// Bits of [`cgpu_uapi::state`].
    pub(crate) state: u32,
    /// Its own burst, or [`BURST_OF_GPU`].
    pub(crate) burst_ms: u32,
    /// Memory of its GPU; not known while the driver is away.
    pub(crate) memory_bytes: Option<u64>,
    /// How its GPU is shared.
    pub(crate) gpu: Option<GpuCompute>,
    /// Beside those of memory and channels.
    pub(crate) limits: Vec<InstanceLimit>,
}

impl Before {
    /// Which instance it is.
    pub(crate) fn key(&self) -> InstanceKey {
        InstanceKey::new(self.instance.key.name, self.instance.key.gpu_minor)
    }
}

/// A setting with its new value: the arguments of a verb beside its target.
pub(crate) trait Setting {
    /// Follows "cannot": `set the weight of`.
    const ATTEMPT: &'static str;
    /// Says what became of the instances before the one that failed: `it was set before`.
    const DONE: &'static str = "set";
    /// The key in the JSON output. With `previous_` before it, it is the key of the old value.
    const KEY: &'static str;
    /// Stands before the value in text, with a blank at its end.
    const LABEL: &'static str;
    /// The value, for text and JSON.
    type Value: Display + Serialize;

    /// The new value.
    fn value(&self, was: &Before) -> Self::Value;
    /// The value before.
    fn before(&self, was: &Before) -> Self::Value;
    /// Changes one instance, given as it was.
    fn set(&self, control: &dyn Control, was: &Before) -> Result<(), Errno>;
    /// Sentences that the new value deserves. `None`: it never does.
    fn warnings(&self, _: &[Before]) -> Option<Vec<String>> {
        None
    }
}

/// A setting that can be put back.
pub(crate) trait Undo: Setting + Sized {
    /// The setting with the value that the instance had. Setting it cannot be refused for what
    /// others have: the instance had that value before.
    fn former(&self, was: &Before) -> Self;
}

// A verb that sets one thing. This is no doc comment, because clap would show it as the help of all
// these verbs. Their help is the setting's doc comment.
#[derive(Args)]
pub(crate) struct Set<S: Args> {
    #[command(flatten)]
    target: Target,
    #[command(flatten)]
    setting: S,
}

/// The members of the JSON object.
#[derive(Serialize)]
struct SettingMembers<V: Serialize> {
    instances: Vec<ChangedInstance<V>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    warnings: Option<Vec<String>>,
}

#[derive(Serialize)]
struct ChangedInstance<V: Serialize> {
    #[serde(flatten)]
    id: InstanceId,
    #[serde(flatten)]
    change: Change<V>,
}

/// A value and the one before, under the setting's key.
struct Change<V> {
    key: &'static str,
    now: V,
    before: V,
}

impl<V: Serialize> Serialize for Change<V> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut members = serializer.serialize_map(Some(2))?;
        members.serialize_entry(self.key, &self.now)?;
        members.serialize_entry(&format!("previous_{}", self.key), &self.before)?;
        members.end()
    }
}

impl<S: Setting + Args> Verb for Set<S> {
    fn attempt(&self) -> String {
        format!("{} {}", S::ATTEMPT, target::called(&self.target.name))
    }

    fn run(&self, host: &dyn Host) -> Result<Report, Failure> {
        let control = target::open(host)?;
        let before = before(&*control, &self.target)?;
        let instances: Vec<_> = before.iter().map(|was| was.instance).collect();
        let mut each = before.iter();
        target::each(&*control, &instances, (S::ATTEMPT, S::DONE), |_| {
            each.next()
                .map_or(Ok(()), |was| self.setting.set(&*control, was))
        })?;
        Ok(report(&self.setting, &before)?)
    }
}

/// The instances that were named, as they are now.
pub(crate) fn before(control: &dyn Control, target: &Target) -> Result<Vec<Before>, Problem> {
    let instances = target::instances(control, &target.name, &target.gpus)?;
    let compute = control.instance_compute()?;
    let gpus = control.gpu_compute()?;
    // A limit can be set without the driver, but not as a part of the GPU's memory.
    let memory = control.gpus().unwrap_or_default();
    let before = instances.into_iter().map(|instance| {
        let limits = control.limits(&instance.key)?;
        let compute = compute.iter().find(|compute| compute.id == instance.id);
        let gpu = gpus.iter().find(|gpu| gpu.minor == instance.key.gpu_minor);
        Ok(Before {
            limits,
            instance,
            memory_bytes: memory
                .iter()
                .find(|gpu| gpu.minor == instance.key.gpu_minor)
                .map(|gpu| gpu.memory_bytes),
            gpu: gpu.copied(),
            state: compute.map_or(0, |compute| compute.state),
            burst_ms: compute.map_or(BURST_OF_GPU, |compute| compute.burst_ms),
        })
    });
    before.collect()
}

fn report<S: Setting>(setting: &S, before: &[Before]) -> Result<Report, Problem> {
    let change = |was: &Before| Change {
        key: S::KEY,
        now: setting.value(was),
        before: setting.before(was),
    };
    let text = lines(before.iter().map(|was| {
        let Change { now, before, .. } = change(was);
        let which = target::label(&was.instance);
        format!("{which}: {}{now}, was {before}", S::LABEL)
    }));
    let warnings = setting.warnings(before);
    let members = SettingMembers {
        instances: before
            .iter()
            .map(|was| ChangedInstance {
                id: (&was.instance).into(),
                change: change(was),
            })
            .collect(),
        warnings: warnings.clone(),
    };
    Ok(Report::new(members, text)?.warn(warnings.unwrap_or_default()))
}
