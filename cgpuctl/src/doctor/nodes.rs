// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The real nodes in the host's `/dev`: who may open them, and whether something makes them.
//!
//! A process that can open a real node uses the GPU without a limit. The module opens them as the
//! host's root, and nobody else has to.

use super::scene::{is_nvidia, uvm_major, Finding, Scene};
use std::path::Path;

const DEV: &str = "/dev";
const CONTROL: &str = "/dev/nvidiactl";
const UVM: &str = "/dev/nvidia-uvm";
/// The file in which the driver tells its libraries (`nv_procfs_read_params()` in
/// kernel-open/nvidia/nv-procfs.c).
const PARAMS: &str = "/proc/driver/nvidia/params";

/// Only root can open the real nodes.
pub(super) fn permissions(scene: &Scene<'_>) -> Vec<Finding> {
    let files = scene.files();
    let uvm = uvm_major(files);
    let mut names = match files.names(Path::new(DEV)) {
        Ok(names) => names,
        Err(errno) => {
            return vec![Finding::ok("nodes", DEV, errno.desc(), "a folder")
                .unknown("run it as the host's root")]
        }
    };
    names.sort();
    let mut findings = Vec::new();
    for name in names {
        let path = Path::new(DEV).join(&name);
        let Ok(status) = files.status(&path) else {
            continue;
        };
        if !is_nvidia(&status, uvm) {
            continue;
        }
        let mode = status.mode & 0o7777;
        let finding = Finding::ok(
            "nodes",
            path.display().to_string(),
            format!(
                "{}:{}, mode {mode:04o}, owner {}",
                status.major, status.minor, status.uid
            ),
            "mode 0600, owner 0",
        );
        findings.push(if mode & 0o077 == 0 && status.uid == 0 {
            finding
        } else {
            finding.warning(
                "any user of the host can use the GPU without a limit: set \
                 NVreg_DeviceFileMode=0600 for the module nvidia (modprobe.d), and chmod 0600 it now",
            )
        });
    }
    findings
}

/// Something makes the real nodes. With `ModifyDeviceFiles: 0` nvidia-modprobe and NVIDIA's
/// libraries make none, and call that a success. In containers cgpu-hook shows 0 in any case.
pub(super) fn modify_device_files(scene: &Scene<'_>) -> Vec<Finding> {
    let finding = |found: &str| {
        let wanted = "something makes the real nodes at boot";
        Finding::ok("modify-device-files", PARAMS, found, wanted)
    };
    let Ok(text) = scene.files().read(Path::new(PARAMS)) else {
        return vec![finding("not there").unknown("load the NVIDIA driver")];
    };
    let value = text
        .lines()
        .find_map(|line| line.strip_prefix("ModifyDeviceFiles:"))
        .map(str::trim);
    let has_nodes = scene.files().status(Path::new(CONTROL)).is_ok();
    vec![match value {
        Some("0") if has_nodes => finding(
            "ModifyDeviceFiles: 0, so after a boot something other than nvidia-modprobe must make \
             the nodes",
        ),
        Some("0") => finding("ModifyDeviceFiles: 0, and there are no nodes").failed(
            "remove NVreg_ModifyDeviceFiles=0 of the module nvidia (modprobe.d), and reboot",
        ),
        Some(value) => finding(&format!("ModifyDeviceFiles: {value}")),
        None => finding("no such line").unknown("the driver is not one that is known"),
    }]
}

/// The UVM node is there and leads to the UVM device. The module opens it by its path for each
/// instance, and nvidia-smi neither loads nvidia-uvm nor makes the node.
pub(super) fn uvm(scene: &Scene<'_>) -> Vec<Finding> {
    let files = scene.files();
    let registered = uvm_major(files);
    let node = files.status(Path::new(UVM)).ok();
    let node = node.filter(|status| status.is_char_device);
    let found = match (&node, registered) {
        (None, _) => "not there".to_owned(),
        (Some(node), None) => format!("{}:{}, nvidia-uvm is not loaded", node.major, node.minor),
        (Some(node), _) => format!("{}:{}", node.major, node.minor),
    };
    let wanted = registered.map_or("the UVM device's number".to_owned(), |major| {
        format!("{major}:0")
    });
    let is_right = node.is_some_and(|node| Some(node.major) == registered && node.minor == 0);
    let finding = Finding::ok("uvm", UVM, found, wanted);
    vec![if is_right {
        finding
    } else {
        finding.failed("no instance can be made without it: nvidia-modprobe -u -c 0")
    }]
}
