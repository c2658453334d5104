// SPDX-License-Identifier: GPL-2.0
//! Surfaces of semaphores, as Vulkan has them, and what the driver keeps with them.

use crate::{
    nvidia::{
        class::Kind,
        control::Binding,
        handle::{
            ClientHandle,
            ObjectHandle, //
        }, //
    },
    policy::{
        accounting::{
            objects::Likeness,
            Accounting, //
        },
        event::{
            Alloc,
            RefusalCause,
            RmMapTicket,
            Ticket, //
        },
        object::ObjectLife, //
    },
    uapi::Limited, //
};

/// The most memory of a surface of semaphores. The driver maps all of it for the kernel, and writes
/// to all of it with its lock of the GPU held. Vulkan's has 64 KiB.
const LARGEST_SURFACE: u64 = 2 << 20;
/// A channel that is bound to a surface counts as so many objects: a record of its own, and at most
/// `NV_SEMAPHORE_SURFACE_CTRL_CMD_BIND_CHANNEL_MAX_INDICES` (ctrl00da.h) that are events of the
/// driver's own client.
const RECORDS: u64 = 9;

impl Accounting {
    /// A surface keeps what its memory costs, whatever becomes of that, and is charged for it anew:
    /// as much as memory of that size can take at most.
    pub(super) fn begin_surface(&mut self, alloc: &Alloc) -> Result<Ticket, RefusalCause> {
        let mut kept = *alloc;
        let [values, highest] = alloc.uses;
        let both = [values, highest.filter(|_| highest != values)];
        for memory in both.into_iter().flatten() {
            let memory = self.forest.named(alloc.client, memory)?.object;
            let more = match memory.kind {
                Kind::VideoMemory => &mut kept.bytes,
                Kind::SystemMemory => &mut kept.host,
                _ => return Err(RefusalCause::WrongClass),
            };
            if memory.size() == 0 || memory.size() > LARGEST_SURFACE {
                return Err(RefusalCause::BeyondMemory);
            }
            *more = more.saturating_add(LARGEST_SURFACE);
        }
        // An object that takes host memory takes nothing else ([`Demand::host`]).
        if kept.host > 0 {
            kept.host = kept.host.saturating_add(core::mem::take(&mut kept.bytes));
        }
        self.begin_object(&kept)
    }

    /// A queue of operations shares what its surface of semaphores costs: the driver copies that,
    /// and so keeps its memory (`memmapperConstruct_IMPL()`, mem_mapper.c; branch 550 leaves a copy
    /// of anything else behind). Since branch 570 it maps memory for its notes for the kernel.
    /// Video memory would take a place in BAR1, so it is the host's, as Vulkan's. The surface may
    /// be of another GPU: so Vulkan makes the queues of a second GPU.
    pub(super) fn begin_mapper(&mut self, alloc: &Alloc) -> Result<Ticket, RefusalCause> {
        let [Some(surface), notes] = alloc.uses else {
            // The driver refuses it. Branch 535 has none.
            return self.begin_object(alloc);
        };
        let surface = self.forest.named(alloc.client, surface)?;
        let (source, from) = (surface.id, surface.object);
        if from.kind != Kind::SemaphoreSurface {
            return Err(RefusalCause::WrongClass);
        }
        let likeness = Likeness {
            class: alloc.class,
            kind: alloc.kind,
            asked: 0,
            size: 0,
            page: from.page,
            share: self.forest.named(alloc.client, alloc.parent)?.object.share,
            hold: from.hold,
        };
        let notes = match notes {
            Some(notes) => {
                let (_, id) = self.on_one_gpu(alloc.client, alloc.parent, notes)?;
                if self.kind_of(alloc.client, notes) != Some(Kind::SystemMemory) {
                    return Err(RefusalCause::NoHostMemory);
                }
                Some(id)
            }
            None => None,
        };
        let (client, parent) = (alloc.client, alloc.parent);
        let named = [Some(source), notes];
        self.begin_copy(client, parent, alloc.object, &likeness, named)
    }

    /// A channel is about to be bound to a surface of semaphores, or is no longer to be. The driver
    /// keeps what it has made for that until it is taken back or the surface is gone, whatever
    /// becomes of the channel (`semsurfCtrlCmdBindChannel_IMPL()`, sem_surf.c). So it counts as
    /// objects until then.
    ///
    /// # Errors
    ///
    /// It is no such surface; there are too many objects.
    pub fn begin_bind(
        &mut self,
        client: ClientHandle,
        surface: ObjectHandle,
        binding: Binding,
    ) -> Result<RmMapTicket, RefusalCause> {
        let named = self.forest.named(client, surface)?;
        if named.object.kind != Kind::SemaphoreSurface {
            return Err(RefusalCause::WrongClass);
        }
        let (id, share) = (named.id, named.object.share);
        if binding == Binding::Made {
            let ledgers = &mut self.accounts.ledgers;
            ledgers.count(share, Limited::Objects, RECORDS)?;
            if let Some(surface) = self.forest.objects.get_mut(id) {
                surface.ask(surface.records().saturating_add(RECORDS));
            }
        }
        Ok(self.name_map([Some(id), None, None]))
    }

    /// The driver has answered a call that [`Accounting::begin_bind`] agreed to. `is_bound`: the
    /// channel is bound now.
    pub fn end_bind(&mut self, ticket: RmMapTicket, is_bound: bool) {
        let [surface, ..] = ticket.names;
        let id = surface.and_then(|surface| self.forest.objects.find(surface));
        let object = id.and_then(|id| self.forest.objects.get_mut(id));
        // With the surface all its records are gone.
        let object = object.filter(|object| object.life == ObjectLife::Here);
        if let Some(object) = object.filter(|object| !is_bound && object.records() >= RECORDS) {
            object.ask(object.records() - RECORDS);
            let ledgers = &mut self.accounts.ledgers;
            ledgers.uncount(object.share, Limited::Objects, RECORDS);
        }
        self.end_named_map(ticket);
    }
}
