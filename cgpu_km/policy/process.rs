// SPDX-License-Identifier: GPL-2.0
//! The bytes that each process of a tenant holds.

use crate::{
    policy::{
        count::lower,
        ids::{
            ProcessId,
            ShareId,
            MAX_SHARES, //
        },
        slot_table::SlotTable,
        slots::{
            Slot,
            Slots, //
        }, //
    },
    store::Exhausted, //
};

#[derive(Debug)]
struct Process {
    id: ProcessId,
    /// Clients and charges that count for this process.
    users: usize,
    /// Bytes charged, by share.
    bytes: [u64; MAX_SHARES],
}

/// The processes that have clients, or whose clients' memory is still there.
#[derive(Debug)]
pub(super) struct Processes {
    records: Slots<Process>,
    by_id: SlotTable,
}

impl Processes {
    pub(super) const fn new(seed: u64) -> Self {
        Self {
            records: Slots::new(),
            by_id: SlotTable::new(seed),
        }
    }

    /// Finds or makes the record of a process and counts one more user of it.
    pub(super) fn join(&mut self, id: ProcessId) -> Result<Slot, Exhausted> {
        let key = key_of(id);
        if let Some(slot) = self.by_id.get(key) {
            self.rejoin(slot);
            return Ok(slot);
        }
        self.by_id.reserve()?;
        let slot = self.records.insert(Process {
            id,
            users: 1,
            bytes: [0; MAX_SHARES],
        })?;
        // Cannot fail: room was made above.
        self.by_id.insert(key, slot)?;
        Ok(slot)
    }

    /// Counts one more user of a record.
    pub(super) fn rejoin(&mut self, slot: Slot) {
        if let Some(process) = self.records.get_mut(slot) {
            process.users += 1;
        }
    }

    /// Counts one user less; with the last one the record goes.
    pub(super) fn part(&mut self, slot: Slot) {
        let Some(process) = self.records.get_mut(slot) else {
            return;
        };
        lower(&mut process.users, 1);
        if process.users == 0 {
            let key = key_of(process.id);
            self.records.remove(slot);
            self.by_id.remove(key);
        }
    }

    pub(super) fn charge(&mut self, slot: Slot, share: ShareId, bytes: u64) {
        if let Some(sum) = self.bytes_mut(slot, share) {
            *sum = sum.saturating_add(bytes);
        }
    }

    pub(super) fn credit(&mut self, slot: Slot, share: ShareId, bytes: u64) {
        if let Some(sum) = self.bytes_mut(slot, share) {
            lower(sum, bytes);
        }
    }

    /// The processes that hold memory of one share, and how many bytes.
    pub(super) fn holders(&self, share: ShareId) -> impl Iterator<Item = (ProcessId, u64)> + '_ {
        self.records.iter().filter_map(move |process| {
            let bytes = process.bytes.get(share.index()).copied()?;
            (bytes > 0).then_some((process.id, bytes))
        })
    }

    /// Bytes of a share that one process holds.
    pub(super) fn bytes(&self, share: ShareId, id: ProcessId) -> u64 {
        let slot = self.by_id.get(key_of(id));
        let process = slot.and_then(|slot| self.records.get(slot));
        process
            .and_then(|p| p.bytes.get(share.index()))
            .copied()
            .unwrap_or(0)
    }

    /// The process of a record.
    pub(super) fn id(&self, slot: Slot) -> Option<ProcessId> {
        self.records.get(slot).map(|process| process.id)
    }

    pub(super) fn has(&self, id: ProcessId) -> bool {
        self.by_id.get(key_of(id)).is_some()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.records.len() == 0
    }

    fn bytes_mut(&mut self, slot: Slot, share: ShareId) -> Option<&mut u64> {
        self.records.get_mut(slot)?.bytes.get_mut(share.index())
    }
}

fn key_of(id: ProcessId) -> u64 {
    u64::from(u32::from_ne_bytes(id.0.to_ne_bytes()))
}
