// SPDX-License-Identifier: GPL-2.0
//! The accounting of one tenant: RM objects that programs make, duplicate and free.

use crate::{
    nvidia::{
        class::Kind,
        handle::{
            ClassId,
            ClientHandle,
            ObjectHandle, //
        },
        memory::PageSize, //
    },
    policy::{
        accounting::Accounting,
        channel_limit::{
            ChannelUnit,
            EngineKind,
            TakenIds, //
        },
        demand::Demand,
        event::{
            Alloc,
            AllocDone,
            FreeTicket,
            RefusalCause,
            Ticket, //
        },
        ids::{
            FileId,
            GpuId,
            ShareId, //
        },
        ledger::Claim,
        object::{
            has_size,
            Object,
            ObjectLife,
            Preemption, //
        },
        overhead::{
            CHANNEL,
            OTHER_GROUP, //
        },
        records::{
            RecordId,
            Ref, //
        }, //
    },
    store::Exhausted, //
};

/// The properties that a copy has of its original.
pub(super) struct Likeness {
    pub(super) class: ClassId,
    pub(super) kind: Kind,
    pub(super) asked: u64,
    /// Bytes of memory.
    pub(super) size: u64,
    pub(super) page: PageSize,
    /// The GPU that the parent has to be of: the original's, but for a copy that may be on any.
    pub(super) share: Option<ShareId>,
    /// The original's hold on what both cost.
    pub(super) hold: Option<RecordId>,
}

/// Whether objects of this kind may be duplicated, or put behind a descriptor, which is the same.
pub(super) fn check_copy(kind: Kind) -> Result<(), RefusalCause> {
    match kind {
        kind if kind.is_copyable() => Ok(()),
        Kind::ChannelGroup | Kind::ContextShare => Err(RefusalCause::KeepsNoSpace),
        _ => Err(RefusalCause::NotCopyable),
    }
}

impl Accounting {
    /// An object is about to be asked for. Reserves its memory and every record that it needs. The
    /// driver must be asked for it under [`Ticket::handle`].
    pub fn begin_alloc(&mut self, alloc: &Alloc) -> Result<Ticket, RefusalCause> {
        match alloc.kind {
            Kind::Root => self.begin_client(alloc),
            Kind::Device => self.begin_device(alloc),
            Kind::Channel => self.begin_channel(alloc),
            Kind::ContextDma => self.begin_context_dma(alloc),
            Kind::SemaphoreSurface => self.begin_surface(alloc),
            Kind::MemoryMapper => self.begin_mapper(alloc),
            _ => self.begin_object(alloc),
        }
    }

    /// The driver has answered a call that [`Accounting::begin_alloc`] agreed to; `None`: it
    /// refused. What it keeps of that stays charged.
    pub fn end_alloc(&mut self, ticket: Ticket, done: Option<AllocDone>) {
        let refused = self.forest.objects.find(ticket.object);
        let refused = refused.filter(|_| done.is_none());
        let kept = refused.and_then(|id| {
            let object = self.forest.objects.get(id)?;
            self.accounts.tables_of_range(object)
        });
        self.end_ticket(ticket, done);
        if let Some((share, tables)) = kept {
            self.accounts.keep_tables(share, tables);
        }
    }

    /// The driver was not asked for what [`Accounting::begin_alloc`] agreed to.
    pub fn cancel_alloc(&mut self, ticket: Ticket) {
        self.end_ticket(ticket, None);
    }

    /// The same, if the driver keeps nothing of what it refuses.
    pub(super) fn end_ticket(&mut self, ticket: Ticket, done: Option<AllocDone>) {
        self.end_graphics(&ticket);
        let Ticket {
            object,
            names,
            kept,
            ..
        } = ticket;
        let id = self.forest.objects.find(object);
        if let Some(id) = id {
            self.end(id, done);
        }
        self.forest.let_go(kept, id);
        self.release_names(names);
    }

    /// An object is about to be duplicated (`NV_ESC_RM_DUP_OBJECT`): `client` gets an `object` (0:
    /// the caller leaves the choice to the driver) below its `parent`, over what `source_object` of
    /// `source_client` stands for. The new object shares what the old one costs. The driver must be
    /// asked for it under [`Ticket::handle`].
    pub fn begin_dup(
        &mut self,
        client: ClientHandle,
        parent: ObjectHandle,
        object: ObjectHandle,
        source_client: ClientHandle,
        source_object: ObjectHandle,
    ) -> Result<Ticket, RefusalCause> {
        let forest = &self.forest;
        forest.owner(client)?;
        let source = forest.named(source_client, source_object)?;
        let from = source.object;
        check_copy(from.kind)?;
        let likeness = Likeness {
            class: from.class,
            kind: from.kind,
            asked: from.asked(),
            size: from.size(),
            page: from.page,
            share: from.share,
            hold: from.hold,
        };
        let source = source.id;
        self.begin_copy(client, parent, object, &likeness, [Some(source), None])
    }

    /// An object of NVLink's fabric is about to be asked for (`NV_MEMORY_FABRIC`), over `memory` of
    /// the same client. The driver duplicates the memory for itself
    /// (`memoryfabricConstruct_IMPL()`, mem_fabric.c), so the object shares what that costs, and it
    /// takes as many addresses of the GPU's range in the fabric, which all tenants use. So a piece
    /// of memory has one place there at a time: no tenant has more addresses than memory.
    pub fn begin_fabric(
        &mut self,
        alloc: &Alloc,
        memory: ObjectHandle,
    ) -> Result<Ticket, RefusalCause> {
        let source = self.forest.named(alloc.client, memory)?;
        let (source, from) = (source.id, source.object);
        let hold = from.hold.filter(|_| from.kind == Kind::VideoMemory);
        let hold = hold.ok_or(RefusalCause::WrongClass)?;
        if self.accounts.is_in_fabric(hold) {
            return Err(RefusalCause::InFabric);
        }
        let likeness = Likeness {
            class: alloc.class,
            kind: alloc.kind,
            asked: 0,
            size: from.size(),
            page: from.page,
            share: from.share,
            hold: Some(hold),
        };
        let (client, parent) = (alloc.client, alloc.parent);
        let ticket = self.begin_copy(
            client,
            parent,
            alloc.object,
            &likeness,
            [Some(source), None],
        )?;
        let object = self.forest.objects.find(ticket.object);
        let object = object.and_then(|id| self.forest.objects.get(id));
        if let Some(hold) = object.and_then(|object| object.hold) {
            self.accounts.enter_fabric(hold);
        }
        Ok(ticket)
    }

    /// A copy of an object is about to be asked for, below a `parent` of the client, under the
    /// handle `wanted` or one that is free. `named` are the objects that the call names, the
    /// original first.
    pub(super) fn begin_copy(
        &mut self,
        client: ClientHandle,
        parent: ObjectHandle,
        wanted: ObjectHandle,
        likeness: &Likeness,
        named: [Option<RecordId>; 2],
    ) -> Result<Ticket, RefusalCause> {
        let parent = self.forest.named(client, parent)?;
        if likeness.share != parent.object.share {
            return Err(RefusalCause::OtherGpu);
        }
        let mut object = parent.child(likeness.class, likeness.kind);
        let (root, process) = (parent.owner.root, parent.owner.process);
        let parent = parent.id;
        object.handle = self.new_handle(client, wanted)?;
        // (Of a boost there is nothing to be copied: a subdevice is not.)
        // A file that shows the original does not show the copy.
        match likeness.kind {
            kind if has_size(kind) => object.set_size(likeness.size),
            Kind::SemaphoreSurface | Kind::SharedData => {}
            _ => object.ask(likeness.asked),
        }
        object.page = likeness.page;
        self.forest.reserve_for(likeness.kind)?;
        object.hold = self.accounts.share(likeness.hold, process)?;
        self.plant(object, root, parent, [named[0], named[1], None])
    }

    /// The driver has answered a call that [`Accounting::begin_dup`] agreed to: the new object's
    /// handle; `None`: it refused.
    pub fn end_dup(&mut self, ticket: Ticket, done: Option<ObjectHandle>) {
        let done = done.map(|object| AllocDone { object, bytes: 0 });
        self.end_ticket(ticket, done);
    }

    /// An object, or with the client's own handle a client, is about to be freed. An object that
    /// the accounting does not know is nothing to stop a call for: the driver answers it with
    /// success, too (rs_server.c, `serverFreeResourceTreeLockAndFindResource`). Two stop it. Memory
    /// for a channel's errors or its control page stays as long as the channel, and a client as
    /// long as a device of another one has its addresses. `through` is the control file of the
    /// call, if the client must have been made on that.
    pub fn begin_free(
        &mut self,
        client: ClientHandle,
        object: ObjectHandle,
        through: Option<FileId>,
    ) -> Result<FreeTicket, RefusalCause> {
        let known = self.forest.find_made(client, object);
        if known.is_some_and(|known| self.forest.is_channel_memory(known)) {
            return Err(RefusalCause::MemoryInUse);
        }
        if known.is_some_and(|known| self.forest.is_shared_with(known)) {
            return Err(RefusalCause::SpaceInUse);
        }
        if known.is_some_and(|known| self.forest.is_kept(known)) {
            return Err(RefusalCause::MemoryInFlight);
        }
        self.begin_end(client, object, through)
    }

    /// The mappings of an object, or of all of a client, are about to end, and it may be freed.
    pub(super) fn begin_end(
        &mut self,
        client: ClientHandle,
        object: ObjectHandle,
        through: Option<FileId>,
    ) -> Result<FreeTicket, RefusalCause> {
        let root = self.forest.find_root(client);
        let root = root.ok_or(RefusalCause::ForeignClient)?;
        let made_on = self.forest.record_of(root).map(|client| client.file);
        if through.is_some() && made_on.is_some() && through != made_on {
            return Err(RefusalCause::OtherFile);
        }
        let known = self.forest.find_made(client, object);
        let (was_here, unknown) = match known {
            Some(object) => {
                self.forest.forget_preemption(object);
                (self.forest.end_mappings(object), None)
            }
            // The driver makes objects of its own in a program's client, and keeps some by their
            // handles, such as a group's context shares for channels that name none. It would free
            // them as any other, and take what has the handle then for its own
            // (kernel_channel_group_api.c, `kchangrpapiSetLegacyMode_IMPL`; kernel_channel.c,
            // `kchannelConstruct_IMPL`).
            None if object.is_of_driver() => return Err(RefusalCause::HandleOfDriver),
            // An object may come to have the name before the driver gets the call.
            None => (false, Some(self.forest.note_free(client, object)?)),
        };
        Ok(FreeTicket {
            object: known.and_then(|object| self.forest.hold_name(object)),
            was_here,
            unknown,
            client: self.forest.hold_name(root),
        })
    }

    /// The driver has answered a call that [`Accounting::begin_free`] agreed to, and freed the
    /// object or not.
    pub fn end_free(&mut self, ticket: FreeTicket, freed: bool) {
        let FreeTicket {
            object,
            was_here,
            unknown,
            client,
        } = ticket;
        if let Some(unknown) = unknown {
            self.forest.forget_free(unknown);
        }
        let objects = &self.forest.objects;
        if let Some(id) = object.and_then(|object| objects.find(object)) {
            let here = objects.get(id).is_some_and(|o| o.life == ObjectLife::Here);
            if freed && here && was_here {
                self.forest.fell(id, &mut self.accounts);
            } else {
                self.forest.keep_mappings(id);
            }
        }
        self.release_names([object, client, None]);
    }

    /// The driver has freed an object with all below it, or with the client's own handle a client,
    /// and no other call for that handle can have been in flight. Otherwise see
    /// [`Accounting::begin_free`].
    pub fn free(&mut self, client: ClientHandle, object: ObjectHandle) {
        if let Ok(ticket) = self.begin_free(client, object, None) {
            self.end_free(ticket, true);
        }
    }

    fn begin_client(&mut self, alloc: &Alloc) -> Result<Ticket, RefusalCause> {
        let client = ClientHandle(alloc.object.0);
        if client.0 != 0 && self.forest.is_taken(client, alloc.object) {
            return Err(RefusalCause::HandleInUse);
        }
        self.forest.reserve()?;
        let process = self.accounts.processes.join(alloc.process)?;
        let object = Object::coming(client, alloc.object, alloc.class, alloc.kind);
        let counted = self.accounts.count(None, alloc.kind);
        let planted = counted.map_err(RefusalCause::from).and_then(|()| {
            let planted = self.forest.plant_client(object, alloc.file, process);
            Ok(planted.inspect_err(|_| self.accounts.uncount(None, alloc.kind))?)
        });
        let id = planted.inspect_err(|_| self.accounts.processes.part(process))?;
        Ok(Ticket {
            object: self.forest.objects.name(id).ok_or(Exhausted)?,
            handle: alloc.object,
            names: [None; 5],
            kept: [None; 2],
        })
    }

    /// A device has the addresses of its own client, or of another one.
    fn begin_device(&mut self, alloc: &Alloc) -> Result<Ticket, RefusalCause> {
        let Some(shared) = alloc.addresses_of else {
            return self.begin_object(alloc);
        };
        let shared = self.forest.shared_client(alloc.client, shared)?;
        let begun = self.begin_object(alloc);
        let ticket = begun.inspect_err(|_| self.forest.forget_shared_promise())?;
        if let Some(device) = self.forest.objects.find(ticket.object) {
            self.forest.share(device, shared);
        }
        Ok(ticket)
    }

    /// A context for DMA is below its memory here, though beside it in the driver, where it must be
    /// beside it and goes with it (`ctxdmaConstruct_IMPL()`, context_dma.c).
    ///
    /// One that costs host memory is mapped for the kernel. Video memory would take a place in
    /// BAR1, which a driver that has the firmware at work does not give back with the context
    /// (`_ctxdmaDestroyFBMappings()`).
    fn begin_context_dma(&mut self, alloc: &Alloc) -> Result<Ticket, RefusalCause> {
        let handle = alloc.memory.ok_or(RefusalCause::UnknownObject)?;
        let memory = self.forest.named(alloc.client, handle)?.object;
        let (beside, kind) = (memory.parent, memory.kind);
        if beside.is_none() || beside != self.forest.find(alloc.client, alloc.parent) {
            return Err(RefusalCause::OtherParent);
        }
        let is_host = matches!(kind, Kind::SystemMemory | Kind::OsDescriptor);
        if alloc.host > 0 && !is_host {
            return Err(RefusalCause::NoHostMemory);
        }
        self.begin_object(&Alloc {
            parent: handle,
            ..*alloc
        })
    }

    pub(super) fn begin_object(&mut self, alloc: &Alloc) -> Result<Ticket, RefusalCause> {
        let parent = self.forest.named(alloc.client, alloc.parent)?;
        let mut object = parent.child(alloc.class, alloc.kind);
        // The driver makes a group for a channel that has none (kernel_channel.c,
        // kchannelConstruct_IMPL).
        let group = Some(parent.object)
            .filter(|above| alloc.kind == Kind::Channel && above.kind == Kind::ChannelGroup);
        let pool = group.and_then(|group| group.hold);
        let (root, process) = (parent.owner.root, parent.owner.process);
        let parent = parent.id;
        let mut uses = [None; 2];
        for (id, used) in uses.iter_mut().zip(alloc.uses) {
            let used = used.map(|used| self.on_one_gpu(alloc.client, alloc.parent, used));
            *id = used.transpose()?.map(|(_, used)| used);
        }
        object.handle = self.new_handle(alloc.client, alloc.object)?;
        if has_size(alloc.kind) {
            object.set_size(alloc.size);
        }
        object.page = alloc.page;
        if alloc.kind == Kind::Device {
            let gpu = GpuId(alloc.device_instance.unwrap_or(0));
            let share = self.accounts.ledgers.of(gpu);
            object.share = Some(share.ok_or(RefusalCause::NoSuchGpu)?);
        }
        // A channel fills the pool of its group, which stays filled: nothing fails behind that.
        self.forest.reserve_for(alloc.kind)?;
        // Memory of which nothing is said yet is charged with what the driver will say, and a range
        // of addresses with the page tables that come later.
        let unknown = matches!(alloc.kind, Kind::VideoMemory | Kind::VirtualMemory);
        let costs = unknown || alloc.engine.is_some() || alloc.takes_memory();
        if costs {
            let share = object.share.ok_or(RefusalCause::NoDevice)?;
            if !self.accounts.ledgers.is_active(share) {
                return Err(RefusalCause::NoSuchGpu);
            }
            let (ids, asked) = if let Some(pool) = pool {
                let of_group = self.accounts.claim_of(pool).map(Claim::ids);
                (of_group, self.accounts.ask_channel(pool, process))
            } else {
                let demand = self.demand(alloc, share);
                let ids = Some(demand.ids);
                (ids, self.accounts.ask(share, demand, process))
            };
            object.hold = Some(asked?);
            object.is_compute_channel =
                alloc.kind == Kind::Channel && ids.is_some_and(TakenIds::makes_context);
        }
        let context = match alloc.kind {
            Kind::GraphicsObject => Some(self.begin_graphics(parent, object.share)?),
            _ => None,
        };
        let names = [context, uses[0], uses[1]];
        self.plant(object, root, parent, names).inspect_err(|_| {
            if let Some(context) = context {
                self.forest.end_graphics(context, Preemption::AsMade);
            }
        })
    }

    /// The demand of an object on a share that is in no group.
    fn demand(&self, alloc: &Alloc, share: ShareId) -> Demand {
        let mut demand = Demand {
            bytes: alloc.bytes,
            tables: alloc.tables,
            host: alloc.host,
            ..Demand::NONE
        };
        let ledger = self.accounts.ledgers.get(share);
        if let Some((engine, ledger)) = alloc.engine.zip(ledger) {
            let (unit, pools) = match alloc.kind {
                Kind::ChannelGroup => (ChannelUnit::Group, 0),
                _ => (ChannelUnit::Alone, CHANNEL),
            };
            let own = match ledger.engines.kind(engine) {
                EngineKind::Other => OTHER_GROUP,
                EngineKind::Compute | EngineKind::Copy => 0,
            };
            demand.ids = TakenIds::of(&ledger.engines, unit, engine);
            demand.pools = pools + own;
        }
        demand
    }

    /// The handle for a new object: the caller's, if it can be had, or one that is free. The driver
    /// gives an object any handle, also the one that names no address space for a range
    /// ([`ObjectHandle::HOST_ADDRESSES`]), and those among which it looks for its own objects.
    fn new_handle(
        &mut self,
        client: ClientHandle,
        wanted: ObjectHandle,
    ) -> Result<ObjectHandle, RefusalCause> {
        if wanted.0 == 0 {
            self.forest.choose(client).ok_or(RefusalCause::NoHandle)
        } else if wanted.0 == client.0 {
            Err(RefusalCause::HandleOfClient)
        } else if wanted == ObjectHandle::HOST_ADDRESSES {
            Err(RefusalCause::HandleOfNone)
        } else if wanted.is_of_driver() {
            Err(RefusalCause::HandleOfDriver)
        } else if self.forest.is_taken(client, wanted) {
            Err(RefusalCause::HandleInUse)
        } else {
            Ok(wanted)
        }
    }

    /// Adds an object that is to come, for which there is room, and holds the names that its call
    /// uses.
    fn plant(
        &mut self,
        object: Object,
        root: RecordId,
        parent: RecordId,
        [source, first, second]: [Option<RecordId>; 3],
    ) -> Result<Ticket, RefusalCause> {
        let handle = object.handle;
        let (share, hold, kind) = (object.share, object.hold, object.kind);
        let counted = self.accounts.count(share, kind);
        let planted = counted.map_err(RefusalCause::from).and_then(|()| {
            let planted = self.forest.plant(object, parent);
            Ok(planted.inspect_err(|_| self.accounts.uncount(share, kind))?)
        });
        let id = planted.inspect_err(|_| {
            if let Some(hold) = hold {
                self.accounts.release(hold);
            }
        })?;
        let ledger = share.and_then(|share| self.accounts.ledgers.get_mut(share));
        if let Some(ledger) = ledger {
            ledger.enter();
        }
        let forest = &mut self.forest;
        let names = [Some(root), Some(parent), source, first, second];
        Ok(Ticket {
            object: forest.objects.name(id).ok_or(Exhausted)?,
            handle,
            names: names.map(|name| name.and_then(|name| forest.hold_name(name))),
            kept: [None; 2],
        })
    }

    fn end(&mut self, id: RecordId, done: Option<AllocDone>) {
        let Some(object) = self.forest.objects.get(id) else {
            return;
        };
        match done {
            Some(done) => {
                if let Some(hold) = object.hold {
                    self.accounts.commit(hold, done.bytes);
                }
                self.forest.arrive(id, done.object, &mut self.accounts);
            }
            None => {
                self.forest.detach(id);
                self.forest.uproot(id, &mut self.accounts);
            }
        }
    }

    pub(super) fn release_names(&mut self, names: impl IntoIterator<Item = Option<Ref>>) {
        for name in names.into_iter().flatten() {
            self.forest.release_name(name);
        }
    }
}
