// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The kubelet of a node in memory: it prepares the claims of the node's pods, and ends pods that
//! are deleted.

use crate::{fake_node::FakeNode, faults, kubelet::TestKubelet};
use k8s_openapi::{
    api::{
        core::v1::Pod,
        resource::v1::{DeviceRequestAllocationResult, ResourceClaim},
    },
    apimachinery::pkg::api::resource::Quantity,
};
use kube::{
    api::{DeleteParams, ListParams},
    Api, Client,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex},
};

/// The driver's last answers, by uid of the claim: names of CDI devices, or an error.
pub(crate) type Answers = Arc<Mutex<BTreeMap<String, Result<Vec<String>, String>>>>;
/// All errors of the driver.
pub(crate) type Refusals = Arc<Mutex<Vec<String>>>;

/// A pod's claims, and whether all are prepared.
#[derive(Default)]
pub(crate) struct PodClaims {
    /// Namespace, name and uid.
    held: Vec<[String; 3]>,
    done: bool,
}

/// The pods of a node.
pub(crate) struct NodePods {
    pub(crate) client: Client,
    pub(crate) node: String,
    pub(crate) fake: Arc<FakeNode>,
    pub(crate) answers: Answers,
    pub(crate) refusals: Refusals,
    /// By the pod's uid.
    pub(crate) known: BTreeMap<String, PodClaims>,
}

/// The claims of a pod, by name.
fn claims_of(pod: &Pod) -> Vec<String> {
    let spec = pod.spec.as_ref().and_then(|s| s.resource_claims.as_deref());
    let direct = spec
        .unwrap_or_default()
        .iter()
        .filter_map(|c| c.resource_claim_name.clone());
    let status = pod.status.as_ref();
    let made = status.and_then(|s| s.resource_claim_statuses.as_deref());
    let made = made
        .unwrap_or_default()
        .iter()
        .filter_map(|c| c.resource_claim_name.clone());
    let extended = status.and_then(|s| s.extended_resource_claim_status.as_ref());
    let extended = extended.map(|e| e.resource_claim_name.clone());
    direct.chain(made).chain(extended).collect()
}

/// The number that an apiserver writes for a whole number of bytes or pieces.
fn number(quantity: &Quantity) -> Option<u64> {
    let text = quantity.0.as_str();
    let units = [("Ki", 10), ("Mi", 20), ("Gi", 30), ("Ti", 40), ("", 0)];
    let (digits, shift) = units
        .iter()
        .find_map(|(unit, shift)| Some((text.strip_suffix(unit)?, shift)))?;
    Some(digits.parse::<u64>().ok()? << shift)
}

/// GPU, bytes and weight of an allocated share.
fn share(result: &DeviceRequestAllocationResult) -> Option<(u32, u64, u32)> {
    let consumed = result.consumed_capacity.as_ref()?;
    let weight = number(consumed.get("weight")?)?;
    Some((
        result.device.strip_prefix("gpu-")?.parse().ok()?,
        number(consumed.get("memory")?)?,
        u32::try_from(weight).ok()?,
    ))
}

impl NodePods {
    /// Whether a pod is still to run. One that is deleted while it is being bound is gone at once.
    async fn is_wanted(&self, pod: &Pod) -> bool {
        let namespace = pod.metadata.namespace.clone().unwrap_or_default();
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), &namespace);
        let now = pods
            .get(pod.metadata.name.as_deref().unwrap_or_default())
            .await;
        now.is_ok_and(|p| {
            p.metadata.uid == pod.metadata.uid && p.metadata.deletion_timestamp.is_none()
        })
    }

    /// One round of the kubelet.
    pub(crate) async fn turn(&mut self) {
        let pods: Api<Pod> = Api::all(self.client.clone());
        let own = ListParams::default().fields(&format!("spec.nodeName={}", self.node));
        let Ok(listed) = pods.list(&own).await else {
            return;
        };
        if listed.items.is_empty() && self.known.is_empty() {
            return;
        }
        let mut kubelet = TestKubelet::register(&self.fake.places().registry).await;
        let mut there = BTreeSet::new();
        for pod in listed.items {
            let uid = pod.metadata.uid.clone().unwrap_or_default();
            if pod.metadata.deletion_timestamp.is_none() {
                self.run(&mut kubelet, &pod, &uid).await;
                there.insert(uid);
                continue;
            }
            // First everything is taken back, then the pod is gone for the apiserver.
            if self.end(&mut kubelet, &uid).await {
                let namespace = pod.metadata.namespace.clone().unwrap_or_default();
                let pods: Api<Pod> = Api::namespaced(self.client.clone(), &namespace);
                let name = pod.metadata.name.clone().unwrap_or_default();
                let now = DeleteParams::default().grace_period(0);
                let _ = pods.delete(&name, &now).await;
            }
            there.insert(uid);
        }
        // Pods that somebody has deleted by force.
        let lost = self.known.keys().filter(|uid| !there.contains(*uid));
        let lost: Vec<_> = lost.cloned().collect();
        for uid in lost {
            self.end(&mut kubelet, &uid).await;
        }
    }

    /// Prepares the claims of a pod, if they are not prepared yet.
    async fn run(&mut self, kubelet: &mut TestKubelet, pod: &Pod, uid: &str) {
        if self.known.get(uid).is_some_and(|claims| claims.done) {
            return;
        }
        let namespace = pod.metadata.namespace.clone().unwrap_or_default();
        let claims: Api<ResourceClaim> = Api::namespaced(self.client.clone(), &namespace);
        let (mut held, mut done) = (Vec::new(), true);
        for claim in claims_of(pod) {
            let Ok(found) = claims.get(&claim).await else {
                done = false;
                continue;
            };
            let at = found.metadata.uid.clone().unwrap_or_default();
            let answer = kubelet.prepare(&namespace, &claim, &at).await;
            held.push([namespace.clone(), claim, at.clone()]);
            let said = if answer.error.is_empty() {
                self.compare(&found, &at).await;
                let devices = answer.devices.into_iter();
                Ok(devices.flat_map(|d| d.cdi_device_ids).collect())
            } else {
                done = false;
                self.refuse(&answer.error);
                if !self.is_wanted(pod).await {
                    continue;
                }
                Err(answer.error)
            };
            self.answers.lock().expect("held").insert(at, said);
        }
        self.known.insert(uid.to_owned(), PodClaims { held, done });
    }

    /// Takes back what a pod has. Says whether nothing is left.
    async fn end(&mut self, kubelet: &mut TestKubelet, uid: &str) -> bool {
        let Some(claims) = self.known.get(uid) else {
            return true;
        };
        let mut left = false;
        for [namespace, claim, at] in &claims.held {
            let error = kubelet.unprepare(namespace, claim, at).await;
            if !error.is_empty() {
                left = true;
                self.refuse(&error);
            }
        }
        if !left {
            self.known.remove(uid);
        }
        !left
    }

    fn refuse(&self, error: &str) {
        self.refusals.lock().expect("held").push(error.to_owned());
    }

    /// The instances of a claim that was just prepared are what the scheduler has set aside.
    async fn compare(&self, claim: &ResourceClaim, uid: &str) {
        let allocation = claim.status.as_ref().and_then(|s| s.allocation.as_ref());
        let devices = allocation.and_then(|a| a.devices.as_ref());
        let results = devices.and_then(|d| d.results.as_deref());
        let own = results.unwrap_or_default().iter();
        let own = own.filter(|r| r.driver == "gpu.cgpu.io" && r.pool == self.node);
        let mut wanted: Vec<_> = own.map(share).collect();
        wanted.sort_unstable();
        let name = format!("claim-{uid}");
        let mut made: Vec<_> = self.fake.with(|s| {
            let own = s.instances.iter();
            let own = own.filter(|i| i.key.name.as_str() == Some(&name));
            own.map(|i| Some((i.key.gpu_minor, i.memory_limit_bytes, i.weight)))
                .collect()
        });
        made.sort_unstable();
        if !wanted.is_empty() && made == wanted {
            return;
        }
        // The driver removes what is left of a claim that is gone.
        let namespace = claim.metadata.namespace.clone().unwrap_or_default();
        let claims: Api<ResourceClaim> = Api::namespaced(self.client.clone(), &namespace);
        let now = claims
            .get(claim.metadata.name.as_deref().unwrap_or_default())
            .await;
        if now.is_ok_and(|now| now.metadata.uid == claim.metadata.uid) {
            faults::note(format!("{name} is {made:?}, and was allocated {wanted:?}"));
        }
    }
}
