// SPDX-License-Identifier: GPL-2.0
//! A lock that many tasks share, or one has alone (`struct rw_semaphore`, kernel/locking/rwsem.c).
//! The kernel's Rust types have none.
//!
//! The kernel serves a waiting task before those that come later. So tasks that share the lock
//! cannot keep out for ever one that wants it alone.

use super::extra;
use kernel::{
    error::to_result,
    prelude::*,
    types::{
        NotThreadSafe,
        Opaque, //
    }, //
};

/// Such a lock. It guards what the driver does, so there is no data in it.
#[pin_data]
pub struct RwSemaphore {
    #[pin]
    inner: Opaque<extra::cgpu_rw_semaphore>,
}

// SAFETY: The kernel's lock may be used by any task.
unsafe impl Send for RwSemaphore {}
// SAFETY: Everything that is shared of it is behind its own spinlock.
unsafe impl Sync for RwSemaphore {}

/// The calling task has the lock, with others or alone. Dropping this gives it back, on that task.
pub struct RwGuard<'a> {
    lock: &'a RwSemaphore,
    alone: bool,
    _task: NotThreadSafe,
}

impl RwSemaphore {
    /// A lock that nobody has. A task holds one of them at a time.
    pub fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            inner <- Opaque::ffi_init(|slot: *mut extra::cgpu_rw_semaphore| {
                // SAFETY: `slot` is a valid, pinned place for the lock.
                unsafe { extra::cgpu_shim_rwsem_init(slot.cast()) };
            }),
        })
    }

    /// Takes the lock beside others who share it; `EINTR` if the calling task is killed while it
    /// waits.
    pub fn share(&self) -> Result<RwGuard<'_>> {
        // SAFETY: `new` initialized the lock.
        to_result(unsafe { extra::cgpu_shim_rwsem_read(self.inner.get().cast()) })?;
        Ok(self.taken(false))
    }

    /// Takes the lock beside others who share it. `None` if a task has it alone.
    pub fn try_share(&self) -> Option<RwGuard<'_>> {
        // SAFETY: `new` initialized the lock.
        let taken = unsafe { extra::cgpu_shim_rwsem_tryread(self.inner.get().cast()) };
        taken.then(|| self.taken(false))
    }

    /// Takes the lock alone; `EINTR` if the calling task is killed while it waits.
    pub fn alone(&self) -> Result<RwGuard<'_>> {
        // SAFETY: `new` initialized the lock.
        to_result(unsafe { extra::cgpu_shim_rwsem_write(self.inner.get().cast()) })?;
        Ok(self.taken(true))
    }

    fn taken(&self, alone: bool) -> RwGuard<'_> {
        RwGuard {
            lock: self,
            alone,
            _task: NotThreadSafe,
        }
    }
}

impl Drop for RwGuard<'_> {
    fn drop(&mut self) {
        let lock = self.lock.inner.get().cast();
        if self.alone {
            // SAFETY: The calling task has taken the lock so.
            unsafe { extra::cgpu_shim_rwsem_write_end(lock) };
        } else {
            // SAFETY: The calling task has taken the lock so.
            unsafe { extra::cgpu_shim_rwsem_read_end(lock) };
        }
    }
}
