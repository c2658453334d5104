// SPDX-License-Identifier: GPL-2.0 OR MIT
//! `bug-report`: what somebody needs who looks for a fault, in one file that can be sent.
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
/// module, and versions: no environments, no command lines, no host name. It is a tar file; look at
/// it before you send it. Names of instances, PCI addresses and UUIDs of GPUs are in it.
#[derive(Args)]
#[command(after_help = "Examples:\n  cgpuctl bug-report --output /tmp/cgpu-bug-report.tar")]
pub(crate) struct BugReport {
    /// The file; cgpu-bug-report-SECONDS.tar in this folder if left out.
    #[arg(long, value_name = "FILE")]
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

/// Words by which a line about the module or the driver is told from others.
const OURS: [&str; 3] = ["cgpu", "nvidia", "NVRM"];

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
    let log = host.kernel_log();
    for (name, text) in [("proc/modules", modules), ("kernel-log", log)] {
        let text = text.map_or_else(missing, |text| ours(&text));
        all.push((name.to_owned(), text));
    }
    all
}

fn missing(errno: Errno) -> String {
    format!("cannot be read: {} ({})\n", errno as i32, errno.desc())
}

/// The lines about the module or the driver.
fn ours(text: &str) -> String {
    let is_ours = |line: &&str| OURS.iter().any(|word| line.contains(word));
    lines(text.lines().filter(is_ours))
}
