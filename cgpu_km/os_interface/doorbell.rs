// SPDX-License-Identifier: GPL-2.0
//! A doorbell page of ours, through BAR1, in the place of the one through BAR0 that the driver maps.
//!
//! Why programs are shown one is said in `proxy/alloc.rs`. What the driver has put into a mapping is looked at entry by
//! entry: a frame of the doorbell in BAR0 becomes the one of ours in BAR1, with the same caching, and any other
//! frame stays. The driver knows nothing of it and need not: what it takes out of a mapping (when the GPU
//! is to sleep) are entries, and it never reads them.
//!
//! # No ring goes through BAR0 meanwhile
//!
//! Other threads could ring between the driver's entries and ours, whatever locks are held: the processor asks for none. So
//! the driver is shown a mapping to which nobody has access, and its entries, which have none, get it together with
//! their new frame. The mapping's protection is what is changed for that, back and forth: in a fault under the
//! [gate](super::gate)'s lock and a read lock of `mmap_lock`, since the kernel writes it under the write lock only, and reads it
//! where it makes entries. A processor never remembers an entry without access, so nothing has to be flushed.

use super::{
    extra,
    mapping::{original_fault, Frame},
    session::{session, Endpoint},
};
use kernel::{bindings, mm::virt::VmaRef, page::PAGE_SIZE, prelude::*};

/// Pages of a doorbell's region: 64 KiB, `NVC361_NV_USERMODE__SIZE` (clc361.h), as all later classes.
pub(super) const PAGES: usize = 16;

/// Where a GPU's doorbell is.
pub struct Doorbell {
    /// Its first frame in BAR0; the others follow.
    registers: u64,
    /// The frame of each of its pages in BAR1.
    window: [u64; PAGES],
}

impl Doorbell {
    /// One whose region begins at a physical address in BAR0, and of whose pages each is at one in BAR1. `None` where
    /// one is no page's.
    pub(super) fn new(registers: u64, window: [u64; PAGES]) -> Option<Self> {
        // CAST: a page's size.
        let page = PAGE_SIZE as u64;
        let whole = registers % page == 0 && window.iter().all(|address| address % page == 0);
        whole.then(|| Self {
            registers: registers / page,
            window: window.map(|address| address / page),
        })
    }

    /// Whether its frames are what they are to be: each one through BAR0 a register, each one through BAR1 there.
    pub(super) fn lies_in(
        &self,
        is_register: impl Fn(Frame) -> bool,
        is_window: impl Fn(Frame) -> bool,
    ) -> bool {
        let mut registers = (self.registers..).take(PAGES);
        registers.all(|frame| is_register(Frame::new(frame)))
            && self
                .window
                .iter()
                .all(|frame| is_window(Frame::new(*frame)))
    }

    /// The frame that stands for this one; itself, if it is none of the doorbell in BAR0.
    fn instead_of(&self, frame: u64) -> u64 {
        let page = frame.checked_sub(self.registers);
        let page = page.and_then(|page| usize::try_from(page).ok());
        let instead = page.and_then(|page| self.window.get(page));
        instead.copied().unwrap_or(frame)
    }

    /// Puts its frames in the place of those through BAR0, and gives each entry the access that the mapping has by its flags.
    ///
    /// # Safety
    ///
    /// The mapping is one of page frames, whose `mmap_lock` is held; no processor remembers an entry of it.
    pub(super) unsafe fn show(&self, vma: *mut bindings::vm_area_struct) {
        struct Place<'a> {
            doorbell: &'a Doorbell,
            vma: *mut bindings::vm_area_struct,
        }
        unsafe extern "C" fn each(
            entry: *mut bindings::pte_t,
            address: c_ulong,
            place: *mut c_void,
        ) -> c_int {
            // SAFETY: Below, `show` passes this, which nobody changes.
            let place = unsafe { &*place.cast::<Place<'_>>() };
            let mut frame = 0;
            // SAFETY: `apply_to_page_range` calls this with an entry that it has locked.
            if unsafe { extra::cgpu_shim_pte_frame(entry, &raw mut frame) } {
                // CAST: `c_ulong` is 64 bits wide.
                let instead = place.doorbell.instead_of(frame as u64) as c_ulong;
                // SAFETY: As above, of this mapping.
                unsafe { extra::cgpu_shim_set_frame(place.vma, address, entry, instead) };
            }
            0
        }
        let mut place = Place {
            doorbell: self,
            vma,
        };
        // SAFETY: The caller promises that it is there.
        let (mm, start, end) = unsafe {
            let range = VmaRef::from_raw(vma);
            ((*vma).vm_mm, range.start(), range.end())
        };
        // Its errors are those of tables that could not be made, which hold no page then.
        // SAFETY: The whole mapping; `each` takes the place for what it is, and the kernel keeps neither.
        unsafe {
            bindings::apply_to_page_range(
                mm,
                start,
                end.saturating_sub(start),
                Some(each),
                (&raw mut place).cast(),
            )
        };
    }
}

/// The driver's handler for a fault in a mapping that shows a [`Doorbell`], and that.
///
/// # Safety
///
/// `vmf` is that of a fault which is being served, in a mapping behind a gate of a proxied file of `E`, under the
/// gate's lock.
pub(super) unsafe extern "C" fn fault<E: Endpoint>(
    vmf: *mut bindings::vm_fault,
) -> bindings::vm_fault_t {
    // SAFETY: The fault is being served, so its mapping is valid.
    let vma = unsafe { (*vmf).__bindgen_anon_1.vma };
    // SAFETY: The caller promises what it is a mapping of.
    let session = unsafe { session::<E>((*vma).vm_file) };
    // SAFETY: The caller promises that the mapping has operations of ours.
    let handler = unsafe { original_fault(vma) };
    let (Some(doorbell), Some(handler)) = (E::doorbell(session.file()), handler) else {
        return bindings::vm_fault_reason_VM_FAULT_SIGBUS;
    };
    // SAFETY: The mapping is valid, and faults in it are served one at a time.
    unsafe { extra::cgpu_shim_take_access(vma) };
    // SAFETY: It is the driver's, for this mapping.
    let result = unsafe { handler(vmf) };
    // SAFETY: `mmap_lock` is held, and the entries that the driver has made have no access; the others are ours already.
    unsafe { doorbell.show(vma) };
    // SAFETY: As above.
    unsafe { extra::cgpu_shim_restore_protection(vma) };
    result
}
