// SPDX-License-Identifier: GPL-2.0
//! An access to registers that faulted, and what may become of it: let pass, shown the page, or carried out.
//!
//! # Pages for reading
//!
//! A mapping of registers has a `pfn_mkwrite` operation, so its pages come without the right to write: by
//! `vm_page_prot`, for the driver's fault handler as for `mprotect` (see `vma_wants_writenotify()`). Who may
//! write to a page is given that right here, under the lock of its gate. (Were it left to the kernel, which does it when
//! that operation has returned, the gate could have moved meanwhile.) So at a metered gate pages can be read, and every
//! store comes here.
//!
//! # A store in the program's place
//!
//! It is carried out where it is a plain one of 4 bytes ([`instruction`]), made by a program in 64-bit mode which nobody goes
//! through step by step, and goes to the very address that faulted; then the program goes on behind it. What counts are its
//! bytes as they are now: a program that changes them meanwhile does what it could have done in the first place, since it
//! is its own value that is stored in a page that it has mapped.
//!
//! The page is written to by an address of the kernel's, cached as the program's is. Whether that may be done is
//! not asked of the driver: it is done under the lock of the page table, while that has the page. So it is as if the program's
//! own processor did it. The driver takes the page out of all mappings before the GPU sleeps, and waits for that lock;
//! and where the page is not there its fault handler is called first, which wakes the GPU.

use super::super::{extra, page_entry::LockedEntry};
use crate::policy::{
    instruction::{self, Registers, Store},
    sched::Passage,
};
use core::ptr::{without_provenance, NonNull};
use kernel::{bindings, new_mutex, page::PAGE_SIZE, prelude::*, sync::Mutex};

/// The driver's fault handler.
pub(in crate::os_interface) type Handler =
    unsafe extern "C" fn(*mut bindings::vm_fault) -> bindings::vm_fault_t;

/// The fault is done with; the program goes on where its registers say.
const DONE: bindings::vm_fault_t = bindings::vm_fault_reason_VM_FAULT_NOPAGE;

/// A page as the kernel has it mapped.
///
/// # Invariants
///
/// `address` is what `cgpu_shim_map_frame` gave for `frame`.
struct KernelPage {
    frame: usize,
    address: NonNull<c_void>,
}

// SAFETY: The kernel's address space is the same for every task.
unsafe impl Send for KernelPage {}

impl KernelPage {
    /// Maps `frame`, which a program has mapped with `protection`.
    fn map(frame: usize, protection: bindings::pgprot_t) -> Option<Self> {
        // SAFETY: A program has it mapped, so it is one of a device's or of memory. It is written to only while
        // a program has it mapped.
        let address = unsafe { extra::cgpu_shim_map_frame(frame, protection) };
        // INVARIANT: It was given just now.
        NonNull::new(address).map(|address| Self { frame, address })
    }
}

impl Drop for KernelPage {
    fn drop(&mut self) {
        // SAFETY: By the type's invariant; nobody uses it any more.
        unsafe { extra::cgpu_shim_unmap_frame(self.address.as_ptr()) };
    }
}

/// The page of a file to which its programs store: mapped by the first store, until one of the file's mappings goes, or
/// there is a store to another page.
pub(super) struct Kept(Pin<KBox<Mutex<Option<KernelPage>>>>);

impl Kept {
    pub(super) fn new() -> Result<Self> {
        Ok(Self(KBox::pin_init(new_mutex!(None), GFP_KERNEL)?))
    }

    pub(super) fn unmap(&self) {
        drop(self.0.lock().take());
    }
}

/// What became of a store at a metered gate.
pub(super) enum Metered {
    /// The fault is done with.
    Done(bindings::vm_fault_t),
    /// It has to wait.
    Waits,
    /// It cannot be carried out.
    Unknown,
}

/// An access that faulted.
pub(super) struct Access<'a> {
    vmf: *mut bindings::vm_fault,
    /// `None`: its page is there, and may not be written to.
    handler: Option<Handler>,
    page: &'a Kept,
}

impl<'a> Access<'a> {
    /// # Safety
    ///
    /// `vmf` is that of a fault that is being served for as long as this is used, in a mapping of registers, and `handler`
    /// the driver's for it. `page` is that of the mapping's file.
    pub(super) unsafe fn new(
        vmf: *mut bindings::vm_fault,
        handler: Option<Handler>,
        page: &'a Kept,
    ) -> Self {
        Self { vmf, handler, page }
    }

    fn fault(&self) -> &bindings::vm_fault {
        // SAFETY: `new` was promised that it is being served.
        unsafe { &*self.vmf }
    }

    pub(super) fn has(&self, flag: bindings::fault_flag) -> bool {
        self.fault().flags & flag != 0
    }

    fn is_store(&self) -> bool {
        self.has(bindings::fault_flag_FAULT_FLAG_WRITE)
    }

    /// Whether the page was there, for reading.
    pub(super) fn was_shown(&self) -> bool {
        self.handler.is_none()
    }

    fn entry(&self) -> Option<LockedEntry> {
        // SAFETY: `new` was promised that the fault is being served.
        unsafe { LockedEntry::lock(self.fault()) }
    }

    /// Has the driver put the pages in, for reading.
    fn show(&self) -> bindings::vm_fault_t {
        match self.handler {
            // SAFETY: `new` was promised that it is the driver's for this fault.
            Some(handler) => unsafe { handler(self.vmf) },
            None => DONE,
        }
    }

    /// Has the driver put the pages in; that of a store may be written to. Under the lock of the gate, which is open.
    pub(super) fn pass(&self) -> bindings::vm_fault_t {
        let result = self.show();
        if self.is_store() {
            if let Some(entry) = self.entry() {
                entry.make_writable();
            }
        }
        result
    }

    /// At a metered gate, under its lock: `launched` asks whether a store may pass.
    pub(super) fn meter(&self, launched: impl FnOnce() -> Passage) -> Metered {
        if !self.is_store() {
            return Metered::Done(self.show());
        }
        let Some(store) = self.store() else {
            return Metered::Unknown;
        };
        let shown = self.show();
        let found = self.entry().and_then(|entry| entry.frame());
        // It is not there: the GPU is woken, and the program comes again.
        let Some((frame, protection)) = found.filter(|_| shown == DONE) else {
            return Metered::Done(shown);
        };
        let mut kept = self.page.0.lock();
        if kept.as_ref().is_none_or(|page| page.frame != frame) {
            *kept = KernelPage::map(frame, protection);
        }
        let Some(page) = kept.as_ref() else {
            return Metered::Unknown;
        };
        match launched() {
            Passage::Waits => return Metered::Waits,
            Passage::Passes => self.carry_out(page, &store),
        }
        Metered::Done(DONE)
    }

    /// What the program stores; `None` where that cannot be done in its place.
    fn store(&self) -> Option<Store> {
        let fault = self.fault();
        let place = &fault.__bindgen_anon_1;
        // SAFETY: A fault's mapping is valid while it is served, and so is the current task.
        let own = unsafe { (*place.vma).vm_mm == (*bindings::get_current()).mm };
        let elsewhere = bindings::fault_flag_FAULT_FLAG_REMOTE;
        if !own || !self.has(bindings::fault_flag_FAULT_FLAG_USER) || self.has(elsewhere) {
            return None;
        }
        let mut registers = Registers::default();
        // SAFETY: Room for as many as there are. The program made the access itself, so these are the registers
        // with which it did.
        let known = unsafe {
            extra::cgpu_shim_program_registers(
                registers.general.as_mut_ptr(),
                &raw mut registers.ip,
            )
        };
        if !known {
            return None;
        }
        let mut bytes = [0; instruction::LONGEST];
        let length = read_code(registers.ip, &mut bytes);
        let store = instruction::store(bytes.get(..length)?, &registers)?;
        // CAST: c_ulong is 64 bits wide.
        let same = store.address == place.real_address as u64;
        (same && store.address % 4 == 0).then_some(store)
    }

    /// Stores, if the page is still there, and has the program go on behind. If it is not, the program comes again.
    fn carry_out(&self, page: &KernelPage, store: &Store) {
        let Some(entry) = self.entry() else { return };
        if entry.frame().is_none_or(|(frame, _)| frame != page.frame) {
            return;
        }
        // CAST: below a page's size; `store` looked that it is whole.
        let offset = store.address as usize % PAGE_SIZE;
        // SAFETY: By the type's invariant the page is mapped there. The program has it mapped as well, and
        // may write to it by its mapping's flags, or there would be no such fault.
        unsafe { extra::cgpu_shim_store(page.address.as_ptr().byte_add(offset), store.value) };
        // SAFETY: The current task's program is interrupted at the instruction that was just carried out.
        unsafe { extra::cgpu_shim_program_goes_on(store.next) };
    }
}

/// Reads what the current task's program has at `ip`; returns how much there is, to the end of the page at least, if
/// any.
fn read_code(ip: u64, bytes: &mut [u8]) -> usize {
    // CAST: usize is 64 bits wide.
    let ip = ip as usize;
    let read = |at: usize, part: &mut [u8]| {
        let from = without_provenance::<c_void>(at);
        // SAFETY: `part` is ours; whatever the other address is, the kernel looks whether it is the program's, and does
        // not wait for a page.
        unsafe { bindings::copy_from_user_nofault(part.as_mut_ptr().cast(), from, part.len()) == 0 }
    };
    let first = bytes.len().min(PAGE_SIZE - ip % PAGE_SIZE);
    let Some((here, there)) = bytes.split_at_mut_checked(first) else {
        return 0;
    };
    if !read(ip, here) {
        return 0;
    }
    match read(ip.wrapping_add(first), there) {
        true => first.saturating_add(there.len()),
        false => first,
    }
}
