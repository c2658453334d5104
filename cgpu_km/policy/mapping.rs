// SPDX-License-Identifier: GPL-2.0
//! The memory objects that a tenant has mapped through UVM.
//!
//! UVM duplicates what it maps (`uvm_map_external_allocation_on_gpu()`, uvm_map_external.c), once for each
//! GPU: the memory stays until the mapping goes, whatever becomes of the object. Each mapping is therefore
//! a hold on what the object costs.
//!
//! Mappings are kept in order of file, GPU and address, in a skip list. Those that share file and GPU never
//! overlap, as in the driver. One of which a later mapping took a part is *split* in the driver; what is
//! left of it there is not followed, it counts until its file is closed.
//!
//! Each mapping takes page tables of its GPU's, which neighbours in the same order share: what a change of
//! the order changes of them is told to the ledger ([`super::paging`]).

use super::event::{FileId, GpuId};
use super::ledger::Change;
use super::maps::Map;
use super::paging::Extent;
use super::slots::{Named, Ref, Slot};
use super::table::step;
use crate::nvidia::memory::PageSize;
use crate::store::Exhausted;

/// Most mappings of one tenant. CUDA makes one for each piece of memory, of 2 MiB or more.
pub(super) const MOST_MAPPINGS: usize = 1 << 18;

/// Enough for [`MOST_MAPPINGS`], where a quarter of those of each level is on the next.
const LEVELS: usize = 9;
type Links = [Option<Slot>; LEVELS];

/// What comes after all GPUs of a file: its split mappings, in order of their serial numbers.
const SPLIT: u64 = u64::MAX;

/// File, GPU or [`SPLIT`], address or serial number.
type Key = (u64, u64, u64);

/// How far a mapping is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Life {
    /// The driver is being asked for it.
    Coming,
    /// The driver has it, since that moment.
    Here(u64),
    /// The driver may have parts of it.
    Split,
}

#[derive(Debug)]
struct Mapping {
    key: Key,
    base: u64,
    length: u64,
    life: Life,
    gpu: GpuId,
    page: PageSize,
    uuid: [u8; 16],
    /// What it keeps charged; `None` for memory that costs nothing.
    hold: Option<Slot>,
    next: Links,
}

impl Mapping {
    /// Its last byte.
    fn last(&self) -> u64 {
        self.base.saturating_add(self.length - 1)
    }

    fn extent(&self) -> Extent {
        Extent {
            base: self.base,
            last: self.last(),
            page: self.page,
        }
    }

    /// Where it stands in the order that tells which mappings are neighbours; `None`: it is split, and takes
    /// its tables alone.
    fn place(&self) -> Option<(u64, u64)> {
        (self.key.1 != SPLIT).then_some((self.key.0, self.key.1))
    }
}

/// What [`Mappings::prepare`] has split, with what it was before.
#[derive(Debug)]
pub(super) struct Splits {
    was: [Option<(Slot, Key, Life)>; 2],
    /// What that means for the GPU's page tables.
    pub(super) tables: Change,
}

/// A mapping that is gone.
#[derive(Debug)]
pub(super) struct Gone {
    /// What is to be released.
    pub(super) hold: Option<Slot>,
    pub(super) gpu: GpuId,
    /// What that means for the GPU's page tables.
    pub(super) tables: Change,
}

/// A mapping of a tenant, as [`super::Books::mapped`] tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mapped {
    pub(super) name: Ref,
    /// The GPU that it is for, as UVM names it.
    pub uuid: [u8; 16],
    /// Its address.
    pub base: u64,
    /// Its length in bytes.
    pub length: u64,
}

/// A part of an address space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// The UVM file, which is the address space.
    pub file: FileId,
    /// On this GPU alone.
    pub gpu: Option<GpuId>,
    /// The first byte.
    pub base: u64,
    /// The last byte.
    pub last: u64,
}

/// Why a mapping cannot be made now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Conflict {
    /// A call for the same addresses is in flight.
    InFlight,
    Exhausted,
}

impl From<Exhausted> for Conflict {
    fn from(_: Exhausted) -> Self {
        Self::Exhausted
    }
}

/// All mappings of a tenant.
#[derive(Debug)]
pub(super) struct Mappings {
    records: Named<Mapping>,
    first: Links,
    /// Counts what happens, so that it can be told what was there before.
    clock: u64,
    seed: u64,
}

impl Mappings {
    pub(super) const fn new(seed: u64) -> Self {
        Self {
            records: Named::new(),
            first: [None; LEVELS],
            clock: 0,
            seed,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.records.len() == 0
    }

    /// The present moment: what settles from now on does so later.
    pub(super) fn now(&self) -> u64 {
        self.clock
    }

    /// Makes room for a mapping, so that [`Mappings::insert`] cannot fail, and splits what it would take
    /// parts of.
    pub(super) fn prepare(
        &mut self,
        file: FileId,
        gpu: GpuId,
        base: u64,
        last: u64,
    ) -> Result<Splits, Conflict> {
        if self.records.len() >= MOST_MAPPINGS {
            return Err(Conflict::Exhausted);
        }
        self.records.reserve()?;
        let (file, place) = (file.0, u64::from(gpu.0));
        let here = (file, place, base);
        let left = self.path(here).first().copied().flatten();
        let left = left.filter(|&left| {
            let left = self.records.get(left);
            left.is_some_and(|l| (l.key.0, l.key.1) == (file, place) && l.last() >= base)
        });
        // Only the first and the last of those that it meets can have parts outside.
        let mut at = self
            .from(here)
            .filter(|&at| self.begins(at, file, place, last));
        let mut right = None;
        while let Some(slot) = at {
            step();
            let record = self.records.get(slot).ok_or(Exhausted)?;
            if record.last() <= last || record.life == Life::Coming {
                // What would go whole goes before: see Books::mapped.
                return Err(Conflict::InFlight);
            }
            right = Some(slot);
            let next = record.next.first().copied().flatten();
            at = next.filter(|&next| self.begins(next, file, place, last));
        }
        let coming = |slot: Slot| {
            let record = self.records.get(slot);
            record.is_some_and(|record| record.life == Life::Coming)
        };
        if left.is_some_and(coming) {
            return Err(Conflict::InFlight);
        }
        let was = [left, right].map(|slot| {
            let record = self.records.get(slot?)?;
            Some((slot?, record.key, record.life))
        });
        let mut tables = Change::default();
        for (slot, _, _) in was.into_iter().flatten() {
            tables = tables.and(self.split(slot));
        }
        Ok(Splits { was, tables })
    }

    /// Makes of what was split what it was, nothing having happened since. Gives what that means for the GPU's
    /// page tables.
    pub(super) fn rejoin(&mut self, splits: &Splits) -> Change {
        let mut tables = Change::default();
        for (slot, key, life) in splits.was.into_iter().flatten() {
            tables = tables.and(self.unlink(slot));
            if let Some(record) = self.records.get_mut(slot) {
                record.key = key;
                record.life = life;
            }
            tables = tables.and(self.link(slot));
        }
        tables
    }

    /// Adds a mapping that the driver is about to be asked for, for which [`Mappings::prepare`] has made
    /// room. Gives what that means for the GPU's page tables, too.
    pub(super) fn insert(
        &mut self,
        map: &Map,
        page: PageSize,
        hold: Option<Slot>,
    ) -> Result<(Ref, Change), Exhausted> {
        let slot = self.records.insert(Mapping {
            key: (map.file.0, u64::from(map.gpu.0), map.base),
            base: map.base,
            length: map.length,
            life: Life::Coming,
            gpu: map.gpu,
            page,
            uuid: map.uuid,
            hold,
            next: [None; LEVELS],
        })?;
        let tables = self.link(slot);
        Ok((self.records.name(slot).ok_or(Exhausted)?, tables))
    }

    /// The driver has the mapping.
    pub(super) fn settle(&mut self, name: Ref) {
        self.clock += 1;
        let now = self.clock;
        let slot = self.records.find(name);
        if let Some(record) = slot.and_then(|slot| self.records.get_mut(slot)) {
            if record.life == Life::Coming {
                record.life = Life::Here(now);
            }
        }
    }

    /// The driver has the mapping no longer, or never had it.
    pub(super) fn drop(&mut self, name: Ref) -> Option<Gone> {
        let slot = self.records.find(name)?;
        if self.records.get(slot)?.life == Life::Split {
            return None;
        }
        self.remove(slot)
    }

    /// The driver has closed the file. Gives one mapping of it, as long as there are any.
    pub(super) fn take_of(&mut self, file: FileId) -> Option<Gone> {
        let slot = self.from((file.0, 0, 0))?;
        let record = self.records.get(slot)?;
        match record.key.0 == file.0 {
            true => self.remove(slot),
            false => None,
        }
    }

    /// The first mapping that lies whole in a span and was there at that moment.
    pub(super) fn within(&self, span: Span, moment: u64) -> Option<Mapped> {
        let file = span.file.0;
        let mut place = span.gpu.map_or(0, |gpu| u64::from(gpu.0));
        loop {
            step();
            let slot = self.from((file, place, span.base))?;
            let key = self.records.get(slot)?.key;
            if key.0 != file || key.1 == SPLIT || (span.gpu.is_some() && key.1 != place) {
                return None;
            }
            if key.1 != place {
                // The file has nothing more on that GPU, but on this one.
                place = key.1;
                continue;
            }
            let mut at = Some(slot);
            while let Some(slot) = at.filter(|&at| self.begins(at, file, place, span.last)) {
                step();
                let record = self.records.get(slot)?;
                let old = matches!(record.life, Life::Here(since) if since <= moment);
                if old && record.last() <= span.last {
                    return Some(Mapped {
                        name: self.records.name(slot)?,
                        uuid: record.uuid,
                        base: record.base,
                        length: record.length,
                    });
                }
                at = self.behind(Some(slot), 0);
            }
            if span.gpu.is_some() {
                return None;
            }
            place += 1;
        }
    }

    /// A record is for the file and GPU and begins not behind `last`.
    fn begins(&self, slot: Slot, file: u64, place: u64, last: u64) -> bool {
        let key = self.records.get(slot).map(|record| record.key);
        key.is_some_and(|key| (key.0, key.1) == (file, place) && key.2 <= last)
    }

    fn split(&mut self, slot: Slot) -> Change {
        let out = self.unlink(slot);
        self.clock += 1;
        let serial = self.clock;
        if let Some(record) = self.records.get_mut(slot) {
            record.key = (record.key.0, SPLIT, serial);
            record.life = Life::Split;
        }
        out.and(self.link(slot))
    }

    fn remove(&mut self, slot: Slot) -> Option<Gone> {
        let tables = self.unlink(slot);
        let record = self.records.remove(slot)?;
        Some(Gone {
            hold: record.hold,
            gpu: record.gpu,
            tables,
        })
    }

    /// What tables a mapping takes, and what it shares with its neighbours: more than without it, less than
    /// without it.
    fn tables(&self, before: Option<Slot>, slot: Slot, behind: Option<Slot>) -> Change {
        let Some(own) = self.records.get(slot) else {
            return Change::default();
        };
        let near = |slot: Option<Slot>| {
            let record = self.records.get(slot?)?;
            (own.place().is_some() && record.place() == own.place()).then(|| record.extent())
        };
        let (before, behind) = (near(before), near(behind));
        let own = own.extent();
        let shared = |one: Option<Extent>, next: Option<Extent>| {
            let both = one.zip(next);
            both.map_or(0, |(one, next)| one.shared(&next))
        };
        let with = shared(before, Some(own)).saturating_add(shared(Some(own), behind));
        Change {
            more: own.tables().saturating_add(shared(before, behind)),
            less: with,
        }
    }

    /// The first record at or behind a key.
    fn from(&self, key: Key) -> Option<Slot> {
        let before = self.path(key).first().copied().flatten();
        self.behind(before, 0)
    }

    /// On each level, the last record before a key.
    fn path(&self, key: Key) -> Links {
        let mut path = [None; LEVELS];
        let mut at = None;
        for (level, place) in path.iter_mut().enumerate().rev() {
            while let Some(next) = self.behind(at, level) {
                step();
                if self
                    .records
                    .get(next)
                    .is_none_or(|record| record.key >= key)
                {
                    break;
                }
                at = Some(next);
            }
            *place = at;
        }
        path
    }

    /// The record behind another one on a level; `None`: behind the beginning.
    fn behind(&self, slot: Option<Slot>, level: usize) -> Option<Slot> {
        let links = match slot {
            Some(slot) => &self.records.get(slot)?.next,
            None => &self.first,
        };
        links.get(level).copied().flatten()
    }

    fn set_behind(&mut self, slot: Option<Slot>, level: usize, next: Option<Slot>) {
        let links = match slot {
            Some(slot) => self.records.get_mut(slot).map(|record| &mut record.next),
            None => Some(&mut self.first),
        };
        if let Some(link) = links.and_then(|links| links.get_mut(level)) {
            *link = next;
        }
    }

    /// Puts a record into the order. Gives what that means for its GPU's page tables.
    fn link(&mut self, slot: Slot) -> Change {
        let Some(key) = self.records.get(slot).map(|record| record.key) else {
            return Change::default();
        };
        let path = self.path(key);
        let before = path.first().copied().flatten();
        let tables = self.tables(before, slot, self.behind(before, 0));
        let height = self.height();
        for (level, &before) in path.iter().enumerate().take(height) {
            let next = self.behind(before, level);
            self.set_behind(Some(slot), level, next);
            self.set_behind(before, level, Some(slot));
        }
        tables
    }

    /// Takes a record out of the order. Gives what that means for its GPU's page tables.
    fn unlink(&mut self, slot: Slot) -> Change {
        let Some(key) = self.records.get(slot).map(|record| record.key) else {
            return Change::default();
        };
        let path = self.path(key);
        let before = path.first().copied().flatten();
        let tables = self.tables(before, slot, self.behind(Some(slot), 0));
        for (level, &before) in path.iter().enumerate() {
            if self.behind(before, level) == Some(slot) {
                let next = self.behind(Some(slot), level);
                self.set_behind(before, level, next);
                self.set_behind(Some(slot), level, None);
            }
        }
        Change {
            more: tables.less,
            less: tables.more,
        }
    }

    /// On how many levels a record is to be: one more with a chance of a quarter each.
    fn height(&mut self) -> usize {
        // One step of splitmix64, with a seed of which the tenant knows nothing.
        self.seed = self.seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.seed;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^= x >> 31;
        let pairs = usize::try_from(x.trailing_zeros() / 2).unwrap_or(0);
        (pairs + 1).min(LEVELS)
    }
}
