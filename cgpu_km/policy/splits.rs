// SPDX-License-Identifier: GPL-2.0
//! Addresses of one UVM file at which the driver may have cut its managed ranges for a call.
//!
//! A call that changes the policy or the group of a part of a managed range has the driver cut the
//! range at the ends of that part, at any page (`uvm_va_range_split()`, uvm_va_range.c). A block of
//! 2 MiB in which there are pages is cut as well. The driver joins nothing again, whatever the
//! policies become. So each address counts once, before the driver is asked, until the memory there
//! is unmapped. Whether the driver has cut is not asked: a program can forge its answers.

use crate::{
    policy::count::lower,
    store::{
        Exhausted,
        List, //
    }, //
};

/// Most of one file. A process cannot have more mappings (65,530 unless the host says otherwise).
const MOST: usize = 1 << 16;

/// Bytes of the host's memory that the driver takes for one: a range, a block with its masks and
/// its pointers for 256 GPUs, and a GPU's state of it (`uvm_va_block_t`, uvm_va_block.h).
pub(super) const SPLIT_STRUCT: u64 = 8 << 10;

/// All of one file.
#[derive(Debug)]
pub(super) struct RangeSplits {
    /// In order.
    at: List<u64>,
    /// Calls in flight that can cut.
    in_flight: u32,
}

impl RangeSplits {
    pub(super) const fn new() -> Self {
        Self {
            at: List::new(),
            in_flight: 0,
        }
    }

    /// How many there are.
    pub(super) fn len(&self) -> u64 {
        self.at.len().try_into().unwrap_or(u64::MAX)
    }

    pub(super) fn has(&self, at: u64) -> bool {
        self.at.binary_search(&at).is_ok()
    }

    /// Makes room for two more.
    pub(super) fn reserve(&mut self) -> Result<(), Exhausted> {
        if self.at.len().saturating_add(2) > MOST {
            return Err(Exhausted);
        }
        self.at.reserve(2)
    }

    /// Adds one, for which there is room.
    pub(super) fn add(&mut self, at: u64) {
        let Err(place) = self.at.binary_search(&at) else {
            return;
        };
        if self.at.push(at).is_ok() {
            if let Some(tail) = self.at.get_mut(place..) {
                tail.rotate_right(1);
            }
        }
    }

    /// A call that can cut begins.
    pub(super) fn begin(&mut self) {
        self.in_flight = self.in_flight.saturating_add(1);
    }

    /// It has ended.
    pub(super) fn end(&mut self) {
        lower(&mut self.in_flight, 1);
    }

    /// The memory of a span is unmapped. Returns how many have gone with it: none while a call is
    /// in flight, which could cut what is mapped there next.
    pub(super) fn remove(&mut self, base: u64, last: u64) -> u64 {
        if self.in_flight != 0 {
            return 0;
        }
        let from = self.at.partition_point(|at| *at < base);
        let to = self.at.partition_point(|at| *at <= last);
        let gone = to.saturating_sub(from);
        if let Some(tail) = self.at.get_mut(from..) {
            tail.rotate_left(gone);
        }
        self.at.truncate(self.at.len().saturating_sub(gone));
        gone.try_into().unwrap_or(u64::MAX)
    }
}
