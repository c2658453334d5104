// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The input of a hook from its runtime: the container's state on stdin, and its configuration in
//! the bundle (runtime-spec: `runtime.md`, `config.md`). Only what is needed of it.

use super::settings::Environment;
use crate::{error::Problem, host::PathError};
use cgpu_uapi::CGPUFS_MOUNT;
use serde::{de::DeserializeOwned, Deserialize};
use std::{
    collections::BTreeMap,
    fs,
    io::Read,
    path::{Path, PathBuf},
};

/// NVIDIA's major number: what the real GPUs' nodes have.
const NVIDIA_MAJOR: i64 = 195;

/// How the names of the NVIDIA Container Toolkit's hooks begin: nvidia-container-runtime-hook and,
/// before 1.12, nvidia-container-toolkit. They open the device cgroup for the real GPU.
const NVIDIA_HOOK: &str = "nvidia-container-";

/// Annotations that engines put on each container of a pod of Kubernetes, and that podman puts on
/// none: those of CRI-O (`pkg/annotations`) and of containerd (`internal/cri/annotations`).
const POD: [&str; 2] = [
    "io.kubernetes.cri-o.SandboxName",
    "io.kubernetes.cri.sandbox-id",
];

/// The state of a container.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct ContainerState {
    /// The engine's name for it.
    pub(super) id: String,
    /// Its first process; 0 once it has ended.
    #[serde(default)]
    pub(super) pid: i32,
    /// Folder of the configuration.
    pub(super) bundle: PathBuf,
}

/// Its configuration.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Config {
    annotations: BTreeMap<String, String>,
    process: Process,
    root: RootEntry,
    linux: Linux,
    mounts: Vec<MountEntry>,
    hooks: Hooks,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Process {
    env: Vec<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct RootEntry {
    path: PathBuf,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Linux {
    devices: Vec<DeviceNode>,
    resources: Resources,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct MountEntry {
    source: PathBuf,
}

/// The hooks that run before the container's own program.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Hooks {
    prestart: Vec<HookEntry>,
    create_runtime: Vec<HookEntry>,
    create_container: Vec<HookEntry>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct HookEntry {
    path: PathBuf,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct DeviceNode {
    path: PathBuf,
    major: Option<i64>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Resources {
    devices: Vec<Rule>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Rule {
    allow: bool,
    #[serde(rename = "type")]
    kind: Option<String>,
    major: Option<i64>,
    access: Option<String>,
}

/// Reads the state.
pub(super) fn state(input: &mut dyn Read) -> Result<ContainerState, String> {
    let mut text = String::new();
    input
        .read_to_string(&mut text)
        .map_err(|e| format!("the container's state cannot be read: {e}"))?;
    serde_json::from_str(&text)
        .map_err(|e| format!("stdin is not the state of a container, as a runtime gives it: {e}"))
}

/// The path of a bundle's configuration.
pub(crate) fn config_of(bundle: &Path) -> PathBuf {
    bundle.join("config.json")
}

/// Reads a configuration, as far as `T` has it.
pub(crate) fn read_config<T: DeserializeOwned>(path: &Path) -> Result<T, String> {
    let bytes = fs::read(path)
        .map_err(PathError::on("reading", path))
        .map_err(|error| Problem::Path(error).to_string())?;
    serde_json::from_slice(&bytes).map_err(|e| no_config(path, e))
}

/// Says that a file is no configuration.
pub(crate) fn no_config(path: &Path, why: impl std::fmt::Display) -> String {
    format!(
        "{} is not a container's configuration: {why}",
        path.display()
    )
}

impl ContainerState {
    /// Reads the configuration.
    pub(super) fn config(&self) -> Result<Config, String> {
        read_config(&config_of(&self.bundle))
    }

    /// The container's root, as processes that have not entered it see it.
    pub(super) fn root(&self, config: &Config) -> PathBuf {
        self.bundle.join(&config.root.path)
    }
}

impl Config {
    /// The environment of the container's first process.
    pub(super) fn environment(&self) -> &[String] {
        &self.process.env
    }

    /// Whether it is a container of a pod of Kubernetes.
    pub(super) fn is_of_pod(&self) -> bool {
        POD.iter().any(|name| self.annotations.contains_key(*name))
    }

    /// Whether the operator has put an instance in already, by CDI or by hand: its host nodes or
    /// its proxy nodes are there, which no image can bring.
    pub(super) fn has_instance(&self) -> bool {
        let is_host_node = |node: &DeviceNode| {
            let path = node.path.to_str();
            let rest = path.and_then(|path| path.strip_prefix("/dev/cgpu"));
            rest.is_some_and(|rest| rest.starts_with(|c: char| c == '-' || c.is_ascii_digit()))
        };
        self.linux.devices.iter().any(is_host_node)
            || self
                .mounts
                .iter()
                .any(|mount| mount.source.starts_with(CGPUFS_MOUNT))
    }

    /// Why an instance would hold nothing in this container: it reaches the real GPU anyway.
    pub(super) fn way_around(&self) -> Option<String> {
        self.nvidia_hook().or_else(|| self.real_device())
    }

    /// The same by NVIDIA's own hook, which does nothing for `void` alone.
    fn nvidia_hook(&self) -> Option<String> {
        let Hooks {
            prestart,
            create_runtime,
            create_container,
        } = &self.hooks;
        let mut hooks = prestart
            .iter()
            .chain(create_runtime)
            .chain(create_container);
        let hook = hooks.find(|hook| {
            let name = hook.path.file_name().and_then(|name| name.to_str());
            name.is_some_and(|name| name.starts_with(NVIDIA_HOOK))
        })?;
        if Environment(self.environment()).is_void() {
            return None;
        }
        Some(format!(
            "NVIDIA's hook {} gives it the real GPU; take the hook away (no --gpus, no NVIDIA runtime, no file \
             for it in hooks.d)",
            hook.path.display()
        ))
    }

    /// The same by its nodes and its device cgroup.
    fn real_device(&self) -> Option<String> {
        // The last rule that speaks of NVIDIA's number decides, as in the kernel.
        let last = self.linux.resources.devices.iter().rev().find(|rule| {
            let kind = rule.kind.as_deref().unwrap_or("a");
            let access = rule.access.as_deref().unwrap_or("rwm");
            ["a", "c"].contains(&kind)
                && [None, Some(-1), Some(NVIDIA_MAJOR)].contains(&rule.major)
                && access.contains(['r', 'w'])
        });
        let allowing = last.filter(|rule| rule.allow);
        // A privileged container is given all of the host's nodes as well, which is not what to
        // fix.
        if allowing.is_some_and(|rule| rule.major != Some(NVIDIA_MAJOR)) {
            return Some(
                "its device cgroup allows all devices, as in a privileged container; run it without --privileged"
                    .to_owned(),
            );
        }
        let node = self.linux.devices.iter().find(|node| {
            node.major == Some(NVIDIA_MAJOR)
                || node.path.starts_with("/dev/nvidiactl")
                || node.path.starts_with("/dev/nvidia-uvm")
        });
        if let Some(node) = node {
            return Some(format!(
                "it is given the real {} too; take it away (no --gpus, no NVIDIA runtime for this container)",
                node.path.display()
            ));
        }
        allowing.map(|_| {
            "its device cgroup allows the real GPUs (major number 195); take the rule away"
                .to_owned()
        })
    }
}

/// The instance's name for a container: its id, or the first 12 digits where it is one of those
/// long hexadecimal ones, as `podman ps` and cGPU have it.
pub(super) fn instance_name(id: &str) -> &str {
    let hexadecimal = id.bytes().all(|b| b.is_ascii_hexdigit());
    match id.get(..12) {
        Some(short) if hexadecimal => short,
        _ => id,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn config(linux: &str) -> Config {
        config_with("A=b", &format!(r#""linux": {linux}"#))
    }

    fn config_with(env: &str, members: &str) -> Config {
        let text = format!(
            r#"{{"ociVersion": "1.2.0", "process": {{"env": ["{env}"]}}, "root": {{"path": "rootfs"}}, {members}}}"#
        );
        serde_json::from_str(&text).expect("a configuration")
    }

    #[test]
    fn instance_of_the_operator_is_recognised() {
        for (members, found) in [
            (
                r#""linux": {"devices": [{"path": "/dev/cgpu3", "major": 511}]}"#,
                true,
            ),
            (
                r#""linux": {"devices": [{"path": "/dev/cgpu-web-ctl"}]}"#,
                true,
            ),
            (
                r#""mounts": [{"source": "/run/cgpu/dev/web/nvidia0"}]"#,
                true,
            ),
            (r#""linux": {"devices": [{"path": "/dev/cgpuctl"}]}"#, false),
            (
                r#""mounts": [{"source": "/run/cgpu/device"}, {"destination": "/proc"}]"#,
                false,
            ),
        ] {
            assert_eq!(
                config_with("A=b", members).has_instance(),
                found,
                "{members}"
            );
        }
    }

    #[test]
    fn hooks_of_nvidia_are_found() {
        for (hooks, found) in [
            (
                r#"{"prestart": [{"path": "/usr/bin/nvidia-container-runtime-hook"}]}"#,
                true,
            ),
            (
                r#"{"prestart": [{"path": "/a"}, {"path": "/b/nvidia-container-toolkit"}]}"#,
                true,
            ),
            (
                r#"{"createRuntime": [{"path": "/b/nvidia-container-runtime-hook"}]}"#,
                true,
            ),
            (
                r#"{"createContainer": [{"path": "/b/nvidia-container-runtime-hook"}]}"#,
                true,
            ),
            (
                r#"{"createRuntime": [{"path": "/usr/sbin/cgpu-hook"}]}"#,
                false,
            ),
            (
                r#"{"poststop": [{"path": "/b/nvidia-container-runtime-hook"}]}"#,
                false,
            ),
        ] {
            let members = format!(r#""hooks": {hooks}"#);
            let of = |env: &str| config_with(env, &members).way_around().is_some();
            assert_eq!(of("NVIDIA_VISIBLE_DEVICES=0"), found, "{hooks}");
            assert!(!of("NVIDIA_VISIBLE_DEVICES=void"), "{hooks}");
        }
    }

    #[test]
    fn container_with_the_real_gpu_is_found() {
        let none = r#"{"allow": false, "access": "rwm"}"#;
        for (linux, found) in [
            ("{}".to_owned(), false),
            (format!(r#"{{"resources": {{"devices": [{none}]}}}}"#), false),
            (
                format!(r#"{{"resources": {{"devices": [{none}, {{"allow": true, "type": "c", "access": "m"}}]}}}}"#),
                false,
            ),
            (
                format!(r#"{{"resources": {{"devices": [{none}, {{"allow": true, "type": "c", "major": 1, "minor": 3, "access": "rwm"}}]}}}}"#),
                false,
            ),
            (
                format!(r#"{{"resources": {{"devices": [{none}, {{"allow": true, "type": "c", "major": 195, "access": "rw"}}]}}}}"#),
                true,
            ),
            (r#"{"resources": {"devices": [{"allow": true, "access": "rwm"}]}}"#.to_owned(), true),
            (
                r#"{"resources": {"devices": [{"allow": true, "access": "rwm"}, {"allow": false, "access": "rwm"}]}}"#.to_owned(),
                false,
            ),
            (r#"{"devices": [{"path": "/dev/nvidia0", "major": 195, "minor": 0}]}"#.to_owned(), true),
            (r#"{"devices": [{"path": "/dev/nvidia-uvm", "major": 508}]}"#.to_owned(), true),
            (r#"{"devices": [{"path": "/dev/fuse", "major": 10}]}"#.to_owned(), false),
        ] {
            assert_eq!(config(&linux).way_around().is_some(), found, "{linux}");
        }
    }

    #[test]
    fn the_cause_is_named_that_can_be_fixed() {
        let nodes = r#""devices": [{"path": "/dev/nvidia0", "major": 195, "minor": 0}]"#;
        for (rule, said) in [
            (
                r#"{"allow": true, "access": "rwm"}"#,
                "without --privileged",
            ),
            (
                r#"{"allow": true, "type": "c", "major": 195, "access": "rw"}"#,
                "the real /dev/nvidia0",
            ),
        ] {
            let linux = format!(r#"{{{nodes}, "resources": {{"devices": [{rule}]}}}}"#);
            let why = config(&linux).way_around().expect("found");
            assert!(why.contains(said), "{why}");
        }
    }

    #[test]
    fn the_state_leads_to_the_root() {
        let text =
            r#"{"ociVersion": "1.0", "id": "a", "status": "created", "pid": 7, "bundle": "/b"}"#;
        let state = state(&mut text.as_bytes()).expect("a state");
        assert_eq!((state.id.as_str(), state.pid), ("a", 7));
        assert_eq!(state.root(&config("{}")), Path::new("/b/rootfs"));
        assert!(super::state(&mut "".as_bytes()).is_err());
    }

    #[test]
    fn ids_become_names() {
        let long = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
        assert_eq!(instance_name(long), "0123456789ab");
        assert_eq!(instance_name("my-container"), "my-container");
        assert_eq!(instance_name("abc"), "abc");
    }
}
