// SPDX-License-Identifier: GPL-2.0
//! Calls into the NVIDIA driver without the capabilities that make a caller its administrator.
//!
//! RM takes `capable(CAP_SYS_ADMIN)` for "administrator" (`os_is_administrator` in
//! kernel-open/nvidia/os-interface.c) and lets `CAP_PERFMON` and `CAP_SYS_NICE` open profiling and
//! priorities; a program in a container may well have them. So every call is made with the caller's
//! own credentials less these three. Nothing is ever added.

use super::extra;
use kernel::{bindings, prelude::*};

/// What is taken away, as bits of `kernel_cap_t`.
const WITHHELD: u64 =
    1 << bindings::CAP_SYS_ADMIN | 1 << bindings::CAP_PERFMON | 1 << bindings::CAP_SYS_NICE;

/// Credentials without the withheld capabilities. Owns one reference of them.
pub(super) struct Reduced(*const bindings::cred);

// SAFETY: Credentials are reference counted and not changed once they are in use; any task may put
// the reference.
unsafe impl Send for Reduced {}
// SAFETY: As above, nothing is ever changed through a shared reference.
unsafe impl Sync for Reduced {}

impl Reduced {
    /// The calling task's credentials, less the withheld capabilities.
    pub(super) fn of_caller() -> Result<Self> {
        // SAFETY: Copies the credentials of `current`; there is no precondition.
        let new = unsafe { bindings::prepare_creds() };
        if new.is_null() {
            return Err(ENOMEM);
        }
        // SAFETY: `prepare_creds` gave us the only pointer to this copy.
        let fields = unsafe { &mut *new };
        fields.cap_effective.val &= !WITHHELD;
        fields.cap_permitted.val &= !WITHHELD;
        Ok(Self(new))
    }

    /// Runs `call` with these credentials.
    pub(super) fn with<R>(&self, call: impl FnOnce() -> R) -> R {
        // SAFETY: `self` holds a reference for longer than they are installed.
        let old = unsafe { extra::cgpu_shim_override_creds(self.0) };
        let result = call();
        // SAFETY: `old` is what was installed before, on this same task.
        unsafe { extra::cgpu_shim_revert_creds(old) };
        result
    }
}

impl Drop for Reduced {
    fn drop(&mut self) {
        // SAFETY: `self` owned this reference.
        unsafe { bindings::put_cred(self.0) };
    }
}

/// Runs `call` with the calling task's credentials less the withheld capabilities.
pub(super) fn reduced<R>(call: impl FnOnce() -> R) -> Result<R> {
    // SAFETY: The current task is valid.
    let task = unsafe { &*bindings::get_current() };
    // SAFETY: Only a task itself replaces its credentials, and this is that task.
    let now = unsafe { &*task.cred };
    if (now.cap_effective.val | now.cap_permitted.val) & WITHHELD == 0 {
        return Ok(call());
    }
    Ok(Reduced::of_caller()?.with(call))
}
