// SPDX-License-Identifier: GPL-2.0
//! References of open files, and their places in a descriptor table.

use super::extra;
use core::ptr::NonNull;
use kernel::{
    bindings,
    prelude::*, //
};

/// An open file, which stays open as long as this exists.
///
/// # Invariants
///
/// We hold a reference of it.
pub(in crate::os_interface) struct FileRef(NonNull<bindings::file>);

// SAFETY: A `struct file` may be used and put by any task.
unsafe impl Send for FileRef {}
// SAFETY: The kernel and the driver lock what they change in a `struct file`.
unsafe impl Sync for FileRef {}

impl FileRef {
    /// The file that a descriptor of the current task stands for; `None` if there is none, or one
    /// that was opened for its path alone.
    pub(in crate::os_interface) fn of_current(descriptor: i32) -> Option<Self> {
        let descriptor = c_uint::try_from(descriptor).ok()?;
        // SAFETY: Any number may be asked for.
        let file = unsafe { bindings::fget(descriptor) };
        // INVARIANT: `fget` gives a reference.
        NonNull::new(file).map(Self)
    }

    /// One more reference of an open file.
    ///
    /// # Safety
    ///
    /// `file` is open.
    pub(in crate::os_interface) unsafe fn get(file: NonNull<bindings::file>) -> Self {
        // SAFETY: The file is open, as this function's contract says.
        unsafe { bindings::get_file(file.as_ptr()) };
        // INVARIANT: Just taken.
        Self(file)
    }

    /// A reference of a file; `None` if its last one is gone and it is being released.
    ///
    /// # Safety
    ///
    /// `file` is not freed during the call.
    pub(in crate::os_interface) unsafe fn get_active(
        file: NonNull<bindings::file>,
    ) -> Option<Self> {
        // SAFETY: The memory is there, as this function's contract says.
        let file = unsafe { extra::cgpu_shim_get_file_active(file.as_ptr()) };
        // INVARIANT: `get_file_active` gives a reference.
        NonNull::new(file).map(Self)
    }

    /// The file; open as long as `self`.
    pub(in crate::os_interface) fn as_non_null(&self) -> NonNull<bindings::file> {
        self.0
    }

    /// The same as a plain pointer, for the kernel's functions.
    pub(in crate::os_interface) fn as_ptr(&self) -> *mut bindings::file {
        self.0.as_ptr()
    }
}

impl Drop for FileRef {
    fn drop(&mut self) {
        // SAFETY: By the type's invariant the reference is ours.
        unsafe { bindings::fput(self.0.as_ptr()) };
    }
}

/// A file in the current task's descriptor table, closed when this is dropped.
pub(in crate::os_interface) struct InstalledFile(c_uint);

impl InstalledFile {
    /// Puts `file` into the table.
    ///
    /// # Safety
    ///
    /// `file` is open.
    pub(in crate::os_interface) unsafe fn new(file: *mut bindings::file) -> Result<Self> {
        // Close-on-exec: what the task starts meanwhile gets a copy of its table.
        // SAFETY: Takes a free descriptor of the current task; there is no precondition.
        let fd = unsafe { bindings::get_unused_fd_flags(bindings::O_CLOEXEC) };
        let fd = c_uint::try_from(fd).map_err(|_| Error::from_errno(fd))?;
        // SAFETY: The file is open, as this function's contract says.
        let file = unsafe { bindings::get_file(file) };
        // SAFETY: `fd` was just reserved by this task, and the reference is given to the table.
        unsafe { bindings::fd_install(fd, file) };
        Ok(Self(fd))
    }

    /// Its descriptor, as parameters have it.
    pub(in crate::os_interface) fn number(&self) -> Result<i32> {
        i32::try_from(self.0).map_err(|_| EMFILE)
    }
}

impl Drop for InstalledFile {
    fn drop(&mut self) {
        // SAFETY: Closes what `new` opened in this same table. If the task has closed it itself,
        // this fails, or closes what the task has opened since.
        unsafe { bindings::close_fd(self.0) };
    }
}
