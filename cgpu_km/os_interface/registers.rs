// SPDX-License-Identifier: GPL-2.0
//! Mappings of files that may show registers: made when the kernel has entered them.
//!
//! Who shuts a [gate](super::gate) takes the pages out of all mappings of its files, which the kernel finds by the
//! file. In the `mmap` operation a mapping cannot be found yet: a page that the driver puts in there would stay,
//! if the gate is shut before the kernel has entered the mapping, for as long as the program keeps the task
//! from going on. So pages would have to be taken out again each time, and the first store of a program that is alone
//! would fault, which both cost more than all else here (docs/performance.md).
//!
//! These files have `mmap_prepare` instead, which is asked before there is a mapping, and the mapping has the operation
//! `mapped`, which the kernel calls when it has entered it and nobody could use it yet. There the driver
//! makes what it always makes in `mmap`:
//!
//! | gate | pages of registers |
//! |---|---|
//! | open | stay. It is held open until they are there; who shuts it afterwards finds them |
//! | open, and [a doorbell of ours](super::doorbell) is shown | are put in without access, and get it with the frames of that |
//! | not open | are put in without access, and taken out: the processor never lets one through |
//!
//! # What the driver may do to a mapping that is entered
//!
//! `mmap_lock` and the mapping are locked for writing, so its flags, protection and pages may be changed, as in
//! `mmap`. Two things may not, since the kernel keeps the mapping by them. Where it begins in the file:
//! `remap_pfn_range()` changes that of private mappings, which are refused here; the driver makes sense of shared ones
//! only. And whether it counts as writable: the driver takes that from a mapping of registers for
//! reading, so the count is put right.

use super::{
    extra,
    mapping::{make, AtOnce, Mapping, VmOperations},
    session::{session, Endpoint},
};
use core::marker::PhantomData;
use kernel::{bindings, error::from_result, mm::virt::VmaRef, prelude::*};

/// The most that a mapping of a doorbell has, bytes: `NVC361_NV_USERMODE__SIZE` (clc361.h), as all later classes.
/// Larger ones, which would hold a gate up for long, are made as if it were not open.
const DOORBELL: u64 = 0x10000;

/// The operations of a mapping that the driver has not made yet.
struct Entered<E>(PhantomData<E>);

impl<E: Endpoint> Entered<E> {
    const OPERATIONS: &'static VmOperations = &VmOperations(bindings::vm_operations_struct {
        mapped: Some(mapped::<E>),
        ..pin_init::zeroed()
    });
}

/// The `mmap_prepare` operation.
///
/// # Errors
///
/// `EINVAL` for a private mapping.
///
/// # Safety
///
/// `wanted` is the argument of that operation, of a proxied file of `E`.
pub(super) unsafe fn prepare<E: Endpoint>(wanted: *mut bindings::vm_area_desc) -> Result {
    // SAFETY: The caller promises it.
    if !unsafe { extra::cgpu_shim_is_shared(wanted) } {
        return Err(EINVAL);
    }
    // The driver sets this too, but when a neighbour could have swallowed the mapping.
    // SAFETY: As above.
    unsafe { extra::cgpu_shim_never_merge(wanted) };
    // SAFETY: As above.
    unsafe { (*wanted).vm_ops = &raw const Entered::<E>::OPERATIONS.0 };
    Ok(())
}

/// The kernel has entered a mapping. An error takes it away again.
unsafe extern "C" fn mapped<E: Endpoint>(
    start: c_ulong,
    _end: c_ulong,
    _page: c_ulong,
    file: *const bindings::file,
    private: *mut *mut c_void,
) -> c_int {
    from_result(|| {
        // SAFETY: The current task is making the mapping, and has the lock of its address space.
        let vma = unsafe { bindings::find_vma((*bindings::get_current()).mm, start) };
        let filp = file.cast_mut();
        // SAFETY: It is a mapping of that address space, if there is one; nobody takes it away meanwhile.
        if vma.is_null() || unsafe { (*vma).vm_file != filp } {
            return Err(EINVAL);
        }
        // SAFETY: As above, and these operations are given to files of `E` alone.
        let result = unsafe { enter::<E>(filp, vma) };
        // SAFETY: The kernel gives the mapping what is there afterwards.
        unsafe { *private = (*vma).vm_private_data };
        result
    })
}

/// # Safety
///
/// The mapping is of `filp`, a proxied file of `E`, entered and locked for writing.
unsafe fn enter<E: Endpoint>(
    filp: *mut bindings::file,
    vma: *mut bindings::vm_area_struct,
) -> Result<c_int> {
    // SAFETY: The caller promises it.
    let session = unsafe { session::<E>(filp) };
    let gate = E::gate(session.file()).ok_or(EINVAL)?;
    // SAFETY: As above.
    let before = Mapping::of(unsafe { VmaRef::from_raw(vma) });
    let make = |registers| {
        // SAFETY: As above.
        unsafe { make(session, filp, vma, registers) }
    };
    let without_access = |registers| {
        // SAFETY: As above.
        unsafe { without_access(vma, || make(registers)) }
    };
    let result = match before.length <= DOORBELL {
        true => gate.hold(|open| match open {
            true if E::doorbell(session.file()).is_some() => without_access(AtOnce::Kept),
            true => make(AtOnce::Kept),
            false => without_access(AtOnce::TakenOut),
        }),
        false => without_access(AtOnce::TakenOut),
    };
    // SAFETY: As above.
    let after = Mapping::of(unsafe { VmaRef::from_raw(vma) });
    if before.may_be_writable && !after.may_be_writable {
        // SAFETY: The mapping counted as writable when it was entered, and will not when it goes.
        unsafe { extra::cgpu_shim_unmap_writable((*vma).vm_file) };
    }
    result
}

/// Runs `make`, whose pages nobody can use until this returns, but for those to which it gives access itself.
///
/// # Safety
///
/// The mapping is entered and locked for writing, and has no page yet.
unsafe fn without_access(
    vma: *mut bindings::vm_area_struct,
    make: impl FnOnce() -> Result<c_int>,
) -> Result<c_int> {
    unsafe extern "C" fn give(
        entry: *mut bindings::pte_t,
        address: c_ulong,
        vma: *mut c_void,
    ) -> c_int {
        // SAFETY: `apply_to_page_range` calls this with an entry of the mapping, which it has locked.
        unsafe { extra::cgpu_shim_give_access(vma.cast(), address, entry) };
        0
    }
    // SAFETY: Flags without a right; there is no precondition.
    let none = unsafe { bindings::vm_get_page_prot(0) };
    // SAFETY: The caller promises that the mapping may be changed; all of the following.
    unsafe { (*vma).vm_page_prot = none };
    let result = make();
    // SAFETY: As above.
    unsafe { extra::cgpu_shim_restore_protection(vma) };
    // SAFETY: As above.
    let (mm, start, end) = unsafe {
        (
            (*vma).vm_mm,
            VmaRef::from_raw(vma).start(),
            VmaRef::from_raw(vma).end(),
        )
    };
    // Its errors are those of tables that could not be made, which hold no page then.
    // SAFETY: As above; `give` takes the mapping for what it is.
    unsafe {
        bindings::apply_to_page_range(mm, start, end.saturating_sub(start), Some(give), vma.cast())
    };
    result
}
