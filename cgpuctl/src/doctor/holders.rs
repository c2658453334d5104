// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The processes that have a real node open, beside the module: such a process uses a GPU without
//! limit, and its memory is in nobody's accounting.
//!
//! A proxied file shows the real device's number too (that is what a proxy node is for), but lies
//! in cgpufs, whose device number tells it apart. The module's own files are in no process's table.

use super::scene::{is_nvidia, process_name, processes, uvm_major, Finding, Scene};
use crate::host::Look;
use cgpu_uapi::CGPUFS_MOUNT;
use nix::errno::Errno;
use std::{collections::BTreeSet, path::Path};

/// The programs of NVIDIA's daemons. They keep the GPUs initialized, join them by NVSwitch and
/// watch them, and do no work on them.
const HARMLESS: [&str; 3] = ["nvidia-persistenced", "nv-fabricmanager", "nv-hostengine"];

/// Nobody has a real node open.
pub(super) fn foreign(scene: &Scene<'_>) -> Vec<Finding> {
    let files = scene.files();
    let wanted = "only NVIDIA's daemons";
    let finding = |found: String| Finding::ok("holders", "real nodes", found, wanted);
    let uvm = uvm_major(files);
    let proxy_nodes = files.status(Path::new(CGPUFS_MOUNT)).ok();
    let pids = match processes(files) {
        Ok(pids) => pids,
        Err(errno) => {
            return vec![finding(errno.desc().to_owned()).unknown("mount /proc")];
        }
    };
    let mut holders = Vec::new();
    let mut hidden = 0;
    for pid in pids {
        let folder = format!("/proc/{pid}/fd");
        let fds = match files.names(Path::new(&folder)) {
            Ok(fds) => fds,
            Err(Errno::EACCES | Errno::EPERM) => {
                hidden += 1;
                continue;
            }
            // It has gone.
            Err(_) => continue,
        };
        let mut numbers = BTreeSet::new();
        for fd in fds {
            let Ok(status) = files.status(&Path::new(&folder).join(fd)) else {
                continue;
            };
            let is_proxy_node = proxy_nodes
                .as_ref()
                .is_some_and(|proxy_nodes| proxy_nodes.device == status.device);
            if is_nvidia(&status, uvm) && !is_proxy_node {
                numbers.insert((status.major, status.minor));
            }
        }
        if !numbers.is_empty() {
            holders.push((pid, numbers));
        }
    }
    let mut findings = Vec::new();
    let mut is_sound = true;
    for (pid, numbers) in holders {
        let numbers: Vec<_> = numbers.iter().map(|(a, b)| format!("{a}:{b}")).collect();
        let found = format!("has {} open", numbers.join(", "));
        let finding = |name: String| Finding::ok("holders", name, found, wanted);
        findings.push(match daemon(files, pid) {
            Some(name) => finding(format!("{name} ({pid})")),
            None => {
                is_sound = false;
                finding(process_name(files, pid)).warning(
                    "end it, or give it an instance; what it uses is charged to no instance",
                )
            }
        });
    }
    if hidden != 0 {
        findings.push(
            finding(format!("{hidden} processes could not be looked at"))
                .unknown("run it as the host's root"),
        );
    } else if is_sound {
        findings.push(finding("nobody else".to_owned()));
    }
    findings
}

/// The daemon of NVIDIA's that a process is, by its program: any process takes any name for itself.
/// The program is root's, so that nobody else's is called so.
fn daemon(files: &dyn Look, pid: u32) -> Option<&'static str> {
    let path = format!("/proc/{pid}/exe");
    let path = Path::new(&path);
    let status = files.status(path).ok()?;
    let target = files.link(path).ok()?;
    let name = target.file_name()?.to_str()?;
    // It was upgraded while it ran.
    let name = name.strip_suffix(" (deleted)").unwrap_or(name);
    let is_roots = status.uid == 0 && status.mode & 0o022 == 0;
    HARMLESS
        .into_iter()
        .find(|known| is_roots && *known == name)
}
