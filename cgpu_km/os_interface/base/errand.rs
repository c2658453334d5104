// SPDX-License-Identifier: GPL-2.0
//! Work that a function of C has done in its midst.

use core::ptr::from_mut;
use kernel::prelude::*;

/// A function that C calls with the pointer that came with it.
pub(in crate::os_interface) type FromC = unsafe extern "C" fn(*mut c_void);

/// Work to do, and its result.
struct Errand<W, R> {
    work: Option<W>,
    result: Option<R>,
}

/// Has `through` call its first argument with its second one, which does `work`: the result.
/// `None`: it was not called.
pub(in crate::os_interface) fn run_through<R>(
    work: impl FnOnce() -> R,
    through: impl FnOnce(FromC, *mut c_void),
) -> Option<R> {
    let mut errand = Errand {
        work: Some(work),
        result: None,
    };
    let run = runner(&errand);
    through(run, from_mut(&mut errand).cast());
    errand.result
}

/// The function that C calls for an errand of this type.
fn runner<W: FnOnce() -> R, R>(_errand: &Errand<W, R>) -> FromC {
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
