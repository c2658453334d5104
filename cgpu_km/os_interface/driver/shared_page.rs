// SPDX-License-Identifier: GPL-2.0
//! Pages that the driver shows to programs, and pages that are shown in their place.
//!
//! A [`DriverPage`] is host memory of the driver's, found through a mapping of it. A [`Shadow`] is
//! a page of ours in the place of that one in files' mappings: read-only, made anew every
//! [`PERIOD_MS`] for as long as the shadow exists.
//!
//! Both are read and written while others do the same, in words of 64 bits: a word is read or
//! written whole, and in the order of the calls.

use super::backing_file::BackingFile;
use crate::os_interface::base::{
    extra,
    frame::Frame,
    vma::look_at, //
};
use core::{
    ops::ControlFlow,
    ptr::NonNull, //
};
use kernel::{
    bindings,
    error::{
        from_err_ptr,
        to_result, //
    },
    page::{
        Page,
        PAGE_SIZE, //
    },
    prelude::*,
    sync::atomic::{
        Acquire,
        Atomic,
        Release, //
    },
    types::Opaque, //
};

/// How old a shadow can be, milliseconds. The driver's own page is made anew once a second at most.
pub const PERIOD_MS: u32 = 500;

/// Words of a page.
const WORDS: usize = PAGE_SIZE / 8;

/// The word at `index` of the page at `page`, if it has so many.
///
/// # Safety
///
/// `page` is a page of memory that the kernel has mapped, and lives for `'a`.
unsafe fn word<'a>(page: *mut bindings::page, index: usize) -> Option<&'a Atomic<u64>> {
    if index >= WORDS {
        return None;
    }
    // SAFETY: It is a page of memory that the kernel has mapped.
    let address = unsafe { extra::cgpu_shim_page_address(page) };
    let word = address.cast::<u64>().wrapping_add(index);
    // SAFETY: Within the page and aligned; the page lives for `'a`. Whoever
    // else writes it is outside of the kernel's memory model: the driver, or nobody.
    Some(unsafe { Atomic::from_ptr(word) })
}

/// A page of host memory that is the driver's.
///
/// # Invariants
///
/// There is a reference to the page that is this object's.
pub struct DriverPage(NonNull<bindings::page>);

// SAFETY: A page may be used, and a reference to it put back, by any task.
unsafe impl Send for DriverPage {}
// SAFETY: A shared page is only read, word by word and atomically.
unsafe impl Sync for DriverPage {}

impl DriverPage {
    /// The page that the driver maps for `file`, which was prepared for that
    /// (`NV_ESC_RM_MAP_MEMORY`). It is mapped into the calling task's memory for a moment.
    pub fn of_mapping(file: &BackingFile) -> Result<Self> {
        // CAST: small bit masks.
        let protection = extra::PROT_READ as c_ulong;
        let shared = extra::MAP_SHARED as c_ulong;
        // SAFETY: `file` is open; the calling task has an address space, and holds none of its
        // locks.
        let base = unsafe { bindings::vm_mmap(file.as_ptr(), 0, PAGE_SIZE, protection, shared, 0) };
        // An address, or an errno in the way of an error pointer.
        let base = from_err_ptr(core::ptr::without_provenance_mut::<c_void>(base))?.addr();
        // Branch 535 maps it as I/O memory, of which the kernel pins no page for others. The driver
        // frees the page no earlier than the object that was mapped, which is still there.
        let page = look_at(current!(), base, |vma| {
            let mut page = None;
            // The task may have mapped something else there meanwhile.
            if vma.seen().file == file.as_ptr() {
                vma.each_entry(base, base.saturating_add(PAGE_SIZE), |entry| {
                    page = entry.get_page();
                    ControlFlow::Break(())
                });
            }
            page
        });
        // SAFETY: It was mapped above. The task may have unmapped it itself, which is its affair.
        unsafe { bindings::vm_munmap(base, PAGE_SIZE) };
        // INVARIANT: The reference was taken above.
        page.map(Self).ok_or(EFAULT)
    }

    /// Its page frame.
    pub fn frame(&self) -> Frame {
        // SAFETY: By the type's invariant it is a page.
        let frame = unsafe { extra::cgpu_shim_page_to_pfn(self.0.as_ptr()) };
        // CAST: `c_ulong` is 64 bits wide.
        Frame::new(frame as u64)
    }

    /// A word of it; 0 beyond its end.
    pub fn word(&self, index: usize) -> u64 {
        // SAFETY: By the type's invariant it is a page, which is there as long as `self`.
        unsafe { word(self.0.as_ptr(), index) }.map_or(0, |word| word.load(Acquire))
    }
}

impl Drop for DriverPage {
    fn drop(&mut self) {
        // SAFETY: By the type's invariant there is a reference, which nobody else puts back.
        unsafe { extra::cgpu_shim_put_page(self.0.as_ptr()) };
    }
}

/// A page that programs are shown.
pub struct ShownPage(Page);

impl ShownPage {
    /// A word of it; 0 beyond its end.
    pub fn word(&self, index: usize) -> u64 {
        // SAFETY: A page, there as long as `self`.
        unsafe { word(self.0.as_ptr(), index) }.map_or(0, |word| word.load(Acquire))
    }

    /// Writes a word. Beyond the end of the page nothing is written.
    pub fn set_word(&self, index: usize, value: u64) {
        // SAFETY: A page, there as long as `self`.
        if let Some(word) = unsafe { word(self.0.as_ptr(), index) } {
            word.store(value, Release);
        }
    }

    /// The page itself.
    pub(in crate::os_interface) fn page(&self) -> &Page {
        &self.0
    }
}

/// The source of a shadow's content.
pub trait Refresh: Send + Sync + 'static {
    /// Brings the page up to date. Never called twice at the same time for one shadow.
    ///
    /// # Errors
    ///
    /// `ENOMEM`: it is as it was.
    fn refresh(&self, page: &ShownPage) -> Result;
}

/// The queue in which the shadows of all tenants are made anew. While the module is loaded there is
/// one.
pub struct PageQueue(());

impl PageQueue {
    /// Starts it, once.
    pub fn start() -> Result<Self> {
        // SAFETY: It is called when the module is loaded, before there is a shadow.
        to_result(unsafe { extra::cgpu_shim_start_pages() })?;
        Ok(Self(()))
    }
}

impl Drop for PageQueue {
    fn drop(&mut self) {
        // SAFETY: It was started, and no shadow is left when the module goes.
        unsafe { extra::cgpu_shim_stop_pages() };
    }
}

/// A page of ours and what is to stand in it.
pub struct Shadow<R: Refresh>(Pin<KBox<ShadowInner<R>>>);

#[pin_data]
#[repr(C)]
struct ShadowInner<R: Refresh> {
    /// First, so that a pointer to it is one to all.
    #[pin]
    work: Opaque<extra::cgpu_page_work>,
    page: ShownPage,
    content: R,
}

// SAFETY: The work is used by the kernel's functions for it alone, which may be called by any task.
unsafe impl<R: Refresh> Send for ShadowInner<R> {}
// SAFETY: Nothing changes `page` and `content` by a shared reference; the kernel's functions for
// `work` lock it.
unsafe impl<R: Refresh> Sync for ShadowInner<R> {}

impl<R: Refresh> Shadow<R> {
    /// Makes a shadow, up to date.
    pub fn start(content: R) -> Result<Self> {
        let page = ShownPage(Page::alloc_page(GFP_KERNEL_ACCOUNT | __GFP_ZERO)?);
        content.refresh(&page)?;
        let inner = KBox::pin_init(
            try_pin_init!(ShadowInner {
                work <- Opaque::ffi_init(|slot: *mut extra::cgpu_page_work| {
                    // SAFETY: `slot` is a valid, pinned place; `run` is for what it is in.
                    unsafe { extra::cgpu_shim_init_page_work(slot, Some(run::<R>)) };
                }),
                page,
                content,
            }),
            GFP_KERNEL_ACCOUNT,
        )?;
        inner.again();
        Ok(Self(inner))
    }

    /// The page.
    pub fn page(&self) -> &ShownPage {
        &self.0.page
    }
}

impl<R: Refresh> ShadowInner<R> {
    fn again(&self) {
        // SAFETY: The work was initialized, and stays where it is until `drop` has ended it.
        unsafe { extra::cgpu_shim_queue_page_work(self.work.get(), PERIOD_MS) };
    }
}

unsafe extern "C" fn run<R: Refresh>(work: *mut extra::cgpu_page_work) {
    // SAFETY: The work is the beginning of a `ShadowInner` of this type, which is there until
    // `drop` has waited for the end of this.
    let inner = unsafe { &*work.cast_const().cast::<ShadowInner<R>>() };
    // Without memory for it, the page stays as it is until the next time.
    let _ = inner.content.refresh(&inner.page);
    inner.again();
}

impl<R: Refresh> Drop for Shadow<R> {
    fn drop(&mut self) {
        // Also where it puts itself into the queue again. What is still mapped keeps the page.
        // SAFETY: The work was initialized; a task that drops a shadow may sleep.
        unsafe { extra::cgpu_shim_end_page_work(self.0.work.get()) };
    }
}
