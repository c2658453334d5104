// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The services that the kubelet calls: the registration of this driver, `DRAPlugin` in its
//! versions v1 and v1beta1, and the health of the devices.

use crate::{
    calls::Calls,
    claims::{plan, Plan, PlanError},
    config::Allowed,
    failures::Failure,
    names::{is_object, Uid, DRIVER},
    probes::{self, Readiness},
    proto::{
        ClaimReference, ClaimsRequest, DeviceHealth, DeviceIdentifier, HealthResponse,
        HealthStatus, Nothing, PluginInfo, PrepareResponse, PreparedAnswer, PreparedDevice,
        RegistrationStatus, UnprepareResponse, UnpreparedAnswer,
    },
    rpc::{streamed, unary, unknown, Answer, Call},
    status::Resize,
    tenants::{TenantError, Tenants},
    threads,
};
use futures_util::{future::BoxFuture, stream, StreamExt};
use k8s_openapi::api::resource::v1::ResourceClaim;
use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};
use tokio::sync::{watch, Notify, Semaphore};

/// How often the kubelet hears of the devices' health at least.
const HEALTH_PERIOD: Duration = Duration::from_secs(10);
/// How long the kubelet trusts what it has heard, seconds.
const HEALTH_TRUSTED: i64 = 30;
/// How long the apiserver may take where a claim is prepared already.
const FOR_KNOWN: Duration = Duration::from_secs(3);
/// Of the kubelet's calls that ask the control device.
static TURNS: Semaphore = Semaphore::const_new(8);

/// Finds a claim by namespace and name; an error is a sentence.
pub type Lookup = Arc<
    dyn Fn(String, String) -> BoxFuture<'static, Result<Option<ResourceClaim>, String>>
        + Send
        + Sync,
>;
/// All devices of this node, and why some cannot be used.
pub type Health = BTreeMap<String, Option<Failure>>;

/// The services.
pub struct Kubelet {
    /// The path of the plugin's socket, as the kubelet sees it.
    pub endpoint: String,
    /// The node's pool.
    pub pool: String,
    /// The most that claims may ask for without their class's word.
    pub allowed: Allowed,
    /// Makes instances.
    pub tenants: Arc<Tenants>,
    /// The apiserver's claims.
    pub lookup: Lookup,
    /// Health of the devices.
    pub health: watch::Receiver<Health>,
    /// Told when the claims of this node have changed.
    pub changed: Arc<Notify>,
    /// Whether the driver is of use yet.
    pub readiness: Arc<Readiness>,
    /// Counts of the calls.
    pub calls: Arc<Calls>,
}

/// Why the kubelet's question cannot be answered for one claim.
#[derive(Debug, thiserror::Error)]
enum ClaimError {
    #[error("the claim's uid is no uid")]
    Uid,
    #[error("the claim's namespace or name cannot be one")]
    Name,
    #[error("cannot read the claim {0}: {1}")]
    Lookup(String, String),
    #[error("the claim {0} is not there")]
    Missing(String),
    #[error(transparent)]
    Tenant(#[from] TenantError),
    #[error("the node's worker ended early")]
    Worker,
}

impl From<PlanError> for ClaimError {
    fn from(error: PlanError) -> Self {
        Self::Tenant(error.into())
    }
}

impl Kubelet {
    /// Answers a call on the socket of the registration.
    pub async fn register(self: Arc<Self>, call: Call) -> Answer {
        match call.uri().path().to_owned().as_str() {
            "/pluginregistration.Registration/GetInfo" => {
                let info = PluginInfo {
                    kind: "DRAPlugin".to_owned(),
                    name: DRIVER.to_owned(),
                    endpoint: self.endpoint.clone(),
                    supported_versions: [
                        "v1.DRAPlugin",
                        "v1beta1.DRAPlugin",
                        "v1.DRAResourceHealth",
                        "v1alpha1.DRAResourceHealth",
                    ]
                    .map(str::to_owned)
                    .to_vec(),
                };
                unary(call, move |_: Nothing| std::future::ready(Ok(info.clone()))).await
            }
            "/pluginregistration.Registration/NotifyRegistrationStatus" => {
                unary(call, move |status: RegistrationStatus| {
                    self.readiness.note_registered(status.plugin_registered);
                    if !status.plugin_registered {
                        eprintln!(
                            "cgpu-dra: the kubelet does not register the driver: {}",
                            status.error
                        );
                    }
                    std::future::ready(Ok(Nothing {}))
                })
                .await
            }
            path => unknown(path),
        }
    }

    /// Answers a call on the socket of the driver.
    pub async fn serve(self: Arc<Self>, call: Call) -> Answer {
        let path = call.uri().path().to_owned();
        match path.trim_start_matches("/k8s.io.kubelet.pkg.apis.dra.") {
            "v1.DRAPlugin/NodePrepareResources" => {
                unary(call, move |r| self.clone().prepare_all(r, true)).await
            }
            "v1beta1.DRAPlugin/NodePrepareResources" => {
                unary(call, move |r| self.clone().prepare_all(r, false)).await
            }
            "v1.DRAPlugin/NodeUnprepareResources" | "v1beta1.DRAPlugin/NodeUnprepareResources" => {
                unary(call, move |r| self.clone().unprepare_all(r)).await
            }
            "/v1.DRAResourceHealth/NodeWatchResources"
            | "/v1alpha1.DRAResourceHealth/NodeWatchResources" => {
                let (pool, health) = (self.pool.clone(), self.health.clone());
                let states = stream::unfold((health, true), |(mut health, first)| async move {
                    if !first {
                        // Without news the kubelet hears that the old is still true.
                        let news = tokio::time::timeout(HEALTH_PERIOD, health.changed()).await;
                        if matches!(news, Ok(Err(_))) {
                            return None;
                        }
                    }
                    let now = health.borrow_and_update().clone();
                    Some((now, (health, false)))
                });
                let answers = states.map(move |now| Ok(health_of(&pool, &now)));
                streamed::<Nothing, HealthResponse>(call, answers.boxed()).await
            }
            probes::CHECK => self.readiness.answer(call).await,
            _ => unknown(&path),
        }
    }

    /// Prepares claims, each for itself.
    pub async fn prepare_all(
        self: Arc<Self>,
        request: ClaimsRequest,
        shares: bool,
    ) -> Result<PrepareResponse, tonic::Status> {
        let mut claims = BTreeMap::new();
        for claim in request.claims {
            let uid = claim.uid.clone();
            let doing = self.calls.prepare.begin();
            let answer = match self.prepare(claim).await {
                Ok((uid, plan)) => {
                    doing.done();
                    PreparedAnswer {
                        devices: devices(&uid, &plan, &self.pool, shares),
                        error: String::new(),
                    }
                }
                Err(error) => PreparedAnswer {
                    devices: vec![],
                    error: error.to_string(),
                },
            };
            claims.insert(uid, answer);
        }
        self.changed.notify_one();
        Ok(PrepareResponse { claims })
    }

    async fn prepare(&self, claim: ClaimReference) -> Result<(Uid, Plan), ClaimError> {
        let uid = Uid::new(&claim.uid).ok_or(ClaimError::Uid)?;
        if !is_object(&claim.namespace) || !is_object(&claim.name) {
            return Err(ClaimError::Name);
        }
        let (plan, wish) = match self.tenants.plan(&uid) {
            None => {
                let found = self.find(claim).await?;
                (self.plan(&uid, &found).await?, wish_of(&found))
            }
            Some(known) => self.plan_again(&uid, claim, known).await?,
        };
        let tenants = self.tenants.clone();
        let (at, made) = (uid.clone(), plan.clone());
        ask(move || tenants.prepare(&at, &made, &wish)).await??;
        Ok((uid, plan))
    }

    /// The claim, as the apiserver has it.
    async fn find(&self, claim: ClaimReference) -> Result<ResourceClaim, ClaimError> {
        let called = format!("{}/{}", claim.namespace, claim.name);
        let found = (self.lookup)(claim.namespace, claim.name).await;
        let found = found.map_err(|why| ClaimError::Lookup(called.clone(), why))?;
        found.ok_or(ClaimError::Missing(called))
    }

    /// Plans the instances of a claim that has this plan. It stays as it was, also if the apiserver
    /// is away, or if a class has changed. But if its pod was deleted by force, it may have been
    /// allocated anew, and then the old plan takes what others were given.
    async fn plan_again(
        &self,
        uid: &Uid,
        claim: ClaimReference,
        known: Plan,
    ) -> Result<(Plan, Resize), ClaimError> {
        let found = tokio::time::timeout(FOR_KNOWN, self.find(claim)).await;
        let Ok(Ok(found)) = found else {
            return Ok((known, Resize::default()));
        };
        let wish = wish_of(&found);
        let planning = self.plan(uid, &found);
        let is_same = found.metadata.uid.as_deref() == Some(uid.as_str());
        if !is_same || !known.is_allocated(&found, &self.pool) {
            return planning.await.map(|plan| (plan, wish));
        }
        let new = tokio::time::timeout(FOR_KNOWN, planning).await;
        let new = new.ok().and_then(Result::ok);
        let moved = new.filter(|new| !new.is_same_allocation(&known));
        Ok((moved.unwrap_or(known), wish))
    }

    /// Plans a claim's instances as it is allocated.
    async fn plan(&self, uid: &Uid, claim: &ResourceClaim) -> Result<Plan, ClaimError> {
        let tenants = self.tenants.clone();
        let inventory = ask(move || tenants.inventory()).await?;
        let inventory = inventory.map_err(TenantError::Control)?;
        Ok(plan(claim, uid, &self.pool, &inventory, self.allowed)?)
    }

    /// Removes what claims have, each for itself.
    pub async fn unprepare_all(
        self: Arc<Self>,
        request: ClaimsRequest,
    ) -> Result<UnprepareResponse, tonic::Status> {
        let mut claims = BTreeMap::new();
        for claim in request.claims {
            let doing = self.calls.unprepare.begin();
            let error = match self.unprepare(&claim.uid).await {
                Ok(()) => {
                    doing.done();
                    String::new()
                }
                Err(error) => error.to_string(),
            };
            claims.insert(claim.uid, UnpreparedAnswer { error });
        }
        self.changed.notify_one();
        Ok(UnprepareResponse { claims })
    }

    async fn unprepare(&self, uid: &str) -> Result<(), ClaimError> {
        let uid = Uid::new(uid).ok_or(ClaimError::Uid)?;
        let tenants = self.tenants.clone();
        Ok(ask(move || tenants.unprepare(&uid)).await??)
    }
}

/// The claim's wish for a smaller size. The keeper tells the claim if it cannot be read.
fn wish_of(claim: &ResourceClaim) -> Resize {
    Resize::of(claim).unwrap_or_default()
}

/// Asks the control device. The kubelet tries again what takes long, with all claims of a node.
async fn ask<T, F>(question: F) -> Result<T, ClaimError>
where
    T: Send + 'static,
    F: FnOnce() -> T + Send + 'static,
{
    let answer = threads::ask(&TURNS, question).await;
    answer.map_err(|_| ClaimError::Worker)
}

fn devices(uid: &Uid, plan: &Plan, pool: &str, shares: bool) -> Vec<PreparedDevice> {
    let device = |share: &crate::claims::Share| PreparedDevice {
        request_names: vec![share.request.clone()],
        pool_name: pool.to_owned(),
        device_name: share.device.clone(),
        cdi_device_ids: vec![uid.cdi_id(share.minor)],
        share_id: share.share_id.clone().filter(|_| shares),
    };
    plan.shares.iter().map(device).collect()
}

fn health_of(pool: &str, devices: &Health) -> HealthResponse {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now = now.map_or(0, |since| i64::try_from(since.as_secs()).unwrap_or(0));
    let device = |(name, failure): (&String, &Option<Failure>)| DeviceHealth {
        device: Some(DeviceIdentifier {
            pool_name: pool.to_owned(),
            device_name: name.clone(),
        }),
        health: match failure {
            None => HealthStatus::Healthy.into(),
            Some(_) => HealthStatus::Unhealthy.into(),
        },
        last_updated_time: now,
        health_check_timeout_seconds: HEALTH_TRUSTED,
        message: failure.map(Failure::sentence).unwrap_or_default(),
    };
    HealthResponse {
        devices: devices.iter().map(device).collect(),
    }
}
