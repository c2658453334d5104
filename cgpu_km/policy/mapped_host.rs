// SPDX-License-Identifier: GPL-2.0
//! Host memory that files show to the processor.
//!
//! The driver gives it back when its object is freed and no process has a mapping of it any more
//! (`nvidia_vma_open()` and `nvidia_vma_release()`, kernel-open/nvidia/nv-mmap.c). A mapping of
//! which no page is shown any more counts as well. It keeps its file open, so what a file may show
//! stays charged until the file is closed. No pin of the driver's keeps it longer
//! (`os_interface/files/pinned.rs`).

use crate::{
    policy::{
        ids::FileId,
        records::RecordId,
        skip_list::{
            Keyed,
            SkipList, //
        }, //
    },
    store::Exhausted, //
};

#[derive(Debug)]
struct MappedHost {
    file: FileId,
    number: u64,
    hold: RecordId,
}

impl Keyed for MappedHost {
    type Key = (u64, u64);

    fn key(&self) -> (u64, u64) {
        (self.file.0, self.number)
    }
}

/// All of a tenant.
#[derive(Debug)]
pub(super) struct MappedHosts {
    records: SkipList<MappedHost>,
    last: u64,
}

impl MappedHosts {
    pub(super) const fn new(seed: u64) -> Self {
        Self {
            records: SkipList::new(seed),
            last: 0,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.records.len() == 0
    }

    /// Makes room for one more.
    pub(super) fn reserve(&mut self) -> Result<(), Exhausted> {
        self.records.reserve()
    }

    /// A file keeps what is held.
    pub(super) fn insert(&mut self, file: FileId, hold: RecordId) -> Result<(), Exhausted> {
        self.last += 1;
        let number = self.last;
        let path = self.records.path((file.0, number));
        let record = MappedHost { file, number, hold };
        let id = self.records.insert(record)?;
        self.records.link(id, &path);
        Ok(())
    }

    /// A file was closed; takes one of its holds out, as long as there are any.
    pub(super) fn take_of(&mut self, file: FileId) -> Option<RecordId> {
        let id = self.records.from((file.0, 0))?;
        let record = self.records.get(id).filter(|record| record.file == file)?;
        let (key, hold) = (record.key(), record.hold);
        let path = self.records.path(key);
        self.records.unlink(id, &path);
        self.records.discard(id);
        Some(hold)
    }
}
