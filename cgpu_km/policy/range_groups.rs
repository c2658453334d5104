// SPDX-License-Identifier: GPL-2.0
//! The range groups of one UVM file (`UVM_CREATE_RANGE_GROUP`).
//!
//! The driver numbers them from 1 in the order in which it makes them, and no number comes twice
//! (`uvm_api_create_range_group()`, uvm_range_group.c). A program can forge the number that it
//! gets. So the numbers are counted here: while no call for one is in flight, the driver has used
//! all up to the last one asked for. A call to take one away is believed, whatever its
//! status: the driver has none of that number then. After a call for a group that has failed, the
//! numbers may differ, and all count until the file is closed.

use crate::{
    policy::count::lower,
    store::{
        Exhausted,
        List, //
    }, //
};

/// Most of one file. A CUDA program has 140 at most (tests/traces).
const MOST: usize = 1 << 16;

/// Bytes of the host's memory that the driver takes for one, its place in the tree of the numbers
/// and a span of addresses included.
pub(super) const GROUP_STRUCT: u64 = 256;

/// All of one file.
#[derive(Debug)]
pub(super) struct RangeGroups {
    /// Numbers that count, in order.
    numbers: List<u64>,
    /// The last number asked for.
    asked: u64,
    /// The last one that the driver has used for certain.
    used: u64,
    in_flight: u32,
    is_lost: bool,
}

impl RangeGroups {
    pub(super) const fn new() -> Self {
        Self {
            numbers: List::new(),
            asked: 0,
            used: 0,
            in_flight: 0,
            is_lost: false,
        }
    }

    /// How many there are.
    pub(super) fn len(&self) -> u64 {
        self.numbers.len().try_into().unwrap_or(u64::MAX)
    }

    /// Makes room for one more.
    pub(super) fn reserve(&mut self) -> Result<(), Exhausted> {
        if self.numbers.len() >= MOST {
            return Err(Exhausted);
        }
        self.numbers.reserve(1)
    }

    /// The driver is about to be asked for one, for which there is room.
    pub(super) fn begin(&mut self) {
        self.asked = self.asked.saturating_add(1);
        self.in_flight = self.in_flight.saturating_add(1);
        // There is room.
        self.numbers.push(self.asked).unwrap_or(());
    }

    /// The driver has answered; `made`: it says that it has made one.
    pub(super) fn end(&mut self, made: bool) {
        self.is_lost |= !made;
        lower(&mut self.in_flight, 1);
        if self.in_flight == 0 {
            self.used = self.asked;
        }
    }

    /// Whether a number is gone for certain once the driver was asked to take it away.
    pub(super) fn is_certain(&self, number: u64) -> bool {
        !self.is_lost && number <= self.used
    }

    /// The driver was asked to take a number away of which [`RangeGroups::is_certain`] was true.
    /// Tells whether it counted.
    pub(super) fn remove(&mut self, number: u64) -> bool {
        let Ok(place) = self.numbers.binary_search(&number) else {
            return false;
        };
        if let Some(tail) = self.numbers.get_mut(place..) {
            tail.rotate_left(1);
        }
        self.numbers.pop();
        true
    }
}
