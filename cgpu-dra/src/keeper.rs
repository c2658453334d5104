// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Follows the claims that are prepared on this node: keeps their `status.devices` true, resizes
//! their instances when annotations ask for it, makes those again that are lost, and removes what a
//! claim has left that is gone. A change of a claim has a thread of its own, because the module may
//! wait for a program of the claim's pod: so no claim waits for another one's.

use crate::{
    apiserver::{sentence, ClaimApi, Deletions},
    claims::Plan,
    names::{Uid, DRIVER},
    once::Once,
    status::{self, DroppedStatus, Moment, Resize, Wish},
    tenants::{is_absent, TenantError, Tenants},
    threads,
};
use futures_util::AsyncBufReadExt;
use k8s_openapi::{
    api::resource::v1::{AllocatedDeviceStatus, ResourceClaim},
    jiff::Timestamp,
};
use kube::{
    api::{Patch, PatchParams},
    Client,
};
use serde_json::json;
use std::{
    collections::BTreeMap,
    mem,
    pin::pin,
    sync::Arc,
    time::{self, Duration},
};
use tokio::{
    sync::{Notify, Semaphore},
    task::JoinHandle,
    time::Instant,
};

/// How often the instances of a claim are looked at.
const PERIOD: Duration = Duration::from_secs(2);
/// Wait after an error.
const WAIT: Duration = Duration::from_secs(5);
/// Shortest time between two tries to write what the apiserver has dropped.
const TRIES: Duration = Duration::from_secs(30);
/// Of those who ask the control device about their claims, which waits for no tenant.
static TURNS: Semaphore = Semaphore::const_new(4);

/// Follows the claims of a node.
pub struct Keeper {
    /// The apiserver.
    pub client: Client,
    /// The node's pool.
    pub pool: String,
    /// The instances.
    pub tenants: Arc<Tenants>,
    /// Told when the claims of this node have changed.
    pub changed: Arc<Notify>,
    /// How long a claim that is gone keeps instances that nobody uses, in case that the kubelet
    /// unprepares it.
    pub grace: Duration,
    /// Told whether the apiserver keeps what is written to the claims.
    pub dropped: Arc<DroppedStatus>,
}

impl Keeper {
    /// Follows for as long as it is polled.
    pub async fn run(self) {
        let keeper = Arc::new(self);
        let mut tasks = Tasks(BTreeMap::new());
        loop {
            let plans = keeper.tenants.plans();
            tasks.0.retain(|uid, (plan, task)| {
                let stays = plans.get(uid) == Some(plan) && !task.is_finished();
                if !stays {
                    task.abort();
                }
                stays
            });
            for (uid, plan) in plans {
                tasks.0.entry(uid.clone()).or_insert_with(|| {
                    let following = Following::new(keeper.clone(), uid, plan.clone());
                    (plan, tokio::spawn(following.run()))
                });
            }
            // The journal may also be changed by another process of this program.
            let _ = tokio::time::timeout(WAIT, keeper.changed.notified()).await;
        }
    }
}

/// Tasks that end when the keeper does, each with the plan that it follows.
struct Tasks(BTreeMap<Uid, (Plan, JoinHandle<()>)>);

impl Drop for Tasks {
    fn drop(&mut self) {
        self.0.values().for_each(|(_, task)| task.abort());
    }
}

/// The parts of a claim that are followed.
struct Said {
    asked: Result<Resize, String>,
    was_resized: bool,
    /// Of its status those of this driver.
    devices: Vec<AllocatedDeviceStatus>,
}

impl Said {
    fn by(claim: ResourceClaim) -> Self {
        let (asked, was_resized) = (Resize::of(&claim), status::was_resized(&claim));
        let devices = claim.status.and_then(|s| s.devices).into_iter().flatten();
        Self {
            asked,
            was_resized,
            devices: devices.filter(|d| d.driver == DRIVER).collect(),
        }
    }
}

/// A wish for another size, and the thread that follows it.
struct Resizing {
    asked: Result<Resize, String>,
    thread: JoinHandle<Result<(), String>>,
}

/// One claim.
struct Following {
    keeper: Arc<Keeper>,
    uid: Uid,
    plan: Plan,
    /// The status that was last written to the claim.
    written: Option<Vec<AllocatedDeviceStatus>>,
    /// When that was.
    written_at: Option<Instant>,
    /// Whether the apiserver kept it: a feature gate may be off.
    kept: bool,
    /// The wish for another size, the one that is being followed, and its outcome.
    wish: Wish,
    resizing: Option<Resizing>,
    resized: Option<Result<(), String>>,
    /// An instance was not there, and was not made again yet.
    is_lost: bool,
    /// Why it cannot be.
    last: Once,
    /// Since when the claim has been gone, or allocated elsewhere.
    gone: Option<Instant>,
}

impl Following {
    fn new(keeper: Arc<Keeper>, uid: Uid, plan: Plan) -> Self {
        Self {
            keeper,
            uid,
            plan,
            written: None,
            written_at: None,
            kept: false,
            wish: Wish::default(),
            resizing: None,
            resized: None,
            is_lost: false,
            last: Once::default(),
            gone: None,
        }
    }

    fn claims(&self) -> ClaimApi {
        ClaimApi::of(self.keeper.client.clone(), &self.plan.namespace)
    }

    async fn run(mut self) {
        let mut last = Once::default();
        loop {
            let Err(error) = self.follow().await else {
                last.say(None);
                // Also where a server ends each watch at once.
                tokio::time::sleep(PERIOD).await;
                continue;
            };
            if self.keeper.tenants.plan(&self.uid).is_none() {
                // It was unprepared meanwhile, and may not be allocated any more.
                return;
            }
            let error = sentence(&error);
            let (namespace, name) = (&self.plan.namespace, &self.plan.name);
            last.say(Some(format!(
                "cannot follow the claim {namespace}/{name}: {error}"
            )));
            tokio::time::sleep(WAIT).await;
        }
    }

    /// One watch's time.
    async fn follow(&mut self) -> kube::Result<()> {
        let (Some(mut said), version) = self.read().await? else {
            self.clean_up().await;
            return Ok(());
        };
        self.gone = None;
        self.keeper.tenants.note_gone(&self.uid, false);
        self.doubt();
        self.step(&mut said).await?;
        let claims = self.claims();
        let mut events = pin!(claims.watch(&self.plan.name, &version).await?);
        let mut tick = tokio::time::interval_at(Instant::now() + PERIOD, PERIOD);
        let (mut is_old, mut deletions) = (false, Deletions::default());
        loop {
            tokio::select! {
                event = events.fill_buf() => {
                    let length = match event {
                        Ok([]) | Err(_) => return Ok(()),
                        Ok(bytes) => {
                            is_old = true;
                            deletions.note(bytes);
                            bytes.len()
                        }
                    };
                    events.consume_unpin(length);
                    // Users may change a claim all the time. What it says is read now and then,
                    // and at once only if it is gone.
                    if !deletions.take() {
                        continue;
                    }
                }
                _ = tick.tick() => {}
            }
            if mem::take(&mut is_old) {
                let (Some(new), _) = self.read().await? else {
                    self.clean_up().await;
                    return Ok(());
                };
                said = new;
            }
            self.step(&mut said).await?;
        }
    }

    /// Has what the apiserver has dropped be sent again: by now its feature gate may be on. That
    /// takes a restart of the apiserver, which ends the watch.
    fn doubt(&mut self) {
        let is_old = |at: Instant| at.elapsed() >= TRIES;
        if !self.kept && self.written_at.is_none_or(is_old) {
            self.written = None;
        }
    }

    /// Reads the claim, if the scheduler still has it where it was prepared, and its version.
    async fn read(&self) -> kube::Result<(Option<Said>, String)> {
        let (found, version) = self.claims().find(&self.plan.name).await?;
        let is_own = |claim: &ResourceClaim| {
            let uid = claim.metadata.uid.as_deref();
            uid == Some(self.uid.as_str()) && self.plan.is_allocated(claim, &self.keeper.pool)
        };
        Ok((found.filter(is_own).map(Said::by), version))
    }

    /// Does what the claim asks for, and writes to it what is.
    async fn step(&mut self, said: &mut Said) -> kube::Result<()> {
        self.restore(said).await;
        self.resize(said).await;
        let Some(moment) = self.moment().await else {
            return Ok(());
        };
        let before = self.written.as_deref().unwrap_or(&said.devices);
        let (pool, now) = (&self.keeper.pool, Timestamp::now());
        let devices = status::devices(&self.uid, &self.plan, pool, &moment, before, now);
        let is_there = !self.kept || status::tells_of(&said.devices, &devices);
        if is_there && self.written.as_deref() == Some(&devices) {
            return Ok(());
        }
        let patch = json!({
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaim",
            "metadata": {"name": self.plan.name, "uid": self.uid.as_str()},
            "status": {"devices": devices},
        });
        let by = PatchParams::apply(DRIVER).force();
        let claims = self.claims();
        let patch = Patch::Apply(patch);
        *said = Said::by(claims.patch_status(&self.plan.name, &by, &patch).await?);
        self.kept = status::tells_of(&said.devices, &devices);
        self.keeper.dropped.note(said.devices.is_empty());
        (self.written, self.written_at) = (Some(devices), Some(Instant::now()));
        Ok(())
    }

    /// Has a lost instance be made again. Its pods may have been started already, and then the
    /// kubelet does not ask for it.
    async fn restore(&mut self, said: &Said) {
        let instances = self.ask(|tenants, uid| tenants.instances(uid)).await;
        let instances = match instances {
            Ok(Ok(instances)) => instances,
            Ok(Err(error)) => {
                // Without the module there is nothing to make it with.
                self.last.say(Some(error.to_string()));
                return;
            }
            Err(_) => return,
        };
        let has = |minor| instances.iter().any(|i| i.key.gpu_minor == minor);
        self.is_lost |= !self.plan.shares.iter().all(|share| has(share.minor));
        if !self.is_lost {
            self.last.say(None);
            return;
        }
        let (plan, name) = (self.plan.clone(), self.uid.instance());
        let wish = said.asked.clone().unwrap_or_default();
        let restored = self.change(move |tenants, uid| tenants.restore(uid, &plan, &wish));
        let why = match restored.await {
            Ok(Ok(is_done)) => {
                self.is_lost = false;
                is_done.then(|| format!("the instance {name} was lost, and is made again"))
            }
            Ok(Err(error)) => Some(error.to_string()),
            Err(error) => Some(error.to_string()),
        };
        self.last.say(why);
    }

    /// Follows the claim's wish for another size, if it is time to. If that takes long, it goes on
    /// in its thread, and the outcome is seen in a later step.
    async fn resize(&mut self, said: &Said) {
        if self.resizing.is_none() {
            self.resizing = self.begin_resize(said).await;
        }
        let Some(Resizing { asked, thread }) = &mut self.resizing else {
            return;
        };
        let Ok(ended) = tokio::time::timeout(PERIOD, thread).await else {
            return;
        };
        let outcome = ended.unwrap_or_else(|error| Err(error.to_string()));
        self.wish
            .note(asked, outcome.is_err(), time::Instant::now());
        // Of a wish that was taken back there is nothing more to tell.
        let is_none = *asked == Ok(Resize::default()) && outcome.is_ok();
        self.resized = (!is_none).then_some(outcome);
        self.resizing = None;
    }

    /// Begins to follow it.
    async fn begin_resize(&self, said: &Said) -> Option<Resizing> {
        let (asked, now) = (said.asked.clone(), time::Instant::now());
        let instances = self.ask(|tenants, uid| tenants.instances(uid)).await;
        let instances = instances.ok()?.ok()?;
        let is_due = self.wish.is_due(&asked, &instances, said.was_resized, now);
        is_due.then(|| {
            let wish = asked.clone();
            let thread = self.change(move |tenants, uid| {
                let Resize {
                    memory_bytes,
                    weight,
                } = wish?;
                tenants.resize(uid, memory_bytes, weight)
            });
            Resizing { asked, thread }
        })
    }

    async fn moment(&self) -> Option<Moment> {
        let read = |tenants: &Tenants, uid: &Uid| match tenants.instances(uid) {
            // They go with the module.
            Err(TenantError::Control(errno)) if is_absent(errno) => Some((vec![], Ok(vec![]))),
            found => Some((found.ok()?, tenants.compute())),
        };
        let (instances, compute) = self.ask(read).await.ok()??;
        Some(Moment {
            instances,
            compute: compute.unwrap_or_default(),
            resized: self.resized.clone(),
        })
    }

    /// Asks the control device once one of the turns is free.
    async fn ask<T, F>(&self, question: F) -> Result<T, String>
    where
        T: Send + 'static,
        F: FnOnce(&Tenants, &Uid) -> T + Send + 'static,
    {
        let (tenants, uid) = (self.keeper.tenants.clone(), self.uid.clone());
        threads::ask(&TURNS, move || question(&tenants, &uid)).await
    }

    /// Changes the claim's instances, in a thread that may wait for a program of its pod.
    fn change<T, F>(&self, change: F) -> JoinHandle<T>
    where
        T: Send + 'static,
        F: FnOnce(&Tenants, &Uid) -> T + Send + 'static,
    {
        let (tenants, uid) = (self.keeper.tenants.clone(), self.uid.clone());
        tokio::task::spawn_blocking(move || change(&tenants, &uid))
    }

    /// The claim is gone, or elsewhere. The kubelet unprepares it; if it has forgotten that, this
    /// is done here.
    async fn clean_up(&mut self) {
        let since = *self.gone.get_or_insert_with(Instant::now);
        self.keeper.tenants.note_gone(&self.uid, true);
        if since.elapsed() < self.keeper.grace {
            return;
        }
        // While programs run, it is in use, and is tried again.
        let plan = self.plan.clone();
        let removed = self.change(move |tenants, uid| tenants.unprepare_as(uid, &plan));
        if matches!(removed.await, Ok(Ok(true))) {
            eprintln!(
                "cgpu-dra: the claim {}/{} was gone or elsewhere; its instance {} is removed",
                self.plan.namespace,
                self.plan.name,
                self.uid.instance()
            );
            self.keeper.changed.notify_one();
        }
    }
}
