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

/// The place of a record, counted from 1 so that an optional one takes no more room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Slot(NonZeroU32);

impl Slot {
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

impl From<NonZeroU32> for Slot {
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
    pub(super) fn new(slot: Slot, mark: bool) -> Self {
        Self(slot.0 | if mark { MARK } else { 0 })
    }

    pub(super) fn slot(self) -> Slot {
        // The rest is the number of a place, and so not 0.
        Slot(NonZeroU32::new(self.0.get() & !MARK).unwrap_or(NonZeroU32::MIN))
    }

    pub(super) fn is_marked(self) -> bool {
        self.0.get() & MARK != 0
    }
}

/// A place together with the one record that is meant. When that is gone, the reference finds
/// nothing, also after another record has taken the place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ref {
    slot: Slot,
    serial: u64,
}

#[derive(Debug)]
enum Body<T> {
    Vacant { next: Option<Slot> },
    Taken(T),
}

/// The records. When the last one goes, the memory goes with it.
#[derive(Debug)]
pub(super) struct Slots<T> {
    bodies: List<Body<T>>,
    vacant: Option<Slot>,
    taken: usize,
}

impl<T> Slots<T> {
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

    /// Makes room, so that the next [`Slots::insert`] cannot fail.
    pub(super) fn reserve(&mut self) -> Result<(), Exhausted> {
        match self.vacant {
            Some(_) => Ok(()),
            None => {
                Slot::from_index(self.bodies.len()).ok_or(Exhausted)?;
                self.bodies.reserve(1)
            }
        }
    }

    /// Adds a record.
    pub(super) fn insert(&mut self, value: T) -> Result<Slot, Exhausted> {
        let taken = Body::Taken(value);
        let vacant = self.vacant.and_then(|slot| {
            let body = self.bodies.get_mut(slot.index())?;
            Some((slot, body))
        });
        let slot = match vacant {
            Some((slot, body)) => {
                if let Body::Vacant { next } = *body {
                    self.vacant = next;
                }
                *body = taken;
                slot
            }
            None => {
                let slot = Slot::from_index(self.bodies.len()).ok_or(Exhausted)?;
                self.bodies.push(taken)?;
                slot
            }
        };
        self.taken += 1;
        Ok(slot)
    }

    /// Takes a record out.
    pub(super) fn remove(&mut self, slot: Slot) -> Option<T> {
        let body = self.bodies.get_mut(slot.index())?;
        let next = self.vacant;
        match core::mem::replace(body, Body::Vacant { next }) {
            Body::Taken(value) => {
                self.vacated(slot);
                Some(value)
            }
            vacant => {
                *body = vacant;
                None
            }
        }
    }

    /// Drops a record where it is: taken out, a large one is copied more than once.
    pub(super) fn discard(&mut self, slot: Slot) {
        let next = self.vacant;
        if let Some(body @ Body::Taken(_)) = self.bodies.get_mut(slot.index()) {
            *body = Body::Vacant { next };
            self.vacated(slot);
        }
    }

    /// A place has become vacant, which knows the one that was before.
    fn vacated(&mut self, slot: Slot) {
        self.vacant = Some(slot);
        lower(&mut self.taken, 1);
        if self.taken == 0 {
            self.vacant = None;
            self.bodies = List::new();
        }
    }

    pub(super) fn get(&self, slot: Slot) -> Option<&T> {
        match self.bodies.get(slot.index())? {
            Body::Taken(value) => Some(value),
            Body::Vacant { .. } => None,
        }
    }

    pub(super) fn get_mut(&mut self, slot: Slot) -> Option<&mut T> {
        match self.bodies.get_mut(slot.index())? {
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
    records: Slots<Numbered<T>>,
    serial: u64,
}

impl<T> Named<T> {
    pub(super) const fn new() -> Self {
        Self {
            records: Slots::new(),
            serial: 0,
        }
    }

    /// As [`Slots::len`].
    pub(super) fn len(&self) -> usize {
        self.records.len()
    }

    /// As [`Slots::reserve`].
    pub(super) fn reserve(&mut self) -> Result<(), Exhausted> {
        self.records.reserve()
    }

    /// As [`Slots::insert`].
    pub(super) fn insert(&mut self, value: T) -> Result<Slot, Exhausted> {
        let serial = self.serial + 1;
        let slot = self.records.insert(Numbered { serial, value })?;
        self.serial = serial;
        Ok(slot)
    }

    /// As [`Slots::remove`].
    pub(super) fn remove(&mut self, slot: Slot) -> Option<T> {
        self.records.remove(slot).map(|record| record.value)
    }

    /// As [`Slots::discard`].
    pub(super) fn discard(&mut self, slot: Slot) {
        self.records.discard(slot);
    }

    pub(super) fn get(&self, slot: Slot) -> Option<&T> {
        self.records.get(slot).map(|record| &record.value)
    }

    pub(super) fn get_mut(&mut self, slot: Slot) -> Option<&mut T> {
        let record = self.records.get_mut(slot)?;
        Some(&mut record.value)
    }

    /// A reference that outlives the record safely.
    pub(super) fn name(&self, slot: Slot) -> Option<Ref> {
        let serial = self.records.get(slot)?.serial;
        Some(Ref { slot, serial })
    }

    /// The place of the record that `name` means, if it is still there.
    pub(super) fn find(&self, name: Ref) -> Option<Slot> {
        (self.name(name.slot) == Some(name)).then_some(name.slot)
    }
}

#[cfg(test)]
impl<T> Slots<T> {
    /// Bytes that a record takes.
    pub(super) const BYTES: usize = size_of::<Body<T>>();
}

#[cfg(test)]
impl<T> Named<T> {
    /// Bytes that a record takes.
    pub(super) const BYTES: usize = Slots::<Numbered<T>>::BYTES;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reference_never_finds_a_later_record() {
        let mut slots = Named::new();
        let slot = slots.insert('a').unwrap();
        let name = slots.name(slot).unwrap();
        assert_eq!(slots.find(name), Some(slot));
        assert_eq!(slots.remove(slot), Some('a'));
        assert_eq!(slots.find(name), None);
        // The list starts anew, at the same place.
        assert_eq!(slots.insert('b').unwrap(), slot);
        assert_eq!(slots.find(name), None);
        assert_eq!(slots.get(slot), Some(&'b'));
    }

    #[test]
    fn places_are_reused_and_freed_when_empty() {
        let mut slots = Slots::new();
        let taken: Vec<Slot> = (0..10).map(|n| slots.insert(n).unwrap()).collect();
        for &slot in &taken[..9] {
            slots.remove(slot);
        }
        for n in 0..9 {
            slots.insert(n).unwrap();
        }
        assert_eq!(slots.bodies.len(), 10);
        assert_eq!(slots.len(), 10);
        for slot in taken {
            slots.remove(slot);
            assert_eq!(slots.remove(slot), None);
        }
        assert_eq!(slots.bodies.len(), 0);
    }
}
