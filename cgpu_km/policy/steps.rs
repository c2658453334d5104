// SPDX-License-Identifier: GPL-2.0
//! Steps of work, which tests count in the place of time.

/// One step: a look at a table's entry, a move of one, a visit of an object. Nothing but in tests.
pub(super) fn step() {
    #[cfg(test)]
    counted::add_one();
}

#[cfg(test)]
pub(super) use counted::of;

#[cfg(test)]
mod counted {
    use std::cell::Cell;

    std::thread_local! {
        static STEPS: Cell<u64> = const { Cell::new(0) };
    }

    pub(super) fn add_one() {
        STEPS.set(STEPS.get() + 1);
    }

    /// How many steps `work` takes on this thread.
    pub(in crate::policy) fn of<R>(work: impl FnOnce() -> R) -> (R, u64) {
        let before = STEPS.get();
        let result = work();
        (result, STEPS.get() - before)
    }
}
