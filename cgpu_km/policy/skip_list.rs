// SPDX-License-Identifier: GPL-2.0
//! Records in the order of their keys: a skip list.
//!
//! A record is found, put in and taken out in a time that grows with the logarithm of their number,
//! whatever keys the tenant chooses: on how many levels one stands is drawn from a seed of which it
//! knows nothing.

use crate::{
    policy::{
        records::{
            Named,
            RecordId,
            Ref, //
        },
        steps::step, //
    },
    store::Exhausted, //
};

/// Enough for 2^18 records, where a quarter of those of each level is on the next.
const LEVELS: usize = 9;
type Links = [Option<RecordId>; LEVELS];

/// A record that has a place in an order.
pub(super) trait Keyed {
    /// The order is by this.
    type Key: Ord + Copy;

    /// Its key. It may change only while the record is out of the order.
    fn key(&self) -> Self::Key;
}

#[derive(Debug)]
struct SkipNode<T> {
    value: T,
    next: Links,
}

/// On each level, the last record before a key; `None`: the beginning.
#[derive(Clone, Copy, Debug)]
pub(super) struct Path(Links);

impl Path {
    /// The last record before the key.
    pub(super) fn before(&self) -> Option<RecordId> {
        self.0.first().copied().flatten()
    }
}

/// Records that are in order, or for a moment out of it.
#[derive(Debug)]
pub(super) struct SkipList<T> {
    nodes: Named<SkipNode<T>>,
    first: Links,
    /// No record is on this level or above.
    levels: usize,
    /// The way to where a record was put in or taken out last. A program that uses addresses one
    /// after the other is there already.
    recent: Path,
    seed: u64,
}

impl<T: Keyed> SkipList<T> {
    pub(super) const fn new(seed: u64) -> Self {
        Self {
            nodes: Named::new(),
            first: [None; LEVELS],
            levels: 0,
            recent: Path([None; LEVELS]),
            seed,
        }
    }

    /// How many records there are.
    pub(super) fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Makes room, so that the next [`SkipList::insert`] cannot fail.
    pub(super) fn reserve(&mut self) -> Result<(), Exhausted> {
        self.nodes.reserve()
    }

    pub(super) fn get(&self, id: RecordId) -> Option<&T> {
        self.nodes.get(id).map(|node| &node.value)
    }

    pub(super) fn get_mut(&mut self, id: RecordId) -> Option<&mut T> {
        self.nodes.get_mut(id).map(|node| &mut node.value)
    }

    /// As [`Named::name`].
    pub(super) fn name(&self, id: RecordId) -> Option<Ref> {
        self.nodes.name(id)
    }

    /// As [`Named::find`].
    pub(super) fn find(&self, name: Ref) -> Option<RecordId> {
        self.nodes.find(name)
    }

    /// The record that `name` means, if it is still there.
    pub(super) fn named_mut(&mut self, name: Ref) -> Option<&mut T> {
        self.get_mut(self.find(name)?)
    }

    /// The first record at or behind a key.
    pub(super) fn from(&self, key: T::Key) -> Option<RecordId> {
        self.behind(self.path(key).before())
    }

    /// The record behind another one; `None`: the first.
    pub(super) fn behind(&self, id: Option<RecordId>) -> Option<RecordId> {
        self.on(id, 0)
    }

    /// Whether the way to where a record was put in or taken out last is the way to a key.
    fn is_recent(&self, key: T::Key) -> bool {
        let key_of = |id| Some(self.nodes.get(id)?.value.key());
        let before = self.recent.before();
        let behind = self.behind(before);
        before.is_none_or(|id| key_of(id).is_some_and(|before| before < key))
            && behind.is_none_or(|id| key_of(id).is_some_and(|behind| key <= behind))
    }

    /// The way to a key.
    pub(super) fn path(&self, key: T::Key) -> Path {
        if self.is_recent(key) {
            return self.recent;
        }
        let mut path = [None; LEVELS];
        let (mut at, mut links) = (None, &self.first);
        // The first record above that is not before the key: none behind it is.
        let mut end = None;
        let mut level = self.levels.min(LEVELS);
        while level > 0 {
            level -= 1;
            while let Some(next) = links.get(level).copied().flatten() {
                if end == Some(next) {
                    break;
                }
                step();
                let node = self.nodes.get(next);
                let Some(node) = node.filter(|node| node.value.key() < key) else {
                    end = Some(next);
                    break;
                };
                (at, links) = (Some(next), &node.next);
            }
            if let Some(place) = path.get_mut(level) {
                *place = at;
            }
        }
        Path(path)
    }

    /// Adds a record, which [`SkipList::link`] puts in its place.
    pub(super) fn insert(&mut self, value: T) -> Result<RecordId, Exhausted> {
        let next = [None; LEVELS];
        self.nodes.insert(SkipNode { value, next })
    }

    /// Drops a record that [`SkipList::unlink`] has taken out of the order.
    pub(super) fn discard(&mut self, id: RecordId) {
        self.nodes.discard(id);
        if self.nodes.len() == 0 {
            self.levels = 0;
        }
    }

    /// Puts a record into the order, on the way to its key.
    pub(super) fn link(&mut self, id: RecordId, path: &Path) {
        let height = self.height();
        self.levels = self.levels.max(height);
        self.recent = *path;
        for (level, &before) in path.0.iter().enumerate().take(height) {
            let next = self.on(before, level);
            self.set(Some(id), level, next);
            self.set(before, level, Some(id));
        }
        // Behind the record.
        self.recent
            .0
            .iter_mut()
            .take(height)
            .for_each(|place| *place = Some(id));
    }

    /// Takes a record out of the order, on the way to its key.
    pub(super) fn unlink(&mut self, id: RecordId, path: &Path) {
        for (level, &before) in path.0.iter().enumerate() {
            // A record of a level is on all levels below.
            if self.on(before, level) != Some(id) {
                break;
            }
            let next = self.on(Some(id), level);
            self.set(before, level, next);
            self.set(Some(id), level, None);
        }
        self.recent = *path;
    }

    /// The record behind another one on a level.
    fn on(&self, id: Option<RecordId>, level: usize) -> Option<RecordId> {
        let links = match id {
            Some(id) => &self.nodes.get(id)?.next,
            None => &self.first,
        };
        links.get(level).copied().flatten()
    }

    fn set(&mut self, id: Option<RecordId>, level: usize, next: Option<RecordId>) {
        let links = match id {
            Some(id) => self.nodes.get_mut(id).map(|node| &mut node.next),
            None => Some(&mut self.first),
        };
        if let Some(link) = links.and_then(|links| links.get_mut(level)) {
            *link = next;
        }
    }

    /// On how many levels a record is to be: one more with a chance of a quarter each.
    fn height(&mut self) -> usize {
        // One step of splitmix64.
        self.seed = self.seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.seed;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^= x >> 31;
        let pairs = usize::try_from(x.trailing_zeros() / 2).unwrap_or(0);
        (pairs + 1).min(LEVELS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    impl Keyed for u16 {
        type Key = Self;

        fn key(&self) -> Self {
            *self
        }
    }

    fn all(order: &SkipList<u16>) -> Vec<u16> {
        let mut found = Vec::new();
        let mut at = order.behind(None);
        while let Some(id) = at {
            found.push(*order.get(id).unwrap());
            at = order.behind(Some(id));
        }
        found
    }

    proptest! {
        #[test]
        fn values_stay_in_order_until_they_are_removed(
            keys in proptest::collection::vec((0..200u16, prop::bool::weighted(0.6)), 0..400),
            seed: u64,
        ) {
            let mut order = SkipList::new(seed);
            let mut model = BTreeSet::new();
            for (key, goes_in) in keys {
                let path = order.path(key);
                let here = order.behind(path.before());
                let here = here.filter(|&id| order.get(id) == Some(&key));
                prop_assert_eq!(here.is_some(), model.contains(&key));
                match (here, goes_in) {
                    (None, true) => {
                        let id = order.insert(key).unwrap();
                        order.link(id, &path);
                        model.insert(key);
                    }
                    (Some(id), false) => {
                        order.unlink(id, &path);
                        order.discard(id);
                        prop_assert!(order.get(id).is_none());
                        model.remove(&key);
                    }
                    _ => {}
                }
                prop_assert_eq!(order.len(), model.len());
                let next = order.from(key).and_then(|id| order.get(id)).copied();
                prop_assert_eq!(next, model.range(key..).next().copied());
            }
            prop_assert_eq!(all(&order), model.into_iter().collect::<Vec<_>>());
        }
    }
}
