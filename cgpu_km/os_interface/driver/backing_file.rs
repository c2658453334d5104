// SPDX-License-Identifier: GPL-2.0
//! Files of the NVIDIA driver that the module opened itself.
//!
//! A node's backing file is opened once, in the context of the host's root who configures it, and
//! is never looked up by a path again: a container's mounts cannot redirect it. It is the template
//! of every proxied file of that node: it gives them the real inode and the driver's operations, it
//! keeps both alive, and the worker holds it up as the decoy that the driver looks for.

use super::vm_tables::VmTables;
use crate::os_interface::base::{
    extra,
    file_ref::InstalledFile, //
};
use core::{
    fmt,
    ptr::NonNull, //
};
use kernel::{
    bindings,
    error::from_err_ptr,
    prelude::*,
    sync::Arc, //
};

/// The number of a character device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceNumber {
    /// Major number, 195 for NVIDIA's control and GPU devices.
    pub major: u32,
    /// Minor number.
    pub minor: u32,
}

/// `major:minor`.
impl fmt::Display for DeviceNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.major, self.minor)
    }
}

/// A file of the NVIDIA driver, open as long as this exists.
///
/// # Invariants
///
/// `file` is one of a character device that `filp_open` returned, and its reference is
/// ours.
pub struct BackingFile {
    file: NonNull<bindings::file>,
    tables: VmTables,
}

// SAFETY: A `struct file` may be used and put by any task.
unsafe impl Send for BackingFile {}
// SAFETY: Any number of tasks may call a file's operations; the driver locks what they change.
unsafe impl Sync for BackingFile {}

impl BackingFile {
    /// Opens the device at `path` for reading and writing, in the mount namespace and with the
    /// rights of the calling task, who must be the host's root. Opening a GPU's device initializes
    /// the GPU, and it stays initialized until the file is closed.
    ///
    /// `ENODEV` where `path` is no character device, else what the driver's `open` says (`ENOENT`
    /// or `ENXIO` where the driver is not loaded).
    pub fn open(path: &CStr) -> Result<Arc<Self>> {
        let flags = bindings::O_RDWR | bindings::O_CLOEXEC;
        // CAST: a bit mask below 2^31.
        let flags = flags as c_int;
        // SAFETY: `path` is a NUL-terminated string.
        let file = from_err_ptr(unsafe { bindings::filp_open(path.as_char_ptr(), flags, 0) })?;
        let file = NonNull::new(file).ok_or(ENODEV)?;
        // INVARIANT: `filp_open` gave us the reference; that it is a device is checked below.
        let this = Self {
            file,
            tables: VmTables::new(),
        };
        // SAFETY: The inode of an open file is valid.
        if !unsafe { extra::cgpu_shim_is_character_device(this.inode()) } {
            return Err(ENODEV);
        }
        Ok(Arc::new(this, GFP_KERNEL)?)
    }

    /// The number of the device.
    pub fn number(&self) -> DeviceNumber {
        // SAFETY: The inode of an open file is valid, and its number never changes.
        let number = unsafe { extra::cgpu_shim_device_number(self.inode()) };
        DeviceNumber {
            major: number >> bindings::MINORBITS,
            minor: number & ((1 << bindings::MINORBITS) - 1),
        }
    }

    /// Calls `work` with a descriptor of this file in the calling task's table, that of the host's
    /// root who uses the control device. It is closed afterwards.
    pub fn with_descriptor<T>(&self, work: impl FnOnce(i32) -> T) -> Result<T> {
        // SAFETY: By the type's invariant this is an open file.
        let installed = unsafe { InstalledFile::new(self.file.as_ptr()) }?;
        Ok(work(installed.number()?))
    }

    /// The file; open as long as `self`.
    pub(in crate::os_interface) fn as_non_null(&self) -> NonNull<bindings::file> {
        self.file
    }

    /// The file; open as long as `self`.
    pub(in crate::os_interface) fn as_ptr(&self) -> *mut bindings::file {
        self.file.as_ptr()
    }

    /// The operations that stand before the driver's own for mappings.
    pub(in crate::os_interface) fn tables(&self) -> &VmTables {
        &self.tables
    }

    /// The real inode; valid as long as `self`.
    pub(in crate::os_interface) fn inode(&self) -> *mut bindings::inode {
        // SAFETY: By the type's invariant this is an open file.
        unsafe { extra::cgpu_shim_inode(self.file.as_ptr()) }
    }

    /// The driver's module; there as long as `self`, since the open file holds it.
    pub(in crate::os_interface) fn owner(&self) -> *mut bindings::module {
        // SAFETY: By the type's invariant this is an open file.
        unsafe { extra::cgpu_shim_owner(self.file.as_ptr()) }
    }

    /// Calls the driver's `ioctl` for `file` with the credentials that are installed now, and gives
    /// what that returns.
    ///
    /// # Safety
    ///
    /// `file` is an open file of this driver (this one, or one that its `open` was called for), and
    /// stays open during the call.
    pub(in crate::os_interface) unsafe fn ioctl(
        &self,
        file: NonNull<bindings::file>,
        cmd: u32,
        arg: u64,
    ) -> Result<i32> {
        // CAST: c_ulong is 64 bits wide.
        let arg = arg as c_ulong;
        // SAFETY: `file` is open and the driver's, as this function's contract says.
        let result =
            unsafe { extra::cgpu_shim_driver_ioctl(self.as_ptr(), file.as_ptr(), cmd, arg) };
        // The driver's ioctls return 0 or a negative errno; no number beyond an `int` ever reaches
        // user space.
        i32::try_from(result).map_err(|_| EIO)
    }
}

impl Drop for BackingFile {
    fn drop(&mut self) {
        // SAFETY: The reference is ours, and the file is in no descriptor table.
        unsafe { bindings::filp_close(self.file.as_ptr(), core::ptr::null_mut()) };
    }
}
