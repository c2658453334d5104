// SPDX-License-Identifier: GPL-2.0
//! The accounting of one tenant: what is mapped through UVM.

use crate::{
    nvidia::{
        class::Kind,
        handle::{
            ClientHandle,
            ObjectHandle, //
        },
        memory::PageSize,
        nvos::UnmapExtent, //
    },
    policy::{
        accounting::Accounting,
        count::Change,
        event::{
            Map,
            MapTicket,
            RefusalCause,
            RmMap,
            RmMapTicket, //
        },
        gpu_mapping::{
            FoundMapping,
            Gone, //
        },
        ids::{
            GpuId,
            ShareId, //
        },
        ledger::TablesRoom,
        paging::tables_of,
        records::RecordId,
        span::{
            last_of,
            Span, //
        }, //
    },
    store::Exhausted, //
};

impl Accounting {
    /// [`Accounting::begin_map`] without the cuts.
    pub(super) fn enter_map(&mut self, map: &Map) -> Result<MapTicket, RefusalCause> {
        let memory = self.forest.named(map.client, map.memory)?;
        let (object, owner) = (memory.object, memory.owner);
        let last = last_of(map.base, map.length).ok_or(RefusalCause::NoRange)?;
        if object.kind == Kind::UserMode {
            return Err(RefusalCause::Doorbell);
        }
        if !object.kind.is_memory() {
            return Err(RefusalCause::NoMemoryOfIts);
        }
        let page = PageSize::dividing(map.base | map.length | map.offset).min(object.page);
        let (root, memory) = (owner.root, memory.id);
        let hold = self.accounts.share(object.hold, owner.process)?;
        let prepared = self.mappings.prepare(map.file, map.gpu, map.base, last);
        let splits = prepared.inspect_err(|_| self.release_hold(hold))?;
        // Room for it was made above.
        let (mapping, tables) = self.mappings.insert(map, page, hold, &splits)?;
        let tables = splits.tables.and(tables);
        if let Err(refusal) = self.take_tables(map.gpu, tables) {
            // All is as it was, and so are the page tables.
            let hold = self.mappings.drop(mapping).and_then(|gone| gone.hold);
            self.release_hold(hold);
            let _ = self.mappings.rejoin(&splits);
            return Err(refusal);
        }
        let forest = &mut self.forest;
        Ok(MapTicket {
            mapping,
            names: [forest.hold_name(root), forest.hold_name(memory), None],
        })
    }

    /// The driver has answered a call that [`Accounting::begin_map`] agreed to. Not `made`: it
    /// certainly has no such mapping.
    pub fn end_map(&mut self, ticket: MapTicket, made: bool) {
        let MapTicket { mapping, names } = ticket;
        if made {
            self.mappings.settle(mapping);
        } else {
            let gone = self.mappings.drop(mapping);
            self.release_mapping(gone);
        }
        self.release_names(names);
    }

    /// The present moment, for [`Accounting::mapped`].
    pub fn moment(&self) -> u64 {
        self.mappings.now()
    }

    /// A mapping that lies whole in a span and was there at that moment; `None`: there is none, or
    /// no more of them.
    pub fn mapped(&self, span: Span, moment: u64) -> Option<FoundMapping> {
        self.mappings.within(span, moment)
    }

    /// Memory is about to be mapped by RM into a range of addresses (`NV_ESC_RM_MAP_MEMORY_DMA`).
    /// If the driver did not make the page tables with the range, it makes them now. They are
    /// charged as if nothing else lay near, until the range is gone: too much where mappings have
    /// tables in common, are taken away again, or were refused. All three keep their names until
    /// [`Accounting::end_named_map`]. The driver's record of the mapping counts as an object.
    ///
    /// The driver fills its pool of page tables for the whole length before it compares that with
    /// anything (`serverInterMap_Prologue()`, mapping.c), and leaves it filled if it refuses. So
    /// no more is let through than the memory has, or the range.
    ///
    /// # Errors
    ///
    /// As for [`Accounting::begin_named_map`]; the memory is a doorbell, or no memory, or smaller,
    /// or the range is; no room for the tables, or in BAR1 for the kernel's mapping.
    pub fn begin_rm_map(&mut self, map: &RmMap) -> Result<RmMapTicket, RefusalCause> {
        let RmMap { client, length, .. } = *map;
        match self.kind_of(client, map.memory) {
            Some(Kind::UserMode) => return Err(RefusalCause::Doorbell),
            // Its page is no place in memory, by the kind of page that it has. By another kind it
            // is one, whoever's that is (`_kgrobjSetComputeMmio()`, kernel_graphics_object.c).
            Some(Kind::GraphicsObject) if !map.of_other_kind => {}
            Some(kind) if !kind.is_memory() => return Err(RefusalCause::NoMemoryOfIts),
            _ => {}
        }
        self.on_one_gpu(client, map.device, map.range)?;
        let (device, memory) = self.reachable(client, map.device, map.memory)?;
        let range = self.forest.named(client, map.range)?.id;
        let can_reach = |id: RecordId, end: Option<u64>| {
            let object = self.forest.objects.get(id);
            object
                .zip(end)
                .is_some_and(|(object, end)| object.can_reach(end))
        };
        if !can_reach(memory, map.offset.checked_add(length)) || !can_reach(range, Some(length)) {
            return Err(RefusalCause::NoSuchPart);
        }
        if map.for_kernel {
            self.take_bar1(memory, (map.offset, length))?;
        }
        self.count_mapping(range)?;
        let grown = self.grow_tables(range, length);
        grown.inspect_err(|_| self.uncount_mapping(range))?;
        Ok(self.name_map([Some(device), Some(memory), Some(range)]))
    }

    /// So many bytes are about to be mapped into a range, whose page tables may come with that.
    fn grow_tables(&mut self, range: RecordId, length: u64) -> Result<(), RefusalCause> {
        let into = self.forest.objects.get(range).ok_or(Exhausted)?;
        let hold = into.hold.filter(|_| into.kind == Kind::VirtualMemory);
        let growing = hold.and_then(|hold| Some((hold, self.accounts.grows(hold)?)));
        if let Some((hold, share)) = growing {
            let more = tables_of(length);
            let room = self.room_for_tables(share, Change::more(more))?;
            self.accounts.grow(hold, more, room);
        }
        Ok(())
    }

    /// A mapping in a range is about to be unmapped (`NV_ESC_RM_UNMAP_MEMORY_DMA`). Of a part the
    /// driver may make a record more: for what is before, and what is behind
    /// (`serverInterUnmapMapping()`, rs_server.c).
    pub fn begin_rm_unmap(
        &mut self,
        client: ClientHandle,
        device: ObjectHandle,
        range: ObjectHandle,
        extent: UnmapExtent,
    ) -> Result<RmMapTicket, RefusalCause> {
        let (device, range) = self.reachable(client, device, range)?;
        if extent == UnmapExtent::Part {
            self.count_mapping(range)?;
        }
        Ok(self.name_map([Some(device), None, Some(range)]))
    }

    /// The driver has answered a call that [`Accounting::begin_rm_unmap`] agreed to: it has done it
    /// or not, and has told so where no program could write it.
    pub fn end_rm_unmap(&mut self, ticket: RmMapTicket, extent: UnmapExtent, done: bool) {
        let [_, _, range] = &ticket.names;
        let id = range.and_then(|range| self.forest.objects.find(range));
        let is_less = match (extent, done) {
            // Its record is gone.
            (UnmapExtent::Whole, true) => true,
            // The record that was counted ahead did not come.
            (UnmapExtent::Part, false) => true,
            (UnmapExtent::Whole, false) => false,
            // It is not known whether one or two parts are left.
            (UnmapExtent::Part, true) => false,
        };
        if let Some(id) = id.filter(|_| is_less) {
            self.uncount_mapping(id);
        }
        self.end_named_map(ticket);
    }

    /// The driver has unmapped just this mapping's addresses for its GPU. Nothing where it is gone
    /// already, or where a later mapping has taken a part of it: then the driver may have refused.
    pub fn unmapped(&mut self, mapped: FoundMapping) {
        let gone = self.mappings.drop(mapped.name);
        self.release_mapping(gone);
    }

    /// Releases what a mapping held that is gone.
    pub(super) fn release_mapping(&mut self, gone: Option<Gone>) {
        if let Some(Gone { hold, gpu, tables }) = gone {
            self.move_tables(gpu, tables);
            self.release_hold(hold);
        }
    }

    /// There are page tables more, if there is room for them.
    fn take_tables(&mut self, gpu: GpuId, change: Change) -> Result<(), RefusalCause> {
        let Some(share) = self.accounts.ledgers.known_share(gpu) else {
            return Ok(());
        };
        let room = self.room_for_tables(share, change)?;
        if let Some(ledger) = self.accounts.ledgers.get_mut(share) {
            ledger.take_tables(change, room);
        }
        Ok(())
    }

    /// The room for page tables that come. If there is none, managed memory makes it when the call
    /// ends, or they are refused.
    fn room_for_tables(
        &mut self,
        share: ShareId,
        change: Change,
    ) -> Result<TablesRoom, RefusalCause> {
        let ledgers = &self.accounts.ledgers;
        let checked = ledgers.get(share).map(|ledger| ledger.check_tables(change));
        let Some(Err(short)) = checked else {
            return Ok(TablesRoom::Free);
        };
        if self.makes_room(share.bit(), change.more.saturating_sub(change.less)) {
            return Ok(TablesRoom::Lent);
        }
        let ledger = self.accounts.ledgers.get_mut(share);
        Err(ledger.map_or(short, |ledger| ledger.refuse(short)))
    }

    fn move_tables(&mut self, gpu: GpuId, change: Change) {
        if let Some(ledger) = self.accounts.ledgers.known(gpu) {
            ledger.move_tables(change);
        }
    }

    pub(super) fn release_hold(&mut self, hold: Option<RecordId>) {
        if let Some(hold) = hold {
            self.accounts.release(hold);
        }
    }
}
