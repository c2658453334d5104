// SPDX-License-Identifier: GPL-2.0
//! Memory of a program that the driver is about to pin (class 0x71).
//!
//! Host memory of the driver's (class 0x3e) is charged until its object is freed and the files that
//! show it are closed. A pin of its pages would outlast both, and the driver charges nobody for it.
//! So no mapping of a file that shows objects may be among what is pinned: none is there when the
//! call begins, none is made there before it ends (`files/shim.c`), and none moves there
//! (`cgpu_shim_cover()` in `driver/shim.c`).

use crate::{
    os_interface::{
        base::{
            closure::run_through,
            extra, //
        },
        calls::caller::Caller, //
    },
    proxy::UserAddr, //
};
use kernel::prelude::*;

/// Does `work` while none of a program's mappings of files that show objects is in so many bytes of
/// its memory. `None`: there is one.
pub fn while_pinned<R>(
    _caller: &Caller<'_>,
    start: UserAddr,
    length: u64,
    work: impl FnOnce() -> R,
) -> Option<R> {
    // CAST: `c_ulong` and `usize` are 64 bits wide.
    let end = start.get().saturating_add(length) as c_ulong;
    let start = start.get() as c_ulong;
    run_through(work, |run, data| {
        // SAFETY: The current task is in a call. `run` gets what it is for, once, and that is there
        // until it returns.
        unsafe { extra::cgpu_shim_while_pinned(start, end, Some(run), data) };
    })
}
