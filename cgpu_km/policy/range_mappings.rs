// SPDX-License-Identifier: GPL-2.0
//! The driver's records of what RM has mapped into ranges of a GPU's addresses.
//!
//! An unmapping of a part goes over all mappings of the range by way of the same device. The driver
//! takes away what lies whole in the part, shortens what lies across one of its ends, and cuts in
//! two what lies across both (`serverInterUnmapInternal()`, rs_server.c). It says that it has done
//! so where there was nothing, too. So it is followed here where each mapping begins and ends.
//!
//! There may be more records here than the driver has, never fewer. Memory that is freed takes its
//! mappings along (`_clientUnmapInterMappings()`, rs_client.c); they stay here until their range is
//! gone, or their addresses are unmapped. So mappings can overlap here, which the driver refuses
//! (`intermapRegisterDmaMapping()`, mapping_list.c).

use crate::{
    policy::{
        records::RecordId,
        skip_list::{
            Keyed,
            SkipList, //
        },
        steps::step, //
    },
    store::{
        Exhausted,
        List, //
    }, //
};

/// Most of one tenant.
const MOST: usize = 1 << 18;

/// The number of its range, its first address, a serial number.
type RangeKey = (u64, u64, u64);

#[derive(Debug)]
struct RangeMapping {
    key: RangeKey,
    /// The address behind its last one.
    end: u64,
    /// The device by way of which it was mapped.
    by: RecordId,
}

impl Keyed for RangeMapping {
    type Key = RangeKey;

    fn key(&self) -> RangeKey {
        self.key
    }
}

/// A part of a range that is unmapped.
#[derive(Clone, Copy, Debug)]
pub(super) struct RangePart {
    /// The number of the range.
    pub(super) range: u64,
    /// By way of this device.
    pub(super) by: RecordId,
    /// The first address.
    pub(super) base: u64,
    /// The address behind the last one.
    pub(super) end: u64,
    /// The length of the longest mapping that the range has had.
    pub(super) longest: u64,
}

/// How mappings lie to a part.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Overlaps {
    /// Those of which anything lies in the part.
    pub(super) all: usize,
    /// Those of them that lie across both ends.
    pub(super) across: usize,
}

/// All of a tenant.
#[derive(Debug)]
pub(super) struct RangeMappings {
    list: SkipList<RangeMapping>,
    /// The last serial number.
    serial: u64,
}

impl RangeMappings {
    pub(super) const fn new(seed: u64) -> Self {
        Self {
            list: SkipList::new(seed),
            serial: 0,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.list.len() == 0
    }

    /// The present moment: what is mapped from now on has a greater serial number.
    pub(super) fn moment(&self) -> u64 {
        self.serial
    }

    /// A record of a mapping that may come, by way of a device.
    pub(super) fn prepare(&mut self, by: RecordId) -> Result<RecordId, Exhausted> {
        if self.list.len() >= MOST {
            return Err(Exhausted);
        }
        self.list.insert(RangeMapping {
            key: (0, 0, 0),
            end: 0,
            by,
        })
    }

    /// A prepared one has not come.
    pub(super) fn discard(&mut self, id: RecordId) {
        self.list.discard(id);
    }

    /// A prepared one is there.
    pub(super) fn enter(&mut self, id: RecordId, range: u64, (base, end): (u64, u64)) {
        self.serial += 1;
        let key = (range, base, self.serial);
        if let Some(mapping) = self.list.get_mut(id) {
            (mapping.key, mapping.end) = (key, end);
            self.list.link(id, &self.list.path(key));
        }
    }

    /// The driver has unmapped a whole mapping by its address, which was there at that moment. Of
    /// several the longest ones stay. Whether there was one.
    pub(super) fn end_whole(
        &mut self,
        (range, base): (u64, u64),
        by: RecordId,
        moment: u64,
    ) -> bool {
        let mut shortest: Option<(u64, RecordId)> = None;
        let mut at = self.list.from((range, base, 0));
        while let Some((id, mapping)) = at.and_then(|at| Some((at, self.list.get(at)?))) {
            step();
            if (mapping.key.0, mapping.key.1) != (range, base) || mapping.key.2 > moment {
                break;
            }
            if mapping.by == by && shortest.is_none_or(|(end, _)| mapping.end < end) {
                shortest = Some((mapping.end, id));
            }
            at = self.list.behind(Some(id));
        }
        if let Some((_, id)) = shortest {
            self.remove(id);
        }
        shortest.is_some()
    }

    /// How mappings lie to a part.
    pub(super) fn met(&self, part: &RangePart) -> Overlaps {
        let mut met = Overlaps::default();
        let mut at = self.first(part);
        while let Some((id, mapping)) = at.and_then(|at| self.before_end(at, part)) {
            at = self.list.behind(Some(id));
            if mapping.is_met(part) {
                met.all += 1;
                met.across += usize::from(mapping.is_across(part));
            }
        }
        met
    }

    /// The driver has unmapped a part. What it cuts in two takes a prepared record each. Gives how
    /// many mappings have gone whole.
    pub(super) fn end_part(&mut self, part: &RangePart, prepared: &mut List<RecordId>) -> u32 {
        let mut gone = 0;
        let mut at = self.first(part);
        while let Some((id, mapping)) = at.and_then(|at| self.before_end(at, part)) {
            let key = mapping.key;
            let (is_met, is_left, is_across) = (
                mapping.is_met(part),
                key.1 < part.base,
                mapping.is_across(part),
            );
            let end = mapping.end;
            at = self.list.behind(Some(id));
            if !is_met {
                continue;
            }
            if is_across {
                if let Some(rest) = prepared.pop() {
                    self.enter(rest, part.range, (part.end, end));
                } else {
                    // Not so: room for each was made. Then it counts on as one.
                    continue;
                }
            }
            if is_left {
                if let Some(mapping) = self.list.get_mut(id) {
                    mapping.end = part.base;
                }
            } else if end > part.end {
                self.list.unlink(id, &self.list.path(key));
                self.enter(id, part.range, (part.end, end));
            } else {
                self.remove(id);
                gone += 1;
            }
        }
        gone
    }

    /// The driver may have unmapped a part of what lies in a part, and has stopped then: at one
    /// mapping, which it has left as it was. Of the others it may have cut some in two. Those have
    /// both, the whole and what lies behind the part.
    pub(super) fn stop_part(&mut self, part: &RangePart, prepared: &mut List<RecordId>) {
        if self.met(part).all < 2 {
            return;
        }
        let mut at = self.first(part);
        while let Some((id, mapping)) = at.and_then(|at| self.before_end(at, part)) {
            let (is_across, end) = (mapping.is_across(part), mapping.end);
            at = self.list.behind(Some(id));
            if let Some(rest) = Some(())
                .filter(|()| is_across)
                .and_then(|()| prepared.pop())
            {
                self.enter(rest, part.range, (part.end, end));
            }
        }
    }

    /// A range is gone, and with it all that was mapped into it.
    pub(super) fn end_range(&mut self, range: u64) {
        let mut at = self.list.from((range, 0, 0));
        while let Some(id) = at {
            step();
            if self.list.get(id).is_none_or(|of| of.key.0 != range) {
                return;
            }
            at = self.list.behind(Some(id));
            self.remove(id);
        }
    }

    /// The first mapping that can reach into a part.
    fn first(&self, part: &RangePart) -> Option<RecordId> {
        let base = part.base.saturating_sub(part.longest);
        self.list.from((part.range, base, 0))
    }

    /// A mapping that begins in a part, or before it.
    fn before_end(&self, id: RecordId, part: &RangePart) -> Option<(RecordId, &RangeMapping)> {
        step();
        let mapping = self.list.get(id)?;
        let is_of = mapping.key.0 == part.range && mapping.key.1 < part.end;
        is_of.then_some((id, mapping))
    }

    fn remove(&mut self, id: RecordId) {
        if let Some(mapping) = self.list.get(id) {
            let path = self.list.path(mapping.key);
            self.list.unlink(id, &path);
            self.list.discard(id);
        }
    }
}

impl RangeMapping {
    /// Anything of it lies in a part, which begins not behind it.
    fn is_met(&self, part: &RangePart) -> bool {
        self.by == part.by && self.end > part.base
    }

    /// It lies across both ends of a part.
    fn is_across(&self, part: &RangePart) -> bool {
        self.is_met(part) && self.key.1 < part.base && self.end > part.end
    }
}
