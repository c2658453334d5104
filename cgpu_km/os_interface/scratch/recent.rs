// SPDX-License-Identifier: GPL-2.0
//! The scratch of the process that made the last call on a file.
//!
//! Almost always that process makes the next one. So a file keeps it at hand, and a call takes no
//! lock to find it, nor looks through those of other processes: the table is for the first call,
//! and for files that several processes use by turns.
//!
//! A pool whose mapping is there is that of the address space which it was made for, as in the
//! [`table`](super::table). One whose mapping is gone stays here, with its pages, until the next
//! call or the end of the file.

use super::{
    current::current,
    pool::Pool, //
};
use core::ptr::{
    null_mut,
    NonNull, //
};
use kernel::{
    mm::MmWithUser,
    prelude::*,
    sync::{
        atomic::{
            Acquire,
            Atomic,
            Full, //
        },
        Arc, //
    }, //
};

/// One pool, or none.
///
/// # Invariants
///
/// A pointer of [`Arc::into_raw`]. The task that takes it out has the reference.
pub(in crate::os_interface) struct Recent(Atomic<*mut Pool>);

// SAFETY: A pool may be used and dropped by any task.
unsafe impl Send for Recent {}
// SAFETY: The pointer is atomic, and a task that takes it out has its reference alone.
unsafe impl Sync for Recent {}

impl Recent {
    pub(in crate::os_interface) const fn new() -> Self {
        Self(Atomic::new(null_mut()))
    }

    /// Takes what is here, and leaves nothing: another thread that calls meanwhile finds it in the
    /// table.
    fn take(&self) -> Option<Arc<Pool>> {
        let pool = NonNull::new(self.0.xchg(null_mut(), Full))?;
        // SAFETY: By the invariant it came from there, and the reference is ours now.
        Some(unsafe { Arc::from_raw(pool.as_ptr().cast_const()) })
    }

    fn put(&self, pool: Arc<Pool>) {
        let pool = Arc::into_raw(pool).cast_mut();
        // INVARIANT: Just made so.
        if let Some(old) = NonNull::new(self.0.xchg(pool, Full)) {
            // SAFETY: By the invariant it came from `into_raw`, and the reference is ours now.
            drop(unsafe { Arc::from_raw(old.as_ptr().cast_const()) });
        }
    }

    /// The pool of `mm`, the current task's address space, and where its mapping is.
    pub(super) fn pool(&self, mm: &MmWithUser) -> Result<(Arc<Pool>, usize)> {
        let last = self.take().filter(|pool| pool.is_of(mm));
        let last = last.map(|pool| (pool.base.load(Acquire), pool));
        let (base, pool) = match last {
            Some((base, pool)) if base != 0 => (base, pool),
            _ => {
                let (pool, base) = current(mm)?;
                (base, pool)
            }
        };
        self.put(pool.clone());
        Ok((pool, base))
    }
}

impl Drop for Recent {
    fn drop(&mut self) {
        drop(self.take());
    }
}
