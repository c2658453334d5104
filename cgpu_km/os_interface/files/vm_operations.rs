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
//! | `access` | none: the driver's reads and writes registers for ptrace and `/proc/PID/mem` |
//! | `close` | the driver's, then [`Endpoint::unmapped`] |
//! | `fault` | of a file that shows objects: the driver's, unless what it shows has ended |
//! | | of registers: past the [gate], the same, and [a doorbell](gate::doorbell) |
//! | `may_split` | of registers: never, since the driver knows of whole mappings only |
//!
//! The others are the driver's own functions, which look at the mapping's file, at `vm_pgoff` and
//! at `vm_private_data`, and at none of its operations. (One function of UVM compares them,
//! `uvm_vma_is_managed()`, for HMM alone, which is off in a proxied address space: see
//! `proxy/uvm.rs` on UVM_INITIALIZE.)
//!
//! The copy is a [`VmTable`] of the backing file of the file that was mapped.
//!
//! # Locks
//!
//! [`Endpoint::mapped`] and [`Endpoint::unmapped`] run under the program's `mmap_lock`, mostly for
//! writing, and the first of them under [`Gate::state`](gate) too: they must not touch the
//! program's memory, nor wait for anybody who does.

use super::{
    mapping::{Pages, ProgramMapping, Shown, Unmapped},
    session::{session, Endpoint, FileSession},
    settle::settle_later,
};
use crate::os_interface::{
    base::{
        creds, extra,
        vma::{FaultHandler, LockedVma, NewVma, PageFault},
    },
    driver::vm_tables::VmTable,
    gate,
};
use core::ptr::NonNull;
use kernel::{bindings, prelude::*};

/// The treatment of pages of registers that the driver puts into a mapping as it makes it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum AtOnce {
    /// They stay. The gate is open and is not moved meanwhile, and whoever moves it later finds the
    /// mapping.
    Kept,
    /// They are taken out, and come with faults.
    TakenOut,
}

/// A mapping that the driver has just made, of a file of ours.
struct MadeMapping<'a, E: Endpoint> {
    session: &'a FileSession<E>,
    file: NonNull<bindings::file>,
    vma: NewVma<'a>,
    /// The driver's operations of it.
    original: *const bindings::vm_operations_struct,
}

/// Has the driver make a mapping and puts our operations in front: what `mmap` returns.
///
/// # Safety
///
/// The mapping is of `file`, which is open, and whose session is `session`.
pub(super) unsafe fn make<E: Endpoint>(
    session: &FileSession<E>,
    file: NonNull<bindings::file>,
    vma: NewVma<'_>,
    registers: AtOnce,
) -> Result<c_int> {
    // SAFETY: The contract of this function is the same.
    let make = || unsafe { make_now(session, file, vma, registers) };
    if E::shows_objects(&session.file) {
        // As the driver's `mmap` of a file that was not prepared (nv-mmap.c, nvidia_mmap_helper).
        session.handle.while_shown(make).unwrap_or(Err(EINVAL))
    } else {
        make()
    }
}

/// The same, for what the file shows now.
///
/// # Safety
///
/// As for [`make`].
unsafe fn make_now<E: Endpoint>(
    session: &FileSession<E>,
    file: NonNull<bindings::file>,
    vma: NewVma<'_>,
    registers: AtOnce,
) -> Result<c_int> {
    E::may_map(&session.file)?;
    let real = session.backing.as_ptr();
    // The driver gets our own file, as it does in ioctls: it keeps its state there.
    // SAFETY: A new mapping, as `mmap` is handed, of a file that the driver has opened.
    let mmap = || unsafe { extra::cgpu_shim_driver_mmap(real, file.as_ptr(), vma.as_ptr()) };
    let result = creds::reduced_as(session.opener.as_ref(), mmap)?;
    if result != 0 {
        E::refused(&session.file);
        // Not always an errno: `nvidia_mmap_helper()` returns a status for a GPU that was lost.
        return Ok(result);
    }
    let original = vma.operations();
    if original.is_null() {
        return Ok(0);
    }
    let made = MadeMapping {
        session,
        file,
        vma,
        original,
    };
    // The driver may have changed the flags.
    let mapping = ProgramMapping::of(*vma);
    let shown = E::mapped(&session.file, &mapping, &Pages(vma));
    let put_in_place = match shown {
        Ok(Shown::AsMade) => made.cover(false),
        Ok(Shown::Later) => made.settle(mapping),
        Ok(Shown::Gated) => made.gate(registers),
        Ok(Shown::Instead(_)) => Err(EINVAL),
        Err(e) => Err(e),
    };
    if put_in_place.is_ok() {
        return Ok(0);
    }
    made.undo();
    match shown {
        Ok(Shown::Instead(page)) => vma.show(page.page()).map(|()| 0),
        Ok(_) => {
            E::unmapped(&session.file, &mapping, Unmapped::ByProgram);
            put_in_place.map(|()| 0)
        }
        Err(e) => Err(e),
    }
}

impl<E: Endpoint> MadeMapping<'_, E> {
    /// Puts operations of ours in front of the driver's.
    fn cover(&self, gated: bool) -> Result {
        let shows = E::shows_objects(&self.session.file);
        let fault = if gated {
            gated_fault::<E> as FaultHandler
        } else {
            shown_fault::<E>
        };
        let ours = extra::cgpu_covering {
            close: Some(close::<E>),
            fault: (gated || shows).then_some(fault),
            shows,
            gated,
        };
        let tables = self.session.backing.tables();
        // SAFETY: The driver has just given the mapping these operations.
        let table = unsafe { tables.replacing(self.original, gated, &ours) }?;
        // SAFETY: The session lives as long as the file, which the mapping holds, and has the
        // backing file with its tables.
        unsafe { self.vma.set_operations(table.operations()) };
        Ok(())
    }

    /// As [`Self::cover`], and has [`Endpoint::settle`] called before the program goes on.
    fn settle(&self, mapping: ProgramMapping) -> Result {
        self.cover(false)?;
        // SAFETY: The file is being mapped, so it is open, and its session is one of `E`.
        unsafe { settle_later::<E>(self.file, mapping) }
    }

    /// As [`Self::cover`], behind the file's gate.
    fn gate(&self, registers: AtOnce) -> Result {
        let gate = E::gate(&self.session.file).ok_or(EINVAL)?;
        // SAFETY: The file is open, and its `release` calls `leave` first.
        unsafe { self.session.mappings.enter(gate, self.file) }?;
        self.cover(true)?;
        match (registers, E::doorbell(&self.session.file)) {
            // SAFETY: A mapping of page frames, and `registers` has seen to it that its entries
            // have no access.
            (AtOnce::Kept, Some(doorbell)) => unsafe { doorbell.show(*self.vma) },
            (AtOnce::Kept, None) => {}
            (AtOnce::TakenOut, _) => self.vma.zap_frames(),
        }
        Ok(())
    }

    /// Undoes the driver's work. (The kernel takes the pages out of a mapping that failed, but does
    /// not call `close` for it.)
    fn undo(&self) {
        // SAFETY: They are the driver's operations, which are valid while its file is mapped, and
        // the driver has just made this mapping.
        unsafe { extra::cgpu_shim_close_mapping(self.original, self.vma.as_ptr()) };
        // SAFETY: Static operations that do nothing.
        unsafe { self.vma.set_operations(extra::cgpu_shim_no_operations()) };
    }
}

/// A page of a gated mapping is not there.
unsafe extern "C" fn gated_fault<E: Endpoint>(
    vmf: *mut bindings::vm_fault,
) -> bindings::vm_fault_t {
    // SAFETY: The argument of a handler that runs.
    let fault = unsafe { PageFault::new(vmf) };
    // SAFETY: A session of `E` had the mapping's table made, so its file is a proxied one of `E`.
    let session = unsafe { session::<E>(fault.file()) };
    match session.mappings.gated() {
        // SAFETY: The handler is ours around the driver's for this mapping; nothing is used
        // afterwards.
        Some(file) => unsafe {
            gate::fault(file, || E::rang(&session.file), shown_fault::<E>, fault)
        },
        // Another thread is just putting it there: the access is tried again.
        None => bindings::vm_fault_reason_VM_FAULT_NOPAGE,
    }
}

/// The driver's handler for a fault in a mapping of a file that shows objects, as long as it does.
/// For registers called under the gate's lock.
unsafe extern "C" fn shown_fault<E: Endpoint>(
    vmf: *mut bindings::vm_fault,
) -> bindings::vm_fault_t {
    // SAFETY: The argument of a handler that runs.
    let fault = unsafe { PageFault::new(vmf) };
    // SAFETY: This handler stands in tables of ours alone.
    let table = unsafe { VmTable::of(fault.vma()) };
    // SAFETY: A session of `E` had the mapping's table made, so its file is a proxied one of `E`.
    let session = unsafe { session::<E>(fault.file()) };
    let handler = if table.is_gated() && E::doorbell(&session.file).is_some() {
        Some(doorbell_fault::<E> as FaultHandler)
    } else {
        table.original_fault()
    };
    let served = handler.and_then(|handler| {
        session.handle.while_shown(|| {
            // SAFETY: The handler is the driver's for this mapping, or ours around it.
            unsafe { fault.serve(handler) }
        })
    });
    served.unwrap_or(bindings::vm_fault_reason_VM_FAULT_SIGBUS)
}

/// The driver's handler for a fault in a mapping that shows a doorbell of ours, and that doorbell.
/// Called under the gate's lock.
unsafe extern "C" fn doorbell_fault<E: Endpoint>(
    vmf: *mut bindings::vm_fault,
) -> bindings::vm_fault_t {
    // SAFETY: The argument of a handler that runs.
    let fault = unsafe { PageFault::new(vmf) };
    let vma = fault.vma();
    // SAFETY: `shown_fault` chose this handler, in a mapping of a proxied file of `E`.
    let session = unsafe { session::<E>(fault.file()) };
    // SAFETY: `shown_fault` chose this handler, in a mapping with a table of ours.
    let handler = unsafe { VmTable::of(vma) }.original_fault();
    let (Some(doorbell), Some(handler)) = (E::doorbell(&session.file), handler) else {
        return bindings::vm_fault_reason_VM_FAULT_SIGBUS;
    };
    // SAFETY: Under the gate's lock, faults in its mappings are served one at a time; the kernel
    // changes the protection under the write lock only.
    unsafe { vma.take_access() };
    // SAFETY: It is the driver's, for this mapping.
    let result = unsafe { fault.serve(handler) };
    // SAFETY: A mapping of page frames. The entries that the driver has made have no access; the
    // others are ours already.
    unsafe { doorbell.show(vma) };
    // SAFETY: The gate's lock is still held.
    unsafe { vma.restore_access() };
    result
}

unsafe extern "C" fn close<E: Endpoint>(vma: *mut bindings::vm_area_struct) {
    // SAFETY: The kernel has locked a mapping that it closes.
    let vma = unsafe { LockedVma::new(vma) };
    // SAFETY: This operation stands in tables of ours alone.
    let table = unsafe { VmTable::of(vma) };
    let range = ProgramMapping::of(vma);
    let file = vma.seen().file;
    // SAFETY: The driver made the mapping, or was told of it by `open`.
    unsafe { table.close_original(vma) };
    // SAFETY: The current task is valid.
    let ended = unsafe { extra::cgpu_shim_memory() }.is_null();
    let how = if ended {
        Unmapped::ByExit
    } else {
        Unmapped::ByProgram
    };
    // SAFETY: The mapping holds the file until after this. A session of `E` had its table made, so
    // the file is a proxied one of `E`.
    let session = unsafe { session::<E>(file) };
    E::unmapped(&session.file, &range, how);
}
