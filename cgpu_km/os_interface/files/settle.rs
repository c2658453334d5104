// SPDX-License-Identifier: GPL-2.0
//! The rest of the work before a program runs on after its `mmap`.

use super::{
    mapping::ProgramMapping,
    session::{
        session,
        Endpoint, //
    }, //
};
use crate::os_interface::{
    base::{
        extra,
        file_ref::FileRef, //
    },
    calls::caller::Caller, //
};
use core::ptr::NonNull;
use kernel::{
    bindings,
    error::to_result,
    prelude::*,
    time::{
        Instant,
        Monotonic, //
    }, //
};

/// In so little time a GPU touches too little of a new mapping to bring all of it to host memory: a
/// fault alone takes tens of microseconds. In nanoseconds.
const LATE: i64 = 250_000;

/// The rest of the work before a program runs on after its `mmap`.
#[repr(C)]
struct Settlement {
    /// First, so that a pointer to it is one to the whole.
    head: extra::cgpu_task_work,
    file: FileRef,
    mapping: ProgramMapping,
    since: Instant<Monotonic>,
}

/// Has [`Endpoint::settle`] called in this task, before it returns to the program and without
/// `mmap_lock`. The driver has made the mapping at the time `since`. `ESRCH` where the task is
/// ending.
///
/// # Safety
///
/// `file` is an open proxied file of `E`, and held meanwhile.
pub(super) unsafe fn settle_later<E: Endpoint>(
    file: NonNull<bindings::file>,
    mapping: ProgramMapping,
    since: Instant<Monotonic>,
) -> Result {
    let settlement = Settlement {
        head: pin_init::zeroed(),
        // SAFETY: The file is open, as this function's contract says.
        file: unsafe { FileRef::get(file) },
        mapping,
        since,
    };
    let place = KBox::into_raw(KBox::new(settlement, GFP_KERNEL_ACCOUNT)?);
    // SAFETY: The box is given to the current task until `run` takes it.
    let added = unsafe { extra::cgpu_shim_before_return(place.cast(), Some(run::<E>)) };
    to_result(added).inspect_err(|_| {
        // SAFETY: The task has not taken the box, which was made above.
        drop(unsafe { KBox::from_raw(place) });
    })
}

unsafe extern "C" fn run<E: Endpoint>(head: *mut extra::cgpu_task_work) {
    // SAFETY: `settle_later` gave the task the box that this is the first field of.
    let settlement = unsafe { KBox::from_raw(head.cast::<Settlement>()) };
    let file = settlement.file.as_non_null();
    // SAFETY: `settle_later` is called for files of `E` alone; the reference keeps this one open.
    let session = unsafe { session::<E>(file.as_ptr()) };
    // SAFETY: The session's backing file is the one that the file was opened on.
    let mut caller = unsafe { Caller::new(file, &session.backing, &session.recent) };
    let is_late = || settlement.since.elapsed().as_nanos() > LATE;
    E::settle(&session.file, &mut caller, &settlement.mapping, is_late);
}
