// SPDX-License-Identifier: GPL-2.0
//! Host memory that the driver keeps for an open file until the file is closed.
//!
//! A file keeps one such piece: a control file an array of places for exports, a UVM file an
//! address space. Whether a call has made it is an output of the driver, and not believed. So the
//! largest that a call can have made counts from that call on.

use crate::{
    policy::{
        ids::FileId,
        record_table::RecordMap, //
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
    bytes: RecordMap<u64>,
}

impl FileCosts {
    pub(super) const fn new(seed: u64) -> Self {
        Self {
            bytes: RecordMap::new(seed),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Bytes that a file keeps.
    pub(super) fn of(&self, file: FileId) -> u64 {
        self.bytes.get(file.0).copied().unwrap_or(0)
    }

    /// Makes room for one more file, so that [`FileCosts::set`] cannot fail.
    pub(super) fn reserve(&mut self) -> Result<(), Exhausted> {
        self.bytes.reserve()
    }

    /// A file keeps so many bytes from now on.
    pub(super) fn set(&mut self, file: FileId, bytes: u64) -> Result<(), Exhausted> {
        match self.bytes.get_mut(file.0) {
            Some(record) => *record = bytes,
            None => _ = self.bytes.insert(file.0, bytes)?,
        }
        Ok(())
    }

    /// A file was closed. Gives the bytes that it kept.
    pub(super) fn close(&mut self, file: FileId) -> u64 {
        self.bytes.remove(file.0).unwrap_or(0)
    }
}
