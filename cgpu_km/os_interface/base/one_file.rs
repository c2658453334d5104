// SPDX-License-Identifier: GPL-2.0
//! A descriptor table with one file in it, for one call of the current task.
//!
//! Some calls name a file by its descriptor. The driver looks the number up in the table of the
//! task that makes the call, after we did, and other threads of the program can change what it
//! stands for in between. Kernel threads share a table, with the files of all of them. So the task
//! has another table during the call, which no other task shares.

use super::{extra, file_ref::FileRef};
use core::ptr::from_mut;
use kernel::prelude::*;

/// The number of the file in its table.
pub(in crate::os_interface) const NUMBER: i32 = 0;

/// Work to do, and its result.
struct Errand<W, R> {
    work: Option<W>,
    result: Option<R>,
}

/// Runs `work` while the current task has this file as number [`NUMBER`], and no other one.
pub(in crate::os_interface) fn with_only<R>(file: &FileRef, work: impl FnOnce() -> R) -> Result<R> {
    let mut errand = Errand {
        work: Some(work),
        result: None,
    };
    let run = runner(&errand);
    // SAFETY: `file` is open for as long as it is borrowed, and `run` gets the errand that it is
    // for, which is there until it returns.
    unsafe {
        extra::cgpu_shim_with_file(
            file.as_ptr().cast(),
            Some(run),
            from_mut(&mut errand).cast(),
        );
    }
    errand.result.ok_or(EINVAL)
}

/// The function that C calls for an errand of this type.
fn runner<W: FnOnce() -> R, R>(_errand: &Errand<W, R>) -> unsafe extern "C" fn(*mut c_void) {
    run::<W, R>
}

/// # Safety
///
/// `errand` is an `Errand<W, R>`, of which nobody else has a reference.
unsafe extern "C" fn run<W: FnOnce() -> R, R>(errand: *mut c_void) {
    // SAFETY: It is one, as this function's contract says.
    let errand = unsafe { &mut *errand.cast::<Errand<W, R>>() };
    if let Some(work) = errand.work.take() {
        errand.result = Some(work());
    }
}
