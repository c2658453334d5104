// SPDX-License-Identifier: GPL-2.0 OR MIT
//! `ps`: the processes that hold memory of an instance, as the lower table of `nvidia-smi`, with
//! their instance and container.

use super::{inst_list, target};
use crate::{
    args::{Form, Listing},
    error::{Failure, Problem},
    host::{Host, Look, PathError},
    output::Report,
    size::Bytes,
    text::{lines, printable, table},
    verb::Verb,
};
use cgpu_uapi::{Instance, Name};
use clap::Args;
use nix::errno::Errno;
use serde::Serialize;
use std::{collections::BTreeSet, path::PathBuf};

/// List the processes that hold memory of an instance.
///
/// With -q and -o name it prints their process ids.
#[derive(Args)]
#[command(after_help = "Examples:\n  cgpuctl ps train -o wide")]
pub(crate) struct Ps {
    /// Only those of this instance.
    #[arg(value_parser = crate::args::name)]
    name: Option<Name>,
    #[command(flatten)]
    listing: Listing,
    /// Show each command with its arguments: the same as -o wide.
    #[arg(short, long, hide = true, conflicts_with_all = ["output", "quiet"])]
    wide: bool,
}

#[derive(Serialize)]
struct PsMembers {
    processes: Vec<Holder>,
}

/// A process with memory. What `/proc` does not tell any more is `null`.
#[derive(Serialize)]
struct Holder {
    gpu_minor: u32,
    name: String,
    pid: u32,
    memory_bytes: u64,
    container_id: Option<String>,
    command: Option<String>,
    #[serde(rename = "arguments")]
    line: Option<Vec<String>>,
}

impl Verb for Ps {
    fn attempt(&self) -> String {
        "list the processes".to_owned()
    }

    fn run(&self, host: &dyn Host) -> Result<Report, Failure> {
        let control = target::open(host)?;
        let instances = match &self.name {
            Some(name) => target::tenant(&*control, name)?,
            None => inst_list::all(&*control)?,
        };
        let mut processes = Vec::new();
        for instance in &instances {
            processes.extend(of_instance(host.look(), instance)?);
        }
        let text = match self.listing.format() {
            Some(Form::Name) => {
                // A process may have memory on several GPUs.
                let ids: BTreeSet<_> = processes.iter().map(|p| p.pid).collect();
                lines(ids.iter().map(u32::to_string))
            }
            form => text(&processes, self.wide || form == Some(Form::Wide)),
        };
        Ok(Report::new(PsMembers { processes }, text)?)
    }

    fn wants_json(&self) -> bool {
        self.listing.is_json()
    }
}

/// The table; a wide one has each command with its arguments.
fn text(processes: &[Holder], wide: bool) -> String {
    if processes.is_empty() {
        return "No process holds memory.\n".to_owned();
    }
    let dash = |text: Option<&str>| text.unwrap_or("-").to_owned();
    let rows = processes.iter().map(|p| {
        let short = p
            .container_id
            .as_deref()
            .map(|id| id.get(..12).unwrap_or(id));
        let line = p.line.as_ref().filter(|_| wide).map(|line| line.join(" "));
        [
            p.name.clone(),
            p.gpu_minor.to_string(),
            p.pid.to_string(),
            Bytes(p.memory_bytes).to_string(),
            dash(short),
            dash(line.as_deref().or(p.command.as_deref())),
        ]
    });
    table(
        ["NAME", "GPU", "PID", "MEMORY", "CONTAINER", "COMMAND"],
        rows,
    )
}

/// The processes of an instance, those with the most memory first.
fn of_instance(files: &dyn Look, instance: &Instance) -> Result<Vec<Holder>, Problem> {
    let name = instance.key.name.as_str().unwrap_or_default();
    let gpu_minor = instance.key.gpu_minor;
    let path = PathBuf::from(format!("/proc/cgpu_km/{gpu_minor}/{name}/meminfo"));
    let text = match files.read(&path) {
        // It was destroyed meanwhile.
        Err(Errno::ENOENT | Errno::ENODEV) => return Ok(vec![]),
        read => read.map_err(PathError::on("reading", &path))?,
    };
    let mut processes: Vec<_> = text
        .lines()
        .filter_map(process)
        .map(|(pid, memory_bytes)| {
            let read = |file: &str| {
                files
                    .read(&PathBuf::from(format!("/proc/{pid}/{file}")))
                    .ok()
            };
            Holder {
                gpu_minor,
                name: name.to_owned(),
                pid,
                memory_bytes,
                container_id: read("cgroup").and_then(|groups| container(&groups)),
                command: read("comm").map(|comm| printable(comm.trim_end())),
                line: read("cmdline").map(|line| arguments(&line)),
            }
        })
        .collect();
    processes.sort_by_key(|p| (u64::MAX - p.memory_bytes, p.pid));
    Ok(processes)
}

/// `PID: 4711 Mem: 1024`
fn process(line: &str) -> Option<(u32, u64)> {
    let (pid, memory) = line.strip_prefix("PID: ")?.split_once(" Mem: ")?;
    Some((pid.parse().ok()?, memory.trim().parse().ok()?))
}

/// The container's id in the text of `/proc/PID/cgroup`: the last 64 hexadecimal digits that stand
/// alone, since engines put them into the name of the control group (`docker-ID.scope`,
/// `libpod-ID.scope`, `cri-containerd-ID.scope`, `/kubepods/.../ID`).
fn container(groups: &str) -> Option<String> {
    let mut words = groups.split(|c: char| !c.is_ascii_alphanumeric());
    let is_id = |word: &&str| word.len() == 64 && word.bytes().all(|b| b.is_ascii_hexdigit());
    words.rfind(is_id).map(str::to_owned)
}

fn arguments(line: &str) -> Vec<String> {
    let words = line.split_terminator('\0');
    words.map(printable).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_container_is_told_by_its_control_group() {
        let id = "0123456789abcdef".repeat(4);
        for groups in [
            format!("0::/system.slice/docker-{id}.scope\n"),
            format!("0::/machine.slice/libpod-{id}.scope/container\n"),
            format!("12:devices:/docker/{id}\n0::/\n"),
            format!("0::/kubepods.slice/kubepods-pod1.slice/cri-containerd-{id}.scope\n"),
            format!("0::/kubepods/burstable/pod7b0f-22/{id}\n"),
        ] {
            assert_eq!(container(&groups), Some(id.clone()), "{groups}");
        }
        for groups in [
            "0::/user.slice/user-0.slice/session-3.scope\n",
            "",
            "0::/libpod-0123.scope\n",
        ] {
            assert_eq!(container(groups), None, "{groups}");
        }
    }

    #[test]
    fn lines_without_a_process_are_skipped() {
        assert_eq!(process("PID: 4711 Mem: 1024"), Some((4711, 1024)));
        for line in ["Free: 1024", "PID: x Mem: 1", "PID: 1 Mem: ", ""] {
            assert_eq!(process(line), None, "{line}");
        }
    }
}
