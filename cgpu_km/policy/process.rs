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
        record_table::RecordMap,
        records::RecordId, //
    },
    store::Exhausted, //
};

#[derive(Debug)]
struct Process {
    pid: ProcessId,
    /// Clients and charges that count for this process.
    users: usize,
    /// Bytes charged, by share.
    bytes: [u64; MAX_SHARES],
}

/// The processes that have clients, or whose clients' memory is still there.
#[derive(Debug)]
pub(super) struct Processes {
    by_pid: RecordMap<Process>,
}

impl Processes {
    pub(super) const fn new(seed: u64) -> Self {
        Self {
            by_pid: RecordMap::new(seed),
        }
    }

    /// Finds or makes the record of a process and counts one more user of it.
    pub(super) fn join(&mut self, pid: ProcessId) -> Result<RecordId, Exhausted> {
        let key = key_of(pid);
        if let Some(id) = self.by_pid.find(key) {
            self.rejoin(id);
            return Ok(id);
        }
        let process = Process {
            pid,
            users: 1,
            bytes: [0; MAX_SHARES],
        };
        self.by_pid.insert(key, process)
    }

    /// Counts one more user of a record.
    pub(super) fn rejoin(&mut self, id: RecordId) {
        if let Some(process) = self.by_pid.at_mut(id) {
            process.users += 1;
        }
    }

    /// Counts one user less; with the last one the record goes.
    pub(super) fn part(&mut self, id: RecordId) {
        let Some(process) = self.by_pid.at_mut(id) else {
            return;
        };
        lower(&mut process.users, 1);
        if process.users == 0 {
            let key = key_of(process.pid);
            self.by_pid.remove(key);
        }
    }

    pub(super) fn charge(&mut self, id: RecordId, share: ShareId, bytes: u64) {
        if let Some(sum) = self.bytes_mut(id, share) {
            *sum = sum.saturating_add(bytes);
        }
    }

    pub(super) fn credit(&mut self, id: RecordId, share: ShareId, bytes: u64) {
        if let Some(sum) = self.bytes_mut(id, share) {
            lower(sum, bytes);
        }
    }

    /// The processes that hold memory of one share, and how many bytes.
    pub(super) fn holders(&self, share: ShareId) -> impl Iterator<Item = (ProcessId, u64)> + '_ {
        let records = self.by_pid.records();
        records.iter().filter_map(move |process| {
            let bytes = process.bytes.get(share.index()).copied()?;
            (bytes > 0).then_some((process.pid, bytes))
        })
    }

    /// Bytes of a share that one process holds.
    pub(super) fn bytes(&self, share: ShareId, pid: ProcessId) -> u64 {
        let process = self.by_pid.get(key_of(pid));
        process
            .and_then(|p| p.bytes.get(share.index()))
            .copied()
            .unwrap_or(0)
    }

    /// The process of a record.
    pub(super) fn pid(&self, id: RecordId) -> Option<ProcessId> {
        self.by_pid.records().get(id).map(|process| process.pid)
    }

    pub(super) fn has(&self, pid: ProcessId) -> bool {
        self.by_pid.find(key_of(pid)).is_some()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.by_pid.is_empty()
    }

    fn bytes_mut(&mut self, id: RecordId, share: ShareId) -> Option<&mut u64> {
        self.by_pid.at_mut(id)?.bytes.get_mut(share.index())
    }
}

fn key_of(pid: ProcessId) -> u64 {
    u64::from(u32::from_ne_bytes(pid.0.to_ne_bytes()))
}
