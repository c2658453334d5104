// SPDX-License-Identifier: GPL-2.0
//! Mappings of files that show objects: made when the kernel has entered them.
//!
//! A task that [ends](crate::os_interface::calls::open_file::OpenFile::end_mappings) what a file
//! shows takes the pages out of its mappings, which the kernel finds by the file. The same holds
//! for registers: a task that shuts a [gate](crate::os_interface::gate) takes the pages out of all
//! mappings of its files. In the `mmap` operation a mapping cannot be found yet: a
//! page that the driver puts in there would stay, if the gate is shut before the kernel has entered
//! the mapping, for as long as the program keeps the task from going on. So pages would have to be
//! taken out again each time, and the first store of a program that is alone would fault, which
//! both cost more than all else here (docs/design/call-path.md).
//!
//! So the driver makes what it always makes in `mmap` a moment later (`shim.c`):
//!
//! * Kernels with the operation `mapped` (7.1 and later) call it when they have entered a mapping
//!   and nobody could use it yet. These files have `mmap_prepare`, which is asked before there is a
//!   mapping, and gives it that operation.
//! * On older kernels `mmap` leaves the mapping with nothing in it, and adds a task work, which
//!   runs before the task returns to the program. By then the kernel has entered the mapping. If
//!   the driver refuses, the mapping goes, and `mmap()` returns the driver's error. Another thread
//!   that guesses the address finds nothing there, and cannot split or move it. If it unmaps it,
//!   nothing is made.
//!
//! Nobody waits for such a task. Whoever ends or shuts something finds a mapping with nothing in
//! it. The task asks the driver afterwards, which refuses, or puts pages in behind the gate.
//!
//! The driver puts pages in that give nobody access, be it by an instruction or by a system call
//! that takes a reference of a page. Those of registers get it if the gate is open
//! ([`gate`](crate::os_interface::gate)), and are taken out otherwise. A page in whose place
//! [another one](super::mapping::Shown::Instead) is shown is taken out. All others get access when
//! the mapping is complete. What a failed `mmap` leaves is nobody's, and goes with the mapping.
//!
//! # What the driver may do to a mapping that is entered
//!
//! `mmap_lock` and the mapping are locked for writing, so its flags, protection and pages may be
//! changed, as in `mmap`. Two things may not, since the kernel keeps the mapping by them. Where it
//! begins in the file: `remap_pfn_range()` changes that of private mappings, which are refused
//! here; the driver makes sense of shared ones only. And whether it counts as writable: the driver
//! takes that from a mapping of registers for reading, so the count is put right.

use super::{
    mapping::ProgramMapping,
    session::{
        session,
        Endpoint, //
    },
    vm_operations::make, //
};
use crate::os_interface::base::{
    extra,
    vma::{
        Holds,
        NewVma, //
    }, //
};
use core::ptr::NonNull;
use kernel::{
    bindings,
    prelude::*, //
};

/// Has the driver make a mapping that the kernel has entered, so that it can be found by the file.
///
/// # Safety
///
/// The mapping is of `file`, an open proxied file of `E`.
pub(super) unsafe fn enter<E: Endpoint>(
    file: NonNull<bindings::file>,
    vma: NewVma<'_>,
) -> Result<c_int> {
    // SAFETY: The file is one of `E`, as this function's contract says.
    let session = unsafe { session::<E>(file.as_ptr()) };
    let before = ProgramMapping::of(*vma);
    let holds = if session.gated.is_some() {
        Holds::Device
    } else {
        Holds::Memory
    };
    // SAFETY: By the type's invariant nobody else uses the mapping.
    unsafe { vma.take_access(holds) };
    // SAFETY: The mapping is of this file, and the session is the file's.
    let result = unsafe { make(session, file, vma) };
    // SAFETY: By the type's invariant nobody else uses the mapping.
    unsafe { vma.restore_access() };
    let after = ProgramMapping::of(*vma);
    if before.may_be_writable && !after.may_be_writable {
        // SAFETY: The mapping counted as writable when it was entered, and will not when it goes.
        unsafe { extra::cgpu_shim_unmap_writable(file.as_ptr()) };
    }
    result
}
