// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The module and the driver: whether they are there and know each other.

use super::scene::{Finding, Scene};
use crate::{
    error::{Facts, Problem},
    json,
};
use cgpu_uapi::{mechanism, text, Cause, GpuCompute, Instance, ABI_VERSION, CONTROL_PATH};
use nix::errno::Errno;
use std::path::Path;

/// The driver's own account of its version.
const DRIVER_VERSION: &str = "/proc/driver/nvidia/version";

/// The module is loaded and speaks this tool's ABI.
pub(super) fn module(scene: &Scene<'_>) -> Vec<Finding> {
    let wanted = format!("loaded, ABI {ABI_VERSION}");
    let finding = |found: String| Finding::ok("module", CONTROL_PATH, found, wanted.clone());
    vec![match &scene.version {
        Ok(version) if version.abi == ABI_VERSION => {
            finding(format!("{}, ABI {}", text(&version.module), version.abi))
        }
        Ok(version) => finding(format!("{}, ABI {}", text(&version.module), version.abi))
            .failed("install cgpuctl and cgpu_km from the same release"),
        Err(errno) => match Problem::open(*errno) {
            Problem::NotLoaded => finding("not loaded".to_owned())
                .failed("modprobe cgpu_km; if that fails, do what cgpu-preflight says"),
            Problem::NotPermitted => {
                finding("not permitted to look".to_owned()).unknown("run it as the host's root")
            }
            problem => finding(problem.to_string()).failed("see the kernel log"),
        },
    }]
}

/// The driver answers, and its branch has tables of its own.
pub(super) fn driver(scene: &Scene<'_>) -> Vec<Finding> {
    let finding = |found: &str| {
        Finding::ok(
            "driver",
            "NVIDIA driver",
            found,
            "loaded, open kernel modules, of a branch with tables",
        )
    };
    let Ok(text) = scene.files().read(Path::new(DRIVER_VERSION)) else {
        return vec![finding("not loaded").failed("load the NVIDIA driver; nvidia-smi must work")];
    };
    let line = text.lines().next().unwrap_or_default();
    // "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.142  Release Build ..."
    let is_open = line.contains("Open Kernel Module");
    let version = line
        .split_whitespace()
        .find(|word| word.starts_with(|c: char| c.is_ascii_digit()) && word.contains('.'))
        .unwrap_or("version not told");
    if !is_open {
        return vec![finding(&format!("{version}, proprietary kernel modules"))
            .failed("install the driver's open kernel modules; the tables are made from them")];
    }
    vec![match (&scene.gpus, &scene.version) {
        (Err(errno), _) if cause(*errno) == Some(Cause::UnknownDriver) => {
            finding(&format!("{version}, no tables for its branch"))
                .failed("install a driver of a known branch, or a newer cgpu_km")
        }
        (Err(errno), Ok(_)) => finding(&format!(
            "{version}; {}",
            Problem::explain(*errno, &Facts::default())
        ))
        .failed("see the kernel log"),
        (_, Ok(known))
            if json::known(&known.driver)
                .as_deref()
                .is_some_and(|k| k != version) =>
        {
            finding(&format!(
                "{version}, but the module talks to {}",
                text_of(known)
            ))
            .failed("end all instances and load the module again")
        }
        (Ok(_), Ok(known)) if known.branch_assumed != 0 => finding(&format!(
            "{version}, of an unknown branch and taken for {}",
            known.branch
        ))
        .failed(
            "limits and isolation may not hold: install a driver of a known branch or a newer cgpu_km, and \
             load it without unsafe_assume_branch",
        ),
        (Ok(_), Ok(known)) => finding(&format!("{version}, tables of branch {}", known.branch)),
        (_, Err(_)) => finding(version).unknown("load the module first"),
    }]
}

/// On GPUs with instances the driver lets the module switch channels off and on. (The module
/// learns that with the first instance of a GPU; before, nobody knows.)
pub(super) fn kernel_interface(scene: &Scene<'_>) -> Vec<Finding> {
    let shared = scene.compute.iter().filter(|gpu| {
        let here = |instance: &Instance| instance.key.gpu_minor == gpu.minor;
        scene.instances.iter().any(here)
    });
    let check = |gpu: &GpuCompute| {
        let finding = |found: &str| {
            let subject = format!("GPU {}", gpu.minor);
            Finding::ok(
                "kernel-interface",
                subject,
                found,
                "channels can be switched wherever there are instances",
            )
        };
        if gpu.mechanisms & mechanism::SWITCH == 0 {
            finding("the driver refuses to switch channels").failed(
                "policies, weights and caps do nothing on this GPU: the driver must run it with its firmware (GSP)",
            )
        } else {
            finding("channels can be switched")
        }
    };
    shared.map(check).collect()
}

fn text_of(version: &cgpu_uapi::Version) -> &str {
    text(&version.driver)
}

fn cause(errno: Errno) -> Option<Cause> {
    // CAST: `Errno` is `repr(i32)` with the kernel's numbers.
    Cause::from_errno(errno as i32)
}
