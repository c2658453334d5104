// SPDX-License-Identifier: GPL-2.0 OR MIT
//! `inst mounts`: how a container gets a tenant, in the words of the engines.

use super::{open, target};
use crate::cli::{Format, Mounts};
use crate::container::{devices, twins, Device, Mount};
use crate::control::Host;
use crate::error::{Failure, Problem};
use crate::output::Report;
use nix::errno::Errno;
use serde::Serialize;
use serde_json::{json, Value};

/// What a container needs, for programs.
#[derive(Serialize)]
struct Body {
    name: String,
    devices: Vec<Device>,
    mounts: Vec<Mount>,
    podman_arguments: Vec<String>,
    docker_arguments: Vec<String>,
    oci: Value,
}

pub(super) fn run(host: &dyn Host, args: &Mounts) -> Result<Report, Failure> {
    report(host, args).map_err(|problem| {
        problem.when(format!("tell the mounts of {}", target::called(&args.name)))
    })
}

fn report(host: &dyn Host, args: &Mounts) -> Result<Report, Problem> {
    let control = open(host)?;
    let instances = target::tenant(&*control, &args.name)?;
    // What is printed must exist, also after somebody has unmounted it.
    host.mount_cgpufs()?;
    let name = args.name.as_str().unwrap_or_default();
    let devices = devices(name, &instances);
    let mounts = twins(name, &instances);
    let body = Body {
        name: name.to_owned(),
        podman_arguments: arguments(&devices, &mounts, podman_mount),
        docker_arguments: arguments(&devices, &mounts, docker_mount),
        oci: oci(&devices, &mounts),
        devices,
        mounts,
    };
    // For people an argument per line, for `podman run $(cgpuctl inst mounts …)` all in one: no name
    // has a byte that a shell would take apart.
    let text = match args.format {
        Some(Format::Podman) => body.podman_arguments.join(" ") + "\n",
        Some(Format::Docker) => body.docker_arguments.join(" ") + "\n",
        Some(Format::Containerd) => oci_text(&body)?,
        None => format!(
            "podman run \\\n  {}\n\ndocker run \\\n  {}\n\n\
             containerd: merge into the OCI configuration\n{}",
            body.podman_arguments.join(" \\\n  "),
            body.docker_arguments.join(" \\\n  "),
            oci_text(&body)?
        ),
    };
    Report::new(body, text)
}

/// Podman mounts volumes `nodev` unless told otherwise.
fn podman_mount(mount: &Mount) -> String {
    format!("--volume={}:{}:rw,dev", mount.source, mount.destination)
}

fn docker_mount(mount: &Mount) -> String {
    format!(
        "--mount=type=bind,source={},target={}",
        mount.source, mount.destination
    )
}

fn arguments(
    devices: &[Device],
    mounts: &[Mount],
    mount: impl Fn(&Mount) -> String,
) -> Vec<String> {
    // Without `m`: a container has nothing to make of these numbers that it has not got.
    devices
        .iter()
        .map(|device| format!("--device={}:rw", device.path))
        .chain(mounts.iter().map(mount))
        .collect()
}

/// Members of `config.json` of the OCI runtime specification. No `linux.devices`: the container
/// needs the right to the numbers, not the honest nodes.
fn oci(devices: &[Device], mounts: &[Mount]) -> Value {
    let rules: Vec<_> = devices
        .iter()
        .map(|device| {
            json!({
                "allow": true,
                "type": "c",
                "major": device.major,
                "minor": device.minor,
                "access": "rw",
            })
        })
        .collect();
    let mounts: Vec<_> = mounts
        .iter()
        .map(|mount| {
            json!({
                "destination": mount.destination,
                "type": "bind",
                "source": mount.source,
                "options": ["bind", "rw", "nosuid", "noexec"],
            })
        })
        .collect();
    json!({"linux": {"resources": {"devices": rules}}, "mounts": mounts})
}

fn oci_text(body: &Body) -> Result<String, Problem> {
    let text = serde_json::to_string_pretty(&body.oci);
    Ok(text.map_err(|_| Problem::Output { errno: Errno::EIO })? + "\n")
}
