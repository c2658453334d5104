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
//! | `open` | of registers: the driver's, then [`Endpoint::copy_registers`] |
//! | `close` | the driver's, then [`Endpoint::unmapped`] |
//! | `fault` | of a file that shows objects: the driver's, unless what it shows has ended |
//! | | of registers: past the [gate], the same, and [a doorbell](gate::doorbell) |
//! | `may_split` | of registers: never, since the driver knows of whole mappings only |
//! | `mremap` | of a file that shows objects: not where pages are counted (`driver/shim.c`) |
//!
//! All other operations are the driver's own functions. They look at the mapping's file, at
//! `vm_pgoff` and at `vm_private_data`, and not at its operations. (One function of UVM compares
//! these, `uvm_vma_is_managed()`. It is for HMM alone, which is off in a proxied address space: see
//! `proxy/uvm.rs` on UVM_INITIALIZE.)
//!
//! The copy is a [`VmTable`] of the backing file of the file that was mapped.
//!
//! # A child's mapping beyond the limit
//!
//! `open` cannot fail. So a mapping of registers beyond the limit gets operations by which every
//! access fails, and fork leaves its pages out. It counts all the same, because the thread that
//! shuts the gate looks at it. No further child gets a copy of its original, so there are at most
//! twice as many mappings as the limit allows.
//!
//! # Locks
//!
//! [`Endpoint::mapped`] and [`Endpoint::unmapped`] run under the program's `mmap_lock`, mostly for
//! writing: they must not touch the program's memory, nor wait for anybody who does.

use super::{
    mapping::{
        CopiedBy,
        Pages,
        ProgramMapping,
        Shown,
        Unmapped, //
    },
    session::{
        session,
        Endpoint,
        FileSession, //
    },
    settle::settle_later, //
};
use crate::os_interface::{
    base::{
        creds,
        extra,
        vma::{
            CopiedVma,
            FaultHandler,
            Holds,
            LockedVma,
            NewVma,
            PageFault, //
        }, //
    },
    driver::vm_tables::{
        Guard,
        VmTable, //
    },
    gate::{
        self,
        GatedFile, //
    }, //
};
use core::ptr::NonNull;
use kernel::{
    bindings,
    prelude::*,
    time::{
        Instant,
        Monotonic, //
    }, //
};

/// A mapping that the driver has just made, of a file of ours.
struct MadeMapping<'a, E: Endpoint> {
    session: &'a FileSession<E>,
    file: NonNull<bindings::file>,
    vma: NewVma<'a>,
    /// The driver's operations of it.
    original: *const bindings::vm_operations_struct,
    /// The time at which the driver had made it.
    since: Instant<Monotonic>,
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
) -> Result<c_int> {
    // SAFETY: The mapping is of `file`, which is open, and whose session is `session`.
    let make = || unsafe { make_now(session, file, vma) };
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
) -> Result<c_int> {
    E::may_map(&session.file)?;
    if E::maps_in_one(&session.file) {
        let memory = NonNull::new(vma.seen().memory).ok_or(EINVAL)?;
        // SAFETY: A mapping's address space, which is locked.
        if !unsafe { session.first.is(memory) } {
            // CAST: A small number.
            return Err(Error::from_errno(-(bindings::EOPNOTSUPP as c_int)));
        }
    }
    let real = session.backing.as_ptr();
    // The driver gets our own file, as it does in ioctls: it keeps its state there.
    // SAFETY: A new mapping, as `mmap` is handed, of a file that the driver has opened.
    let mmap = || unsafe { extra::cgpu_shim_driver_mmap(real, file.as_ptr(), vma.as_ptr()) };
    let result = creds::reduced_as(session.opener.as_ref(), mmap)?;
    let since = Instant::now();
    if result != 0 {
        E::refused(&session.file);
        // Not always an errno: `nvidia_mmap_helper()` returns a status for a GPU that was lost.
        return Ok(result);
    }
    let original = vma.operations();
    if original.is_null() {
        return Ok(0);
    }
    vma.end_tracking();
    let made = MadeMapping {
        session,
        file,
        vma,
        original,
        since,
    };
    // The driver may have changed the flags.
    let mapping = ProgramMapping::of(*vma);
    let shown = E::mapped(&session.file, &mapping, &Pages(vma));
    let put_in_place = match shown {
        Ok(Shown::AsMade) => made.show(),
        Ok(Shown::Later) => made.settle(mapping),
        Ok(Shown::Gated) => made.gate(),
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
    fn cover(&self, guard: Guard) -> Result {
        let table = self.table(guard)?;
        // SAFETY: The session lives as long as the file, which the mapping holds, and has the
        // backing file with its tables.
        unsafe { self.vma.set_operations(table.operations()) };
        Ok(())
    }

    /// Those operations.
    fn table(&self, guard: Guard) -> Result<&VmTable> {
        let shows = E::shows_objects(&self.session.file);
        let fault = match guard {
            Guard::Nothing => shown_fault::<E> as FaultHandler,
            Guard::Gate => gated_fault::<E>,
            Guard::Wall => no_fault,
        };
        let gated = guard != Guard::Nothing;
        let ours = extra::cgpu_covering {
            open: gated.then_some(open::<E>),
            close: Some(close::<E>),
            fault: (gated || shows).then_some(fault),
            shows,
            gated,
        };
        let tables = self.session.backing.tables();
        // SAFETY: The driver has just given the mapping these operations.
        unsafe { tables.replacing(self.original, guard, &ours) }
    }

    /// As [`Self::cover`], with the driver's pages.
    fn show(&self) -> Result {
        self.cover(Guard::Nothing)?;
        if E::shows_objects(&self.session.file) {
            self.vma.give_access(self.vma.start(), self.vma.end());
        }
        Ok(())
    }

    /// As [`Self::cover`], and has [`Endpoint::settle`] called before the program goes on.
    fn settle(&self, mapping: ProgramMapping) -> Result {
        self.cover(Guard::Nothing)?;
        // SAFETY: The file is being mapped, so it is open, and its session is one of `E`.
        unsafe { settle_later::<E>(self.file, mapping, self.since) }
    }

    /// As [`Self::cover`], behind the file's gate.
    fn gate(&self) -> Result {
        let gated = self.session.gated.as_ref().ok_or(EINVAL);
        let entered = gated.and_then(|gated| self.enter(gated).map(|()| gated));
        // SAFETY: A mapping of page frames that the kernel has entered, whose pages the driver has
        // put in without access: see `registers`.
        let stays = entered.is_ok_and(|gated| unsafe {
            let doorbell = E::doorbell(&self.session.file);
            gated.gate().give_access(*self.vma, doorbell)
        });
        if !stays {
            self.vma.zap_frames();
        }
        entered.map(|_| ())
    }

    /// Counts it as a mapping of registers, and lets the thread that shuts the gate find it.
    fn enter(&self, gated: &GatedFile) -> Result {
        // For a child's copy, which cannot wait for memory.
        self.table(Guard::Wall)?;
        E::enter_registers(&self.session.file)?;
        let entered = gated.enter().and_then(|()| {
            let covered = self.cover(Guard::Gate);
            covered.inspect_err(|_| gated.leave())
        });
        entered.inspect_err(|_| E::leave_registers(&self.session.file))
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
    let Some(fault) = (unsafe { PageFault::new(vmf) }) else {
        return bindings::vm_fault_reason_VM_FAULT_SIGBUS;
    };
    // SAFETY: A session of `E` had the mapping's table made, so its file is a proxied one of `E`.
    let session = unsafe { session::<E>(fault.file()) };
    let Some(file) = &session.gated else {
        return bindings::vm_fault_reason_VM_FAULT_SIGBUS;
    };
    let pass = || {
        let served = session.handle.while_shown(|| {
            // SAFETY: This handler stands in tables of ours alone, of files of `E`. Such faults of
            // one file are served one at a time here.
            unsafe { show_registers::<E>(session, file, fault) }
        });
        served.unwrap_or(bindings::vm_fault_reason_VM_FAULT_SIGBUS)
    };
    // SAFETY: Nothing is used afterwards.
    unsafe { gate::fault(file, || E::rang(&session.file), pass, fault) }
}

/// Nobody can use the mapping.
unsafe extern "C" fn no_fault(_: *mut bindings::vm_fault) -> bindings::vm_fault_t {
    bindings::vm_fault_reason_VM_FAULT_SIGBUS
}

/// Has the driver put the pages of registers in that the gate has let pass.
///
/// # Safety
///
/// The fault is in a gated mapping of the file, whose session this is. Its faults are served one at
/// a time.
unsafe fn show_registers<E: Endpoint>(
    session: &FileSession<E>,
    file: &GatedFile,
    fault: PageFault<'_>,
) -> bindings::vm_fault_t {
    let vma = fault.vma();
    // SAFETY: It has a table of ours, as this function's contract says.
    let table = unsafe { VmTable::of(vma) };
    // SAFETY: One fault at a time is here; the kernel changes the protection under the write lock
    // only.
    unsafe { vma.take_access(Holds::Device) };
    // SAFETY: They are the driver's, for this mapping.
    let result = unsafe { fault.serve(table.original()) };
    let doorbell = E::doorbell(&session.file);
    // SAFETY: A mapping of page frames. The entries that the driver has made have no access; the
    // others have theirs already.
    if !unsafe { file.gate().give_access(vma, doorbell) } {
        // This fault has put pages into this mapping alone. To look for others would hold up the
        // thread that moves the gate.
        vma.zap_frames();
    }
    // SAFETY: One fault at a time is here, as for `take_access`. No entry without access is left,
    // which the kernel would take for one to which it may give some (do_numa_page(), mm/memory.c).
    unsafe { vma.restore_access() };
    result
}

/// The driver's handler for a fault in a mapping of a file that shows objects, as long as it does.
unsafe extern "C" fn shown_fault<E: Endpoint>(
    vmf: *mut bindings::vm_fault,
) -> bindings::vm_fault_t {
    // SAFETY: The argument of a handler that runs.
    let Some(fault) = (unsafe { PageFault::new(vmf) }) else {
        return bindings::vm_fault_reason_VM_FAULT_SIGBUS;
    };
    // SAFETY: This handler stands in tables of ours alone.
    let table = unsafe { VmTable::of(fault.vma()) };
    // SAFETY: A session of `E` had the mapping's table made, so its file is a proxied one of `E`.
    let session = unsafe { session::<E>(fault.file()) };
    let served = session.handle.while_shown(|| {
        // SAFETY: They are the driver's, for this mapping.
        unsafe { fault.serve(table.original()) }
    });
    served.unwrap_or(bindings::vm_fault_reason_VM_FAULT_SIGBUS)
}

/// A gated mapping was copied.
unsafe extern "C" fn open<E: Endpoint>(vma: *mut bindings::vm_area_struct) {
    // SAFETY: The argument of an `open` that runs.
    let vma = unsafe { CopiedVma::new(vma) };
    // SAFETY: This operation stands in tables of ours alone.
    let table = unsafe { VmTable::of(*vma) };
    // SAFETY: The kernel has copied it.
    unsafe { table.open_original(*vma) };
    // SAFETY: A session of `E` had the mapping's table made, so its file is a proxied one of `E`.
    let session = unsafe { session::<E>(vma.seen().file) };
    if let Some(gated) = &session.gated {
        gated.copied();
    }
    let how = if vma.is_for_child() {
        CopiedBy::Fork
    } else {
        CopiedBy::Move
    };
    if E::copy_registers(&session.file, how).is_ok() {
        return;
    }
    // It was made before the mapping was.
    if let Some(wall) = session.backing.tables().find(table.original(), Guard::Wall) {
        // SAFETY: A mapping of page frames for a child; the session's backing file has the table.
        unsafe { vma.spoil(wall.operations()) };
    }
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
    if table.guard() != Guard::Nothing {
        if let Some(gated) = &session.gated {
            gated.leave();
        }
        E::leave_registers(&session.file);
    }
    E::unmapped(&session.file, &range, how);
}
