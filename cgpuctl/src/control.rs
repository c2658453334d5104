// SPDX-License-Identifier: GPL-2.0 OR MIT
//! What the commands need of their surroundings, as traits: the control device ([`Control`]) and
//! the host around it ([`Host`]). The real ones are in `client.rs` and `system.rs`; the tests put an
//! in-memory model behind the same traits.

use cgpu_uapi::{
    Gpu, GpuCompute, GpuSetCompute, Instance, InstanceCompute, InstanceCreate, InstanceGet,
    InstanceKey, InstanceSetCapabilities, InstanceSetCompute, InstanceSetManaged,
    InstanceSetMemory, InstanceSetWeight, Refusal, Version,
};
use nix::errno::Errno;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Name of the module, as `delete_module(2)` and `/proc/modules` know it.
pub const MODULE: &str = "cgpu_km";

/// The commands of `/dev/cgpuctl`, one method each. Errors are errno values, which
/// [`cgpu_uapi::Cause`] gives a meaning.
pub trait Control {
    /// Versions of ABI, module and driver.
    fn version(&self) -> Result<Version, Errno>;
    /// All GPUs, by minor.
    fn gpus(&self) -> Result<Vec<Gpu>, Errno>;
    /// All instances.
    fn instances(&self) -> Result<Vec<Instance>, Errno>;
    /// Makes an instance; fills in its number.
    fn create(&self, request: &mut InstanceCreate) -> Result<(), Errno>;
    /// Removes an instance.
    fn destroy(&self, key: &InstanceKey) -> Result<(), Errno>;
    /// Reads one instance.
    fn get(&self, request: &mut InstanceGet) -> Result<(), Errno>;
    /// Changes a memory limit.
    fn set_memory(&self, request: &InstanceSetMemory) -> Result<(), Errno>;
    /// Changes a weight.
    fn set_weight(&self, request: &InstanceSetWeight) -> Result<(), Errno>;
    /// Changes what becomes of managed memory.
    fn set_managed(&self, request: &InstanceSetManaged) -> Result<(), Errno>;
    /// Changes what an instance is for.
    fn set_capabilities(&self, request: &InstanceSetCapabilities) -> Result<(), Errno>;
    /// The refused calls of an instance, and how many more there were without a record.
    fn refusals(&self, key: &InstanceKey) -> Result<(Vec<Refusal>, u64), Errno>;
    /// Changes how the compute time of a GPU is shared.
    fn set_gpu_compute(&self, request: &GpuSetCompute) -> Result<(), Errno>;
    /// Changes the priority of an instance, suspends or resumes it.
    fn set_instance_compute(&self, request: &InstanceSetCompute) -> Result<(), Errno>;
    /// How the compute time of each GPU is shared.
    fn gpu_compute(&self) -> Result<Vec<GpuCompute>, Errno>;
    /// What compute time each instance was given.
    fn instance_compute(&self) -> Result<Vec<InstanceCompute>, Errno>;
}

/// A file operation of the host that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathError {
    /// What was tried, as in "… failed".
    pub action: &'static str,
    /// On what.
    pub path: PathBuf,
    /// Why it failed.
    pub errno: Errno,
}

/// Instances being watched.
pub trait Watch {
    /// Waits until an instance has come or gone since the last time.
    fn wait(&mut self) -> Result<(), PathError>;
}

/// The host: where the control device is opened, cgpufs is mounted and the module unloaded.
pub trait Host {
    /// How long to wait where a command wants to wait so long; a host in memory does not.
    fn pause(&self, length: Duration) -> Duration {
        length
    }
    /// A path of the host, as this program reaches it.
    fn path(&self, path: &Path) -> PathBuf {
        path.to_owned()
    }
    /// Where the program `cgpu-hook` of this installation is, if it is installed.
    fn hook(&self) -> Option<PathBuf>;
    /// Begins to watch the instances come and go.
    fn watch(&self) -> Result<Box<dyn Watch>, PathError>;
    /// Opens the control device.
    fn control(&self) -> Result<Box<dyn Control>, Errno>;
    /// Where cgpufs, or a file of it, is mounted in this mount namespace; a path that is mounted
    /// over twice is listed twice.
    fn cgpufs_mounts(&self) -> Result<Vec<PathBuf>, PathError>;
    /// Mounts cgpufs at [`cgpu_uapi::CGPUFS_MOUNT`], below a folder that only root can enter,
    /// unless it is mounted there. Tells whether it did.
    fn mount_cgpufs(&self) -> Result<bool, PathError>;
    /// Unmounts cgpufs from this path.
    fn unmount_cgpufs(&self, path: &Path) -> Result<(), PathError>;
    /// Removes the folders that [`Self::mount_cgpufs`] made, if they are empty.
    fn remove_mount_point(&self);
    /// Unloads the module without waiting for its users.
    fn unload_module(&self) -> Result<(), Errno>;
    /// Its files, for those who look only.
    fn look(&self) -> &dyn Look;
}

/// What `stat(2)` tells of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// Device number of the filesystem that it lies in.
    pub device: u64,
    /// Its mode, type included.
    pub mode: u32,
    /// Its owner.
    pub uid: u32,
    /// Whether it is a character device, whose number the next two are.
    pub is_char_device: bool,
    /// Major number.
    pub major: u64,
    /// Minor number.
    pub minor: u64,
}

/// Looks at the host's files and changes none.
pub trait Look {
    /// The text of a file; what is not UTF-8 is replaced.
    fn read(&self, path: &Path) -> Result<String, Errno>;
    /// The names in a folder.
    fn names(&self, folder: &Path) -> Result<Vec<OsString>, Errno>;
    /// What a path leads to.
    fn status(&self, path: &Path) -> Result<Status, Errno>;
    /// The instructions of the device programs of a control group itself.
    fn device_programs(&self, group: &Path) -> Result<Vec<Vec<u64>>, Errno>;
}
