// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The wishes of an allocated ResourceClaim to this node, as instances to be made.

use crate::{
    config::{Allowed, ConfigError, Forbidden, GpuConfig},
    gpus::Inventory,
    names::{Uid, DRIVER},
    quantity::{self, QuantityError},
};
use cgpu_client::{capabilities::Capabilities, text::enumerate};
use cgpu_uapi::{capability, ManagedMode, Priority, WEIGHT_DEFAULT, WEIGHT_MAX};
use k8s_openapi::{
    api::resource::v1::{
        DeviceAllocationConfiguration, DeviceRequestAllocationResult, ResourceClaim,
    },
    apimachinery::pkg::api::resource::Quantity,
};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// The source of a class's configuration.
const FROM_CLASS: &str = "FromClass";

/// An instance of a claim on one GPU.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Share {
    /// The request of the claim that it serves; of a prioritized list the request, not its choice.
    pub request: String,
    /// The GPU's name in the slice.
    pub device: String,
    /// Which share of the device, if the apiserver tells them apart.
    pub share_id: Option<String>,
    /// The GPU.
    pub minor: u32,
    /// Memory that the scheduler has set aside, bytes.
    pub memory_bytes: u64,
    /// Weight that the scheduler has set aside.
    pub weight: u32,
    /// A number of [`Priority`].
    pub priority: u32,
    /// A number of [`ManagedMode`].
    pub managed: u32,
    /// Bits of [`capability`].
    pub capabilities: u32,
    /// Its own burst, milliseconds; `None`, as in older files: the GPU's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub burst_ms: Option<u32>,
}

/// A claim and its instances.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// Namespace of the claim.
    pub namespace: String,
    /// Name of the claim.
    pub name: String,
    /// Its instances, on one GPU each.
    pub shares: Vec<Share>,
}

impl Plan {
    /// Whether two plans are of one allocation. Parameters may have changed with a class.
    pub fn is_same_allocation(&self, other: &Self) -> bool {
        let of = |plan: &Self| {
            let shares = plan.shares.iter().cloned();
            let mut all: Vec<_> = shares
                .map(|s| (s.request, s.device, s.share_id, s.memory_bytes, s.weight))
                .collect();
            all.sort();
            all
        };
        of(self) == of(other)
    }

    /// Whether the scheduler has a claim where this plan has its instances.
    pub fn is_allocated(&self, claim: &ResourceClaim, pool: &str) -> bool {
        let allocation = claim.status.as_ref().and_then(|s| s.allocation.as_ref());
        let devices = allocation.and_then(|a| a.devices.as_ref());
        let results = devices.and_then(|d| d.results.as_deref());
        let results = results.unwrap_or_default();
        self.shares.iter().all(|share| {
            let mut own = results
                .iter()
                .filter(|r| r.driver == DRIVER && r.pool == pool);
            own.any(|r| r.device == share.device && r.share_id == share.share_id)
        })
    }
}

/// Why a claim cannot be prepared.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// The claim was deleted and made again under its name.
    #[error("the claim {0} was deleted and made again; its uid has changed")]
    Replaced(String),
    /// The scheduler has not been there.
    #[error("the claim {0} is not allocated")]
    NotAllocated(String),
    /// Nothing of the claim is this driver's.
    #[error("the claim {0} has no device of {DRIVER} on this node")]
    NothingHere(String),
    /// An allocation of another node.
    #[error("the claim's device {device} is of the pool {pool}, and this node's pool is {own}")]
    OtherPool {
        /// As allocated.
        device: String,
        /// As allocated.
        pool: String,
        /// This node's.
        own: String,
    },
    /// The GPU is not there, or not any more.
    #[error("this node has no {0}; `cgpuctl gpu list` on the node shows its GPUs")]
    NoDevice(String),
    /// One tenant has one instance on a GPU.
    #[error(
        "the claim has {0} twice, and a claim can have one share of a GPU; put \
         `distinctAttribute: {DRIVER}/uuid` into its constraints, or ask for one larger share"
    )]
    Twice(String),
    /// Access without a share.
    #[error("the request {0} asks for adminAccess, which {DRIVER} does not give")]
    Admin(String),
    /// The allocation says no size.
    #[error(
        "the allocation of {0} says no memory: the feature gate DRAConsumableCapacity must be on \
         in kube-apiserver, kube-scheduler and kubelet"
    )]
    NoCapacity(String),
    /// Not a number.
    #[error("the allocation of {device}: {why}")]
    BadQuantity {
        /// As allocated.
        device: String,
        /// Why.
        why: QuantityError,
    },
    /// Not a weight.
    #[error("the allocation of {0} has a weight that is not between 1 and {WEIGHT_MAX}")]
    BadWeight(String),
    /// A scheduler that does not say to which class parameters belong.
    #[error(
        "the claim's requests are of the classes {0}, and the allocation does not say for which of \
         them the parameters of a class are; kube-scheduler says it from 1.34.2 on: update it and \
         make the claim anew, or ask for one class"
    )]
    MixedClasses(String),
    /// Opaque parameters.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// They ask for too much.
    #[error(transparent)]
    Forbidden(#[from] Forbidden),
}

/// Plans the instances of a claim. `pool` is the node's, and `allowed` what a claim may ask for
/// without its class's word.
pub fn plan(
    claim: &ResourceClaim,
    uid: &Uid,
    pool: &str,
    inventory: &Inventory,
    allowed: Allowed,
) -> Result<Plan, PlanError> {
    let namespace = claim.metadata.namespace.clone().unwrap_or_default();
    let name = claim.metadata.name.clone().unwrap_or_default();
    let called = || format!("{namespace}/{name}");
    if claim.metadata.uid.as_deref() != Some(uid.as_str()) {
        return Err(PlanError::Replaced(called()));
    }
    let allocation = claim.status.as_ref().and_then(|s| s.allocation.as_ref());
    let allocation = allocation.ok_or_else(|| PlanError::NotAllocated(called()))?;
    let devices = allocation.devices.as_ref();
    let results = devices.and_then(|d| d.results.as_deref());
    let results = results.unwrap_or_default();
    let configs = devices.and_then(|d| d.config.as_deref());
    let configs = configs.unwrap_or_default();
    let classes = classes(claim, results);
    if classes.len() > 1 && configs.iter().any(is_of_some_class) {
        let classes: Vec<_> = classes.into_iter().collect();
        return Err(PlanError::MixedClasses(enumerate(&classes, "and")));
    }
    let mut shares = Vec::new();
    let mut seen = BTreeSet::new();
    for result in results.iter().filter(|result| result.driver == DRIVER) {
        if result.pool != pool {
            return Err(PlanError::OtherPool {
                device: result.device.clone(),
                pool: result.pool.clone(),
                own: pool.to_owned(),
            });
        }
        if !seen.insert(&result.device) {
            return Err(PlanError::Twice(result.device.clone()));
        }
        shares.push(share(result, configs, inventory, allowed)?);
    }
    if shares.is_empty() {
        return Err(PlanError::NothingHere(called()));
    }
    Ok(Plan {
        namespace,
        name,
        shares,
    })
}

fn share(
    result: &DeviceRequestAllocationResult,
    configs: &[DeviceAllocationConfiguration],
    inventory: &Inventory,
    allowed: Allowed,
) -> Result<Share, PlanError> {
    let device = &result.device;
    if result.admin_access == Some(true) {
        return Err(PlanError::Admin(result.request.clone()));
    }
    let gpu = inventory.device(device);
    let gpu = gpu.ok_or_else(|| PlanError::NoDevice(device.clone()))?;
    let none = BTreeMap::new();
    let consumed = result.consumed_capacity.as_ref().unwrap_or(&none);
    let number = |q: &Quantity| {
        quantity::parse(&q.0).map_err(|why| PlanError::BadQuantity {
            device: device.clone(),
            why,
        })
    };
    let memory = capacity(consumed, "memory");
    let memory = memory.ok_or_else(|| PlanError::NoCapacity(device.clone()))?;
    let weight = capacity(consumed, "weight").map(number).transpose()?;
    let weight = u32::try_from(weight.unwrap_or(WEIGHT_DEFAULT.into()));
    let weight = weight.ok().filter(|w| (1..=WEIGHT_MAX).contains(w));
    let config = config(&result.request, configs, allowed)?;
    let request = result.request.split('/').next().unwrap_or_default();
    Ok(Share {
        request: request.to_owned(),
        device: device.clone(),
        share_id: result.share_id.clone(),
        minor: gpu.minor,
        memory_bytes: number(memory)?,
        weight: weight.ok_or_else(|| PlanError::BadWeight(device.clone()))?,
        priority: config.priority.unwrap_or(Priority::Normal).number(),
        managed: config.managed.unwrap_or(ManagedMode::Spill).number(),
        capabilities: config
            .capabilities
            .unwrap_or(Capabilities(capability::DEFAULT))
            .0,
        burst_ms: config.burst_ms,
    })
}

/// A capacity by its name, with or without the driver's domain in front.
fn capacity<'a>(consumed: &'a BTreeMap<String, Quantity>, name: &str) -> Option<&'a Quantity> {
    consumed
        .get(name)
        .or_else(|| consumed.get(&format!("{DRIVER}/{name}")))
}

/// The classes of the requests that were allocated; of a prioritized list that of its choice.
fn classes<'a>(
    claim: &'a ResourceClaim,
    results: &[DeviceRequestAllocationResult],
) -> BTreeSet<&'a str> {
    let requests = claim.spec.devices.iter();
    let requests = requests.flat_map(|devices| devices.requests.iter().flatten());
    let named = requests.flat_map(|request| {
        let exactly = request.exactly.iter();
        let exactly = exactly.map(|e| (request.name.clone(), &*e.device_class_name));
        let choices = request.first_available.iter().flatten();
        let choices = choices.map(|choice| {
            let name = format!("{}/{}", request.name, choice.name);
            (name, &*choice.device_class_name)
        });
        exactly.chain(choices)
    });
    let allocated = |name: &str| results.iter().any(|result| result.request == name);
    let allocated = named.filter(|(name, _)| allocated(name));
    allocated.map(|(_, class)| class).collect()
}

/// Whether a configuration of this driver comes from a class, and for all requests. With several
/// classes only a scheduler before 1.34.2 says so, of each class's: kubernetes#134793.
fn is_of_some_class(config: &DeviceAllocationConfiguration) -> bool {
    let ours = config.opaque.as_ref().is_some_and(|o| o.driver == DRIVER);
    let for_all = config.requests.as_deref().unwrap_or_default().is_empty();
    ours && for_all && config.source == FROM_CLASS
}

/// The configurations of class and claim for a request. The scheduler says which is whose.
fn config(
    request: &str,
    configs: &[DeviceAllocationConfiguration],
    allowed: Allowed,
) -> Result<GpuConfig, PlanError> {
    let merged = |from_class: bool| {
        let own = configs.iter();
        let own = own.filter(|config| (config.source == FROM_CLASS) == from_class);
        let ours = own.filter_map(|config| {
            let opaque = config.opaque.as_ref().filter(|o| o.driver == DRIVER)?;
            let requests = config.requests.as_deref().unwrap_or_default();
            Some((requests, &opaque.parameters.0))
        });
        GpuConfig::of_request(request, ours)
    };
    Ok(merged(true)?.asked_by(merged(false)?, allowed)?)
}
