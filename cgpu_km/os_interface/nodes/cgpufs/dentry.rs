// SPDX-License-Identifier: GPL-2.0
//! Dentries of the filesystem: how one is put in and taken out, and what none of them allows.

use crate::os_interface::base::extra;
use core::ptr::NonNull;
use kernel::{
    bindings,
    error::from_err_ptr,
    prelude::*, //
};

/// Puts `inode` into `directory` as `name`, or drops it.
///
/// # Safety
///
/// `directory` is one of a superblock that is alive, `inode` a new inode of it, whose reference
/// this takes.
pub(super) unsafe fn make(
    directory: *mut bindings::dentry,
    name: &CStr,
    inode: NonNull<bindings::inode>,
) -> Result<*mut bindings::dentry> {
    // SAFETY: The directory is alive; the inode's reference is ours, and given to the call.
    from_err_ptr(unsafe { extra::cgpu_shim_enter(directory, name.as_char_ptr(), inode.as_ptr()) })
}

/// Removes a dentry with everything in it, if it is there.
///
/// # Safety
///
/// `dentry` is null, or one that `make` made, that is still there.
pub(super) unsafe fn unmake(dentry: *mut bindings::dentry) {
    if !dentry.is_null() {
        // SAFETY: `make` made it, and it is still there.
        unsafe { bindings::simple_recursive_removal(dentry, None) };
    }
}
