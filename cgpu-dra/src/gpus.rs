// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The GPUs of this node as the scheduler of Kubernetes is to see them: what they have, less what
//! instances hold of it that were made by hand, or whose claim is gone.

use crate::names::{self, Uid};
use cgpu_client::{control::Control, text::known};
use cgpu_uapi::{mig, text, Gpu, Instance, Policy, MAX_INSTANCES_PER_GPU, WEIGHT_MAX};
use nix::errno::Errno;
use std::collections::BTreeMap;

/// A GPU of this node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeGpu {
    /// `N` of `/dev/nvidiaN`.
    pub minor: u32,
    /// `GPU-…`.
    pub uuid: String,
    /// Its place on the PCI bus.
    pub pci: String,
    /// Product name, if the driver tells one.
    pub product: Option<String>,
    /// Memory that claims can have, bytes. With overcommit it may be more than there is.
    pub memory_bytes: u64,
    /// Memory that one claim can have, bytes: the module refuses a limit above the GPU's memory.
    pub largest_bytes: u64,
    /// The part of [`WEIGHT_MAX`] that claims can have.
    pub weight: u32,
    /// Instances that claims can have.
    pub instances: u32,
}

/// The GPUs and the driver's version.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inventory {
    /// Version of the NVIDIA driver; empty while it is away.
    pub driver: String,
    /// By minor. A GPU that is divided by MIG is none of them.
    pub gpus: Vec<NodeGpu>,
}

/// Memory and weight of a GPU that instances hold.
#[derive(Clone, Copy, Default)]
struct Held {
    memory_bytes: u64,
    weight: u32,
    instances: u32,
}

impl Inventory {
    /// Reads it from the control device. `overcommit` has claims share so many percent of a GPU's
    /// memory; 100 is all of it. `is_counted` says which claims the scheduler counts itself.
    pub fn read(
        control: &dyn Control,
        overcommit: u32,
        is_counted: impl Fn(&Uid) -> bool,
    ) -> Result<Self, Errno> {
        // The GPUs first: looking for them is what makes the module ask for the version.
        let (gpus, instances) = (control.gpus()?, control.instances()?);
        let version = control.version()?;
        let others = held_by_others(&instances, is_counted);
        let shared = gpus.iter().filter(|gpu| !is_mig(gpu)).map(|gpu| {
            let held = others.get(&gpu.minor).copied().unwrap_or_default();
            NodeGpu::new(gpu, held, overcommit)
        });
        let mut shared: Vec<_> = shared.collect();
        shared.sort_by_key(|gpu| gpu.minor);
        Ok(Self {
            driver: text(&version.driver).to_owned(),
            gpus: shared,
        })
    }

    /// The GPU behind a device's name.
    pub fn device(&self, name: &str) -> Option<&NodeGpu> {
        self.gpus.iter().find(|gpu| gpu.device() == name)
    }
}

/// Whether MIG divides a GPU, or will until the next reset.
pub(crate) fn is_mig(gpu: &Gpu) -> bool {
    matches!(gpu.mig_mode, mig::ENABLED | mig::DISABLE_PENDING)
}

/// Memory and weight that the scheduler does not know of, by minor.
fn held_by_others(
    instances: &[Instance],
    is_counted: impl Fn(&Uid) -> bool,
) -> BTreeMap<u32, Held> {
    let mut held: BTreeMap<u32, Held> = BTreeMap::new();
    for instance in instances {
        let name = instance.key.name.as_str().unwrap_or_default();
        if names::uid_of(name).is_some_and(|uid| is_counted(&uid)) {
            continue;
        }
        let on = held.entry(instance.key.gpu_minor).or_default();
        on.memory_bytes = on.memory_bytes.saturating_add(instance.memory_limit_bytes);
        on.weight = on.weight.saturating_add(instance.weight);
        on.instances += 1;
    }
    held
}

impl NodeGpu {
    fn new(gpu: &Gpu, held: Held, overcommit: u32) -> Self {
        let whole = u128::from(gpu.memory_bytes) * u128::from(overcommit) / 100;
        let whole = u64::try_from(whole).unwrap_or(u64::MAX);
        let most = if gpu.policy == Policy::FixedEqual.number() {
            gpu.max_instances
        } else {
            u32::try_from(MAX_INSTANCES_PER_GPU).unwrap_or(u32::MAX)
        };
        let shared = whole.saturating_sub(held.memory_bytes);
        Self {
            minor: gpu.minor,
            uuid: text(&gpu.uuid).to_owned(),
            pci: text(&gpu.pci).to_owned(),
            product: known(&gpu.name),
            memory_bytes: shared,
            largest_bytes: shared.min(gpu.memory_bytes),
            weight: WEIGHT_MAX.saturating_sub(held.weight),
            instances: most.saturating_sub(held.instances),
        }
    }

    /// Its name in the slice.
    pub fn device(&self) -> String {
        names::device(self.minor)
    }
}
