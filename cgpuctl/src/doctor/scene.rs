// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The scene that the checks look at, and their findings.

use crate::{
    control::Control,
    host::{FileStatus, Host, Look},
    text::printable,
};
use cgpu_uapi::{Gpu, GpuCompute, Instance, Version};
use nix::errno::Errno;
use serde::Serialize;
use std::path::Path;

/// Major number of the driver's control and GPU devices (`NV_MAJOR_DEVICE_NUMBER`,
/// nv-chardev-numbers.h).
pub(crate) const NVIDIA_MAJOR: u64 = 195;

/// How a thing was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum FindingState {
    /// As it must be.
    Ok,
    /// It could not be looked at.
    Unknown,
    /// The limits hold, but something around them is weaker than it could be.
    Warning,
    /// A limit or the isolation of tenants does not hold, or nothing works.
    Failed,
}

impl FindingState {
    /// Its word.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Unknown => "unknown",
            Self::Warning => "warning",
            Self::Failed => "failed",
        }
    }
}

/// The result of a check for one thing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Which check: a word that never changes.
    pub check: &'static str,
    /// About what: a path, a container, a process.
    pub subject: String,
    /// How it is.
    pub state: FindingState,
    /// How it was found.
    pub found: String,
    /// How it should be.
    pub wanted: String,
    /// How to get there; empty where nothing is to be done.
    pub fix: String,
}

impl Finding {
    /// A finding of `check` about `subject`, sound unless one of the methods below says otherwise.
    pub fn ok(
        check: &'static str,
        subject: impl Into<String>,
        found: impl Into<String>,
        wanted: impl Into<String>,
    ) -> Self {
        Self {
            check,
            subject: subject.into(),
            state: FindingState::Ok,
            found: found.into(),
            wanted: wanted.into(),
            fix: String::new(),
        }
    }

    /// The same thing, as it should not be, and what to do about it.
    pub fn warning(self, fix: impl Into<String>) -> Self {
        self.with(FindingState::Warning, fix)
    }

    /// The same thing, as it must not be, and what to do about it.
    pub fn failed(self, fix: impl Into<String>) -> Self {
        self.with(FindingState::Failed, fix)
    }

    /// The same thing, which could not be looked at, and what would help.
    pub fn unknown(self, fix: impl Into<String>) -> Self {
        self.with(FindingState::Unknown, fix)
    }

    fn with(mut self, state: FindingState, fix: impl Into<String>) -> Self {
        self.state = state;
        self.fix = fix.into();
        self
    }
}

/// The host and the module as they were when the checks began.
pub struct Scene<'a> {
    /// The host around the module.
    pub host: &'a dyn Host,
    /// The module's words on itself and the driver; the errno where the control device cannot be
    /// opened or does not answer.
    pub version: Result<Version, Errno>,
    /// Its GPUs; the errno where it cannot say.
    pub gpus: Result<Vec<Gpu>, Errno>,
    /// Its instances; none where it cannot say.
    pub instances: Vec<Instance>,
    /// How its GPUs are shared; none where it cannot say.
    pub compute: Vec<GpuCompute>,
}

impl<'a> Scene<'a> {
    /// Asks the module, if it is there.
    pub fn new(host: &'a dyn Host) -> Self {
        let control = host.control();
        let ask = |control: &dyn Control| {
            let (gpus, version) = (control.gpus(), control.version());
            (gpus, version, control.instances(), control.gpu_compute())
        };
        // The GPUs first: looking for them is what makes the module ask the driver for its version.
        let (gpus, version, instances, compute) = match &control {
            Ok(control) => ask(&**control),
            Err(errno) => (Err(*errno), Err(*errno), Err(*errno), Err(*errno)),
        };
        Self {
            host,
            version,
            gpus,
            instances: instances.unwrap_or_default(),
            compute: compute.unwrap_or_default(),
        }
    }

    /// The host's files.
    pub fn files(&self) -> &dyn Look {
        self.host.look()
    }
}

/// The processes, by their folders in `/proc`.
pub(crate) fn processes(files: &dyn Look) -> Result<Vec<u32>, Errno> {
    let mut pids: Vec<u32> = files
        .names(Path::new("/proc"))?
        .iter()
        .filter_map(|name| name.to_str()?.parse().ok())
        .collect();
    pids.sort_unstable();
    Ok(pids)
}

/// "python3 (4711)"; a process that has gone meanwhile has its number alone.
pub(crate) fn process_name(files: &dyn Look, pid: u32) -> String {
    match files.read(Path::new(&format!("/proc/{pid}/comm"))) {
        Ok(comm) => format!("{} ({pid})", printable(comm.trim_end())),
        Err(_) => format!("({pid})"),
    }
}

/// Whether a file is one of the driver's devices by its number: `uvm_major` is the number that the
/// kernel gave the UVM device, where it is known.
pub(crate) fn is_nvidia(status: &FileStatus, uvm_major: Option<u64>) -> bool {
    status.is_char_device && (status.major == NVIDIA_MAJOR || Some(status.major) == uvm_major)
}

/// The major number of the UVM device (`/proc/devices`; the driver registers it as "nvidia-uvm").
pub(crate) fn uvm_major(files: &dyn Look) -> Option<u64> {
    let devices = files.read(Path::new("/proc/devices")).ok()?;
    devices.lines().find_map(|line| {
        let (major, name) = line.trim().split_once(' ')?;
        (name == "nvidia-uvm").then(|| major.parse().ok()).flatten()
    })
}
