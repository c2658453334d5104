// SPDX-License-Identifier: GPL-2.0
//! The end of a file that the kernel closes late.
//!
//! If a program holds a file last, it is closed in a task of the program. If an io_uring or a
//! socket does, one worker of the kernel closes it, and all such files of the host, one after the
//! other. Or any task of the host closes it, with the socket in which it lies unread. In neither
//! may anything wait for a tenant. So what may wait is done by a worker of our own: one end of a
//! tenant's after the other, and none behind another tenant's.
//!
//! The kernel frees a file as soon as its `release` returns. What the driver still needs of it
//! stays in a [`LeftFile`].

use super::opening::OwnedFile;
use crate::os_interface::base::extra;
use core::{
    mem::MaybeUninit,
    ptr::NonNull, //
};
use kernel::{
    bindings,
    error::to_result,
    prelude::*,
    types::Opaque, //
};

/// The queue in which the late ends of all tenants are. While the module is loaded there is one.
pub struct LateQueue(());

impl LateQueue {
    /// Starts it, once.
    pub fn start() -> Result<Self> {
        // SAFETY: It is called when the module is loaded, before there is a file.
        to_result(unsafe { extra::cgpu_shim_late_start() })?;
        Ok(Self(()))
    }
}

impl Drop for LateQueue {
    fn drop(&mut self) {
        // SAFETY: It was started, and each end that was due has held the module.
        unsafe { extra::cgpu_shim_late_stop() };
    }
}

/// The late ends of one tenant's files.
#[pin_data]
pub struct LateEnds {
    #[pin]
    inner: Opaque<extra::cgpu_late_ends>,
}

// SAFETY: There is a list without locks in it, and a work of the kernel's.
unsafe impl Send for LateEnds {}
// SAFETY: Any task may add to the list, and queue the work.
unsafe impl Sync for LateEnds {}

impl LateEnds {
    /// None is due.
    pub fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            inner <- Opaque::ffi_init(|slot: *mut extra::cgpu_late_ends| {
                // SAFETY: `slot` is a valid, pinned place for them.
                unsafe { extra::cgpu_shim_late_init(slot) };
            }),
        })
    }

    /// Room for one more; `None` without memory.
    pub(super) fn room<R: LateRest>(&self) -> Option<LateRoom<R>> {
        let place = KBox::new_uninit(GFP_KERNEL).ok()?;
        let ends = self.inner.get();
        Some(LateRoom { ends, place })
    }
}

/// Whether the current task is a thread of the kernel, which closes files for others.
pub(super) fn is_late() -> bool {
    // SAFETY: There is no precondition.
    unsafe { extra::cgpu_shim_is_late() }
}

/// The rest of the end of a file, for a worker.
pub(super) trait LateRest: Send {
    /// Does it.
    fn end(self);
}

/// A file that nobody has, and from which the driver's `release` takes what is its own.
pub(super) struct LeftFile(NonNull<bindings::file>);

// SAFETY: Nobody else has it, and any task may call the driver's release.
unsafe impl Send for LeftFile {}

impl LeftFile {
    /// As long as nobody changes the file that is closing; `None` without memory.
    pub(super) fn of(closing: &OwnedFile) -> Option<Self> {
        let file = closing.as_non_null().as_ptr();
        // SAFETY: The file is ours to read.
        NonNull::new(unsafe { extra::cgpu_shim_left_file(file) }).map(Self)
    }

    /// As the driver gets it.
    pub(super) fn as_ptr(&self) -> *mut bindings::file {
        self.0.as_ptr()
    }
}

impl Drop for LeftFile {
    fn drop(&mut self) {
        // SAFETY: Made by `of`, and nobody has it.
        unsafe { extra::cgpu_shim_drop_left_file(self.0.as_ptr()) };
    }
}

/// The end of a file that is due.
#[repr(C)]
struct LateEnd<R> {
    /// First, so that a pointer to it is one to the whole.
    head: extra::cgpu_late_end,
    rest: R,
}

/// Room for the end of a file.
pub(super) struct LateRoom<R> {
    ends: *mut extra::cgpu_late_ends,
    place: KBox<MaybeUninit<LateEnd<R>>>,
}

impl<R: LateRest> LateRoom<R> {
    /// Leaves the rest of a file's end to the worker.
    ///
    /// # Safety
    ///
    /// The ends are there until the rest is done, and the module until this returns.
    pub(super) unsafe fn leave(self, rest: R) {
        let head = pin_init::zeroed();
        let late = KBox::into_raw(KBox::write(self.place, LateEnd { head, rest }));
        // SAFETY: The ends and the module are there, as the contract says. The box is left to
        // `run`.
        unsafe { extra::cgpu_shim_late_add(self.ends, late.cast(), Some(run::<R>)) };
    }
}

unsafe extern "C" fn run<R: LateRest>(head: *mut extra::cgpu_late_end) {
    // SAFETY: `leave` with the same `R` left the box that this is the first field of.
    let late = unsafe { KBox::from_raw(head.cast::<LateEnd<R>>()) };
    KBox::into_inner(late).rest.end();
}
