// SPDX-License-Identifier: GPL-2.0
//! A hash table from 64-bit keys to records, by their numbers; and records with such a table.
//!
//! Open addressing with linear probing. Taking a key out moves the keys behind it back, so that no
//! marks of former keys pile up. Room can be promised ahead, since what the driver has done can no
//! longer fail here.

use crate::{
    policy::{
        count::lower,
        records::{
            RecordId,
            Records, //
        },
        steps::step, //
    },
    store::{
        Exhausted,
        List, //
    }, //
};
use core::num::NonZeroU32;

#[derive(Clone, Copy, Debug)]
struct TableEntry {
    key: u64,
    /// `None`: the entry is free.
    value: Option<NonZeroU32>,
}

const FREE: TableEntry = TableEntry {
    key: 0,
    value: None,
};

/// The smallest table that is made.
const SMALLEST: usize = 16;

/// The table. When the last key and the last promise go, the memory goes with them.
#[derive(Debug)]
pub(super) struct RecordTable {
    /// Empty, or a power of two of which at most three quarters are taken or promised.
    entries: List<TableEntry>,
    taken: usize,
    promised: usize,
    seed: u64,
}

impl RecordTable {
    /// An empty table. A program that knows the seed could choose keys that collide.
    pub(super) const fn new(seed: u64) -> Self {
        Self {
            entries: List::new(),
            taken: 0,
            promised: 0,
            seed,
        }
    }

    /// Makes sure that one more key finds room.
    pub(super) fn reserve(&mut self) -> Result<(), Exhausted> {
        let wanted = self.taken + self.promised + 1;
        if wanted <= self.entries.len() / 4 * 3 {
            return Ok(());
        }
        let len = match self.entries.len() {
            0 => SMALLEST,
            len => len.checked_mul(2).ok_or(Exhausted)?,
        };
        let former = core::mem::replace(&mut self.entries, List::filled(len, FREE)?);
        for entry in former.iter() {
            step();
            self.place(*entry);
        }
        Ok(())
    }

    /// Keeps room for one key that will come later, by [`RecordTable::insert_promised`].
    pub(super) fn promise(&mut self) -> Result<(), Exhausted> {
        self.reserve()?;
        self.promised += 1;
        Ok(())
    }

    /// Gives the room of one promise back.
    pub(super) fn forget_promise(&mut self) {
        lower(&mut self.promised, 1);
        self.release_if_empty();
    }

    /// Adds a key that is not in the table yet.
    pub(super) fn insert(&mut self, key: u64, value: RecordId) -> Result<(), Exhausted> {
        self.reserve()?;
        self.place(TableEntry {
            key,
            value: Some(value.number()),
        });
        self.taken += 1;
        Ok(())
    }

    /// Adds a key that is not in the table yet, into the room of one promise.
    pub(super) fn insert_promised(&mut self, key: u64, value: RecordId) {
        lower(&mut self.promised, 1);
        self.place(TableEntry {
            key,
            value: Some(value.number()),
        });
        self.taken += 1;
    }

    pub(super) fn get(&self, key: u64) -> Option<RecordId> {
        let (_, value) = self.look_up(key)?;
        Some(value)
    }

    /// The values of all keys, in no order.
    pub(super) fn values(&self) -> impl Iterator<Item = RecordId> + '_ {
        let values = self.entries.iter().filter_map(|entry| entry.value);
        values.map(RecordId::from).inspect(|_| step())
    }

    /// Gives a key that is in the table another value.
    pub(super) fn set(&mut self, key: u64, value: RecordId) {
        if let Some((index, _)) = self.look_up(key) {
            if let Some(entry) = self.entries.get_mut(index) {
                entry.value = Some(value.number());
            }
        }
    }

    /// Takes a key out.
    pub(super) fn remove(&mut self, key: u64) {
        let Some((mut hole, _)) = self.look_up(key) else {
            return;
        };
        // An entry that was pushed past the hole moves back into it.
        let mut index = hole;
        for _ in 0..self.entries.len() {
            step();
            index = self.after(index);
            let Some(&entry) = self.entries.get(index) else {
                break;
            };
            if entry.value.is_none() {
                break;
            }
            let home = self.home(entry.key);
            if self.distance(home, index) >= self.distance(hole, index) {
                self.put(hole, entry);
                hole = index;
            }
        }
        self.put(hole, FREE);
        lower(&mut self.taken, 1);
        self.release_if_empty();
    }

    fn release_if_empty(&mut self) {
        if self.taken == 0 && self.promised == 0 {
            self.entries = List::new();
        }
    }

    fn look_up(&self, key: u64) -> Option<(usize, RecordId)> {
        if self.entries.is_empty() {
            return None;
        }
        let mut index = self.home(key);
        for _ in 0..self.entries.len() {
            step();
            let entry = self.entries.get(index)?;
            let value = entry.value?;
            if entry.key == key {
                return Some((index, RecordId::from(value)));
            }
            index = self.after(index);
        }
        None
    }

    /// Puts an entry at the first free place from its home on.
    fn place(&mut self, entry: TableEntry) {
        if entry.value.is_none() {
            return;
        }
        let mut index = self.home(entry.key);
        for _ in 0..self.entries.len() {
            step();
            if self.entries.get(index).is_some_and(|e| e.value.is_none()) {
                self.put(index, entry);
                return;
            }
            index = self.after(index);
        }
    }

    fn put(&mut self, index: usize, entry: TableEntry) {
        if let Some(place) = self.entries.get_mut(index) {
            *place = entry;
        }
    }

    /// All ones below the table's size, which is a power of two.
    fn mask(&self) -> usize {
        self.entries.len().wrapping_sub(1)
    }

    fn after(&self, index: usize) -> usize {
        index.wrapping_add(1) & self.mask()
    }

    fn distance(&self, from: usize, to: usize) -> usize {
        to.wrapping_sub(from) & self.mask()
    }

    fn home(&self, key: u64) -> usize {
        // The finalizer of splitmix64, with the seed before and in the middle of it.
        let mut x = key ^ self.seed;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x ^= self.seed.rotate_left(32);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^= x >> 31;
        // The upper half alone: it fits into a usize everywhere, and tables stay below 2^32.
        usize::try_from(x >> 32).unwrap_or(0) & self.mask()
    }
}

/// Records that are found by a key each.
#[derive(Debug)]
pub(super) struct RecordMap<T> {
    records: Records<T>,
    by_key: RecordTable,
}

impl<T> RecordMap<T> {
    /// An empty map; see [`RecordTable::new`] for the seed.
    pub(super) const fn new(seed: u64) -> Self {
        Self {
            records: Records::new(),
            by_key: RecordTable::new(seed),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.records.len() == 0
    }

    /// The records themselves, to be read.
    pub(super) fn records(&self) -> &Records<T> {
        &self.records
    }

    /// A record by its number.
    pub(super) fn at_mut(&mut self, id: RecordId) -> Option<&mut T> {
        self.records.get_mut(id)
    }

    /// The number of the record with a key.
    pub(super) fn find(&self, key: u64) -> Option<RecordId> {
        self.by_key.get(key)
    }

    pub(super) fn get(&self, key: u64) -> Option<&T> {
        self.records.get(self.find(key)?)
    }

    pub(super) fn get_mut(&mut self, key: u64) -> Option<&mut T> {
        self.records.get_mut(self.find(key)?)
    }

    /// Makes room, so that the next [`RecordMap::insert`] cannot fail.
    pub(super) fn reserve(&mut self) -> Result<(), Exhausted> {
        self.records.reserve()?;
        self.by_key.reserve()
    }

    /// Adds a record with a key that no other one has.
    pub(super) fn insert(&mut self, key: u64, value: T) -> Result<RecordId, Exhausted> {
        // Both or neither: a record without a key would never go.
        self.reserve()?;
        let id = self.records.insert(value)?;
        self.by_key.insert(key, id)?;
        Ok(id)
    }

    /// Takes the record with a key out.
    pub(super) fn remove(&mut self, key: u64) -> Option<T> {
        let id = self.find(key)?;
        self.by_key.remove(key);
        self.records.remove(id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    /// As many places as the tests need.
    fn places(count: usize) -> Vec<RecordId> {
        let mut records = Records::new();
        (0..count).map(|_| records.insert(()).unwrap()).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig {
            failure_persistence: None,
            ..ProptestConfig::default()
        })]

        #[test]
        fn a_table_agrees_with_an_ordered_map(
            seed in any::<u64>(),
            steps in proptest::collection::vec((0..64u64, 0..8usize, 0..5u8), 0..400)
        ) {
            let places = places(8);
            let mut table = RecordTable::new(seed);
            let mut map = BTreeMap::new();
            let mut promised = 0;
            for (key, place, what) in steps {
                let value = places[place];
                match what {
                    0 if !map.contains_key(&key) && promised > 0 => {
                        promised -= 1;
                        table.insert_promised(key, value);
                        map.insert(key, value);
                    }
                    0 | 1 if !map.contains_key(&key) => {
                        table.insert(key, value).unwrap();
                        map.insert(key, value);
                    }
                    0 | 1 => {
                        table.set(key, value);
                        map.insert(key, value);
                    }
                    2 | 3 => {
                        table.remove(key);
                        map.remove(&key);
                    }
                    _ if promised < 20 => {
                        table.promise().unwrap();
                        promised += 1;
                    }
                    _ => {
                        table.forget_promise();
                        promised -= 1;
                    }
                }
                for key in 0..64 {
                    prop_assert_eq!(table.get(key), map.get(&key).copied());
                }
            }
        }
    }

    #[test]
    fn record_and_key_go_together() {
        let mut map = RecordMap::new(0);
        let id = map.insert(7, 'a').unwrap();
        assert_eq!((map.find(7), map.get(7)), (Some(id), Some(&'a')));
        assert_eq!(map.get(8), None);
        assert_eq!(map.remove(7), Some('a'));
        assert_eq!((map.find(7), map.remove(7)), (None, None));
        assert!(map.is_empty());
        assert_eq!(map.by_key.entries.len(), 0);
    }

    #[test]
    fn keys_that_are_taken_out_leave_no_trace() {
        let place = places(1)[0];
        let mut table = RecordTable::new(0);
        table.insert(0, place).unwrap();
        // A thousand different keys at a place: marks of them would fill the table.
        for key in 1..1000 {
            table.insert(key, place).unwrap();
            table.remove(key);
        }
        assert_eq!(table.entries.len(), SMALLEST);
        assert!(table.get(0).is_some());
        table.remove(0);
        assert_eq!(table.entries.len(), 0);
    }
}
