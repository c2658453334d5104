// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The host around the control device, as traits: mounts, the module, files. The real one is in
//! `system.rs`; the tests put a model in memory behind the same traits.

use crate::{container::Mount, control::Control, exit::Exit};
pub use cgpu_client::path_error::PathError;
use nix::errno::Errno;
use std::{
    ffi::OsString,
    path::{Path, PathBuf},
    time::Duration,
};

/// Name of the module, as `delete_module(2)` and `/proc/modules` know it.
pub const MODULE: &str = "cgpu_km";

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
    /// Whether what is printed may have colors.
    fn is_colored(&self) -> bool {
        false
    }
    /// The path of this installation's `cgpu-hook`, if it is installed.
    fn hook(&self) -> Option<PathBuf>;
    /// The report of this installation's `cgpu-preflight`: for each thing a line of four fields
    /// with a tab between them. ENOENT if it is not installed.
    fn preflight(&self) -> Result<String, Errno>;
    /// Begins to watch the instances come and go.
    fn watch(&self) -> Result<Box<dyn Watch>, PathError>;
    /// Opens the control device.
    fn control(&self) -> Result<Box<dyn Control>, Errno>;
    /// The places at which cgpufs, or a file of it, is mounted in this mount namespace; a path that
    /// is mounted over twice is listed twice.
    fn cgpufs_mounts(&self) -> Result<Vec<PathBuf>, PathError>;
    /// Mounts cgpufs at [`cgpu_uapi::CGPUFS_MOUNT`], below a folder that only root can enter,
    /// unless it is mounted there. Tells whether it did.
    fn mount_cgpufs(&self) -> Result<bool, PathError>;
    /// Runs a program that sees these files of the host at other places, and waits for its end.
    fn run_program(&self, program: &[OsString], mounts: &[Mount]) -> Result<Exit, PathError>;
    /// Unmounts cgpufs from this path.
    fn unmount_cgpufs(&self, path: &Path) -> Result<(), PathError>;
    /// Removes the folders that [`Self::mount_cgpufs`] made, if they are empty.
    fn remove_mount_point(&self);
    /// Unloads the module without waiting for its users.
    fn unload_module(&self) -> Result<(), Errno>;
    /// The messages of the kernel since its start, as far as it has them, one a line.
    fn kernel_log(&self) -> Result<String, Errno>;
    /// Its files, for those who look only.
    fn look(&self) -> &dyn Look;
}

/// A file's facts, as `stat(2)` reports them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileStatus {
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
    /// The target of a link.
    fn link(&self, path: &Path) -> Result<PathBuf, Errno>;
    /// The facts of the file that a path leads to.
    fn status(&self, path: &Path) -> Result<FileStatus, Errno>;
    /// The instructions of the device programs of a control group itself.
    fn device_programs(&self, group: &Path) -> Result<Vec<Vec<u64>>, Errno>;
}
