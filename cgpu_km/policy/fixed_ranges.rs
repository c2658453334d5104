// SPDX-License-Identifier: GPL-2.0
//! UVM's own mappings for the GPUs of one file, by the page tables that it takes: pools of
//! semaphores (`UVM_ALLOC_SEMAPHORE_POOL`), which take memory of the host as well, and the page by
//! which work starts work (`UVM_MAP_DYNAMIC_PARALLELISM_REGION`).
//!
//! Ranges of a file do not overlap, in the driver. So the same addresses are charged once, however
//! often a program makes and frees a range there, as CUDA does with each context.
//!
//! The driver frees a page for work that has just these addresses, and cannot refuse that
//! (`uvm_free()`, uvm_map_external.c): then its tables are credited. It refuses to free a pool that
//! is mapped on the CPU, and a program can forge the status. So a pool stays charged until the file
//! is closed.

use crate::{
    nvidia::memory::PageSize,
    policy::{
        count::lower,
        paging::Extent, //
    },
    store::{
        Exhausted,
        List, //
    }, //
};

/// Most ranges of a file that are remembered. What comes on top is charged each time, until the
/// file is closed.
const MOST: usize = 1 << 10;

/// The largest pool of semaphores, bytes. CUDA makes one of 2 MiB for each context (tests/traces).
/// While the driver makes or frees one it keeps the lock of the file's address space, about half a
/// millisecond for each MiB. Whoever waits for that lock may hold one that all tenants need
/// (`uvm_api_enable_peer_access()`, uvm_va_space.c).
pub(super) const LARGEST_POOL: u64 = 32 << 20;

/// Most bytes in pools of a tenant, those of 512 contexts. The driver has 128 GiB of addresses for
/// the pools of all (`UVM_MEM_VA_SIZE`, uvm_mem.c).
pub(super) const MOST_POOLS: u64 = 1 << 30;

/// A range of UVM's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FixedKind {
    /// Semaphores, which the CPU can map.
    SemaphorePool,
    /// The page by which work starts work.
    ParallelismRegion,
}

#[derive(Debug)]
struct Record {
    base: u64,
    last: u64,
    /// The driver was asked for a pool there at some time, and may have it.
    is_pool: bool,
    /// Calls in flight that ask for it.
    asking: u32,
    /// Of the last call that asked for it.
    number: u64,
}

/// A range that the driver may be asked to free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FixedEnd {
    base: u64,
    last: u64,
    number: u64,
}

/// All of one file.
#[derive(Debug)]
pub(super) struct FixedRanges {
    /// In order.
    records: List<Record>,
    tables: u64,
    /// Bytes of pools.
    pools: u64,
}

impl FixedRanges {
    pub(super) const fn new() -> Self {
        Self {
            records: List::new(),
            tables: 0,
            pools: 0,
        }
    }

    /// Bytes of the host's memory in pools.
    pub(super) fn pools(&self) -> u64 {
        self.pools
    }

    /// Bytes of page tables, on each GPU.
    pub(super) fn tables(&self) -> u64 {
        self.tables
    }

    fn find(&self, base: u64, last: u64) -> Result<usize, usize> {
        let key = |record: &Record| (record.base, record.last);
        self.records.binary_search_by_key(&(base, last), key)
    }

    fn record_mut(&mut self, base: u64, last: u64) -> Option<&mut Record> {
        let place = self.find(base, last).ok()?;
        self.records.get_mut(place)
    }

    /// Bytes of page tables that a range would add.
    pub(super) fn tables_more(&self, base: u64, last: u64) -> u64 {
        match self.find(base, last) {
            Ok(_) => 0,
            Err(_) => tables(base, last),
        }
    }

    /// Bytes of the host's memory that a range would add.
    pub(super) fn pools_more(&self, base: u64, last: u64, kind: FixedKind) -> u64 {
        let found = self.find(base, last).ok();
        let record = found.and_then(|place| self.records.get(place));
        if kind != FixedKind::SemaphorePool || record.is_some_and(|record| record.is_pool) {
            return 0;
        }
        (last - base).saturating_add(1)
    }

    /// The driver is about to be asked for a range, by the call of this number.
    pub(super) fn begin(
        &mut self,
        base: u64,
        last: u64,
        kind: FixedKind,
        number: u64,
    ) -> Result<(), Exhausted> {
        let is_pool = kind == FixedKind::SemaphorePool;
        let pools = self.pools_more(base, last, kind);
        let place = match self.find(base, last) {
            Ok(place) => {
                if let Some(record) = self.records.get_mut(place) {
                    record.is_pool |= is_pool;
                    record.asking = record.asking.saturating_add(1);
                    record.number = number;
                }
                self.pools = self.pools.saturating_add(pools);
                return Ok(());
            }
            Err(place) => place,
        };
        if self.records.len() < MOST {
            self.records.push(Record {
                base,
                last,
                is_pool,
                asking: 1,
                number,
            })?;
            if let Some(tail) = self.records.get_mut(place..) {
                tail.rotate_right(1);
            }
        }
        self.tables = self.tables.saturating_add(tables(base, last));
        self.pools = self.pools.saturating_add(pools);
        Ok(())
    }

    /// The driver has answered such a call.
    pub(super) fn end(&mut self, base: u64, last: u64) {
        if let Some(record) = self.record_mut(base, last) {
            lower(&mut record.asking, 1);
        }
    }

    /// A range that goes for certain if the driver is asked to free the one that begins there, and
    /// ends there, where an end is given.
    pub(super) fn going(&self, base: u64, last: Option<u64>) -> Option<FixedEnd> {
        let place = self.records.partition_point(|record| {
            (record.base, record.last) < (base, last.unwrap_or_default())
        });
        let record = self.records.get(place)?;
        let is_it = record.base == base && last.is_none_or(|last| record.last == last);
        let is_certain = is_it && !record.is_pool && record.asking == 0;
        is_certain.then_some(FixedEnd {
            base: record.base,
            last: record.last,
            number: record.number,
        })
    }

    /// The driver was asked to free it. Returns the bytes of page tables that are gone: none if
    /// it was asked for the range anew meanwhile.
    pub(super) fn gone(&mut self, end: FixedEnd) -> u64 {
        let found = self.find(end.base, end.last).ok();
        let same = |place: &usize| {
            let record = self.records.get(*place);
            record.is_some_and(|record| record.number == end.number)
        };
        let Some(place) = found.filter(same) else {
            return 0;
        };
        if let Some(tail) = self.records.get_mut(place..) {
            tail.rotate_left(1);
        }
        self.records.pop();
        let less = tables(end.base, end.last);
        lower(&mut self.tables, less);
        less
    }
}

fn tables(base: u64, last: u64) -> u64 {
    let page = PageSize::Small;
    Extent { base, last, page }.tables()
}
