// SPDX-License-Identifier: GPL-2.0
//! Calls into the NVIDIA driver without the capabilities that make a caller its administrator.
//!
//! RM takes `capable(CAP_SYS_ADMIN)` for "administrator" (`os_is_administrator` in
//! kernel-open/nvidia/os-interface.c) and lets `CAP_PERFMON` and `CAP_SYS_NICE` open profiling and
//! priorities; a program in a container may well have them. So every call is made with the caller's
//! own credentials less these three. Nothing is ever added.

use super::extra;
use core::ptr::NonNull;
use kernel::{
    bindings,
    prelude::*, //
};

/// Capabilities that are taken away, as bits of `kernel_cap_t`.
const WITHHELD: u64 =
    1 << bindings::CAP_SYS_ADMIN | 1 << bindings::CAP_PERFMON | 1 << bindings::CAP_SYS_NICE;

/// Credentials without the withheld capabilities. Owns one reference of them.
pub(in crate::os_interface) struct Reduced(*const bindings::cred);

// SAFETY: Credentials are reference counted and not changed once they are in use; any task may put
// the reference.
unsafe impl Send for Reduced {}
// SAFETY: Nothing is ever changed through a shared reference.
unsafe impl Sync for Reduced {}

impl Reduced {
    /// The calling task's credentials, less the withheld capabilities.
    pub(in crate::os_interface) fn of_caller() -> Result<Self> {
        // SAFETY: Copies the credentials of `current`; there is no precondition.
        let new = unsafe { bindings::prepare_creds() };
        if new.is_null() {
            return Err(ENOMEM);
        }
        // SAFETY: `prepare_creds` gave us the only pointer to this copy.
        unsafe { extra::cgpu_shim_withhold(new, WITHHELD) };
        Ok(Self(new))
    }

    /// Runs `call` with these credentials.
    pub(in crate::os_interface) fn with<R>(&self, call: impl FnOnce() -> R) -> R {
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

/// The reduced form of some credentials, and whose that is, so that the next call under the same
/// ones need not make it anew.
pub(in crate::os_interface) struct KeptCreds {
    /// The credentials that were reduced. A reference is held: as long as it is, no others get the
    /// same address, and credentials that are in use never change.
    of: NonNull<bindings::cred>,
    reduced: Reduced,
}

// SAFETY: The credentials are reference counted; any task may put the reference.
unsafe impl Send for KeptCreds {}
// SAFETY: Nothing is ever changed through a shared reference.
unsafe impl Sync for KeptCreds {}

impl Drop for KeptCreds {
    fn drop(&mut self) {
        // SAFETY: `self` owned this reference.
        unsafe { bindings::put_cred(self.of.as_ptr()) };
    }
}

/// The calling task's credentials, if they have a capability that is withheld.
fn too_many() -> Option<NonNull<bindings::cred>> {
    // SAFETY: Looks at the current task, which alone replaces its credentials.
    let now = unsafe { extra::cgpu_shim_creds_with(WITHHELD) };
    NonNull::new(now.cast_mut())
}

/// Runs `call` with the calling task's credentials less the withheld capabilities. What is `kept`
/// is used, and brought up to date.
pub(in crate::os_interface) fn reduced_by<R>(
    kept: &mut Option<KeptCreds>,
    call: impl FnOnce() -> R,
) -> Result<R> {
    let Some(now) = too_many() else {
        return Ok(call());
    };
    if kept.as_ref().is_none_or(|kept| kept.of != now) {
        let reduced = Reduced::of_caller()?;
        // SAFETY: The current task's credentials are valid.
        let of = unsafe { extra::cgpu_shim_get_cred(now.as_ptr()) };
        let of = NonNull::new(of.cast_mut()).ok_or(EINVAL)?;
        *kept = Some(KeptCreds { of, reduced });
    }
    let kept = kept.as_ref().ok_or(EINVAL)?;
    Ok(kept.reduced.with(call))
}

/// The same, where what is `kept` may be of others and stays as it is.
pub(in crate::os_interface) fn reduced_as<R>(
    kept: Option<&KeptCreds>,
    call: impl FnOnce() -> R,
) -> Result<R> {
    match (too_many(), kept) {
        (Some(now), Some(kept)) if kept.of == now => Ok(kept.reduced.with(call)),
        _ => reduced(call),
    }
}

/// The same with nothing kept.
pub(in crate::os_interface) fn reduced<R>(call: impl FnOnce() -> R) -> Result<R> {
    reduced_by(&mut None, call)
}
