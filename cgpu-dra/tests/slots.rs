// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The device plugin on real sockets: a kubelet of the test registers it, watches its devices and
//! has them given to containers, over a fake control device.

mod connection;
mod fake_node;

use cgpu_client::cdi::{faults, Edits, Spec};
use cgpu_dra::{
    device_plugin::{self, PluginSettings},
    failures::{Failures, PATIENCE},
    probes,
    proto::{
        AllocateRequest, AllocateResponse, ContainerDevices, ContainerRequest, ContainerResources,
        ListPodResourcesResponse, Nothing, PluginDevices, PodResources, RegisterRequest,
    },
    rpc,
    slots::Slots,
};
use cgpu_uapi::{mig, state, Instance, Limited, CGPUFS_MOUNT};
use connection::Connection;
use fake_node::FakeNode;
use std::{
    os::unix::fs::MetadataExt,
    path::PathBuf,
    sync::{atomic::Ordering, Arc, Mutex},
    time::{Duration, Instant},
};
use tokio::sync::watch;

const GIB: u64 = 1 << 30;

/// The kubelet's side: its folder, and who has registered.
struct Registry {
    folder: PathBuf,
    registered: Arc<Mutex<Vec<RegisterRequest>>>,
    stop: watch::Sender<bool>,
}

impl Registry {
    /// Listens at the kubelet's socket, as a kubelet that starts does: it removes all others.
    fn start(node: &FakeNode) -> Self {
        let folder = node.root.join("device-plugins");
        let _ = std::fs::remove_dir_all(&folder);
        let listener = rpc::listen(&folder.join("kubelet.sock")).expect("bound");
        let registered: Arc<Mutex<Vec<RegisterRequest>>> = Arc::default();
        let (stop, stopped) = watch::channel(false);
        let known = registered.clone();
        tokio::spawn(rpc::serve(
            listener,
            move |call| {
                let known = known.clone();
                async move {
                    assert_eq!(call.uri().path(), "/v1beta1.Registration/Register");
                    rpc::unary(call, move |request: RegisterRequest| {
                        known.lock().expect("held").push(request);
                        std::future::ready(Ok(Nothing {}))
                    })
                    .await
                }
            },
            stopped,
        ));
        Self {
            folder,
            registered,
            stop,
        }
    }

    /// The connection to the plugin of a resource, once it is registered.
    async fn plugin(&self, resource: &str) -> Connection {
        let began = Instant::now();
        loop {
            let known = self.registered.lock().expect("held").clone();
            if let Some(own) = known.iter().find(|r| r.resource_name == resource) {
                assert_eq!(own.version, "v1beta1");
                return Connection::open(&self.folder.join(&own.endpoint)).await;
            }
            assert!(began.elapsed() < Duration::from_secs(90), "{known:?}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

fn settings(node: &FakeNode, profiles: &[&str]) -> PluginSettings {
    PluginSettings {
        places: node.places(),
        folder: node.root.join("device-plugins"),
        profiles: profiles.iter().map(|p| p.parse().expect("read")).collect(),
    }
}

/// Runs the plugin until the sender is dropped.
fn run(node: &Arc<FakeNode>, profiles: &[&str]) -> watch::Sender<bool> {
    let (stop, stopped) = watch::channel(false);
    let settings = settings(node, profiles);
    tokio::spawn(device_plugin::run(node.clone(), settings, stopped));
    stop
}

/// Waits for a list of devices that is right.
async fn devices(
    plugin: &mut Connection,
    right: impl Fn(&[(String, String)]) -> bool,
) -> Vec<(String, String)> {
    let began = Instant::now();
    loop {
        let listed: PluginDevices = plugin.first("/v1beta1.DevicePlugin/ListAndWatch").await;
        let listed: Vec<_> = listed
            .devices
            .into_iter()
            .map(|d| (d.id, d.health))
            .collect();
        if right(&listed) {
            return listed;
        }
        assert!(began.elapsed() < Duration::from_secs(90), "{listed:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

fn ask_for(ids: &[&str]) -> AllocateRequest {
    AllocateRequest {
        container_requests: vec![ContainerRequest {
            device_ids: ids.iter().map(|id| (*id).to_owned()).collect(),
        }],
    }
}

/// All that an operator can set of an instance, as text.
fn all_of(node: &FakeNode, name: &str) -> String {
    node.with(|s| {
        let mut found = s
            .instances
            .iter()
            .filter(|i| i.key.name.as_str() == Some(name));
        let i = found.next().expect("there");
        let (compute, limits) = (&s.compute[&i.id], &s.limits[&i.id]);
        let own = (
            (i.memory_limit_bytes, i.weight, i.managed_mode),
            (i.capabilities, i.channel_limit),
            (compute.state, compute.burst_ms),
        );
        let limits: Vec<_> = limits.iter().map(|l| (l.what, l.is_set, l.limit)).collect();
        assert_eq!(limits.len(), Limited::ALL.len());
        format!("{own:?} {limits:?}")
    })
}

/// Changes all of it, as an operator does.
fn change(node: &FakeNode, name: &str) {
    node.with(|s| {
        let mut found = s.instances.iter_mut();
        let i = found
            .find(|i| i.key.name.as_str() == Some(name))
            .expect("there");
        (i.memory_limit_bytes, i.weight, i.managed_mode) = (GIB, 1, 2);
        (i.capabilities, i.channel_limit) = (1, 1000);
        let compute = s.compute.get_mut(&i.id).expect("there");
        compute.state |= state::SUSPENDED | state::HIGH_PRIORITY;
        compute.burst_ms = 7;
        for limit in s.limits.get_mut(&i.id).expect("there") {
            (limit.is_set, limit.limit) = (1, 3);
        }
    });
}

const ALLOCATE: &str = "/v1beta1.DevicePlugin/Allocate";

#[tokio::test]
async fn a_container_gets_the_slot_of_its_profile() {
    let node = FakeNode::new(2);
    let kubelet = Registry::start(&node);
    let _running = run(&node, &["8g=8Gi:20:3", "1g=1Gi:5:2"]);
    let mut plugin = kubelet.plugin("cgpu.io/gpu-8g").await;
    let listed = devices(&mut plugin, |found| found.len() == 6).await;
    // Once the others are registered as well.
    kubelet.plugin("cgpu.io/gpu-1g").await;
    let (began, socket) = (Instant::now(), kubelet.folder.join("cgpu.io-8g.sock"));
    while let Err(why) = probes::ask(&socket, true).await {
        assert!(began.elapsed() < Duration::from_secs(30), "{why}");
    }
    assert!(listed.contains(&("8g-gpu-1-2".to_owned(), "Healthy".to_owned())));
    // All are there before anybody asks.
    assert_eq!(node.limits().len(), 10);
    let limits: u64 = node.limits().iter().filter(|l| l.1 == 0).map(|l| l.2).sum();
    assert_eq!(limits, 26 * GIB);
    // An operator's changes end with the container.
    let name = "slot-8g-gpu-1-2";
    let before = all_of(&node, name);
    change(&node, name);
    assert_ne!(all_of(&node, name), before);
    let answer: AllocateResponse = plugin
        .call(ALLOCATE, &ask_for(&["8g-gpu-1-2"]))
        .await
        .expect("given");
    let name = &answer.container_responses[0].cdi_devices[0].name;
    assert_eq!(name, "cgpu.io/slot=8g-gpu-1-2");
    assert_eq!(all_of(&node, "slot-8g-gpu-1-2"), before);
    let text = std::fs::read(&node.cdi_files()[0]).expect("a CDI file");
    let spec: Spec = serde_json::from_slice(&text).expect("read");
    assert!(faults(&spec).is_empty(), "{:?}", faults(&spec));
    assert_eq!(spec.devices.len(), 10);
    assert_eq!(format!("{}={}", spec.kind, "8g-gpu-1-2"), *name);
}

/// The kubelet tells which container has which slot.
#[tokio::test]
async fn an_unused_slot_is_put_back() {
    let node = FakeNode::new(1);
    let used = Arc::new(Mutex::new(Some("1g-gpu-0-0")));
    let said = used.clone();
    let listener = rpc::listen(&node.places().pod_resources).expect("bound");
    let (_stop, stopped) = watch::channel(false);
    tokio::spawn(rpc::serve(
        listener,
        move |call| {
            let id = *said.lock().expect("held");
            rpc::unary(call, move |_: Nothing| {
                let own = |ids: Option<&str>| ContainerDevices {
                    resource_name: "cgpu.io/gpu-1g".to_owned(),
                    device_ids: ids.into_iter().map(str::to_owned).collect(),
                };
                let foreign = ContainerDevices {
                    resource_name: "example.com/gpu".to_owned(),
                    device_ids: vec!["1g-gpu-0-1".to_owned()],
                };
                let container = ContainerResources {
                    devices: vec![own(id), foreign],
                    ..ContainerResources::default()
                };
                let pod = PodResources {
                    containers: vec![container],
                    ..PodResources::default()
                };
                std::future::ready(Ok(ListPodResourcesResponse {
                    pod_resources: vec![pod],
                }))
            })
        },
        stopped,
    ));
    let kubelet = Registry::start(&node);
    let _running = run(&node, &["1g=1Gi:5:3"]);
    let mut plugin = kubelet.plugin("cgpu.io/gpu-1g").await;
    devices(&mut plugin, |found| found.len() == 3).await;
    let names = ["slot-1g-gpu-0-0", "slot-1g-gpu-0-1", "slot-1g-gpu-0-2"];
    let state = || names.map(|name| all_of(&node, name));
    let before = state();
    names.iter().for_each(|name| change(&node, name));
    // A program of the last one's container has outlived it.
    node.with(|s| s.instances[2].open_files = 1);
    let changed = state();
    let until = async |expected: [&String; 3]| {
        let began = Instant::now();
        while state().each_ref() != expected {
            assert!(began.elapsed() < Duration::from_secs(90), "{:?}", state());
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    until([&changed[0], &before[1], &changed[2]]).await;
    node.with(|s| s.instances[2].open_files = 0);
    until([&changed[0], &before[1], &before[2]]).await;
    *used.lock().expect("held") = None;
    until([&before[0], &before[1], &before[2]]).await;
}

/// Sources and places of the mounts that edits make, and the numbers of the nodes.
fn parts(edits: &Edits) -> (Vec<(&str, &str)>, Vec<Option<u32>>) {
    let mounts = edits.mounts.iter();
    let mounts = mounts.map(|m| (m.host_path.as_str(), m.container_path.as_str()));
    let nodes = edits.device_nodes.iter();
    (mounts.collect(), nodes.map(|n| n.minor).collect())
}

#[test]
fn each_slot_has_nodes_of_its_own() {
    let node = FakeNode::new(2);
    let profiles = ["8g=8Gi:20:2", "1g=1Gi:5:1"].map(|p| p.parse().expect("read"));
    let slots = Slots::new(node.clone(), node.places(), profiles.to_vec());
    let kept = slots.keep().expect("kept");
    // Each tenant has its own numbers on a real host.
    node.with(|s| {
        for (n, instance) in (0..).zip(&mut s.instances) {
            (instance.control_node_minor, instance.uvm_node_minor) = (200 + 2 * n, 201 + 2 * n);
        }
    });
    slots.keep().expect("kept");
    let text = std::fs::read(&node.cdi_files()[0]).expect("a CDI file");
    let spec: Spec = serde_json::from_slice(&text).expect("read");
    for slot in &kept {
        let device = spec.devices.iter().find(|d| d.name == slot.id);
        let edits = &device.expect("a device").container_edits;
        let name = format!("slot-{}", slot.id);
        let own = |i: &&Instance| i.key.name.as_str() == Some(&name);
        let instance = node.with(|s| *s.instances.iter().find(own).expect("there"));
        let source = |file: &str| format!("{CGPUFS_MOUNT}/{name}/{file}");
        let gpu = format!("nvidia{}", instance.key.gpu_minor);
        let files = [&gpu, "nvidiactl", "nvidia-uvm"].map(|f| (source(f), format!("/dev/{f}")));
        let expected = files
            .each_ref()
            .map(|(from, to)| (from.as_str(), to.as_str()));
        let (mounts, nodes) = parts(edits);
        assert_eq!(mounts, expected);
        let (control, uvm) = (instance.control_node_minor, instance.uvm_node_minor);
        let numbers = [instance.node_minor, control, uvm];
        assert_eq!(nodes, numbers.map(Some));
        assert_eq!(edits.hooks[0].args[2..], ["--gpu", &slot.pci]);
    }
    // Beside the devices is what is nobody's.
    let library = "/usr/lib/libcuda.so.580.159.04";
    let shared = &spec.container_edits;
    assert_eq!(parts(shared), (vec![(library, library)], vec![]));
    assert!(shared.hooks.is_empty());
}

#[tokio::test]
async fn what_cannot_be_given_is_refused() {
    let node = FakeNode::new(1);
    let kubelet = Registry::start(&node);
    let _running = run(&node, &["8g=8Gi:20:3"]);
    let mut plugin = kubelet.plugin("cgpu.io/gpu-8g").await;
    devices(&mut plugin, |found| found.len() == 3).await;
    for ids in [
        &["8g-gpu-0-0", "8g-gpu-0-1"][..],
        &["../../etc/passwd"],
        &["8g-gpu-0-3"],
        &[],
    ] {
        let refused = plugin
            .call::<AllocateResponse>(ALLOCATE, &ask_for(ids))
            .await;
        // FAILED_PRECONDITION
        assert_eq!(refused, Err("9".to_owned()), "{ids:?}");
    }
    let unknown = plugin
        .call::<Nothing>("/v1beta1.DevicePlugin/Nothing", &Nothing {})
        .await;
    assert_eq!(unknown, Err("12".to_owned()));
    let garbage = plugin.raw::<AllocateResponse>(ALLOCATE, &[0xff; 40]).await;
    assert!(garbage.is_err());
}

#[tokio::test]
async fn profiles_beyond_a_gpu_give_no_slot() {
    let refused = async |profiles: &[&str]| {
        let node = FakeNode::new(1);
        let kubelet = Registry::start(&node);
        let _running = run(&node, profiles);
        let mut plugin = kubelet.plugin("cgpu.io/gpu-8g").await;
        devices(&mut plugin, <[_]>::is_empty).await;
        let refused = plugin
            .call::<AllocateResponse>(ALLOCATE, &ask_for(&["8g-gpu-0-0"]))
            .await;
        assert_eq!(refused, Err("9".to_owned()));
        assert!(node.limits().is_empty() && node.journal().is_empty());
    };
    tokio::join!(
        refused(&["8g=8Gi:1:20"]),
        refused(&["8g=8Gi:60:1", "1g=1Gi:20:3"])
    );
}

/// The kubelet refuses pods that it had admitted before its start, while it hears of no device.
#[tokio::test]
async fn kubelet_first_hears_of_all_slots() {
    let node = FakeNode::new(1);
    node.stuck.store(true, Ordering::Relaxed);
    let kubelet = Registry::start(&node);
    let _running = run(&node, &["8g=8Gi:20:3"]);
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(*kubelet.registered.lock().expect("held"), []);
    node.stuck.store(false, Ordering::Relaxed);
    let mut plugin = kubelet.plugin("cgpu.io/gpu-8g").await;
    let first: PluginDevices = plugin.first("/v1beta1.DevicePlugin/ListAndWatch").await;
    assert_eq!(first.devices.len(), 3);
}

#[tokio::test]
async fn a_kubelet_that_starts_anew_is_told_again() {
    let node = FakeNode::new(1);
    let first = Registry::start(&node);
    let _running = run(&node, &["8g=8Gi:20:3"]);
    let mut plugin = first.plugin("cgpu.io/gpu-8g").await;
    devices(&mut plugin, |found| found.len() == 3).await;
    let before = node.limits();
    let _ = first.stop.send(true);
    let second = Registry::start(&node);
    let mut plugin = second.plugin("cgpu.io/gpu-8g").await;
    devices(&mut plugin, |found| found.len() == 3).await;
    assert_eq!(node.limits(), before);
}

#[tokio::test]
async fn successors_sockets_stay_until_their_own_end() {
    let node = FakeNode::new(1);
    let start = |kubelet: &Registry| {
        kubelet.registered.lock().expect("held").clear();
        let (stop, stopped) = watch::channel(false);
        let settings = settings(&node, &["8g=8Gi:20:3"]);
        let running = tokio::spawn(device_plugin::run(node.clone(), settings, stopped));
        (stop, running)
    };
    let kubelet = Registry::start(&node);
    let first = start(&kubelet);
    kubelet.plugin("cgpu.io/gpu-8g").await;
    let second = start(&kubelet);
    kubelet.plugin("cgpu.io/gpu-8g").await;
    let socket = kubelet.registered.lock().expect("held")[0].endpoint.clone();
    let socket = kubelet.folder.join(socket);
    for ((stop, running), is_left) in [(first, true), (second, false)] {
        drop(stop);
        running.await.expect("ended");
        assert_eq!(socket.exists(), is_left);
    }
}

/// Whether there is one device, of this health.
fn one_is(found: &[(String, String)], health: &str) -> bool {
    matches!(found, [(_, told)] if told == health)
}

#[tokio::test]
async fn slots_of_failed_gpu_are_unhealthy() {
    let node = FakeNode::new(1);
    let kubelet = Registry::start(&node);
    let _running = run(&node, &["8g=8Gi:20:1"]);
    let mut plugin = kubelet.plugin("cgpu.io/gpu-8g").await;
    devices(&mut plugin, |found| one_is(found, "Healthy")).await;
    let failures = Failures::at(node.places().state.join("failed"));
    failures.note("0000:29:00.0", 79).expect("noted");
    devices(&mut plugin, |found| one_is(found, "Unhealthy")).await;
    failures.forget().expect("forgotten");
    devices(&mut plugin, |found| one_is(found, "Healthy")).await;
    node.driver_gone.store(true, Ordering::Relaxed);
    devices(&mut plugin, |found| one_is(found, "Unhealthy")).await;
    node.driver_gone.store(false, Ordering::Relaxed);
    devices(&mut plugin, |found| one_is(found, "Healthy")).await;
    // A tenant that holds up the reports does not fail the GPU for the others.
    node.with(|s| s.held_up = true);
    let failed = devices(&mut plugin, |found| one_is(found, "Unhealthy"));
    let failed = tokio::time::timeout(2 * PATIENCE, failed).await;
    assert!(failed.is_err(), "{failed:?}");
    node.with(|s| s.held_up = false);
    // A call that does not come back.
    node.stuck.store(true, Ordering::Relaxed);
    devices(&mut plugin, |found| one_is(found, "Unhealthy")).await;
    node.stuck.store(false, Ordering::Relaxed);
    devices(&mut plugin, |found| one_is(found, "Healthy")).await;
}

#[tokio::test]
async fn slots_of_removed_profile_are_removed() {
    let node = FakeNode::new(1);
    let kubelet = Registry::start(&node);
    let running = run(&node, &["8g=8Gi:20:2"]);
    let mut plugin = kubelet.plugin("cgpu.io/gpu-8g").await;
    devices(&mut plugin, |found| found.len() == 2).await;
    drop(running);
    let kubelet = Registry::start(&node);
    let _running = run(&node, &["4g=4Gi:20:2"]);
    let mut plugin = kubelet.plugin("cgpu.io/gpu-4g").await;
    devices(&mut plugin, |found| found.len() == 2).await;
    let limits: Vec<_> = node.limits().iter().map(|l| l.2).collect();
    assert_eq!(limits, [4 * GIB, 4 * GIB]);
}

#[tokio::test]
async fn smaller_slots_make_room_for_more() {
    let node = FakeNode::new(1);
    let large = "8g=64Gi:40:2".parse().expect("read");
    let before = Slots::new(node.clone(), node.places(), vec![large]);
    before.keep().expect("kept");
    // A container has one.
    let used = |files| node.with(|s| s.instances[0].tenant_open_files = files);
    used(1);
    let kubelet = Registry::start(&node);
    let _running = run(&node, &["8g=32Gi:20:4"]);
    let mut plugin = kubelet.plugin("cgpu.io/gpu-8g").await;
    let listed = devices(&mut plugin, |found| found.len() == 4).await;
    // Only the one that has no room cannot be used.
    let bad: Vec<_> = listed.iter().filter(|d| d.1 != "Healthy").collect();
    assert_eq!(bad, [&("8g-gpu-0-3".to_owned(), "Unhealthy".to_owned())]);
    let sizes = || node.limits().iter().map(|l| l.2 / GIB).collect::<Vec<_>>();
    assert_eq!(sizes(), [64, 32, 32]);
    let refused = plugin
        .call::<AllocateResponse>(ALLOCATE, &ask_for(&["8g-gpu-0-3"]))
        .await;
    assert_eq!(refused, Err("9".to_owned()));
    plugin
        .call::<AllocateResponse>(ALLOCATE, &ask_for(&["8g-gpu-0-2"]))
        .await
        .expect("given");
    used(0);
    let healthy = |found: &[(String, String)]| found.iter().all(|d| d.1 == "Healthy");
    devices(&mut plugin, healthy).await;
    assert_eq!(sizes(), [32, 32, 32, 32]);
    assert!(node.with(|s| s.instances.iter().all(|i| i.weight == 20)));
}

#[test]
fn slots_are_kept_by_one_at_a_time() {
    let node = FakeNode::new(2);
    let profile = "1g=1Gi:1:20".parse().expect("read");
    let slots = Slots::new(node.clone(), node.places(), vec![profile]);
    let at_once = std::sync::Barrier::new(8);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                at_once.wait();
                let kept = slots.keep().expect("kept");
                assert!(kept.iter().all(|slot| slot.missing.is_none()), "{kept:?}");
            });
        }
    });
    assert_eq!(node.limits().len(), 40);
}

#[test]
fn a_module_loaded_anew_is_mounted_again() {
    let node = FakeNode::new(1);
    let profile = "8g=8Gi:20:1".parse().expect("read");
    let slots = Slots::new(node.clone(), node.places(), vec![profile]);
    for _ in 0..2 {
        slots.keep().expect("kept");
        assert!(node.mounted.load(Ordering::Relaxed));
        // Or `cgpuctl unload` removes the folder that the plugin's container has.
        assert!(node.places().state.is_dir());
        // The same instances as before, with the same numbers.
        node.mounted.store(false, Ordering::Relaxed);
    }
}

#[test]
fn the_cdi_file_follows_what_is_installed() {
    let node = FakeNode::new(1);
    let profile = "8g=8Gi:20:4".parse().expect("read");
    let slots = Slots::new(node.clone(), node.places(), vec![profile]);
    let read = || {
        slots.keep().expect("kept");
        let files = node.cdi_files();
        let [file] = &files[..] else {
            panic!("{files:?}");
        };
        let text = std::fs::read(file).expect("read");
        let spec: Spec = serde_json::from_slice(&text).expect("a spec");
        let inode = std::fs::metadata(file).expect("there").ino();
        (spec.devices[0].container_edits.hooks.len(), inode)
    };
    node.hook_missing.store(true, Ordering::Relaxed);
    let without = read();
    assert_eq!(without.0, 0);
    // A file that is right already is not written again.
    assert_eq!(read(), without);
    node.hook_missing.store(false, Ordering::Relaxed);
    assert_eq!(read().0, 1);
    // Without slots there is no file.
    node.with(|s| s.gpus[0].mig_mode = mig::ENABLED);
    assert_eq!(slots.keep(), Ok(vec![]));
    assert_eq!(node.cdi_files(), Vec::<PathBuf>::new());
}
