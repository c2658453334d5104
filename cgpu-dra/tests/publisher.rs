// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The driver at an apiserver of the test: what it publishes of the GPUs, and how often it looks.

mod answers;
mod fake_node;
mod train;

use answers::serve;
use cgpu_dra::{
    config::Allowed,
    driver::{self, DriverError, MetricsLogin, Settings},
    failures::{Failure, Failures, PATIENCE},
    kubelet::Health,
    names::{Uid, REGISTRATION},
    publisher::Publisher,
    rpc,
    slots::Slots,
    status::Resize,
    tenants::Tenants,
};
use cgpu_fake::{ControlState, Op};
use cgpu_uapi::Name;
use fake_node::FakeNode;
use http::{Method, Request};
use hyper::body::Bytes;
use kube::Client;
use nix::errno::Errno;
use serde_json::{json, Value};
use std::{
    sync::{
        atomic::{AtomicBool, Ordering},
        Arc, Mutex,
    },
    time::{Duration, Instant},
};
use tokio::{sync::watch, task::JoinHandle};
use train::{plan, UID};

/// An apiserver that keeps no slice, and whose watches end at once.
fn without_slices(request: &Request<Bytes>) -> Value {
    if request.method() == Method::POST {
        return serde_json::from_slice(request.body()).expect("a slice");
    }
    let query = request.uri().query().unwrap_or_default();
    if query.contains("watch=true") {
        return json!({"type": "BOOKMARK", "object": {"apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceSlice", "metadata": {"resourceVersion": "2", "annotations": {}}}});
    }
    if request.uri().path().contains("/nodes/") {
        return json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node1"}});
    }
    json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSliceList", "items": [],
        "metadata": {"resourceVersion": "1"}})
}

/// A publisher of a node, what the kubelet hears of it, and the node's failures.
fn publisher(
    node: &Arc<FakeNode>,
    client: Client,
) -> (Publisher, watch::Receiver<Health>, Failures) {
    let tenants = Tenants::open(node.clone(), node.places(), 100).expect("opened");
    let failures = Failures::at(node.places().state.join("failed"));
    let (tell, health) = watch::channel(Health::new());
    let made = Publisher::new(client, "node1", Arc::new(tenants), failures.clone(), tell);
    (made, health, failures)
}

#[tokio::test]
async fn a_silent_apiserver_hides_no_failure() {
    let node = FakeNode::new(1);
    let silent = Arc::new(AtomicBool::new(false));
    let is_silent = silent.clone();
    let client = serve(move |request| {
        if is_silent.load(Ordering::Relaxed) {
            return String::new();
        }
        without_slices(request).to_string()
    });
    let (publisher, mut health, failures) = publisher(&node, client.await);
    let running = tokio::spawn(publisher.run());
    for failure in [None, Some(Failure::Xid(79)), None] {
        match failure {
            Some(Failure::Xid(number)) => failures.note("0000:29:00.0", number).expect("noted"),
            _ => failures.forget().expect("forgotten"),
        }
        let is = |now: &Health| now.get("gpu-0") == Some(&failure);
        let told = tokio::time::timeout(Duration::from_secs(40), health.wait_for(is));
        assert!(told.await.is_ok(), "{failure:?} is not told");
        silent.store(true, Ordering::Relaxed);
    }
    running.abort();
}

/// An apiserver that keeps one slice, and gives each taint without a time the number of its change.
fn keep_slice(kept: &Mutex<Option<Value>>, request: &Request<Bytes>) -> Value {
    if matches!(*request.method(), Method::POST | Method::PUT) {
        let mut slice: Value = serde_json::from_slice(request.body()).expect("a slice");
        slice["metadata"]["name"] = "slice".into();
        let number = slice["spec"]["pool"]["generation"].clone();
        for taint in slice["spec"]["devices"][0]["taints"]
            .as_array_mut()
            .into_iter()
            .flatten()
        {
            if taint["timeAdded"].is_null() {
                taint["timeAdded"] = format!("2026-01-01T00:00:0{number}Z").into();
            }
        }
        *kept.lock().expect("held") = Some(slice.clone());
        return slice;
    }
    let mut answer = without_slices(request);
    if answer["kind"] == "ResourceSliceList" {
        answer["items"] = kept.lock().expect("held").iter().cloned().collect();
    }
    answer
}

/// Pods that tolerate a taint for some time would have all of it again.
#[tokio::test]
async fn a_taint_keeps_its_time() {
    let node = FakeNode::new(1);
    let slice: Arc<Mutex<Option<Value>>> = Arc::default();
    let kept = slice.clone();
    let client = serve(move |request| keep_slice(&kept, request)).await;
    let (publisher, _health, failures) = publisher(&node, client);
    failures.note("0000:29:00.0", 94).expect("noted");
    let running = tokio::spawn(publisher.run());
    let published = |generation, at: &str| {
        let (slice, at) = (slice.clone(), at.to_owned());
        async move {
            let began = Instant::now();
            loop {
                let now = slice.lock().expect("held").clone().unwrap_or_default();
                if now["spec"]["pool"]["generation"] == generation {
                    let taint = &now["spec"]["devices"][0]["taints"][0];
                    return assert_eq!(taint["timeAdded"], at);
                }
                assert!(began.elapsed() < Duration::from_secs(60), "{now}");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    };
    published(1, "2026-01-01T00:00:01Z").await;
    // Somebody makes an instance by hand.
    let tenants = Tenants::open(node.clone(), node.places(), 100).expect("opened");
    let uid = Uid::new(UID).expect("a uid");
    tenants
        .prepare(&uid, &plan(), &Resize::default())
        .expect("prepared");
    node.with(|s| s.instances[0].key.name = Name::new("train").expect("a name"));
    published(2, "2026-01-01T00:00:01Z").await;
    failures.note("0000:29:00.0", 79).expect("noted");
    published(3, "2026-01-01T00:00:03Z").await;
    running.abort();
}

/// Runs the whole driver until it is told to stop.
fn start(
    node: &Arc<FakeNode>,
    client: &Client,
) -> (watch::Sender<bool>, JoinHandle<Result<(), DriverError>>) {
    let (stop, stopped) = watch::channel(false);
    let settings = Settings {
        node: "node1".to_owned(),
        places: node.places(),
        overcommit: 100,
        allowed: Allowed::default(),
        grace: Duration::ZERO,
        metrics: None,
        metrics_login: MetricsLogin::None,
    };
    let running = driver::run(client.clone(), node.clone(), settings, stopped);
    (stop, tokio::spawn(running))
}

/// The kubelet has made it with mode 0755, and the first claim may come late.
#[tokio::test]
async fn a_started_driver_closes_the_folder() {
    let node = FakeNode::new(1);
    let client = serve(without_slices).await;
    let registration = node.places().registry.join(REGISTRATION);
    let (stop, running) = start(&node, &client);
    while !registration.exists() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(node.closed.load(Ordering::Relaxed));
    stop.send(true).expect("told");
    running.await.expect("ended").expect("without an error");
}

/// A process that ends takes its own socket along, not that of one that has come meanwhile.
#[tokio::test]
async fn a_successor_stays_registered() {
    let node = FakeNode::new(1);
    let client = serve(without_slices).await;
    let registration = node.places().registry.join(REGISTRATION);
    let mut running = Vec::new();
    for _ in 0..2 {
        let before = rpc::identity(&registration);
        running.push(start(&node, &client));
        while rpc::identity(&registration).is_none_or(|now| Some(now) == before) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
    for ((stop, running), is_left) in running.into_iter().zip([true, false]) {
        stop.send(true).expect("told");
        running.await.expect("ended").expect("without an error");
        assert_eq!(registration.exists(), is_left);
    }
}

/// A call that does not come back keeps new pods away, and nothing else of this program waits.
#[tokio::test]
async fn stuck_driver_evicts_nobody() {
    let node = FakeNode::new(1);
    let (publisher, mut health, _) = publisher(&node, serve(without_slices).await);
    let running = tokio::spawn(publisher.run());
    for silent in [None, Some(Failure::DriverSilent), None] {
        node.stuck.store(silent.is_some(), Ordering::Relaxed);
        let is = |now: &Health| now.get("gpu-0") == Some(&silent);
        let began = Instant::now();
        let told = tokio::time::timeout(Duration::from_secs(40), health.wait_for(is));
        assert!(told.await.is_ok(), "{silent:?} is not told");
        if silent.is_some() {
            assert!(began.elapsed() > Duration::from_secs(3), "no patience");
        }
    }
    // A tenant keeps no pods away by holding up the reports about all of them.
    node.with(|s| s.held_up = true);
    let is = |now: &Health| now.get("gpu-0") != Some(&None);
    let told = tokio::time::timeout(3 * PATIENCE, health.wait_for(is)).await;
    assert!(told.is_err(), "{told:?}");
    node.with(|s| s.held_up = false);
    running.abort();
}

/// Too many files are open, or there is no memory: that evicts no pod.
#[tokio::test]
async fn other_errors_are_no_absence() {
    let node = FakeNode::new(1);
    let (publisher, mut health, _) = publisher(&node, serve(without_slices).await);
    let running = tokio::spawn(publisher.run());
    let mut told = async |failure: Option<Failure>| {
        let is = |now: &Health| {
            let now = now.get("gpu-0");
            assert_ne!(now, Some(&Some(Failure::DriverGone)));
            now == Some(&failure)
        };
        let told = tokio::time::timeout(Duration::from_secs(90), health.wait_for(is));
        assert!(told.await.is_ok(), "{failure:?} is not told");
    };
    for errno in [Errno::EMFILE, Errno::ENOMEM, Errno::EIO] {
        told(None).await;
        node.with(|s| (0..999).for_each(|n| s.fail(Op::Instances, n, errno)));
        told(Some(Failure::DriverSilent)).await;
        tokio::time::sleep(PATIENCE).await;
        told(Some(Failure::DriverSilent)).await;
        node.with(|s| *s = ControlState::new(1));
    }
    told(None).await;
    running.abort();
}

/// The pods of a GPU whose driver has gone are evicted by its taint, and others come when it is
/// back.
#[tokio::test]
async fn a_gone_driver_is_published() {
    let node = FakeNode::new(1);
    let slice: Arc<Mutex<Option<Value>>> = Arc::default();
    let kept = slice.clone();
    let client = serve(move |request| keep_slice(&kept, request)).await;
    let (publisher, _health, _) = publisher(&node, client);
    let running = tokio::spawn(publisher.run());
    let taints = || {
        let slice = slice.lock().expect("held").clone().unwrap_or_default();
        let device = &slice["spec"]["devices"][0];
        let taints = device["taints"].as_array().into_iter().flatten();
        let words = taints.map(|t| [&t["key"], &t["effect"]].map(Value::to_string).join(" "));
        device["name"].as_str().map(|_| words.collect::<Vec<_>>())
    };
    let gone = "\"gpu.cgpu.io/driver-gone\" \"NoExecute\"".to_owned();
    for (is_gone, expected) in [(false, vec![]), (true, vec![gone]), (false, vec![])] {
        node.driver_gone.store(is_gone, Ordering::Relaxed);
        let (began, expected) = (Instant::now(), Some(expected));
        while taints() != expected {
            assert!(began.elapsed() < Duration::from_secs(90), "{:?}", taints());
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let is_soon = began.elapsed() < Duration::from_secs(3);
        assert!(!is_gone || !is_soon, "no patience");
    }
    running.abort();
}

/// The module asks the driver for its GPUs at each look while there is no instance.
#[tokio::test]
async fn an_idle_node_is_seldom_asked() {
    let node = FakeNode::new(1);
    let (publisher, mut health, _) = publisher(&node, serve(without_slices).await);
    let running = tokio::spawn(publisher.run());
    let sound = |now: &Health| now.get("gpu-0") == Some(&None);
    let told = tokio::time::timeout(Duration::from_secs(40), health.wait_for(sound)).await;
    assert!(told.is_ok(), "the GPU is not told");
    drop(told);
    tokio::time::sleep(Duration::from_secs(10)).await;
    let probes = node.with(|s| s.probes);
    assert!((1..=2).contains(&probes), "{probes}");
    assert!(node.limits().is_empty() && node.cdi_files().is_empty() && node.journal().is_empty());
    // A driver that has gone is seen as soon as before.
    let began = Instant::now();
    for gone in [Some(Failure::DriverGone), None] {
        node.driver_gone.store(gone.is_some(), Ordering::Relaxed);
        let is = |now: &Health| now.get("gpu-0") == Some(&gone);
        let told = tokio::time::timeout(Duration::from_secs(25), health.wait_for(is)).await;
        assert!(told.is_ok(), "{gone:?} is not told");
    }
    assert!(began.elapsed() > Duration::from_secs(3), "no patience");
    running.abort();
}

/// They would stay subtracted from what claims can have.
#[tokio::test]
async fn slots_of_a_device_plugin_go() {
    let node = FakeNode::new(1);
    let profile = "8g=8Gi:25:4".parse().expect("read");
    let slots = Slots::new(node.clone(), node.places(), vec![profile]);
    slots.keep().expect("kept");
    node.with(|s| s.instances[1].open_files = 1);
    let (stop, running) = start(&node, &serve(without_slices).await);
    let began = Instant::now();
    let left = async |count: usize| {
        while node.limits().len() != count {
            assert!(began.elapsed() < Duration::from_secs(90), "{count}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    left(1).await;
    assert_eq!(node.limits()[0].0, "slot-8g-gpu-0-1");
    // Its container may be started again, and other programs leave it alone by this file.
    assert_eq!(node.cdi_files().len(), 1);
    node.with(|s| s.instances[0].open_files = 0);
    left(0).await;
    while !node.cdi_files().is_empty() {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    stop.send(true).expect("told");
    running.await.expect("ended").expect("without an error");
}

/// The apiserver's feature gate is off at first.
#[tokio::test]
async fn a_gate_that_opens_is_noticed() {
    let node = FakeNode::new(1);
    let slice: Arc<Mutex<Option<Value>>> = Arc::default();
    let is_off = Arc::new(AtomicBool::new(true));
    let (kept, off) = (slice.clone(), is_off.clone());
    let client = serve(move |request| {
        let mut answer = keep_slice(&kept, request);
        if request.method() != Method::GET && off.load(Ordering::Relaxed) {
            let device = answer.pointer_mut("/spec/devices/0").expect("a device");
            device["allowMultipleAllocations"] = Value::Null;
            *kept.lock().expect("held") = Some(answer.clone());
        }
        answer
    });
    let (publisher, _health, _) = publisher(&node, client.await);
    let (lost, readiness) = (publisher.lost(), publisher.readiness());
    readiness.note_registered(true);
    assert!(!readiness.is_ready());
    let running = tokio::spawn(publisher.run());
    let began = Instant::now();
    let generation = || {
        let slice = slice.lock().expect("held").clone().unwrap_or_default();
        slice["spec"]["pool"]["generation"].as_u64()
    };
    for is_lost in [true, false] {
        while lost.lock().expect("held").is_empty() == is_lost {
            assert!(began.elapsed() < Duration::from_secs(90), "{is_lost}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        assert!(readiness.is_ready());
        if is_lost {
            // The watches of this apiserver end at once, and each time all is well known.
            tokio::time::sleep(Duration::from_secs(5)).await;
            assert_eq!(generation(), Some(1));
        }
        is_off.store(false, Ordering::Relaxed);
    }
    assert_eq!(generation(), Some(2));
    running.abort();
}
