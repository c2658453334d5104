// SPDX-License-Identifier: GPL-2.0
//! The accounting of one tenant: what RM maps into ranges of a GPU's addresses.
//!
//! The driver keeps three records for each mapping, and for what is left of one that was unmapped
//! in part as many more. Each mapping counts as an object, from before the driver is asked for it
//! until it is certainly gone ([`super::super::range_mappings`]).

use crate::{
    nvidia::class::Kind,
    policy::{
        accounting::Accounting,
        count::Change,
        event::{
            RefusalCause,
            RmMap,
            RmMapTicket,
            RmUnmap, //
        },
        mapping_records::RangeUse,
        paging::tables_of,
        records::RecordId, //
    },
    store::{
        Exhausted,
        List, //
    }, //
};

/// A call that maps memory into a range. Must be handed back to [`Accounting::end_rm_map`].
#[derive(Debug)]
#[must_use = "a mapping counts until its ticket is handed back"]
pub struct RangeMapTicket {
    names: RmMapTicket,
    range: RecordId,
    /// The record of the mapping, which is in no range yet.
    mapping: RecordId,
    length: u64,
}

/// A call that unmaps in a range. Must be handed back to [`Accounting::end_rm_unmap`].
#[derive(Debug)]
#[must_use = "nothing is mapped into the range until its ticket is handed back"]
pub struct RangeUnmapTicket {
    names: RmMapTicket,
    range: RecordId,
    by: RecordId,
    what: RangeUse,
    part: (u64, u64),
    /// A mapping that comes later is not meant.
    moment: u64,
    /// Records for what is cut in two, which count already.
    prepared: List<RecordId>,
}

impl Accounting {
    /// Memory is about to be mapped by RM into a range of addresses (`NV_ESC_RM_MAP_MEMORY_DMA`).
    /// If the driver did not make the page tables with the range, it makes them now. They are
    /// charged as if nothing else lay near, until the range is gone: too much where mappings have
    /// tables in common, are taken away again, or were refused. All three keep their names until
    /// [`Accounting::end_rm_map`].
    ///
    /// The driver fills its pool of page tables for the whole length before it compares that with
    /// anything (`serverInterMap_Prologue()`, mapping.c), and leaves it filled if it refuses. So
    /// no more is let through than the memory has, or the range.
    ///
    /// A range that names no address space is in that of its device. The driver looks for it by the
    /// call's device (`virtmemMapTo_IMPL()`, virtual_mem.c), and from 580 on a client may have two
    /// devices of one GPU. What is mapped by one and unmapped by the other stays in the GPU's page
    /// tables when its memory is freed. So a call has to name the range's own.
    ///
    /// Through a context for DMA it would tell where video memory lies (`ctxdmaMapTo_IMPL()`,
    /// context_dma.c). In 595 a second such mapping of the same memory has it read by way of a null
    /// pointer (`serverInterMap()`, rs_server.c; `refRemoveInterMapping()`, rs_resource.c).
    ///
    /// # Errors
    ///
    /// As for [`Accounting::begin_named_map`]; the memory is a doorbell, or no memory, or smaller,
    /// or the range is, or is none; no room for the tables, or in BAR1 for the kernel's mapping; a
    /// part of the range is being unmapped.
    pub fn begin_rm_map(&mut self, map: &RmMap) -> Result<RangeMapTicket, RefusalCause> {
        let RmMap { client, length, .. } = *map;
        match self.kind_of(client, map.memory) {
            Some(Kind::UserMode) => return Err(RefusalCause::Doorbell),
            // Its page is no place in memory, by the kind of page that it has. By another kind it
            // is one, whoever's that is (`_kgrobjSetComputeMmio()`, kernel_graphics_object.c).
            Some(Kind::GraphicsObject) if !map.of_other_kind => {}
            Some(kind) if !kind.is_memory() => return Err(RefusalCause::NoMemoryOfIts),
            _ => {}
        }
        self.on_one_device(client, map.device, map.range)?;
        let (device, memory) = self.reachable(client, map.device, map.memory)?;
        let range = self.forest.named(client, map.range)?;
        if range.object.kind != Kind::VirtualMemory {
            return Err(RefusalCause::NoAddressSpace);
        }
        let range = range.id;
        let can_reach = |id: RecordId, end: Option<u64>| {
            let object = self.forest.objects.get(id);
            object
                .zip(end)
                .is_some_and(|(object, end)| object.can_reach(end))
        };
        if !can_reach(memory, map.offset.checked_add(length)) || !can_reach(range, Some(length)) {
            return Err(RefusalCause::NoSuchPart);
        }
        let mapped = &mut self.forest.mapped;
        mapped.begin_use(range, RangeUse::Whole)?;
        let prepared = mapped.ranges.prepare(device).map_err(RefusalCause::from);
        let entered = prepared.and_then(|mapping| {
            let entered = self.enter_rm_map(map, memory, range);
            entered.inspect_err(|_| self.forest.mapped.ranges.discard(mapping))?;
            Ok(mapping)
        });
        let mapping = entered.inspect_err(|_| {
            let mapped = &mut self.forest.mapped;
            mapped.end_use(range, RangeUse::Whole);
        })?;
        Ok(RangeMapTicket {
            names: self.name_map([Some(device), Some(memory), Some(range)]),
            range,
            mapping,
            length,
        })
    }

    /// Counts a mapping and what it takes.
    fn enter_rm_map(
        &mut self,
        map: &RmMap,
        memory: RecordId,
        range: RecordId,
    ) -> Result<(), RefusalCause> {
        self.count_mapping(range)?;
        let part = (map.offset, map.length);
        let shown = if map.for_kernel {
            self.take_bar1(memory, part)
        } else {
            Ok(0)
        };
        let grown = shown.and_then(|shown| {
            let grown = self.grow_tables(range, map.length);
            grown.inspect_err(|_| self.give_back_bar1(memory, shown))
        });
        grown.inspect_err(|_| self.uncount_mapping(range))
    }

    /// So many bytes are about to be mapped into a range, whose page tables may come with that.
    fn grow_tables(&mut self, range: RecordId, length: u64) -> Result<(), RefusalCause> {
        let into = self.forest.objects.get(range).ok_or(Exhausted)?;
        let growing = into
            .hold
            .and_then(|hold| Some((hold, self.accounts.grows(hold)?)));
        if let Some((hold, share)) = growing {
            let more = tables_of(length);
            let room = self.room_for_tables(share, Change::more(more))?;
            self.accounts.grow(hold, more, room);
        }
        Ok(())
    }

    /// The driver has answered a call that [`Accounting::begin_rm_map`] agreed to, where no program
    /// could write it: the address of the mapping; `None`: there is none for certain.
    pub fn end_rm_map(&mut self, ticket: RangeMapTicket, made: Option<u64>) {
        let RangeMapTicket {
            names,
            range,
            mapping,
            length,
        } = ticket;
        // Its name is held, so no other object has its place.
        self.forest.mapped.end_use(range, RangeUse::Whole);
        match made {
            Some(base) => self.forest.mapped.enter(range, mapping, base, length),
            None => self.drop_prepared(range, mapping),
        }
        self.end_named_map(names);
    }

    /// Addresses of a range are about to be unmapped (`NV_ESC_RM_UNMAP_MEMORY_DMA`).
    ///
    /// # Errors
    ///
    /// As for [`Accounting::begin_named_map`]; a part is to be unmapped and something else is being
    /// mapped or unmapped, or the other way round; there are too many objects for what is cut.
    pub fn begin_rm_unmap(&mut self, unmap: &RmUnmap) -> Result<RangeUnmapTicket, RefusalCause> {
        let (by, range) = self.on_one_device(unmap.client, unmap.device, unmap.range)?;
        let what = match unmap.length {
            0 => RangeUse::Whole,
            _ => RangeUse::Part,
        };
        let part = (unmap.base, unmap.length);
        self.forest.mapped.begin_use(range, what)?;
        let mut prepared = List::new();
        if what == RangeUse::Part {
            if let Err(refusal) = self.prepare_cuts(range, by, part, &mut prepared) {
                self.drop_all_prepared(range, prepared);
                self.forest.mapped.end_use(range, what);
                return Err(refusal);
            }
        }
        Ok(RangeUnmapTicket {
            names: self.name_map([Some(by), None, Some(range)]),
            range,
            by,
            what,
            part,
            moment: self.forest.mapped.ranges.moment(),
            prepared,
        })
    }

    /// Counts what an unmapping of a part cuts in two, and makes records for it.
    fn prepare_cuts(
        &mut self,
        range: RecordId,
        by: RecordId,
        part: (u64, u64),
        prepared: &mut List<RecordId>,
    ) -> Result<(), RefusalCause> {
        let mapped = &mut self.forest.mapped;
        let part = mapped.part(range, by, part);
        let across = mapped.ranges.met(&part).across;
        prepared.reserve(across)?;
        for _ in 0..across {
            let ranges = &mut self.forest.mapped.ranges;
            let mapping = ranges.prepare(by)?;
            let counted = self.count_mapping(range);
            counted.inspect_err(|_| self.forest.mapped.ranges.discard(mapping))?;
            // There is room.
            prepared.push(mapping)?;
        }
        Ok(())
    }

    /// The driver has answered a call that [`Accounting::begin_rm_unmap`] agreed to, where no
    /// program could write it.
    pub fn end_rm_unmap(&mut self, ticket: RangeUnmapTicket, done: bool) {
        let RangeUnmapTicket {
            names,
            range,
            by,
            what,
            part,
            moment,
            mut prepared,
        } = ticket;
        let mapped = &mut self.forest.mapped;
        mapped.end_use(range, what);
        let gone = match what {
            RangeUse::Whole => u32::from(done && mapped.end_whole(range, by, part.0, moment)),
            RangeUse::Part => {
                let part = mapped.part(range, by, part);
                mapped.end_part(&part, &mut prepared, done)
            }
        };
        for _ in 0..gone {
            self.uncount_mapping(range);
        }
        self.drop_all_prepared(range, prepared);
        self.end_named_map(names);
    }

    /// A prepared record is not used.
    fn drop_prepared(&mut self, range: RecordId, mapping: RecordId) {
        self.forest.mapped.ranges.discard(mapping);
        // Nothing if the range is gone.
        self.uncount_mapping(range);
    }

    fn drop_all_prepared(&mut self, range: RecordId, mut prepared: List<RecordId>) {
        while let Some(mapping) = prepared.pop() {
            self.drop_prepared(range, mapping);
        }
    }
}
