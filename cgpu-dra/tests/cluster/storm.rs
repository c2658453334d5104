// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Many claims, many nodes, and an apiserver without the feature.

use crate::{
    control_plane::{client, ADMIN},
    fake_node::FakeNode,
    patience::{must, wait, Outcome},
    random::{setting, Random},
    world::{World, WorldNode},
};
use cgpu_dra::{
    failures::Failures, kubelet::Health, publisher::Publisher, slices, tenants::Tenants,
};
use k8s_openapi::api::{
    core::v1::Pod,
    resource::v1::{Device, ResourceSlice},
};
use kube::{
    api::{DeleteParams, ListParams, PostParams},
    Api,
};
use serde_json::json;
use std::{
    sync::{
        atomic::{AtomicUsize, Ordering},
        Arc,
    },
    time::{Duration, Instant},
};
use tokio::{sync::watch, task::JoinSet};

/// A scheduler that takes longer has hung: even on a busy machine it needs less.
const HANGS: Duration = Duration::from_secs(600);

/// Waits until a pod has a node. It looks once in each `pause`.
async fn gets_a_node(pods: &Api<Pod>, name: &str, pause: Duration) {
    loop {
        let found = pods.get(name).await.expect("the pod");
        if found.spec.is_some_and(|spec| spec.node_name.is_some()) {
            return;
        }
        tokio::time::sleep(pause).await;
    }
}

/// Errors that a pod may cause which is deleted while the scheduler binds it: by then its claim is
/// free or gone.
const OF_DELETED: [&str; 3] = ["is not allocated", "is not there", "its uid has changed"];

/// Makes pods with claims of any size and deletes them again, until so many were made by all.
async fn make_pods(pods: Api<Pod>, seed: u64, claims: usize, made: Arc<Made>) {
    let mut random = Random::new(seed);
    loop {
        let number = made.pods.fetch_add(1, Ordering::Relaxed);
        if number >= claims {
            return;
        }
        let (size, weight) = (random.one(&SIZES), random.one(&WEIGHTS));
        let name = format!("p{number}");
        let pod = json!({"metadata": {"name": name}, "spec": {
            "resourceClaims": [{"name": "gpu",
                "resourceClaimTemplateName": template(size, weight)}],
            "containers": [{"name": "main", "image": "cgpu.test/none:1",
                "resources": {"claims": [{"name": "gpu"}]}}]}});
        let pod = serde_json::from_value(pod).expect("a pod");
        pods.create(&PostParams::default(), &pod)
            .await
            .expect("created");
        // Some are deleted at once, some when they run, some wait in vain.
        let patience = Duration::from_millis(random.next() % 5000);
        let node = gets_a_node(&pods, &name, Duration::from_millis(150));
        let has_node = tokio::time::timeout(patience, node).await.is_ok();
        made.bound
            .fetch_add(usize::from(has_node), Ordering::Relaxed);
        tokio::time::sleep(Duration::from_millis(random.next() % 1000)).await;
        pods.delete(&name, &DeleteParams::default())
            .await
            .expect("deleted");
    }
}

/// The counts of a storm.
#[derive(Default)]
struct Made {
    pods: AtomicUsize,
    /// Those that had a node.
    bound: AtomicUsize,
}

const SIZES: [&str; 7] = ["512Mi", "1Gi", "3Gi", "10Gi", "24Gi", "70Gi", "120Gi"];
const WEIGHTS: [&str; 4] = ["1", "5", "20", "60"];

fn template(size: &str, weight: &str) -> String {
    format!("m{}-w{weight}", size.to_lowercase())
}

/// A GPU of a node whose limits or weights are above the whole, and their sums.
fn overfull(node: &WorldNode) -> Option<(u32, u64, u32)> {
    node.fake.with(|s| {
        let sum = |minor| {
            let on = s.instances.iter().filter(|i| i.key.gpu_minor == minor);
            on.fold((0, 0), |(m, w), i| (m + i.memory_limit_bytes, w + i.weight))
        };
        let mut sums = s.gpus.iter().map(|g| (g, sum(g.minor)));
        let full = sums.find(|(g, (memory, weight))| *memory > g.memory_bytes || *weight > 100);
        full.map(|(g, (memory, weight))| (g.minor, memory, weight))
    })
}

/// After a storm: the driver has asked for nothing that the module would refuse, and has left
/// nothing. Says how many claims it prepared.
fn leaves_nothing(node: &WorldNode) -> Result<usize, String> {
    let above = node.fake.with(|s| s.above.clone());
    must(above.as_ref().is_some_and(Vec::is_empty), above)?;
    let refusals = node.refusals.lock().expect("held");
    let is_allowed = |why: &&String| !OF_DELETED.iter().any(|said| why.contains(said));
    let refusals: Vec<_> = refusals.iter().filter(is_allowed).collect();
    must(refusals.is_empty(), refusals)?;
    must(
        node.fake.cdi_files().is_empty() && node.fake.journal().is_empty(),
        "files are left",
    )?;
    let answers = node.answers.lock().expect("held");
    Ok(answers.values().filter(|answer| answer.is_ok()).count())
}

/// Clients make pods with claims of any size and delete them again. The control device refuses
/// nothing, and yet, whenever anybody looks, the limits on each GPU are within its memory.
pub(crate) async fn random_claims_never_exceed_a_gpu(world: &mut World) -> Outcome {
    let (claims, clients) = (setting("CLAIMS", 1000), setting("CLIENTS", 32));
    let nodes = [
        world.node("storm-a", 4).await,
        world.node("storm-b", 2).await,
        world.node("storm-c", 2).await,
        world.node("storm-d", 1).await,
    ];
    for node in &nodes {
        node.fake.with(|s| s.above = Some(vec![]));
    }
    world.namespace("storm").await;
    for size in SIZES {
        for weight in WEIGHTS {
            let requests = json!({"memory": size, "weight": weight});
            world
                .template("storm", &template(size, weight), requests)
                .await;
        }
    }
    let made = Arc::new(Made::default());
    let began = Instant::now();
    // If this fails, they end with it.
    let mut work = JoinSet::new();
    for n in 0..clients {
        let seed = n as u64 + 1;
        work.spawn(make_pods(world.api("storm"), seed, claims, made.clone()));
    }
    let (mut looks, mut most) = (0usize, 0usize);
    while !work.is_empty() {
        while let Some(ended) = work.try_join_next() {
            ended.map_err(|e| e.to_string())?;
        }
        for node in &nodes {
            most = most.max(node.fake.with(|s| s.instances.len()));
            let over = overfull(node);
            must(over.is_none(), (&node.name, over))?;
        }
        looks += 1;
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    wait("the storm's end", || async {
        let left: usize = nodes.iter().map(|n| n.fake.limits().len()).sum();
        (left == 0).then_some(())
    })
    .await?;
    world.gone("storm").await?;
    let mut prepared = 0;
    for node in &nodes {
        prepared += leaves_nothing(node)?;
    }
    println!(
        "   {claims} claims by {clients} clients in {:.0} s: {} had a node, {prepared} were \
         prepared, at most {most} instances on a node at once, {looks} looks at the limits",
        began.elapsed().as_secs_f64(),
        made.bound.load(Ordering::Relaxed),
    );
    must(prepared >= claims / 20, "hardly a claim was prepared")
}

/// The devices that a node publishes.
async fn devices_of(world: &World, node: &str) -> Vec<Device> {
    let slice = world.slices(node).await.remove(0);
    slice.spec.devices.unwrap_or_default()
}

/// The time of an allocation among many nodes with slices.
pub(crate) async fn a_thousand_nodes(world: &mut World) -> Outcome {
    let count = setting("NODES", 1000);
    let node = world.node("real", 1).await;
    let devices = devices_of(world, "real").await;
    let all: Api<ResourceSlice> = Api::all(world.client.clone());
    let began = Instant::now();
    for n in 0..count {
        let name = format!("made-up-{n:04}");
        world.node_object(&name).await;
        let slice = ResourceSlice {
            metadata: serde_json::from_value(json!({"name": name})).expect("metadata"),
            spec: slices::spec(&name, 1, devices.clone()),
        };
        all.create(&PostParams::default(), &slice)
            .await
            .expect("created");
    }
    println!(
        "   {count} nodes with slices in {:.0} s",
        began.elapsed().as_secs_f64()
    );
    world.namespace("wide").await;
    world
        .template("wide", "t", json!({"memory": "8Gi", "weight": "1"}))
        .await;
    let plain = json!({"containers": [{"name": "main", "image": "cgpu.test/none:1"}]});
    let mut times = [vec![], vec![]];
    for n in 0..20 {
        for (kind, times) in times.iter_mut().enumerate() {
            let name = format!("p{kind}-{n}");
            let began = Instant::now();
            if kind == 0 {
                world.pod("wide", &name, "t").await;
            } else {
                world.pod_with("wide", &name, plain.clone()).await;
            }
            let pods: Api<Pod> = world.api("wide");
            let node = gets_a_node(&pods, &name, Duration::from_millis(5));
            tokio::time::timeout(HANGS, node)
                .await
                .map_err(|_| format!("{name} got no node in {HANGS:?}"))?;
            times.push(began.elapsed().as_secs_f64() * 1000.0);
        }
    }
    for times in &mut times {
        times.sort_by(f64::total_cmp);
        for ms in times.iter_mut() {
            *ms = (*ms * 10.0).round() / 10.0;
        }
    }
    let [claim, plain] = &times;
    println!(
        "   {}",
        json!({"nodes": count, "claim_ms": claim, "plain_ms": plain})
    );
    println!(
        "   from a pod's creation to its node, median of 20 among {count} nodes: {:.0} ms with a \
         claim, {:.0} ms without",
        times[0][10], times[1][10]
    );
    let force = DeleteParams::default().grace_period(0);
    let pods: Api<Pod> = world.api("wide");
    let _ = pods.delete_collection(&force, &ListParams::default()).await;
    drop(node);
    world.gone("wide").await?;
    Ok(())
}

/// An apiserver whose feature gates are off drops fields, and the driver sees it.
pub(crate) async fn dropped_fields_are_noticed(world: &mut World) -> Outcome {
    world.node_object("dropped").await;
    let shares = ["allowMultipleAllocations", "capacity.requestPolicy"];
    // From 1.37 on the rules are on, and do not work without the taints.
    let taints = "DRADeviceTaints=false,DRADeviceTaintRules=false";
    for (gates, wanted) in [
        ("DRAConsumableCapacity=false", &shares[..]),
        (taints, &["taints"]),
    ] {
        let old = world.plane.second_apiserver(gates).await;
        let fake = FakeNode::new(1);
        let tenants = Tenants::open(fake.clone(), fake.places(), 100);
        let tenants = Arc::new(tenants.map_err(|e| e.to_string())?);
        let failures = Failures::at(fake.places().state.join("failed"));
        failures
            .note("0000:29:00.0", 79)
            .map_err(|e| e.to_string())?;
        let (tell, _health) = watch::channel(Health::new());
        let publisher = Publisher::new(client(old, ADMIN), "dropped", tenants, failures, tell);
        let lost = publisher.lost();
        let running = tokio::spawn(publisher.run());
        let noticed = wait("dropped fields", || async {
            let lost = lost.lock().expect("held").clone();
            (!lost.is_empty()).then_some(lost)
        })
        .await;
        running.abort();
        let lost = noticed?;
        must(lost == wanted, (gates, &lost))?;
        let device = devices_of(world, "dropped").await.remove(0);
        let has_taint = device.taints.is_some_and(|taints| !taints.is_empty());
        must(has_taint == (gates != taints), (gates, has_taint))?;
        // An apiserver does not drop what a slice has already.
        let slices: Api<ResourceSlice> = Api::all(world.client.clone());
        let (none, all) = (DeleteParams::default(), ListParams::default());
        let gone = slices.delete_collection(&none, &all).await;
        gone.map_err(|e| e.to_string())?;
    }
    Ok(())
}
