// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The admission webhook: it has the apiserver refuse opaque parameters that nobody would
//! understand later, and turns the resource names of other systems into claims ([`compat`]).

use crate::{
    apiserver::sentence,
    asked::{AskedOwner, AskedPod},
    compat::{self, Template},
    config::GpuConfig,
    names::{is_object, DRIVER},
    web,
};
use cgpu_uapi::Priority;
use http::{Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Bytes;
use k8s_openapi::{
    api::{
        core::v1::{Event, ObjectReference},
        resource::v1::ResourceClaimTemplate,
    },
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time},
    jiff::Timestamp,
};
use kube::{api::PostParams, Api, Client};
use serde::{de::DeserializeOwned, Deserialize};
use serde_json::{json, Value};
use std::sync::Arc;

/// How much of a message an event may have.
const LONGEST_EVENT: usize = 1000;
const JSON: &str = "application/json";
/// Longest review, bytes. A client sends 3 MiB at most, of which the apiserver keeps 1.5 MiB, and a
/// review may have an object as it was and as it is to be.
pub const LONGEST_REVIEW: usize = 4 << 20;

/// The parts of a review that the webhook needs. The rest is passed over while it is read.
#[derive(Deserialize)]
struct Review<T> {
    request: ReviewRequest<T>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ReviewRequest<T> {
    uid: String,
    #[serde(default)]
    namespace: String,
    #[serde(default)]
    dry_run: bool,
    object: T,
}

/// A class, a claim or a template of claims, or what stands below `spec` or `devices` in one.
#[derive(Default, Deserialize)]
#[serde(default)]
pub struct Configured {
    config: Option<Vec<Configuration>>,
    devices: Option<Box<Configured>>,
    spec: Option<Box<Configured>>,
}

#[derive(Deserialize)]
struct Configuration {
    opaque: Option<OpaqueParameters>,
}

#[derive(Deserialize)]
struct OpaqueParameters {
    driver: String,
    #[serde(default)]
    parameters: Value,
}

/// The webhook.
pub struct Webhook {
    /// The apiserver, for templates and events.
    pub client: Client,
    /// The highest priority that a converted pod can have.
    pub highest: Priority,
    /// The first part of the path of reviews. It is secret: nothing else tells the apiserver from
    /// any pod that reaches this port.
    pub path: String,
}

/// The answer to a review.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// Why not, a sentence.
    pub refused: Option<String>,
    /// A JSON patch.
    pub patch: Vec<Value>,
    /// Warnings for the client to show.
    pub warnings: Vec<String>,
}

impl Verdict {
    fn refused(why: impl ToString) -> Self {
        Self {
            refused: Some(why.to_string()),
            ..Self::default()
        }
    }

    /// The answer's object.
    pub fn review(&self, uid: &str) -> Value {
        let mut response = json!({"uid": uid, "allowed": self.refused.is_none()});
        if let Some(why) = &self.refused {
            response["status"] = json!({"code": 403, "message": why});
        }
        if !self.patch.is_empty() {
            let text = serde_json::to_vec(&self.patch).unwrap_or_default();
            response["patchType"] = json!("JSONPatch");
            response["patch"] = json!(k8s_openapi::ByteString(text));
        }
        if !self.warnings.is_empty() {
            response["warnings"] = json!(self.warnings);
        }
        json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
            "response": response})
    }
}

/// Judges the parameters of a class, a claim or a template of claims.
pub fn judge(object: &Configured) -> Verdict {
    for config in object.config.iter().flatten() {
        let Some(opaque) = config.opaque.as_ref().filter(|o| o.driver == DRIVER) else {
            continue;
        };
        if let Err(error) = GpuConfig::parse(&opaque.parameters) {
            return Verdict::refused(error);
        }
    }
    let below = [&object.spec, &object.devices];
    let mut judged = below.into_iter().flatten().map(|object| judge(object));
    let refused = judged.find(|verdict| verdict.refused.is_some());
    refused.unwrap_or_default()
}

/// Reads a review.
fn read<T: DeserializeOwned>(body: &[u8]) -> Option<ReviewRequest<T>> {
    let review: Result<Review<T>, _> = serde_json::from_slice(body);
    Some(review.ok()?.request)
}

/// Whether two texts are the same, in a time that does not tell where they differ.
fn is_same(a: &str, b: &str) -> bool {
    let differ = a
        .bytes()
        .zip(b.bytes())
        .fold(0, |all, (a, b)| all | (a ^ b));
    a.len() == b.len() && differ == 0
}

impl Webhook {
    /// The part of a path below the secret one.
    fn below<'a>(&self, path: &'a str) -> Option<&'a str> {
        let (first, rest) = path.strip_prefix('/')?.split_once('/')?;
        is_same(first, &self.path).then_some(rest)
    }

    /// Answers a request of the apiserver.
    pub async fn answer(self: Arc<Self>, request: Request<Bytes>) -> Response<Full<Bytes>> {
        let plain = |status, text: &str| web::response(status, "text/plain", format!("{text}\n"));
        let body = request.body();
        let path = request.uri().path();
        if path == "/healthz" {
            return plain(StatusCode::OK, "ok");
        }
        let answer = match (request.method(), self.below(path)) {
            (&Method::POST, Some("pods")) => match read(body) {
                Some(asked) => Some(self.convert(&asked).await.review(&asked.uid)),
                None => None,
            },
            (&Method::POST, Some("parameters")) => {
                read::<Configured>(body).map(|asked| judge(&asked.object).review(&asked.uid))
            }
            _ => {
                return plain(
                    StatusCode::NOT_FOUND,
                    "reviews are sent to the paths of the webhook's configuration",
                )
            }
        };
        match answer {
            Some(answer) => web::response(StatusCode::OK, JSON, answer.to_string()),
            None => plain(StatusCode::BAD_REQUEST, "this is no AdmissionReview"),
        }
    }

    /// Turns a pod's resources into claims.
    async fn convert(&self, request: &ReviewRequest<AskedPod>) -> Verdict {
        let pod = &request.object;
        let conversion = match compat::convert(pod, self.highest) {
            Ok(Some(conversion)) => conversion,
            Ok(None) => return Verdict::default(),
            Err(error) => return Verdict::refused(error),
        };
        let namespace = &request.namespace;
        if !is_object(namespace) {
            return Verdict::refused("the pod's namespace cannot be one");
        }
        if !request.dry_run {
            for template in &conversion.templates {
                if let Err(why) = self.provide(namespace, template).await {
                    return Verdict::refused(why);
                }
            }
            if !conversion.notes.is_empty() {
                self.tell(namespace, pod, &conversion.notes.join("; "))
                    .await;
            }
        }
        Verdict {
            refused: None,
            patch: conversion.patch,
            warnings: conversion.notes,
        }
    }

    /// Has a template be there. Its name says what is in it; one that was made otherwise is not
    /// used.
    async fn provide(&self, namespace: &str, template: &Template) -> Result<(), String> {
        let templates: Api<ResourceClaimTemplate> = Api::namespaced(self.client.clone(), namespace);
        let name = &template.name;
        let wanted = json!({"metadata": {"name": name, "labels":
            {"app.kubernetes.io/managed-by": "cgpu-dra"}}, "spec": template.spec});
        let wanted: ResourceClaimTemplate =
            serde_json::from_value(wanted).map_err(|e| e.to_string())?;
        let failed = |e: kube::Error| {
            let why = sentence(&e);
            format!("cannot make the ResourceClaimTemplate {namespace}/{name}: {why}")
        };
        match templates.create(&PostParams::default(), &wanted).await {
            Ok(_) => return Ok(()),
            Err(kube::Error::Api(status)) if status.code == 409 => {}
            Err(error) => return Err(failed(error)),
        }
        let found = templates.get(name).await.map_err(failed)?;
        if asks_the_same(&found, &wanted) {
            return Ok(());
        }
        Err(format!(
            "the ResourceClaimTemplate {namespace}/{name} is another one than the name says; \
             delete it, and it is made again"
        ))
    }

    /// Says in an event what of a pod is not kept. A pod that has no name yet has an owner.
    async fn tell(&self, namespace: &str, pod: &AskedPod, what: &str) {
        let about = match (&pod.metadata.name, &pod.metadata.owner_references) {
            (Some(name), _) => ObjectReference {
                api_version: Some("v1".to_owned()),
                kind: Some("Pod".to_owned()),
                name: Some(name.clone()),
                ..ObjectReference::default()
            },
            (None, Some(owner)) => reference(owner),
            // Its creator reads the warning.
            (None, None) => return,
        };
        let now = Time(Timestamp::now());
        let event = Event {
            metadata: ObjectMeta {
                generate_name: Some("cgpu-".to_owned()),
                ..ObjectMeta::default()
            },
            involved_object: ObjectReference {
                namespace: Some(namespace.to_owned()),
                ..about
            },
            type_: Some("Warning".to_owned()),
            reason: Some("NotKept".to_owned()),
            message: Some(what.chars().take(LONGEST_EVENT).collect()),
            first_timestamp: Some(now.clone()),
            last_timestamp: Some(now),
            count: Some(1),
            ..Event::default()
        };
        let events: Api<Event> = Api::namespaced(self.client.clone(), namespace);
        if let Err(error) = events.create(&PostParams::default(), &event).await {
            eprintln!("cgpu-dra: cannot write an event: {}", sentence(&error));
        }
    }
}

fn reference(owner: &AskedOwner) -> ObjectReference {
    let owner = owner.clone();
    ObjectReference {
        api_version: owner.api_version,
        kind: owner.kind,
        name: owner.name,
        uid: owner.uid,
        ..ObjectReference::default()
    }
}

/// Whether two templates ask for the same. The apiserver adds defaults to what it keeps.
fn asks_the_same(found: &ResourceClaimTemplate, wanted: &ResourceClaimTemplate) -> bool {
    let plain = |template: &ResourceClaimTemplate| {
        let mut devices = json!(template.spec.spec.devices);
        for request in devices["requests"].as_array_mut().into_iter().flatten() {
            if let Some(exactly) = request["exactly"].as_object_mut() {
                exactly.remove("allocationMode");
            }
        }
        devices
    };
    plain(found) == plain(wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_judged_wherever_they_stand() {
        let config = |driver: &str, priority: &str| {
            json!([{"opaque": {"driver": driver, "parameters": {"apiVersion": "cgpu.io/v1alpha1",
                "kind": "GpuConfig", "priority": priority}}}])
        };
        for place in ["/spec", "/spec/devices", "/spec/spec/devices"] {
            let object = |configs: Value| {
                let parts = place.trim_start_matches('/').split('/').rev();
                parts.fold(
                    json!({"config": configs}),
                    |inner, part| json!({ (part): inner }),
                )
            };
            let object = |configs: Value| {
                serde_json::from_value::<Configured>(object(configs)).expect("read")
            };
            assert_eq!(judge(&object(config(DRIVER, "high"))), Verdict::default());
            assert_eq!(
                judge(&object(config("gpu.nvidia.com", "x"))),
                Verdict::default()
            );
            let refused = judge(&object(config(DRIVER, "x"))).refused;
            assert!(
                refused.is_some_and(|why| why.contains("priority")),
                "{place}"
            );
        }
    }

    #[tokio::test]
    async fn only_the_secret_path_is_answered() {
        // Nobody is there. A review of no pod asks nobody.
        let nowhere = kube::Config::new("http://127.0.0.1:9".parse().expect("a URL"));
        let webhook = Arc::new(Webhook {
            client: Client::try_from(nowhere).expect("a client"),
            highest: Priority::Normal,
            path: "s3cret".to_owned(),
        });
        for (path, status) in [
            ("/healthz", StatusCode::OK),
            ("/s3cret/pods", StatusCode::BAD_REQUEST),
            ("/s3cret/parameters", StatusCode::OK),
            ("/pods", StatusCode::NOT_FOUND),
            ("//pods", StatusCode::NOT_FOUND),
            ("/s3cre/pods", StatusCode::NOT_FOUND),
            ("/s3crets/pods", StatusCode::NOT_FOUND),
            ("/s3creT/parameters", StatusCode::NOT_FOUND),
            ("/s3cret", StatusCode::NOT_FOUND),
            ("/s3cret/pods/", StatusCode::NOT_FOUND),
            ("/parameters", StatusCode::NOT_FOUND),
        ] {
            let review = json!({"request": {"uid": "u", "object": {}}}).to_string();
            let request = Request::post(path).body(review.into());
            let answer = webhook.clone().answer(request.expect("a request")).await;
            assert_eq!(answer.status(), status, "{path}");
        }
    }

    #[test]
    fn a_review_is_read_without_the_rest() {
        let review = json!({"kind": "AdmissionReview", "request": {"uid": "u", "namespace": "n",
            "operation": "CREATE", "dryRun": true, "object": {"kind": "Pod", "metadata":
            {"generateName": "p-", "ownerReferences": [{"kind": "Job", "name": "j"}, {}]},
            "spec": {"containers": []}}}});
        let read = read::<AskedPod>(review.to_string().as_bytes()).expect("a review");
        assert_eq!(
            (&*read.uid, &*read.namespace, read.dry_run),
            ("u", "n", true)
        );
        let owner = read.object.metadata.owner_references.expect("an owner");
        assert_eq!(reference(&owner).name.as_deref(), Some("j"));
        assert!(super::read::<AskedPod>(b"{}").is_none());
    }

    #[test]
    fn a_review_carries_uid_patch_and_warnings() {
        let verdict = Verdict {
            patch: vec![json!({"op": "add"})],
            warnings: vec!["w".to_owned()],
            refused: None,
        };
        let review = verdict.review("u");
        assert_eq!(review["response"]["uid"], "u");
        assert_eq!(review["response"]["allowed"], true);
        assert_eq!(review["response"]["patch"], "W3sib3AiOiJhZGQifV0=");
        let refused = Verdict::refused("no").review("u");
        assert_eq!(refused["response"]["allowed"], false);
        assert_eq!(refused["response"]["status"]["message"], "no");
    }
}
