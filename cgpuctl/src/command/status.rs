// SPDX-License-Identifier: GPL-2.0 OR MIT
//! `status`: module, driver, GPUs and instances at a glance. It also answers where the NVIDIA driver
//! is missing, since the module loads without it.

use super::gpu_list::gpu_table;
use super::inst_list::{all, instance_table};
use super::open;
use crate::control::Host;
use crate::error::{Facts, Failure, Problem};
use crate::json;
use crate::output::{pairs, table, Report};
use cgpu_uapi::{text, Cause, GpuCompute, InstanceCompute, CGPUFS_MOUNT};
use std::path::Path;

pub(super) fn run(host: &dyn Host) -> Result<Report, Failure> {
    report(host).map_err(|problem| problem.when("tell the status"))
}

fn report(host: &dyn Host) -> Result<Report, Problem> {
    let control = open(host)?;
    let explain = |errno| Problem::explain(errno, &Facts::default());
    // Before the version: looking for GPUs is what makes the module ask the driver for its own.
    let (gpus, loaded) = match control.gpus() {
        Ok(gpus) => (gpus, true),
        // CAST: `Errno` is `repr(i32)` with the kernel's numbers.
        Err(errno) if Cause::from_errno(errno as i32) == Some(Cause::DriverMissing) => {
            (vec![], false)
        }
        Err(errno) => return Err(explain(errno)),
    };
    let version = control.version().map_err(explain)?;
    let instances = all(&*control)?;
    let compute = match loaded {
        true => control.gpu_compute().map_err(explain)?,
        false => vec![],
    };
    let served = control.instance_compute().map_err(explain)?;
    let mounted = host
        .cgpufs_mounts()?
        .iter()
        .any(|path| path == Path::new(CGPUFS_MOUNT));
    let driver = json::Driver {
        loaded,
        version: json::known(&version.driver),
        branch: Some(version.branch).filter(|branch| *branch != 0),
        branch_assumed: version.branch_assumed != 0,
    };
    let head = pairs([
        (
            "module",
            format!("{} (ABI {})", text(&version.module), version.abi),
        ),
        ("NVIDIA driver", driver_text(&driver)),
        (
            "twins",
            if mounted {
                format!("mounted at {CGPUFS_MOUNT}")
            } else {
                "not mounted".to_owned()
            },
        ),
    ]);
    let text_form = format!(
        "{head}\n{}\n{}\n{}",
        gpu_table(&gpus),
        instance_table(&instances),
        compute_text(&compute, &served)
    );
    let body = json::Status {
        module: json::Module {
            version: text(&version.module).to_owned(),
            abi_version: version.abi,
        },
        driver,
        cgpufs: json::Cgpufs {
            mount_point: CGPUFS_MOUNT,
            mounted,
        },
        gpus: gpus.iter().map(json::Gpu::from).collect(),
        instances: instances.iter().map(json::Instance::from).collect(),
        compute: json::Compute {
            gpus: compute.iter().map(json::GpuCompute::from).collect(),
            instances: served.iter().map(json::InstanceCompute::from).collect(),
        },
    };
    Report::new(body, text_form)
}

/// How compute time is shared, and what each instance had of it.
fn compute_text(gpus: &[GpuCompute], instances: &[InstanceCompute]) -> String {
    let gpus = gpus.iter().map(|gpu| json::compute_line(gpu) + "\n");
    let mut text: String = gpus.collect();
    if instances.is_empty() {
        return text;
    }
    let head = ["NAME", "GPU", "PRIORITY", "COMPUTE", "GIVEN", "PARKED"];
    let rows = instances.iter().map(|i| {
        [
            i.key.name.as_str().unwrap_or_default().to_owned(),
            i.key.gpu_minor.to_string(),
            json::priority(i.state).name().to_owned(),
            json::doing(i.state).to_owned(),
            json::seconds(i.gpu_time_ns),
            json::seconds(i.blocked_ns),
        ]
    });
    text.push_str(&table(head, rows));
    text
}

fn driver_text(driver: &json::Driver) -> String {
    match (&driver.version, driver.branch) {
        (Some(version), Some(branch)) if driver.branch_assumed => format!(
            "{version} (of an unknown branch and taken for {branch}: limits and isolation may not hold)"
        ),
        (Some(version), Some(branch)) => format!("{version} (tables of branch {branch})"),
        (Some(version), None) => format!("{version} (no tables for it)"),
        (None, _) if driver.loaded => "version not known before a GPU is used".to_owned(),
        (None, _) => "not loaded, or it does not answer".to_owned(),
    }
}
