// SPDX-License-Identifier: GPL-2.0
//! Growable lists for the pure code on the host: the twin of `os_interface/store.rs`.
//!
//! The pure code (`nvidia`, `policy`, `proxy`) allocates only through `crate::store`, and every
//! allocation can fail. The kernel root puts the kernel's vectors behind these names, the host root
//! this file.

use core::ops::{Deref, DerefMut};

/// No memory was left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exhausted;

/// A growable list whose growth can fail.
#[derive(Debug)]
pub struct List<T>(Vec<T>);

impl<T> List<T> {
    /// An empty list; allocates nothing.
    pub const fn new() -> Self {
        Self(Vec::new())
    }

    /// Appends `value`, growing by a constant factor where needed.
    pub fn push(&mut self, value: T) -> Result<(), Exhausted> {
        self.reserve(1)?;
        self.0.push(value);
        Ok(())
    }

    /// Makes room for `additional` more values, so that as many [`List::push`] cannot fail.
    pub fn reserve(&mut self, additional: usize) -> Result<(), Exhausted> {
        #[cfg(test)]
        if self.0.capacity() - self.0.len() < additional {
            failing::allocate()?;
        }
        self.0.try_reserve(additional).map_err(|_| Exhausted)
    }

    /// Takes the last value away.
    pub fn pop(&mut self) -> Option<T> {
        self.0.pop()
    }

    /// Takes the value at `index` away; the last value moves to its place.
    pub fn swap_remove(&mut self, index: usize) -> Option<T> {
        (index < self.0.len()).then(|| self.0.swap_remove(index))
    }

    /// Drops what lies beyond the first `len` values.
    pub fn truncate(&mut self, len: usize) {
        self.0.truncate(len);
    }
}

impl<T: Clone> List<T> {
    /// A list of `len` times `value`.
    pub fn filled(len: usize, value: T) -> Result<Self, Exhausted> {
        #[cfg(test)]
        failing::allocate()?;
        let mut list = Vec::new();
        list.try_reserve_exact(len).map_err(|_| Exhausted)?;
        list.resize(len, value);
        Ok(Self(list))
    }
}

impl List<u8> {
    /// A list of `len` zeros.
    pub fn zeros(len: usize) -> Result<Self, Exhausted> {
        Self::filled(len, 0)
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

/// Allocations that fail when a test says so.
#[cfg(test)]
pub(crate) mod failing {
    use super::Exhausted;
    use std::cell::Cell;

    std::thread_local! {
        /// How many more allocations of this thread succeed; `None`: all.
        static LEFT: Cell<Option<u32>> = const { Cell::new(None) };
    }

    /// Runs `work`, in which all allocations after the first `granted` fail. The second value says
    /// whether one did.
    pub(crate) fn after<R>(granted: u32, work: impl FnOnce() -> R) -> (R, bool) {
        LEFT.set(Some(granted));
        FAILED.set(false);
        let result = work();
        LEFT.set(None);
        (result, FAILED.get())
    }

    std::thread_local! {
        static FAILED: Cell<bool> = const { Cell::new(false) };
    }

    /// One allocation.
    pub(super) fn allocate() -> Result<(), Exhausted> {
        match LEFT.get() {
            None => Ok(()),
            Some(0) => {
                FAILED.set(true);
                Err(Exhausted)
            }
            Some(left) => {
                LEFT.set(Some(left - 1));
                Ok(())
            }
        }
    }
}
