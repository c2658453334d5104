// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The watch of a claim, at an apiserver of the test that has forgotten the claim's own version.

mod fake_node;

use cgpu_dra::{
    claims::{Plan, Share},
    keeper::Keeper,
    names::Uid,
    tenants::Tenants,
    web,
};
use fake_node::FakeNode;
use http::{Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Bytes;
use kube::{Client, Config};
use serde_json::{json, Value};
use std::{
    sync::{
        atomic::{AtomicBool, Ordering},
        Arc, Mutex,
    },
    time::{Duration, Instant},
};
use tokio::{net::TcpListener, sync::Notify};

const UID: &str = "7b2ea4b2-0000-4000-8000-00000000000f";

fn plan() -> Plan {
    Plan {
        namespace: "team-a".to_owned(),
        name: "train".to_owned(),
        shares: vec![Share {
            request: "gpu".to_owned(),
            device: "gpu-0".to_owned(),
            share_id: None,
            minor: 0,
            memory_bytes: 8 << 30,
            weight: 20,
            priority: 0,
            managed: 0,
            capabilities: 3,
            burst_ms: None,
        }],
    }
}

/// The claim, as it has been since version 5.
fn claim() -> Value {
    json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "spec": {},
        "metadata": {"namespace": "team-a", "name": "train", "uid": UID, "resourceVersion": "5"}
    })
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

#[tokio::test]
async fn unchanged_claims_are_watched_without_haste() {
    let node = FakeNode::new(1);
    let tenants = Tenants::open(node.clone(), node.places(), 100).expect("opened");
    let uid = Uid::new(UID).expect("a uid");
    tenants.prepare(&uid, &plan()).expect("prepared");
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("bound");
    let address = listener.local_addr().expect("an address");
    let asked: Arc<Mutex<Vec<(Instant, String)>>> = Arc::default();
    let gone = Arc::new(AtomicBool::new(false));
    let (noted, is_gone) = (asked.clone(), gone.clone());
    let handler = move |request: Request<Bytes>| {
        let path = request.uri().to_string();
        let answer: Response<Full<Bytes>> = web::response(
            StatusCode::OK,
            "application/json",
            format!("{}\n", answer(&request, is_gone.load(Ordering::Relaxed))),
        );
        noted.lock().expect("held").push((Instant::now(), path));
        std::future::ready(answer)
    };
    let server = tokio::spawn(web::serve(listener, None, handler));
    let at = format!("http://{address}").parse().expect("an address");
    let keeper = Keeper {
        client: Client::try_from(Config::new(at)).expect("a client"),
        pool: "node1".to_owned(),
        tenants: Arc::new(tenants),
        changed: Arc::new(Notify::new()),
        grace: Duration::ZERO,
    };
    let running = tokio::spawn(keeper.run());
    let watches = || {
        let asked = asked.lock().expect("held").clone();
        asked
            .into_iter()
            .filter(|a| a.1.contains("watch=true"))
            .collect::<Vec<_>>()
    };
    let began = Instant::now();
    while watches().len() < 2 {
        assert!(began.elapsed() < Duration::from_secs(90), "{asked:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let watches = watches();
    for (_, watch) in &watches {
        assert!(watch.contains("resourceVersion=9000"), "{watch}");
    }
    assert!(
        watches[1].0 - watches[0].0 >= Duration::from_secs(1),
        "{watches:?}"
    );
    // What the claim has is written once, and the instance stays.
    let patches = asked
        .lock()
        .expect("held")
        .iter()
        .filter(|a| a.1.contains("/status"))
        .count();
    assert_eq!((patches, node.limits().len()), (1, 1));
    gone.store(true, Ordering::Relaxed);
    while !node.limits().is_empty() || !node.journal().is_empty() {
        assert!(began.elapsed() < Duration::from_secs(180), "{asked:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(node.cdi_files().is_empty());
    running.abort();
    server.abort();
}
