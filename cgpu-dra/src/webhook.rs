// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The admission webhook: it has the apiserver refuse opaque parameters that nobody would
//! understand later, and turns the resource names of other systems into claims ([`compat`]).

use crate::{
    apiserver::sentence,
    asked::AskedPod,
    compat::{self, Template},
    config::GpuConfig,
    names::{is_object, DRIVER},
    web,
};
use cgpu_uapi::Priority;
use http::{request::Parts, Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Bytes;
use k8s_openapi::api::resource::v1::ResourceClaimTemplate;
use kube::{
    api::{ListParams, PostParams},
    Api, Client,
};
use serde::{de::DeserializeOwned, Deserialize};
use serde_json::{json, Value};
use std::sync::Arc;

/// The label of the templates that this program makes, and its value.
const MADE_BY: [&str; 2] = ["app.kubernetes.io/managed-by", "cgpu-dra"];
/// Most such templates in a namespace. Whoever creates pods can have many made, and so can whoever
/// knows the secret path, in any namespace.
const MOST_TEMPLATES: u8 = 100;
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
    /// The apiserver, for templates.
    pub client: Client,
    /// The highest priority that a converted pod can have.
    pub highest: Priority,
    /// The first part of the path of reviews. It is secret: nothing else tells the apiserver from
    /// any pod that reaches this port. Whoever knows it can have templates made, and nothing else.
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

    /// How long the body of a request may be. One to another path is not read: long ones take some
    /// of the few places for such.
    pub fn longest(&self, head: &Parts) -> Option<usize> {
        let is_review = head.method == Method::POST && self.below(head.uri.path()).is_some();
        is_review.then_some(LONGEST_REVIEW)
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
        let (name, [label, own]) = (&template.name, MADE_BY);
        let wanted = json!({"metadata": {"name": name, "labels": {label: own}},
            "spec": template.spec});
        let wanted: ResourceClaimTemplate =
            serde_json::from_value(wanted).map_err(|e| e.to_string())?;
        let failed = |e: kube::Error| {
            let why = sentence(&e);
            format!("cannot make the ResourceClaimTemplate {namespace}/{name}: {why}")
        };
        let mut found = templates.get_opt(name).await.map_err(failed)?;
        if found.is_none() {
            let all = ListParams::default().labels(&format!("{label}={own}"));
            let all = templates
                .list_metadata(&all.limit(MOST_TEMPLATES.into()))
                .await;
            if all.map_err(failed)?.items.len() >= MOST_TEMPLATES.into() {
                return Err(format!(
                    "the namespace {namespace} has {MOST_TEMPLATES} ResourceClaimTemplates of \
                     other sizes with the label {label}: {own}; delete those that no pod uses"
                ));
            }
            match templates.create(&PostParams::default(), &wanted).await {
                Ok(_) => return Ok(()),
                // Another review was faster.
                Err(kube::Error::Api(status)) if status.code == 409 => {}
                Err(error) => return Err(failed(error)),
            }
            found = templates.get_opt(name).await.map_err(failed)?;
        }
        match found {
            Some(found) if asks_the_same(&found, &wanted) => Ok(()),
            _ => Err(format!(
                "the ResourceClaimTemplate {namespace}/{name} is another one than the name says; \
                 delete it, and it is made again"
            )),
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
    use std::{collections::BTreeMap, sync::Mutex};
    use tokio::net::TcpListener;

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
            let request = Request::post(path).body(review.into()).expect("a request");
            let (head, body): (_, Bytes) = request.into_parts();
            // What is long is not read for nothing.
            let is_read = webhook.longest(&head) == Some(LONGEST_REVIEW);
            assert_eq!(is_read, path.starts_with("/s3cret/"), "{path}");
            let request = Request::from_parts(head, body);
            let answer = webhook.clone().answer(request).await;
            assert_eq!(answer.status(), status, "{path}");
        }
    }

    /// An apiserver that keeps templates, and has nothing else.
    async fn apiserver() -> (Client, Arc<Mutex<BTreeMap<String, Value>>>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("bound");
        let at = format!("http://{}", listener.local_addr().expect("bound"));
        let kept: Arc<Mutex<BTreeMap<String, Value>>> = Arc::default();
        let all = kept.clone();
        let answer = move |request: Request<Bytes>| {
            let mut all = all.lock().expect("held");
            let path = request.uri().path();
            let (of_all, name) = path
                .split_once("/resourceclaimtemplates")
                .expect("templates");
            assert_eq!(of_all, "/apis/resource.k8s.io/v1/namespaces/team-a");
            let found = match (request.method(), name.strip_prefix('/')) {
                (&Method::GET, Some(name)) => all.get(name).cloned(),
                (&Method::GET, None) => {
                    let query = request.uri().query().unwrap_or_default();
                    assert!(query.contains("managed-by%3Dcgpu-dra"), "{query}");
                    let items: Vec<_> = all.values().collect();
                    Some(json!({"metadata": {}, "items": items}))
                }
                (_, _) => {
                    let made: Value = serde_json::from_slice(request.body()).expect("JSON");
                    let name = made["metadata"]["name"].as_str().expect("a name");
                    all.insert(name.to_owned(), made.clone());
                    Some(made)
                }
            };
            let status = match found {
                Some(_) => StatusCode::OK,
                None => StatusCode::NOT_FOUND,
            };
            let missing = json!({"status": "Failure", "reason": "NotFound", "code": 404});
            let text = found.unwrap_or(missing).to_string();
            std::future::ready(web::response(status, JSON, text))
        };
        let longest = |_: &Parts| Some(LONGEST_REVIEW);
        tokio::spawn(web::serve(listener, None, longest, answer));
        let config = kube::Config::new(at.parse().expect("a URL"));
        (Client::try_from(config).expect("a client"), kept)
    }

    #[tokio::test]
    async fn a_namespace_has_a_hundred_templates() {
        let (client, kept) = apiserver().await;
        let webhook = Webhook {
            client,
            highest: Priority::Normal,
            path: "s3cret".to_owned(),
        };
        let convert = async |mib: u32, dry_run: bool| {
            let limits = json!({"nvidia.com/gpumem": mib});
            let pod = json!({"metadata": {}, "spec": {"containers": [
                {"name": "main", "resources": {"limits": limits}}]}});
            let request = ReviewRequest {
                uid: "u".to_owned(),
                namespace: "team-a".to_owned(),
                dry_run,
                object: serde_json::from_value(pod).expect("a pod"),
            };
            webhook.convert(&request).await.refused
        };
        let count = || kept.lock().expect("held").len();
        assert_eq!((convert(512, true).await, count()), (None, 0));
        for mib in 1..=100 {
            assert_eq!(convert(mib, false).await, None);
        }
        let refused = convert(101, false).await.expect("refused");
        assert!(
            refused.contains("delete those that no pod uses"),
            "{refused}"
        );
        // The others are of use as before.
        assert_eq!((convert(7, false).await, count()), (None, 100));
        let odd = json!({"metadata": {"name": "cgpu-7m-x1"}, "spec": {"spec": {}}});
        kept.lock()
            .expect("held")
            .insert("cgpu-7m-x1".to_owned(), odd);
        let refused = convert(7, false).await.expect("refused");
        assert!(
            refused.contains("another one than the name says"),
            "{refused}"
        );
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
