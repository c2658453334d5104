// SPDX-License-Identifier: GPL-2.0 OR MIT
//! A driver that is gone for a while, and an instance that is lost, as the cluster sees them.

use crate::{
    cases::{condition, first_claim, limits},
    patience::{must, until, wait, Outcome},
    world::{World, WorldNode},
};
use cgpu_fake::H200;
use k8s_openapi::api::{core::v1::Pod, resource::v1::ResourceClaim};
use kube::{api::ListParams, Api};
use serde_json::json;
use std::sync::atomic::Ordering;

/// The answers of the driver that name devices, once there are so many.
async fn prepared(node: &WorldNode, count: usize) -> Outcome {
    wait(&format!("{count} claims that are prepared"), || async {
        let answers = node.answers.lock().expect("held");
        let done = answers.values().filter(|answer| answer.is_ok()).count();
        (done == count).then_some(())
    })
    .await
}

/// Waits until a claim's Ready condition has this status and reason, and gives back its message.
async fn ready(
    claims: &Api<ResourceClaim>,
    name: &str,
    status: &str,
    reason: &str,
) -> Result<String, String> {
    let said = |claim: &ResourceClaim| {
        let ready = condition(claim, "Ready")?;
        let is_so = ready.status == status && ready.reason == reason;
        is_so.then(|| ready.message.clone())
    };
    until(claims, name, &format!("{status}, {reason}"), said).await
}

/// The keys and effects of the taints of a node's first GPU, as the apiserver has them.
async fn taints(world: &World, node: &str) -> Vec<(String, String)> {
    let slices = world.slices(node).await;
    let devices = slices.into_iter().find_map(|slice| slice.spec.devices);
    let first = devices.and_then(|devices| devices.into_iter().next());
    let taints = first.and_then(|device| device.taints).unwrap_or_default();
    let taints = taints.into_iter();
    taints.map(|taint| (taint.key, taint.effect)).collect()
}

/// The name of the claim that was made for a pod.
async fn claim_of(claims: &Api<ResourceClaim>, pod: &str) -> Result<String, String> {
    let listed = claims.list(&ListParams::default()).await;
    let names = listed.map_err(|e| e.to_string())?.items.into_iter();
    let mut names = names.filter_map(|claim| claim.metadata.name);
    let found = names.find(|name| name.starts_with(&format!("{pod}-")));
    found.ok_or(format!("{pod} has no claim"))
}

/// A driver that is gone has its GPUs tainted: pods are evicted unless they tolerate it, and no new
/// one comes. Claims say that their instances are gone. When it is there again, the taint goes, and
/// what was evicted is taken back.
pub(crate) async fn a_driver_that_is_gone_taints_gpus(world: &mut World) -> Outcome {
    let node = world.node("away", 1).await;
    world.namespace("away").await;
    let size = json!({"requests": {"memory": "8Gi"}});
    let request = json!({"deviceClassName": "gpu.cgpu.io", "capacity": size});
    let mut patient = request.clone();
    let all = json!({"key": "gpu.cgpu.io/driver-gone", "operator": "Exists",
        "effect": "NoExecute"});
    patient["tolerations"] = json!([all]);
    for (name, exactly) in [("t", request), ("patient", patient)] {
        let requests = json!([{"name": "gpu", "exactly": exactly}]);
        world.template_with("away", name, requests, json!({})).await;
        world.pod("away", name, name).await;
    }
    let before = limits(&node, 2).await?;
    prepared(&node, 2).await?;
    must(taints(world, "away").await.is_empty(), "a taint")?;
    let claims: Api<ResourceClaim> = world.api("away");
    let kept = claim_of(&claims, "patient").await?;
    ready(&claims, &kept, "True", "InstanceCreated").await?;
    node.fake.driver_gone.store(true, Ordering::Relaxed);
    let gone = vec![("gpu.cgpu.io/driver-gone".to_owned(), "NoExecute".to_owned())];
    wait("a taint", || async {
        (taints(world, "away").await == gone).then_some(())
    })
    .await?;
    let pods: Api<Pod> = world.api("away");
    let is_evicted = |pod: &Pod| pod.metadata.deletion_timestamp.clone();
    until(&pods, "t", "an eviction", is_evicted).await?;
    // Instances go with the module, as far as anybody can see.
    ready(&claims, &kept, "False", "InstanceGone").await?;
    world.pod("away", "new", "t").await;
    let why = world.pending("away", "new").await?;
    must(why.contains("cannot allocate"), why)?;
    // The module cannot be asked, so its instance stays, and with it the pod.
    must(node.fake.limits() == before, node.fake.limits())?;
    must(pods.get("t").await.is_ok(), "a pod went without its claim")?;
    node.fake.driver_gone.store(false, Ordering::Relaxed);
    wait("no taint", || async {
        taints(world, "away").await.is_empty().then_some(())
    })
    .await?;
    wait("the evicted pod's end", || async {
        let left = pods.get_opt("t").await.ok()?;
        left.is_none().then_some(())
    })
    .await?;
    world.scheduled("away", "new").await?;
    prepared(&node, 3).await?;
    limits(&node, 2).await?;
    ready(&claims, &kept, "True", "InstanceCreated").await?;
    let patient = pods.get("patient").await.map_err(|e| e.to_string())?;
    must(is_evicted(&patient).is_none(), "a patient pod is evicted")?;
    for name in ["patient", "new"] {
        world.delete("away", name).await;
    }
    limits(&node, 0).await?;
    world.gone("away").await
}

/// An instance that an operator destroys is made again. While it cannot be, the claim says that it
/// is gone.
pub(crate) async fn a_lost_instance_is_made_again(world: &mut World) -> Outcome {
    let node = world.node("lost", 1).await;
    world.namespace("lost").await;
    world
        .template("lost", "t", json!({"memory": "8Gi", "weight": "20"}))
        .await;
    world.pod("lost", "one", "t").await;
    prepared(&node, 1).await?;
    let claims: Api<ResourceClaim> = world.api("lost");
    let name = first_claim(&claims).await?;
    let says = |status, reason| ready(&claims, &name, status, reason);
    says("True", "InstanceCreated").await?;
    let is_there = |node: &WorldNode| {
        node.fake.with(|s| {
            let all = s.instances.iter();
            let all: Vec<_> = all.map(|i| (i.memory_limit_bytes, i.weight)).collect();
            (all == [(8 << 30, 20)]).then_some(())
        })
    };
    must(is_there(&node).is_some(), node.fake.limits())?;
    let destroy = |by_hand: u64| {
        node.fake.with(|s| {
            s.instances.clear();
            (s.gpus[0].instances, s.gpus[0].allotted_bytes) = (0, by_hand);
        });
    };
    destroy(0);
    wait("the instance", || async { is_there(&node) }).await?;
    says("True", "InstanceCreated").await?;
    // The operator makes others by hand, which leave too little for it.
    destroy(H200 - (4 << 30));
    let said = says("False", "InstanceGone").await?;
    must(
        said.starts_with("the instance claim-") && said.ends_with("on gpu-0 is gone"),
        said,
    )?;
    must(node.fake.limits().is_empty(), node.fake.limits())?;
    destroy(0);
    says("True", "InstanceCreated").await?;
    must(is_there(&node).is_some(), node.fake.limits())?;
    world.delete("lost", "one").await;
    limits(&node, 0).await?;
    world.gone("lost").await
}
