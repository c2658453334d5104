// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The admission webhook: it has the apiserver refuse opaque parameters that nobody would
//! understand later, and turns the resource names of other systems into claims ([`compat`]).

use crate::{
    apiserver::sentence,
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
use serde_json::{json, Value};
use std::sync::Arc;

/// How much of a message an event may have.
const LONGEST_EVENT: usize = 1000;
const JSON: &str = "application/json";

/// The webhook.
pub struct Webhook {
    /// The apiserver, for templates and events.
    pub client: Client,
    /// The highest priority that a converted pod can have.
    pub highest: Priority,
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
    pub fn review(&self, uid: &Value) -> Value {
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
pub fn judge(object: &Value) -> Verdict {
    let places = [
        "/spec/config",
        "/spec/devices/config",
        "/spec/spec/devices/config",
    ];
    let configs = places
        .iter()
        .filter_map(|at| object.pointer(at)?.as_array());
    for config in configs.flatten() {
        let opaque = &config["opaque"];
        if opaque["driver"] != DRIVER {
            continue;
        }
        if let Err(error) = GpuConfig::parse(&opaque["parameters"]) {
            return Verdict::refused(error);
        }
    }
    Verdict::default()
}

impl Webhook {
    /// Answers a request of the apiserver.
    pub async fn answer(self: Arc<Self>, request: Request<Bytes>) -> Response<Full<Bytes>> {
        let plain = |status, text: &str| web::response(status, "text/plain", format!("{text}\n"));
        let path = request.uri().path().to_owned();
        if path == "/healthz" {
            return plain(StatusCode::OK, "ok");
        }
        if request.method() != Method::POST || !["/pods", "/parameters"].contains(&path.as_str()) {
            return plain(
                StatusCode::NOT_FOUND,
                "reviews are sent to /pods and /parameters",
            );
        }
        let read: Result<Value, _> = serde_json::from_slice(request.body());
        let Some(request) = read
            .ok()
            .and_then(|mut r| r.get_mut("request").map(Value::take))
        else {
            return plain(StatusCode::BAD_REQUEST, "this is no AdmissionReview");
        };
        let verdict = match path.as_str() {
            "/pods" => self.convert(&request).await,
            _ => judge(&request["object"]),
        };
        web::response(
            StatusCode::OK,
            JSON,
            verdict.review(&request["uid"]).to_string(),
        )
    }

    /// Turns a pod's resources into claims.
    async fn convert(&self, request: &Value) -> Verdict {
        let pod = &request["object"];
        let conversion = match compat::convert(pod, self.highest) {
            Ok(Some(conversion)) => conversion,
            Ok(None) => return Verdict::default(),
            Err(error) => return Verdict::refused(error),
        };
        let namespace = request["namespace"].as_str().unwrap_or_default();
        if !is_object(namespace) {
            return Verdict::refused("the pod's namespace cannot be one");
        }
        if request["dryRun"] != true {
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
    async fn tell(&self, namespace: &str, pod: &Value, what: &str) {
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let owner = &pod["metadata"]["ownerReferences"][0];
        let name = text(&pod["metadata"]["name"]);
        let about = match &name {
            Some(_) => ObjectReference {
                api_version: Some("v1".to_owned()),
                kind: Some("Pod".to_owned()),
                name,
                ..ObjectReference::default()
            },
            None if !owner.is_null() => ObjectReference {
                api_version: text(&owner["apiVersion"]),
                kind: text(&owner["kind"]),
                name: text(&owner["name"]),
                uid: text(&owner["uid"]),
                ..ObjectReference::default()
            },
            // Its creator reads the warning.
            None => return,
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

    #[test]
    fn a_review_carries_uid_patch_and_warnings() {
        let verdict = Verdict {
            patch: vec![json!({"op": "add"})],
            warnings: vec!["w".to_owned()],
            refused: None,
        };
        let review = verdict.review(&json!("u"));
        assert_eq!(review["response"]["uid"], "u");
        assert_eq!(review["response"]["allowed"], true);
        assert_eq!(review["response"]["patch"], "W3sib3AiOiJhZGQifV0=");
        let refused = Verdict::refused("no").review(&json!("u"));
        assert_eq!(refused["response"]["allowed"], false);
        assert_eq!(refused["response"]["status"]["message"], "no");
    }
}
