// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The processes that have a real node open, beside the module: such a process uses a GPU without
//! limit, and its memory is in nobody's accounting.
//!
//! A proxied file shows the real device's number too (that is what a proxy node is for), but lies
//! in cgpufs, whose device number tells it apart. The module's own files are in no process's table.

use super::scene::{is_nvidia, process_name, processes, uvm_major, Finding, Scene};
use cgpu_uapi::CGPUFS_MOUNT;
use nix::errno::Errno;
use std::{collections::BTreeSet, path::Path};

/// The names of NVIDIA's daemons, of which the kernel keeps 15 characters. They keep the GPUs
/// initialized, join them by NVSwitch and watch them, and do no work on them.
const HARMLESS: [&str; 3] = ["nvidia-persiste", "nv-fabricmanage", "nv-hostengine"];

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
        let name = process_name(files, pid);
        if !numbers.is_empty() && !HARMLESS.iter().any(|known| name.starts_with(known)) {
            holders.push((name, numbers));
        }
    }
    let mut findings: Vec<_> = holders
        .into_iter()
        .map(|(name, numbers)| {
            let numbers: Vec<_> = numbers.iter().map(|(a, b)| format!("{a}:{b}")).collect();
            Finding::ok(
                "holders",
                name,
                format!("has {} open", numbers.join(", ")),
                wanted,
            )
            .warning("end it, or give it an instance; what it uses is charged to no instance")
        })
        .collect();
    if hidden != 0 {
        findings.push(
            finding(format!("{hidden} processes could not be looked at"))
                .unknown("run it as the host's root"),
        );
    } else if findings.is_empty() {
        findings.push(finding("nobody else".to_owned()));
    }
    findings
}
