// SPDX-License-Identifier: GPL-2.0
//! Files that show objects to the processor, and their end.
//!
//! The driver prepares a file for `mmap` in `NV_ESC_RM_MAP_MEMORY`, and in `NV_ESC_RM_ALLOC_MEMORY`
//! of host memory. The file then shows the object until it is closed. The driver takes nothing out
//! of a program's memory when the object is freed or unmapped (`osUnmapPciMemoryUser()` in
//! src/nvidia/arch/nvalloc/unix/src/os.c is empty), and `mmap` of the file goes on working
//! (`nvidia_mmap_helper()` in kernel-open/nvidia/nv-mmap.c). By then the memory may be another
//! tenant's. For host memory the driver keeps a bare pointer to what it has freed (nv-usermap.c).
//!
//! So the accounting knows which file shows which object, from before the driver is asked. A call
//! that frees or unmaps an object ends the mappings of all files that show the object or anything
//! below it, and only then reaches the driver. If the driver refuses the call, they stay ended: no
//! program goes on using a mapping that it has asked to be ended.

use super::{
    call::{
        Call,
        Held,
        Host,
        Returned,
        Role, //
    },
    part::{
        FileAt,
        Part, //
    },
    stop::Stop, //
};
use crate::{
    nvidia::{
        status::NvStatus,
        wire::Field, //
    },
    policy::{
        FileId,
        FreeTicket, //
    }, //
};

/// The file that a descriptor stands for, which is to show an object. One that is another tenant's
/// is as good as none.
pub(super) fn held<C: Call>(call: &mut C, descriptor: i32) -> Result<C::Held, Stop> {
    let file = call.hold(descriptor);
    let file = file.filter(|file| file.session().role != Role::Uvm);
    // nv-usermap.c, nv_add_mapping_context_to_file: a descriptor that is none of the driver's.
    let file = file.ok_or(Stop::status(NvStatus::NV_ERR_INVALID_ARGUMENT))?;
    call.keep_in_reach(&file)?;
    Ok(file)
}

/// Forwards a struct whose field `at` names the file that is held.
pub(super) fn prepare<C: Call>(
    call: &mut C,
    code: u32,
    bytes: &mut [u8],
    file: &C::Held,
    at: Field<i32>,
) -> Returned {
    let file = FileAt {
        file,
        part: 0,
        offset: at.offset(),
    };
    call.forward_holding(code, &mut [Part::argument(bytes)], file)
}

/// Ends what the files show that show what is about to be freed or unmapped: first `file`, which
/// the accounting has just given, and then what it gives from `at` on.
pub(super) fn end_shown(
    call: &mut impl Host,
    ticket: &FreeTicket,
    file: Option<FileId>,
    at: &mut usize,
) {
    let mut next = file;
    while let Some(file) = next {
        call.end_mappings(file);
        next = call.accounting(|accounting| {
            accounting.end_shown(file);
            accounting.shown_below(ticket, at)
        });
    }
}
