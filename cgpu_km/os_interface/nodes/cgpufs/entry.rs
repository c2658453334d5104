// SPDX-License-Identifier: GPL-2.0
//! Entries of the filesystem: how one is put in and taken out, and what none of them allows.

use crate::os_interface::base::extra;
use kernel::{
    bindings,
    error::from_err_ptr,
    prelude::*, //
};

/// Puts `inode` into `folder` as `name`, or drops it.
///
/// # Safety
///
/// `folder` is a folder of a superblock that is alive, `inode` is null or a new inode of it, whose
/// reference this takes.
pub(super) unsafe fn make(
    folder: *mut bindings::dentry,
    name: &CStr,
    inode: *mut bindings::inode,
) -> Result<*mut bindings::dentry> {
    if inode.is_null() {
        return Err(ENOMEM);
    }
    // SAFETY: The folder is alive; the inode's reference is ours, and given to the call.
    from_err_ptr(unsafe { extra::cgpu_shim_enter(folder, name.as_char_ptr(), inode) })
}

/// Removes an entry with everything in it, if it is there.
///
/// # Safety
///
/// `entry` is null, or one that `make` made, that is still there.
pub(super) unsafe fn unmake(entry: *mut bindings::dentry) {
    if !entry.is_null() {
        // SAFETY: `make` made it and it is still there, as the contract says.
        unsafe { bindings::simple_recursive_removal(entry, None) };
    }
}
