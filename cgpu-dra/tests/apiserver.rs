// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Claims at an apiserver of the test, which has forgotten the claim's own version.

mod answers;
mod fake_node;
mod train;

use answers::serve;
use cgpu_dra::{
    apiserver::ClaimApi, claims::Plan, keeper::Keeper, names::Uid, status::Resize, tenants::Tenants,
};
use cgpu_fake::Op;
use fake_node::FakeNode;
use http::{Method, Request};
use hyper::body::Bytes;
use kube::Client;
use nix::errno::Errno;
use serde_json::{json, Value};
use std::{
    sync::{
        atomic::{AtomicBool, AtomicUsize, Ordering},
        Arc, Mutex,
    },
    time::{Duration, Instant},
};
use tokio::sync::Notify;
use train::{plan, UID};

/// The claim, as it has been since version 5.
fn claim() -> Value {
    json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "spec": {},
        "metadata": {"namespace": "team-a", "name": "train", "uid": UID, "resourceVersion": "5"},
        "status": {"allocation": {"devices": {"results": [{"request": "gpu", "pool": "node1",
            "driver": "gpu.cgpu.io", "device": "gpu-0"}]}}}
    })
}

/// The claim in an answer, if there is one.
fn claim_in(answer: &mut Value) -> Option<&mut Value> {
    let at = ["/items/0", "/object", ""];
    let at = at.into_iter().find(|at| {
        let found = answer.pointer(at);
        found.is_some_and(|found| found["kind"] == "ResourceClaim")
    });
    answer.pointer_mut(at?)
}

/// The apiserver's answer. A watch ends after its first event.
fn answer(request: &Request<Bytes>, gone: bool) -> Value {
    let query = request.uri().query().unwrap_or_default();
    if request.method() == Method::PATCH || !query.contains("metadata.name") {
        return claim();
    }
    if !query.contains("watch=true") {
        return json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimList",
            "metadata": {"resourceVersion": "9000"},
            "items": if gone { vec![] } else { vec![claim()] }});
    }
    if query.contains("resourceVersion=9000") {
        return json!({"type": "MODIFIED", "object": claim()});
    }
    json!({"type": "ERROR", "object": {"apiVersion": "v1", "kind": "Status", "status": "Failure",
        "message": "too old resource version: 5 (8000)", "reason": "Expired", "code": 410}})
}

/// The answer of an apiserver that keeps the claim's `status.devices`.
fn answer_with(kept: &Mutex<Value>, request: &Request<Bytes>) -> Value {
    let mut kept = kept.lock().expect("held");
    if request.method() == Method::PATCH {
        let patch: Value = serde_json::from_slice(request.body()).expect("a patch");
        *kept = patch["status"]["devices"].clone();
    }
    let mut answer = answer(request, false);
    if let Some(claim) = claim_in(&mut answer) {
        claim["status"]["devices"] = kept.clone();
    }
    answer
}

/// Follows a claim that is prepared on a node.
fn keeper(node: &Arc<FakeNode>, client: Client) -> Keeper {
    let tenants = Tenants::open(node.clone(), node.places(), 100).expect("opened");
    let uid = Uid::new(UID).expect("a uid");
    tenants
        .prepare(&uid, &plan(), &Resize::default())
        .expect("prepared");
    Keeper {
        client,
        pool: "node1".to_owned(),
        tenants: Arc::new(tenants),
        changed: Arc::new(Notify::new()),
        grace: Duration::ZERO,
        dropped: Arc::default(),
    }
}

#[tokio::test]
async fn unchanged_claims_are_watched_without_haste() {
    let node = FakeNode::new(1);
    let asked: Arc<Mutex<Vec<(Instant, String)>>> = Arc::default();
    let gone = Arc::new(AtomicBool::new(false));
    let (noted, is_gone) = (asked.clone(), gone.clone());
    let client = serve(move |request| {
        let path = request.uri().to_string();
        noted.lock().expect("held").push((Instant::now(), path));
        answer(request, is_gone.load(Ordering::Relaxed))
    });
    let running = tokio::spawn(keeper(&node, client.await).run());
    let asked_with = |what: &str| {
        let asked = asked.lock().expect("held").clone();
        let with: Vec<_> = asked.into_iter().filter(|a| a.1.contains(what)).collect();
        with
    };
    let began = Instant::now();
    while asked_with("watch=true").len() < 2 {
        assert!(began.elapsed() < Duration::from_secs(90), "{asked:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let watches = asked_with("watch=true");
    for (_, watch) in &watches {
        assert!(watch.contains("resourceVersion=9000"), "{watch}");
    }
    let pause = watches[1].0 - watches[0].0;
    assert!(pause >= Duration::from_secs(1), "{watches:?}");
    // The claim's status is written once, and the instance stays.
    assert_eq!((asked_with("/status").len(), node.limits().len()), (1, 1));
    gone.store(true, Ordering::Relaxed);
    while !node.limits().is_empty() || !node.journal().is_empty() {
        assert!(began.elapsed() < Duration::from_secs(180), "{asked:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(node.cdi_files().is_empty());
    running.abort();
}

/// A user changes the claim all the time: it has another wish whenever it is read.
#[tokio::test]
async fn a_restless_claim_is_followed_in_time() {
    let node = FakeNode::new(1);
    let [written, read] = [(); 2].map(|()| Arc::new(AtomicUsize::new(0)));
    let (writes, reads) = (written.clone(), read.clone());
    let client = serve(move |request| {
        if request.method() == Method::PATCH {
            writes.fetch_add(1, Ordering::Relaxed);
        }
        let mut answer = answer(request, false);
        if let Some(listed) = answer.pointer_mut("/items/0/metadata") {
            let wish = 1 + reads.fetch_add(1, Ordering::Relaxed) % 4;
            listed["annotations"] = json!({"cgpu.io/memory": format!("{wish}Gi")});
        }
        if answer["type"] == "MODIFIED" {
            return format!("{answer}\n").repeat(100);
        }
        answer.to_string()
    });
    let running = tokio::spawn(keeper(&node, client.await).run());
    for wish in 1..=2 {
        let resized = async {
            while node.limits().iter().all(|limit| limit.2 != wish << 30) {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        let resized = tokio::time::timeout(Duration::from_secs(60), resized).await;
        assert!(resized.is_ok(), "{:?}", node.limits());
    }
    for count in [written, read].map(|count| count.load(Ordering::Relaxed)) {
        assert!((1..6).contains(&count), "{count}");
    }
    running.abort();
}

/// The scheduler counts its memory as free, and so it does with that of a claim that is allocated
/// elsewhere, or no more.
#[tokio::test]
async fn instance_of_a_deleted_claim_is_subtracted() {
    const RESULTS: &str = "/status/allocation/devices/results";
    let node = FakeNode::new(1);
    let now = Arc::new(Mutex::new("there"));
    let said = now.clone();
    let client = serve(move |request| {
        let now = *said.lock().expect("held");
        let mut answer = answer(request, now == "gone");
        if let Some(results) = claim_in(&mut answer).and_then(|c| c.pointer_mut(RESULTS)) {
            match now {
                "nowhere" => *results = json!([]),
                "there" | "gone" => {}
                _ => {
                    let (field, value) = now.split_once(' ').expect("a change");
                    results[0][field] = value.into();
                }
            }
        }
        answer
    });
    let mut keeper = keeper(&node, client.await);
    keeper.grace = Duration::from_secs(3600);
    let tenants = keeper.tenants.clone();
    let free = || tenants.inventory().expect("read").gpus[0].memory_bytes;
    let whole = free();
    let running = tokio::spawn(keeper.run());
    for state in [
        "gone",
        "nowhere",
        "device gpu-1",
        "pool node2",
        "driver gpu.nvidia.com",
        "shareID a671734a-e8e5-11e4-8fde-42010af09327",
    ] {
        for (state, held) in [("there", 0), (state, 8 << 30)] {
            *now.lock().expect("held") = state;
            let began = Instant::now();
            while free() != whole - held {
                assert!(began.elapsed() < Duration::from_secs(90), "{state}");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
    tenants
        .unprepare(&Uid::new(UID).expect("a uid"))
        .expect("removed");
    assert_eq!(free(), whole);
    running.abort();
}

/// A busy machine may be late by chance, but not each time.
const CHANCES: usize = 3;

/// Its pod may run, and what it has is not free.
#[tokio::test]
async fn a_deletion_is_noticed_at_once() {
    let mut late = Vec::new();
    for _ in 0..CHANCES {
        let node = FakeNode::new(1);
        let told: Arc<Mutex<Option<Instant>>> = Arc::default();
        let watched = told.clone();
        let client = serve(move |request| {
            let mut watched = watched.lock().expect("held");
            let answer = answer(request, watched.is_some());
            if answer["type"] != "MODIFIED" {
                return answer.to_string();
            }
            watched.get_or_insert_with(Instant::now);
            // In the order in which Kubernetes writes it.
            format!(r#"{{"type":"DELETED","object":{}}}"#, answer["object"])
        });
        let mut keeper = keeper(&node, client.await);
        keeper.grace = Duration::from_secs(3600);
        let tenants = keeper.tenants.clone();
        let running = tokio::spawn(keeper.run());
        let began = Instant::now();
        while tenants.gone_claims().is_empty() {
            assert!(began.elapsed() < Duration::from_secs(60), "not noticed");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let took = told.lock().expect("held").expect("told").elapsed();
        running.abort();
        if took < Duration::from_millis(1500) {
            return;
        }
        late.push(took);
    }
    panic!("{late:?}");
}

/// The feature gate of the status is off, and then on.
#[tokio::test]
async fn a_dropped_status_is_noticed() {
    let node = FakeNode::new(1);
    let status: Arc<Mutex<Value>> = Arc::default();
    let is_kept = Arc::new(AtomicBool::new(false));
    let (kept, is_on) = (status.clone(), is_kept.clone());
    let client = serve(move |request| {
        if is_on.load(Ordering::Relaxed) {
            answer_with(&kept, request)
        } else {
            answer(request, false)
        }
    });
    let keeper = keeper(&node, client.await);
    let dropped = keeper.dropped.clone();
    assert!(!dropped.is_dropped());
    let running = tokio::spawn(keeper.run());
    for is_dropped in [true, false] {
        is_kept.store(!is_dropped, Ordering::Relaxed);
        let began = Instant::now();
        while dropped.is_dropped() != is_dropped {
            assert!(began.elapsed() < Duration::from_secs(120), "{is_dropped}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
    assert!(status.lock().expect("held").to_string().contains("Ready"));
    running.abort();
}

/// Of these names each is also the last digit of the claim's uid.
const SEVERAL: [&str; 3] = ["a", "b", "c"];

/// The answer of an apiserver that has several claims, all of which wish for 4 GiB, and keeps what
/// each says of its devices.
fn answer_of_several(kept: &Mutex<[Value; 3]>, request: &Request<Bytes>) -> Value {
    let mut kept = kept.lock().expect("held");
    let asked = request.uri().to_string();
    let is_named = |name: &&str| {
        let in_path = format!("/{name}/status");
        let in_query = format!("metadata.name%3D{name}");
        asked.contains(&in_path) || asked.contains(&in_query)
    };
    let n = SEVERAL.iter().position(is_named);
    let n = n.expect("one of them");
    if request.method() == Method::PATCH {
        let patch: Value = serde_json::from_slice(request.body()).expect("a patch");
        kept[n] = patch["status"]["devices"].clone();
    }
    let mut answer = answer(request, false);
    if let Some(claim) = claim_in(&mut answer) {
        claim["metadata"]["name"] = SEVERAL[n].into();
        claim["metadata"]["uid"] = UID.replace('f', SEVERAL[n]).into();
        claim["metadata"]["annotations"] = json!({"cgpu.io/memory": "4Gi"});
        claim["status"]["devices"] = kept[n].clone();
    }
    answer
}

/// Programs of two claims get no processor in the midst of a call, and the limits of these wait for
/// that.
#[tokio::test]
async fn a_resize_holds_up_no_other_claim() {
    let node = FakeNode::new(1);
    let said: Arc<Mutex<[Value; 3]>> = Arc::default();
    let kept = said.clone();
    let client = serve(move |request| answer_of_several(&kept, request)).await;
    let keeper = keeper(&node, client);
    let tenants = keeper.tenants.clone();
    tenants
        .unprepare(&Uid::new(UID).expect("a uid"))
        .expect("removed");
    for name in SEVERAL {
        let uid = Uid::new(&UID.replace('f', name)).expect("a uid");
        let plan = Plan {
            name: name.to_owned(),
            ..plan()
        };
        tenants
            .prepare(&uid, &plan, &Resize::default())
            .expect("prepared");
    }
    node.with(|s| s.busy = s.instances[..2].iter().map(|i| i.key.name).collect());
    let running = tokio::spawn(keeper.run());
    let sizes = || node.limits().iter().map(|l| l.2 >> 30).collect::<Vec<_>>();
    let says = |n: usize, word: &str| said.lock().expect("held")[n].to_string().contains(word);
    // A tenant holds up its own new limit for a minute at most.
    let began = Instant::now();
    while sizes() != [8, 8, 4] || !(0..3).all(|n| says(n, "Ready")) || !says(2, "Resized") {
        let seen = (sizes(), said.lock().expect("held").clone());
        assert!(began.elapsed() < Duration::from_secs(40), "{seen:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(!says(0, "Resized") && !says(1, "Resized"));
    node.with(|s| s.busy.clear());
    let began = Instant::now();
    while sizes() != [4, 4, 4] || !(0..3).all(|n| says(n, "AsAnnotated")) {
        assert!(began.elapsed() < Duration::from_secs(60), "{:?}", sizes());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    running.abort();
}

#[tokio::test]
async fn removed_status_is_written_again() {
    let node = FakeNode::new(1);
    let status: Arc<Mutex<Value>> = Arc::default();
    let written = Arc::new(AtomicUsize::new(0));
    let (kept, count) = (status.clone(), written.clone());
    let client = serve(move |request| {
        if request.method() == Method::PATCH {
            count.fetch_add(1, Ordering::Relaxed);
        }
        answer_with(&kept, request)
    });
    let running = tokio::spawn(keeper(&node, client.await).run());
    let began = Instant::now();
    for times in 1..3 {
        while written.load(Ordering::Relaxed) < times {
            assert!(
                began.elapsed() < Duration::from_secs(90),
                "written {times} times"
            );
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        tokio::time::sleep(Duration::from_secs(5)).await;
        assert_eq!(written.load(Ordering::Relaxed), times);
        *status.lock().expect("held") = Value::Null;
    }
    running.abort();
}

/// An operator destroyed it, or the module was loaded anew. Its pod may run.
#[tokio::test]
async fn a_lost_instance_comes_back() {
    let node = FakeNode::new(1);
    let client = serve(|request| answer(request, false)).await;
    let keeper = keeper(&node, client);
    let (tenants, uid) = (keeper.tenants.clone(), Uid::new(UID).expect("a uid"));
    let running = tokio::spawn(keeper.run());
    let before = node.limits();
    for _ in 0..2 {
        node.with(|s| {
            s.instances.clear();
            // It is tried again.
            s.fail(Op::SetCompute, 0, Errno::EIO);
        });
        let began = Instant::now();
        while node.limits() != before || node.journal().len() != 2 {
            assert!(began.elapsed() < Duration::from_secs(60), "not again");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
    running.abort();
    // Another call was faster.
    assert_eq!(
        tenants.restore(&uid, &plan(), &Resize::default()),
        Ok(false)
    );
    // A removal that has begun goes first: a program of the claim's other instance still runs.
    node.with(|s| s.instances[0].open_files = 1);
    tenants.unprepare(&uid).expect_err("in use");
    assert_eq!(
        tenants.restore(&uid, &plan(), &Resize::default()),
        Ok(false)
    );
    node.with(|s| s.instances[0].open_files = 0);
    tenants.unprepare(&uid).expect("removed");
    assert_eq!(
        tenants.restore(&uid, &plan(), &Resize::default()),
        Ok(false)
    );
    assert!(node.limits().is_empty() && node.cdi_files().is_empty());
}

/// Its limit cannot be changed afterwards.
#[tokio::test]
async fn a_lost_instance_stays_as_small_as_asked() {
    let node = FakeNode::new(1);
    let client = serve(|request| {
        let mut answer = answer(request, false);
        if let Some(claim) = claim_in(&mut answer) {
            claim["metadata"]["annotations"] = json!({"cgpu.io/memory": "4Gi"});
        }
        answer
    });
    let running = tokio::spawn(keeper(&node, client.await).run());
    let limits = || node.with(|s| s.instances.first().map(|i| i.memory_limit_bytes));
    let until = async |limit: u64| {
        while limits() != Some(limit) {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let soon = Duration::from_secs(60);
    let resized = tokio::time::timeout(soon, until(4 << 30)).await;
    assert!(resized.is_ok(), "{:?}", node.limits());
    node.with(|s| {
        (0..99).for_each(|n| s.fail(Op::SetMemory, n, Errno::EIO));
        s.instances.clear();
    });
    let restored = tokio::time::timeout(soon, until(4 << 30)).await;
    assert!(restored.is_ok(), "{:?}", node.limits());
    running.abort();
}

/// The module was unloaded, or the control device cannot be opened for want of files.
#[tokio::test]
async fn a_claim_without_its_instance_is_not_ready() {
    let node = FakeNode::new(1);
    let status: Arc<Mutex<Value>> = Arc::default();
    let kept = status.clone();
    let client = serve(move |request| answer_with(&kept, request)).await;
    let running = tokio::spawn(keeper(&node, client).run());
    let ready = || {
        let status = status.lock().expect("held");
        let ready = &status[0]["conditions"][0];
        let words = ["type", "status", "reason"].map(|key| ready[key].as_str());
        words
            .map(|word| word.unwrap_or_default().to_owned())
            .join(" ")
    };
    for (gone, told) in [
        (false, "Ready True InstanceCreated"),
        (true, "Ready False InstanceGone"),
        (false, "Ready True InstanceCreated"),
    ] {
        node.driver_gone.store(gone, Ordering::Relaxed);
        let began = Instant::now();
        while ready() != told {
            assert!(began.elapsed() < Duration::from_secs(60), "{}", ready());
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
    // Nobody knows then, so the claim says what was known last.
    node.with(|s| (0..999).for_each(|n| s.fail(Op::Open, n, Errno::EMFILE)));
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(10) {
        assert_eq!(ready(), "Ready True InstanceCreated");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    running.abort();
}

/// An operator's change outlives the driver then, as that of a claim that never had a wish.
#[tokio::test]
async fn no_trace_is_left_of_a_wish() {
    let node = FakeNode::new(1);
    let status: Arc<Mutex<Value>> = Arc::default();
    let wish = Arc::new(Mutex::new(Some("4Gi")));
    let (kept, asked) = (status.clone(), wish.clone());
    let client = serve(move |request| {
        let mut answer = answer_with(&kept, request);
        if let Some(claim) = claim_in(&mut answer) {
            let wish = *asked.lock().expect("held");
            claim["metadata"]["annotations"] = json!({"cgpu.io/memory": wish});
        }
        answer
    });
    let client = client.await;
    let told = |limit: &str| status.lock().expect("held").to_string().contains(limit);
    for (asked, limit, is_told) in [(Some("4Gi"), "4Gi", true), (None, "8Gi", false)] {
        *wish.lock().expect("held") = asked;
        let running = tokio::spawn(keeper(&node, client.clone()).run());
        let began = Instant::now();
        while !told(&format!("\"{limit}\"")) || told("Resized") != is_told {
            assert!(began.elapsed() < Duration::from_secs(60), "{status:?}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        running.abort();
    }
    node.with(|s| s.instances[0].memory_limit_bytes = 2 << 30);
    let running = tokio::spawn(keeper(&node, client).run());
    let began = Instant::now();
    while !told("\"2Gi\"") {
        assert!(began.elapsed() < Duration::from_secs(60), "{status:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    running.abort();
}

/// Users may write many claims, and large ones.
#[tokio::test]
async fn few_claims_are_read_at_once() {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = asked.clone();
    let client = serve(move |_| {
        count.fetch_add(1, Ordering::Relaxed);
        ""
    });
    let client = client.await;
    let mut reading = tokio::task::JoinSet::new();
    for _ in 0..10 {
        let claims = ClaimApi::of(client.clone(), "team-a");
        reading.spawn(async move { claims.find("train").await.map(|_| ()) });
    }
    let soon = tokio::time::timeout(Duration::from_secs(2), reading.join_next()).await;
    assert!(soon.is_err(), "{soon:?}");
    let asked = asked.load(Ordering::Relaxed);
    assert!((1..=3).contains(&asked), "{asked}");
}
