// SPDX-License-Identifier: GPL-2.0
//! Counts steps of work: looks at a table's entry, moves of one, visits of an object.

use std::cell::Cell;

std::thread_local! {
    static STEPS: Cell<u64> = const { Cell::new(0) };
}

/// One step more on this thread.
pub(crate) fn count() {
    STEPS.set(STEPS.get() + 1);
}

/// How many steps `work` takes.
pub(crate) fn of<R>(work: impl FnOnce() -> R) -> (R, u64) {
    let before = STEPS.get();
    let result = work();
    (result, STEPS.get() - before)
}
