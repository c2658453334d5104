// SPDX-License-Identifier: GPL-2.0
//! The host's vectors, for the lists of the pure code (`store.rs`).

pub(crate) use std::vec::Vec as Vector;

/// Makes room for `additional` more values; `None` if there is no memory.
pub(crate) fn reserve<T>(vector: &mut Vector<T>, additional: usize) -> Option<()> {
    #[cfg(test)]
    if vector.capacity() - vector.len() < additional {
        failing::allocate()?;
    }
    vector.try_reserve(additional).ok()
}

/// An empty vector with room for `len` values; `None` if there is no memory.
pub(crate) fn with_room<T>(len: usize) -> Option<Vector<T>> {
    let mut values = Vector::new();
    reserve(&mut values, len)?;
    Some(values)
}

/// Appends a value, for which there is room.
pub(crate) fn push_reserved<T>(vector: &mut Vector<T>, value: T) -> Option<()> {
    (vector.len() < vector.capacity()).then(|| vector.push(value))
}

/// `len` times `value`; `None` if there is no memory.
pub(crate) fn filled<T: Clone>(len: usize, value: T) -> Option<Vector<T>> {
    #[cfg(test)]
    failing::allocate()?;
    let mut values = Vector::new();
    values.try_reserve_exact(len).ok()?;
    values.resize(len, value);
    Some(values)
}

/// `len` zeros; `None` if there is no memory.
pub(crate) fn zeros(len: usize) -> Option<Vector<u8>> {
    filled(len, 0)
}

/// Allocations that fail when a test says so.
#[cfg(test)]
pub(crate) mod failing {
    use std::cell::Cell;

    std::thread_local! {
        /// How many more allocations of this thread succeed; `None`: all.
        static LEFT: Cell<Option<u32>> = const { Cell::new(None) };
        /// Whether one failed.
        static FAILED: Cell<bool> = const { Cell::new(false) };
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
