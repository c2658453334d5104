// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The world of the cases: nodes in memory with this driver and a test kubelet, on a real control
//! plane, and short ways to make objects and wait for them.

use crate::{
    control_plane::ControlPlane,
    fake_node::FakeNode,
    faults::{self, Life},
    node_pods::{Answers, NodePods, Refusals},
    patience::{wait, Outcome},
};
use cgpu_dra::{
    config::Allowed,
    driver::{self, MetricsLogin, Settings},
    names::REGISTRATION,
};
use futures_util::FutureExt;
use k8s_openapi::{
    api::{
        core::v1::{Event, Node, Pod},
        resource::v1::{ResourceClaim, ResourceSlice},
    },
    NamespaceResourceScope,
};
use kube::{
    api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams},
    core::{ApiResource, GroupVersionKind},
    Api, Client, Resource,
};
use serde_json::{json, Value};
use std::{
    collections::BTreeMap, net::SocketAddr, path::Path, process::Command, sync::Arc, time::Duration,
};
use tokio::{sync::watch, task::JoinHandle};

/// Helm's output for the chart, for a cluster of this version, with these settings; or its error.
pub(crate) fn render(binaries: &Path, version: &str, settings: &[&str]) -> Result<String, String> {
    told(&mut helm(binaries, version, settings))
}

/// The same as `helm upgrade` sees it, which asks the cluster for what is there.
pub(crate) fn render_upgrade(plane: &ControlPlane, settings: &[&str]) -> Result<String, String> {
    let mut helm = helm(&plane.binaries, "1.36.0", settings);
    helm.arg("--dry-run=server");
    told(helm.env("KUBECONFIG", plane.folder.join("kubeconfig")))
}

fn helm(binaries: &Path, version: &str, settings: &[&str]) -> Command {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../dist/helm/cgpu");
    let mut helm = Command::new(binaries.join("helm"));
    helm.args(["template", "cgpu", folder, "--namespace", "cgpu"]);
    helm.args(["--kube-version", version]);
    for setting in settings {
        helm.args(["--set", setting]);
    }
    helm
}

fn told(helm: &mut Command) -> Result<String, String> {
    let rendered = helm.output().expect("helm");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if rendered.status.success() {
        Ok(text(&rendered.stdout))
    } else {
        Err(text(&rendered.stderr))
    }
}

/// The objects of the chart for the cluster of the tests.
pub(crate) fn chart(binaries: &Path, settings: &[&str]) -> Vec<Value> {
    let text = render(binaries, "1.36.0", settings).unwrap_or_else(|why| panic!("helm: {why}"));
    objects(&text)
}

/// The objects of helm's output.
pub(crate) fn objects(text: &str) -> Vec<Value> {
    text.split("---\n")
        .filter(|object| object.contains("apiVersion:"))
        .map(yaml)
        .collect()
}

/// Reads YAML as the crate kube does for its kubeconfigs.
fn yaml(text: &str) -> Value {
    serde_saphyr::from_str(text).expect("YAML")
}

/// A cluster of nodes in memory.
pub(crate) struct World {
    pub(crate) plane: ControlPlane,
    pub(crate) client: Client,
}

impl World {
    /// A control plane with the chart's objects.
    pub(crate) async fn start(binaries: &Path) -> Self {
        let plane = ControlPlane::start(binaries).await;
        let world = Self {
            client: plane.admin.clone(),
            plane,
        };
        world
            .apply(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "cgpu"}}))
            .await;
        for object in chart(binaries, &[]) {
            world.apply(object).await;
        }
        world
    }

    /// Creates or changes any object.
    pub(crate) async fn apply(&self, object: Value) {
        // A field that no version of Kubernetes knows is a mistake.
        let by = PatchParams::apply("tests").force().validation_strict();
        let applied = self.apply_by(&by, object.clone()).await;
        applied.unwrap_or_else(|why| panic!("{object}: {why}"));
    }

    /// Has the apiserver judge an object, which is not kept.
    pub(crate) async fn would_apply(&self, object: Value) -> Outcome {
        let by = PatchParams::apply("tests")
            .force()
            .validation_strict()
            .dry_run();
        let applied = self.apply_by(&by, object.clone()).await;
        applied.map_err(|why| format!("{object}: {why}"))
    }

    async fn apply_by(&self, by: &PatchParams, object: Value) -> Outcome {
        let text = |at: &str| {
            object
                .pointer(at)
                .and_then(Value::as_str)
                .unwrap_or_default()
        };
        let (group, version) = text("/apiVersion")
            .split_once('/')
            .unwrap_or(("", text("/apiVersion")));
        let kind = GroupVersionKind::gvk(group, version, text("/kind"));
        let resource = ApiResource::from_gvk(&kind);
        let api: Api<DynamicObject> = match text("/metadata/namespace") {
            "" => Api::all_with(self.client.clone(), &resource),
            namespace => Api::namespaced_with(self.client.clone(), namespace, &resource),
        };
        let applied = api
            .patch(text("/metadata/name"), by, &Patch::Apply(&object))
            .await;
        applied.map(|_| ()).map_err(|e| e.to_string())
    }

    /// The objects of a namespace.
    pub(crate) fn api<K>(&self, namespace: &str) -> Api<K>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
    {
        Api::namespaced(self.client.clone(), namespace)
    }

    /// A namespace for a case, with templates of claims.
    pub(crate) async fn namespace(&self, name: &str) {
        self.apply(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}))
            .await;
    }

    /// A template of claims with one request.
    pub(crate) async fn template(&self, namespace: &str, name: &str, requests: Value) {
        self.template_with(namespace, name, json!([shape(requests)]), json!({}))
            .await;
    }

    /// A template of claims.
    pub(crate) async fn template_with(
        &self,
        namespace: &str,
        name: &str,
        requests: Value,
        more: Value,
    ) {
        let mut devices = json!({"requests": requests});
        for (key, value) in more.as_object().expect("an object") {
            devices[key] = value.clone();
        }
        self.apply(json!({
            "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate",
            "metadata": {"namespace": namespace, "name": name},
            "spec": {"spec": {"devices": devices}}
        }))
        .await;
    }

    /// A pod with a claim of a template.
    pub(crate) async fn pod(&self, namespace: &str, name: &str, template: &str) {
        self.pod_with(
            namespace,
            name,
            json!({
                "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": template}],
                "containers": [{"name": "main", "image": "cgpu.test/none:1",
                    "resources": {"claims": [{"name": "gpu"}]}}]
            }),
        )
        .await;
    }

    /// A pod with this spec.
    pub(crate) async fn pod_with(&self, namespace: &str, name: &str, spec: Value) {
        let pod = json!({"metadata": {"name": name}, "spec": spec});
        let pod: Pod = serde_json::from_value(pod).expect("a pod");
        let pods: Api<Pod> = self.api(namespace);
        pods.create(&PostParams::default(), &pod)
            .await
            .expect("created");
    }

    /// Deletes a pod as a user does: the kubelet ends it.
    pub(crate) async fn delete(&self, namespace: &str, name: &str) {
        let pods: Api<Pod> = self.api(namespace);
        pods.delete(name, &DeleteParams::default())
            .await
            .expect("deleted");
    }

    /// Waits until a pod is gone, and with it its claims.
    pub(crate) async fn gone(&self, namespace: &str) -> Outcome {
        let (pods, claims) = (
            self.api::<Pod>(namespace),
            self.api::<ResourceClaim>(namespace),
        );
        wait("a namespace without pods and claims", || async {
            let left = pods.list(&ListParams::default()).await.ok()?.items.len()
                + claims.list(&ListParams::default()).await.ok()?.items.len();
            (left == 0).then_some(())
        })
        .await
    }

    /// Waits for the node of a pod.
    pub(crate) async fn scheduled(&self, namespace: &str, name: &str) -> Result<String, String> {
        let pods: Api<Pod> = self.api(namespace);
        wait(&format!("a node for {name}"), || async {
            pods.get(name).await.ok()?.spec?.node_name
        })
        .await
    }

    /// Waits until the scheduler says why a pod has no node.
    pub(crate) async fn pending(&self, namespace: &str, name: &str) -> Result<String, String> {
        let events: Api<Event> = self.api(namespace);
        let about = ListParams::default().fields(&format!("involvedObject.name={name}"));
        wait(&format!("an event about {name}"), || async {
            let found = events.list(&about).await.ok()?.items;
            let failed = found
                .into_iter()
                .find(|e| e.reason.as_deref() == Some("FailedScheduling"));
            failed?.message
        })
        .await
    }

    /// The slices of a node.
    pub(crate) async fn slices(&self, node: &str) -> Vec<ResourceSlice> {
        let slices: Api<ResourceSlice> = Api::all(self.client.clone());
        let own = ListParams::default().fields(&format!("spec.nodeName={node}"));
        slices.list(&own).await.expect("listed").items
    }

    /// A Node object.
    pub(crate) async fn node_object(&self, name: &str) {
        let nodes: Api<Node> = Api::all(self.client.clone());
        let node = json!({"metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}}});
        let node: Node = serde_json::from_value(node).expect("a node");
        nodes
            .create(&PostParams::default(), &node)
            .await
            .expect("created");
        let room = json!({"cpu": "1k", "memory": "1Ti", "pods": "20k"});
        let status = json!({"status": {"capacity": room, "allocatable": room,
            "conditions": [{"type": "Ready", "status": "True", "reason": "Test",
                "lastHeartbeatTime": null, "lastTransitionTime": null}]}});
        nodes
            .patch_status(name, &PatchParams::default(), &Patch::Merge(status))
            .await
            .expect("patched");
    }

    /// A token of the driver's account that is bound to a node, as a pod of the DaemonSet has it.
    pub(crate) async fn token(&self, node: &str) -> String {
        let nodes: Api<Node> = Api::all(self.client.clone());
        let uid = nodes.get(node).await.expect("a node").metadata.uid;
        let bound = json!({"apiVersion": "v1", "kind": "Node", "name": node, "uid": uid});
        self.token_of("cgpu-dra", Some(bound)).await
    }

    /// A token of an account of the chart.
    pub(crate) async fn token_of(&self, account: &str, bound: Option<Value>) -> String {
        let body = json!({
            "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
            "spec": {"audiences": ["https://cgpu.test"], "expirationSeconds": 7200,
                "boundObjectRef": bound}
        });
        let path = format!("/api/v1/namespaces/cgpu/serviceaccounts/{account}/token");
        let request = http::Request::post(path)
            .header("content-type", "application/json")
            .body(body.to_string().into_bytes())
            .expect("a request");
        let answer: Value = self.client.request(request).await.expect("a token");
        answer["status"]["token"]
            .as_str()
            .expect("a token")
            .to_owned()
    }

    /// Removes all nodes and slices: a case begins without those of the case before.
    pub(crate) async fn clean(&self) {
        let (none, all) = (DeleteParams::default(), ListParams::default());
        let nodes: Api<Node> = Api::all(self.client.clone());
        nodes.delete_collection(&none, &all).await.expect("deleted");
        let slices: Api<ResourceSlice> = Api::all(self.client.clone());
        let gone = slices.delete_collection(&none, &all).await;
        gone.expect("deleted");
    }

    /// A node with GPUs, its driver and its kubelet.
    pub(crate) async fn node(&self, name: &str, gpus: u32) -> WorldNode {
        self.node_object(name).await;
        let fake = FakeNode::new(gpus);
        let mut node = WorldNode {
            name: name.to_owned(),
            fake,
            client: self.plane.client_of(&self.token(name).await),
            kubelet: None,
            stop: None,
            metrics: None,
            life: Arc::default(),
            answers: Arc::default(),
            refusals: Arc::default(),
        };
        node.start().await;
        node.run_pods(self.client.clone());
        let published = wait("the node's slice", || async {
            let slices = self.slices(name).await;
            slices.first()?.spec.devices.as_ref()?.first().map(|_| ())
        })
        .await;
        published.expect("published");
        node
    }
}

/// A request of a claim for capacities.
pub(crate) fn shape(requests: Value) -> Value {
    named("gpu", requests)
}

/// The same under another name.
pub(crate) fn named(name: &str, requests: Value) -> Value {
    json!({"name": name, "exactly": {
        "deviceClassName": "gpu.cgpu.io", "capacity": {"requests": requests}}})
}

/// A node of the cluster.
pub(crate) struct WorldNode {
    pub(crate) name: String,
    pub(crate) fake: Arc<FakeNode>,
    pub(crate) client: Client,
    kubelet: Option<JoinHandle<()>>,
    stop: Option<(watch::Sender<bool>, JoinHandle<()>)>,
    pub(crate) metrics: Option<SocketAddr>,
    life: Arc<Life>,
    pub(crate) answers: Answers,
    pub(crate) refusals: Refusals,
}

impl WorldNode {
    /// Starts the driver.
    pub(crate) async fn start(&mut self) {
        let (stop, stopped) = watch::channel(false);
        let settings = Settings {
            node: self.name.clone(),
            places: self.fake.places(),
            overcommit: 100,
            allowed: Allowed::default(),
            grace: Duration::from_secs(2),
            metrics: self.metrics,
            metrics_login: MetricsLogin::Kubernetes,
        };
        let asked = stopped.clone();
        let running = driver::run(self.client.clone(), self.fake.clone(), settings, stopped);
        let task = tokio::spawn(running.map(move |ended| {
            ended.expect("the driver runs");
            assert!(*asked.borrow(), "the driver has ended by itself");
        }));
        self.stop = Some((stop, task));
        let socket = self.fake.places().registry.join(REGISTRATION);
        let there = wait("the driver's socket", || async {
            socket.exists().then_some(())
        });
        there.await.expect("there");
        self.life.turn(true);
    }

    /// Stops the driver.
    pub(crate) async fn halt(&mut self) {
        self.life.turn(false);
        if let Some((stop, task)) = self.stop.take() {
            let _ = stop.send(true);
            let _ = task.await;
        }
    }

    /// Has a kubelet run the node's pods: prepares their claims, and ends them when they are
    /// deleted.
    fn run_pods(&mut self, client: Client) {
        let mut pods = NodePods {
            client,
            node: self.name.clone(),
            fake: self.fake.clone(),
            answers: self.answers.clone(),
            refusals: self.refusals.clone(),
            known: BTreeMap::new(),
        };
        let life = self.life.clone();
        self.kubelet = Some(tokio::spawn(async move {
            loop {
                tokio::time::sleep(Duration::from_millis(200)).await;
                // It panics if the driver does not answer. If the driver was not halted, that is
                // noted.
                let turn = faults::unless_halted(&life, pods.turn());
                let _ = std::panic::AssertUnwindSafe(turn).catch_unwind().await;
            }
        }));
    }
}

impl Drop for WorldNode {
    fn drop(&mut self) {
        self.life.turn(false);
        if let Some(kubelet) = &self.kubelet {
            kubelet.abort();
        }
        if let Some((stop, task)) = &self.stop {
            let _ = stop.send(true);
            task.abort();
        }
    }
}
