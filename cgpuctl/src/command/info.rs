// SPDX-License-Identifier: GPL-2.0 OR MIT
//! `info`: the driver and the GPUs, as libnvidia-container's `info` tells them.

use super::target;
use crate::{
    control::Control,
    error::{Failure, Problem},
    host::Host,
    json::known,
    output::Report,
    size::Bytes,
    text::{pairs, table},
    verb::Verb,
};
use cgpu_uapi::{mig, text, Gpu, Version};
use clap::Args;
use serde::Serialize;
use std::path::Path;

/// Show the versions of the driver and of CUDA, and the kind of each GPU.
#[derive(Args)]
pub(crate) struct Info;

#[derive(Serialize)]
struct InfoMembers {
    driver: DriverInfo,
    gpus: Vec<GpuInfo>,
}

#[derive(Serialize)]
struct DriverInfo {
    version: Option<String>,
    branch: Option<u32>,
    kernel_modules: Option<&'static str>,
    cuda_version: Option<&'static str>,
}

#[derive(Serialize)]
struct GpuInfo {
    minor: u32,
    uuid: String,
    pci_address: String,
    name: Option<String>,
    architecture: Option<&'static str>,
    chip: Option<String>,
    mig_mode: Option<&'static str>,
    memory_bytes: u64,
}

impl Verb for Info {
    fn attempt(&self) -> String {
        "report on the driver".to_owned()
    }

    fn run(&self, host: &dyn Host) -> Result<Report, Failure> {
        let (version, gpus) = driver(&*target::open(host)?)?;
        let members = InfoMembers {
            driver: DriverInfo {
                version: known(&version.driver),
                branch: Some(version.branch).filter(|branch| *branch != 0),
                kernel_modules: kernel_modules(host),
                cuda_version: cuda_version(version.branch),
            },
            gpus: gpus.iter().map(info).collect(),
        };
        let unknown = || "not known".to_owned();
        let head = pairs(&[
            (
                "NVIDIA driver",
                members.driver.version.clone().unwrap_or_else(unknown),
            ),
            (
                "kernel modules",
                members
                    .driver
                    .kernel_modules
                    .map_or_else(unknown, str::to_owned),
            ),
            (
                "CUDA",
                members
                    .driver
                    .cuda_version
                    .map_or_else(unknown, str::to_owned),
            ),
        ]);
        let dash = |text: Option<&str>| text.unwrap_or("-").to_owned();
        let rows = members.gpus.iter().map(|gpu| {
            [
                gpu.minor.to_string(),
                dash(gpu.name.as_deref()),
                gpu.pci_address.clone(),
                gpu.uuid.clone(),
                dash(gpu.architecture),
                dash(gpu.mig_mode),
                Bytes(gpu.memory_bytes).to_string(),
            ]
        });
        let list = if gpus.is_empty() {
            "No GPUs.\n".to_owned()
        } else {
            table(
                [
                    "GPU",
                    "NAME",
                    "PCI",
                    "UUID",
                    "ARCHITECTURE",
                    "MIG",
                    "MEMORY",
                ],
                rows,
            )
        };
        Ok(Report::new(members, format!("{head}\n{list}"))?)
    }
}

/// Version and GPUs. The GPUs first: looking for them is what makes the module ask for the version.
pub(crate) fn driver(control: &dyn Control) -> Result<(Version, Vec<Gpu>), Problem> {
    let gpus = control.gpus()?;
    Ok((control.version()?, gpus))
}

fn info(gpu: &Gpu) -> GpuInfo {
    GpuInfo {
        minor: gpu.minor,
        uuid: text(&gpu.uuid).to_owned(),
        pci_address: text(&gpu.pci).to_owned(),
        name: known(&gpu.name),
        architecture: architecture(gpu.architecture),
        chip: (gpu.architecture != 0)
            .then(|| format!("{:#x}", gpu.architecture | gpu.implementation)),
        mig_mode: match gpu.mig_mode {
            mig::UNSUPPORTED => Some("unsupported"),
            mig::ENABLED => Some("enabled"),
            mig::DISABLED => Some("disabled"),
            mig::ENABLE_PENDING => Some("enable pending"),
            mig::DISABLE_PENDING => Some("disable pending"),
            _ => None,
        },
        memory_bytes: gpu.memory_bytes,
    }
}

/// The name that NVIDIA gives a family of chips (ctrl2080mc.h says which chips are in it).
fn architecture(family: u32) -> Option<&'static str> {
    match family {
        0x160 => Some("Turing"),
        0x170 => Some("Ampere"),
        0x180 => Some("Hopper"),
        0x190 => Some("Ada Lovelace"),
        0x1a0 | 0x1b0 => Some("Blackwell"),
        _ => None,
    }
}

/// The CUDA version that a branch's libcuda has (CUDA's release notes, table of driver versions).
fn cuda_version(branch: u32) -> Option<&'static str> {
    match branch {
        535 => Some("12.2"),
        550 => Some("12.4"),
        570 => Some("12.8"),
        580 => Some("13.0"),
        595 => Some("13.2"),
        _ => None,
    }
}

/// Which of NVIDIA's two flavours is loaded: the driver says it in its own words (`pNVRM_ID`).
fn kernel_modules(host: &dyn Host) -> Option<&'static str> {
    let file = host.path(Path::new("/proc/driver/nvidia/version"));
    let said = std::fs::read_to_string(file).ok()?;
    let first = said
        .lines()
        .find(|line| line.starts_with("NVRM version:"))?;
    Some(if first.contains("Open Kernel Module") {
        "open"
    } else {
        "proprietary"
    })
}
