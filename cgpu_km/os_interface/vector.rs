// SPDX-License-Identifier: GPL-2.0
//! The kernel's vectors, for the lists of the pure code (`store.rs`).
//!
//! A vector lives in `kmalloc` memory while it is small and in `vmalloc` memory beyond, so that a
//! table of 100,000 objects needs no run of free pages. All of it is charged to the memory cgroup
//! of the task that makes the vector grow, which is the container's.

use core::{
    mem::ManuallyDrop,
    ops::{
        Deref,
        DerefMut, //
    }, //
};
use kernel::{
    alloc::KVVec,
    prelude::{
        __GFP_ZERO,
        GFP_KERNEL,
        GFP_KERNEL_ACCOUNT, //
    }, //
};

/// A vector of the kernel's.
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
}

impl<T> Deref for Vector<T> {
    type Target = KVVec<T>;
    fn deref(&self) -> &KVVec<T> {
        &self.0
    }
}

impl<T> DerefMut for Vector<T> {
    fn deref_mut(&mut self) -> &mut KVVec<T> {
        &mut self.0
    }
}

/// Makes room for `additional` more values; `None` if there is no memory.
pub(crate) fn reserve<T>(vector: &mut Vector<T>, additional: usize) -> Option<()> {
    vector.reserve(additional, GFP_KERNEL_ACCOUNT).ok()
}

/// An empty vector with room for `len` values, charged to no memory cgroup; `None` if there is no
/// memory.
pub(crate) fn with_room<T>(len: usize) -> Option<Vector<T>> {
    let values = KVVec::with_capacity(len, GFP_KERNEL).ok()?;
    Some(Vector(ManuallyDrop::new(values)))
}

/// Appends a value, for which there is room.
pub(crate) fn push_reserved<T>(vector: &mut Vector<T>, value: T) -> Option<()> {
    vector.push_within_capacity(value).ok()
}

/// `len` times `value`; `None` if there is no memory.
pub(crate) fn filled<T: Clone>(len: usize, value: T) -> Option<Vector<T>> {
    let values = KVVec::from_elem(value, len, GFP_KERNEL_ACCOUNT).ok()?;
    Some(Vector(ManuallyDrop::new(values)))
}

/// `len` zeros; `None` if there is no memory.
pub(crate) fn zeros(len: usize) -> Option<Vector<u8>> {
    // The allocator knows how to fill it, and may have done so anyway.
    let flags = GFP_KERNEL_ACCOUNT | __GFP_ZERO;
    let mut bytes = KVVec::with_capacity(len, flags).ok()?;
    // SAFETY: There is room for as many, all of which were set to 0.
    unsafe { bytes.inc_len(len) };
    Some(Vector(ManuallyDrop::new(bytes)))
}
