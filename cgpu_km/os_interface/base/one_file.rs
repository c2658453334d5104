// SPDX-License-Identifier: GPL-2.0
//! A descriptor table with one file in it, for one call of the current task.
//!
//! Some calls name a file by its descriptor. The driver looks the number up in the table of the
//! task that makes the call, after we did, and other threads of the program can change what it
//! stands for in between. Kernel threads share a table, with the files of all of them. So the task
//! has another table during the call, which no other task shares.

use super::{
    closure::run_through,
    extra,
    file_ref::FileRef, //
};
use kernel::prelude::*;

/// The number of the file in its table.
pub(in crate::os_interface) const NUMBER: i32 = 0;

/// Runs `work` while the current task has this file as number [`NUMBER`], and no other one.
pub(in crate::os_interface) fn with_only<R>(file: &FileRef, work: impl FnOnce() -> R) -> Result<R> {
    let result = run_through(work, |run, data| {
        // SAFETY: `file` is open for as long as it is borrowed, and `run` gets what it is for,
        // which is there until it returns.
        unsafe { extra::cgpu_shim_with_file(file.as_ptr().cast(), Some(run), data) };
    });
    result.ok_or(EINVAL)
}
