// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Rights of the chart's accounts at a real apiserver: its rules, and the chart's policies.

use crate::{
    cases::{condition, first_claim, limits},
    control_plane::{client, port},
    patience::{must, until, wait, Outcome},
    world::{shape, World},
};
use k8s_openapi::api::{
    core::v1::Pod,
    resource::v1::{ResourceClaim, ResourceSlice},
};
use kube::{
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
    Api,
};
use serde_json::json;
use std::fmt::Debug;

/// By this Kubernetes keeps an allocated claim.
const FINALIZER: &str = "resource.kubernetes.io/delete-protection";
/// The policies' word on a token that is of no pod on a node.
const NO_NODE: &str = "the token of cgpu-dra names no node";

/// The apiserver has refused something, and said so.
fn refused<T: Debug>(answer: kube::Result<T>, said: &str) -> Outcome {
    let why = answer.map_err(|e| e.to_string());
    must(
        why.as_ref().is_err_and(|why| why.contains(said)),
        (said, &why),
    )
}

/// The driver's account can do what it must, on its own node, and nothing else.
pub(crate) async fn the_account_is_kept_to_its_node(world: &mut World) -> Outcome {
    let node = world.node("rights", 1).await;
    let slices: Api<ResourceSlice> = Api::all(node.client.clone());
    let slice = |node: &str, pool: &str| {
        let spec = json!({"driver": "gpu.cgpu.io", "nodeName": node,
            "pool": {"name": pool, "generation": 9, "resourceSliceCount": 1}, "devices": []});
        ResourceSlice {
            metadata: serde_json::from_value(json!({"generateName": "foreign-"}))
                .expect("metadata"),
            spec: serde_json::from_value(spec).expect("a spec"),
        }
    };
    for (at, pool) in [
        ("elsewhere", "elsewhere"),
        ("elsewhere", "rights"),
        ("rights", "elsewhere"),
    ] {
        let foreign = slices
            .create(&PostParams::default(), &slice(at, pool))
            .await;
        refused(foreign, "own node only").map_err(|why| format!("{at}, {pool}: {why}"))?;
    }
    // A slice of another node that is there stays as it is.
    let by_admin: Api<ResourceSlice> = Api::all(world.client.clone());
    let (how, foreign) = (PostParams::default(), slice("elsewhere", "elsewhere"));
    let there = by_admin.create(&how, &foreign).await;
    let there = there.map_err(|e| e.to_string())?;
    let name = there.metadata.name.clone().unwrap_or_default();
    let mut changed = there.clone();
    changed.spec.pool.generation += 1;
    refused(slices.replace(&name, &how, &changed).await, "own node only")?;
    let mut taken = there.clone();
    taken.spec = slice("rights", "rights").spec;
    let taken = slices.replace(&name, &how, &taken).await;
    must(taken.is_err(), "another node's slice is taken")?;
    let deleted = slices.delete(&name, &DeleteParams::default()).await;
    refused(deleted, "own node only")?;
    let kept = by_admin.get(&name).await.map_err(|e| e.to_string())?;
    must(kept.spec == there.spec, &kept.spec)?;
    let pods: Api<Pod> = Api::all(node.client.clone());
    refused(pods.list(&ListParams::default()).await, "forbidden")?;
    let bound_to_none = world.token_of("cgpu-dra", None).await;
    let unbound: Api<ResourceSlice> = Api::all(world.plane.client_of(&bound_to_none));
    let foreign = unbound
        .create(&PostParams::default(), &slice("rights", "rights"))
        .await;
    refused(foreign, NO_NODE)?;
    // An account without rights, and nobody's token.
    world.namespace("cgpu").await;
    world
        .apply(json!({"apiVersion": "v1", "kind": "ServiceAccount",
            "metadata": {"namespace": "cgpu", "name": "stranger"}}))
        .await;
    let stranger = world.token_of("stranger", None).await;
    for (token, said) in [
        (
            &*stranger,
            "\"system:serviceaccount:cgpu:stranger\" cannot list resource \"resourceslices\"",
        ),
        ("nobody", "Unauthorized"),
    ] {
        let slices: Api<ResourceSlice> = Api::all(world.plane.client_of(token));
        refused(slices.list(&ListParams::default()).await, said)?;
    }
    Ok(())
}

/// Of a claim the driver's account can change its own node's devices alone, also where Kubernetes
/// does not see to it.
pub(crate) async fn a_claim_keeps_its_allocation(world: &mut World) -> Outcome {
    let node = world.node("status", 1).await;
    world.node_object("other").await;
    world.namespace("status").await;
    world
        .template("status", "t", json!({"memory": "8Gi"}))
        .await;
    world.pod("status", "one", "t").await;
    limits(&node, 1).await?;
    let claims: Api<ResourceClaim> = world.api("status");
    let name = first_claim(&claims).await?;
    let ready = |claim: &ResourceClaim| condition(claim, "Ready").map(|_| ());
    until(&claims, &name, "status.devices", ready).await?;
    let before_1_36 = "DRAResourceClaimGranularStatusAuthorization=false";
    let at = world.plane.second_apiserver(before_1_36).await;
    let by = PatchParams {
        dry_run: true,
        ..PatchParams::default()
    };
    let none = json!({"status": {"devices": null}});
    let all = json!({"status": {"devices": null, "allocation": null, "reservedFor": null}});
    let free = json!({"status": {"reservedFor": null}});
    for (node, patch, said) in [
        (Some("status"), &none, None),
        (Some("status"), &all, Some("devices of its own node only")),
        (Some("status"), &free, Some("devices of its own node only")),
        (Some("other"), &none, Some("claims on its own node only")),
        (None, &none, Some(NO_NODE)),
    ] {
        let token = match node {
            Some(node) => world.token(node).await,
            None => world.token_of("cgpu-dra", None).await,
        };
        let claims: Api<ResourceClaim> = Api::namespaced(client(at, &token), "status");
        let done = claims.patch_status(&name, &by, &Patch::Merge(patch)).await;
        let done = match said {
            Some(said) => refused(done, said),
            None => done.map(|_| ()).map_err(|e| e.to_string()),
        };
        done.map_err(|why| format!("{node:?}, {patch}: {why}"))?;
    }
    world.delete("status", "one").await;
    world.gone("status").await
}

/// A user of a namespace cannot take a claim from a pod that runs, and so neither from a quota nor
/// from the scheduler. The normal way goes on: the claim goes with its pod.
pub(crate) async fn a_user_keeps_a_claim_in_use(world: &mut World) -> Outcome {
    let node = world.node("kept", 1).await;
    world.namespace("kept").await;
    world.template("kept", "t", json!({"memory": "8Gi"})).await;
    for pod in ["one", "two"] {
        world.pod("kept", pod, "t").await;
    }
    let before = limits(&node, 2).await?;
    let user = editor(world, "kept").await?;
    let (claims, by) = (world.api::<ResourceClaim>("kept"), PatchParams::default());
    let name = first_claim(&claims).await?;
    // The rest of the metadata stays the user's.
    let other = json!({"metadata": {"labels": {"a": "b"}, "finalizers":
        ["example.com/own", FINALIZER]}});
    let done = user.patch(&name, &by, &Patch::Merge(other)).await;
    done.map_err(|e| e.to_string())?;
    for left in [json!(null), json!(["example.com/own"])] {
        let patch = Patch::Merge(json!({"metadata": {"finalizers": left}}));
        refused(
            user.patch(&name, &by, &patch).await,
            "delete the pods that use it",
        )?;
    }
    // A claim that is being deleted waits for its pod.
    let deleted = user.delete(&name, &DeleteParams::default()).await;
    deleted.map_err(|e| e.to_string())?;
    let patch = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    refused(
        user.patch(&name, &by, &patch).await,
        "delete the pods that use it",
    )?;
    must(claims.get(&name).await.is_ok(), "the claim is gone")?;
    must(node.fake.limits() == before, node.fake.limits())?;
    // The scheduler does so to a claim that it takes back, and has the right to write the status.
    let dry = by.clone().dry_run();
    let done = claims.patch(&name, &dry, &patch).await;
    done.map_err(|e| e.to_string())?;
    let own = Patch::Merge(json!({"metadata": {"finalizers": [FINALIZER]}}));
    let done = user.patch(&name, &by, &own).await;
    done.map_err(|e| e.to_string())?;
    for pod in ["one", "two"] {
        world.delete("kept", pod).await;
    }
    world.gone("kept").await?;
    limits(&node, 0).await?;
    // One without an allocation is the user's own.
    let idle = json!({"metadata": {"name": "idle", "finalizers": [FINALIZER]},
        "spec": {"devices": {"requests": [shape(json!({"memory": "8Gi"}))]}}});
    let idle = serde_json::from_value(idle).map_err(|e| e.to_string())?;
    let made = user.create(&PostParams::default(), &idle).await;
    made.map_err(|e| e.to_string())?;
    let done = user.patch("idle", &by, &patch).await;
    done.map_err(|e| e.to_string())?;
    let deleted = user.delete("idle", &DeleteParams::default()).await;
    deleted.map_err(|e| e.to_string())?;
    world.gone("kept").await
}

/// The claims of a namespace, by an account with the role `edit` there.
async fn editor(world: &World, namespace: &str) -> Result<Api<ResourceClaim>, String> {
    for object in [
        json!({"apiVersion": "v1", "kind": "ServiceAccount",
            "metadata": {"namespace": "cgpu", "name": "editor"}}),
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
            "metadata": {"namespace": namespace, "name": "editor"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole",
                "name": "edit"},
            "subjects": [{"kind": "ServiceAccount", "namespace": "cgpu", "name": "editor"}]}),
    ] {
        world.apply(object).await;
    }
    let token = world.token_of("editor", None).await;
    let claims = Api::namespaced(world.plane.client_of(&token), namespace);
    // The rights of an account follow a moment later.
    wait("the editor's right", || async {
        let listed = claims.list(&ListParams::default()).await;
        listed.ok().map(|_| ())
    })
    .await?;
    Ok(claims)
}

/// The figures are for users of the cluster with the right to get them.
pub(crate) async fn the_figures_take_a_login(world: &mut World) -> Outcome {
    let mut node = world.node("figures", 1).await;
    node.halt().await;
    let port = port();
    node.metrics = Some(([127, 0, 0, 1], port).into());
    node.start().await;
    let accounts = ["reader", "stranger"];
    for account in accounts {
        world
            .apply(json!({"apiVersion": "v1", "kind": "ServiceAccount",
                "metadata": {"namespace": "cgpu", "name": account}}))
            .await;
    }
    world
        .apply(
            json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
            "metadata": {"name": "reader"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole",
                "name": "cgpu-metrics-reader"},
            "subjects": [{"kind": "ServiceAccount", "namespace": "cgpu", "name": "reader"}]}),
        )
        .await;
    let get = async |token: &str, path: &str| {
        let asked = http::Request::get(path).body(vec![]).expect("a request");
        client(port, token).request_text(asked).await
    };
    let reader = world.token_of("reader", None).await;
    // The rights of an account follow a moment later.
    wait("the reader's right", || async {
        let read = get(&reader, "/metrics").await;
        read.ok()
            .filter(|text| text.contains("\ncgpu_dra_claims{} 0\n"))
    })
    .await?;
    let stranger = world.token_of("stranger", None).await;
    for (token, path, said) in [
        (&*reader, "/", "the figures are at /metrics"),
        ("nobody", "/metrics", "does not know this token"),
        (
            &*stranger,
            "/metrics",
            "system:serviceaccount:cgpu:stranger may not get /metrics",
        ),
    ] {
        refused(get(token, path).await, said)?;
    }
    let bare = [
        ("http", "the figures need no TLS"),
        ("https", "the figures need no token"),
    ];
    for (scheme, why) in bare {
        let at = format!("{scheme}://127.0.0.1:{port}").parse();
        let mut config = kube::Config::new(at.map_err(|e| format!("{e}"))?);
        config.accept_invalid_certs = true;
        let client = kube::Client::try_from(config).map_err(|e| e.to_string())?;
        let asked = http::Request::get("/metrics")
            .body(vec![])
            .expect("a request");
        let read = client.request_text(asked).await;
        must(read.is_err(), (why, &read))?;
    }
    Ok(())
}
