// SPDX-License-Identifier: GPL-2.0
//! Host memory that the driver keeps for an open file until the file is closed.
//!
//! A file keeps one such piece: a control file an array of places for exports, a UVM file an
//! address space. Whether a call has made it is an output of the driver, and not believed. So the
//! largest that a call can have made counts from that call on.

use crate::{
    policy::{
        ids::FileId,
        record_table::RecordTable,
        records::Records, //
    },
    store::Exhausted, //
};

/// Bytes of the host's memory for the address space of a UVM file (`uvm_va_space_create()`,
/// uvm_va_space.c), in whole pages. From 570 on it has a table of 264 bytes for each of the nodes
/// that the kernel is built for, which are 1,024 in Debian's: 344 KiB, and two contexts of 10 KiB.
/// Branch 550 takes 92 KiB.
pub(super) const SPACE_STRUCT: u64 = 384 << 10;

/// Bytes of a place for an export (`nvfp->handles`; `_initializeExportObjectFd()`, os.c).
const PLACE: u64 = 4;

/// Bytes of an array of places: what the kernel rounds it to.
pub(super) fn places(count: u16) -> u64 {
    match u64::from(count) {
        0 => 0,
        count => (count * PLACE)
            .checked_next_power_of_two()
            .unwrap_or(u64::MAX),
    }
}

/// All files of a tenant that keep something.
#[derive(Debug)]
pub(super) struct FileCosts {
    /// Bytes of each.
    records: Records<u64>,
    by_file: RecordTable,
}

impl FileCosts {
    pub(super) const fn new(seed: u64) -> Self {
        Self {
            records: Records::new(),
            by_file: RecordTable::new(seed),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.records.len() == 0
    }

    /// Bytes that a file keeps.
    pub(super) fn of(&self, file: FileId) -> u64 {
        let found = self.by_file.get(file.0);
        let found = found.and_then(|id| self.records.get(id));
        found.copied().unwrap_or(0)
    }

    /// Makes room for one more file, so that [`FileCosts::set`] cannot fail.
    pub(super) fn reserve(&mut self) -> Result<(), Exhausted> {
        self.records.reserve()?;
        self.by_file.reserve()
    }

    /// A file keeps so many bytes from now on.
    pub(super) fn set(&mut self, file: FileId, bytes: u64) -> Result<(), Exhausted> {
        let found = self.by_file.get(file.0);
        if let Some(record) = found.and_then(|id| self.records.get_mut(id)) {
            *record = bytes;
            return Ok(());
        }
        let id = self.records.insert(bytes)?;
        self.by_file.insert(file.0, id)
    }

    /// A file was closed. Gives the bytes that it kept.
    pub(super) fn close(&mut self, file: FileId) -> u64 {
        let Some(id) = self.by_file.get(file.0) else {
            return 0;
        };
        self.by_file.remove(file.0);
        self.records.remove(id).unwrap_or(0)
    }
}
