// SPDX-License-Identifier: GPL-2.0 OR MIT
//! From what the user named to the GPUs and instances that a command works on.

use crate::{
    control::Control,
    error::{gpus, Facts, Failure, Problem},
    host::Host,
    selector::Selector,
};
use cgpu_uapi::{Gpu, Instance, InstanceKey, Name};
use nix::errno::Errno;

/// Opens the control device.
pub(crate) fn open(host: &dyn Host) -> Result<Box<dyn Control>, Problem> {
    host.control().map_err(Problem::open)
}

/// `instance "train"`, for sentences.
pub(crate) fn called(name: &Name) -> String {
    format!("instance {:?}", name.as_str().unwrap_or_default())
}

/// `train on GPU 0`, for lines.
pub(crate) fn label(instance: &Instance) -> String {
    let key = &instance.key;
    format!(
        "{} on GPU {}",
        key.name.as_str().unwrap_or_default(),
        key.gpu_minor
    )
}

/// The minors of the selected GPUs, in the order given.
pub(crate) fn select(gpus: &[Gpu], selectors: &[Selector]) -> Result<Vec<u32>, Problem> {
    let mut minors = Vec::new();
    for selector in selectors {
        let found = gpus.iter().filter(|gpu| selector.names(gpu, gpus));
        let found: Vec<_> = found.map(|gpu| gpu.minor).collect();
        if found.is_empty() {
            return Err(Problem::NoSuchGpu {
                wanted: selector.to_string(),
                present: gpus.iter().map(|gpu| gpu.minor).collect(),
            });
        }
        if let Some(minor) = found.iter().find(|minor| minors.contains(*minor)) {
            return Err(Problem::GpuTwice { minor: *minor });
        }
        minors.extend(found);
    }
    Ok(minors)
}

/// The instances of a tenant, by GPU.
pub(crate) fn tenant(control: &dyn Control, name: &Name) -> Result<Vec<Instance>, Problem> {
    let mut all = control.instances()?;
    all.retain(|instance| instance.key.name == *name);
    all.sort_by_key(|instance| instance.key.gpu_minor);
    if all.is_empty() {
        return Err(Problem::NoSuchInstance { elsewhere: vec![] });
    }
    Ok(all)
}

/// The instances of a tenant on the selected GPUs, in the order given; all if none was selected.
pub(crate) fn tenant_on(
    control: &dyn Control,
    name: &Name,
    selectors: &[Selector],
) -> Result<Vec<Instance>, Problem> {
    let all = tenant(control, name)?;
    if matches!(selectors, [] | [Selector::All]) {
        return Ok(all);
    }
    let on = |minor| {
        let found = all.iter().find(|i| i.key.gpu_minor == minor).copied();
        found.ok_or_else(|| Problem::NoSuchInstance {
            elsewhere: all.iter().map(|i| i.key.gpu_minor).collect(),
        })
    };
    select(&control.gpus()?, selectors)?
        .into_iter()
        .map(on)
        .collect()
}

/// The instances to change: the selected ones, or the only one of its name.
pub(crate) fn instances(
    control: &dyn Control,
    name: &Name,
    selectors: &[Selector],
) -> Result<Vec<Instance>, Problem> {
    let found = tenant_on(control, name, selectors)?;
    if selectors.is_empty() && found.len() > 1 {
        return Err(Problem::Ambiguous {
            gpus: found.iter().map(|i| i.key.gpu_minor).collect(),
        });
    }
    Ok(found)
}

/// Does something to each instance in turn. If one fails, the sentence says which were done.
pub(crate) fn each(
    control: &dyn Control,
    instances: &[Instance],
    (verb, done): (&str, &str),
    mut act: impl FnMut(InstanceKey) -> Result<(), Errno>,
) -> Result<(), Failure> {
    for (i, instance) in instances.iter().enumerate() {
        let (name, minor) = (instance.key.name, instance.key.gpu_minor);
        act(InstanceKey::new(name, minor)).map_err(|errno| {
            let facts = Facts::about(control, &name, Some(minor));
            let before: Vec<_> = instances.iter().take(i).map(|b| b.key.gpu_minor).collect();
            let mut failure = Problem::explain(errno, &facts)
                .when(format!("{verb} {} on GPU {minor}", called(&name)));
            if !before.is_empty() {
                failure.aftermath = Some(format!("; on {} it was {done} before", gpus(&before)));
            }
            failure
        })?;
    }
    Ok(())
}
