// SPDX-License-Identifier: GPL-2.0
//! Records of one sort in a list, named by small numbers that stay the same while the record lives.

use crate::{
    policy::count::lower,
    store::{
        Exhausted,
        List, //
    }, //
};
use core::num::NonZeroU32;

/// The number of a record: that of its place, counted from 1. So an optional one takes no more
/// room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RecordId(NonZeroU32);

impl RecordId {
    fn from_index(index: usize) -> Option<Self> {
        let number = u32::try_from(index).ok()?.checked_add(1)?;
        let number = NonZeroU32::new(number).filter(|number| number.get() < MARK)?;
        Some(Self(number))
    }

    fn index(self) -> usize {
        // A target whose usize has not 32 bits would find no record; there is none in the kernel.
        usize::try_from(self.0.get()).map_or(usize::MAX, |number| number - 1)
    }

    /// As a number other than 0, for tables.
    pub(super) fn number(self) -> NonZeroU32 {
        self.0
    }
}

impl From<NonZeroU32> for RecordId {
    fn from(number: NonZeroU32) -> Self {
        Self(number)
    }
}

/// The bit that is never set in the number of a place.
const MARK: u32 = 1 << 31;

/// A place with a mark, which takes no more room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Marked(NonZeroU32);

impl Marked {
    pub(super) fn new(id: RecordId, mark: bool) -> Self {
        Self(id.0 | if mark { MARK } else { 0 })
    }

    pub(super) fn id(self) -> RecordId {
        // The rest is the number of a place, and so not 0.
        RecordId(NonZeroU32::new(self.0.get() & !MARK).unwrap_or(NonZeroU32::MIN))
    }

    pub(super) fn is_marked(self) -> bool {
        self.0.get() & MARK != 0
    }
}

/// A place together with the one record that is meant. When that is gone, the reference finds
/// nothing, also after another record has taken the place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ref {
    id: RecordId,
    serial: u64,
}

#[derive(Debug)]
enum Body<T> {
    Vacant { next: Option<RecordId> },
    Taken(T),
}

/// The records. When the last one goes, the memory goes with it.
#[derive(Debug)]
pub(super) struct Records<T> {
    bodies: List<Body<T>>,
    vacant: Option<RecordId>,
    taken: usize,
}

impl<T> Records<T> {
    pub(super) const fn new() -> Self {
        Self {
            bodies: List::new(),
            vacant: None,
            taken: 0,
        }
    }

    /// How many records there are.
    pub(super) fn len(&self) -> usize {
        self.taken
    }

    /// Makes room, so that the next [`Records::insert`] cannot fail.
    pub(super) fn reserve(&mut self) -> Result<(), Exhausted> {
        match self.vacant {
            Some(_) => Ok(()),
            None => {
                RecordId::from_index(self.bodies.len()).ok_or(Exhausted)?;
                self.bodies.reserve(1)
            }
        }
    }

    /// Adds a record.
    pub(super) fn insert(&mut self, value: T) -> Result<RecordId, Exhausted> {
        let taken = Body::Taken(value);
        let vacant = self.vacant.and_then(|id| {
            let body = self.bodies.get_mut(id.index())?;
            Some((id, body))
        });
        let id = match vacant {
            Some((id, body)) => {
                if let Body::Vacant { next } = *body {
                    self.vacant = next;
                }
                *body = taken;
                id
            }
            None => {
                let id = RecordId::from_index(self.bodies.len()).ok_or(Exhausted)?;
                self.bodies.push(taken)?;
                id
            }
        };
        self.taken += 1;
        Ok(id)
    }

    /// Takes a record out.
    pub(super) fn remove(&mut self, id: RecordId) -> Option<T> {
        let body = self.bodies.get_mut(id.index())?;
        let next = self.vacant;
        match core::mem::replace(body, Body::Vacant { next }) {
            Body::Taken(value) => {
                self.vacated(id);
                Some(value)
            }
            vacant => {
                *body = vacant;
                None
            }
        }
    }

    /// Drops a record where it is: taken out, a large one is copied more than once.
    pub(super) fn discard(&mut self, id: RecordId) {
        let next = self.vacant;
        if let Some(body @ Body::Taken(_)) = self.bodies.get_mut(id.index()) {
            *body = Body::Vacant { next };
            self.vacated(id);
        }
    }

    /// A place has become vacant, which knows the one that was before.
    fn vacated(&mut self, id: RecordId) {
        self.vacant = Some(id);
        lower(&mut self.taken, 1);
        if self.taken == 0 {
            self.vacant = None;
            self.bodies = List::new();
        }
    }

    pub(super) fn get(&self, id: RecordId) -> Option<&T> {
        match self.bodies.get(id.index())? {
            Body::Taken(value) => Some(value),
            Body::Vacant { .. } => None,
        }
    }

    pub(super) fn get_mut(&mut self, id: RecordId) -> Option<&mut T> {
        match self.bodies.get_mut(id.index())? {
            Body::Taken(value) => Some(value),
            Body::Vacant { .. } => None,
        }
    }

    /// The records from the place number `from` on, each with the number of its place.
    pub(super) fn places(&self, from: usize) -> impl Iterator<Item = (usize, &T)> {
        let bodies = self.bodies.iter().enumerate().skip(from);
        bodies.filter_map(|(place, body)| match body {
            Body::Taken(value) => Some((place, value)),
            Body::Vacant { .. } => None,
        })
    }

    /// All records, in the order of their places.
    pub(super) fn iter(&self) -> impl Iterator<Item = &T> {
        self.bodies.iter().filter_map(|body| match body {
            Body::Taken(value) => Some(value),
            Body::Vacant { .. } => None,
        })
    }
}

/// A record and the number that no other one ever has.
#[derive(Debug)]
struct Numbered<T> {
    serial: u64,
    value: T,
}

/// Records that can be referred to when they may be gone.
#[derive(Debug)]
pub(super) struct Named<T> {
    records: Records<Numbered<T>>,
    serial: u64,
}

impl<T> Named<T> {
    pub(super) const fn new() -> Self {
        Self {
            records: Records::new(),
            serial: 0,
        }
    }

    /// As [`Records::len`].
    pub(super) fn len(&self) -> usize {
        self.records.len()
    }

    /// As [`Records::reserve`].
    pub(super) fn reserve(&mut self) -> Result<(), Exhausted> {
        self.records.reserve()
    }

    /// As [`Records::insert`].
    pub(super) fn insert(&mut self, value: T) -> Result<RecordId, Exhausted> {
        let serial = self.serial + 1;
        let id = self.records.insert(Numbered { serial, value })?;
        self.serial = serial;
        Ok(id)
    }

    /// As [`Records::remove`].
    pub(super) fn remove(&mut self, id: RecordId) -> Option<T> {
        self.records.remove(id).map(|record| record.value)
    }

    /// As [`Records::discard`].
    pub(super) fn discard(&mut self, id: RecordId) {
        self.records.discard(id);
    }

    pub(super) fn get(&self, id: RecordId) -> Option<&T> {
        self.records.get(id).map(|record| &record.value)
    }

    pub(super) fn get_mut(&mut self, id: RecordId) -> Option<&mut T> {
        let record = self.records.get_mut(id)?;
        Some(&mut record.value)
    }

    /// A reference that outlives the record safely.
    pub(super) fn name(&self, id: RecordId) -> Option<Ref> {
        let serial = self.records.get(id)?.serial;
        Some(Ref { id, serial })
    }

    /// The place of the record that `name` means, if it is still there.
    pub(super) fn find(&self, name: Ref) -> Option<RecordId> {
        (self.name(name.id) == Some(name)).then_some(name.id)
    }
}

#[cfg(test)]
impl<T> Records<T> {
    /// Bytes that a record takes.
    pub(super) const BYTES: usize = size_of::<Body<T>>();
}

#[cfg(test)]
impl<T> Named<T> {
    /// Bytes that a record takes.
    pub(super) const BYTES: usize = Records::<Numbered<T>>::BYTES;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reference_never_finds_a_later_record() {
        let mut records = Named::new();
        let id = records.insert('a').unwrap();
        let name = records.name(id).unwrap();
        assert_eq!(records.find(name), Some(id));
        assert_eq!(records.remove(id), Some('a'));
        assert_eq!(records.find(name), None);
        // The list starts anew, at the same place.
        assert_eq!(records.insert('b').unwrap(), id);
        assert_eq!(records.find(name), None);
        assert_eq!(records.get(id), Some(&'b'));
    }

    #[test]
    fn places_are_reused_and_freed_when_empty() {
        let mut records = Records::new();
        let taken: Vec<RecordId> = (0..10).map(|n| records.insert(n).unwrap()).collect();
        for &id in &taken[..9] {
            records.remove(id);
        }
        for n in 0..9 {
            records.insert(n).unwrap();
        }
        assert_eq!(records.bodies.len(), 10);
        assert_eq!(records.len(), 10);
        for id in taken {
            records.remove(id);
            assert_eq!(records.remove(id), None);
        }
        assert_eq!(records.bodies.len(), 0);
    }
}
