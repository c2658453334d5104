// SPDX-License-Identifier: GPL-2.0
//! The accounting of one tenant: what is mapped through UVM.

use crate::{
    nvidia::{
        class::Kind,
        memory::PageSize, //
    },
    policy::{
        accounting::Accounting,
        count::Change,
        event::{
            Map,
            MapTicket,
            RefusalCause, //
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
        records::RecordId,
        span::{
            last_of,
            Span, //
        }, //
    }, //
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
            let hold = self.mappings.end(mapping).and_then(|gone| gone.hold);
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
            let gone = self.mappings.end(mapping);
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

    /// The driver has unmapped just this mapping's addresses for its GPU. Nothing where it is gone
    /// already, or where a later mapping has taken a part of it: then the driver may have refused.
    pub fn unmapped(&mut self, mapped: FoundMapping) {
        let gone = self.mappings.end(mapped.name);
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
    pub(super) fn room_for_tables(
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
