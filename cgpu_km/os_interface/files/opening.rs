// SPDX-License-Identifier: GPL-2.0
//! A file while it is opened or closed, when nobody else can see it.

use crate::os_interface::{
    base::extra,
    driver::backing_file::BackingFile, //
};
use core::ptr::NonNull;
use kernel::{
    bindings,
    prelude::*, //
};

/// The node of a file before the file became one of the driver's.
///
/// # Invariants
///
/// The inode is that of the file's path, which pins it until after the file's `release`; the
/// operations are a static table of this module.
#[derive(Clone, Copy)]
pub(super) struct NodeSide {
    inode: NonNull<bindings::inode>,
    operations: NonNull<c_void>,
}

// SAFETY: The inode is pinned and the table is static, so any task may use both.
unsafe impl Send for NodeSide {}
// SAFETY: Neither is changed through this.
unsafe impl Sync for NodeSide {}

/// A file that nobody else can see: in its `open` operation, or in its `release`.
///
/// # Invariants
///
/// No other task uses the file's fields for as long as this exists.
pub(super) struct OwnedFile(NonNull<bindings::file>);

impl OwnedFile {
    /// The file that `open` or `release` was handed.
    ///
    /// # Safety
    ///
    /// The operation is running, and the file is its argument.
    pub(super) unsafe fn new(file: NonNull<bindings::file>) -> Self {
        // INVARIANT: An `open` is called before anybody else has the file, a `release` when nobody
        // has it any more.
        Self(file)
    }

    /// The file.
    pub(super) fn as_non_null(&self) -> NonNull<bindings::file> {
        self.0
    }

    /// The node that it is of now, whose inode is `inode`.
    ///
    /// # Safety
    ///
    /// It is being opened on `inode` and not changed yet; its operations are a static table.
    pub(super) unsafe fn node(&self, inode: *mut bindings::inode) -> Result<NodeSide> {
        // SAFETY: By the type's invariant the file is ours to read.
        let operations = unsafe { extra::cgpu_shim_operations(self.0.as_ptr()) };
        // INVARIANT: A file that is opened on an inode has a path that pins it.
        Ok(NodeSide {
            inode: NonNull::new(inode).ok_or(EINVAL)?,
            operations: NonNull::new(operations).ok_or(EINVAL)?,
        })
    }

    /// Makes it one of the device that `backing` is of, as the driver's `open` finds one.
    pub(super) fn become_real(&self, backing: &BackingFile) {
        self.set_inode(backing.inode());
    }

    /// Makes it one of its node again.
    pub(super) fn become_node(&self, node: &NodeSide) {
        self.set_inode(node.inode.as_ptr());
        self.set_operations(node.operations.as_ptr());
    }

    /// Gives it operations, which are valid until the file has others.
    pub(super) fn set_operations(&self, operations: *const c_void) {
        // SAFETY: By the type's invariant the file is ours to change.
        unsafe { extra::cgpu_shim_set_file_operations(self.0.as_ptr(), operations) };
    }

    fn set_inode(&self, inode: *mut bindings::inode) {
        // SAFETY: By the type's invariant the file is ours to change; the callers have an inode
        // that is pinned for longer than it stands in the file.
        unsafe { extra::cgpu_shim_set_inode(self.0.as_ptr(), inode) };
    }
}

/// A list of mappings for one file alone.
///
/// The driver gives one to the files of GPUs, and none to those of the control device
/// (`nvidia_open()` in kernel-open/nvidia/nv.c), which then all have their inode's.
pub(super) struct OwnMappings(NonNull<bindings::address_space>);

// SAFETY: Any task may free an `address_space`; the kernel locks what it has in it.
unsafe impl Send for OwnMappings {}
// SAFETY: A shared reference changes nothing of it; the kernel locks what it changes.
unsafe impl Sync for OwnMappings {}

impl OwnMappings {
    /// An empty one.
    pub(super) fn new() -> Result<Self> {
        // SAFETY: There is no precondition.
        let mappings = unsafe { extra::cgpu_shim_new_mapping() };
        Ok(Self(NonNull::new(mappings.cast()).ok_or(ENOMEM)?))
    }

    /// Gives it to a file that the driver has opened and that has none of its own. The file has
    /// another one before this is dropped.
    pub(super) fn give(&self, opening: &OwnedFile) {
        let file = opening.as_non_null().as_ptr();
        // SAFETY: The file is ours to change, and both are valid.
        unsafe { extra::cgpu_shim_give_mapping(file.cast(), self.0.as_ptr().cast()) };
    }
}

impl Drop for OwnMappings {
    fn drop(&mut self) {
        // SAFETY: Made in `new`, and no file has it any more.
        unsafe { extra::cgpu_shim_drop_mapping(self.0.as_ptr().cast()) };
    }
}

impl NodeSide {
    /// Its inode.
    pub(super) fn inode(&self) -> *mut bindings::inode {
        self.inode.as_ptr()
    }
}
