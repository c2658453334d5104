// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Keeps this node's ResourceSlice as the GPUs are: written when they change, and written again
//! when somebody deletes it (the kubelet does so when it starts, and when this driver was away).

use crate::{
    apiserver::{answer, sentence, WATCH},
    failures::{Failure, Failures, Presence, Told},
    gpus::Inventory,
    kubelet::Health,
    names::DRIVER,
    once::Once,
    probes::Readiness,
    slices::{self, dropped, same},
    tenants::{is_absent, Look, Tenants},
};
use futures_util::{Stream, StreamExt};
use k8s_openapi::{
    api::{
        core::v1::Node,
        resource::v1::{Device, ResourceSlice},
    },
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference},
};
use kube::{
    api::{DeleteParams, ListParams, PostParams, WatchEvent, WatchParams},
    Api, Client,
};
use nix::errno::Errno;
use std::{
    collections::BTreeMap,
    future::Future,
    pin::pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};
use tokio::{sync::watch, task::JoinHandle, time::interval_at};

/// How often the GPUs are looked at. A look is some calls of the control device.
const PERIOD: Duration = Duration::from_secs(2);
/// How often while there is no instance: each look has the driver initialise all GPUs then, unless
/// something keeps them open. A new instance and another load of the driver are seen at once.
const IDLE_PERIOD: Duration = Duration::from_secs(30);
/// Wait after a watch, also where a server ends each at once, and after a first error.
const SHORTEST_WAIT: Duration = Duration::from_millis(250);
/// Shortest time between two tries to write what the apiserver has dropped.
const TRIES: Duration = Duration::from_secs(30);
/// Longest wait after errors.
const LONGEST_WAIT: Duration = Duration::from_secs(30);

/// A question to the control device, in a thread that may wait for the answer, and when it began.
/// Until then it is not asked again.
struct Asking<T>(Option<(JoinHandle<Result<T, Errno>>, Instant)>);

impl<T: Send + 'static> Asking<T> {
    /// Gives back the answer if it comes soon, and when the question began.
    async fn ask<F>(&mut self, question: F) -> (Option<Result<T, Errno>>, Instant)
    where
        F: FnOnce() -> Result<T, Errno> + Send + 'static,
    {
        let begin = || (tokio::task::spawn_blocking(question), Instant::now());
        let (mut asked, began) = self.0.take().unwrap_or_else(begin);
        match tokio::time::timeout(PERIOD, &mut asked).await {
            Ok(answer) => (Some(answer.unwrap_or(Err(Errno::EIO))), began),
            Err(_) => {
                self.0 = Some((asked, began));
                (None, began)
            }
        }
    }
}

/// Publishes the GPUs of a node.
pub struct Publisher {
    gpus: Looker,
    slices: Writer,
}

/// Looks at the GPUs, and tells the kubelet how they are.
struct Looker {
    tenants: Arc<Tenants>,
    failures: Failures,
    health: watch::Sender<Health>,
    /// The GPUs when the driver last answered.
    last: Inventory,
    presence: Presence,
    looking: Asking<Look>,
    /// When the driver last answered without an instance being there, and which load of it.
    idle: Option<(Instant, Option<u64>)>,
    /// The question whether the driver is there.
    asking: Asking<bool>,
    /// The devices of the slice that was there before the driver first answered.
    before: Vec<Device>,
}

/// Has the apiserver have the node's slice.
struct Writer {
    client: Client,
    node: String,
    /// The devices that were sent, and those that the apiserver kept.
    sent: Option<(Vec<Device>, Vec<Device>)>,
    /// When that was.
    written: Option<Instant>,
    generation: i64,
    lost: Arc<Mutex<Vec<&'static str>>>,
    readiness: Arc<Readiness>,
}

impl Publisher {
    /// A publisher for a node. `health` gets what the kubelet is told.
    pub fn new(
        client: Client,
        node: &str,
        tenants: Arc<Tenants>,
        failures: Failures,
        health: watch::Sender<Health>,
    ) -> Self {
        Self {
            gpus: Looker {
                tenants,
                failures,
                health,
                last: Inventory::default(),
                presence: Presence::default(),
                looking: Asking(None),
                idle: None,
                asking: Asking(None),
                before: vec![],
            },
            slices: Writer {
                client,
                node: node.to_owned(),
                sent: None,
                written: None,
                generation: 0,
                lost: Arc::default(),
                readiness: Arc::default(),
            },
        }
    }

    /// For probes: it is noted there that the GPUs are published.
    pub fn readiness(&self) -> Arc<Readiness> {
        self.slices.readiness.clone()
    }

    /// Fields that the apiserver has dropped, for figures.
    pub fn lost(&self) -> Arc<Mutex<Vec<&'static str>>> {
        self.slices.lost.clone()
    }

    /// Publishes for as long as it is polled.
    pub async fn run(mut self) {
        let (mut wait, mut last) = (SHORTEST_WAIT, Once::default());
        loop {
            let Err(error) = self.follow().await else {
                last.say(None);
                wait = SHORTEST_WAIT;
                tokio::time::sleep(wait).await;
                continue;
            };
            let (node, why) = (&self.slices.node, sentence(&error));
            last.say(Some(format!("cannot publish the GPUs of {node}: {why}")));
            self.gpus.meanwhile(tokio::time::sleep(wait)).await;
            wait = (wait * 2).min(LONGEST_WAIT);
        }
    }

    /// One watch's time.
    async fn follow(&mut self) -> kube::Result<()> {
        let Self { gpus, slices } = self;
        if gpus.never_seen() {
            let published = gpus.meanwhile(answer(slices.published())).await?;
            let newest = published.1.into_iter().next_back();
            if let Some(devices) = newest.and_then(|slice| slice.spec.devices) {
                gpus.before = devices;
            }
        }
        let devices = gpus.look().await;
        slices.doubt();
        let version = gpus.meanwhile(answer(slices.reconcile(devices))).await?;
        let events = gpus.meanwhile(answer(slices.watch(&version))).await?;
        let (mut events, mut tick) = (events.boxed(), tokio::time::interval(PERIOD));
        loop {
            tokio::select! {
                event = events.next() => match event {
                    // Our own changes come as well, and change nothing.
                    Some(event) => {
                        if let WatchEvent::Error(status) = event? {
                            return Err(kube::Error::Api(status));
                        }
                        let devices = gpus.look().await;
                        gpus.meanwhile(answer(slices.reconcile(devices))).await?;
                    }
                    None => return Ok(()),
                },
                _ = tick.tick() => {
                    let devices = gpus.look().await;
                    if slices.sent.as_ref().is_none_or(|(sent, _)| *sent != devices) {
                        gpus.meanwhile(answer(slices.reconcile(devices))).await?;
                    }
                }
            }
        }
    }
}

/// The meaning of an error for the driver. Pods are evicted where it is missing.
fn told_by(errno: Errno) -> Told {
    if is_absent(errno) {
        Told::Missing
    } else {
        Told::Nothing
    }
}

impl Looker {
    /// Waits for another's end. Meanwhile the kubelet hears how the GPUs are.
    async fn meanwhile<T>(&mut self, other: impl Future<Output = T>) -> T {
        let mut other = pin!(other);
        let mut tick = interval_at(tokio::time::Instant::now() + PERIOD, PERIOD);
        loop {
            tokio::select! {
                ended = other.as_mut() => return ended,
                _ = tick.tick() => drop(self.look().await),
            }
        }
    }

    /// Looks at the GPUs. Gives back what that has told of the driver, and when the look began.
    async fn read(&mut self) -> (Told, Instant) {
        let (tenants, load) = (self.tenants.clone(), self.tenants.driver_load());
        let is_fresh = |(at, of): (Instant, _)| of == load && at.elapsed() < IDLE_PERIOD;
        let may_rest = self.idle.is_some_and(is_fresh);
        let (found, began) = self.looking.ask(move || tenants.look(may_rest)).await;
        let told = match found {
            Some(Ok(Look::Rested)) => Told::There(None),
            Some(Ok(Look::Found { inventory, is_idle })) if !inventory.driver.is_empty() => {
                self.last = inventory;
                self.idle = is_idle.then(|| (Instant::now(), load));
                // While there are instances, the module answers by itself, and soon.
                Told::There(is_idle.then(|| began.elapsed()))
            }
            Some(Ok(_)) => {
                self.idle = None;
                Told::Missing
            }
            Some(Err(errno)) => {
                self.idle = None;
                told_by(errno)
            }
            None => {
                // Nobody's pods are to be kept away because a tenant holds up the report.
                let tenants = self.tenants.clone();
                let (is_there, _) = self.asking.ask(move || tenants.has_driver()).await;
                match is_there {
                    Some(Ok(true)) => Told::There(None),
                    Some(Ok(false)) => Told::Missing,
                    Some(Err(errno)) => told_by(errno),
                    None => Told::Nothing,
                }
            }
        };
        (told, began)
    }

    /// The devices as they are now. A GPU whose driver has gone stays, as one that has failed.
    async fn look(&mut self) -> Vec<Device> {
        let (told, began) = self.read().await;
        let driver = self.presence.after(told, began, Instant::now());
        let mut failed = self.failures.all();
        for gpu in &self.last.gpus {
            match driver {
                Some(Failure::DriverSilent) => {
                    // It evicts nobody, and an Xid may.
                    let of = failed.entry(gpu.pci.clone());
                    of.or_insert(Failure::DriverSilent);
                }
                Some(failure) => _ = failed.insert(gpu.pci.clone(), failure),
                None => {}
            }
        }
        self.tell(&failed, driver);
        match (self.never_seen(), driver) {
            (false, _) => slices::devices(&self.last, &failed),
            (true, None) => self.before.clone(),
            (true, Some(_)) => slices::awaited(&self.before),
        }
    }

    /// Whether the driver has not answered since this program began.
    fn never_seen(&self) -> bool {
        self.last.driver.is_empty()
    }

    fn tell(&self, failed: &BTreeMap<String, Failure>, driver: Option<Failure>) {
        let seen = self.last.gpus.iter();
        let seen = seen.map(|gpu| (gpu.device(), failed.get(&gpu.pci).copied()));
        let before = self.before.iter();
        let before = before.map(|d| (d.name.clone(), driver));
        let health: Health = if self.never_seen() {
            before.collect()
        } else {
            seen.collect()
        };
        self.health.send_if_modified(|old| {
            let new = *old != health;
            *old = health;
            new
        });
    }
}

impl Writer {
    fn slices(&self) -> Api<ResourceSlice> {
        Api::all(self.client.clone())
    }

    /// Has what the apiserver has dropped be sent again: by now its feature gate may be on. That
    /// takes a restart of the apiserver, which ends the watch.
    fn doubt(&mut self) {
        let is_old = |at: Instant| at.elapsed() >= TRIES;
        if !self.lost().is_empty() && self.written.is_none_or(is_old) {
            self.sent = None;
        }
    }

    fn lost(&self) -> MutexGuard<'_, Vec<&'static str>> {
        self.lost.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn selector(&self) -> String {
        format!("spec.driver={DRIVER},spec.nodeName={}", self.node)
    }

    /// The events of this node's slices.
    async fn watch(
        &self,
        version: &str,
    ) -> kube::Result<impl Stream<Item = kube::Result<WatchEvent<ResourceSlice>>> + use<>> {
        let watched = WatchParams::default().fields(&self.selector());
        let slices = self.slices();
        slices.watch(&watched.timeout(WATCH), version).await
    }

    /// The version to watch from, and this node's slices, the newest last.
    async fn published(&self) -> kube::Result<(String, Vec<ResourceSlice>)> {
        let listed = ListParams::default().fields(&self.selector());
        let found = self.slices().list(&listed).await?;
        let version = found.metadata.resource_version.unwrap_or_default();
        let mut own = found.items;
        own.sort_by_key(|slice| slice.spec.pool.generation);
        Ok((version, own))
    }

    /// Has the apiserver have one slice with these devices. Gives back the version to watch from.
    async fn reconcile(&mut self, devices: Vec<Device>) -> kube::Result<String> {
        let slices = self.slices();
        let (version, mut own) = self.published().await?;
        let newest = own.last().map_or(0, |slice| slice.spec.pool.generation);
        self.generation = self.generation.max(newest);
        let kept = own.pop();
        for old in own {
            let name = old.metadata.name.unwrap_or_default();
            slices.delete(&name, &DeleteParams::default()).await?;
        }
        if let Some(slice) = &kept {
            let there = slice.spec.devices.as_deref().unwrap_or_default();
            let as_kept = self
                .sent
                .as_ref()
                .is_some_and(|(sent, kept)| same(&devices, sent) && same(kept, there));
            if as_kept || same(&devices, there) {
                self.sent = Some((devices, there.to_vec()));
                self.readiness.note_published();
                return Ok(version);
            }
        }
        self.generation += 1;
        let spec = |devices| slices::spec(&self.node, self.generation, devices);
        let written = match kept {
            Some(mut slice) => {
                let name = slice.metadata.name.clone().unwrap_or_default();
                let there = slice.spec.devices.take().unwrap_or_default();
                slice.spec = spec(slices::with_times(devices.clone(), &there));
                slices
                    .replace(&name, &PostParams::default(), &slice)
                    .await?
            }
            None => {
                let slice = ResourceSlice {
                    metadata: self.metadata().await?,
                    spec: spec(devices.clone()),
                };
                slices.create(&PostParams::default(), &slice).await?
            }
        };
        let there = written.spec.devices.unwrap_or_default();
        self.compare(&devices, &there);
        self.written = Some(Instant::now());
        self.sent = Some((devices, there));
        self.readiness.note_published();
        Ok(version)
    }

    fn compare(&self, sent: &[Device], there: &[Device]) {
        let lost = dropped(sent, there);
        let mut before = self.lost();
        if *before != lost {
            for said in slices::gates_off(&lost) {
                eprintln!("cgpu-dra: {said}");
            }
        }
        *before = lost;
    }

    /// The slice goes with its node.
    async fn metadata(&self) -> kube::Result<ObjectMeta> {
        let nodes: Api<Node> = Api::all(self.client.clone());
        let node = nodes.get(&self.node).await?;
        Ok(ObjectMeta {
            generate_name: Some(format!("{}-{DRIVER}-", self.node)),
            owner_references: Some(vec![OwnerReference {
                api_version: "v1".to_owned(),
                kind: "Node".to_owned(),
                name: self.node.clone(),
                uid: node.metadata.uid.unwrap_or_default(),
                controller: Some(true),
                block_owner_deletion: None,
            }]),
            ..ObjectMeta::default()
        })
    }
}
