// SPDX-License-Identifier: GPL-2.0
//! Fuzzing of what `cgpu-dra` does: the kubelet's calls on a node in memory, in any order and with
//! any claims; the device plugin's; and the reviews of the webhook, with an apiserver in memory.
//!
//! After each call no file and no instance has another name than one made of a claim's uid, and the
//! instances are those of the journal. A claim that was prepared has what was allocated to it. At
//! the end all claims are taken back, and nothing is left.
//! No path of the apiserver has anything in it but names of objects.

#[path = "../../../cgpu-dra/tests/fake_node/mod.rs"]
mod fake_node;

use cgpu_dra::{
    config::Allowed,
    kubelet::{Health, Kubelet},
    names::{is_object, uid_of, Uid, DRIVER},
    proto::{AllocateRequest, ClaimReference, ClaimsRequest, PrepareResponse},
    quantity,
    slots::Slots,
    status::Resize,
    tenants::Tenants,
    web,
    webhook::{Webhook, LONGEST_REVIEW},
};
use cgpu_fake::ControlState;
use cgpu_uapi::Priority;
use fake_node::FakeNode;
use futures_util::FutureExt;
use http::{request::Parts, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use k8s_openapi::{api::resource::v1::ResourceClaim, ByteString};
use prost::Message;
use serde_json::{json, Value};
use std::{
    cell::OnceCell,
    collections::{BTreeMap, BTreeSet},
    path::Path,
    sync::{atomic::Ordering, Arc, Mutex, PoisonError},
};
use tokio::{
    net::TcpListener,
    runtime::{Builder, Runtime},
    sync::{watch, Notify},
};

/// Most calls of an input, and claims of a call.
const MOST: usize = 16;
const POOL: &str = "node1";
const SECRET: &str = "s3cret";
const JSON: &str = "application/json";

type Claims = Arc<Mutex<Known>>;
/// Paths of the apiserver that have no name of an object where one is to be.
type OddPaths = Arc<Mutex<Vec<String>>>;

/// The claims of the apiserver.
#[derive(Default)]
struct Known {
    /// By namespace and name.
    now: BTreeMap<(String, String), ResourceClaim>,
    /// The uids of those that have had an annotation for a smaller size.
    annotated: BTreeSet<String>,
}

thread_local! {
    static RUNTIME: Runtime = Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(1)
        .build()
        .expect("a runtime");
    static NODE: Arc<FakeNode> = FakeNode::new(2);
    static WEBHOOK: OnceCell<(Arc<Webhook>, OddPaths)> = const { OnceCell::new() };
}

/// The next part of an input: what it is and its bytes, behind their number.
fn part<'a>(input: &mut &'a [u8]) -> Option<(u8, &'a [u8])> {
    let (head, rest) = input.split_first_chunk::<3>()?;
    let [kind, low, high] = *head;
    let length = usize::from(u16::from_le_bytes([low, high])).min(rest.len());
    let (part, rest) = rest.split_at(length);
    *input = rest;
    Some((kind, part))
}

/// Calls of the kubelet, claims that the apiserver has from then on, times without a driver, and
/// new starts of `cgpu-dra`, in any order. Says how many claims were prepared.
pub fn calls(mut input: &[u8]) -> usize {
    let node = NODE.with(Arc::clone);
    node.with(|s| *s = ControlState::new(2));
    let claims = Claims::default();
    let mut driver = NodeDriver::start(&node, &claims);
    let mut prepared = 0;
    for _ in 0..MOST {
        let Some((kind, bytes)) = part(&mut input) else {
            break;
        };
        match kind % 6 {
            0 => {
                let Ok(claim) = serde_json::from_slice::<ResourceClaim>(bytes) else {
                    continue;
                };
                let of = claim.metadata.clone();
                let key = (
                    of.namespace.unwrap_or_default(),
                    of.name.unwrap_or_default(),
                );
                let mut known = claims.lock().unwrap_or_else(PoisonError::into_inner);
                if Resize::of(&claim) != Ok(Resize::default()) {
                    let uid = claim.metadata.uid.clone();
                    known.annotated.extend(uid);
                }
                known.now.insert(key, claim);
            }
            1 => prepared += driver.prepare(bytes, true),
            2 => prepared += driver.prepare(bytes, false),
            3 => {
                if let Ok(request) = ClaimsRequest::decode(bytes) {
                    driver.unprepare(request);
                }
            }
            4 => _ = node.driver_gone.fetch_not(Ordering::Relaxed),
            _ => driver = NodeDriver::start(&node, &claims),
        }
        driver.check(&node);
    }
    node.driver_gone.store(false, Ordering::Relaxed);
    let left = driver.tenants.plans().into_keys();
    let left = left.map(|uid| ClaimReference {
        uid: uid.as_str().to_owned(),
        ..ClaimReference::default()
    });
    driver.unprepare(ClaimsRequest {
        claims: left.collect(),
    });
    driver.check(&node);
    assert!(node.limits().is_empty(), "{:?}", node.limits());
    assert!(node.journal().is_empty(), "{:?}", node.journal());
    assert!(node.cdi_files().is_empty(), "{:?}", node.cdi_files());
    prepared
}

/// `cgpu-dra` on the node.
struct NodeDriver {
    node: Arc<FakeNode>,
    claims: Claims,
    tenants: Arc<Tenants>,
    kubelet: Arc<Kubelet>,
}

impl NodeDriver {
    fn start(node: &Arc<FakeNode>, claims: &Claims) -> Self {
        let tenants = Tenants::open(node.clone(), node.places(), 100).expect("opened");
        let tenants = Arc::new(tenants);
        // It fails while the driver is gone.
        let _ = tenants.remove_strays();
        let known = claims.clone();
        let kubelet = Kubelet {
            endpoint: "dra.sock".to_owned(),
            pool: POOL.to_owned(),
            allowed: allowed(),
            tenants: tenants.clone(),
            lookup: Arc::new(move |namespace, name| {
                assert!(
                    is_object(&namespace) && is_object(&name),
                    "{namespace}/{name}"
                );
                let all = known.lock().unwrap_or_else(PoisonError::into_inner);
                let found = all.now.get(&(namespace, name)).cloned();
                std::future::ready(Ok(found)).boxed()
            }),
            health: watch::channel(Health::new()).1,
            changed: Arc::new(Notify::new()),
            readiness: Arc::default(),
            calls: Arc::default(),
        };
        Self {
            node: node.clone(),
            claims: claims.clone(),
            tenants,
            kubelet: Arc::new(kubelet),
        }
    }

    fn prepare(&self, bytes: &[u8], shares: bool) -> usize {
        let Ok(mut request) = ClaimsRequest::decode(bytes) else {
            return 0;
        };
        request.claims.truncate(MOST);
        let asked = request.claims.clone();
        let known = self.tenants.plans();
        let call = self.kubelet.clone().prepare_all(request, shares);
        let answer = RUNTIME.with(|runtime| runtime.block_on(call));
        let answer = answer.expect("an answer");
        self.check_answer(&asked, &answer, shares);
        for claim in &asked {
            let mut same = asked.iter().filter(|other| other.uid == claim.uid);
            let is_one = same.next().is_some() && same.next().is_none();
            let uid = Uid::new(&claim.uid).filter(|uid| is_one && !known.contains_key(uid));
            if let (Some(uid), "") = (uid, &*answer.claims[&claim.uid].error) {
                self.check_sizes(claim, &uid);
            }
        }
        answer
            .claims
            .values()
            .filter(|c| c.error.is_empty())
            .count()
    }

    /// The instances of a claim that was prepared for the first time are as it is allocated, or as
    /// small as it is annotated.
    fn check_sizes(&self, claim: &ClaimReference, uid: &Uid) {
        let key = (claim.namespace.clone(), claim.name.clone());
        let all = self.claims.lock().unwrap_or_else(PoisonError::into_inner);
        let claim = &all.now[&key];
        let allocation = claim.status.as_ref().and_then(|s| s.allocation.as_ref());
        let devices = allocation.and_then(|a| a.devices.as_ref());
        let results = devices.and_then(|d| d.results.as_ref()).expect("results");
        let wish = Resize::of(claim).unwrap_or_default().memory_bytes;
        let mut made = self.node.limits();
        made.retain(|(name, ..)| *name == uid.instance());
        let own = results.iter().filter(|result| result.driver == DRIVER);
        for result in own.clone() {
            let consumed = result.consumed_capacity.as_ref().expect("capacities");
            let name = format!("{DRIVER}/memory");
            let memory = consumed.get("memory").or_else(|| consumed.get(&name));
            let memory = quantity::parse(&memory.expect("memory").0).expect("a number");
            let mut on = made.iter();
            let on = on.find(|(_, minor, _)| result.device == format!("gpu-{minor}"));
            let bytes = on.expect("an instance").2;
            let smaller = wish.map_or(memory, |wish| wish.min(memory));
            assert_eq!(bytes, smaller, "{result:?}");
        }
        assert_eq!(made.len(), own.count(), "{uid:?}");
    }

    fn check_answer(&self, asked: &[ClaimReference], answer: &PrepareResponse, shares: bool) {
        for claim in asked {
            let uid = &claim.uid;
            assert!(answer.claims.contains_key(uid), "no answer for {uid}");
        }
        for (uid, answer) in &answer.claims {
            if !answer.error.is_empty() {
                assert!(answer.devices.is_empty(), "{answer:?}");
                continue;
            }
            let uid = Uid::new(uid).expect("a uid");
            let plan = self.tenants.plan(&uid).expect("in the journal");
            assert_eq!(answer.devices.len(), plan.shares.len());
            for (device, share) in answer.devices.iter().zip(&plan.shares) {
                assert_eq!(device.cdi_device_ids, [uid.cdi_id(share.minor)]);
                assert_eq!(device.pool_name, POOL);
                assert_eq!(device.device_name, format!("gpu-{}", share.minor));
                assert!(shares || device.share_id.is_none());
            }
        }
    }

    fn unprepare(&self, request: ClaimsRequest) {
        let call = self.kubelet.clone().unprepare_all(request);
        let answer = RUNTIME.with(|runtime| runtime.block_on(call));
        let answer = answer.expect("an answer");
        for (uid, answer) in &answer.claims {
            let uid = Uid::new(uid);
            assert!(uid.is_some() || !answer.error.is_empty());
            if answer.error.is_empty() {
                let kept = uid.filter(|uid| self.tenants.plan(uid).is_some());
                assert_eq!(kept, None, "it is still in the journal");
            }
        }
    }

    /// Files, instances and the journal agree.
    fn check(&self, node: &FakeNode) {
        check_files(&node.root, "");
        let plans = self.tenants.plans();
        node.with(|state| {
            for instance in &state.instances {
                let name = instance.key.name.as_str().expect("a name");
                let uid = name.strip_prefix("claim-");
                assert!(uid.is_some_and(is_uid), "an instance {name}");
                let uid = uid_of(name).expect("a uid");
                let plan = plans.get(&uid).expect("no instance but the journal's");
                let mut shares = plan.shares.iter();
                assert!(shares.any(|share| share.minor == instance.key.gpu_minor));
            }
            // The control device refuses this, unless cgpu-dra asks for overcommit.
            for gpu in &state.gpus {
                let on = |i: &&cgpu_uapi::Instance| i.key.gpu_minor == gpu.minor;
                let limits = state.instances.iter().filter(on);
                let sum: u64 = limits.map(|i| i.memory_limit_bytes).sum();
                assert!(sum <= gpu.memory_bytes, "{sum} of {}", gpu.memory_bytes);
            }
        });
        let whole = node.journal();
        let whole = whole
            .iter()
            .filter(|p| p.extension() == Some("complete".as_ref()));
        for mark in whole {
            let uid = mark.file_stem().and_then(|stem| stem.to_str());
            let uid = uid.and_then(Uid::new).expect("a uid");
            let plan = plans.get(&uid).expect("a plan that is complete");
            for share in &plan.shares {
                let made = node.with(|s| {
                    let mut all = s.instances.iter();
                    let is_it = |i: &&cgpu_uapi::Instance| {
                        i.key.name.as_str() == Some(&uid.instance())
                            && i.key.gpu_minor == share.minor
                    };
                    all.find(is_it).map(|i| (i.memory_limit_bytes, i.weight))
                });
                let (memory_bytes, weight) = made.expect("an instance");
                let known = self.claims.lock().unwrap_or_else(PoisonError::into_inner);
                if known.annotated.contains(uid.as_str()) {
                    assert!(memory_bytes <= share.memory_bytes && weight <= share.weight);
                } else {
                    let set_aside = (share.memory_bytes, share.weight);
                    assert_eq!((memory_bytes, weight), set_aside, "{uid:?}");
                }
            }
        }
    }
}

fn allowed() -> Allowed {
    Allowed {
        priority: Priority::High,
        ..Allowed::default()
    }
}

/// Whether a text is a uid, as this crate reads it: 32 hexadecimal digits in five groups.
fn is_uid(text: &str) -> bool {
    let is_dash = |at: usize| [8, 13, 18, 23].contains(&at);
    let mut all = text.bytes().enumerate();
    text.len() == 36
        && all.all(|(at, b)| {
            if is_dash(at) {
                b == b'-'
            } else {
                matches!(b, b'0'..=b'9' | b'a'..=b'f')
            }
        })
}

/// Below the node's root there are files of claims alone.
fn check_files(folder: &Path, at: &str) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name().into_string().expect("plain");
        let path = format!("{at}/{name}");
        if entry.file_type().expect("known").is_dir() {
            assert!(["/run", "/run/claims", "/cdi"].contains(&&*path), "{path}");
            check_files(&entry.path(), &path);
            continue;
        }
        let uid = match at {
            "/run/claims" => name
                .strip_suffix(".json")
                .or(name.strip_suffix(".complete")),
            "/cdi" => name
                .strip_prefix("cgpu.io-claim-")
                .and_then(|n| n.strip_suffix(".json")),
            _ => None,
        };
        assert!(uid.is_some_and(is_uid), "a file {path}");
    }
}

/// A call of the kubelet to the device plugin: a container gets a share that is there, or none.
/// Says how many got one.
pub fn slots(input: &[u8]) -> usize {
    let Ok(request) = AllocateRequest::decode(input) else {
        return 0;
    };
    let node = FakeNode::new(1);
    let profile = "8g=8Gi:20:3".parse().expect("a profile");
    let slots = Slots::new(node.clone(), node.places(), vec![profile]);
    let known: Vec<_> = slots.keep().expect("kept");
    let known: Vec<_> = known.iter().map(|slot| slot.cdi_id()).collect();
    let before = node.limits();
    assert_eq!((known.len(), before.len()), (3, 3));
    let mut count = 0;
    for container in request.container_requests.iter().take(MOST) {
        match slots.allocate(&container.device_ids) {
            Ok(given) => {
                assert!(known.contains(&given), "{given}");
                count += 1;
            }
            Err(why) => assert!(why.to_string().len() < 1000, "{why}"),
        }
    }
    assert_eq!(node.limits(), before);
    assert_eq!(node.cdi_files().len(), 1);
    count
}

/// A review as a client sends it, who may not be the apiserver. The first byte says of what. Says
/// whether the webhook has allowed it.
pub fn review(input: &[u8]) -> bool {
    let Some((kind, body)) = input.split_first() else {
        return false;
    };
    let is_pod = kind % 2 == 0;
    let path = format!("/{SECRET}/{}", if is_pod { "pods" } else { "parameters" });
    RUNTIME.with(|runtime| {
        runtime.block_on(async {
            let known = WEBHOOK.with(|kept| kept.get().cloned());
            let (webhook, odd) = match known {
                Some(known) => known,
                None => start_webhook().await,
            };
            let body = Bytes::copy_from_slice(body);
            let request = Request::post(path).body(body).expect("a request");
            let answer = webhook.answer(request).await;
            let status = answer.status();
            let body = answer.into_body().collect().await.expect("a body");
            let body = body.to_bytes();
            let mut allowed = false;
            if status == StatusCode::OK {
                let verdict = serde_json::from_slice(&body).expect("JSON");
                allowed = check_verdict(&verdict, is_pod);
            } else {
                assert_eq!(status, StatusCode::BAD_REQUEST);
            }
            let odd = odd.lock().unwrap_or_else(PoisonError::into_inner);
            assert!(odd.is_empty(), "{odd:?}");
            allowed
        })
    })
}

/// The verdict can be read by the apiserver, and changes what it may. Says whether it allows.
fn check_verdict(review: &Value, is_pod: bool) -> bool {
    let verdict = &review["response"];
    assert!(verdict["uid"].is_string(), "{review}");
    let allowed = verdict["allowed"].as_bool().expect("a verdict");
    let why = verdict["status"]["message"].as_str();
    assert_eq!(why.is_some(), !allowed, "{review}");
    let Some(patch) = verdict.get("patch") else {
        return allowed;
    };
    assert!(is_pod && allowed, "{review}");
    let patch: ByteString = serde_json::from_value(patch.clone()).expect("base64");
    let patch: Vec<Value> = serde_json::from_slice(&patch.0).expect("a list");
    for change in &patch {
        let at = change["path"].as_str().expect("a path");
        let is_known = at.starts_with("/spec/containers/")
            || at.starts_with("/spec/initContainers/")
            || at.starts_with("/spec/resourceClaims")
            || at == "/spec/schedulerName"
            || at.starts_with("/metadata/annotations");
        assert!(is_known, "{at}");
    }
    allowed
}

/// The webhook, and an apiserver that has nothing and takes everything.
async fn start_webhook() -> (Arc<Webhook>, OddPaths) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("bound");
    let at = format!("http://{}", listener.local_addr().expect("bound"));
    let odd = OddPaths::default();
    let noted = odd.clone();
    let answer = move |request: Request<Bytes>| {
        let path = request.uri().path();
        if !is_sound(path) {
            let mut noted = noted.lock().unwrap_or_else(PoisonError::into_inner);
            noted.push(path.to_owned());
        }
        std::future::ready(apiserver(&request))
    };
    let longest = |_: &Parts| Some(LONGEST_REVIEW);
    tokio::spawn(web::serve(listener, None, longest, answer));
    let config = kube::Config::new(at.parse().expect("a URL"));
    let webhook = Webhook {
        client: kube::Client::try_from(config).expect("a client"),
        allowed: allowed(),
        path: SECRET.to_owned(),
        events: Arc::default(),
    };
    let started = (Arc::new(webhook), odd);
    WEBHOOK.with(|kept| kept.get_or_init(|| started.clone()).clone())
}

fn apiserver(request: &Request<Bytes>) -> Response<Full<Bytes>> {
    let is_list = request.uri().path().ends_with("/resourceclaimtemplates");
    if request.method() == Method::POST {
        let made = String::from_utf8_lossy(request.body()).into_owned();
        return web::response(StatusCode::CREATED, JSON, made);
    }
    if is_list {
        let none = json!({"metadata": {}, "items": []});
        return web::response(StatusCode::OK, JSON, none.to_string());
    }
    let missing = json!({"status": "Failure", "reason": "NotFound", "code": 404});
    web::response(StatusCode::NOT_FOUND, JSON, missing.to_string())
}

/// Whether a path of the apiserver is one that the webhook may ask, with names of objects in it.
fn is_sound(path: &str) -> bool {
    let of_namespace = |path: &str, kind: &str, start: &str| {
        let Some((namespace, rest)) = path.split_once('/') else {
            return false;
        };
        let name = rest.strip_prefix(kind);
        let is_name = |name: &str| name.starts_with(start) && is_object(name);
        let is_known = |name: &str| name.is_empty() || name.strip_prefix('/').is_some_and(is_name);
        is_object(namespace) && name.is_some_and(is_known)
    };
    if let Some(rest) = path.strip_prefix("/api/v1/namespaces/") {
        return of_namespace(rest, "events", "");
    }
    let Some(rest) = path.strip_prefix("/apis/resource.k8s.io/v1/") else {
        return false;
    };
    match (
        rest.strip_prefix("deviceclasses/"),
        rest.strip_prefix("namespaces/"),
    ) {
        (Some(class), _) => is_object(class),
        (_, Some(rest)) => of_namespace(rest, "resourceclaimtemplates", "cgpu-"),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(feature = "seeds")]
    #[test]
    fn seeds_do_what_they_say() {
        let seeds = crate::seeds::kubernetes();
        for seed in seeds.values() {
            crate::kubernetes::any(seed);
        }
        let rest = |name: &str| &seeds[name][1..];
        // As v1, as v1beta1, and again after a new start and without the driver's answer.
        assert_eq!(calls(rest("calls")), 3);
        assert_eq!(calls(rest("odd-calls")), 0);
        // A second claim of half a GPU and more.
        assert_eq!(calls(rest("full-calls")), 1);
        assert_eq!(slots(rest("slots")), 1);
        assert!(review(rest("review-pod")) && review(rest("review-template")));
    }

    #[test]
    fn paths_have_names_of_objects() {
        let templates = "/apis/resource.k8s.io/v1/namespaces/team-a/resourceclaimtemplates";
        for (path, is_one) in [
            (templates, true),
            (&format!("{templates}/cgpu-1m-x1"), true),
            ("/apis/resource.k8s.io/v1/deviceclasses/gpu.cgpu.io", true),
            ("/api/v1/namespaces/team-a/events", true),
            (&format!("{templates}/other"), false),
            (&format!("{templates}/cgpu-1m/../x"), false),
            ("/apis/resource.k8s.io/v1/deviceclasses/a/b", false),
            ("/api/v1/namespaces/a%2Fb/events", false),
            ("/api/v1/namespaces/team-a/secrets", false),
        ] {
            assert_eq!(is_sound(path), is_one, "{path}");
        }
    }
}
