// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The instances in a claim's status (`status.devices`), and the wishes in the claim's annotations.
//! Pure: objects in, objects out.

use crate::{
    claims::{Plan, Share},
    names::{Uid, DRIVER},
    quantity,
};
use cgpu_client::{container::device_path, metrics::charged, size::Bytes};
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
use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

/// On a claim: the limit of its instances, on each GPU, like `4Gi`.
pub const MEMORY: &str = "cgpu.io/memory";
/// On a claim: the weight of its instances.
pub const WEIGHT: &str = "cgpu.io/weight";

/// The type of the condition that tells what became of a wish.
const RESIZED: &str = "Resized";
/// Wait after a wish was tried in vain, at first.
const FIRST_WAIT: Duration = Duration::from_secs(4);
/// Longest such wait.
const LONGEST_WAIT: Duration = Duration::from_secs(300);

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

impl Resize {
    /// A share as large as this wishes, and never larger than it is.
    pub fn within(&self, share: &Share) -> Share {
        let memory_bytes = self.memory_bytes.unwrap_or(share.memory_bytes);
        let weight = self.weight.unwrap_or(share.weight);
        Share {
            memory_bytes: memory_bytes.min(share.memory_bytes),
            weight: weight.min(share.weight),
            ..share.clone()
        }
    }

    /// Whether these instances are what it says.
    fn is_kept(&self, instances: &[Instance]) -> bool {
        let memory = |i: &Instance| self.memory_bytes.is_none_or(|n| n == i.memory_limit_bytes);
        let weight = |i: &Instance| self.weight.is_none_or(|n| n == i.weight);
        instances.iter().all(|i| memory(i) && weight(i))
    }
}

/// Whether the status of a claim tells of a wish.
pub fn was_resized(claim: &ResourceClaim) -> bool {
    let devices = claim.status.iter().flat_map(|s| s.devices.iter().flatten());
    let own = devices.filter(|device| device.driver == DRIVER);
    let mut conditions = own.flat_map(|device| device.conditions.iter().flatten());
    conditions.any(|condition| condition.type_ == RESIZED)
}

/// When the wish in a claim's annotations is to be followed: when this program first sees it, when
/// it changes, and again after a while if it was refused or the instances are not so any more.
#[derive(Debug, Default)]
pub struct Wish {
    tried: Option<Result<Resize, String>>,
    refused: bool,
    /// Before then it is not tried again.
    next: Option<Instant>,
    wait: Duration,
}

impl Wish {
    /// Whether to follow it now. `was_resized`: the claim's status tells of a wish, which may have
    /// been taken back while this program was away.
    pub fn is_due(
        &self,
        asked: &Result<Resize, String>,
        instances: &[Instance],
        was_resized: bool,
        now: Instant,
    ) -> bool {
        let Some(before) = &self.tried else {
            return was_resized || *asked != Ok(Resize::default());
        };
        if before != asked {
            return true;
        }
        // One that cannot be read is not read better later.
        let open = |wish: &Resize| self.refused || !wish.is_kept(instances);
        asked.as_ref().is_ok_and(open) && self.next.is_none_or(|next| now >= next)
    }

    /// It was tried.
    pub fn note(&mut self, asked: &Result<Resize, String>, refused: bool, now: Instant) {
        if self.tried.as_ref() != Some(asked) {
            self.wait = FIRST_WAIT;
        }
        self.tried = Some(asked.clone());
        self.refused = refused;
        self.next = Some(now + self.wait);
        self.wait = (self.wait * 2).min(LONGEST_WAIT);
    }
}

/// Whether the apiserver drops `status.devices` of claims, because its feature gate is off.
#[derive(Debug, Default)]
pub struct DroppedStatus(AtomicBool);

impl DroppedStatus {
    /// It was written, and this became of it. If that is news, the log says so.
    pub fn note(&self, is_dropped: bool) {
        if !self.0.swap(is_dropped, Ordering::Relaxed) && is_dropped {
            eprintln!(
                "cgpu-dra: the apiserver has dropped status.devices from a claim, so claims do not \
                 say what they have; turn the feature gate DRAResourceClaimDeviceStatus on in \
                 kube-apiserver"
            );
        }
    }

    /// Whether it was dropped when it was written last.
    pub fn is_dropped(&self) -> bool {
        self.0.load(Ordering::Relaxed)
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

/// Whether a claim's `status.devices` says of all of these what they say.
pub fn tells_of(status: &[AllocatedDeviceStatus], devices: &[AllocatedDeviceStatus]) -> bool {
    let key = |d: &AllocatedDeviceStatus| {
        let conditions = d.conditions.iter().flatten();
        let kinds: Vec<_> = conditions
            .map(|c| (c.type_.clone(), c.status.clone()))
            .collect();
        (
            d.driver.clone(),
            d.pool.clone(),
            d.device.clone(),
            kinds,
            d.data.clone(),
        )
    };
    let there: Vec<_> = status.iter().map(key).collect();
    devices.iter().all(|device| there.contains(&key(device)))
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
    let held = charged(instance);
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
            all.push(condition(RESIZED, true, "AsAnnotated", message));
        }
        Some(Err(why)) => all.push(condition(RESIZED, false, "Refused", why.clone())),
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use zerocopy::FromZeros;

    fn of(memory_bytes: u64) -> [Instance; 1] {
        let mut instance = Instance::new_zeroed();
        instance.memory_limit_bytes = memory_bytes;
        [instance]
    }

    fn wish(memory_bytes: Option<u64>) -> Result<Resize, String> {
        Ok(Resize {
            memory_bytes,
            weight: None,
        })
    }

    #[test]
    fn a_wish_is_followed_at_first_sight() {
        let (fresh, now) = (Wish::default(), Instant::now());
        assert!(fresh.is_due(&wish(Some(4)), &of(8), false, now));
        // It was taken back while the driver was away.
        assert!(fresh.is_due(&wish(None), &of(4), true, now));
        assert!(!fresh.is_due(&wish(None), &of(4), false, now));
    }

    #[test]
    fn a_refused_wish_is_tried_again() {
        let (mut known, began, asked) = (Wish::default(), Instant::now(), wish(Some(4)));
        let after = |seconds| began + Duration::from_secs(seconds);
        known.note(&asked, true, after(0));
        assert!(!known.is_due(&asked, &of(8), true, after(3)));
        assert!(known.is_due(&asked, &of(8), true, after(4)));
        known.note(&asked, true, after(4));
        assert!(!known.is_due(&asked, &of(8), true, after(11)));
        assert!(known.is_due(&asked, &of(8), true, after(12)));
        // Another wish does not wait.
        assert!(known.is_due(&wish(Some(5)), &of(8), true, after(5)));
        known.note(&asked, false, after(12));
        assert!(!known.is_due(&asked, &of(4), true, after(900)));
        // The module was loaded anew, and the instance made as it was set aside.
        assert!(known.is_due(&asked, &of(8), true, after(900)));
        let odd = Err("no number".to_owned());
        known.note(&odd, true, after(900));
        assert!(!known.is_due(&odd, &of(8), true, after(1800)));
    }

    #[test]
    fn the_status_remembers_a_wish() {
        let claim = |kind: &str| {
            let condition = serde_json::json!({"type": kind, "status": "True", "reason": "r",
                "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"});
            let device = serde_json::json!({"driver": DRIVER, "pool": "p", "device": "gpu-0",
                "conditions": [condition]});
            let claim = serde_json::json!({"metadata": {}, "spec": {},
                "status": {"devices": [device]}});
            serde_json::from_value(claim).expect("a claim")
        };
        assert!(was_resized(&claim("Resized")));
        assert!(!was_resized(&claim("Ready")));
        assert!(!was_resized(&ResourceClaim::default()));
    }
}
