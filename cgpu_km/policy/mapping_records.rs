// SPDX-License-Identifier: GPL-2.0
//! Mappings of objects, as far as the driver keeps something of them, beside what files show.

use crate::{
    policy::{
        count::lower,
        event::RefusalCause,
        range_mappings::{
            RangeMappings,
            RangePart, //
        },
        record_table::RecordMap,
        records::RecordId, //
    },
    store::{
        Exhausted,
        List, //
    }, //
};

/// The mappings of an object.
#[derive(Debug)]
struct Mappings {
    /// Records of them that the driver may have: each counts as an object.
    count: u32,
    /// Some may have names that their program gave them.
    renamed: bool,
    /// Of a range: the length of the longest that was there.
    longest: u64,
    /// Calls in flight that map into a range or unmap whole mappings, and those that unmap parts.
    whole: u32,
    parts: u32,
}

/// The purpose of a call in a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RangeUse {
    /// It maps, or unmaps a whole mapping.
    Whole,
    /// It unmaps a part, whatever is there.
    Part,
}

/// All of a tenant. Few objects are mapped, so this is not in their own records.
#[derive(Debug)]
pub(super) struct MappingRecords {
    by_object: RecordMap<Mappings>,
    /// Those in ranges of a GPU's addresses.
    pub(super) ranges: RangeMappings,
}

impl MappingRecords {
    pub(super) const fn new(seed: u64) -> Self {
        Self {
            by_object: RecordMap::new(seed),
            ranges: RangeMappings::new(seed),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.by_object.is_empty() && self.ranges.is_empty()
    }

    /// A mapping of an object is about to get a name. Tells whether others may have one already.
    pub(super) fn rename(&mut self, object: RecordId) -> Result<bool, Exhausted> {
        let mappings = self.of(object)?;
        Ok(core::mem::replace(&mut mappings.renamed, true))
    }

    /// Whether mappings of an object may have names.
    pub(super) fn has_renamed(&self, object: RecordId) -> bool {
        let mappings = self.by_object.get(key_of(object));
        mappings.is_some_and(|mappings| mappings.renamed)
    }

    /// The driver is about to make one record more with an object.
    pub(super) fn raise(&mut self, object: RecordId) -> Result<(), Exhausted> {
        let mappings = self.of(object)?;
        mappings.count = mappings.count.checked_add(1).ok_or(Exhausted)?;
        Ok(())
    }

    /// The driver has one record less; whether there was one.
    pub(super) fn lower(&mut self, object: RecordId) -> bool {
        let mappings = self.by_object.get_mut(key_of(object));
        let count = mappings.map(|mappings| &mut mappings.count);
        count.filter(|count| **count > 0).is_some_and(|count| {
            *count -= 1;
            true
        })
    }

    /// An object is gone, and with it all its mappings: how many records there were.
    pub(super) fn end(&mut self, object: RecordId) -> u64 {
        self.ranges.end_range(key_of(object));
        let gone = self.by_object.remove(key_of(object));
        gone.map_or(0, |mappings| mappings.count.into())
    }

    /// A call is about to map or unmap in a range. Which of two such calls the driver does first is
    /// not known. What an unmapping of a part cuts would not be known then, so there is none beside
    /// other calls.
    pub(super) fn begin_use(
        &mut self,
        range: RecordId,
        what: RangeUse,
    ) -> Result<(), RefusalCause> {
        let mappings = self.of(range)?;
        let (own, other) = match what {
            RangeUse::Whole => (&mut mappings.whole, mappings.parts),
            RangeUse::Part => (&mut mappings.parts, mappings.whole),
        };
        if other > 0 {
            return Err(RefusalCause::MappingInFlight);
        }
        *own = own.checked_add(1).ok_or(Exhausted)?;
        Ok(())
    }

    /// The call is over.
    pub(super) fn end_use(&mut self, range: RecordId, what: RangeUse) {
        if let Some(mappings) = self.of_known(range) {
            match what {
                RangeUse::Whole => lower(&mut mappings.whole, 1),
                RangeUse::Part => lower(&mut mappings.parts, 1),
            }
        }
    }

    /// A mapping that was prepared is in its range, or that is gone.
    pub(super) fn enter(&mut self, range: RecordId, mapping: RecordId, base: u64, length: u64) {
        let Some(mappings) = self.of_known(range) else {
            self.ranges.discard(mapping);
            return;
        };
        mappings.longest = mappings.longest.max(length);
        let part = (base, base.saturating_add(length));
        self.ranges.enter(mapping, key_of(range), part);
    }

    /// The driver has unmapped a whole mapping of a range that was there at that moment. Whether
    /// there was one.
    pub(super) fn end_whole(
        &mut self,
        range: RecordId,
        by: RecordId,
        base: u64,
        moment: u64,
    ) -> bool {
        self.ranges.end_whole((key_of(range), base), by, moment)
    }

    /// A part of a range by way of a device: from an address on, so many bytes.
    pub(super) fn part(
        &mut self,
        range: RecordId,
        by: RecordId,
        (base, length): (u64, u64),
    ) -> RangePart {
        RangePart {
            range: key_of(range),
            by,
            base,
            end: base.saturating_add(length),
            longest: self.of_known(range).map_or(0, |range| range.longest),
        }
    }

    /// The driver has unmapped a part of a range or, not `done`, perhaps something of it. Gives how
    /// many mappings have gone.
    pub(super) fn end_part(
        &mut self,
        part: &RangePart,
        prepared: &mut List<RecordId>,
        done: bool,
    ) -> u32 {
        if done {
            return self.ranges.end_part(part, prepared);
        }
        self.ranges.stop_part(part, prepared);
        0
    }

    /// The mappings of an object that has some, or had.
    fn of_known(&mut self, object: RecordId) -> Option<&mut Mappings> {
        self.by_object.get_mut(key_of(object))
    }

    /// The mappings of an object, which may have none yet.
    fn of(&mut self, object: RecordId) -> Result<&mut Mappings, Exhausted> {
        let key = key_of(object);
        if self.by_object.find(key).is_none() {
            let none = Mappings {
                count: 0,
                renamed: false,
                longest: 0,
                whole: 0,
                parts: 0,
            };
            self.by_object.insert(key, none)?;
        }
        self.by_object.get_mut(key).ok_or(Exhausted)
    }
}

/// The key of an object in the table of objects.
fn key_of(object: RecordId) -> u64 {
    u64::from(object.number().get())
}
