// SPDX-License-Identifier: GPL-2.0
//! The memory objects that a tenant has mapped through UVM.
//!
//! UVM duplicates what it maps (`uvm_map_external_allocation_on_gpu()`, uvm_map_external.c), once
//! for each GPU: the memory stays until the mapping goes, whatever becomes of the object. Each
//! mapping is therefore a hold on what the object costs.
//!
//! Mappings are kept in order of file, GPU and address. Those that share file and GPU never
//! overlap, as in the driver. One of which a later mapping took a part is *split* in the driver;
//! what is left of it there is not followed, it counts until its file is closed.
//!
//! Each mapping takes page tables of its GPU's, which neighbours in the same order share: what a
//! change of the order changes of them is told to the ledger ([`super::paging`]).

use crate::{
    nvidia::memory::PageSize,
    policy::{
        count::Change,
        event::{
            Map,
            RefusalCause, //
        },
        ids::{
            FileId,
            GpuId, //
        },
        life::{
            Moments,
            UvmLife, //
        },
        paging::Extent,
        records::{
            RecordId,
            Ref, //
        },
        skip_list::{
            Keyed,
            Path,
            SkipList, //
        },
        span::Span,
        steps::step, //
    },
    store::Exhausted, //
};

/// Most mappings of one tenant. CUDA makes one for each piece of memory, of 2 MiB or more.
pub(super) const MOST_MAPPINGS: usize = 1 << 18;

/// Comes after all GPUs of a file: its split mappings, in order of their serial numbers.
const SPLIT: u64 = u64::MAX;

/// File, GPU or [`SPLIT`], address or serial number.
type MappingKey = (u64, u64, u64);

#[derive(Debug)]
struct GpuMapping {
    key: MappingKey,
    base: u64,
    length: u64,
    /// Leaving: it is split, and the driver may have parts of it.
    life: UvmLife,
    gpu: GpuId,
    page: PageSize,
    uuid: [u8; 16],
    /// Its hold on what it keeps charged; `None` for memory that costs nothing.
    hold: Option<RecordId>,
}

impl Keyed for GpuMapping {
    type Key = MappingKey;

    fn key(&self) -> MappingKey {
        self.key
    }
}

impl GpuMapping {
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

    /// Its place in the order that tells which mappings are neighbours; `None`: it is split,
    /// and takes its tables alone.
    fn place(&self) -> Option<(u64, u64)> {
        (self.key.1 != SPLIT).then_some((self.key.0, self.key.1))
    }
}

/// The mappings that [`GpuMappings::prepare`] has split, as they were before.
#[derive(Debug)]
pub(super) struct Splits {
    was: [Option<(RecordId, UvmLife)>; 2],
    /// The way to the new one's place; `None`: what was split stood on it.
    path: Option<Path>,
    /// The change of the GPU's page tables.
    pub(super) tables: Change,
}

/// A walk over the mappings in a span.
#[derive(Debug)]
pub(super) struct Walk {
    span: Span,
    /// The GPU, as in keys.
    place: u64,
    /// The way to the span on it, or to one that was there.
    path: Path,
}

/// A mapping that is gone.
#[derive(Debug)]
pub(super) struct Gone {
    /// The hold that is to be released.
    pub(super) hold: Option<RecordId>,
    pub(super) gpu: GpuId,
    /// The change of the GPU's page tables.
    pub(super) tables: Change,
}

/// How the mappings of a file for a GPU lie at an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Edge {
    /// One goes across, with this first byte and this last one.
    Across(u64, u64),
    /// One that the driver has begins there, or ends before.
    Met,
    /// None of those that are followed.
    Open,
}

/// A mapping of a tenant, as `Accounting::mapped` tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FoundMapping {
    pub(super) name: Ref,
    pub(super) gpu: GpuId,
    /// The GPU that it is for, as UVM names it.
    pub uuid: [u8; 16],
    /// Its address.
    pub base: u64,
    /// Its length in bytes.
    pub length: u64,
}

/// All mappings of a tenant.
#[derive(Debug)]
pub(super) struct GpuMappings {
    records: SkipList<GpuMapping>,
    moments: Moments,
}

impl GpuMappings {
    pub(super) const fn new(seed: u64) -> Self {
        Self {
            records: SkipList::new(seed),
            moments: Moments::new(),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.records.len() == 0
    }

    /// The present moment: see [`Moments::now`].
    pub(super) fn now(&self) -> u64 {
        self.moments.now()
    }

    /// Makes room for a mapping, so that [`GpuMappings::insert`] cannot fail, and splits what it
    /// would take parts of.
    pub(super) fn prepare(
        &mut self,
        file: FileId,
        gpu: GpuId,
        base: u64,
        last: u64,
    ) -> Result<Splits, RefusalCause> {
        if self.records.len() >= MOST_MAPPINGS {
            return Err(RefusalCause::Exhausted);
        }
        self.records.reserve()?;
        let (file, place) = (file.0, u64::from(gpu.0));
        let here = (file, place, base);
        let path = self.records.path(here);
        let left = path.before().filter(|&left| {
            let left = self.records.get(left);
            left.is_some_and(|l| (l.key.0, l.key.1) == (file, place) && l.last() >= base)
        });
        // Only the first and the last of those that it meets can have parts outside.
        let mut at = self.records.behind(path.before());
        at = at.filter(|&at| self.begins(at, file, place, last));
        let mut right = None;
        while let Some(id) = at {
            step();
            let record = self.records.get(id).ok_or(Exhausted)?;
            if record.life == UvmLife::Coming {
                return Err(RefusalCause::MappingInFlight);
            }
            if record.last() <= last {
                return Err(RefusalCause::MappingInTheWay);
            }
            right = Some(id);
            let next = self.records.behind(Some(id));
            at = next.filter(|&next| self.begins(next, file, place, last));
        }
        let coming = |id: RecordId| {
            let record = self.records.get(id);
            record.is_some_and(|record| record.life == UvmLife::Coming)
        };
        if left.is_some_and(coming) {
            return Err(RefusalCause::MappingInFlight);
        }
        let was = [left, right].map(|id| {
            let record = self.records.get(id?)?;
            Some((id?, record.life))
        });
        let mut tables = Change::default();
        for (id, _) in was.into_iter().flatten() {
            tables = tables.and(self.split(id));
        }
        let path = (left.is_none() && right.is_none()).then_some(path);
        Ok(Splits { was, path, tables })
    }

    /// Makes of what was split what it was, nothing having happened since. Gives what that means
    /// for the GPU's page tables.
    pub(super) fn rejoin(&mut self, splits: &Splits) -> Change {
        let mut tables = Change::default();
        for (id, life) in splits.was.into_iter().flatten() {
            tables = tables.and(self.unlink(id, None));
            if let Some(record) = self.records.get_mut(id) {
                record.key = (record.key.0, u64::from(record.gpu.0), record.base);
                record.life = life;
            }
            tables = tables.and(self.link(id, None));
        }
        tables
    }

    /// Adds a mapping that the driver is about to be asked for, for which [`GpuMappings::prepare`]
    /// has made room. Gives what that means for the GPU's page tables, too.
    pub(super) fn insert(
        &mut self,
        map: &Map,
        page: PageSize,
        hold: Option<RecordId>,
        splits: &Splits,
    ) -> Result<(Ref, Change), Exhausted> {
        let id = self.records.insert(GpuMapping {
            key: (map.file.0, u64::from(map.gpu.0), map.base),
            base: map.base,
            length: map.length,
            life: UvmLife::Coming,
            gpu: map.gpu,
            page,
            uuid: map.uuid,
            hold,
        })?;
        let tables = self.link(id, splits.path.as_ref());
        Ok((self.records.name(id).ok_or(Exhausted)?, tables))
    }

    /// The driver has the mapping.
    pub(super) fn settle(&mut self, name: Ref) {
        let now = self.moments.next();
        if let Some(record) = self.records.named_mut(name) {
            record.life.settle(now);
        }
    }

    /// The driver has the mapping no longer, or never had it.
    pub(super) fn end(&mut self, name: Ref) -> Option<Gone> {
        let id = self.records.find(name)?;
        if self.records.get(id)?.life == UvmLife::Leaving {
            return None;
        }
        self.remove(id, None)
    }

    /// The driver has closed the file. Gives one mapping of it, as long as there are any.
    pub(super) fn take_of(&mut self, file: FileId) -> Option<Gone> {
        let id = self.records.from((file.0, 0, 0))?;
        let record = self.records.get(id)?;
        if record.key.0 != file.0 {
            return None;
        }
        self.remove(id, None)
    }

    /// The first mapping that lies whole in a span and was there at that moment.
    pub(super) fn within(&self, span: Span, moment: u64) -> Option<FoundMapping> {
        let id = self.next_within(&mut self.walk(span), moment)?;
        let record = self.records.get(id)?;
        Some(FoundMapping {
            name: self.records.name(id)?,
            gpu: record.gpu,
            uuid: record.uuid,
            base: record.base,
            length: record.length,
        })
    }

    /// How mappings lie at an address.
    pub(super) fn edge(&self, file: FileId, gpu: GpuId, at: u64) -> Edge {
        let place = (file.0, u64::from(gpu.0));
        let near = |id: Option<RecordId>| {
            let record = self.records.get(id?)?;
            (record.place() == Some(place)).then_some(record)
        };
        let path = self.records.path((place.0, place.1, at));
        let before = path.before();
        let left = near(before);
        if let Some(left) = left.filter(|left| left.last() >= at) {
            return Edge::Across(left.base, left.last());
        }
        let is_here = |record: &GpuMapping| record.life.is_here();
        let ends = |left: &GpuMapping| left.last().checked_add(1) == Some(at) && is_here(left);
        let begins = |right: &GpuMapping| right.base == at && is_here(right);
        if left.is_some_and(ends) || near(self.records.behind(before)).is_some_and(begins) {
            return Edge::Met;
        }
        Edge::Open
    }

    /// The beginning of a walk over all mappings in a span.
    pub(super) fn walk(&self, span: Span) -> Walk {
        let place = span.gpu.map_or(0, |gpu| u64::from(gpu.0));
        Walk {
            span,
            place,
            path: self.records.path((span.file.0, place, span.base)),
        }
    }

    /// Takes the next mapping of a walk out that lies whole in the span and was there at that
    /// moment: the driver has it no longer.
    pub(super) fn take_next(&mut self, walk: &mut Walk, moment: u64) -> Option<Gone> {
        let id = self.next_within(walk, moment)?;
        if self.records.behind(walk.path.before()) != Some(id) {
            walk.path = self.records.path(self.records.get(id)?.key);
        }
        self.remove(id, Some(&walk.path))
    }

    /// That mapping. The walk gets on to its GPU.
    fn next_within(&self, walk: &mut Walk, moment: u64) -> Option<RecordId> {
        let span = walk.span;
        let file = span.file.0;
        loop {
            step();
            let id = self.records.behind(walk.path.before())?;
            let key = self.records.get(id)?.key;
            if key.0 != file || key.1 == SPLIT || (span.gpu.is_some() && key.1 != walk.place) {
                return None;
            }
            if key.1 == walk.place {
                let mut at = Some(id);
                while let Some(id) = at.filter(|&at| self.begins(at, file, key.1, span.last)) {
                    step();
                    let record = self.records.get(id)?;
                    if record.life.was_here(moment) && record.last() <= span.last {
                        return Some(id);
                    }
                    at = self.records.behind(Some(id));
                }
                if span.gpu.is_some() {
                    return None;
                }
                walk.place += 1;
            } else {
                // The file has nothing more on that GPU, but on this one.
                walk.place = key.1;
            }
            walk.path = self.records.path((file, walk.place, span.base));
        }
    }

    /// A record is for the file and GPU and begins not behind `last`.
    fn begins(&self, id: RecordId, file: u64, place: u64, last: u64) -> bool {
        let key = self.records.get(id).map(|record| record.key);
        key.is_some_and(|key| (key.0, key.1) == (file, place) && key.2 <= last)
    }

    fn split(&mut self, id: RecordId) -> Change {
        let out = self.unlink(id, None);
        let serial = self.moments.next();
        if let Some(record) = self.records.get_mut(id) {
            record.key = (record.key.0, SPLIT, serial);
            record.life = UvmLife::Leaving;
        }
        out.and(self.link(id, None))
    }

    fn remove(&mut self, id: RecordId, path: Option<&Path>) -> Option<Gone> {
        let record = self.records.get(id)?;
        let (hold, gpu) = (record.hold, record.gpu);
        let tables = self.unlink(id, path);
        self.records.discard(id);
        Some(Gone { hold, gpu, tables })
    }

    /// Bytes of tables that a mapping takes or shares with its neighbours: more than without it,
    /// less than without it.
    fn tables(&self, before: Option<RecordId>, id: RecordId, behind: Option<RecordId>) -> Change {
        let Some(own) = self.records.get(id) else {
            return Change::default();
        };
        let near = |id: Option<RecordId>| {
            let record = self.records.get(id?)?;
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

    /// The way to a record's place: the one that is known, or else the one that is `found`.
    fn way<'a>(
        &self,
        id: RecordId,
        known: Option<&'a Path>,
        found: &'a mut Option<Path>,
    ) -> Option<&'a Path> {
        match known {
            Some(path) => Some(path),
            None => Some(found.insert(self.records.path(self.records.get(id)?.key))),
        }
    }

    /// Puts a record into the order. Gives what that means for its GPU's page tables.
    fn link(&mut self, id: RecordId, path: Option<&Path>) -> Change {
        let mut found = None;
        let Some(path) = self.way(id, path, &mut found) else {
            return Change::default();
        };
        let before = path.before();
        let tables = self.tables(before, id, self.records.behind(before));
        self.records.link(id, path);
        tables
    }

    /// Takes a record out of the order. Gives what that means for its GPU's page tables.
    fn unlink(&mut self, id: RecordId, path: Option<&Path>) -> Change {
        let mut found = None;
        let Some(path) = self.way(id, path, &mut found) else {
            return Change::default();
        };
        let tables = self.tables(path.before(), id, self.records.behind(Some(id)));
        self.records.unlink(id, path);
        Change {
            more: tables.less,
            less: tables.more,
        }
    }
}
