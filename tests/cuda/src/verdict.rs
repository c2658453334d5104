// SPDX-License-Identifier: GPL-2.0
//! How a case says what it found.

/// The result of a case: nothing, or why it failed.
pub(crate) type Verdict = Result<(), String>;

/// Fails with what `why` says, unless it holds.
pub(crate) fn ensure(holds: bool, why: impl FnOnce() -> String) -> Verdict {
    if holds {
        Ok(())
    } else {
        Err(why())
    }
}
