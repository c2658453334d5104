// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The chart's webhook, asked by the real apiserver.

use crate::{
    control_plane::port,
    patience::{must, wait, Outcome},
    world::{chart, shape, World, WorldNode},
};
use cgpu_dra::{config::Allowed, patch::NOT_KEPT, web, webhook::Webhook};
use cgpu_fake::ControlState;
use http::request::Parts;
use k8s_openapi::{
    api::{
        admissionregistration::v1::{
            MutatingWebhookConfiguration, ValidatingAdmissionPolicy,
            ValidatingAdmissionPolicyBinding, ValidatingWebhookConfiguration,
        },
        core::v1::{ConfigMap, Event, Pod},
        resource::v1::{ResourceClaim, ResourceClaimTemplate},
    },
    ByteString,
};
use kube::{
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
    Api,
};
use serde_json::{json, Value};
use std::{path::Path, process::Command, sync::Arc};
use tokio::{net::TcpListener, task::JoinHandle};

const GIB: u64 = 1 << 30;
const SPACE: &str = "foreign";

/// A certificate for this machine that vouches for itself.
fn certificate(folder: &Path) -> Vec<u8> {
    let made = Command::new("openssl")
        .args("req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes".split(' '))
        .args("-days 30 -subj /CN=webhook -addext subjectAltName=IP:127.0.0.1".split(' '))
        .arg("-keyout")
        .arg(folder.join("webhook.key"))
        .arg("-out")
        .arg(folder.join("webhook.crt"))
        .output()
        .expect("openssl");
    assert!(made.status.success(), "{made:?}");
    std::fs::read(folder.join("webhook.crt")).expect("written")
}

/// Serves the webhook with the rights of the chart's account, and has the apiserver ask it. Gives
/// back the secret path as well.
async fn start(world: &World) -> (JoinHandle<()>, String) {
    let folder = world.plane.folder.clone();
    let authority = certificate(&folder);
    let (at, mut secret) = (port(), String::new());
    for mut object in chart(&world.plane.binaries, &["webhook.enabled=true"]) {
        let kind = object["kind"].as_str().unwrap_or_default().to_owned();
        let rights = ["ServiceAccount", "ClusterRole", "ClusterRoleBinding"];
        let name = &object["metadata"]["name"];
        let is_policy = kind.starts_with("ValidatingAdmissionPolicy") && name == "cgpu-pods";
        if is_policy || rights.contains(&kind.as_str()) && name == "cgpu-webhook" {
            world.apply(object).await;
        } else if kind.ends_with("WebhookConfiguration") {
            // The apiserver of the tests reaches no service.
            let hook = &mut object["webhooks"][0];
            let path = hook["clientConfig"]["service"]["path"].as_str();
            let path = path.expect("a path");
            let url = format!("https://127.0.0.1:{at}{path}");
            secret = path.split('/').nth(1).unwrap_or_default().to_owned();
            let trusted = json!(ByteString(authority.clone()));
            hook["clientConfig"] = json!({"url": url, "caBundle": trusted});
            world.apply(object).await;
        }
    }
    let client = world
        .plane
        .client_of(&world.token_of("cgpu-webhook", None).await);
    let tls = web::tls(&folder.join("webhook.crt"), &folder.join("webhook.key")).expect("TLS");
    let listener = TcpListener::bind(("127.0.0.1", at)).await.expect("bound");
    let webhook = Arc::new(Webhook {
        client,
        allowed: Allowed::default(),
        path: secret.clone(),
        events: Arc::default(),
    });
    let asked = webhook.clone();
    let service = web::serve(
        listener,
        Some(tls),
        move |head: &Parts| asked.longest(head),
        move |request| webhook.clone().answer(request),
    );
    (tokio::spawn(service), secret)
}

fn limits(limits: Value) -> Value {
    json!({"containers": [{"name": "main", "image": "cgpu.test/none:1",
        "resources": {"limits": limits}}]})
}

/// Creates a pod once the apiserver asks the webhook, or gives its refusal.
async fn create(world: &World, name: &str, spec: Value, dry: bool) -> Result<Pod, String> {
    let pod = json!({"metadata": {"name": name}, "spec": spec});
    let pod: Pod = serde_json::from_value(pod).expect("a pod");
    let pods: Api<Pod> = world.api(SPACE);
    let how = PostParams {
        dry_run: dry,
        ..PostParams::default()
    };
    pods.create(&how, &pod).await.map_err(|e| e.to_string())
}

/// Pods that ask HAMi for a part of a GPU get a claim of that size, and are told what is lost.
pub(crate) async fn other_systems_names_become_claims(world: &mut World) -> Outcome {
    let node = world.node("foreign", 2).await;
    world.namespace(SPACE).await;
    an_odd_claim_is_there(world).await;
    let (service, secret) = start(world).await;
    // The apiserver reads its webhooks' configurations now and then.
    let asks = || async {
        let dry = create(
            world,
            "dry",
            limits(json!({"nvidia.com/gpumem": 512})),
            true,
        )
        .await;
        dry.ok()?.spec?.resource_claims.map(|_| ())
    };
    wait("the webhook to be asked", asks).await?;
    let templates: Api<ResourceClaimTemplate> = world.api(SPACE);
    let listed = templates.list(&ListParams::default()).await;
    must(
        listed.is_ok_and(|l| l.items.is_empty()),
        "a dry run has made a template",
    )?;
    create(
        world,
        "dry",
        limits(json!({"nvidia.com/gpucores": 7})),
        true,
    )
    .await?;
    let wanted = json!({"nvidia.com/gpu": 2, "nvidia.com/gpumem": 3072, "nvidia.com/gpucores": 30});
    let made = create(world, "hami", limits(wanted), false).await?;
    let said = made.metadata.annotations.unwrap_or_default();
    let said = said.get(NOT_KEPT).map(String::as_str).unwrap_or_default();
    must(said.contains("nvidia.com/gpucores: 30 becomes"), said)?;
    let both = wait("an instance on each GPU", || async {
        Some(node.fake.limits()).filter(|l| l.len() == 2)
    })
    .await?;
    must(both.iter().all(|l| l.2 == 3 * GIB), &both)?;
    let weights: Vec<_> = node
        .fake
        .with(|s| s.instances.iter().map(|i| i.weight).collect());
    must(weights == [30, 30], &weights)?;
    // Such another pod has the same template.
    let wanted = json!({"nvidia.com/gpu": 2, "nvidia.com/gpumem": 3072, "nvidia.com/gpucores": 30});
    create(world, "again", limits(wanted), false).await?;
    let listed = templates.list(&ListParams::default()).await;
    let count = listed.map(|l| l.items.len());
    must(matches!(count, Ok(1)), &count)?;
    let half = json!({"nvidia.com/gpumem-percentage": 50});
    let refused = create(world, "half", limits(half), false).await;
    must(
        refused
            .as_ref()
            .is_err_and(|why| why.contains("a claim asks for bytes")),
        &refused,
    )?;
    let plain = create(world, "plain", limits(json!({"cpu": "1"})), false).await?;
    must(
        plain.spec.is_some_and(|s| s.resource_claims.is_none()),
        "a pod of nobody was changed",
    )?;
    an_event_says_what_is_lost(world).await?;
    each_system_has_its_units(world, &node).await?;
    parameters_are_checked(world).await?;
    let pods: Api<Pod> = world.api(SPACE);
    for name in ["hami", "again", "plain"] {
        let _ = pods.delete(name, &DeleteParams::default()).await;
    }
    service.abort();
    let unanswered = the_policy_refuses(world, &secret).await;
    end(world).await;
    unanswered?;
    world.gone(SPACE).await?;
    must(node.fake.limits().is_empty(), node.fake.limits())
}

/// The events about an object's pods.
async fn told(world: &World, name: &str) -> Option<Vec<Event>> {
    let events: Api<Event> = world.api(SPACE);
    let about = format!("reason=NotKept,involvedObject.name={name}");
    let found = events.list(&ListParams::default().fields(&about)).await;
    Some(found.ok()?.items).filter(|found| !found.is_empty())
}

/// An event is about the template of a pod that has no owner, and about the owner of others, of
/// which many make one event. A dry run makes none.
async fn an_event_says_what_is_lost(world: &World) -> Outcome {
    let both = wait("an event of each pod", || async {
        let found = told(world, "cgpu-3072m-w30-x2").await?;
        Some(found).filter(|found| found.len() == 2)
    })
    .await?;
    let said: Vec<_> = both.iter().filter_map(|e| e.message.as_deref()).collect();
    let of_hami =
        "of the pod hami not all is kept: container main: nvidia.com/gpucores: 30 becomes";
    must(said.iter().any(|said| said.contains(of_hami)), &said)?;
    let templates: Api<ResourceClaimTemplate> = world.api(SPACE);
    let template = templates.get("cgpu-3072m-w30-x2").await;
    let uid = template.map_err(|e| e.to_string())?.metadata.uid;
    let is_about = |event: &Event| event.involved_object.uid == uid && event.count == Some(1);
    must(both.iter().all(is_about), &both)?;
    let owner = json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "owner", "namespace": SPACE}});
    world.apply(owner).await;
    let owners: Api<ConfigMap> = world.api(SPACE);
    let owner = owners.get("owner").await.map_err(|e| e.to_string())?;
    let owner = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "owner",
        "uid": owner.metadata.uid});
    let mut spec = limits(json!({"nvidia.com/gpumem": 512, "nvidia.com/gpucores": 1}));
    spec["schedulerName"] = "hami-scheduler".into();
    let pods: Api<Pod> = world.api(SPACE);
    for _ in 0..10 {
        let pod = json!({"metadata": {"generateName": "owned-", "ownerReferences": [owner]},
            "spec": spec});
        let pod: Pod = serde_json::from_value(pod).expect("a pod");
        let made = pods.create(&PostParams::default(), &pod).await;
        let made = made.map_err(|e| e.to_string())?;
        let name = made.metadata.name.clone().unwrap_or_default();
        // HAMi's scheduler, which is not there, would never place it.
        world.scheduled(SPACE, &name).await?;
        let _ = pods.delete(&name, &DeleteParams::default()).await;
    }
    let one = wait("an event", || told(world, "owner")).await?;
    let said = one[0].message.clone().unwrap_or_default();
    must(said.contains("hami-scheduler is not kept"), &said)?;
    let all = world.api::<Event>(SPACE).list(&ListParams::default()).await;
    let all = all.map_err(|e| e.to_string())?.items;
    let all = all
        .iter()
        .filter(|e| e.reason.as_deref() == Some("NotKept"));
    must(all.count() == 3, "an event too many")?;
    // The account may make them and no more.
    let token = world.token_of("cgpu-webhook", None).await;
    let events: Api<Event> = Api::namespaced(world.plane.client_of(&token), SPACE);
    let listed = events.list(&ListParams::default()).await;
    let refused = listed.map(|_| ()).map_err(|e| e.to_string());
    let is_forbidden = refused.as_ref().is_err_and(|e| e.contains("forbidden"));
    must(is_forbidden, &refused)
}

/// A pod gets what it asks Alibaba Cloud's or Tencent Cloud's system for.
async fn each_system_has_its_units(world: &World, node: &WorldNode) -> Outcome {
    for (name, wanted, gib, weight) in [
        ("aliyun", json!({"aliyun.com/gpu-mem": 5}), 5, 1),
        (
            "tencent",
            json!({"tke.cloud.tencent.com/qgpu-memory": 4, "tke.cloud.tencent.com/qgpu-core": 25}),
            4,
            25,
        ),
    ] {
        create(world, name, limits(wanted), false).await?;
        let made = wait(&format!("the instance of {name}"), || async {
            let of_size = |s: &mut ControlState| {
                let mut all = s.instances.iter();
                all.find(|i| i.memory_limit_bytes == gib * GIB)
                    .map(|i| i.weight)
            };
            node.fake.with(of_size)
        })
        .await?;
        must(made == weight, (name, made))?;
        world.delete(SPACE, name).await;
    }
    Ok(())
}

/// A claim with a parameter.
fn claim(name: &str, field: &str, value: &Value) -> ResourceClaim {
    let parameters = json!({"apiVersion": "cgpu.io/v1alpha1", "kind": "GpuConfig",
        field: value});
    let opaque = json!({"driver": "gpu.cgpu.io", "parameters": parameters});
    let devices = json!({"requests": [shape(json!({}))], "config": [{"opaque": opaque}]});
    ResourceClaim {
        metadata: serde_json::from_value(json!({"name": name})).expect("metadata"),
        spec: serde_json::from_value(json!({"devices": devices})).expect("a spec"),
        status: None,
    }
}

/// Before the webhook is there, somebody makes a claim that it would refuse.
async fn an_odd_claim_is_there(world: &World) {
    let mut odd = claim("before", "priority", &json!("highest"));
    odd.metadata.finalizers = Some(vec!["cgpu.test/held".to_owned()]);
    let claims: Api<ResourceClaim> = world.api(SPACE);
    let made = claims.create(&PostParams::default(), &odd).await;
    made.expect("made");
}

/// A claim whose parameters nobody would understand is not taken; one that is there can go.
async fn parameters_are_checked(world: &World) -> Outcome {
    let claims: Api<ResourceClaim> = world.api(SPACE);
    let dry = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    for (field, value, said) in [
        ("priority", json!("highest"), "normal, high"),
        (
            "priority",
            json!("high"),
            "a high priority, which its DeviceClass does not allow",
        ),
        ("burstMs", json!(500), "a burst of 500 ms, above 200 ms"),
    ] {
        let refused = claims.create(&dry, &claim("odd", field, &value)).await;
        let refused = refused.map(|_| ()).map_err(|e| e.to_string());
        let is_said = refused.as_ref().is_err_and(|why| why.contains(said));
        must(is_said, &refused)?;
    }
    let taken = claims
        .create(&dry, &claim("odd", "burstMs", &json!(200)))
        .await;
    must(taken.is_ok(), taken)?;
    let deleted = claims.delete("before", &DeleteParams::default()).await;
    must(deleted.is_ok(), deleted)?;
    let free = json!({"metadata": {"finalizers": null}});
    let by = PatchParams::default();
    let freed = claims.patch("before", &by, &Patch::Merge(free)).await;
    must(freed.is_ok(), freed)
}

/// Without the webhook such a pod is refused, in words that do not have the secret path in them.
async fn the_policy_refuses(world: &World, secret: &str) -> Outcome {
    let refusal = || async {
        let part = limits(json!({"nvidia.com/gpumem": 512}));
        let refused = create(world, "unanswered", part, true).await.err()?;
        Some(refused)
    };
    let why = wait("a refusal without the webhook", refusal).await?;
    must(why.contains("cgpu's webhook does not answer"), &why)?;
    must(secret.len() == 40 && !why.contains(secret), &why)?;
    let plain = create(world, "no-part", limits(json!({"cpu": "1"})), true).await;
    must(plain.is_ok(), plain)
}

async fn end(world: &World) {
    let none = DeleteParams::default();
    let policies: Api<ValidatingAdmissionPolicy> = Api::all(world.client.clone());
    let _ = policies.delete("cgpu-pods", &none).await;
    let bindings: Api<ValidatingAdmissionPolicyBinding> = Api::all(world.client.clone());
    let _ = bindings.delete("cgpu-pods", &none).await;
    let mutating: Api<MutatingWebhookConfiguration> = Api::all(world.client.clone());
    let _ = mutating.delete("cgpu-pods", &none).await;
    let validating: Api<ValidatingWebhookConfiguration> = Api::all(world.client.clone());
    let _ = validating.delete("cgpu-parameters", &none).await;
}
