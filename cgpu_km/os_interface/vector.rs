// SPDX-License-Identifier: GPL-2.0
//! The kernel's vectors, for the lists of the pure code (`store.rs`).
//!
//! A vector lives in `kmalloc` memory while it is small and in `vmalloc` memory beyond, so that a
//! table of 100,000 objects needs no run of free pages. All of it is charged to the memory cgroup
//! of the task that makes the vector grow, which is the container's.

use core::mem::ManuallyDrop;
use kernel::{
    alloc::KVVec,
    prelude::{__GFP_ZERO, GFP_KERNEL_ACCOUNT},
};

/// A vector. What allocates gives `None` where there is no memory.
#[derive(Debug)]
pub(crate) struct Vector<T>(ManuallyDrop<KVVec<T>>);

impl<T> Drop for Vector<T> {
    fn drop(&mut self) {
        // Most vectors stay empty, and giving back nothing takes the kernel a hundred instructions.
        if self.0.capacity() != 0 {
            // SAFETY: It is dropped here alone, and not used again.
            unsafe { ManuallyDrop::drop(&mut self.0) };
        }
    }
}

impl<T> Vector<T> {
    /// An empty vector; allocates nothing.
    pub(crate) const fn new() -> Self {
        Self(ManuallyDrop::new(KVVec::new()))
    }

    /// Makes room for `additional` more values.
    pub(crate) fn reserve(&mut self, additional: usize) -> Option<()> {
        self.0.reserve(additional, GFP_KERNEL_ACCOUNT).ok()
    }

    /// Appends a value, for which there is room.
    pub(crate) fn push_reserved(&mut self, value: T) -> Option<()> {
        self.0.push_within_capacity(value).ok()
    }

    /// Takes the last value away.
    pub(crate) fn pop(&mut self) -> Option<T> {
        self.0.pop()
    }

    /// Drops what lies beyond the first `len` values.
    pub(crate) fn truncate(&mut self, len: usize) {
        self.0.truncate(len);
    }

    /// All values.
    pub(crate) fn as_slice(&self) -> &[T] {
        &self.0
    }

    /// All values.
    pub(crate) fn as_mut_slice(&mut self) -> &mut [T] {
        &mut self.0
    }
}

impl<T: Clone> Vector<T> {
    /// `len` times `value`.
    pub(crate) fn filled(len: usize, value: T) -> Option<Self> {
        let values = KVVec::from_elem(value, len, GFP_KERNEL_ACCOUNT).ok()?;
        Some(Self(ManuallyDrop::new(values)))
    }
}

impl Vector<u8> {
    /// `len` zeros.
    pub(crate) fn zeros(len: usize) -> Option<Self> {
        // The allocator knows how to fill it, and may have done so anyway.
        let flags = GFP_KERNEL_ACCOUNT | __GFP_ZERO;
        let mut bytes = KVVec::with_capacity(len, flags).ok()?;
        // SAFETY: There is room for as many, all of which were set to 0.
        unsafe { bytes.inc_len(len) };
        Some(Self(ManuallyDrop::new(bytes)))
    }
}
