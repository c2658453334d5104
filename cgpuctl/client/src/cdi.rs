// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The Container Device Interface (CDI): the file by which podman, docker, containerd and CRI-O
//! know what `--device cgpu.io/gpu=NAME` means, one device for each tenant.
//!
//! The file says the lowest version of CDI that has all that is used in it, as its specification
//! asks: every engine that reads a later version reads it too.

use crate::container::{self, HostNode, Mount};
use cgpu_uapi::{text, Gpu, Instance, Name};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// Vendor and class: `--device cgpu.io/gpu=NAME`.
pub const KIND: &str = "cgpu.io/gpu";
/// The version that is written: 0.5.0 brought names that begin with a digit and the numbers of
/// nodes.
pub const VERSION: &str = "0.5.0";
/// Versions that there are (SPEC.md).
const VERSIONS: [&str; 11] = [
    "0.1.0", "0.2.0", "0.3.0", "0.4.0", "0.5.0", "0.6.0", "0.7.0", "0.8.0", "1.0.0", "1.1.0",
    "1.2.0",
];
/// The folders in which engines look, the first before the second (CDI: `DefaultSpecDirs`).
pub const FOLDERS: [&str; 2] = ["/etc/cdi", "/run/cdi"];

/// A CDI file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Spec {
    /// Version of the specification.
    pub cdi_version: String,
    /// Vendor and class.
    pub kind: String,
    /// The devices that an engine may be asked for.
    pub devices: Vec<SpecDevice>,
    /// Changes that each of them brings along.
    #[serde(default, skip_serializing_if = "Edits::is_empty")]
    pub container_edits: Edits,
}

/// A device of a CDI file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SpecDevice {
    /// Its name, for us the tenant's.
    pub name: String,
    /// Changes that it brings along.
    pub container_edits: Edits,
}

/// Changes to a container's configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Edits {
    /// `NAME=VALUE`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub env: Vec<String>,
    /// Device nodes, made and allowed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub device_nodes: Vec<Node>,
    /// Bind mounts.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub mounts: Vec<Bind>,
    /// Programs that the runtime calls.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub hooks: Vec<Hook>,
}

impl Edits {
    fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// A device node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Node {
    /// In the container.
    pub path: String,
    /// On the host; the same if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_path: Option<String>,
    /// `c` or `b`; `p` or `u`.
    #[serde(rename = "type", default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Its number; read from the host's node if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub major: Option<u32>,
    /// Its number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub minor: Option<u32>,
    /// Of `r`, `w` and `m`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub permissions: Option<String>,
}

/// A bind mount.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Bind {
    /// On the host.
    pub host_path: String,
    /// In the container.
    pub container_path: String,
    /// As `mount -o` takes them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub options: Vec<String>,
}

/// A program that the runtime calls.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Hook {
    /// When.
    pub hook_name: String,
    /// On the host.
    pub path: String,
    /// All of them, the program's name first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub args: Vec<String>,
}

/// The parts of a host that go into its CDI file beside the instances.
#[derive(Clone, Debug, Default)]
pub struct Surroundings {
    /// The driver's libraries and programs.
    pub libraries: Vec<Mount>,
    /// The hook that masks `/proc/driver/nvidia`, if there is one.
    pub hook: Option<String>,
}

/// Instances of one name, in the order of their GPUs.
#[derive(Clone)]
pub struct Tenant {
    /// Their name.
    pub name: Name,
    /// By GPU.
    pub instances: Vec<Instance>,
}

/// The tenants of these instances, by name.
pub fn tenants(mut instances: Vec<Instance>) -> Vec<Tenant> {
    instances.sort_by_key(|i| (i.key.name.0, i.key.gpu_minor));
    let mut tenants: Vec<Tenant> = Vec::new();
    for instance in instances {
        match tenants.last_mut() {
            Some(last) if last.name == instance.key.name => last.instances.push(instance),
            _ => tenants.push(Tenant {
                name: instance.key.name,
                instances: vec![instance],
            }),
        }
    }
    tenants
}

/// Whether CDI can call a device by this name: it begins and ends with a letter or a digit, and has
/// letters, digits, dots, underscores, hyphens and colons in between.
pub fn is_name(name: &str) -> bool {
    let ends = name
        .bytes()
        .next()
        .into_iter()
        .chain(name.bytes().next_back());
    !name.is_empty()
        && ends.into_iter().all(|b| b.is_ascii_alphanumeric())
        && name
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"._-:".contains(&b))
}

/// The file for these tenants; a tenant whose name CDI does not know is left out.
pub fn make(tenants: &[Tenant], gpus: &[Gpu], around: &Surroundings) -> Spec {
    Spec {
        cdi_version: VERSION.to_owned(),
        kind: KIND.to_owned(),
        devices: tenants
            .iter()
            .filter_map(|tenant| device(tenant, gpus, around.hook.as_deref()))
            .collect(),
        container_edits: Edits {
            // NVIDIA's own runtime and hook must not add the real GPU to the same container.
            env: vec!["NVIDIA_VISIBLE_DEVICES=void".to_owned()],
            mounts: around.libraries.iter().map(|m| bind(m, LIBRARY)).collect(),
            ..Edits::default()
        },
    }
}

/// Proxy nodes are device nodes: everything but `nodev`.
const PROXY_NODE: [&str; 4] = ["bind", "rw", "nosuid", "noexec"];
const LIBRARY: [&str; 4] = ["bind", "ro", "nosuid", "nodev"];

fn bind(mount: &Mount, options: [&str; 4]) -> Bind {
    Bind {
        host_path: mount.source.clone(),
        container_path: mount.destination.clone(),
        options: options.map(str::to_owned).to_vec(),
    }
}

fn node(device: HostNode) -> Node {
    Node {
        path: device.path,
        host_path: None,
        kind: Some("c".to_owned()),
        major: Some(device.major),
        minor: Some(device.minor),
        permissions: Some("rw".to_owned()),
    }
}

fn hooks(hook: Option<&str>, instances: &[Instance], gpus: &[Gpu]) -> Vec<Hook> {
    let hook = hook.map(|path| Hook {
        hook_name: "createContainer".to_owned(),
        path: path.to_owned(),
        args: hook_arguments(instances, gpus),
    });
    hook.into_iter().collect()
}

fn device(tenant: &Tenant, gpus: &[Gpu], hook: Option<&str>) -> Option<SpecDevice> {
    let name = tenant.name.as_str().filter(|name| is_name(name))?;
    let devices = container::host_nodes(name, &tenant.instances);
    let nodes_shown = container::proxy_nodes(name, &tenant.instances);
    Some(SpecDevice {
        name: name.to_owned(),
        container_edits: Edits {
            env: vec![],
            device_nodes: devices.into_iter().map(node).collect(),
            mounts: nodes_shown.iter().map(|m| bind(m, PROXY_NODE)).collect(),
            hooks: hooks(hook, &tenant.instances, gpus),
        },
    })
}

/// The file of one tenant whose GPUs are given to containers one by one: a device for each GPU,
/// under the name that `called` gives it. What a container needs whichever GPUs it has (control
/// and UVM node, libraries, hook) stands beside the devices, where an engine takes it once.
/// Files of several tenants cannot be joined. `None`: the tenant's name is none.
pub fn make_by_gpu(
    kind: &str,
    tenant: &Tenant,
    gpus: &[Gpu],
    around: &Surroundings,
    called: impl Fn(&Instance) -> String,
) -> Option<Spec> {
    let name = tenant.name.as_str()?;
    let own = |instance: &Instance| {
        let one = std::slice::from_ref(instance);
        SpecDevice {
            name: called(instance),
            container_edits: Edits {
                device_nodes: container::host_nodes(name, one)
                    .into_iter()
                    .take(1)
                    .map(node)
                    .collect(),
                mounts: container::proxy_nodes(name, one)
                    .iter()
                    .take(1)
                    .map(|m| bind(m, PROXY_NODE))
                    .collect(),
                ..Edits::default()
            },
        }
    };
    let count = tenant.instances.len();
    let nodes = container::host_nodes(name, &tenant.instances);
    let shown = container::proxy_nodes(name, &tenant.instances);
    let shown = shown.iter().skip(count).map(|m| bind(m, PROXY_NODE));
    let mut spec = make(&[], gpus, around);
    spec.kind = kind.to_owned();
    spec.devices = tenant.instances.iter().map(own).collect();
    let edits = &mut spec.container_edits;
    edits.device_nodes = nodes.into_iter().skip(count).map(node).collect();
    edits.mounts.splice(0..0, shown);
    edits.hooks = hooks(around.hook.as_deref(), &tenant.instances, gpus);
    Some(spec)
}

/// `cgpu-hook mask-proc --gpu ADDRESS ...`: the GPUs that stay visible.
fn hook_arguments(instances: &[Instance], gpus: &[Gpu]) -> Vec<String> {
    let addresses = instances
        .iter()
        .filter_map(|i| gpus.iter().find(|g| g.minor == i.key.gpu_minor))
        .flat_map(|gpu| ["--gpu".to_owned(), text(&gpu.pci).to_owned()]);
    ["cgpu-hook", "mask-proc"]
        .map(str::to_owned)
        .into_iter()
        .chain(addresses)
        .collect()
}

/// The faults of a file by the rules of CDI (`pkg/cdi/validate`, `pkg/parser`), a sentence
/// each.
pub fn faults(spec: &Spec) -> Vec<String> {
    let mut faults = Vec::new();
    if !VERSIONS.contains(&spec.cdi_version.as_str()) {
        faults.push(format!("there is no CDI version {:?}", spec.cdi_version));
    }
    match spec.kind.split_once('/') {
        Some((vendor, class)) if is_label(vendor) && is_label(class) => {}
        _ => faults.push(format!("{:?} is not of the form vendor/class", spec.kind)),
    }
    if spec.devices.is_empty() {
        faults.push("it has no devices".to_owned());
    }
    let mut names = BTreeSet::new();
    for device in &spec.devices {
        let name = &device.name;
        if !is_name(name) {
            faults.push(format!("{name:?} cannot be a device's name"));
        }
        if !names.insert(name) {
            faults.push(format!("the device {name:?} is there twice"));
        }
        if device.container_edits.is_empty() {
            faults.push(format!("the device {name:?} does nothing"));
        }
        faults_of(&device.container_edits, &mut faults);
    }
    faults_of(&spec.container_edits, &mut faults);
    faults
}

/// A vendor or a class: begins with a letter, ends with a letter or digit.
fn is_label(text: &str) -> bool {
    text.bytes().next().is_some_and(|b| b.is_ascii_alphabetic())
        && text
            .bytes()
            .next_back()
            .is_some_and(|b| b.is_ascii_alphanumeric())
        && text
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b))
}

const HOOKS: [&str; 6] = [
    "prestart",
    "createRuntime",
    "createContainer",
    "startContainer",
    "poststart",
    "poststop",
];

fn faults_of(edits: &Edits, faults: &mut Vec<String>) {
    for env in &edits.env {
        if env.split_once('=').is_none_or(|(name, _)| name.is_empty()) {
            faults.push(format!("{env:?} is no environment variable"));
        }
    }
    for node in &edits.device_nodes {
        let path = &node.path;
        if !path.starts_with('/') {
            faults.push(format!("the node {path:?} has no absolute path"));
        }
        if let Some(kind) = node.kind.as_deref() {
            if !["b", "c", "u", "p"].contains(&kind) {
                faults.push(format!("{path} has the unknown type {kind:?}"));
            }
        }
        let rights = node.permissions.as_deref().unwrap_or_default();
        if !rights.bytes().all(|b| b"rwm".contains(&b)) {
            faults.push(format!("{path} has the unknown permissions {rights:?}"));
        }
    }
    for mount in &edits.mounts {
        for path in [&mount.host_path, &mount.container_path] {
            if !path.starts_with('/') {
                faults.push(format!("the mount's path {path:?} is not absolute"));
            }
        }
    }
    for hook in &edits.hooks {
        if !HOOKS.contains(&hook.hook_name.as_str()) {
            faults.push(format!("there is no hook {:?}", hook.hook_name));
        }
        if !hook.path.starts_with('/') {
            faults.push(format!("the hook's path {:?} is not absolute", hook.path));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = r#"{"cdiVersion": "1.0.0", "kind": "cgpu.io/gpu", "devices": [{"name": "a",
        "containerEdits": {"deviceNodes": [{"path": "/dev/cgpu0", "type": "c", "permissions": "rw"}],
        "mounts": [{"hostPath": "/run/x", "containerPath": "/dev/x", "options": ["bind"]}],
        "hooks": [{"hookName": "createContainer", "path": "/sbin/hook"}], "env": ["A=b"]}}]}"#;

    #[test]
    fn each_rule_finds_its_fault() {
        let parsed: Spec = serde_json::from_str(GOOD).expect("a spec");
        assert_eq!(faults(&parsed), Vec::<String>::new());
        for (good, bad, said) in [
            ("1.0.0", "0.9.9", "version"),
            ("cgpu.io/gpu", "gpu", "vendor/class"),
            ("cgpu.io/gpu", "1cgpu/gpu", "vendor/class"),
            (r#""name": "a""#, r#""name": "-a""#, "name"),
            ("/dev/cgpu0", "dev/cgpu0", "absolute"),
            (r#""type": "c""#, r#""type": "x""#, "type"),
            (r#""rw""#, r#""rwx""#, "permissions"),
            ("/run/x", "run/x", "absolute"),
            ("/dev/x", "", "absolute"),
            ("createContainer", "createcontainer", "hook"),
            ("/sbin/hook", "hook", "absolute"),
            ("A=b", "=b", "environment"),
        ] {
            let text = GOOD.replacen(good, bad, 1);
            let spec: Spec = serde_json::from_str(&text).expect(&text);
            let found = faults(&spec);
            assert!(
                found.len() == 1 && found[0].contains(said),
                "{bad}: {found:?}"
            );
        }
        for bad in ["hostpath", "containerPaths"] {
            let text = GOOD.replacen("hostPath", bad, 1);
            assert!(serde_json::from_str::<Spec>(&text).is_err(), "{bad}");
        }
        let mut twice = parsed.clone();
        twice.devices.extend(parsed.devices.clone());
        assert!(faults(&twice)[0].contains("twice"));
        let none = Spec {
            devices: vec![],
            ..parsed.clone()
        };
        assert!(faults(&none)[0].contains("no devices"));
        let mut idle = parsed;
        idle.devices[0].container_edits = Edits::default();
        assert!(faults(&idle)[0].contains("does nothing"));
    }

    #[test]
    fn names_of_instances_that_cdi_does_not_know() {
        for name in ["a", "0", "a.b", "a-b_c", "a:b"] {
            assert!(is_name(name), "{name}");
        }
        for name in ["", "a.", "a-", "_a", "a/b", "a b"] {
            assert!(!is_name(name), "{name}");
        }
    }
}
