// SPDX-License-Identifier: GPL-2.0
//! A Rust closure that a function of C runs.

use core::ptr::from_mut;
use kernel::prelude::*;

/// A function that C calls with the pointer that came with it.
pub(in crate::os_interface) type FromC = unsafe extern "C" fn(*mut c_void);

/// A closure, and its result.
struct Closure<W, R> {
    work: Option<W>,
    result: Option<R>,
}

/// Has `through` call its first argument with its second one, which does `work`: the result.
/// `None`: it was not called.
pub(in crate::os_interface) fn run_through<R>(
    work: impl FnOnce() -> R,
    through: impl FnOnce(FromC, *mut c_void),
) -> Option<R> {
    let mut closure = Closure {
        work: Some(work),
        result: None,
    };
    let run = runner(&closure);
    through(run, from_mut(&mut closure).cast());
    closure.result
}

/// The function that C calls for a closure of this type.
fn runner<W: FnOnce() -> R, R>(_closure: &Closure<W, R>) -> FromC {
    run::<W, R>
}

/// # Safety
///
/// `closure` is a `Closure<W, R>`, of which nobody else has a reference.
unsafe extern "C" fn run<W: FnOnce() -> R, R>(closure: *mut c_void) {
    // SAFETY: It is one, as this function's contract says.
    let closure = unsafe { &mut *closure.cast::<Closure<W, R>>() };
    if let Some(work) = closure.work.take() {
        closure.result = Some(work());
    }
}
