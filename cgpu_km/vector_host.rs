// SPDX-License-Identifier: GPL-2.0
//! The host's vectors, for the lists of the pure code (`store.rs`).

/// A vector. What allocates gives `None` where there is no memory.
#[derive(Debug)]
pub(crate) struct Vector<T>(Vec<T>);

impl<T> Vector<T> {
    /// An empty vector; allocates nothing.
    pub(crate) const fn new() -> Self {
        Self(Vec::new())
    }

    /// Makes room for `additional` more values.
    pub(crate) fn reserve(&mut self, additional: usize) -> Option<()> {
        #[cfg(test)]
        if self.0.capacity() - self.0.len() < additional {
            failing::allocate()?;
        }
        self.0.try_reserve(additional).ok()
    }

    /// Appends a value, for which there is room.
    pub(crate) fn push_reserved(&mut self, value: T) -> Option<()> {
        let room = self.0.len() < self.0.capacity();
        room.then(|| self.0.push(value))
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
        #[cfg(test)]
        failing::allocate()?;
        let mut values = Vec::new();
        values.try_reserve_exact(len).ok()?;
        values.resize(len, value);
        Some(Self(values))
    }
}

impl Vector<u8> {
    /// `len` zeros.
    pub(crate) fn zeros(len: usize) -> Option<Self> {
        Self::filled(len, 0)
    }
}

/// Allocations that fail when a test says so.
#[cfg(test)]
pub(crate) mod failing {
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
    pub(super) fn allocate() -> Option<()> {
        match LEFT.get() {
            None => Some(()),
            Some(0) => {
                FAILED.set(true);
                None
            }
            Some(left) => {
                LEFT.set(Some(left - 1));
                Some(())
            }
        }
    }
}
