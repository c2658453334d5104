// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The proxy nodes: where they are mounted, and who can walk there.
//!
//! A proxy node shows the number of the real device. A tool that copies a node by its number, run
//! by anybody who sees the proxy node, makes the real device out of it.

use super::scene::{Finding, Scene};
use cgpu_uapi::CGPUFS_MOUNT;
use nix::errno::Errno;
use std::path::Path;

/// cgpufs is mounted where it belongs, nowhere else, and below a folder that only root can enter.
pub(super) fn mount(scene: &Scene<'_>) -> Vec<Finding> {
    let point = Path::new(CGPUFS_MOUNT);
    let guard = point.parent().unwrap_or(point);
    let mut findings = Vec::new();
    match scene.host.cgpufs_mounts() {
        Err(error) => findings.push(
            Finding::ok(
                "cgpufs",
                CGPUFS_MOUNT,
                error.errno.desc(),
                "a list of mounts",
            )
            .unknown("mount /proc, and run it as the host's root"),
        ),
        Ok(mounts) => {
            let here = mounts.iter().any(|mount| mount == point);
            let finding = |found| {
                Finding::ok(
                    "cgpufs",
                    CGPUFS_MOUNT,
                    found,
                    "mounted where instances exist",
                )
            };
            findings.push(match (here, scene.instances.is_empty()) {
                (true, _) => finding("mounted"),
                (false, true) => finding("not mounted, no instances"),
                (false, false) => finding("not mounted").failed(
                    "`cgpuctl inst create` mounts it; see /usr/share/doc/cgpu/docs/cgpuctl.md",
                ),
            });
            for other in mounts.iter().filter(|mount| *mount != point) {
                findings.push(
                    Finding::ok(
                        "cgpufs",
                        other.display().to_string(),
                        "mounted in the host's own namespace",
                        "proxy nodes nowhere but at their mount point and in containers",
                    )
                    .warning(format!("umount {}", other.display())),
                );
            }
        }
    }
    match scene.files().status(guard) {
        Err(Errno::ENOENT) => {}
        Err(errno) => findings.push(
            Finding::ok(
                "cgpufs",
                guard.display().to_string(),
                errno.desc(),
                "a folder",
            )
            .unknown("run it as the host's root"),
        ),
        Ok(status) => {
            let found = format!("mode {:04o}, owner {}", status.mode & 0o7777, status.uid);
            let sound = status.mode & 0o077 == 0 && status.uid == 0;
            let finding = Finding::ok(
                "cgpufs",
                guard.display().to_string(),
                found,
                "mode 0700, owner 0",
            );
            findings.push(if sound {
                finding
            } else {
                finding.failed(format!("chown 0:0 {0}; chmod 0700 {0}", guard.display()))
            });
        }
    }
    findings
}
