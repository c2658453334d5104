// SPDX-License-Identifier: GPL-2.0 OR MIT
//! `status`: module, driver, GPUs and instances at a glance. It also answers where the NVIDIA
//! driver is missing, because the module loads without it.

use super::{gpu_list::gpu_table, inst_list, target};
use crate::{
    compute,
    error::{Failure, Problem},
    host::Host,
    json::{self, known},
    output::Report,
    text::{pairs, table},
    verb::Verb,
};
use cgpu_uapi::{
    text, Gpu, GpuCompute, Instance, InstanceCompute, Priority, Version, CGPUFS_MOUNT,
};
use clap::Args;
use serde::Serialize;
use std::path::Path;

/// Module, driver, GPUs and instances at a glance.
#[derive(Args)]
pub(crate) struct Status;

/// The module's records, and the mount.
struct Seen {
    version: Version,
    /// None while the driver is away, or where it is not known.
    gpus: Option<Vec<Gpu>>,
    /// The driver answers, and the module does not know its branch.
    is_unknown: bool,
    instances: Vec<Instance>,
    gpu_compute: Vec<GpuCompute>,
    instance_compute: Vec<InstanceCompute>,
    mounted: bool,
}

#[derive(Serialize)]
struct StatusMembers {
    module: ModuleMembers,
    driver: DriverMembers,
    cgpufs: CgpufsMembers,
    gpus: Vec<json::Gpu>,
    instances: Vec<json::Instance>,
    compute: ComputeMembers,
}

#[derive(Serialize)]
struct ModuleMembers {
    version: String,
    abi_version: u32,
}

#[derive(Serialize)]
struct DriverMembers {
    loaded: bool,
    version: Option<String>,
    branch: Option<u32>,
    branch_assumed: bool,
}

#[derive(Serialize)]
struct CgpufsMembers {
    mount_point: &'static str,
    mounted: bool,
}

#[derive(Serialize)]
struct ComputeMembers {
    gpus: Vec<compute::GpuCompute>,
    instances: Vec<compute::InstanceCompute>,
}

impl Verb for Status {
    fn attempt(&self) -> String {
        "report the status".to_owned()
    }

    fn run(&self, host: &dyn Host) -> Result<Report, Failure> {
        let seen = look(host)?;
        let members = members(&seen);
        let text = text_of(&seen, &members.driver);
        Ok(Report::new(members, text)?)
    }
}

fn look(host: &dyn Host) -> Result<Seen, Problem> {
    let control = target::open(host)?;
    // Before the version: looking for GPUs is what makes the module ask the driver for its own.
    let (gpus, is_unknown) = match control.gpus().map_err(Problem::from) {
        Ok(gpus) => (Some(gpus), false),
        Err(Problem::DriverMissing) => (None, false),
        Err(Problem::UnknownDriver) => (None, true),
        Err(problem) => return Err(problem),
    };
    let mounts = host.cgpufs_mounts()?;
    Ok(Seen {
        version: control.version()?,
        instances: inst_list::all(&*control)?,
        gpu_compute: if gpus.is_some() {
            control.gpu_compute()?
        } else {
            vec![]
        },
        gpus,
        is_unknown,
        instance_compute: control.instance_compute()?,
        mounted: mounts.iter().any(|path| path == Path::new(CGPUFS_MOUNT)),
    })
}

fn members(seen: &Seen) -> StatusMembers {
    let (version, gpus) = (&seen.version, seen.gpus.as_deref().unwrap_or_default());
    StatusMembers {
        module: ModuleMembers {
            version: text(&version.module).to_owned(),
            abi_version: version.abi,
        },
        driver: DriverMembers {
            loaded: seen.gpus.is_some() || seen.is_unknown,
            version: known(&version.driver),
            branch: Some(version.branch).filter(|branch| *branch != 0),
            branch_assumed: version.branch_assumed != 0,
        },
        cgpufs: CgpufsMembers {
            mount_point: CGPUFS_MOUNT,
            mounted: seen.mounted,
        },
        gpus: gpus.iter().map(json::Gpu::from).collect(),
        instances: seen.instances.iter().map(json::Instance::from).collect(),
        compute: ComputeMembers {
            gpus: seen
                .gpu_compute
                .iter()
                .map(compute::GpuCompute::from)
                .collect(),
            instances: seen
                .instance_compute
                .iter()
                .map(compute::InstanceCompute::from)
                .collect(),
        },
    }
}

fn text_of(seen: &Seen, driver: &DriverMembers) -> String {
    let version = &seen.version;
    let module = format!("{} (ABI {})", text(&version.module), version.abi);
    let nodes = if seen.mounted {
        format!("mounted at {CGPUFS_MOUNT}")
    } else {
        "not mounted".to_owned()
    };
    let head = pairs(&[
        ("module", module),
        (
            "NVIDIA driver",
            if seen.is_unknown {
                "of a branch that cgpu_km does not know: no instance can be made".to_owned()
            } else {
                driver_text(driver)
            },
        ),
        ("proxy nodes", nodes),
    ]);
    format!(
        "{head}\n{}\n{}\n{}",
        gpu_table(seen.gpus.as_deref().unwrap_or_default()),
        inst_list::instance_table(&seen.instances),
        compute_text(&seen.gpu_compute, &seen.instance_compute)
    )
}

/// How compute time is shared, and the GPU time of each instance.
fn compute_text(gpus: &[GpuCompute], instances: &[InstanceCompute]) -> String {
    let gpus = gpus.iter().map(|gpu| compute::compute_line(gpu) + "\n");
    let mut text: String = gpus.collect();
    if instances.is_empty() {
        return text;
    }
    let head = ["NAME", "GPU", "PRIORITY", "COMPUTE", "GPU TIME", "BLOCKED"];
    let rows = instances.iter().map(|i| {
        [
            i.key.name.as_str().unwrap_or_default().to_owned(),
            i.key.gpu_minor.to_string(),
            Priority::of(i.state).name().to_owned(),
            compute::doing(i.state).to_owned(),
            compute::seconds(i.gpu_time_ns),
            compute::seconds(i.blocked_ns),
        ]
    });
    text.push_str(&table(head, rows));
    text
}

fn driver_text(driver: &DriverMembers) -> String {
    match (&driver.version, driver.branch) {
        (Some(version), Some(branch)) if driver.branch_assumed => format!(
            "{version} (of an unknown branch and taken for {branch}: limits and isolation may not \
             hold)"
        ),
        (Some(version), Some(branch)) => format!("{version} (tables of branch {branch})"),
        (Some(version), None) => format!("{version} (no tables for it)"),
        (None, _) if driver.loaded => "version not known before a GPU is used".to_owned(),
        (None, _) => "not loaded, or it does not answer".to_owned(),
    }
}
