// SPDX-License-Identifier: GPL-2.0 OR MIT
//! This driver's GPUs with a real apiserver, scheduler and controllers.

use crate::{
    connection::Connection,
    kubelet::TestKubelet,
    patience::{must, until, wait, Outcome},
    world::{named, shape, World, WorldNode},
};
use cgpu_dra::{
    failures::Failures,
    proto::{HealthResponse, HealthStatus},
};
use cgpu_fake::H200;
use cgpu_uapi::{state, Instance, InstanceKey, Name};
use k8s_openapi::{
    api::{
        core::v1::{Pod, ResourceQuota},
        resource::v1::{ResourceClaim, ResourceSlice},
    },
    apimachinery::pkg::apis::meta::v1::Condition,
};
use kube::{
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
    Api,
};
use serde_json::json;
use zerocopy::FromZeros;

const GIB: u64 = 1 << 30;

/// The instances of a node, once there are so many.
pub(crate) async fn limits(
    node: &WorldNode,
    count: usize,
) -> Result<Vec<(String, u32, u64)>, String> {
    let what = format!("{count} instances");
    let found = wait(&what, || async {
        Some(node.fake.limits()).filter(|l| l.len() == count)
    });
    found.await.map_err(|why| {
        let answers = node.answers.lock().expect("held");
        format!("{why}: {:?}, {answers:?}", node.fake.limits())
    })
}

/// The name of the first claim of a namespace.
pub(crate) async fn first_claim(claims: &Api<ResourceClaim>) -> Result<String, String> {
    let listed = claims.list(&ListParams::default()).await;
    let listed = listed.map_err(|e| e.to_string())?;
    let first = listed.items.first().ok_or("there is no claim")?;
    Ok(first.metadata.name.clone().unwrap_or_default())
}

/// A condition of the first device in a claim's status.
pub(crate) fn condition<'a>(claim: &'a ResourceClaim, kind: &str) -> Option<&'a Condition> {
    let device = claim.status.as_ref()?.devices.as_ref()?.first()?;
    let mut conditions = device.conditions.as_ref()?.iter();
    conditions.find(|condition| condition.type_ == kind)
}

/// Two pods get the memory and the weight that they ask for, on one GPU, and leave nothing.
pub(crate) async fn two_pods_share_a_gpu(world: &mut World) -> Outcome {
    let node = world.node("share", 1).await;
    world.namespace("share").await;
    world
        .template("share", "small", json!({"memory": "8Gi", "weight": "20"}))
        .await;
    world
        .template("share", "large", json!({"memory": "16Gi", "weight": "40"}))
        .await;
    world.pod("share", "one", "small").await;
    world.pod("share", "two", "large").await;
    let mut got: Vec<_> = limits(&node, 2)
        .await?
        .into_iter()
        .map(|l| l.2 / GIB)
        .collect();
    got.sort_unstable();
    must(got == [8, 16], &got)?;
    let mut weights: Vec<_> = node
        .fake
        .with(|s| s.instances.iter().map(|i| i.weight).collect());
    weights.sort_unstable();
    must(weights == [20, 40], &weights)?;
    // The claim's status says what it has.
    let claims: Api<ResourceClaim> = world.api("share");
    let first = claims
        .list(&ListParams::default())
        .await
        .expect("listed")
        .items;
    let name = first[0].metadata.name.clone().unwrap_or_default();
    let ready = |claim: &ResourceClaim| {
        let condition = condition(claim, "Ready")?;
        (condition.status == "True").then(|| condition.message.clone())
    };
    let said = until(&claims, &name, "status.devices", ready).await?;
    must(
        said.contains("instance claim-") && said.contains("on /dev/cgpu"),
        said,
    )?;
    world.delete("share", "one").await;
    world.delete("share", "two").await;
    world.gone("share").await?;
    must(node.fake.limits().is_empty(), node.fake.limits())?;
    must(
        node.fake.cdi_files().is_empty() && node.fake.journal().is_empty(),
        "files are left",
    )
}

/// The scheduler rounds, gives defaults, and spreads over GPUs when one is full.
pub(crate) async fn sizes_are_rounded_and_gpus_fill_up(world: &mut World) -> Outcome {
    let node = world.node("sizes", 2).await;
    world.namespace("sizes").await;
    world
        .template("sizes", "tiny", json!({"memory": "1"}))
        .await;
    world
        .template("sizes", "odd", json!({"memory": "1073741825"}))
        .await;
    world
        .template("sizes", "heavy", json!({"memory": "1Gi", "weight": "99"}))
        .await;
    world.template("sizes", "whole", json!({})).await;
    for (name, template) in [("a", "tiny"), ("b", "odd"), ("c", "heavy")] {
        world.pod("sizes", name, template).await;
        world.scheduled("sizes", name).await?;
    }
    let got = limits(&node, 3).await?;
    let has = |minor, bytes| got.iter().any(|l| l.1 == minor && l.2 == bytes);
    must(has(0, 512 << 20) && has(0, GIB + (1 << 20)), &got)?;
    // Weights 1 and 1 leave 98 of the first GPU.
    must(has(1, GIB), &got)?;
    world.pod("sizes", "d", "whole").await;
    let why = world.pending("sizes", "d").await?;
    must(why.contains("cannot allocate all claims"), why)?;
    for name in ["a", "b", "c"] {
        world.delete("sizes", name).await;
    }
    // Freed, it is given away whole.
    world.scheduled("sizes", "d").await?;
    let whole = wait("the whole GPU", || async {
        let limits = node.fake.limits();
        limits.iter().map(|l| l.2).find(|bytes| *bytes > 100 * GIB)
    })
    .await?;
    must(whole == H200 / (1 << 20) * (1 << 20), whole)?;
    world.delete("sizes", "d").await;
    world.gone("sizes").await
}

/// A claim on two GPUs is one tenant; the same GPU twice is refused in a sentence.
pub(crate) async fn one_claim_has_several_gpus(world: &mut World) -> Outcome {
    let node = world.node("several", 2).await;
    world.namespace("several").await;
    let size = || json!({"memory": "4Gi", "weight": "10"});
    let both = || json!([named("a", size()), named("b", size())]);
    let apart = json!({"constraints": [{"distinctAttribute": "gpu.cgpu.io/uuid"}]});
    world.template_with("several", "apart", both(), apart).await;
    world
        .template_with("several", "anyhow", both(), json!({}))
        .await;
    world.pod("several", "one", "apart").await;
    let got = limits(&node, 2).await?;
    must(got[0].0 == got[1].0 && got[0].1 != got[1].1, &got)?;
    let ids = wait("the driver's answer", || async {
        let answers = node.answers.lock().expect("held");
        answers.values().next().cloned()
    })
    .await?;
    must(ids.as_ref().is_ok_and(|ids| ids.len() == 2), &ids)?;
    world.pod("several", "two", "anyhow").await;
    let refused = wait("a refusal", || async {
        let answers = node.answers.lock().expect("held");
        answers.values().find_map(|a| a.clone().err())
    })
    .await?;
    must(
        refused.contains("distinctAttribute: gpu.cgpu.io/uuid"),
        refused,
    )?;
    must(node.fake.limits().len() == 2, node.fake.limits())?;
    world.delete("several", "one").await;
    world.delete("several", "two").await;
    world.gone("several").await
}

/// A deleted slice is written again, and what is made by hand is not given out.
pub(crate) async fn slices_follow_the_gpus(world: &mut World) -> Outcome {
    let node = world.node("follow", 1).await;
    let slices: Api<ResourceSlice> = Api::all(world.client.clone());
    let first = world.slices("follow").await.remove(0);
    let name = first.metadata.name.clone().unwrap_or_default();
    must(first.metadata.owner_references.is_some(), "no owner")?;
    slices
        .delete(&name, &DeleteParams::default())
        .await
        .expect("deleted");
    let memory = |slice: &ResourceSlice| {
        let devices = slice.spec.devices.clone().unwrap_or_default();
        let capacity = devices.first()?.capacity.clone()?;
        Some(capacity["memory"].value.0.clone())
    };
    let again = wait("another slice", || async {
        let found = world.slices("follow").await;
        found
            .into_iter()
            .find(|s| s.metadata.name.as_deref() != Some(&name))
    })
    .await?;
    must(
        again.spec.pool.generation > first.spec.pool.generation,
        "the same generation",
    )?;
    must(
        memory(&again).as_deref() == Some("143771Mi"),
        memory(&again),
    )?;
    node.fake.with(|s| {
        let mut made = Instance::new_zeroed();
        made.key = InstanceKey::new(Name::new("train").expect("a name"), 0);
        made.memory_limit_bytes = 100 * GIB;
        made.weight = 60;
        s.instances.push(made);
    });
    wait("less memory", || async {
        let found = world.slices("follow").await;
        (found.iter().find_map(memory)? == "41371Mi").then_some(())
    })
    .await?;
    world.namespace("follow").await;
    world
        .template("follow", "large", json!({"memory": "41Gi", "weight": "40"}))
        .await;
    world
        .template("follow", "heavy", json!({"memory": "8Gi", "weight": "41"}))
        .await;
    for name in ["large", "heavy"] {
        world.pod("follow", name, name).await;
        world.pending("follow", name).await?;
    }
    node.fake.with(|s| s.instances.clear());
    for name in ["large", "heavy"] {
        world.scheduled("follow", name).await?;
        world.delete("follow", name).await;
    }
    world.gone("follow").await
}

/// A GPU that fails is tainted: its pods are removed, no new one comes, and health is told.
pub(crate) async fn a_failed_gpu_is_tainted(world: &mut World) -> Outcome {
    let node = world.node("taint", 1).await;
    world.namespace("taint").await;
    world.template("taint", "t", json!({"memory": "8Gi"})).await;
    world.pod("taint", "one", "t").await;
    limits(&node, 1).await?;
    let failures = Failures::at(node.fake.places().state.join("failed"));
    failures.note("0000:29:00.0", 79).expect("noted");
    // The controller evicts the pod, and the kubelet ends it.
    limits(&node, 0).await?;
    let kubelet = TestKubelet::register(&node.fake.places().registry).await;
    let mut plugin = Connection::open(kubelet.info.endpoint.as_ref()).await;
    let told = plugin
        .first::<HealthResponse>("/v1.DRAResourceHealth/NodeWatchResources")
        .await;
    must(told.devices[0].health() == HealthStatus::Unhealthy, &told)?;
    world.gone("taint").await?;
    world.pod("taint", "two", "t").await;
    let why = world.pending("taint", "two").await?;
    must(why.contains("cannot allocate"), why)?;
    failures.forget().expect("forgotten");
    world.scheduled("taint", "two").await?;
    world.delete("taint", "two").await;
    world.gone("taint").await
}

/// A driver that was away finds its claims again, and removes those that are gone.
pub(crate) async fn a_driver_comes_back(world: &mut World) -> Outcome {
    let mut node = world.node("back", 1).await;
    world.namespace("back").await;
    world.template("back", "t", json!({"memory": "8Gi"})).await;
    world.pod("back", "one", "t").await;
    let before = limits(&node, 1).await?;
    node.halt().await;
    must(node.fake.limits() == before, "a stop has changed instances")?;
    node.start().await;
    world.pod("back", "two", "t").await;
    limits(&node, 2).await?;
    must(node.fake.limits()[0] == before[0], node.fake.limits())?;
    for name in ["one", "two"] {
        world.delete("back", name).await;
    }
    limits(&node, 0).await?;
    world.gone("back").await
}

/// An annotation changes the limit of a running pod, within what was set aside.
pub(crate) async fn a_claim_is_resized(world: &mut World) -> Outcome {
    let mut node = world.node("resize", 1).await;
    world.namespace("resize").await;
    world
        .template("resize", "t", json!({"memory": "8Gi", "weight": "20"}))
        .await;
    world.pod("resize", "one", "t").await;
    limits(&node, 1).await?;
    let claims: Api<ResourceClaim> = world.api("resize");
    let name = first_claim(&claims).await?;
    let annotate = |memory: Option<&'static str>| {
        let patch = json!({"metadata": {"annotations": {"cgpu.io/memory": memory}}});
        let (claims, name) = (claims.clone(), name.clone());
        async move {
            let by = PatchParams::default();
            claims
                .patch(&name, &by, &Patch::Merge(patch))
                .await
                .expect("patched")
        }
    };
    let held = node.fake.clone();
    let fake = &held;
    let limit = |bytes: u64| {
        wait("another limit", move || {
            let limits = fake.limits();
            async move { (limits.first()?.2 == bytes).then_some(()) }
        })
    };
    annotate(Some("4Gi")).await;
    limit(4 * GIB).await?;
    annotate(Some("9Gi")).await;
    let refused = |claim: &ResourceClaim| {
        let condition = condition(claim, "Resized")?;
        (condition.status == "False").then(|| condition.message.clone())
    };
    let why = until(&claims, &name, "a refusal", refused).await?;
    must(why.contains("8 GiB and weight 20 set aside"), why)?;
    annotate(Some("6Gi")).await;
    limit(6 * GIB).await?;
    // Taken back while the driver is away.
    node.halt().await;
    annotate(None).await;
    node.start().await;
    limit(8 * GIB).await?;
    world.delete("resize", "one").await;
    world.gone("resize").await
}

/// A claim's conditions tell that its programs hold more than its limit, that the node's operator
/// keeps it off the GPU, and that this is over.
pub(crate) async fn conditions_come_and_go(world: &mut World) -> Outcome {
    let node = world.node("state", 1).await;
    world.namespace("state").await;
    world.template("state", "t", json!({"memory": "8Gi"})).await;
    world.pod("state", "one", "t").await;
    limits(&node, 1).await?;
    let claims: Api<ResourceClaim> = world.api("state");
    let name = first_claim(&claims).await?;
    let says = |kind: &'static str, status: &'static str, reason: &'static str| {
        let (claims, name) = (claims.clone(), name.clone());
        async move {
            let said = |claim: &ResourceClaim| {
                let condition = condition(claim, kind)?;
                let is_so = condition.status == status && condition.reason == reason;
                is_so.then(|| condition.last_transition_time.clone())
            };
            until(&claims, &name, &format!("{kind} {status}"), said).await
        }
    };
    let within = says("OverLimit", "False", "WithinLimit").await?;
    let free = says("Suspended", "False", "NotSuspended").await?;
    // Managed memory counts as well.
    node.fake.with(|s| {
        s.instances[0].memory_used_bytes = 3 * GIB;
        s.instances[0].memory_managed_bytes = 3 * GIB;
    });
    let lower = json!({"metadata": {"annotations": {"cgpu.io/memory": "4Gi"}}});
    let by = PatchParams::default();
    let patched = claims.patch(&name, &by, &Patch::Merge(lower)).await;
    patched.map_err(|e| e.to_string())?;
    let over = says("OverLimit", "True", "LimitLowered").await?;
    must(over > within, (&over, &within))?;
    node.fake.with(|s| s.instances[0].memory_managed_bytes = 0);
    says("OverLimit", "False", "WithinLimit").await?;
    let suspend = |suspended: bool| {
        node.fake.with(|s| {
            let of = s.compute.get_mut(&s.instances[0].id).expect("a tenant");
            of.state &= !state::SUSPENDED;
            of.state |= if suspended { state::SUSPENDED } else { 0 };
        });
    };
    suspend(true);
    says("Suspended", "True", "SuspendedByOperator").await?;
    suspend(false);
    let again = says("Suspended", "False", "NotSuspended").await?;
    must(again > free, (&again, &free))?;
    world.delete("state", "one").await;
    world.gone("state").await
}

/// A quota counts shares, by either of its names; the extended resource gives a whole GPU.
pub(crate) async fn quotas_and_extended_resources(world: &mut World) -> Outcome {
    let node = world.node("quota", 2).await;
    let class = "gpu.cgpu.io.deviceclass.resource.k8s.io/devices";
    for (namespace, counted) in [("by-class", class), ("by-name", "requests.cgpu.io/gpu")] {
        world.namespace(namespace).await;
        quota(world, namespace, counted, "1").await?;
        world
            .template(namespace, "t", json!({"memory": "1Gi"}))
            .await;
        world.pod(namespace, "one", "t").await;
        limits(&node, 1).await?;
        is_over_quota(world, namespace).await?;
        // A whole GPU counts as well.
        quota(world, namespace, counted, "2").await?;
        let whole = json!({"metadata": {"name": "whole"}, "spec": {"containers": [{
            "name": "main", "image": "cgpu.test/none:1",
            "resources": {"limits": {"cgpu.io/gpu": "1"}}}]}});
        let whole: Pod = serde_json::from_value(whole).expect("a pod");
        let pods: Api<Pod> = world.api(namespace);
        // The apiserver may not have heard of the new quota yet.
        wait("a pod for a whole GPU", || async {
            pods.create(&PostParams::default(), &whole).await.ok()
        })
        .await?;
        let got = limits(&node, 2).await?;
        must(got.iter().any(|l| l.2 > 140 * GIB), &got)?;
        is_over_quota(world, namespace).await?;
        for name in ["one", "whole"] {
            world.delete(namespace, name).await;
        }
        world.gone(namespace).await?;
    }
    Ok(())
}

/// Sets a namespace's quota, and waits until it holds.
async fn quota(world: &World, namespace: &str, counted: &str, most: &str) -> Outcome {
    world
        .apply(json!({
            "apiVersion": "v1", "kind": "ResourceQuota",
            "metadata": {"namespace": namespace, "name": "gpus"},
            "spec": {"hard": {counted: most}}
        }))
        .await;
    let quotas: Api<ResourceQuota> = world.api(namespace);
    let holds = |quota: &ResourceQuota| {
        let hard = quota.status.as_ref()?.hard.as_ref()?;
        (hard.get(counted)?.0 == most).then_some(())
    };
    until(&quotas, "gpus", "a quota that holds", holds).await
}

/// One more claim is refused for the namespace's quota, once the quota counts what is there.
async fn is_over_quota(world: &World, namespace: &str) -> Outcome {
    let more = ResourceClaim {
        metadata: serde_json::from_value(json!({"name": "more"})).expect("metadata"),
        spec: serde_json::from_value(json!({"devices": {"requests": [shape(json!({}))]}}))
            .expect("a spec"),
        status: None,
    };
    let claims: Api<ResourceClaim> = world.api(namespace);
    let refused = wait("a full quota", || async {
        let tried = claims.create(&PostParams::default(), &more).await;
        if tried.is_ok() {
            let gone = claims.delete("more", &DeleteParams::default()).await;
            gone.expect("deleted");
        }
        tried.err().map(|e| e.to_string())
    })
    .await?;
    must(refused.contains("exceeded quota"), refused)
}

/// 64 instances on one GPU, and not one more.
pub(crate) async fn a_gpu_has_64_instances(world: &mut World) -> Outcome {
    let node = world.node("many", 1).await;
    world.namespace("many").await;
    world
        .template("many", "t", json!({"memory": "512Mi", "weight": "1"}))
        .await;
    for n in 0..65 {
        world.pod("many", &format!("p{n}"), "t").await;
    }
    limits(&node, 64).await?;
    let pods: Api<Pod> = world.api("many");
    let waiting = wait("one pod that waits", || async {
        let all = pods.list(&ListParams::default()).await.ok()?.items;
        let waiting = all
            .iter()
            .filter(|p| p.spec.as_ref().is_some_and(|s| s.node_name.is_none()));
        Some(waiting.count()).filter(|n| *n == 1)
    })
    .await?;
    must(waiting == 1, waiting)?;
    for n in 0..65 {
        world.delete("many", &format!("p{n}")).await;
    }
    // The one that waited has no kubelet that would end it.
    world.gone("many").await?;
    must(node.fake.limits().is_empty(), node.fake.limits().len())
}
