// SPDX-License-Identifier: GPL-2.0
//! A lock whose holder gets the priority of a real-time task that waits for it (`struct rt_mutex`,
//! kernel/locking/rtmutex_api.c). The kernel's Rust types have none.
//!
//! A program chooses when its own tasks run. With an ordinary mutex one of them that is taken off
//! its processor in a critical section stops the thread that shares out the GPU.

use super::extra;
use core::{
    cell::UnsafeCell,
    ops::{
        Deref,
        DerefMut, //
    }, //
};
use kernel::{
    prelude::*,
    types::{
        NotThreadSafe,
        Opaque, //
    }, //
};

/// Data behind such a lock. A task holds at most one of these locks at a time.
#[pin_data]
pub struct RtMutex<T> {
    #[pin]
    inner: Opaque<extra::cgpu_rt_mutex>,
    data: UnsafeCell<T>,
}

// SAFETY: The lock may be used by any task, and the data may go from one to another.
unsafe impl<T: Send> Send for RtMutex<T> {}
// SAFETY: One task at a time has the data.
unsafe impl<T: Send> Sync for RtMutex<T> {}

/// The lock is held. Dropping this gives it back, on the task that has taken it.
pub struct RtMutexGuard<'a, T>(&'a RtMutex<T>, NotThreadSafe);

impl<T> RtMutex<T> {
    /// The data, behind a lock that nobody holds.
    pub fn new(data: T) -> impl PinInit<Self> {
        pin_init!(Self {
            inner <- Opaque::ffi_init(|slot: *mut extra::cgpu_rt_mutex| {
                // SAFETY: `slot` is a valid, pinned place for the lock.
                unsafe { extra::cgpu_shim_rt_mutex_init(slot.cast()) };
            }),
            data: UnsafeCell::new(data),
        })
    }

    /// Takes the lock. May sleep.
    pub fn lock(&self) -> RtMutexGuard<'_, T> {
        // SAFETY: `new` initialized the lock.
        unsafe { extra::cgpu_shim_rt_mutex_lock(self.inner.get().cast()) };
        RtMutexGuard(self, NotThreadSafe)
    }

    /// Takes the lock if nobody holds it.
    pub fn try_lock(&self) -> Option<RtMutexGuard<'_, T>> {
        // SAFETY: `new` initialized the lock.
        let taken = unsafe { extra::cgpu_shim_rt_mutex_trylock(self.inner.get().cast()) };
        taken.then(|| RtMutexGuard(self, NotThreadSafe))
    }
}

impl<T> Deref for RtMutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: The lock is held, and the guard borrowed.
        unsafe { &*self.0.data.get() }
    }
}

impl<T> DerefMut for RtMutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: The lock is held, and the guard borrowed alone.
        unsafe { &mut *self.0.data.get() }
    }
}

impl<T> Drop for RtMutexGuard<'_, T> {
    fn drop(&mut self) {
        // SAFETY: The calling task has taken the lock.
        unsafe { extra::cgpu_shim_rt_mutex_unlock(self.0.inner.get().cast()) };
    }
}
