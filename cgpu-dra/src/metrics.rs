// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The node's figures for Prometheus: those of `cgpuctl metrics`, with the claim of each instance
//! and the pod that uses it, and which containers use which claim.

use crate::{
    claims::Plan,
    names::{self, Uid},
    node::Node,
    pods::{self, Use},
    tenants::{said, Tenants},
    threads, web,
};
use cgpu_client::{
    control::Control,
    metrics::{limits_of, Figures, MetricsPage, CONTENT_TYPE},
};
use cgpu_uapi::{Cause, InstanceKey};
use http::{request::Parts, Method, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Bytes;
use nix::errno::Errno;
use std::{
    collections::BTreeMap,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
};
use tokio::{net::TcpListener, sync::Semaphore};

/// Of the requests that ask the control device: as many as are answered at once.
static TURNS: Semaphore = Semaphore::const_new(4);

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

/// Labels of an instance beside its name and GPU. Each instance has all of them, empty where there
/// is nothing to tell: the Prometheus operator adds those of this program's own pod where a sample
/// has none.
fn labels(
    key: &InstanceKey,
    plans: &BTreeMap<Uid, Plan>,
    uses: &[Use],
) -> Vec<(&'static str, String)> {
    let uid = key.name.as_str().and_then(names::uid_of);
    let plan = uid.and_then(|uid| plans.get(&uid));
    let of_claim = |u: &&Use| plan.is_some_and(|p| u.namespace == p.namespace && u.claim == p.name);
    let uses: Vec<_> = uses.iter().filter(of_claim).collect();
    // A claim that several use has no one pod; the family of containers tells all.
    let only = |all: Vec<&String>| match all[..] {
        [first, ref more @ ..] if more.iter().all(|one| *one == first) => first.clone(),
        _ => String::new(),
    };
    let container = match uses[..] {
        [one] => one.container.clone(),
        _ => String::new(),
    };
    vec![
        (
            "namespace",
            plan.map(|p| p.namespace.clone()).unwrap_or_default(),
        ),
        ("claim", plan.map(|p| p.name.clone()).unwrap_or_default()),
        ("pod", only(uses.iter().map(|u| &u.pod).collect())),
        ("container", container),
    ]
}

/// The page of text.
pub fn page(
    figures: &Figures,
    plans: &BTreeMap<Uid, Plan>,
    uses: Option<&[Use]>,
    lost: usize,
) -> String {
    let known = uses.unwrap_or_default();
    let mut page = MetricsPage::of(figures, &|key| labels(key, plans, known));
    page.family("cgpu_dra_claims", "Claims that are prepared on this node.");
    page.sample("cgpu_dra_claims", &[], plans.len());
    page.family(
        "cgpu_dra_pods_known",
        "1: the kubelet tells which pods use the claims.",
    );
    page.sample("cgpu_dra_pods_known", &[], u8::from(uses.is_some()));
    page.family(
        "cgpu_dra_dropped_fields",
        "Fields of the ResourceSlice that the apiserver has dropped: its feature gate is off.",
    );
    page.sample("cgpu_dra_dropped_fields", &[], lost);
    page.family(
        "cgpu_dra_container_info",
        "Which container uses which claim, and by which instance.",
    );
    for u in known {
        let same =
            |(_, plan): &(&Uid, &Plan)| plan.namespace == u.namespace && plan.name == u.claim;
        let Some((uid, _)) = plans.iter().find(same) else {
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
            let plans = this.tenants.plans();
            Ok(page(&figures, &plans, uses.as_deref(), lost.len()))
        });
        read.await.unwrap_or_else(Err)
    }

    async fn answer(self: Arc<Self>, request: http::Request<Bytes>) -> Response<Full<Bytes>> {
        let get = matches!(*request.method(), Method::GET | Method::HEAD);
        let (status, kind, text) = match (get, request.uri().path()) {
            (true, "/metrics") => match self.text().await {
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

    /// Serves the figures for as long as it is polled.
    pub async fn serve(self: Arc<Self>, listener: TcpListener) {
        // Nobody has anything to say to it.
        let longest = |_: &Parts| Some(0);
        web::serve(listener, None, longest, move |request| {
            self.clone().answer(request)
        })
        .await;
    }
}

const PLAIN: &str = "text/plain; charset=utf-8";
