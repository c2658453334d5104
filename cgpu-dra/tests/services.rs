// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The kubelet's services on real sockets, over a fake control device and claims in memory.

mod connection;
mod fake_node;
mod kubelet;

use cgpu_client::cdi::{faults, Spec};
use cgpu_dra::{
    calls::Calls,
    claims::plan,
    config::Allowed,
    failures::Failure,
    kubelet::{Health, Kubelet},
    names::{Uid, REGISTRATION},
    probes::Readiness,
    proto::{HealthResponse, HealthStatus, PrepareResponse, PreparedAnswer, UnprepareResponse},
    rpc,
    slots::driver_answers,
    status::Resize,
    tenants::Tenants,
};
use cgpu_fake::Op;
use cgpu_uapi::{mig, state::HIGH_PRIORITY, Instance, InstanceKey, Name, BURST_OF_GPU};
use connection::Connection;
use fake_node::FakeNode;
use futures_util::FutureExt;
use k8s_openapi::api::resource::v1::ResourceClaim;
use kubelet::{one, TestKubelet};
use nix::errno::Errno;
use serde_json::{json, Value};
use std::{
    collections::BTreeMap,
    path::PathBuf,
    sync::{
        atomic::{AtomicBool, Ordering},
        Arc, Mutex,
    },
    time::{Duration, Instant},
};
use tokio::sync::{watch, Notify};
use zerocopy::FromZeros;

const UID: &str = "7b2ea4b2-0000-4000-8000-00000000000f";
const GIB: u64 = 1 << 30;

type Claims = Arc<Mutex<BTreeMap<(String, String), Value>>>;

/// A driver at work, until it is dropped.
struct Driver {
    stop: watch::Sender<bool>,
    health: watch::Sender<Health>,
    kubelet: TestKubelet,
    online: Arc<AtomicBool>,
    readiness: Arc<Readiness>,
    calls: Arc<Calls>,
}

impl Drop for Driver {
    fn drop(&mut self) {
        let _ = self.stop.send(true);
    }
}

impl Driver {
    /// Prepares the claim that most tests have.
    async fn prepare(&mut self) -> PreparedAnswer {
        self.kubelet.prepare("team-a", "train", UID).await
    }

    /// Takes it back; what is refused about that.
    async fn unprepare(&mut self) -> String {
        self.kubelet.unprepare("team-a", "train", UID).await
    }
}

async fn start(node: &Arc<FakeNode>, claims: &Claims) -> Driver {
    let places = node.places();
    let tenants = Arc::new(Tenants::open(node.clone(), places.clone(), 100).expect("opened"));
    tenants.remove_strays().expect("removed");
    let (stop, stopped) = watch::channel(false);
    let (health, told) = watch::channel(Health::new());
    let online = Arc::new(AtomicBool::new(true));
    let (known, up) = (claims.clone(), online.clone());
    let socket = places.plugins.join("dra.sock");
    let (readiness, calls) = <(Arc<Readiness>, Arc<Calls>)>::default();
    let service = Arc::new(Kubelet {
        endpoint: socket.display().to_string(),
        pool: "node1".to_owned(),
        allowed: Allowed::default(),
        tenants,
        lookup: Arc::new(move |namespace, name| {
            let found = known.lock().expect("held").get(&(namespace, name)).cloned();
            let found = found.map(|v| serde_json::from_value::<ResourceClaim>(v).expect("a claim"));
            let found = if up.load(Ordering::Relaxed) {
                Ok(found)
            } else {
                Err("the apiserver is away".to_owned())
            };
            std::future::ready(found).boxed()
        }),
        health: told,
        changed: Arc::new(Notify::new()),
        readiness: readiness.clone(),
        calls: calls.clone(),
    });
    let registration = places.registry.join(REGISTRATION);
    let (plugin, register) = (rpc::listen(&socket), rpc::listen(&registration));
    let (a, b) = (service.clone(), service);
    let serve = rpc::serve(
        plugin.expect("bound"),
        move |c| a.clone().serve(c),
        stopped.clone(),
    );
    tokio::spawn(serve);
    let serve = rpc::serve(
        register.expect("bound"),
        move |c| b.clone().register(c),
        stopped,
    );
    tokio::spawn(serve);
    let kubelet = TestKubelet::register(&places.registry).await;
    Driver {
        stop,
        health,
        kubelet,
        online,
        readiness,
        calls,
    }
}

/// A result of the allocation.
fn on(request: &str, device: &str, memory: &str, weight: &str) -> Value {
    json!({
        "request": request, "driver": "gpu.cgpu.io", "pool": "node1", "device": device,
        "shareID": "a671734a-e8e5-11e4-8fde-42010af09327",
        "consumedCapacity": {"memory": memory, "weight": weight, "instances": "1"}
    })
}

fn claim(uid: &str, results: Value, config: Value) -> Value {
    json!({
        "metadata": {"namespace": "team-a", "name": "train", "uid": uid},
        "spec": {},
        "status": {"allocation": {"devices": {"results": results, "config": config}}}
    })
}

/// A claim of 8 GiB and weight 20 on the first GPU.
fn one_share() -> Value {
    claim(UID, json!([on("gpu", "gpu-0", "8Gi", "20")]), json!([]))
}

fn config(source: &str, requests: Value, parameters: Value) -> Value {
    let mut parameters = parameters;
    parameters["apiVersion"] = "cgpu.io/v1alpha1".into();
    parameters["kind"] = "GpuConfig".into();
    json!({
        "source": source, "requests": requests,
        "opaque": {"driver": "gpu.cgpu.io", "parameters": parameters}
    })
}

fn known(claim: Value) -> Claims {
    let key = ("team-a".to_owned(), "train".to_owned());
    Arc::new(Mutex::new(BTreeMap::from([(key, claim)])))
}

/// A file of the journal about the claim that most tests have.
fn written(node: &FakeNode, kind: &str) -> PathBuf {
    node.root.join(format!("run/claims/{UID}.{kind}"))
}

/// A driver that has prepared a claim of [`one_share`].
async fn with_one_share(node: &Arc<FakeNode>) -> Driver {
    let mut driver = start(node, &known(one_share())).await;
    driver.prepare().await;
    driver
}

#[tokio::test]
async fn claim_becomes_instance_and_cdi_file() {
    let node = FakeNode::new(2);
    let results = json!([on("gpu/large", "gpu-1", "8Gi", "20")]);
    let parameters = json!({"priority": "high", "managed": "deny", "burstMs": 40});
    let configs = json!([
        config(
            "FromClaim",
            json!(["gpu"]),
            json!({"capabilities": ["compute"]})
        ),
        config("FromClass", json!([]), parameters),
        config("FromClaim", json!(["other"]), json!({"priority": "normal"})),
    ]);
    let claims = known(claim(UID, results, configs));
    let mut driver = start(&node, &claims).await;
    assert_eq!(driver.kubelet.info.name, "gpu.cgpu.io");
    let answer = driver.prepare().await;
    assert_eq!(answer.error, "");
    let device = &answer.devices[0];
    assert_eq!(device.request_names, ["gpu"]);
    assert_eq!(
        device.cdi_device_ids,
        [format!("cgpu.io/claim={UID}-gpu-1")]
    );
    assert_eq!(
        device.share_id.as_deref(),
        Some("a671734a-e8e5-11e4-8fde-42010af09327")
    );
    let name = format!("claim-{UID}");
    assert_eq!(node.limits(), [(name, 1, 8 * GIB)]);
    node.with(|s| {
        assert_eq!(s.instances[0].weight, 20);
        assert_eq!(s.instances[0].managed_mode, 2);
        assert_eq!(s.instances[0].capabilities, 1);
        let compute = s.compute.values().next().expect("one");
        assert_ne!(compute.state & cgpu_uapi::state::HIGH_PRIORITY, 0);
        assert_eq!(compute.burst_ms, 40);
    });
    let text = std::fs::read(&node.cdi_files()[0]).expect("a file");
    let spec: Spec = serde_json::from_slice(&text).expect("a spec");
    assert_eq!(faults(&spec), Vec::<String>::new());
    assert_eq!(spec.devices[0].name, format!("{UID}-gpu-1"));
    let mounts = &spec.devices[0].container_edits.mounts;
    assert_eq!(mounts[0].container_path, "/dev/nvidia1");
    let shared: Vec<_> = spec
        .container_edits
        .mounts
        .iter()
        .map(|m| &m.container_path)
        .collect();
    assert_eq!(
        shared,
        [
            "/dev/nvidiactl",
            "/dev/nvidia-uvm",
            "/usr/lib/libcuda.so.580.159.04"
        ]
    );

    // The old version has no share_id.
    let path = "/k8s.io.kubelet.pkg.apis.dra.v1beta1.DRAPlugin/NodePrepareResources";
    let old: PrepareResponse = driver
        .kubelet
        .plugin
        .call(path, &one("team-a", "train", UID))
        .await
        .expect("answered");
    assert_eq!(old.claims[UID].devices[0].share_id, None);

    assert_eq!(driver.unprepare().await, "");
    assert!(node.limits().is_empty() && node.cdi_files().is_empty() && node.journal().is_empty());
    assert_eq!(driver.unprepare().await, "");
}

#[tokio::test]
async fn a_prepared_claim_outlives_driver_and_apiserver() {
    let node = FakeNode::new(1);
    let claims = known(one_share());
    let mut first = start(&node, &claims).await;
    let answer = first.prepare().await;
    drop(first);
    let before = node.limits();
    let mut second = start(&node, &claims).await;
    second.online.store(false, Ordering::Relaxed);
    assert_eq!(second.prepare().await, answer);
    assert_eq!(node.limits(), before);
    // The module was loaded anew: the instance is made again.
    node.with(|s| s.instances.clear());
    assert_eq!(second.prepare().await, answer);
    assert_eq!(node.limits(), before);
    let other = UID.replace('f', "e");
    let refused = second.kubelet.prepare("team-a", "train", &other).await;
    assert!(
        refused.error.contains("the apiserver is away"),
        "{}",
        refused.error
    );
    assert_eq!(second.unprepare().await, "");
    assert!(node.limits().is_empty());
}

#[tokio::test]
async fn apiserver_tells_where_a_prepared_claim_is_now() {
    let node = FakeNode::new(2);
    let claims = known(one_share());
    let mut driver = start(&node, &claims).await;
    driver.prepare().await;
    let moved = json!([on("gpu", "gpu-1", "8Gi", "20")]);
    let moved = known(claim(UID, moved, json!([])));
    claims
        .lock()
        .expect("held")
        .extend(moved.lock().expect("held").clone());
    for is_online in [true, false] {
        driver.online.store(is_online, Ordering::Relaxed);
        let answer = driver.prepare().await;
        assert_eq!(
            (answer.error.as_str(), &*answer.devices[0].device_name),
            ("", "gpu-1")
        );
    }
}

/// Its old share may be another claim's by now.
#[tokio::test]
async fn refused_new_allocation_keeps_no_old_share() {
    let node = FakeNode::new(2);
    let claims = known(one_share());
    let mut driver = start(&node, &claims).await;
    driver.prepare().await;
    let refused = || json!([config("FromClaim", json!([]), json!({"priority": "high"}))]);
    let elsewhere = json!([on("gpu", "gpu-1", "8Gi", "20")]);
    for (results, said) in [
        // The same share, of a class that allows less than before.
        (json!([on("gpu", "gpu-0", "8Gi", "20")]), None),
        (elsewhere, Some("a high priority")),
        (json!([]), Some("no device of gpu.cgpu.io")),
    ] {
        let changed = known(claim(UID, results, refused()));
        let changed = changed.lock().expect("held").clone();
        claims.lock().expect("held").extend(changed);
        let answer = driver.prepare().await;
        match said {
            None => assert_eq!(answer.devices[0].device_name, "gpu-0"),
            Some(said) => assert!(answer.error.contains(said), "{said}: {}", answer.error),
        }
    }
}

/// It was annotated before its pod was there. Nobody can change a limit, so the first one counts.
#[tokio::test]
async fn annotated_claim_starts_as_small_as_asked() {
    for (memory, weight, expected) in [
        ("4Gi", "7", (4 * GIB, 7)),
        ("16Gi", "7", (8 * GIB, 7)),
        ("16Gi", "30", (8 * GIB, 20)),
        ("small", "7", (8 * GIB, 20)),
    ] {
        let node = FakeNode::new(1);
        let mut annotated = one_share();
        annotated["metadata"]["annotations"] =
            json!({"cgpu.io/memory": memory, "cgpu.io/weight": weight});
        let mut driver = start(&node, &known(annotated)).await;
        node.with(|s| (0..99).for_each(|n| s.fail(Op::SetMemory, n, Errno::EIO)));
        for is_journal_lost in [false, true, false] {
            // A reboot takes the journal along, and a new load of the module the instances alone.
            if is_journal_lost {
                let files = node.journal().into_iter();
                files.for_each(|file| std::fs::remove_file(file).expect("removed"));
            }
            node.with(|s| s.instances.clear());
            assert_eq!(driver.prepare().await.error, "");
            let sizes = node.with(|s| (s.instances[0].memory_limit_bytes, s.instances[0].weight));
            assert_eq!(sizes, expected, "{memory} {weight}");
            // It may grow up to that.
            let plan = std::fs::read_to_string(written(&node, "json")).expect("read");
            assert!(
                plan.contains(&format!("\"memory_bytes\":{}", 8 * GIB)),
                "{plan}"
            );
        }
    }
}

/// Others are answered while a call of the driver does not come back.
#[tokio::test]
async fn a_stuck_call_holds_up_itself_alone() {
    let node = FakeNode::new(1);
    let mut driver = start(&node, &known(one_share())).await;
    node.stuck.store(true, Ordering::Relaxed);
    let (began, soon) = (Instant::now(), Duration::from_secs(1));
    let stuck = tokio::time::timeout(soon, driver.prepare()).await;
    assert!(stuck.is_err(), "{stuck:?}");
    let mut other = TestKubelet::register(&node.places().registry).await;
    // The kubelet tries again and again, and takes only some of this program's threads.
    for _ in 0..20 {
        let wait = Duration::from_millis(20);
        let _ = tokio::time::timeout(wait, other.prepare("team-a", "train", UID)).await;
    }
    let waiting = || node.waiting.load(Ordering::Relaxed);
    while waiting() == 0 && began.elapsed() < Duration::from_secs(30) {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!((1..=8).contains(&waiting()));
    // The call of the fake driver is stuck for longer.
    assert!(began.elapsed() < Duration::from_secs(50), "it has waited");
    node.stuck.store(false, Ordering::Relaxed);
    let answer = other.prepare("team-a", "train", UID).await;
    assert_eq!((answer.error.as_str(), node.limits().len()), ("", 1));
}

/// A newer version has written it, before it was taken back.
#[tokio::test]
async fn unreadable_journal_keeps_its_instance() {
    let node = FakeNode::new(1);
    let claims = known(one_share());
    let mut first = start(&node, &claims).await;
    let answer = first.prepare().await;
    drop(first);
    let before = node.limits();
    for text in ["", "{\"a newer version's\": 1}"] {
        std::fs::write(written(&node, "json"), text).expect("written");
        let mut second = start(&node, &claims).await;
        assert_eq!(node.limits(), before);
        node.with(|s| s.fail(Op::SetCompute, 0, Errno::EIO));
        let refused = second.prepare().await;
        assert!(refused.error.contains("EIO"), "{}", refused.error);
        assert_eq!(node.limits(), before);
        assert_eq!(second.prepare().await, answer);
    }
    let mut last = start(&node, &claims).await;
    assert_eq!(last.unprepare().await, "");
    assert!(node.limits().is_empty() && node.journal().is_empty());
}

/// The program was stopped after it had made the instance, and before that had its priority.
#[tokio::test]
async fn half_made_instance_is_completed() {
    let node = FakeNode::new(1);
    let results = json!([on("gpu", "gpu-0", "8Gi", "20")]);
    let class = config(
        "FromClass",
        json!([]),
        json!({"priority": "high", "burstMs": 40}),
    );
    let claims = known(claim(UID, results, json!([class])));
    let mut first = start(&node, &claims).await;
    first.prepare().await;
    drop(first);
    std::fs::remove_file(written(&node, "complete")).expect("removed");
    let is_high = || {
        node.with(|s| {
            let compute = s.compute.values_mut().next().expect("one");
            let before = (compute.state & HIGH_PRIORITY != 0, compute.burst_ms);
            (compute.state, compute.burst_ms) = (compute.state & !HIGH_PRIORITY, BURST_OF_GPU);
            before
        })
    };
    assert_eq!(is_high(), (true, 40));
    let mut second = start(&node, &claims).await;
    second.prepare().await;
    assert_eq!(is_high(), (true, 40));
    // A complete one stays as its operator has changed it.
    second.prepare().await;
    assert_eq!(is_high(), (false, BURST_OF_GPU));
}

/// There are as many instances as shares, and one share has none.
#[tokio::test]
async fn instance_elsewhere_takes_the_mark_off() {
    let node = FakeNode::new(2);
    let mut driver = with_one_share(&node).await;
    assert!(written(&node, "complete").is_file());
    node.with(|s| {
        s.instances[0].key.gpu_minor = 1;
        s.fail(Op::SetCompute, 0, Errno::EIO);
    });
    let refused = driver.prepare().await;
    assert!(refused.error.contains("EIO"), "{}", refused.error);
    assert!(written(&node, "json").is_file() && !written(&node, "complete").exists());
    assert_eq!(driver.prepare().await.error, "");
    assert!(written(&node, "complete").is_file());
}

#[tokio::test]
async fn a_stop_at_any_point_leaves_nothing() {
    // The control device refuses each of its calls in turn.
    let results = json!([on("a", "gpu-0", "8Gi", "20"), on("b", "gpu-1", "4Gi", "10")]);
    for (op, after) in [
        (Op::Create, 0),
        (Op::Create, 1),
        (Op::SetCompute, 0),
        (Op::SetCompute, 1),
        (Op::Instances, 1),
        (Op::Instances, 2),
        (Op::Version, 1),
        (Op::Gpus, 1),
    ] {
        let node = FakeNode::new(2);
        let claims = known(claim(UID, results.clone(), json!([])));
        let mut driver = start(&node, &claims).await;
        node.with(|s| s.fail(op, after, Errno::EIO));
        let refused = driver.prepare().await;
        assert!(refused.error.contains("EIO"), "{op:?}: {}", refused.error);
        let left = (
            node.limits().len(),
            node.cdi_files().len(),
            node.journal().len(),
        );
        assert_eq!(left, (0, 0, 0), "{op:?} {after}");
        let answer = driver.prepare().await;
        assert_eq!((answer.error.as_str(), answer.devices.len()), ("", 2));
    }
    // Stopped between the instance and the journal's end: a stray.
    let node = FakeNode::new(2);
    let claims = known(claim(UID, results, json!([])));
    let mut driver = start(&node, &claims).await;
    driver.prepare().await;
    drop(driver);
    std::fs::remove_file(written(&node, "json")).expect("removed");
    let mut driver = start(&node, &claims).await;
    assert!(node.limits().is_empty());
    assert_eq!(driver.unprepare().await, "");
    assert!(node.cdi_files().is_empty());
}

#[tokio::test]
async fn impossible_claims_are_refused_in_a_sentence() {
    let node = FakeNode::new(2);
    let plain = || json!([on("gpu", "gpu-0", "8Gi", "20")]);
    let with = |field: &str, value: Value| {
        let mut results = plain();
        results[0][field] = value;
        results
    };
    let wrong = |parameters| json!([config("FromClaim", json!([]), parameters)]);
    let twice = json!([on("a", "gpu-0", "1Gi", "1"), on("b", "gpu-0", "1Gi", "1")]);
    for (results, configs, said) in [
        (twice, json!([]), "distinctAttribute: gpu.cgpu.io/uuid"),
        (with("device", json!("gpu-7")), json!([]), "has no gpu-7"),
        (with("device", json!("../x")), json!([]), "has no ../x"),
        (with("pool", json!("node2")), json!([]), "pool node2"),
        (
            with("driver", json!("gpu.nvidia.com")),
            json!([]),
            "no device of gpu.cgpu.io",
        ),
        (
            with("consumedCapacity", json!({})),
            json!([]),
            "DRAConsumableCapacity",
        ),
        (
            with("consumedCapacity", json!({"memory": "x"})),
            json!([]),
            "\"x\" is no",
        ),
        (
            with(
                "consumedCapacity",
                json!({"memory": "1Gi", "weight": "101"}),
            ),
            json!([]),
            "101",
        ),
        (
            with("consumedCapacity", json!({"memory": "999Gi"})),
            json!([]),
            "above the GPU",
        ),
        (with("adminAccess", json!(true)), json!([]), "adminAccess"),
        (plain(), wrong(json!({"prio": "high"})), "prio"),
        (plain(), wrong(json!({"capabilities": ["root"]})), "root"),
        (
            plain(),
            wrong(json!({"capabilities": ["compute", "profiling"]})),
            "the capabilities profiling, which its DeviceClass does not allow",
        ),
        (
            plain(),
            wrong(json!({"burstMs": 1000})),
            "a burst of 1000 ms, above 200 ms, which its DeviceClass does not allow",
        ),
        (
            plain(),
            json!([
                config("FromClass", json!(["gpu"]), json!({"priority": "normal"})),
                config("FromClaim", json!([]), json!({"priority": "high"})),
            ]),
            "a high priority",
        ),
    ] {
        let said = if said == "101" {
            "between 1 and 100"
        } else {
            said
        };
        let claims = known(claim(UID, results, configs));
        let mut driver = start(&node, &claims).await;
        let answer = driver.prepare().await;
        assert!(answer.error.contains(said), "{said}: {}", answer.error);
        assert!(answer.devices.is_empty());
        assert!(node.limits().is_empty() && node.cdi_files().is_empty());
        assert!(node.journal().is_empty(), "{said}");
    }
    let other = UID.replace('f', "e");
    let claims = known(claim(&other, plain(), json!([])));
    let mut driver = start(&node, &claims).await;
    for (namespace, name, uid, said) in [
        ("team-a", "train", UID, "uid has changed"),
        ("team-a", "other", UID, "is not there"),
        ("team-a", "train", "../../etc/cdi/x", "no uid"),
        ("../../secrets", "train", UID, "cannot be one"),
        ("team-a", "train/status", UID, "cannot be one"),
    ] {
        let answer = driver.kubelet.prepare(namespace, name, uid).await;
        assert!(answer.error.contains(said), "{said}: {}", answer.error);
    }
    assert!(driver
        .kubelet
        .unprepare("a", "b", "../x")
        .await
        .contains("no uid"));
    assert!(node.limits().is_empty() && node.journal().is_empty());
}

#[tokio::test]
async fn instance_stays_while_in_use() {
    let node = FakeNode::new(1);
    let mut driver = with_one_share(&node).await;
    node.with(|s| s.instances[0].open_files = 2);
    let refused = driver.unprepare().await;
    assert!(refused.contains("2 files are still open"), "{refused}");
    assert!(node.limits().len() == 1 && written(&node, "json").is_file());
    node.with(|s| s.instances[0].open_files = 0);
    assert_eq!(driver.unprepare().await, "");
    assert!(node.limits().is_empty());
}

#[tokio::test]
async fn a_resize_stays_within_what_was_set_aside() {
    let node = FakeNode::new(1);
    let mut driver = with_one_share(&node).await;
    let tenants = Tenants::open(node.clone(), node.places(), 100).expect("opened");
    let uid = Uid::new(UID).expect("a uid");
    tenants
        .resize(&uid, Some(4 * GIB), Some(10))
        .expect("resized");
    assert_eq!(node.limits()[0].2, 4 * GIB);
    let refused = tenants
        .resize(&uid, Some(9 * GIB), None)
        .expect_err("refused");
    assert!(
        refused.contains("8 GiB and weight 20 set aside"),
        "{refused}"
    );
    assert_eq!(node.limits()[0].2, 4 * GIB);
    // Without a wish it has what the scheduler has set aside; a second prepare changes nothing.
    driver.prepare().await;
    assert_eq!(node.limits()[0].2, 4 * GIB);
    tenants.resize(&uid, None, None).expect("resized");
    assert_eq!(node.limits()[0].2, 8 * GIB);
}

#[test]
fn overcommitted_claim_grows_again() {
    let node = FakeNode::new(1);
    let tenants = Tenants::open(node.clone(), node.places(), 150).expect("opened");
    let uids = [UID.to_owned(), UID.replace('f', "e")].map(|uid| Uid::new(&uid).expect("a uid"));
    for uid in &uids {
        let results = json!([on("gpu", "gpu-0", "100Gi", "20")]);
        let claim = claim(uid.as_str(), results, json!([]));
        let claim = serde_json::from_value(claim).expect("a claim");
        let inventory = tenants.inventory().expect("read");
        let plan = plan(&claim, uid, "node1", &inventory, Allowed::default()).expect("planned");
        tenants
            .prepare(uid, &plan, &Resize::default())
            .expect("prepared");
    }
    for size in [Some(40 * GIB), None] {
        tenants.resize(&uids[0], size, None).expect("resized");
        assert_eq!(node.limits()[0].2, size.unwrap_or(100 * GIB));
    }
}

/// Neither what others hold of each capacity is published, nor a GPU that MIG divides.
#[test]
fn the_inventory_is_what_claims_can_have() {
    let node = FakeNode::new(3);
    let whole = node.with(|s| {
        s.gpus[1].mig_mode = mig::ENABLED;
        s.gpus[2].mig_mode = mig::DISABLE_PENDING;
        let mut made = Instance::new_zeroed();
        made.key = InstanceKey::new(Name::new("train").expect("a name"), 0);
        (made.memory_limit_bytes, made.weight) = (100 * GIB, 60);
        s.instances.push(made);
        s.gpus[0].memory_bytes
    });
    let tenants = Tenants::open(node.clone(), node.places(), 100).expect("opened");
    let inventory = tenants.inventory().expect("read");
    let [gpu] = &inventory.gpus[..] else {
        panic!("{:?}", inventory.gpus);
    };
    assert_eq!(gpu.memory_bytes, whole - 100 * GIB);
    assert_eq!((gpu.minor, gpu.weight, gpu.instances), (0, 40, 63));
}

#[test]
fn first_look_knows_the_driver() {
    let node = FakeNode::new(1);
    node.with(|s| s.attached = false);
    let tenants = Tenants::open(node.clone(), node.places(), 100).expect("opened");
    let inventory = tenants.inventory().expect("read");
    assert_eq!(inventory.driver, "580.159.04");
    node.with(|s| s.attached = false);
    assert_eq!(driver_answers(&*node), Ok(()));
}

#[tokio::test]
async fn the_kubelet_hears_of_failed_gpus() {
    let node = FakeNode::new(1);
    let driver = start(&node, &Claims::default()).await;
    let failed = Some(Failure::Xid(79));
    let all = [("gpu-0".to_owned(), None), ("gpu-1".to_owned(), failed)];
    driver.health.send(Health::from(all)).expect("heard");
    for path in ["/v1.DRAResourceHealth", "/v1alpha1.DRAResourceHealth"] {
        let path = format!("{path}/NodeWatchResources");
        let mut connection = Connection::open(driver.kubelet.info.endpoint.as_ref()).await;
        let told = connection.first::<HealthResponse>(&path).await;
        let states: Vec<_> = told.devices.iter().map(|d| d.health()).collect();
        assert_eq!(states, [HealthStatus::Healthy, HealthStatus::Unhealthy]);
        assert!(told.devices[1].message.contains("Xid 79"));
    }
}

#[tokio::test]
async fn odd_calls_are_answered() {
    let node = FakeNode::new(1);
    let mut driver = start(&node, &Claims::default()).await;
    let plugin = &mut driver.kubelet.plugin;
    // UNIMPLEMENTED, and INTERNAL for what is no message.
    let none = plugin.raw::<UnprepareResponse>("/none/None", &[]).await;
    assert_eq!(none.expect_err("refused"), "12");
    let path = "/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin/NodePrepareResources";
    let odd = plugin.raw::<PrepareResponse>(path, &[0xff; 9]).await;
    assert_eq!(odd.expect_err("refused"), "13");
    let empty = plugin.raw::<PrepareResponse>(path, &[]).await;
    assert!(empty.expect("answered").claims.is_empty());
}

/// The program's words to a probe, if anything is wrong.
async fn probed(arguments: &[&str]) -> String {
    let mut program = std::process::Command::new(env!("CARGO_BIN_EXE_cgpu-dra"));
    program.arg("probe").args(arguments);
    let ended = tokio::task::spawn_blocking(move || program.output()).await;
    let ended = ended.expect("ended").expect("run");
    let said = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert_eq!(ended.status.success(), said.is_empty(), "{said}");
    said
}

#[tokio::test]
async fn probes_tell_when_the_driver_is_of_use() {
    let node = FakeNode::new(1);
    let driver = start(&node, &Claims::default()).await;
    let socket = driver.kubelet.info.endpoint.clone();
    let ready = async || probed(&["--ready", &socket]).await;
    // The kubelet has registered it, and the apiserver has no slice.
    assert!(ready().await.contains("are not published"));
    assert_eq!(probed(&[&socket]).await, "");
    driver.readiness.note_published();
    assert_eq!(ready().await, "");
    driver.readiness.note_registered(false);
    assert!(ready().await.contains("has not registered"));
    TestKubelet::register(&node.places().registry).await;
    assert_eq!(ready().await, "");
    let none = node.root.join("none").display().to_string();
    assert!(probed(&[&socket, &none]).await.contains("cannot connect"));
}

#[tokio::test]
async fn failed_calls_are_counted() {
    let node = FakeNode::new(1);
    let mut driver = start(&node, &known(one_share())).await;
    let counts = |driver: &Driver| {
        let calls = [&driver.calls.prepare, &driver.calls.unprepare];
        calls.map(|count| count.numbers())
    };
    node.with(|s| s.fail(Op::Create, 0, Errno::EIO));
    driver.prepare().await;
    assert_eq!(counts(&driver), [[1, 1, 0], [0, 0, 0]]);
    driver.prepare().await;
    node.with(|s| s.instances[0].open_files = 1);
    driver.unprepare().await;
    assert_eq!(counts(&driver), [[2, 1, 0], [1, 1, 0]]);
    node.with(|s| s.instances[0].open_files = 0);
    driver.unprepare().await;
    assert_eq!(counts(&driver), [[2, 1, 0], [2, 1, 0]]);
}
