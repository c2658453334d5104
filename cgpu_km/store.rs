// SPDX-License-Identifier: GPL-2.0
//! Growable lists for the pure code.
//!
//! The pure code (`nvidia`, `policy`, `proxy`) allocates only through this file, and every
//! allocation can fail. The root of the module puts the kernel's vectors behind [`Vector`]
//! (`os_interface/vector.rs`), the root of the library the host's (`vector_host.rs`).

use crate::vector::{
    self,
    Vector, //
};
use core::ops::{
    Deref,
    DerefMut, //
};

#[cfg(test)]
pub(crate) use crate::vector::failing;

/// No memory was left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exhausted;

/// A growable list whose growth can fail.
#[derive(Debug)]
pub struct List<T>(Vector<T>);

impl<T> List<T> {
    /// An empty list; allocates nothing.
    pub const fn new() -> Self {
        Self(Vector::new())
    }

    /// Appends `value`, growing by a constant factor where needed.
    pub fn push(&mut self, value: T) -> Result<(), Exhausted> {
        self.reserve(1)?;
        vector::push_reserved(&mut self.0, value).ok_or(Exhausted)
    }

    /// Makes room for `additional` more values, so that as many [`List::push`] cannot fail.
    pub fn reserve(&mut self, additional: usize) -> Result<(), Exhausted> {
        vector::reserve(&mut self.0, additional).ok_or(Exhausted)
    }

    /// An empty list with room for `len` values, whose memory belongs to the host and to no
    /// container.
    pub fn with_room(len: usize) -> Result<Self, Exhausted> {
        vector::with_room(len).map(Self).ok_or(Exhausted)
    }

    /// For how many more values there is room.
    pub fn room(&self) -> usize {
        self.0.capacity().saturating_sub(self.0.len())
    }

    /// Takes all values of another list, in their order, as far as there is room. Those that are
    /// left stay there.
    pub fn take_all(&mut self, other: &mut Self) {
        other.reverse();
        while self.room() > 0 {
            let Some(value) = other.pop() else {
                break;
            };
            // There is room.
            let _ = vector::push_reserved(&mut self.0, value);
        }
        other.reverse();
    }

    /// Takes the last value away.
    pub fn pop(&mut self) -> Option<T> {
        self.0.pop()
    }

    /// Takes the value at `index` away; the last value moves to its place.
    pub fn swap_remove(&mut self, index: usize) -> Option<T> {
        let last = self.len().checked_sub(1)?;
        if index > last {
            return None;
        }
        self.swap(index, last);
        self.pop()
    }

    /// Drops what lies beyond the first `len` values.
    pub fn truncate(&mut self, len: usize) {
        self.0.truncate(len);
    }
}

impl<T: Clone> List<T> {
    /// A list of `len` times `value`.
    pub fn filled(len: usize, value: T) -> Result<Self, Exhausted> {
        vector::filled(len, value).map(Self).ok_or(Exhausted)
    }
}

impl List<u8> {
    /// A list of `len` zeros.
    pub fn zeros(len: usize) -> Result<Self, Exhausted> {
        vector::zeros(len).map(Self).ok_or(Exhausted)
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
