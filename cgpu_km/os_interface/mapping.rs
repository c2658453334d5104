// SPDX-License-Identifier: GPL-2.0
//! Mappings of proxied files: our operations in front of the driver's.
//!
//! The driver makes a mapping (`nvidia_mmap`, kernel-open/nvidia/nv-mmap.c; `uvm_mmap`,
//! kernel-open/nvidia-uvm/uvm.c) and gives it operations of its own. Right after that, still inside
//! `mmap`, they are replaced by a copy in which only this is different (files that may show
//! [registers](super::registers) come here a moment later):
//!
//! | operation | ours |
//! |---|---|
//! | `access` | none: the driver's reads and writes registers behind the page tables, for ptrace and `/proc/PID/mem` |
//! | `close` | the driver's, then [`Endpoint::unmapped`] |
//! | `fault` | of registers: past the [gate](super::gate), then the driver's, and [a doorbell of ours](super::doorbell) |
//! | `may_split` | of registers: never, since the driver knows of whole mappings only |
//!
//! The others are the driver's own functions, which look at the mapping's file, at `vm_pgoff` and at
//! `vm_private_data`, and at none of its operations. (One function of UVM compares them,
//! `uvm_vma_is_managed()`, for HMM alone, which is off in a proxied address space: see
//! `proxy/uvm.rs` on UVM_INITIALIZE.)
//!
//! # Lifetimes
//!
//! The copy is kept in the [`BackingFile`](super::BackingFile) of the file that was mapped. Every mapping holds its
//! file, from `mmap` or fork or split until after `close`, and the file holds its session, which has the backing file, this
//! module and the driver. So nothing is counted here, and the driver may give a mapping operations without
//! ours at any time, as UVM does in a child (`uvm_disable_vma()`).
//!
//! # Locks
//!
//! [`Endpoint::mapped`] and [`Endpoint::unmapped`] run under the program's `mmap_lock`, mostly for writing, and the
//! first of them under [`Gate::state`](super::gate) too: they must not touch the program's memory, nor wait for
//! anybody who does.

use super::{
    creds, doorbell, extra,
    gate::{self, Gate},
    open_file::settle_later,
    session::{session, Endpoint, Session},
    shared_page::ShownPage,
    UserAddr,
};
use core::ptr::{null_mut, NonNull};
use kernel::{
    bindings,
    error::to_result,
    mm::virt::VmaRef,
    page::PAGE_SIZE,
    prelude::*,
    sync::{Arc, SetOnce},
};

/// How many kinds of mappings a file can have. UVM has four: managed memory, semaphore pools, device
/// memory for peers, and disabled ones.
const KINDS: usize = 4;

/// A part of a program's address space that a file is mapped to, or is to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// Its first byte.
    pub start: UserAddr,
    /// Its length in bytes, whole pages.
    pub length: u64,
    /// From which byte of the file on.
    pub offset: u64,
    /// The program can read it.
    pub readable: bool,
    /// The program can write to it.
    pub writable: bool,
    /// The program can make it writable, if it is not.
    pub may_be_writable: bool,
    /// It is the file's own memory, not a copy made on writing.
    pub shared: bool,
}

impl Mapping {
    pub(super) fn of(vma: &VmaRef) -> Self {
        use kernel::mm::virt::flags;
        let flags = vma.flags();
        // SAFETY: The kernel hands the mapping to the operation that calls this, locked.
        let page = unsafe { (*vma.as_ptr()).vm_pgoff };
        // CAST: `c_ulong` and `usize` are 64 bits wide.
        Self {
            start: UserAddr::new(vma.start() as u64),
            length: vma.end().saturating_sub(vma.start()) as u64,
            offset: (page as u64).saturating_mul(PAGE_SIZE as u64),
            readable: flags & flags::READ != 0,
            writable: flags & flags::WRITE != 0,
            may_be_writable: flags & flags::MAYWRITE != 0,
            shared: flags & flags::SHARED != 0,
        }
    }
}

/// How a mapping, or a part of one, went away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unmapped {
    /// The program unmapped or replaced it, moved it, or executed another program.
    ByProgram,
    /// The program ended. UVM keeps the managed memory of such a mapping until the file is closed
    /// (`uvm_vm_close_managed()`, uvm.c: a range becomes a zombie where nobody's address space is
    /// that of the current task).
    ByExit,
}

/// The number of a page frame: a physical address over the page's size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame(u64);

impl Frame {
    /// Whether it lies in the `length` bytes of physical memory from `start` on.
    pub fn is_within(self, start: u64, length: u64) -> bool {
        // CAST: a page's size.
        let address = self.0.checked_mul(PAGE_SIZE as u64);
        address.is_some_and(|address| address >= start && address - start < length)
    }

    /// Whether it is memory that the kernel knows, host memory most of all.
    pub fn is_memory(self) -> bool {
        // SAFETY: Any number may be asked for.
        // CAST: `c_ulong` is 64 bits wide.
        unsafe { extra::cgpu_shim_frame_is_memory(self.0 as c_ulong) }
    }

    pub(super) const fn new(number: u64) -> Self {
        Self(number)
    }
}

/// What a program gets for its `mmap`.
#[derive(Clone, Copy)]
pub enum Shown<'a> {
    /// What the driver made.
    AsMade,
    /// The same, after [`Endpoint::settle`] has run, in the same task and without a lock.
    Later,
    /// What the driver made, behind [the file's gate](Endpoint::gate): while that is not open without pages, which
    /// come with faults that it lets pass.
    Gated,
    /// This page, which it can read only, in the place of the driver's one. `EINVAL` for a mapping of
    /// more than a page.
    Instead(&'a ShownPage),
}

/// What the driver put into a mapping that it has just made.
pub struct Pages<'a>(&'a VmaRef);

impl Pages<'_> {
    /// The frame of the first page; `None` where there is none yet and pages come with faults, as
    /// for UVM's managed memory. (Its semaphore pools have their pages at once.)
    pub fn first(&self) -> Option<Frame> {
        let mut found = None;
        let note = |frame| {
            found = Some(frame);
            true
        };
        let here = self.0.start();
        self.look(here, here.saturating_add(PAGE_SIZE), note);
        found
    }

    /// Whether each access reaches the device as it is, in its place among the others, as those to registers must.
    pub fn are_uncached(&self) -> bool {
        // SAFETY: The mapping is there, and its `mmap_lock` held.
        unsafe { extra::cgpu_shim_is_uncached(self.0.as_ptr()) }
    }

    /// Whether there is a page whose frame is one that is asked for.
    pub fn any(&self, wanted: impl Fn(Frame) -> bool) -> bool {
        let mut found = false;
        let note = |frame| {
            found = wanted(frame);
            found
        };
        self.look(self.0.start(), self.0.end(), note);
        found
    }

    /// Calls `stop` for the frames from `start` to `end`, until it says so.
    fn look<F: FnMut(Frame) -> bool>(&self, start: usize, end: usize, mut stop: F) {
        unsafe extern "C" fn each<F: FnMut(Frame) -> bool>(
            entry: *mut bindings::pte_t,
            _address: c_ulong,
            stop: *mut c_void,
        ) -> c_int {
            // SAFETY: Below, `look` passes a closure of this type, which nobody else uses meanwhile.
            let stop = unsafe { &mut *stop.cast::<F>() };
            let mut frame = 0;
            // SAFETY: `apply_to_page_range` calls this with an entry that it has locked.
            let present = unsafe { extra::cgpu_shim_pte_frame(entry, &raw mut frame) };
            // CAST: `c_ulong` is 64 bits wide.
            c_int::from(present && stop(Frame(frame as u64)))
        }
        let end = end.min(self.0.end());
        let length = end.saturating_sub(start);
        if length == 0 {
            return;
        }
        // What it returns is what `each` did, or an errno where a table could not be made: then the
        // driver has mapped nothing there.
        // SAFETY: The mapping is being made under its `mmap_lock`, which is held for writing;
        // `each` takes the closure for what it is, and the kernel keeps neither.
        unsafe {
            bindings::apply_to_page_range(
                (*self.0.as_ptr()).vm_mm,
                start,
                length,
                Some(each::<F>),
                (&raw mut stop).cast(),
            )
        };
    }
}

/// The driver's operations of mappings, less what a program is not to have.
#[repr(C)]
struct Table {
    /// First, so that a pointer to it is one to the table.
    operations: bindings::vm_operations_struct,
    original: *const bindings::vm_operations_struct,
    gated: bool,
}

// SAFETY: The pointer is to a static of the driver's; nothing is written after it was made.
unsafe impl Send for Table {}
// SAFETY: As above.
unsafe impl Sync for Table {}

/// What a session keeps for the mappings of its file.
pub(super) struct Mappings {
    /// If it maps registers.
    gate: SetOnce<gate::Entry>,
}

impl Mappings {
    pub(super) fn new() -> Self {
        Self {
            gate: SetOnce::new(),
        }
    }

    /// The file is going to be closed; nothing of it is mapped any more.
    pub(super) fn leave(&self) {
        if let Some(entry) = self.gate.as_ref() {
            entry.leave();
        }
    }

    /// Puts the file behind a gate, if it is not there yet.
    ///
    /// # Safety
    ///
    /// `file` is open, and [`Mappings::leave`] is called before it is not.
    unsafe fn enter(&self, gate: &Arc<Gate>, file: NonNull<bindings::file>) -> Result {
        if self.gate.as_ref().is_some() {
            return Ok(());
        }
        // SAFETY: The caller promises it.
        let entry = unsafe { gate::Entry::new(gate, file) }?;
        // Another thread may be faster, with the same gate: then this one goes.
        self.gate.populate(entry);
        Ok(())
    }
}

/// The tables for all mappings of a backing file's sessions, made when they are needed.
pub(super) struct Tables([SetOnce<KBox<Table>>; KINDS]);

impl Tables {
    pub(super) const fn new() -> Self {
        Self([const { SetOnce::new() }; KINDS])
    }

    /// The operations that stand for `original`; `EMFILE` if there are more kinds than there can be, `ENOMEM`.
    ///
    /// # Safety
    ///
    /// `original` are operations of a mapping of the driver that the backing file is of, and `E` is the endpoint of
    /// all its sessions.
    unsafe fn replacing<E: Endpoint>(
        &self,
        original: *const bindings::vm_operations_struct,
        gated: bool,
    ) -> Result<&Table> {
        for slot in &self.0 {
            if slot.as_ref().is_none() {
                // SAFETY: The caller promises that they are the driver's, and valid.
                let theirs = unsafe { *original };
                let mut operations = bindings::vm_operations_struct {
                    access: None,
                    close: Some(close::<E>),
                    ..theirs
                };
                if gated {
                    operations.fault = Some(gated_fault::<E>);
                    operations.huge_fault = None;
                    operations.map_pages = None;
                    operations.may_split = Some(may_split);
                }
                // Another thread may be faster: its table is looked at like any other, or, if it is
                // not there yet, the next place is taken.
                let table = Table {
                    operations,
                    original,
                    gated,
                };
                slot.populate(KBox::new(table, GFP_KERNEL)?);
            }
            let same = |table: &&KBox<Table>| table.original == original && table.gated == gated;
            if let Some(table) = slot.as_ref().filter(same) {
                return Ok(table);
            }
        }
        Err(EMFILE)
    }
}

/// What becomes of the pages of registers that the driver puts into a mapping as it makes it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum AtOnce {
    /// They stay. The gate is open, it is not moved meanwhile, and who moves it finds the mapping.
    Kept,
    /// They are taken out, and come with faults.
    TakenOut,
}

/// Has the driver make a mapping and puts our operations in front: what `mmap` returns.
///
/// # Safety
///
/// The mapping is being made by this task, under `mmap_lock`, of `filp`, whose session is `session`.
pub(super) unsafe fn make<E: Endpoint>(
    session: &Session<E>,
    filp: *mut bindings::file,
    vma: *mut bindings::vm_area_struct,
    registers: AtOnce,
) -> Result<c_int> {
    let real = session.backing().operations().mmap.ok_or(ENODEV)?;
    // The driver gets our own file, as it does in ioctls: it keeps its state there.
    // SAFETY: The caller promises what `mmap` asks for, and the file is one that the driver opened.
    let result = creds::reduced_as(session.opener(), || unsafe { real(filp, vma) })?;
    if result != 0 {
        // Not always an errno: `nvidia_mmap_helper()` returns a status for a GPU that was lost.
        return Ok(result);
    }
    // SAFETY: As above; the driver may have set its operations.
    let original = unsafe { (*vma).vm_ops };
    if original.is_null() {
        return Ok(0);
    }
    // SAFETY: As above. The driver may have changed the flags.
    let made = unsafe { VmaRef::from_raw(vma) };
    let mapping = Mapping::of(made);
    let shown = E::mapped(session.file(), &mapping, &Pages(made));
    let put_in_place = match shown {
        // SAFETY: They are the driver's operations, of a mapping that it has just made for `filp`.
        Ok(Shown::AsMade) => unsafe { cover::<E>(session, vma, original, false) },
        // SAFETY: As above.
        Ok(Shown::Later) => unsafe { settled::<E>(session, filp, vma, original) },
        // SAFETY: As above.
        Ok(Shown::Gated) => unsafe { gated::<E>(session, filp, vma, original, registers) },
        Ok(Shown::Instead(_)) => Err(EINVAL),
        Err(e) => Err(e),
    };
    if put_in_place.is_ok() {
        return Ok(0);
    }
    // What the driver made goes. (The kernel takes the pages out of a mapping that failed, but does not
    // call `close` for it.)
    // SAFETY: They are the driver's operations, which are valid.
    if let Some(close) = unsafe { (*original).close } {
        // SAFETY: The driver has just made this mapping.
        unsafe { close(vma) };
    }
    // SAFETY: As above.
    unsafe { (*vma).vm_ops = &raw const SHOWN.0 };
    match shown {
        // SAFETY: The mapping is being made by this task, and the driver has nothing to do with it
        // any more.
        Ok(Shown::Instead(page)) => unsafe { show(vma, page) },
        Ok(_) => {
            E::unmapped(session.file(), &mapping, Unmapped::ByProgram);
            put_in_place.map(|()| 0)
        }
        Err(e) => Err(e),
    }
}

/// Puts operations of ours in the place of `original`.
///
/// # Safety
///
/// The mapping is being made, of the session's file, and `original` are the driver's operations for it.
unsafe fn cover<E: Endpoint>(
    session: &Session<E>,
    vma: *mut bindings::vm_area_struct,
    original: *const bindings::vm_operations_struct,
    gated: bool,
) -> Result {
    // SAFETY: The caller promises it.
    let table = unsafe { session.backing().tables().replacing::<E>(original, gated) }?;
    let operations = &raw const table.operations;
    // SAFETY: The caller promises it. The session lives as long as the file, which the mapping holds, and has the
    // backing file.
    unsafe { (*vma).vm_ops = operations };
    Ok(())
}

/// As [`cover`], and has [`Endpoint::settle`] called before the program goes on.
///
/// # Safety
///
/// As for [`cover`], with `filp` as the session's file.
unsafe fn settled<E: Endpoint>(
    session: &Session<E>,
    filp: *mut bindings::file,
    vma: *mut bindings::vm_area_struct,
    original: *const bindings::vm_operations_struct,
) -> Result {
    // SAFETY: The caller promises it.
    unsafe { cover::<E>(session, vma, original, false) }?;
    let file = NonNull::new(filp).ok_or(EINVAL)?;
    // SAFETY: The mapping is being made by this task, under `mmap_lock`.
    let mapping = Mapping::of(unsafe { VmaRef::from_raw(vma) });
    // SAFETY: The file is being mapped, so it is held, and its session is one of `E`.
    unsafe { settle_later::<E>(file, mapping) }
}

/// Puts a mapping behind a gate.
///
/// # Safety
///
/// As for [`cover`], with `filp` as the session's file.
unsafe fn gated<E: Endpoint>(
    session: &Session<E>,
    filp: *mut bindings::file,
    vma: *mut bindings::vm_area_struct,
    original: *const bindings::vm_operations_struct,
    registers: AtOnce,
) -> Result {
    let file = NonNull::new(filp).ok_or(EINVAL)?;
    let gate = E::gate(session.file()).ok_or(EINVAL)?;
    // SAFETY: The file is open, and its `release` calls `leave` first.
    unsafe { session.mappings().enter(gate, file) }?;
    // SAFETY: The caller promises it.
    unsafe { cover::<E>(session, vma, original, true) }?;
    if registers == AtOnce::Kept {
        if let Some(doorbell) = E::doorbell(session.file()) {
            // SAFETY: The mapping is being made under `mmap_lock`, and by `registers::enter` its entries have no access.
            unsafe { doorbell.show(vma) };
        }
        return Ok(());
    }
    // SAFETY: The whole mapping, one of page frames, locked for writing as it is being made.
    unsafe {
        let (start, end) = {
            let range = VmaRef::from_raw(vma);
            (range.start(), range.end())
        };
        bindings::zap_special_vma_range(vma, start, end.saturating_sub(start));
    }
    Ok(())
}

/// A page is not there.
unsafe extern "C" fn gated_fault<E: Endpoint>(
    vmf: *mut bindings::vm_fault,
) -> bindings::vm_fault_t {
    // SAFETY: The fault is being served, so its mapping is valid.
    let vma = unsafe { &*(*vmf).__bindgen_anon_1.vma };
    // SAFETY: Called through operations of ours.
    let Some(mut handler) = (unsafe { original_fault(vma) }) else {
        return bindings::vm_fault_reason_VM_FAULT_SIGBUS;
    };
    // SAFETY: The mapping's file is a proxied one of `E`, since a session of its kind had its table made.
    let session = unsafe { session::<E>(vma.vm_file) };
    if E::doorbell(session.file()).is_some() {
        handler = doorbell::fault::<E>;
    }
    match session.mappings().gate.as_ref() {
        // SAFETY: The fault is being served, and the handler is the driver's for this mapping.
        Some(entry) => unsafe { gate::fault::<E>(entry, session.file(), handler, vmf) },
        // Another thread is just putting it there: the access is tried again.
        None => bindings::vm_fault_reason_VM_FAULT_NOPAGE,
    }
}

/// The driver's handler of faults in a mapping.
///
/// # Safety
///
/// The mapping is there, and its operations are ours.
pub(super) unsafe fn original_fault(
    vma: *const bindings::vm_area_struct,
) -> Option<unsafe extern "C" fn(*mut bindings::vm_fault) -> bindings::vm_fault_t> {
    // SAFETY: The caller promises it; ours are the start of a table.
    let table = unsafe { &*(*vma).vm_ops.cast::<Table>() };
    // SAFETY: The driver's operations are valid as long as the mapping's file is open.
    unsafe { (*table.original).fault }
}

unsafe extern "C" fn may_split(_vma: *mut bindings::vm_area_struct, _addr: c_ulong) -> c_int {
    EINVAL.to_errno()
}

/// `struct vm_operations_struct` in a static.
pub(super) struct VmOperations(pub(super) bindings::vm_operations_struct);
// SAFETY: Never written.
unsafe impl Sync for VmOperations {}

/// Of a mapping of a page that is counted: there is nothing to be done.
static SHOWN: VmOperations = VmOperations(bindings::vm_operations_struct {
    ..pin_init::zeroed()
});

/// Puts `page` in the place of what is in a mapping, for reading.
///
/// # Safety
///
/// The mapping is being made, of a page of host memory, and has no operations but ours.
unsafe fn show(vma: *mut bindings::vm_area_struct, page: &ShownPage) -> Result<c_int> {
    // SAFETY: The caller promises it.
    let (start, length) = unsafe {
        let vma = VmaRef::from_raw(vma);
        (vma.start(), vma.end().saturating_sub(vma.start()))
    };
    if length != PAGE_SIZE {
        return Err(EINVAL);
    }
    // SAFETY: The whole mapping, locked for writing as it is being made.
    unsafe { bindings::zap_vma_range(vma, start, length) };
    // SAFETY: As above. What the driver kept here was for its `close`, which has run.
    unsafe { (*vma).vm_private_data = null_mut() };
    // CAST: bit masks.
    let write = (bindings::VM_WRITE | bindings::VM_MAYWRITE) as c_ulong;
    // SAFETY: As above.
    unsafe { extra::cgpu_shim_vm_flags_clear(vma, write) };
    // SAFETY: There is no precondition.
    let protection = unsafe { bindings::vm_get_page_prot(bindings::VM_READ | bindings::VM_SHARED) };
    // SAFETY: As above.
    unsafe { (*vma).vm_page_prot = protection };
    // SAFETY: As above; the mapping takes a reference of the page.
    to_result(unsafe { bindings::vm_insert_page(vma, start, page.as_ptr()) })?;
    Ok(0)
}

unsafe extern "C" fn close<E: Endpoint>(vma: *mut bindings::vm_area_struct) {
    // SAFETY: Called through operations of ours, which are the start of a table.
    let table = unsafe { &*(*vma).vm_ops.cast::<Table>() };
    // SAFETY: The mapping is being closed under its lock.
    let range = Mapping::of(unsafe { VmaRef::from_raw(vma) });
    // SAFETY: As above.
    let file = unsafe { (*vma).vm_file };
    // SAFETY: The driver's operations are valid as long as the file is open.
    if let Some(close) = unsafe { (*table.original).close } {
        // SAFETY: The driver made the mapping, or was told of it by `open`.
        unsafe { close(vma) };
    }
    // SAFETY: The current task is valid.
    let ended = unsafe { (*bindings::get_current()).mm }.is_null();
    let how = match ended {
        true => Unmapped::ByExit,
        false => Unmapped::ByProgram,
    };
    // SAFETY: The file is held by the mapping until after this, and is a proxied one of `E`, since
    // a session of its kind had this table made.
    let session = unsafe { session::<E>(file) };
    E::unmapped(session.file(), &range, how);
}
