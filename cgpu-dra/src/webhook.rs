// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The admission webhook: it has the apiserver refuse opaque parameters that nobody would
//! understand later, and turns the resource names of other systems into claims ([`compat`]).

use crate::{
    apiserver::sentence,
    asked::AskedPod,
    compat,
    config::{Allowed, GpuConfig},
    events::Events,
    names::is_object,
    parameters::{of_class, Configured},
    templates::Template,
    web,
};
use http::{request::Parts, Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Bytes;
use k8s_openapi::api::resource::v1::{DeviceClass, ResourceClaimTemplate};
use kube::{
    api::{ListParams, PostParams},
    Api, Client,
};
use serde::{de::DeserializeOwned, Deserialize};
use serde_json::{json, Value};
use std::{collections::BTreeMap, sync::Arc};

/// The label of the templates that this program makes, and its value.
const MADE_BY: [&str; 2] = ["app.kubernetes.io/managed-by", "cgpu-dra"];
/// Most such templates in a namespace. Whoever creates pods can have many made, and so can whoever
/// knows the secret path, in any namespace.
const MOST_TEMPLATES: u8 = 100;
/// Most classes that are looked at for one review. A claim has at most 32 requests.
const MOST_CLASSES: usize = 32;
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

/// The webhook.
pub struct Webhook {
    /// The apiserver, for templates and classes.
    pub client: Client,
    /// The most that claims may ask for without their class's word.
    pub allowed: Allowed,
    /// The first part of the path of reviews. It is secret: nothing else tells the apiserver from
    /// any pod that reaches this port. Whoever knows it can have templates and events made.
    pub path: String,
    /// The events about wishes that are not kept.
    pub events: Arc<Events>,
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
            (&Method::POST, Some("parameters")) => match read(body) {
                Some(asked) => Some(self.judge(&asked.object).await.review(&asked.uid)),
                None => None,
            },
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

    /// Judges the parameters of a class, a claim or a template of claims.
    async fn judge(&self, object: &Configured) -> Verdict {
        let asked = match object.asked() {
            Ok(asked) => asked,
            Err(error) => return Verdict::refused(error),
        };
        let classes: Api<DeviceClass> = Api::all(self.client.clone());
        let mut known: BTreeMap<String, Option<GpuConfig>> = BTreeMap::new();
        for (class, asked) in asked {
            if !known.contains_key(&class) {
                if known.len() == MOST_CLASSES || !is_object(&class) {
                    continue;
                }
                let found = classes.get_opt(&class).await.ok().flatten();
                known.insert(class.clone(), found.and_then(|found| of_class(&found)));
            }
            // One that cannot be known now is known when a pod starts.
            let Some(Some(class)) = known.get(&class) else {
                continue;
            };
            if let Err(error) = class.asked_by(asked, self.allowed) {
                return Verdict::refused(error);
            }
        }
        Verdict::default()
    }

    /// Turns a pod's resources into claims.
    async fn convert(&self, request: &ReviewRequest<AskedPod>) -> Verdict {
        let pod = &request.object;
        let conversion = match compat::convert(pod, self.allowed.priority) {
            Ok(Some(conversion)) => conversion,
            Ok(None) => return Verdict::default(),
            Err(error) => return Verdict::refused(error),
        };
        let namespace = &request.namespace;
        if !is_object(namespace) {
            return Verdict::refused("the pod's namespace cannot be one");
        }
        if !request.dry_run {
            let mut made = None;
            for template in &conversion.templates {
                match self.provide(namespace, template).await {
                    Ok(there) => made = Some(there),
                    Err(why) => return Verdict::refused(why),
                }
            }
            if let Some(made) = made.filter(|_| !conversion.notes.is_empty()) {
                self.events.tell(
                    &self.client,
                    namespace,
                    &pod.metadata,
                    &made,
                    &conversion.notes,
                );
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
    async fn provide(
        &self,
        namespace: &str,
        template: &Template,
    ) -> Result<ResourceClaimTemplate, String> {
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
                Ok(made) => return Ok(made),
                // Another review was faster.
                Err(kube::Error::Api(status)) if status.code == 409 => {}
                Err(error) => return Err(failed(error)),
            }
            found = templates.get_opt(name).await.map_err(failed)?;
        }
        match found {
            Some(found) if asks_the_same(&found, &wanted) => Ok(found),
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
    use crate::names::DRIVER;
    use std::{
        future::{ready, Ready},
        sync::Mutex,
    };
    use tokio::net::TcpListener;

    #[tokio::test]
    async fn only_the_secret_path_is_answered() {
        // Nobody is there. A review of no pod asks nobody.
        let nowhere = kube::Config::new("http://127.0.0.1:9".parse().expect("a URL"));
        let webhook = Arc::new(Webhook {
            client: Client::try_from(nowhere).expect("a client"),
            allowed: Allowed::default(),
            path: "s3cret".to_owned(),
            events: Arc::default(),
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
            // A long body is read on a path that is answered, and on no other.
            let is_read = webhook.longest(&head) == Some(LONGEST_REVIEW);
            assert_eq!(is_read, path.starts_with("/s3cret/"), "{path}");
            let request = Request::from_parts(head, body);
            let answer = webhook.clone().answer(request).await;
            assert_eq!(answer.status(), status, "{path}");
        }
    }

    /// Parameters with these fields.
    fn parameters(mut fields: Value) -> Value {
        fields["apiVersion"] = "cgpu.io/v1alpha1".into();
        fields["kind"] = "GpuConfig".into();
        fields
    }

    /// The answer of an apiserver that has found this.
    fn answered(found: Option<Value>) -> Ready<Response<Full<Bytes>>> {
        let status = match found {
            Some(_) => StatusCode::OK,
            None => StatusCode::NOT_FOUND,
        };
        let missing = json!({"status": "Failure", "reason": "NotFound", "code": 404});
        let text = found.unwrap_or(missing).to_string();
        ready(web::response(status, JSON, text))
    }

    /// The last event among the templates that an apiserver keeps.
    const EVENT: &str = "an event";

    /// An apiserver that keeps templates, and has two classes.
    async fn apiserver() -> (Client, Arc<Mutex<BTreeMap<String, Value>>>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("bound");
        let at = format!("http://{}", listener.local_addr().expect("bound"));
        let kept: Arc<Mutex<BTreeMap<String, Value>>> = Arc::default();
        let all = kept.clone();
        let answer = move |request: Request<Bytes>| {
            let mut all = all.lock().expect("held");
            let path = request.uri().path();
            if let Some(class) = path.strip_prefix("/apis/resource.k8s.io/v1/deviceclasses/") {
                let burst = parameters(json!({"burstMs": 500}));
                let config = match class {
                    DRIVER => json!([]),
                    "bursts" => json!([{"opaque": {"driver": DRIVER, "parameters": burst}}]),
                    _ => return answered(None),
                };
                let class = json!({"metadata": {"name": class}, "spec": {"config": config}});
                return answered(Some(class));
            }
            if path == "/api/v1/namespaces/team-a/events" {
                let event: Value = serde_json::from_slice(request.body()).expect("JSON");
                all.insert(EVENT.to_owned(), event);
                return answered(None);
            }
            let (of_all, name) = path
                .split_once("/resourceclaimtemplates")
                .expect("templates");
            assert_eq!(of_all, "/apis/resource.k8s.io/v1/namespaces/team-a");
            let found = match (request.method(), name.strip_prefix('/')) {
                (&Method::GET, Some(name)) => all.get(name).cloned(),
                (&Method::GET, None) => {
                    let query = request.uri().query().unwrap_or_default();
                    assert!(query.contains("managed-by%3Dcgpu-dra"), "{query}");
                    let items = all.iter().filter(|(name, _)| *name != EVENT);
                    let items: Vec<_> = items.map(|(_, template)| template).collect();
                    Some(json!({"metadata": {}, "items": items}))
                }
                (_, _) => {
                    let made: Value = serde_json::from_slice(request.body()).expect("JSON");
                    let name = made["metadata"]["name"].as_str().expect("a name");
                    all.insert(name.to_owned(), made.clone());
                    Some(made)
                }
            };
            answered(found)
        };
        let longest = |_: &Parts| Some(LONGEST_REVIEW);
        tokio::spawn(web::serve(listener, None, longest, answer));
        let config = kube::Config::new(at.parse().expect("a URL"));
        (Client::try_from(config).expect("a client"), kept)
    }

    fn webhook(client: Client) -> Webhook {
        Webhook {
            client,
            allowed: Allowed::default(),
            path: "s3cret".to_owned(),
            events: Arc::default(),
        }
    }

    /// The review of a pod whose container has these limits.
    fn asking(limits: Value, dry_run: bool) -> ReviewRequest<AskedPod> {
        let pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [
            {"name": "main", "resources": {"limits": limits}}]}});
        ReviewRequest {
            uid: "u".to_owned(),
            namespace: "team-a".to_owned(),
            dry_run,
            object: serde_json::from_value(pod).expect("a pod"),
        }
    }

    #[tokio::test]
    async fn a_namespace_has_a_hundred_templates() {
        let (client, kept) = apiserver().await;
        let webhook = webhook(client);
        let convert = async |mib: u32, dry_run: bool| {
            let request = asking(json!({"nvidia.com/gpumem": mib}), dry_run);
            webhook.convert(&request).await.refused
        };
        let count = || {
            let kept = kept.lock().expect("held");
            kept.keys().filter(|name| *name != EVENT).count()
        };
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

    #[tokio::test]
    async fn an_event_that_fails_refuses_nothing() {
        let (client, kept) = apiserver().await;
        let webhook = webhook(client);
        for dry_run in [true, false] {
            let request = asking(json!({"nvidia.com/gpucores": 30}), dry_run);
            assert_eq!(webhook.convert(&request).await.refused, None);
        }
        let event = loop {
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
            if let Some(event) = kept.lock().expect("held").get(EVENT) {
                break event.clone();
            }
        };
        assert_eq!(event["involvedObject"]["name"], "cgpu-all-w30-x1");
        assert_eq!(event["count"], 1);
    }

    #[tokio::test]
    async fn claims_beyond_their_class_are_refused() {
        let (client, _) = apiserver().await;
        let webhook = webhook(client);
        let judge = async |classes: [&str; 2], requests: &[&str], fields: Value| {
            let opaque = json!({"driver": DRIVER, "parameters": parameters(fields)});
            let [of_a, of_c] = classes;
            let devices = json!({
                "requests": [
                    {"name": "a", "exactly": {"deviceClassName": of_a}},
                    {"name": "b", "firstAvailable": [{"name": "c", "deviceClassName": of_c}]}],
                "config": [{"requests": requests, "opaque": opaque}]});
            let object = json!({"spec": {"spec": {"devices": devices}}});
            let object = serde_json::from_value(object).expect("a template");
            webhook.judge(&object).await.refused
        };
        let burst = |ms: u32| json!({ "burstMs": ms });
        let (plain, bursts) = (DRIVER, "bursts");
        for (classes, requests, fields) in [
            ([plain, plain], &[][..], burst(200)),
            ([bursts, bursts], &[], burst(500)),
            ([bursts, plain], &["a"], burst(500)),
            ([plain, bursts], &["b/c"], burst(500)),
            ([plain, plain], &[], json!({"managed": "deny"})),
            // Nobody knows yet what it allows.
            (["later", "later"], &[], burst(10_000)),
        ] {
            let told = format!("{classes:?} {requests:?} {fields}");
            assert_eq!(judge(classes, requests, fields).await, None, "{told}");
        }
        for (classes, requests, fields, said) in [
            (
                [plain, plain],
                &[][..],
                burst(201),
                "a burst of 201 ms, above 200 ms",
            ),
            ([bursts, bursts], &[], burst(501), "above 500 ms"),
            ([bursts, plain], &[], burst(500), "above 200 ms"),
            ([bursts, plain], &["b"], burst(500), "above 200 ms"),
            (
                [plain, plain],
                &[],
                json!({"priority": "high"}),
                "a high priority",
            ),
            (
                [plain, plain],
                &[],
                json!({"capabilities": ["rdma"]}),
                "capabilities rdma",
            ),
        ] {
            let refused = judge(classes, requests, fields).await.expect("refused");
            assert!(
                refused.contains(said),
                "{classes:?} {requests:?}: {refused}"
            );
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
