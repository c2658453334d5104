// SPDX-License-Identifier: GPL-2.0
//! The file operations of a tenant's nodes: from [`os_interface`] to the proxied call and the
//! registry.

use super::{ioctl, mapped, settle, unmapped};
use crate::{
    os_interface::{
        self, BackingFile, Caller, Doorbell, Gate, Mapping, OpenFile, Pages, QueueKey, Shown,
        Unmapped, UserAddr,
    },
    policy::sched::InstanceId,
    registry::{Endpoint, File},
};
use kernel::{prelude::*, sync::Arc};

impl os_interface::Endpoint for Endpoint {
    type File = File;

    fn backing(&self) -> Result<Arc<BackingFile>> {
        Self::backing(self)
    }

    fn queue(&self) -> QueueKey {
        self.tenant().queue()
    }

    fn open(self: &Arc<Self>, handle: &OpenFile) -> Result<File> {
        Self::open(self, handle)
    }

    fn ioctl(file: &File, call: &mut Caller<'_>, cmd: u32, arg: UserAddr) -> Result<i32> {
        ioctl(file, call, cmd, arg)
    }

    fn gate(file: &File) -> Option<&Arc<Gate>> {
        match file.endpoint() {
            Self::Gpu(instance) => Some(instance.gate()),
            Self::Control(_) | Self::Uvm(_) => None,
        }
    }

    fn doorbell(file: &File) -> Option<&Doorbell> {
        file.doorbell()
    }

    fn mapped<'a>(file: &'a File, made: &Mapping, pages: &Pages<'_>) -> Result<Shown<'a>> {
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

    fn rang(file: &File) {
        if let Self::Gpu(instance) = file.endpoint() {
            let conductor = instance.gpu().conductor();
            conductor.rang(InstanceId(instance.id()));
        }
    }

    fn settle(file: &File, call: &mut Caller<'_>, made: &Mapping, late: bool) {
        settle(file, call, made, late);
    }

    fn unmapped(file: &File, gone: &Mapping, how: Unmapped) {
        unmapped(file, gone, how);
    }

    fn release(file: File) {
        file.close();
    }
}
