// SPDX-License-Identifier: GPL-2.0
//! Growable lists for the pure code in the kernel: the twin of `store_host.rs`.
//!
//! The pure code (`nvidia`, `policy`, `proxy`) allocates only through `crate::store`, and every
//! allocation can fail. A list lives in `kmalloc` memory while it is small and in `vmalloc` memory
//! beyond, so that a table of 100,000 objects needs no run of free pages. All of it is charged to
//! the memory cgroup of the task that makes the list grow, which is the container's.

use core::{
    mem::ManuallyDrop,
    ops::{Deref, DerefMut},
};
use kernel::{
    alloc::KVVec,
    prelude::{__GFP_ZERO, GFP_KERNEL_ACCOUNT},
};

/// No memory was left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exhausted;

/// A growable list whose growth can fail.
#[derive(Debug)]
pub struct List<T>(ManuallyDrop<KVVec<T>>);

impl<T> Drop for List<T> {
    fn drop(&mut self) {
        // Most lists stay empty, and giving back nothing takes the kernel a hundred instructions.
        if self.0.capacity() != 0 {
            // SAFETY: It is dropped here alone, and not used again.
            unsafe { ManuallyDrop::drop(&mut self.0) };
        }
    }
}

impl<T> List<T> {
    /// An empty list; allocates nothing.
    pub const fn new() -> Self {
        Self(ManuallyDrop::new(KVVec::new()))
    }

    /// Appends `value`, growing by a constant factor where needed.
    pub fn push(&mut self, value: T) -> Result<(), Exhausted> {
        self.reserve(1)?;
        self.0.push_within_capacity(value).map_err(|_| Exhausted)
    }

    /// Makes room for `additional` more values, so that as many [`List::push`] cannot fail.
    pub fn reserve(&mut self, additional: usize) -> Result<(), Exhausted> {
        self.0
            .reserve(additional, GFP_KERNEL_ACCOUNT)
            .map_err(|_| Exhausted)
    }

    /// Takes the last value away.
    pub fn pop(&mut self) -> Option<T> {
        self.0.pop()
    }

    /// Takes the value at `index` away; the last value moves to its place.
    pub fn swap_remove(&mut self, index: usize) -> Option<T> {
        let last = self.0.pop()?;
        if index == self.0.len() {
            return Some(last);
        }
        match self.0.get_mut(index) {
            Some(place) => Some(core::mem::replace(place, last)),
            None => {
                // Room is there: `last` was taken out of it just now.
                let _ = self.0.push_within_capacity(last);
                None
            }
        }
    }

    /// Drops what lies beyond the first `len` values.
    pub fn truncate(&mut self, len: usize) {
        self.0.truncate(len);
    }
}

impl<T: Clone> List<T> {
    /// A list of `len` times `value`.
    pub fn filled(len: usize, value: T) -> Result<Self, Exhausted> {
        KVVec::from_elem(value, len, GFP_KERNEL_ACCOUNT)
            .map(|values| Self(ManuallyDrop::new(values)))
            .map_err(|_| Exhausted)
    }
}

impl List<u8> {
    /// A list of `len` zeros.
    pub fn zeros(len: usize) -> Result<Self, Exhausted> {
        // The allocator knows how to fill it, and may have done so anyway.
        let flags = GFP_KERNEL_ACCOUNT | __GFP_ZERO;
        let mut bytes = KVVec::with_capacity(len, flags).map_err(|_| Exhausted)?;
        // SAFETY: There is room for as many, all of which were set to 0.
        unsafe { bytes.inc_len(len) };
        Ok(Self(ManuallyDrop::new(bytes)))
    }
}

impl<T> Default for List<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> Deref for List<T> {
    type Target = [T];
    fn deref(&self) -> &[T] {
        &self.0
    }
}

impl<T> DerefMut for List<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        &mut self.0
    }
}
