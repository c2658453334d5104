// SPDX-License-Identifier: GPL-2.0
//! Calls on a proxied file from outside its own ioctls: by another call of the same tenant, and before a
//! program runs on after it has mapped the file.

use super::{
    caller::{self, Caller},
    mapping::Mapping,
    session::{session, Endpoint},
    BackingFile,
};
use crate::proxy::Part;
use core::ptr::{null_mut, NonNull};
use kernel::{
    bindings,
    error::to_result,
    new_mutex,
    prelude::*,
    sync::{Arc, Mutex},
    time::{Instant, Monotonic},
};

/// What a GPU can touch of a new mapping in so little time is not worth the work of bringing all of it to
/// host memory: a fault alone takes tens of microseconds. In nanoseconds.
const LATE: i64 = 250_000;

/// An open proxied file, as long as it is open. Does not keep it open.
#[derive(Clone)]
pub struct OpenFile(Arc<Shared>);

#[pin_data]
struct Shared {
    /// There while the file is open.
    #[pin]
    file: Mutex<Option<File>>,
    backing: Arc<BackingFile>,
}

/// A proxied file, which may be on its way to be released.
struct File(NonNull<bindings::file>);

// SAFETY: A `struct file` may be used by any task.
unsafe impl Send for File {}

/// A reference of a file.
struct Pinned(NonNull<bindings::file>);

impl Drop for Pinned {
    fn drop(&mut self) {
        // SAFETY: The reference is ours.
        unsafe { bindings::fput(self.0.as_ptr()) };
    }
}

impl OpenFile {
    /// A handle of a file that is not open yet.
    pub(super) fn new(backing: Arc<BackingFile>) -> Result<Self> {
        let shared = Arc::pin_init(
            pin_init!(Shared {
                file <- new_mutex!(None),
                backing,
            }),
            GFP_KERNEL_ACCOUNT,
        )?;
        Ok(Self(shared))
    }

    /// The driver has opened the file.
    ///
    /// # Safety
    ///
    /// The file is open, of the driver behind the handle's backing file, and [`Self::close`] is called
    /// before it is freed.
    pub(super) unsafe fn set(&self, file: NonNull<bindings::file>) {
        *self.0.file.lock() = Some(File(file));
    }

    /// The file is being released.
    pub(super) fn close(&self) {
        *self.0.file.lock() = None;
    }

    /// As [`Caller::forward`](super::Caller::forward) on this file, for the calling task, which need
    /// not have it open, and which makes the call also while it is being killed. `EBADF` once the file is
    /// closed.
    pub fn forward(&self, cmd: u32, parts: &mut [Part<'_>]) -> Result<i32> {
        let pinned = {
            let held = self.0.file.lock();
            let mut file = held.as_ref().ok_or(EBADF)?.0.as_ptr();
            // SAFETY: The file is not freed before `close` has taken the lock that is held here.
            let file = unsafe { bindings::get_file_active(&raw mut file) };
            Pinned(NonNull::new(file).ok_or(EBADF)?)
        };
        // SAFETY: The reference keeps the file open, which is of this driver.
        unsafe { caller::forward_always(pinned.0, &self.0.backing, cmd, parts) }
    }
}

/// What is left to do before a program runs on after its `mmap`.
#[repr(C)]
struct Settlement {
    /// First, so that a pointer to it is one to the whole.
    head: bindings::callback_head,
    file: Pinned,
    mapping: Mapping,
    since: Instant<Monotonic>,
}

/// Has [`Endpoint::settle`] called in this task, before it returns to the program and without
/// `mmap_lock`. `ESRCH` where the task is ending.
///
/// # Safety
///
/// `file` is an open proxied file of `E`, and held meanwhile.
pub(super) unsafe fn settle_later<E: Endpoint>(
    file: NonNull<bindings::file>,
    mapping: Mapping,
) -> Result {
    // SAFETY: The caller holds the file.
    unsafe { bindings::get_file(file.as_ptr()) };
    let settlement = Settlement {
        head: bindings::callback_head {
            next: null_mut(),
            func: Some(run::<E>),
        },
        // The reference was taken above.
        file: Pinned(file),
        mapping,
        since: Instant::now(),
    };
    let place = KBox::into_raw(KBox::new(settlement, GFP_KERNEL_ACCOUNT)?);
    let mode = bindings::task_work_notify_mode_TWA_RESUME;
    // SAFETY: The current task is valid; the box is given to the task until `run` takes it.
    let added = unsafe { bindings::task_work_add(bindings::get_current(), place.cast(), mode) };
    to_result(added).inspect_err(|_| {
        // SAFETY: The task has not taken the box, which was made above.
        drop(unsafe { KBox::from_raw(place) });
    })
}

unsafe extern "C" fn run<E: Endpoint>(head: *mut bindings::callback_head) {
    // SAFETY: `settle_later` gave the task the box that this is the first field of.
    let settlement = unsafe { KBox::from_raw(head.cast::<Settlement>()) };
    let file = settlement.file.0;
    // SAFETY: `settle_later`'s caller promised that the file is one of `E`; the reference keeps it open.
    let session = unsafe { session::<E>(file.as_ptr()) };
    // SAFETY: As above; the session's backing file is the one that it was opened on.
    let mut caller =
        unsafe { Caller::new(file, session.backing(), session.queue(), session.recent()) };
    let late = settlement.since.elapsed().as_nanos() > LATE;
    E::settle(session.file(), &mut caller, &settlement.mapping, late);
}
