// SPDX-License-Identifier: GPL-2.0
//! Waiting that a fatal signal ends, which the kernel's Rust types do not offer.
//!
//! A program must be killable wherever it waits for others. An ordinary signal must not end the
//! wait, though: CUDA programs do not expect `EINTR` from their ioctls.

use super::extra;
use kernel::{
    bindings,
    error::to_result,
    prelude::*,
    sync::Arc,
    types::Opaque, //
};

/// A count of free places, handed out in the order of asking.
#[pin_data]
pub(in crate::os_interface) struct Semaphore {
    #[pin]
    inner: Opaque<extra::cgpu_semaphore>,
}

// SAFETY: The kernel's semaphore has a lock of its own.
unsafe impl Send for Semaphore {}
// SAFETY: Everything that is shared of it is behind that lock.
unsafe impl Sync for Semaphore {}

impl Semaphore {
    /// A semaphore with `places` free places.
    pub(in crate::os_interface) fn new(places: c_int) -> impl PinInit<Self> {
        pin_init!(Self {
            inner <- Opaque::ffi_init(move |slot: *mut extra::cgpu_semaphore| {
                // SAFETY: `slot` is a valid, pinned place for a semaphore.
                unsafe { extra::cgpu_shim_sema_init(slot.cast(), places) };
            }),
        })
    }

    /// Takes a place; `EINTR` if the calling task is killed while it waits for one.
    pub(in crate::os_interface) fn take(&self) -> Result {
        // SAFETY: `new` initialized the semaphore.
        to_result(unsafe { bindings::down_killable(self.inner.get().cast()) })
    }

    /// Takes a place, whatever comes.
    pub(in crate::os_interface) fn take_always(&self) {
        // SAFETY: `new` initialized the semaphore.
        unsafe { bindings::down(self.inner.get().cast()) };
    }

    /// Gives a taken place back.
    pub(in crate::os_interface) fn give(&self) {
        // SAFETY: `new` initialized the semaphore.
        unsafe { bindings::up(self.inner.get().cast()) };
    }
}

/// A lock that one task has at a time, and that others wait for killably.
#[pin_data]
pub struct TaskLock {
    #[pin]
    inner: Semaphore,
}

/// Keeps a [`TaskLock`] for the task that has it.
pub struct TaskGuard<'a>(&'a TaskLock);

impl TaskLock {
    /// A lock that no task has.
    pub fn new() -> Result<Arc<Self>> {
        Arc::pin_init(pin_init!(Self { inner <- Semaphore::new(1) }), GFP_KERNEL)
    }

    /// Waits for the lock; `EINTR` if the calling task is killed while it waits.
    pub fn lock(&self) -> Result<TaskGuard<'_>> {
        self.inner.take()?;
        Ok(TaskGuard(self))
    }
}

impl Drop for TaskGuard<'_> {
    fn drop(&mut self) {
        self.0.inner.give();
    }
}

/// Sleeps so many milliseconds, or a little longer; `ERESTARTNOINTR` if a signal comes meanwhile. A
/// system call that returns this begins anew when the signal has been handled.
pub fn sleep_until_signal(milliseconds: u32) -> Result {
    // SAFETY: There is no precondition: the calling task holds no spinlock.
    to_result(unsafe { extra::cgpu_shim_sleep_until_signal(milliseconds) })
}

/// Something that happens once.
#[pin_data]
pub(in crate::os_interface) struct Completion {
    #[pin]
    inner: Opaque<extra::cgpu_completion>,
}

// SAFETY: The kernel's completion has a lock of its own.
unsafe impl Send for Completion {}
// SAFETY: Everything that is shared of it is behind that lock.
unsafe impl Sync for Completion {}

impl Completion {
    /// A completion that did not happen yet.
    pub(in crate::os_interface) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            inner <- Opaque::ffi_init(|slot: *mut extra::cgpu_completion| {
                // SAFETY: `slot` is a valid, pinned place for a completion.
                unsafe { extra::cgpu_shim_init_completion(slot.cast()) };
            }),
        })
    }

    /// It has happened; everything written before is seen by those who waited.
    pub(in crate::os_interface) fn complete(&self) {
        // SAFETY: `new` initialized the completion.
        unsafe { bindings::complete_all(self.inner.get().cast()) };
    }

    /// Waits until it happens; `ERESTARTSYS` if the calling task is killed before.
    pub(in crate::os_interface) fn wait_killable(&self) -> Result {
        // SAFETY: `new` initialized the completion.
        to_result(unsafe { bindings::wait_for_completion_killable(self.inner.get().cast()) })
    }

    /// Waits until it happens; `ERESTARTSYS` if a signal comes for the calling task before.
    pub(in crate::os_interface) fn wait_interruptible(&self) -> Result {
        // SAFETY: `new` initialized the completion.
        to_result(unsafe { bindings::wait_for_completion_interruptible(self.inner.get().cast()) })
    }

    /// Waits until it happens, whatever comes.
    pub(in crate::os_interface) fn wait(&self) {
        // SAFETY: `new` initialized the completion.
        unsafe { bindings::wait_for_completion(self.inner.get().cast()) };
    }
}
