// SPDX-License-Identifier: GPL-2.0 OR MIT
//! From what the user named to the GPUs and instances that a command works on.

use crate::cli::Show;
use crate::control::Control;
use crate::error::{gpus, Facts, Failure, Problem};
use crate::selector::Selector;
use cgpu_uapi::{Gpu, Instance, InstanceKey, Name};
use nix::errno::Errno;
use zerocopy::FromZeros;

/// The key of an instance.
pub(crate) fn key(name: Name, gpu_minor: u32) -> InstanceKey {
    let mut key = InstanceKey::new_zeroed();
    key.name = name;
    key.gpu_minor = gpu_minor;
    key
}

/// `instance "train"`, for sentences.
pub(crate) fn called(name: &Name) -> String {
    format!("instance {:?}", name.as_str().unwrap_or_default())
}

/// The minors of the selected GPUs, in the order given.
pub(super) fn select(gpus: &[Gpu], selectors: &[Selector]) -> Result<Vec<u32>, Problem> {
    let mut minors = Vec::new();
    for selector in selectors {
        let gpu =
            gpus.iter()
                .find(|gpu| selector.names(gpu))
                .ok_or_else(|| Problem::NoSuchGpu {
                    wanted: selector.to_string(),
                    present: gpus.iter().map(|gpu| gpu.minor).collect(),
                })?;
        if minors.contains(&gpu.minor) {
            return Err(Problem::GpuTwice { minor: gpu.minor });
        }
        minors.push(gpu.minor);
    }
    Ok(minors)
}

/// The instances of a tenant, by GPU.
pub(crate) fn tenant(control: &dyn Control, name: &Name) -> Result<Vec<Instance>, Problem> {
    let mut all = control
        .instances()
        .map_err(|errno| Problem::explain(errno, &Facts::default()))?;
    all.retain(|instance| instance.key.name == *name);
    all.sort_by_key(|instance| instance.key.gpu_minor);
    if all.is_empty() {
        return Err(Problem::NoSuchInstance { elsewhere: vec![] });
    }
    Ok(all)
}

/// The instances of a tenant on the selected GPUs, in the order given.
pub(super) fn tenant_on(
    control: &dyn Control,
    name: &Name,
    selectors: &[Selector],
) -> Result<Vec<Instance>, Problem> {
    let all = tenant(control, name)?;
    let present = control
        .gpus()
        .map_err(|errno| Problem::explain(errno, &Facts::default()))?;
    select(&present, selectors)?
        .into_iter()
        .map(|minor| {
            all.iter()
                .find(|instance| instance.key.gpu_minor == minor)
                .copied()
                .ok_or_else(|| Problem::NoSuchInstance {
                    elsewhere: all.iter().map(|i| i.key.gpu_minor).collect(),
                })
        })
        .collect()
}

/// The instances that `inst show` is about.
pub(super) fn shown(control: &dyn Control, args: &Show) -> Result<Vec<Instance>, Problem> {
    match args.gpus.is_empty() {
        true => tenant(control, &args.name),
        false => tenant_on(control, &args.name, &args.gpus),
    }
}

/// The instances to change: the selected ones, or the only one of its name.
pub(super) fn instances(
    control: &dyn Control,
    name: &Name,
    selectors: &[Selector],
) -> Result<Vec<Instance>, Problem> {
    if !selectors.is_empty() {
        return tenant_on(control, name, selectors);
    }
    let all = tenant(control, name)?;
    if all.len() > 1 {
        return Err(Problem::Ambiguous {
            gpus: all.iter().map(|i| i.key.gpu_minor).collect(),
        });
    }
    Ok(all)
}

/// Does something to each instance in turn. When one fails, the sentence says which were done.
pub(super) fn each(
    control: &dyn Control,
    instances: &[Instance],
    (verb, done): (&str, &str),
    mut act: impl FnMut(&Instance) -> Result<(), Errno>,
) -> Result<(), Failure> {
    for (i, instance) in instances.iter().enumerate() {
        let InstanceKey {
            name, gpu_minor, ..
        } = instance.key;
        act(instance).map_err(|errno| {
            let facts = Facts::about(control, &name, Some(gpu_minor));
            let before: Vec<_> = instances.iter().take(i).map(|b| b.key.gpu_minor).collect();
            let mut failure = Problem::explain(errno, &facts)
                .when(format!("{verb} {} on GPU {gpu_minor}", called(&name)));
            if !before.is_empty() {
                failure.aftermath = Some(format!("; on {} it was {done} before", gpus(&before)));
            }
            failure
        })?;
    }
    Ok(())
}
