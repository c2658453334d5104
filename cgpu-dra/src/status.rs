// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The instances in a claim's status (`status.devices`), and the wishes in the claim's annotations.
//! Pure: objects in, objects out.

use crate::{
    claims::{Plan, Share},
    names::{Uid, DRIVER},
    quantity,
};
use cgpu_client::{container::device_path, size::Bytes};
use cgpu_uapi::{state, Instance, InstanceCompute, WEIGHT_MAX};
use k8s_openapi::{
    api::resource::v1::{AllocatedDeviceStatus, ResourceClaim},
    apimachinery::pkg::{
        apis::meta::v1::{Condition, Time},
        runtime::RawExtension,
    },
    jiff::Timestamp,
};
use serde_json::json;
use std::collections::BTreeMap;

/// On a claim: the limit of its instances, on each GPU, like `4Gi`.
pub const MEMORY: &str = "cgpu.io/memory";
/// On a claim: the weight of its instances.
pub const WEIGHT: &str = "cgpu.io/weight";

/// The wishes in the annotations of a claim.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resize {
    /// Limit on each GPU, bytes.
    pub memory_bytes: Option<u64>,
    /// Weight on each GPU.
    pub weight: Option<u32>,
}

impl Resize {
    /// Reads the annotations; an error is a sentence.
    pub fn of(claim: &ResourceClaim) -> Result<Self, String> {
        let none = BTreeMap::new();
        let all = claim.metadata.annotations.as_ref().unwrap_or(&none);
        let number = |key: &str| {
            let read = all.get(key).map(|text| quantity::parse(text));
            read.transpose().map_err(|why| format!("{key}: {why}"))
        };
        let memory_bytes = number(MEMORY)?;
        if memory_bytes == Some(0) {
            return Err(format!(
                "{MEMORY} is zero, and a limit of zero allows nothing"
            ));
        }
        let weight = match number(WEIGHT)? {
            None => None,
            Some(n) => Some(
                u32::try_from(n)
                    .ok()
                    .filter(|w| (1..=WEIGHT_MAX).contains(w))
                    .ok_or_else(|| format!("{WEIGHT} is not between 1 and {WEIGHT_MAX}"))?,
            ),
        };
        Ok(Self {
            memory_bytes,
            weight,
        })
    }
}

/// The instances of a claim at one moment.
#[derive(Default)]
pub struct Moment {
    /// The instances.
    pub instances: Vec<Instance>,
    /// Their GPU time.
    pub compute: Vec<InstanceCompute>,
    /// The outcome of a wish for another size, if there was one.
    pub resized: Option<Result<(), String>>,
}

/// `status.devices` for a claim. What has not changed since `before` keeps its time.
pub fn devices(
    uid: &Uid,
    plan: &Plan,
    pool: &str,
    moment: &Moment,
    before: &[AllocatedDeviceStatus],
    now: Timestamp,
) -> Vec<AllocatedDeviceStatus> {
    let shares = plan.shares.iter();
    shares
        .map(|share| {
            let instances = moment.instances.iter();
            let instance = instances.clone().find(|i| i.key.gpu_minor == share.minor);
            let old = before
                .iter()
                .find(|d| d.driver == DRIVER && d.device == share.device && d.pool == pool);
            let old = old
                .and_then(|d| d.conditions.as_deref())
                .unwrap_or_default();
            AllocatedDeviceStatus {
                driver: DRIVER.to_owned(),
                pool: pool.to_owned(),
                device: share.device.clone(),
                share_id: share.share_id.clone(),
                conditions: Some(conditions(uid, share, instance, moment, old, now)),
                data: instance.map(|i| RawExtension(data(i))),
                network_data: None,
            }
        })
        .collect()
}

fn data(instance: &Instance) -> serde_json::Value {
    json!({
        "instance": instance.key.name.as_str().unwrap_or_default(),
        "device": device_path(instance.id),
        "memoryLimit": quantity::bytes(instance.memory_limit_bytes),
        "weight": instance.weight,
    })
}

fn conditions(
    uid: &Uid,
    share: &Share,
    instance: Option<&Instance>,
    moment: &Moment,
    old: &[Condition],
    now: Timestamp,
) -> Vec<Condition> {
    let condition = |kind: &str, status: bool, reason: &str, message: String| {
        let status = if status { "True" } else { "False" };
        let same = |c: &&Condition| c.type_ == kind && c.status == status;
        let since = old
            .iter()
            .find(same)
            .map(|c| c.last_transition_time.clone());
        Condition {
            type_: kind.to_owned(),
            status: status.to_owned(),
            reason: reason.to_owned(),
            message,
            last_transition_time: since.unwrap_or(Time(now)),
            observed_generation: None,
        }
    };
    let name = uid.instance();
    let Some(instance) = instance else {
        let message = format!("the instance {name} on {} is gone", share.device);
        return vec![condition("Ready", false, "InstanceGone", message)];
    };
    let mut all = vec![condition(
        "Ready",
        true,
        "InstanceCreated",
        format!("instance {name} on {}", device_path(instance.id)),
    )];
    let held =
        instance.memory_used_bytes + instance.memory_overhead_bytes + instance.memory_managed_bytes;
    let limit = instance.memory_limit_bytes;
    let (over, reason) = if held > limit {
        (true, "LimitLowered")
    } else {
        (false, "WithinLimit")
    };
    all.push(condition(
        "OverLimit",
        over,
        reason,
        format!("the limit is {}", Bytes(limit)),
    ));
    let compute = moment.compute.iter().find(|c| c.id == instance.id);
    let suspended = compute.is_some_and(|c| c.state & state::SUSPENDED != 0);
    let (reason, message) = if suspended {
        (
            "SuspendedByOperator",
            "the node's operator keeps it off the GPU",
        )
    } else {
        ("NotSuspended", "it may use the GPU")
    };
    all.push(condition(
        "Suspended",
        suspended,
        reason,
        message.to_owned(),
    ));
    match &moment.resized {
        None => {}
        Some(Ok(())) => {
            let message = format!("limit {} and weight {}", Bytes(limit), instance.weight);
            all.push(condition("Resized", true, "AsAnnotated", message));
        }
        Some(Err(why)) => all.push(condition("Resized", false, "Refused", why.clone())),
    }
    all
}
