// SPDX-License-Identifier: GPL-2.0
//! The file operations of a tenant's nodes: from [`os_interface`] to the proxied call and the
//! registry.

use super::{
    ioctl,
    mapped,
    settle,
    unmapped, //
};
use crate::{
    os_interface::{
        self,
        BackingFile,
        Caller,
        CopiedBy,
        Doorbell,
        Gate,
        LateEnds,
        MustWait,
        OpenFile,
        Pages,
        ProgramMapping,
        Shown,
        TooManyCopies,
        Unmapped,
        UserAddr, //
    },
    policy::sched::InstanceId,
    registry::{
        TenantFile,
        TenantNode, //
    }, //
};
use kernel::{
    prelude::*,
    sync::Arc, //
};

impl os_interface::Endpoint for TenantNode {
    type File = TenantFile;

    fn backing(&self) -> Result<Arc<BackingFile>> {
        Self::backing(self)
    }

    fn may_open(&self) -> Result {
        self.tenant().wait_for_refusals()
    }

    fn open(self: &Arc<Self>, handle: &OpenFile) -> Result<TenantFile> {
        Self::open(self, handle)
    }

    fn ioctl(file: &TenantFile, call: &mut Caller<'_>, cmd: u32, arg: UserAddr) -> Result<i32> {
        ioctl(file, call, cmd, arg)
    }

    fn shows_objects(file: &TenantFile) -> bool {
        file.shows_objects()
    }

    fn gate(file: &TenantFile) -> Option<&Arc<Gate>> {
        match file.endpoint() {
            Self::Gpu(instance) => Some(instance.gate()),
            Self::Control(_) | Self::Uvm(_) => None,
        }
    }

    fn doorbell(file: &TenantFile) -> Option<&Doorbell> {
        file.doorbell()
    }

    fn late_ends(file: &TenantFile) -> &LateEnds {
        file.tenant().late_ends()
    }

    fn waits_at_end(file: &TenantFile) -> bool {
        file.waits_at_end()
    }

    fn may_map(file: &TenantFile) -> Result {
        // A wait would keep out whoever looks at the process. UVM writes no line.
        if file.shows_objects() && file.tenant().waits_for_refusals() {
            return Err(EAGAIN);
        }
        Ok(())
    }

    /// UVM's driver keeps one mark of whether a pool is mapped, and one wrapper of a mapping, for
    /// all processes that use a file (`uvm_mem_map_cpu_user()`, uvm_mem.c; uvm.c). It refuses all
    /// but one itself, unless the file is shared as `proxy::uvm` has it.
    fn maps_in_one(file: &TenantFile) -> bool {
        matches!(file.endpoint(), Self::Uvm(_))
    }

    fn refused(file: &TenantFile) {
        file.tenant().note_refusal();
    }

    fn mapped<'a>(
        file: &'a TenantFile,
        made: &ProgramMapping,
        pages: &Pages<'_>,
    ) -> Result<Shown<'a>> {
        match file.endpoint() {
            Self::Gpu(instance) => {
                // While the GPU sleeps there are no pages, and it is not known what they will be.
                // A doorbell through BAR1 lies among memory there. Of all that the driver shows
                // through BAR1, it says of a doorbell alone that it is not cached (`cachingType` in
                // memMap_IMPL(), mapping_cpu.c), whatever the program asked for.
                let facts = instance.gpu().facts();
                let gated = pages.are_uncached() || pages.any(|frame| facts.is_register(frame));
                if gated || pages.first().is_none() {
                    Ok(Shown::Gated)
                } else {
                    Ok(Shown::AsMade)
                }
            }
            Self::Control(_) => Ok(match pages.first() {
                Some(frame) => match file.shown_instead(frame)? {
                    Some(page) => Shown::Instead(page),
                    None => Shown::AsMade,
                },
                None => Shown::AsMade,
            }),
            Self::Uvm(tenant) => mapped(file, tenant, made, pages),
        }
    }

    fn enter_registers(file: &TenantFile) -> Result {
        // As the driver's mmap where a page cannot be put in (nv-mmap.c, nv_remap_page_range).
        file.enter_registers().map_err(|_| EAGAIN)
    }

    fn copy_registers(file: &TenantFile, how: CopiedBy) -> Result<(), TooManyCopies> {
        file.copy_registers(how)
    }

    fn leave_registers(file: &TenantFile) {
        file.leave_registers();
    }

    fn rang(file: &TenantFile) {
        if let Self::Gpu(instance) = file.endpoint() {
            let conductor = instance.gpu().conductor();
            conductor.rang(InstanceId(instance.id()));
        }
    }

    fn settle(
        file: &TenantFile,
        call: &mut Caller<'_>,
        made: &ProgramMapping,
        is_late: impl Fn() -> bool,
    ) {
        settle(file, call, made, is_late);
    }

    fn unmapped(file: &TenantFile, gone: &ProgramMapping, how: Unmapped) {
        unmapped(file, gone, how);
    }

    fn closing(file: &TenantFile) {
        file.closing();
    }

    fn try_closing(file: &TenantFile) -> Result<(), MustWait> {
        file.try_closing()
    }

    fn release(file: TenantFile) {
        file.close();
    }
}
