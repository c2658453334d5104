// SPDX-License-Identifier: GPL-2.0 OR MIT
//! A device plugin for the kubelet, for clusters before Kubernetes 1.34: a resource like
//! `cgpu.io/gpu-8g` for each profile, whose devices are the [`Slots`]. The kubelet forgets its
//! plugins when it starts, so they register again whenever its socket is another one.

use crate::{
    failures::{Failure, Failures, PATIENCE},
    node::{Node, Places, FAILED},
    once::Once,
    pods,
    probes::{self, Readiness},
    proto::{
        AllocateRequest, AllocateResponse, CdiDevice, ContainerAnswer, Nothing, PluginDevice,
        PluginDevices, RegisterRequest,
    },
    rpc::{ask, identity, listen, serve, streamed, unary, unknown, Answer, Call, SocketFile},
    slots::{driver_answers, Profile, Slot, SlotError, Slots},
    threads,
    unused::Unused,
};
use futures_util::{stream, StreamExt};
use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::sync::{watch, Semaphore};
use tonic::Status;

/// How often slots, GPUs and the kubelet's socket are looked at.
const PERIOD: Duration = Duration::from_secs(2);
/// Longest wait for the first slots. A node with many GPUs may initialise them all before.
const FIRST_WAIT: Duration = Duration::from_secs(30);
/// The largest answer of the kubelet to a registration, bytes.
const LARGEST: usize = 1 << 16;
const SERVICE: &str = "/v1beta1.DevicePlugin/";
/// Of the question whether the driver is there.
static TURN: Semaphore = Semaphore::const_new(1);
const HEALTHY: &str = "Healthy";
const UNHEALTHY: &str = "Unhealthy";

/// The operator's choices.
#[derive(Clone, Debug)]
pub struct PluginSettings {
    /// Paths on the node.
    pub places: Places,
    /// The kubelet's folder of device plugins.
    pub folder: PathBuf,
    /// The sizes.
    pub profiles: Vec<Profile>,
}

/// All slots, and whether each can be used.
type Devices = Vec<(Slot, bool)>;

/// The plugin of one profile.
struct Plugin {
    slots: Arc<Slots>,
    profile: Profile,
    devices: watch::Receiver<Devices>,
    readiness: Arc<Readiness>,
}

impl Plugin {
    async fn answer(self: Arc<Self>, call: Call) -> Answer {
        let path = call.uri().path().to_owned();
        if path == probes::CHECK {
            return self.readiness.answer(call).await;
        }
        match path.strip_prefix(SERVICE).unwrap_or_default() {
            // No options are the defaults: no call before a start, no preferences.
            "GetDevicePluginOptions" | "PreStartContainer" => {
                unary(call, |_: Nothing| std::future::ready(Ok(Nothing {}))).await
            }
            "ListAndWatch" => {
                let profile = self.profile.name.clone();
                let first = (self.devices.clone(), true);
                let states = stream::unfold(first, |(mut devices, first)| async move {
                    if !first && devices.changed().await.is_err() {
                        return None;
                    }
                    let now = devices.borrow_and_update().clone();
                    Some((now, (devices, false)))
                });
                let answers = states.map(move |now| Ok(list(&profile, &now)));
                streamed::<Nothing, PluginDevices>(call, answers.boxed()).await
            }
            "Allocate" => unary(call, move |request| self.clone().allocate(request)).await,
            _ => unknown(&path),
        }
    }

    async fn allocate(
        self: Arc<Self>,
        request: AllocateRequest,
    ) -> Result<AllocateResponse, Status> {
        let slots = self.slots.clone();
        let all = tokio::task::spawn_blocking(move || {
            let each = request.container_requests.iter();
            let each = each.map(|container| slots.allocate(&container.device_ids));
            each.collect::<Result<Vec<_>, _>>()
        });
        let all = all.await.map_err(|e| Status::internal(e.to_string()))?;
        let all = all.map_err(|e| Status::failed_precondition(e.to_string()))?;
        let answer = |name| ContainerAnswer {
            cdi_devices: vec![CdiDevice { name }],
        };
        Ok(AllocateResponse {
            container_responses: all.into_iter().map(answer).collect(),
        })
    }
}

fn list(profile: &str, devices: &Devices) -> PluginDevices {
    let own = devices.iter().filter(|(slot, _)| slot.profile == profile);
    PluginDevices {
        devices: own
            .map(|(slot, sound)| PluginDevice {
                id: slot.id.clone(),
                health: if *sound { HEALTHY } else { UNHEALTHY }.to_owned(),
            })
            .collect(),
    }
}

/// Has those that were there be there, and not be used. Says whether that is news.
fn none_is_sound(devices: &mut Devices) -> bool {
    let news = devices.iter().any(|(_, sound)| *sound);
    devices.iter_mut().for_each(|(_, sound)| *sound = false);
    news
}

/// Whether the driver is there, as far as that is told soon.
async fn has_driver(node: Arc<dyn Node>) -> bool {
    let told = threads::ask(&TURN, move || node.has_driver());
    matches!(tokio::time::timeout(PERIOD, told).await, Ok(Ok(Ok(true))))
}

/// Keeps the slots and says how they are, for as long as it is polled.
async fn look(
    node: Arc<dyn Node>,
    slots: Arc<Slots>,
    failures: Failures,
    tell: watch::Sender<Devices>,
) {
    let mut last = Once::default();
    let mut say = |why: Option<String>| {
        last.say(why.map(|why| format!("cannot keep the slots: {why}")));
    };
    loop {
        let (asked, slots, failures) = (node.clone(), slots.clone(), failures.clone());
        let node = node.clone();
        let mut found = tokio::task::spawn_blocking(move || {
            driver_answers(&*node)?;
            let failed = failures.all();
            let kept = slots.keep().map_err(|e| e.to_string())?;
            let with_health = |slot: Slot| {
                let sound = slot.missing.is_none() && !failed.contains_key(&slot.pci);
                (slot, sound)
            };
            Ok(kept.into_iter().map(with_health).collect::<Devices>())
        });
        let found = loop {
            let soon = tokio::time::timeout(PATIENCE, &mut found).await;
            if let Ok(found) = soon {
                break found;
            }
            if !has_driver(asked.clone()).await {
                say(Some(Failure::DriverGone.sentence()));
                tell.send_if_modified(none_is_sound);
            }
        };
        match found.unwrap_or_else(|e| Err(e.to_string())) {
            Ok(found) => {
                let why = found.iter().find_map(|(slot, _)| slot.missing.as_ref());
                say(why.map(SlotError::to_string));
                tell.send_if_modified(|old| {
                    let new = *old != found;
                    *old = found;
                    new
                });
            }
            Err::<_, String>(why) => {
                say(Some(why));
                tell.send_if_modified(none_is_sound);
            }
        }
        tokio::time::sleep(PERIOD).await;
    }
}

/// Puts slots back that no container has any more, for as long as it is polled: the next one may be
/// long in coming, and until then nobody is to be puzzled by one that is suspended or too small.
async fn put_back(slots: Arc<Slots>, kubelet: &Path, devices: watch::Receiver<Devices>) {
    let (mut unused, mut last) = (Unused::default(), Once::default());
    loop {
        tokio::time::sleep(PERIOD).await;
        let used = match pods::slots(kubelet).await {
            Ok(used) => used,
            Err(why) => {
                last.say(Some(format!("cannot see which slots are used: {why}")));
                // One that has started anew is given its time.
                unused = Unused::default();
                continue;
            }
        };
        let all: Vec<_> = devices.borrow().iter().map(|d| d.0.id.clone()).collect();
        let due = unused.due(all, &used, Instant::now());
        let done = if due.is_empty() {
            Ok(vec![])
        } else {
            let slots = slots.clone();
            let done = tokio::task::spawn_blocking(move || slots.put_back(&due)).await;
            done.map_err(|e| e.to_string())
                .and_then(|done| done.map_err(|e| e.to_string()))
        };
        let done = done.map(|done| done.iter().for_each(|id| unused.done(id)));
        last.say(
            done.err()
                .map(|why| format!("cannot put slots back: {why}")),
        );
    }
}

/// Serves and registers all profiles, until the kubelet's socket is another one.
async fn one_kubelet(
    settings: &PluginSettings,
    slots: &Arc<Slots>,
    devices: &watch::Receiver<Devices>,
) -> Result<(), String> {
    let kubelet = settings.folder.join("kubelet.sock");
    let before = identity(&kubelet);
    // Its receivers end when this ends.
    let (_serving, stop) = watch::channel(false);
    let (mut tasks, mut files) = (tokio::task::JoinSet::new(), Vec::new());
    let readiness = Arc::new(Readiness::default());
    // The kubelet hears of the devices itself.
    readiness.note_published();
    for profile in slots.profiles() {
        let path = settings.folder.join(profile.socket());
        let listener = listen(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        files.push(SocketFile::at(&path));
        let plugin = Arc::new(Plugin {
            slots: slots.clone(),
            profile: profile.clone(),
            devices: devices.clone(),
            readiness: readiness.clone(),
        });
        let handler = move |call| plugin.clone().answer(call);
        tasks.spawn(serve(listener, handler, stop.clone()));
        let request = RegisterRequest {
            version: "v1beta1".to_owned(),
            endpoint: profile.socket(),
            resource_name: profile.resource(),
        };
        let _: Nothing = ask(
            &kubelet,
            "/v1beta1.Registration/Register",
            &request,
            LARGEST,
        )
        .await?;
    }
    readiness.note_registered(true);
    while identity(&kubelet) == before {
        tokio::time::sleep(PERIOD).await;
    }
    Ok(())
}

/// Runs the device plugin until it is stopped. The slots stay: their containers run on.
pub async fn run(node: Arc<dyn Node>, settings: PluginSettings, mut stop: watch::Receiver<bool>) {
    let failures = Failures::at(settings.places.state.join(FAILED));
    let slots = Arc::new(Slots::new(
        node.clone(),
        settings.places.clone(),
        settings.profiles.clone(),
    ));
    let (tell, devices) = watch::channel(Devices::new());
    let pod_resources = settings.places.pod_resources.clone();
    let registered = async {
        // A kubelet that has started refuses its pods while it hears of no device. But in the end
        // it is told that there is none.
        let mut first = devices.clone();
        let some = first.wait_for(|devices| !devices.is_empty());
        let _ = tokio::time::timeout(FIRST_WAIT, some).await;
        let mut last = Once::default();
        loop {
            let ended = one_kubelet(&settings, &slots, &devices).await;
            let said = |why| format!("cannot register with the kubelet: {why}");
            last.say(ended.err().map(said));
            tokio::time::sleep(PERIOD).await;
        }
    };
    tokio::select! {
        () = look(node, slots.clone(), failures, tell) => {}
        () = put_back(slots.clone(), &pod_resources, devices.clone()) => {}
        () = registered => {}
        _ = stop.wait_for(|stop| *stop) => {}
    }
}
