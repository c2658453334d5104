// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The node's figures for Prometheus: those of `cgpuctl metrics`, with the claim of each instance
//! and the pod that uses it, and which containers use which claim.

use crate::{
    calls::Calls,
    claims::Plan,
    login::{Login, PATH},
    names::{self, Uid},
    node::Node,
    pods::{self, Use},
    status::DroppedStatus,
    tenants::{said, Tenants},
    threads,
    web::{self, Peer},
};
use cgpu_client::{
    control::Control,
    metrics::{limits_of, Figures, MetricsPage, CONTENT_TYPE},
};
use cgpu_uapi::{Cause, InstanceKey};
use http::{header::WWW_AUTHENTICATE, request::Parts, HeaderValue, Method, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Bytes;
use nix::errno::Errno;
use std::{
    collections::{BTreeMap, BTreeSet},
    net::Ipv6Addr,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
};
use tokio::{net::TcpListener, sync::Semaphore};
use tokio_rustls::TlsAcceptor;

/// Of the requests that ask the control device: as many as are answered at once.
static TURNS: Semaphore = Semaphore::const_new(4);
/// Of those that ask for the page, after their login.
static READERS: Semaphore = Semaphore::const_new(4);

/// The sources of the figures.
pub struct Metrics {
    /// The node.
    pub node: Arc<dyn Node>,
    /// The instances of claims.
    pub tenants: Arc<Tenants>,
    /// The kubelet's socket that tells which container has what.
    pub pod_resources: PathBuf,
    /// Fields that the apiserver has dropped from the slice.
    pub lost: Arc<Mutex<Vec<&'static str>>>,
    /// Whether it drops the status of claims.
    pub dropped: Arc<DroppedStatus>,
    /// Counts of the kubelet's calls.
    pub calls: Arc<Calls>,
}

/// The module's records now.
fn figures(control: &dyn Control) -> Result<Figures, Errno> {
    let gpus = match control.gpus() {
        // Instances outlive the driver, and so do their figures.
        Err(errno) if errno == Errno::from_raw(Cause::DriverMissing.errno()) => vec![],
        read => read?,
    };
    let instances = control.instances()?;
    Ok(Figures {
        version: control.version()?,
        gpu_compute: if gpus.is_empty() {
            vec![]
        } else {
            control.gpu_compute()?
        },
        instance_compute: control.instance_compute()?,
        limits: limits_of(control, &instances)?,
        instances,
        gpus,
    })
}

/// The claims of the node, and who uses them.
pub struct ClaimUses {
    /// The claims that are prepared.
    pub plans: BTreeMap<Uid, Plan>,
    /// Those of them that are deleted, or allocated elsewhere.
    pub gone: BTreeSet<Uid>,
    /// The containers that use them, if the kubelet tells.
    pub uses: Option<Vec<Use>>,
}

impl ClaimUses {
    /// The claim that a container uses. Of its name there may be another one, which is gone and
    /// whose instance is still in use.
    fn of(&self, u: &Use) -> Option<&Uid> {
        let is_own = |plan: &Plan| plan.namespace == u.namespace && plan.name == u.claim;
        let own = self.plans.iter().filter(|(_, plan)| is_own(plan));
        own.map(|(uid, _)| uid)
            .min_by_key(|uid| self.gone.contains(*uid))
    }

    fn uses(&self) -> &[Use] {
        self.uses.as_deref().unwrap_or_default()
    }

    /// Labels of an instance beside its name and GPU. Each instance has all of them, empty where
    /// there is nothing to tell: the Prometheus operator adds those of this program's own pod where
    /// a sample has none.
    fn labels(&self, key: &InstanceKey) -> Vec<(&'static str, String)> {
        let uid = key.name.as_str().and_then(names::uid_of);
        let plan = uid.as_ref().and_then(|uid| self.plans.get(uid));
        let is_own = |u: &&Use| uid.is_some() && self.of(u) == uid.as_ref();
        let uses: Vec<_> = self.uses().iter().filter(is_own).collect();
        let pods: BTreeSet<_> = uses.iter().map(|u| &u.pod).collect();
        // A claim that several use has no one pod; the family of containers tells all.
        let pod = pods.first().filter(|_| pods.len() == 1);
        let container = uses.first().filter(|_| uses.len() == 1);
        let text = |of: Option<&String>| of.cloned().unwrap_or_default();
        vec![
            ("namespace", text(plan.map(|plan| &plan.namespace))),
            ("claim", text(plan.map(|plan| &plan.name))),
            ("pod", text(pod.copied())),
            ("container", text(container.map(|u| &u.container))),
        ]
    }
}

/// Figures of the kubelet's calls, in the order of [`Count`](crate::calls::Count)'s numbers.
const CALLS: [(&str, &str); 3] = [
    (
        "cgpu_dra_calls_total",
        "Claims that the kubelet wanted prepared or unprepared.",
    ),
    (
        "cgpu_dra_calls_failed_total",
        "Those for which that failed. The kubelet tries again.",
    ),
    (
        "cgpu_dra_calls_slow_total",
        "Those for which that took 5 seconds or longer.",
    ),
];

/// The page of text.
pub fn page(figures: &Figures, claims: &ClaimUses, lost: usize, calls: &Calls) -> String {
    let mut page = MetricsPage::of(figures, &|key| claims.labels(key));
    page.family("cgpu_dra_claims", "Claims that are prepared on this node.");
    page.sample("cgpu_dra_claims", &[], claims.plans.len());
    page.family(
        "cgpu_dra_pods_known",
        "1: the kubelet tells which pods use the claims.",
    );
    let is_known = u8::from(claims.uses.is_some());
    page.sample("cgpu_dra_pods_known", &[], is_known);
    page.family(
        "cgpu_dra_dropped_fields",
        "Fields of ResourceSlices and claims that the apiserver drops: its feature gate is off.",
    );
    page.sample("cgpu_dra_dropped_fields", &[], lost);
    let calls = [("prepare", &calls.prepare), ("unprepare", &calls.unprepare)];
    let calls = calls.map(|(call, count)| (call, count.numbers()));
    for (n, (name, help)) in CALLS.into_iter().enumerate() {
        page.family(name, help);
        for (call, numbers) in calls {
            page.sample(name, &[("call", call)], numbers[n]);
        }
    }
    page.family(
        "cgpu_dra_container_info",
        "Which container uses which claim, and by which instance.",
    );
    for u in claims.uses() {
        let Some(uid) = claims.of(u) else {
            continue;
        };
        let labels = [
            ("namespace", &*u.namespace),
            ("claim", &*u.claim),
            ("pod", &*u.pod),
            ("container", &*u.container),
            ("instance", &*uid.instance()),
        ];
        page.sample("cgpu_dra_container_info", &labels, 1);
    }
    page.text()
}

impl Metrics {
    /// The page as it is now, or why there is none.
    pub async fn text(self: &Arc<Self>) -> Result<String, String> {
        let uses = pods::list(&self.pod_resources).await.ok();
        let this = self.clone();
        let read = threads::ask(&TURNS, move || {
            let figures = figures(&*this.node.control().map_err(said)?).map_err(said)?;
            let lost = this.lost.lock().unwrap_or_else(PoisonError::into_inner);
            let lost = lost.len() + usize::from(this.dropped.is_dropped());
            let (plans, gone) = (this.tenants.plans(), this.tenants.gone_claims());
            let claims = ClaimUses { plans, gone, uses };
            Ok(page(&figures, &claims, lost, &this.calls))
        });
        read.await.unwrap_or_else(Err)
    }

    async fn answer(
        self: Arc<Self>,
        request: http::Request<Bytes>,
        login: Option<&Login>,
    ) -> Response<Full<Bytes>> {
        if let Some(login) = login {
            let peer = request.extensions().get::<Peer>();
            let peer = peer.map_or(Ipv6Addr::UNSPECIFIED.into(), |peer| peer.0);
            if let Err(why) = login.check(request.headers(), peer).await {
                let mut denied = web::response(why.status(), PLAIN, format!("{why}\n"));
                if why.status() == StatusCode::UNAUTHORIZED {
                    let scheme = HeaderValue::from_static("Bearer");
                    denied.headers_mut().insert(WWW_AUTHENTICATE, scheme);
                }
                return denied;
            }
        }
        // Nobody closes the semaphore.
        let _turn = READERS.acquire().await;
        let get = matches!(*request.method(), Method::GET | Method::HEAD);
        let (status, kind, text) = match (get, request.uri().path()) {
            (true, PATH) => match self.text().await {
                Ok(text) => (StatusCode::OK, CONTENT_TYPE, text),
                Err(why) => (StatusCode::SERVICE_UNAVAILABLE, PLAIN, why + "\n"),
            },
            (true, _) => (
                StatusCode::NOT_FOUND,
                PLAIN,
                "the figures are at /metrics\n".to_owned(),
            ),
            _ => (
                StatusCode::METHOD_NOT_ALLOWED,
                PLAIN,
                "the figures can be got, nothing else\n".to_owned(),
            ),
        };
        web::response(status, kind, text)
    }

    /// Serves the figures for as long as it is polled. If clients have to log in, they do so by
    /// TLS.
    pub async fn serve(
        self: Arc<Self>,
        listener: TcpListener,
        login: Option<(TlsAcceptor, Arc<Login>)>,
    ) {
        let (tls, login) = login.unzip();
        // Nobody has anything to say to it. A login takes none of the turns of `web`: one that the
        // apiserver does not judge soon would keep others waiting.
        let longest = |_: &Parts| None;
        web::serve(listener, tls, longest, move |request| {
            let (this, login) = (self.clone(), login.clone());
            async move { this.answer(request, login.as_deref()).await }
        })
        .await;
    }
}

const PLAIN: &str = "text/plain; charset=utf-8";
