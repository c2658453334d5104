// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Whether containers with an instance are kept from the real nodes, by their control group's
//! devices and by their capabilities.
//!
//! A container that may make nodes makes one of the real GPU's number; what stops it is that its
//! engine let it open the instance's numbers alone. A process is one of a container with an
//! instance when a single proxy node is mounted where it lives (`/proc/PID/mountinfo`).

use super::scene::{process_name, processes, Finding, Scene};
use crate::{
    hook::devices::{may_open, real_nodes},
    host::Look,
};
use nix::errno::Errno;
use std::{collections::BTreeMap, path::Path};

/// Its number (capabilities(7), linux/capability.h).
const CAP_SYS_ADMIN: u32 = 21;

/// No container with an instance may open a real node.
pub(super) fn device_groups(scene: &Scene<'_>) -> Vec<Finding> {
    let files = scene.files();
    let wanted = "only the instance's own numbers";
    let finding = |about: String, found: String| Finding::ok("containers", about, found, wanted);
    let pids = match processes(files) {
        Ok(pids) => pids,
        Err(errno) => {
            let about = "device groups".to_owned();
            return vec![finding(about, errno.desc().to_owned()).unknown("mount /proc")];
        }
    };
    // One process of each group.
    let mut groups: BTreeMap<String, u32> = BTreeMap::new();
    for pid in pids {
        let read = |file: &str| files.read(Path::new(&format!("/proc/{pid}/{file}")));
        if read("mountinfo").is_ok_and(|mounts| mounts.lines().any(is_proxy_node)) {
            if let Ok(group) = read("cgroup") {
                groups.entry(group).or_insert(pid);
            }
        }
    }
    if groups.is_empty() {
        return vec![finding(
            "device groups".to_owned(),
            "no container has an instance now".to_owned(),
        )];
    }
    let real = real_nodes(files, scene.gpus.as_deref().unwrap_or_default());
    let examined = groups.iter().map(|(group, &pid)| {
        let mut open = Vec::new();
        let mut unknown = None;
        for &(major, minor) in &real {
            match may_open(files, group, major, minor) {
                Ok(Some(true)) => open.push(format!("{major}:{minor}")),
                Ok(Some(false)) => {}
                Ok(None) => unknown = Some("its program is not understood".to_owned()),
                Err(errno) => unknown = Some(text_of(errno)),
            }
        }
        let about = process_name(files, pid);
        match (open.is_empty(), unknown) {
            (false, _) => finding(about, format!("may open {}", open.join(", "))).failed(
                "it reaches the real GPU, without a limit: start it without --privileged and without a \
                 device rule that takes in NVIDIA's numbers",
            ),
            (true, Some(why)) => finding(about, why).unknown("run it as the host's root"),
            (true, None) if administers_host(files, pid) => {
                finding(about, "may have CAP_SYS_ADMIN on the host".to_owned()).failed(
                    "it can change which devices it may open: start it without that capability, or \
                     in a user namespace",
                )
            }
            (true, None) => finding(about, "kept from the real nodes".to_owned()),
        }
    });
    examined.collect()
}

/// Whether a process is in the host's user namespace, where all numbers of users are their own, and
/// can have CAP_SYS_ADMIN there (proc_pid_status(5), user_namespaces(7)).
fn administers_host(files: &dyn Look, pid: u32) -> bool {
    let read = |file: &str| files.read(Path::new(&format!("/proc/{pid}/{file}")));
    let users = read("uid_map").unwrap_or_default();
    let status = read("status").unwrap_or_default();
    let bounding = status.lines().find_map(|line| line.strip_prefix("CapBnd:"));
    let bounding = bounding.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    users.split_whitespace().eq(["0", "0", "4294967295"])
        && bounding.is_some_and(|mask| mask >> CAP_SYS_ADMIN & 1 != 0)
}

fn text_of(errno: Errno) -> String {
    format!("its control group: {}", errno.desc())
}

/// Whether a line of mountinfo is a mount of one proxy node (proc_pid_mountinfo(5): the fourth
/// field is the root of the mount in its filesystem, whose type stands behind the hyphen).
fn is_proxy_node(line: &str) -> bool {
    let root = line.split(' ').nth(3);
    let kind = line
        .split_once(" - ")
        .and_then(|(_, rest)| rest.split(' ').next());
    kind == Some("cgpufs") && root.is_some_and(|root| root != "/")
}
