// SPDX-License-Identifier: GPL-2.0
//! The address space that a file's mappings are in, for files that have them in one only.
//!
//! It is the first one that asks for a mapping. It stays the file's own when its process has ended
//! or has executed another program, so that no two ever have mappings of the file.

use crate::os_interface::base::extra;
use core::ptr::{
    null_mut,
    NonNull, //
};
use kernel::{
    bindings,
    sync::atomic::{
        Atomic,
        Full,
        Relaxed, //
    }, //
};

/// That address space, or none yet.
///
/// # Invariants
///
/// It has a reference of the `mm_struct` that it names: no other one comes to be at the same place.
pub(super) struct FirstMemory(Atomic<*mut bindings::mm_struct>);

// SAFETY: The pointer is atomic, and is compared alone until it is dropped. Any task may give the
// reference back.
unsafe impl Send for FirstMemory {}
// SAFETY: A shared one is only compared and set, in one atomic step.
unsafe impl Sync for FirstMemory {}

impl FirstMemory {
    pub(super) const fn new() -> Self {
        Self(Atomic::new(null_mut()))
    }

    /// Whether an address space is the first one. It is, if none has asked before.
    ///
    /// # Safety
    ///
    /// The address space is valid during the call.
    pub(super) unsafe fn is(&self, memory: NonNull<bindings::mm_struct>) -> bool {
        match self.0.cmpxchg(null_mut(), memory.as_ptr(), Full) {
            Ok(_) => {
                // INVARIANT: The address space is there until this is taken, as the contract says.
                // SAFETY: It is valid.
                unsafe { extra::cgpu_shim_keep_memory(memory.as_ptr()) };
                true
            }
            Err(first) => first == memory.as_ptr(),
        }
    }
}

impl Drop for FirstMemory {
    fn drop(&mut self) {
        if let Some(memory) = NonNull::new(self.0.load(Relaxed)) {
            // SAFETY: By the invariant the reference is this one's, and it is dropped once.
            unsafe { extra::cgpu_shim_drop_memory(memory.as_ptr()) };
        }
    }
}
