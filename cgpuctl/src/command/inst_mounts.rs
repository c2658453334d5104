// SPDX-License-Identifier: GPL-2.0 OR MIT
//! `inst mounts`: how a container gets a tenant, in the words of the engines.

use super::target;
use crate::{
    args::name,
    container::{host_nodes, proxy_nodes, HostNode, Mount},
    error::{Failure, Problem},
    host::Host,
    output::Report,
    verb::Verb,
};
use cgpu_uapi::Name;
use clap::{Args, ValueEnum};
use nix::errno::Errno;
use serde::Serialize;
use serde_json::{json, Value};

/// Print what to give to podman, docker or containerd for a container with this instance.
#[derive(Args)]
#[command(after_help = "Examples:\n  cgpuctl inst mounts train --format podman")]
pub(crate) struct InstMounts {
    /// Name of the instance.
    #[arg(value_parser = name)]
    name: Name,
    /// Print only what this runtime takes, ready for use: one line of arguments, or JSON to merge
    /// into an OCI configuration.
    #[arg(long, conflicts_with = "json")]
    format: Option<Format>,
}

/// Container runtimes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// Arguments of `podman run`.
    Podman,
    /// Arguments of `docker run`.
    Docker,
    /// Members of an OCI runtime configuration, JSON.
    Containerd,
}

#[derive(Serialize)]
struct MountsMembers {
    name: String,
    devices: Vec<HostNode>,
    mounts: Vec<Mount>,
    podman_arguments: Vec<String>,
    docker_arguments: Vec<String>,
    oci: Value,
}

impl Verb for InstMounts {
    fn attempt(&self) -> String {
        format!("print the mounts of {}", target::called(&self.name))
    }

    fn run(&self, host: &dyn Host) -> Result<Report, Failure> {
        let control = target::open(host)?;
        let instances = target::tenant(&*control, &self.name)?;
        // The printed paths must exist, also after somebody has unmounted it.
        host.mount_cgpufs()?;
        let name = self.name.as_str().unwrap_or_default();
        let nodes = host_nodes(name, &instances);
        let mounts = proxy_nodes(name, &instances);
        let members = MountsMembers {
            name: name.to_owned(),
            podman_arguments: arguments(&nodes, &mounts, podman_mount),
            docker_arguments: arguments(&nodes, &mounts, docker_mount),
            oci: oci(&nodes, &mounts),
            devices: nodes,
            mounts,
        };
        let text = text_of(self.format, &members)?;
        Ok(Report::new(members, text)?)
    }
}

/// For people an argument a line, for `podman run $(cgpuctl inst mounts …)` all in one: no name has
/// a byte that a shell would take apart.
fn text_of(format: Option<Format>, members: &MountsMembers) -> Result<String, Problem> {
    Ok(match format {
        Some(Format::Podman) => members.podman_arguments.join(" ") + "\n",
        Some(Format::Docker) => members.docker_arguments.join(" ") + "\n",
        Some(Format::Containerd) => oci_text(&members.oci)?,
        None => format!(
            "podman run \\\n  {}\n\ndocker run \\\n  {}\n\n\
             containerd: merge into the OCI configuration\n{}",
            members.podman_arguments.join(" \\\n  "),
            members.docker_arguments.join(" \\\n  "),
            oci_text(&members.oci)?
        ),
    })
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
    devices: &[HostNode],
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
/// needs the right to the numbers, not the host nodes.
fn oci(devices: &[HostNode], mounts: &[Mount]) -> Value {
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

fn oci_text(oci: &Value) -> Result<String, Problem> {
    let text = serde_json::to_string_pretty(oci);
    Ok(text.map_err(|_| Problem::Output { errno: Errno::EIO })? + "\n")
}
