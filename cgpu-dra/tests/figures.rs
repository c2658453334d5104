// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The figures: a kubelet in memory tells which containers use which claims, and the dashboard asks
//! for figures that there are.

mod fake_node;
mod train;

use cgpu_dra::{
    metrics::Metrics,
    names::Uid,
    proto::{
        ClaimResource, ContainerResources, DynamicResource, ListPodResourcesResponse, Nothing,
        PodResources,
    },
    rpc,
    status::Resize,
    tenants::Tenants,
};
use cgpu_fake::ControlState;
use fake_node::FakeNode;
use serde_json::Value;
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::watch,
};
use train::{plan, UID};

/// A node with a claim and an instance made by hand.
fn metrics(node: &Arc<FakeNode>) -> Arc<Metrics> {
    let tenants = Tenants::open(node.clone(), node.places(), 100).expect("opened");
    let uid = Uid::new(UID).expect("a uid");
    tenants
        .prepare(&uid, &plan(), &Resize::default())
        .expect("prepared");
    node.with(|s: &mut ControlState| {
        let mut by_hand = s.instances[0];
        by_hand.key.name = cgpu_uapi::Name::new("by-hand").expect("a name");
        by_hand.id += 1;
        s.instances.push(by_hand);
    });
    Arc::new(Metrics {
        node: node.clone(),
        tenants: Arc::new(tenants),
        pod_resources: node.places().pod_resources,
        lost: Arc::new(Mutex::new(vec!["taints"])),
        dropped: Arc::default(),
        calls: Arc::default(),
    })
}

fn container(name: &str, driver: &str, claim: &str) -> ContainerResources {
    ContainerResources {
        name: name.to_owned(),
        devices: vec![],
        dynamic_resources: vec![DynamicResource {
            claim_name: claim.to_owned(),
            claim_resources: vec![ClaimResource {
                driver_name: driver.to_owned(),
            }],
        }],
    }
}

fn pod(name: &str, containers: Vec<ContainerResources>) -> PodResources {
    PodResources {
        name: name.to_owned(),
        namespace: "team-a".to_owned(),
        containers,
    }
}

/// A kubelet that tells of these pods until the sender is dropped.
fn kubelet(node: &FakeNode, pods: Vec<PodResources>) -> watch::Sender<bool> {
    let (stop, stopped) = watch::channel(false);
    let listener = rpc::listen(&node.places().pod_resources).expect("bound");
    let answer = ListPodResourcesResponse {
        pod_resources: pods,
    };
    let serve = rpc::serve(
        listener,
        move |call| {
            assert_eq!(call.uri().path(), "/v1.PodResourcesLister/List");
            let answer = answer.clone();
            rpc::unary(call, move |_: Nothing| {
                std::future::ready(Ok(answer.clone()))
            })
        },
        stopped,
    );
    tokio::spawn(serve);
    stop
}

#[tokio::test]
async fn samples_name_the_pod_of_a_claim() {
    let node = FakeNode::new(1);
    let metrics = metrics(&node);
    // The container names two requests of the claim.
    let mut main = container("main", "gpu.cgpu.io", "train");
    main.dynamic_resources
        .extend(main.dynamic_resources.clone());
    let containers = vec![
        main,
        container("side\"car", "gpu.cgpu.io", "train"),
        container("other", "gpu.example.com", "train"),
        container("unknown", "gpu.cgpu.io", "gone"),
    ];
    let stop = kubelet(&node, vec![pod("train-0", containers)]);
    metrics.dropped.note(true);
    metrics.calls.prepare.begin().done();
    drop(metrics.calls.unprepare.begin());
    let text = metrics.text().await.expect("figures");
    let own = format!(
        "{{instance=\"claim-{UID}\",gpu=\"0\",namespace=\"team-a\",claim=\"train\",\
         pod=\"train-0\",container=\"\"}}"
    );
    for line in [
        format!("cgpu_instance_memory_limit_bytes{own} 8589934592"),
        format!("cgpu_instance_compute_gpu_time_seconds_total{own} 0"),
        "cgpu_instance_weight{instance=\"by-hand\",gpu=\"0\",namespace=\"\",claim=\"\",pod=\"\",\
         container=\"\"} 20"
            .to_owned(),
        "cgpu_dra_claims{} 1".to_owned(),
        "cgpu_dra_pods_known{} 1".to_owned(),
        "cgpu_dra_dropped_fields{} 2".to_owned(),
        "cgpu_dra_calls_total{call=\"prepare\"} 1".to_owned(),
        "cgpu_dra_calls_failed_total{call=\"prepare\"} 0".to_owned(),
        "cgpu_dra_calls_failed_total{call=\"unprepare\"} 1".to_owned(),
        "cgpu_dra_calls_slow_total{call=\"unprepare\"} 0".to_owned(),
        format!(
            "cgpu_dra_container_info{{namespace=\"team-a\",claim=\"train\",pod=\"train-0\",\
             container=\"side\\\"car\",instance=\"claim-{UID}\"}} 1"
        ),
    ] {
        assert!(text.lines().any(|l| l == line), "{line} is not in\n{text}");
    }
    let of_containers = text
        .lines()
        .filter(|l| l.starts_with("cgpu_dra_container_info{"));
    assert_eq!(of_containers.count(), 2, "{text}");
    drop(stop);
}

/// Names of labels, and the values of one sample.
fn labels_of(line: &str) -> BTreeMap<&str, &str> {
    let labels = line
        .split_once('{')
        .and_then(|(_, rest)| rest.rsplit_once('}'));
    let labels = labels.map_or("", |(labels, _)| labels).split("\",");
    let pairs = labels.filter_map(|label| label.split_once("=\""));
    pairs
        .map(|(key, value)| (key, value.trim_end_matches('"')))
        .collect()
}

/// A label that a sample lacks is that of the driver's own pod in Prometheus.
#[tokio::test]
async fn each_instance_says_whose_it_is() {
    let node = FakeNode::new(1);
    let metrics = metrics(&node);
    let main = container("main", "gpu.cgpu.io", "train");
    let stop = kubelet(&node, vec![pod("train-0", vec![main])]);
    let text = metrics.text().await.expect("figures");
    let samples = text
        .lines()
        .filter(|line| line.starts_with("cgpu_instance_"));
    let samples: Vec<_> = samples.map(labels_of).collect();
    assert!(samples.len() > 50, "{text}");
    let own = ["team-a", "train", "train-0", "main"];
    for labels in samples {
        let names = ["namespace", "claim", "pod", "container"];
        let whose = names.map(|name| *labels.get(name).unwrap_or(&"(none)"));
        let is_by_hand = labels["instance"] == "by-hand";
        assert_eq!(whose, if is_by_hand { [""; 4] } else { own }, "{labels:?}");
    }
    drop(stop);
}

/// It was deleted by force and made again under its name, and a program of the old one still runs.
#[tokio::test]
async fn the_new_claim_has_its_pod() {
    let node = FakeNode::new(1);
    let metrics = metrics(&node);
    let (old, new) = (Uid::new(UID).expect("a uid"), UID.replace('f', "a"));
    let new = Uid::new(&new).expect("a uid");
    let tenants = &metrics.tenants;
    tenants
        .prepare(&new, &plan(), &Resize::default())
        .expect("prepared");
    let main = container("main", "gpu.cgpu.io", "train");
    let stop = kubelet(&node, vec![pod("train-0", vec![main])]);
    for (gone, there) in [(&old, &new), (&new, &old)] {
        tenants.note_gone(gone, true);
        tenants.note_gone(there, false);
        let text = metrics.text().await.expect("figures");
        let of = |figure: &str, uid: &Uid| {
            let lines = text.lines().filter(|line| line.starts_with(figure));
            let own = lines
                .map(labels_of)
                .filter(|l| l["instance"] == uid.instance());
            own.map(|labels| labels["pod"].to_owned())
                .collect::<Vec<_>>()
        };
        for (uid, pod, count) in [(gone, "", 0), (there, "train-0", 1)] {
            assert_eq!(of("cgpu_instance_weight{", uid), [pod], "{text}");
            assert_eq!(of("cgpu_dra_container_info{", uid).len(), count, "{text}");
        }
    }
    drop(stop);
}

#[tokio::test]
async fn a_claim_that_pods_share_names_none() {
    let node = FakeNode::new(1);
    let metrics = metrics(&node);
    let each = |name| pod(name, vec![container("main", "gpu.cgpu.io", "train")]);
    let stop = kubelet(&node, vec![each("a"), each("b")]);
    let text = metrics.text().await.expect("figures");
    let shared = "claim=\"train\",pod=\"\",container=\"\"} 20";
    assert!(text.contains(shared), "{text}");
    assert!(text.contains("pod=\"b\",container=\"main\""), "{text}");
    drop(stop);
}

#[tokio::test]
async fn without_the_kubelet_there_are_figures() {
    let node = FakeNode::new(1);
    let metrics = metrics(&node);
    let text = metrics.text().await.expect("figures");
    assert!(text.contains("cgpu_dra_pods_known{} 0"), "{text}");
    // To look changes nothing.
    let left = (
        node.limits().len(),
        node.cdi_files().len(),
        node.journal().len(),
    );
    // Of the journal the plan and its mark.
    assert_eq!(left, (2, 1, 2));
    let unknown = "claim=\"train\",pod=\"\",container=\"\"} 20";
    assert!(text.contains(unknown), "{text}");
    node.driver_gone
        .store(true, std::sync::atomic::Ordering::Relaxed);
    let why = metrics.text().await.expect_err("no control device");
    assert!(why.contains("driver does not answer"), "{why}");
}

async fn get(at: std::net::SocketAddr, request: &str) -> String {
    let mut stream = TcpStream::connect(at).await.expect("connected");
    stream.write_all(request.as_bytes()).await.expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.expect("read");
    answer
}

#[tokio::test]
async fn figures_are_served() {
    let node = FakeNode::new(1);
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("bound");
    let at = listener.local_addr().expect("bound");
    tokio::spawn(metrics(&node).serve(listener, None));
    let page = get(at, "GET /metrics HTTP/1.1\r\nhost: x\r\n\r\n").await;
    assert!(page.starts_with("HTTP/1.1 200 OK\r\n"), "{page}");
    assert!(
        page.contains("content-type: text/plain; version=0.0.4"),
        "{page}"
    );
    assert!(page.contains("\ncgpu_dra_claims{} 1\n"), "{page}");
    for (request, status) in [
        ("GET / HTTP/1.1\r\nhost: x\r\n\r\n", "404"),
        (
            "POST /metrics HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n\r\n",
            "405",
        ),
        // No body is read.
        (
            "POST /metrics HTTP/1.1\r\nhost: x\r\ncontent-length: 4000000\r\n\r\n",
            "405",
        ),
        ("nonsense\r\n\r\n", "400"),
    ] {
        let answer = get(at, request).await;
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {status} ")),
            "{answer}"
        );
    }
}

const TRIES: usize = 3;

/// More clients than are answered at once, each of which says nothing or half a line.
#[tokio::test]
async fn silent_clients_hold_up_nobody() {
    let node = FakeNode::new(1);
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("bound");
    let at = listener.local_addr().expect("bound");
    tokio::spawn(metrics(&node).serve(listener, None));
    // A busy machine may take long by chance, but not each time.
    for _ in 0..TRIES {
        let mut silent = Vec::new();
        for n in 0..32 {
            let mut stream = TcpStream::connect(at).await.expect("connected");
            if n % 2 == 0 {
                stream.write_all(b"GET /metr").await.expect("sent");
            }
            silent.push(stream);
        }
        let page = get(at, "GET /metrics HTTP/1.1\r\nhost: x\r\n\r\n");
        // Silent clients are given up after ten.
        let patience = std::time::Duration::from_secs(9);
        let in_time = tokio::time::timeout(patience, page).await;
        assert_eq!(silent.len(), 32);
        if let Ok(page) = in_time {
            assert!(page.starts_with("HTTP/1.1 200 OK\r\n"), "{page}");
            return;
        }
    }
    panic!("no page in time, {TRIES} times");
}

/// Names of figures in a query of the dashboard.
fn names(query: &str) -> impl Iterator<Item = &str> {
    let words = query.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words.filter(|word| word.starts_with("cgpu_"))
}

fn queries<'a>(value: &'a Value, found: &mut Vec<&'a str>) {
    match value {
        Value::Object(all) => {
            for (key, value) in all {
                match value {
                    Value::String(text) if key == "expr" || key == "query" => found.push(text),
                    value => queries(value, found),
                }
            }
        }
        Value::Array(all) => all.iter().for_each(|value| queries(value, found)),
        _ => {}
    }
}

#[tokio::test]
async fn the_dashboard_asks_for_figures_that_there_are() {
    let node = FakeNode::new(1);
    let text = metrics(&node).text().await.expect("figures");
    let there: BTreeSet<_> = text
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next())
        .collect();
    let dashboard = include_str!("../../dist/grafana/cgpu.json");
    let dashboard: Value = serde_json::from_str(dashboard).expect("JSON");
    let mut asked = Vec::new();
    queries(&dashboard, &mut asked);
    assert!(asked.len() > 8, "{asked:?}");
    for query in asked {
        let mut all = names(query).peekable();
        assert!(all.peek().is_some() || query == "prometheus", "{query}");
        for name in all {
            assert!(there.contains(name), "{name} of {query:?} is not told");
        }
    }
}

/// Labels of a figure on a host, where Prometheus renames what its target has as well, and in a
/// cluster, where it does not (`honorLabels`) and the ServiceMonitor adds the node.
fn stored(own: &BTreeSet<&str>) -> [BTreeSet<String>; 2] {
    let host = own.iter().map(|label| match *label {
        "instance" => "exported_instance".to_owned(),
        label => label.to_owned(),
    });
    let host = host.chain(["instance"].map(str::to_owned)).collect();
    let target = ["instance", "namespace", "pod", "container", "node"];
    let cluster = own.iter().chain(&target).map(|label| (*label).to_owned());
    [host, cluster.collect()]
}

/// The labels that a query makes, each with the one that it copies.
fn made(query: &str) -> Vec<(&str, &str)> {
    let parts: Vec<_> = query.split("\", \"$1\", \"").collect();
    let pairs = parts.windows(2).filter_map(|pair| {
        let (_, made) = pair[0].rsplit_once('"')?;
        let (copied, _) = pair[1].split_once('"')?;
        Some((made, copied))
    });
    pairs.collect()
}

#[tokio::test]
async fn legends_show_labels_that_there_are() {
    let node = FakeNode::new(1);
    let text = metrics(&node).text().await.expect("figures");
    let dashboard = include_str!("../../dist/grafana/cgpu.json");
    let dashboard: Value = serde_json::from_str(dashboard).expect("JSON");
    let panels = dashboard["panels"].as_array().expect("panels");
    let targets = panels
        .iter()
        .flat_map(|p| p["targets"].as_array().expect("targets"));
    for target in targets {
        let [query, legend] =
            ["expr", "legendFormat"].map(|key| target[key].as_str().expect("text"));
        let figures: BTreeSet<_> = names(query).collect();
        let samples = text.lines().filter(|line| {
            let name = line.split('{').next().unwrap_or_default();
            figures.contains(name)
        });
        let own = samples
            .flat_map(|line| labels_of(line).into_keys())
            .collect();
        let [host, cluster] = stored(&own);
        let made = made(query);
        for (_, copied) in &made {
            assert!(
                host.contains(*copied) || cluster.contains(*copied),
                "{copied}: {query}"
            );
        }
        let shown: Vec<_> = legend
            .split("{{")
            .skip(1)
            .filter_map(|l| l.split("}}").next())
            .collect();
        assert!(!shown.is_empty(), "{legend}");
        let copies = |label: &str, of: &str| made.contains(&(label, of));
        for label in &shown {
            let is_made = made
                .iter()
                .any(|(name, copied)| name == label && cluster.contains(*copied));
            assert!(
                is_made || cluster.contains(*label),
                "{{{{{label}}}}} of {query}"
            );
        }
        // The name of an instance, or of a host, is another label on hosts and in clusters.
        let pair = if query.contains("cgpu_instance_") {
            ["instance", "exported_instance"]
        } else if query.contains("cgpu_gpu_") {
            ["instance", "node"]
        } else {
            continue;
        };
        let is_both = |label: &&str| pair.iter().all(|of| copies(label, of));
        assert!(shown.iter().any(is_both), "{legend} of {query}");
    }
}
