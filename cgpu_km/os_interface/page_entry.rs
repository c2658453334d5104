// SPDX-License-Identifier: GPL-2.0
//! The entry of a page table for the address of a fault.

use super::extra;
use core::ptr::null_mut;
use kernel::bindings;

/// That entry, in a page table that is locked as long as this exists. Who takes pages out of a mapping waits for
/// that: what the entry refers to now, the processor may use.
///
/// # Invariants
///
/// `entry` is that of the fault's address, and its table is locked by `lock`.
pub(super) struct LockedEntry {
    entry: *mut bindings::pte_t,
    lock: *mut bindings::spinlock_t,
}

impl LockedEntry {
    /// `None`: there is no table yet.
    ///
    /// # Safety
    ///
    /// `vmf` is that of a fault that is being served. Nothing is done that sleeps until this is dropped.
    pub(super) unsafe fn lock(vmf: &bindings::vm_fault) -> Option<Self> {
        let mut lock = null_mut();
        let fault = (&raw const *vmf).cast_mut();
        // SAFETY: The caller promises it, and nothing of it is changed.
        let entry = unsafe { extra::cgpu_shim_lock_entry(fault, &raw mut lock) };
        // INVARIANT: The shim says so.
        (!entry.is_null()).then(|| Self { entry, lock })
    }

    /// Valid as long as `self`.
    pub(super) fn as_ptr(&self) -> *mut bindings::pte_t {
        self.entry
    }

    /// Lets the frame that it refers to, if it does, be written to.
    pub(super) fn make_writable(&self) {
        // SAFETY: By the type's invariant.
        unsafe { extra::cgpu_shim_make_writable(self.entry) };
    }

    /// The frame that it refers to and how; `None` where it is empty.
    pub(super) fn frame(&self) -> Option<(usize, bindings::pgprot_t)> {
        let mut frame = 0;
        // SAFETY: By the type's invariant.
        let present = unsafe { extra::cgpu_shim_pte_frame(self.entry, &raw mut frame) };
        // SAFETY: As above.
        let protection = unsafe { extra::cgpu_shim_pte_protection(self.entry) };
        present.then_some((frame, protection))
    }
}

impl Drop for LockedEntry {
    fn drop(&mut self) {
        // SAFETY: `lock` took it.
        unsafe { extra::cgpu_shim_unlock_entry(self.lock) };
    }
}
