// SPDX-License-Identifier: GPL-2.0
//! Calls on a proxied file from outside its own ioctls, by another call of the same tenant.

use super::caller::forward_always;
use crate::{
    os_interface::{
        base::{
            extra,
            file_ref::FileRef, //
        },
        driver::backing_file::BackingFile, //
    },
    proxy::Part, //
};
use core::ptr::NonNull;
use kernel::{
    bindings,
    new_mutex,
    new_spinlock,
    prelude::*,
    sync::{
        Arc,
        Mutex,
        SpinLock, //
    }, //
};

/// An open proxied file, as long as it is open. Does not keep it open.
#[derive(Clone)]
pub struct OpenFile(Arc<OpenFileShared>);

#[pin_data]
struct OpenFileShared {
    /// There while the file is open. In a spinlock no task is taken off its processor.
    #[pin]
    file: SpinLock<Option<ProxiedFile>>,
    /// Whether what it shows has ended. Held while the driver makes a mapping of the file or puts a
    /// page into one, under `mmap_lock`.
    #[pin]
    ended: Mutex<bool>,
    backing: Arc<BackingFile>,
}

/// A proxied file that stays open as long as this exists.
pub struct KeptFile(FileRef);

/// A step would have to wait for a tenant, which can take as long as the tenant likes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MustWait;

/// A proxied file, which may be on its way to be released.
struct ProxiedFile(NonNull<bindings::file>);

// SAFETY: A `struct file` may be used by any task.
unsafe impl Send for ProxiedFile {}

impl OpenFile {
    /// A handle of a file that is not open yet.
    pub(in crate::os_interface) fn new(backing: Arc<BackingFile>) -> Result<Self> {
        let shared = Arc::pin_init(
            pin_init!(OpenFileShared {
                file <- new_spinlock!(None),
                ended <- new_mutex!(false),
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
    /// The file is open, of the driver behind the handle's backing file, and [`Self::close`] is
    /// called before it is freed.
    pub(in crate::os_interface) unsafe fn set(&self, file: NonNull<bindings::file>) {
        *self.0.file.lock() = Some(ProxiedFile(file));
    }

    /// The file is being released.
    pub(in crate::os_interface) fn close(&self) {
        *self.0.file.lock() = None;
    }

    /// Has the driver make a mapping of the file, or put a page into one; `None` if what it shows
    /// has ended. That cannot end meanwhile.
    pub(in crate::os_interface) fn while_shown<R>(&self, work: impl FnOnce() -> R) -> Option<R> {
        let ended = self.0.ended.lock();
        (!*ended).then(work)
    }

    /// Ends what the file shows: takes all pages out of all of its mappings, in whatever process,
    /// and from now on no page comes, and no mapping.
    ///
    /// Waits for a mapping that is being made, and for a page that is being put in, so that the
    /// pages of these are taken out as well. Such a wait can be as long as the tenant likes.
    pub fn end_mappings(&self) {
        *self.0.ended.lock() = true;
        // A file that is being released has no mappings.
        if let Some(kept) = self.keep() {
            kept.take_pages_out();
        }
    }

    /// As [`Self::end_mappings`], but it fails where that would wait.
    pub fn try_end_mappings(&self) -> Result<(), MustWait> {
        *self.0.ended.try_lock().ok_or(MustWait)? = true;
        if let Some(kept) = self.keep() {
            // A task that makes or ends a mapping has their lock, and may get no processor.
            if !kept.are_mappings_at_hand() {
                return Err(MustWait);
            }
            kept.take_pages_out();
        }
        Ok(())
    }

    /// Keeps the file open; `None` once it is being closed.
    pub fn keep(&self) -> Option<KeptFile> {
        let file = self.0.file.lock();
        // SAFETY: The file is not freed before `close` has taken the lock that is held here.
        let kept = unsafe { FileRef::get_active(file.as_ref()?.0) };
        kept.map(KeptFile)
    }

    /// As [`Caller::forward`](super::caller::Caller::forward) on this file, for the calling task,
    /// which need not have it open, and which makes the call also while it is being killed. `EBADF`
    /// once the file is closed.
    pub fn forward(&self, cmd: u32, parts: &mut [Part<'_>]) -> Result<i32> {
        let KeptFile(held) = self.keep().ok_or(EBADF)?;
        // SAFETY: The reference keeps the file open, which is of this driver.
        unsafe { forward_always(held.as_non_null(), &self.0.backing, cmd, parts) }
    }
}

impl KeptFile {
    /// Whether nobody has the lock of its list of mappings.
    fn are_mappings_at_hand(&self) -> bool {
        // SAFETY: The reference keeps the file open, and the list is the open file's own
        // (`OwnMappings`).
        unsafe { extra::cgpu_shim_are_at_hand(extra::cgpu_shim_mappings(self.0.as_ptr())) }
    }

    /// Takes all pages out of all of its mappings.
    fn take_pages_out(&self) {
        // SAFETY: The reference keeps the file open, and the list is the open file's own
        // (`OwnMappings`).
        unsafe {
            let mappings = extra::cgpu_shim_mappings(self.0.as_ptr());
            bindings::unmap_mapping_range(mappings, 0, 0, 1);
        }
    }
}
