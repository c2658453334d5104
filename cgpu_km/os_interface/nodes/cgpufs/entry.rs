// SPDX-License-Identifier: GPL-2.0
//! Entries of the filesystem: how one is put in and taken out, and what none of them allows.

use kernel::{bindings, error::from_err_ptr, prelude::*};

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
    // SAFETY: The folder is alive; it comes back with its inode locked.
    let entry = unsafe { bindings::simple_start_creating(folder, name.as_char_ptr()) };
    let entry = match from_err_ptr(entry) {
        Ok(entry) => entry,
        Err(e) => {
            // SAFETY: The inode's reference is ours, and was given to nobody.
            unsafe { bindings::iput(inode) };
            return Err(e);
        }
    };
    // SAFETY: `entry` is new and has no inode; it takes ours, and stays until it is removed.
    unsafe { bindings::d_make_persistent(entry, inode) };
    // SAFETY: Started above.
    unsafe { bindings::simple_done_creating(entry) };
    Ok(entry)
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

/// Operations of a folder: it can be looked into, and not be changed.
pub(super) struct Directory(pub(super) bindings::inode_operations);

// SAFETY: It is never changed.
unsafe impl Sync for Directory {}

pub(super) static DIRECTORY: Directory = Directory(bindings::inode_operations {
    lookup: Some(bindings::simple_lookup),
    setattr: Some(setattr),
    ..pin_init::zeroed()
});

/// Refuses every change of an inode's attributes.
///
/// # Safety
///
/// None.
pub(super) unsafe extern "C" fn setattr(
    _idmap: *mut bindings::mnt_idmap,
    _entry: *mut bindings::dentry,
    _attributes: *mut bindings::iattr,
) -> c_int {
    EPERM.to_errno()
}
