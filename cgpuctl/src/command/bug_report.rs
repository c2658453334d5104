// SPDX-License-Identifier: GPL-2.0 OR MIT
//! `bug-report`: all that is needed to look for a fault, in one file that can be sent.
//!
//! Everything that is taken is listed here by name. Environments, command lines, host names and the
//! settings of container engines are not taken: secrets are there.

use crate::{
    error::Failure,
    host::{Host, PathError},
    output::Report,
    text::lines,
};
use clap::Args;
use nix::errno::Errno;
use serde::Serialize;
use std::{
    fs::OpenOptions,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    time::{SystemTime, UNIX_EPOCH},
};
use tar::{Builder, Header};

/// Collect a bug report in one file, without secrets.
///
/// The file has what this tool says of the host, the kernel's messages about the driver and the
/// module, and versions. It has no environments, no command lines and no host name. Names of
/// instances, PCI addresses and UUIDs of GPUs are in it. It is a tar file; look at it before you
/// send it.
#[derive(Args)]
#[command(after_help = "Examples:\n  cgpuctl bug-report --to-file /tmp/cgpu-bug-report.tar")]
pub(crate) struct BugReport {
    /// The file; cgpu-bug-report-SECONDS.tar in this folder if left out.
    #[arg(long = "to-file", alias = "output", value_name = "FILE")]
    output: Option<PathBuf>,
}

#[derive(Serialize)]
struct BugReportMembers {
    output: String,
    contents: Vec<String>,
}

/// Lines of this tool whose output is taken, as JSON.
const SAID: [&str; 9] = [
    "version",
    "status",
    "doctor",
    "info",
    "gpu list",
    "inst list",
    "files",
    "cdi list",
    "metrics",
];

/// Files that are taken whole.
const FILES: [&str; 8] = [
    "/proc/version",
    "/proc/devices",
    "/proc/driver/nvidia/version",
    "/proc/driver/nvidia/params",
    "/sys/kernel/security/lockdown",
    "/etc/os-release",
    "/etc/cgpu/instances.toml",
    "/run/cdi/cgpu.json",
];

/// Folders of the module's settings.
const PARAMETERS: &str = "/sys/module/cgpu_km/parameters";

/// The beginnings of the kernel's messages that are taken: of the module, of its hook and of the
/// driver. The kernel's command line and audit records are in other messages.
const SAID_BY: [&str; 4] = ["cgpu_km: ", "cgpu-hook: ", "NVRM: ", "[drm] [nvidia-drm] "];

impl BugReport {
    pub(crate) fn attempt() -> String {
        "write a report".to_owned()
    }

    /// Writes the file. `said` tells what a line of this tool prints.
    pub(crate) fn report(
        &self,
        host: &dyn Host,
        said: &dyn Fn(&str) -> String,
    ) -> Result<Report, Failure> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let now = now.map_or(0, |now| now.as_secs());
        let named = self.output.clone();
        let shown = named.unwrap_or_else(|| format!("cgpu-bug-report-{now}.tar").into());
        let path = if shown.is_absolute() {
            host.path(&shown)
        } else {
            shown.clone()
        };
        let writing = |e: std::io::Error| PathError::on("writing", &shown)(e);
        // Never over another file, and for nobody else's eyes.
        let mut options = OpenOptions::new();
        let file = options.write(true).create_new(true).mode(0o600).open(&path);
        let mut archive = Builder::new(file.map_err(writing)?);
        let mut contents = Vec::new();
        for (name, text) in collected(host, said) {
            let mut header = Header::new_gnu();
            header.set_size(u64::try_from(text.len()).unwrap_or_default());
            header.set_mode(0o600);
            header.set_mtime(now);
            let place = format!("cgpu-bug-report/{name}");
            let added = archive.append_data(&mut header, &place, text.as_bytes());
            added.map_err(writing)?;
            contents.push(place);
        }
        archive.finish().map_err(writing)?;
        let members = BugReportMembers {
            output: shown.display().to_string(),
            contents,
        };
        let text = lines([format!(
            "{}: {} files; look at them before you send it",
            members.output,
            members.contents.len()
        )]);
        Ok(Report::new(members, text)?)
    }
}

/// The contents of the file, by name.
fn collected(host: &dyn Host, said: &dyn Fn(&str) -> String) -> Vec<(String, String)> {
    let files = host.look();
    let read = |path: &Path| files.read(path).unwrap_or_else(missing);
    let mut all: Vec<_> = SAID
        .iter()
        .map(|line| {
            let name = format!("cgpuctl/{}.json", line.replace(' ', "-"));
            (name, said(line))
        })
        .collect();
    let mut paths: Vec<PathBuf> = FILES.iter().map(PathBuf::from).collect();
    let parameters = files.names(Path::new(PARAMETERS)).unwrap_or_default();
    paths.extend(
        parameters
            .iter()
            .map(|name| Path::new(PARAMETERS).join(name)),
    );
    for path in &paths {
        let name = path.strip_prefix("/").unwrap_or(path).display().to_string();
        all.push((name, read(path)));
    }
    let modules = files.read(Path::new("/proc/modules"));
    all.push(("proc/modules".to_owned(), kept(modules, is_module)));
    let log = host.kernel_log();
    all.push(("kernel-log".to_owned(), kept(log, is_message)));
    all
}

fn missing(errno: Errno) -> String {
    format!("cannot be read: {} ({})\n", errno as i32, errno.desc())
}

/// Those lines of a text that are taken.
fn kept(text: Result<String, Errno>, is_taken: fn(&str) -> bool) -> String {
    text.map_or_else(missing, |text| {
        lines(text.lines().filter(|line| is_taken(line)))
    })
}

/// Whether a line of `/proc/modules` is about the module or the driver.
fn is_module(line: &str) -> bool {
    ["cgpu", "nvidia"].iter().any(|word| line.contains(word))
}

/// Whether a line of the kernel's log is a message about the module or the driver.
fn is_message(line: &str) -> bool {
    let said = line.split_once("] ").map_or(line, |(_, said)| said);
    // Of one of the driver's modules ("nvidia-uvm: "), or about a device of it ("nvidia 0000:").
    let of_driver = |rest: &str| {
        let name = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        rest.trim_start_matches(name).starts_with([':', ' '])
    };
    SAID_BY.iter().any(|who| said.starts_with(who))
        || said.strip_prefix("nvidia").is_some_and(of_driver)
}
