// SPDX-License-Identifier: GPL-2.0
//! Mappings of objects, as far as the driver keeps something of them, beside what files show.

use crate::{
    policy::{
        record_table::RecordMap,
        records::RecordId, //
    },
    store::Exhausted, //
};

/// The mappings of an object.
#[derive(Debug)]
struct Mappings {
    /// Records of them that the driver may have: each counts as an object.
    count: u32,
    /// Some may have names that their program gave them.
    renamed: bool,
}

/// All of a tenant. Few objects are mapped, so this is not in their own records.
#[derive(Debug)]
pub(super) struct MappingRecords {
    by_object: RecordMap<Mappings>,
}

impl MappingRecords {
    pub(super) const fn new(seed: u64) -> Self {
        Self {
            by_object: RecordMap::new(seed),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.by_object.is_empty()
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
        let gone = self.by_object.remove(key_of(object));
        gone.map_or(0, |mappings| mappings.count.into())
    }

    /// The mappings of an object, which may have none yet.
    fn of(&mut self, object: RecordId) -> Result<&mut Mappings, Exhausted> {
        let key = key_of(object);
        if self.by_object.find(key).is_none() {
            let none = Mappings {
                count: 0,
                renamed: false,
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
