// SPDX-License-Identifier: GPL-2.0
//! Which file shows which object to the processor.
//!
//! `NV_ESC_RM_MAP_MEMORY` prepares a file for `mmap`. The driver keeps what the file shows until
//! the file is closed, whatever becomes of the object (`nv_add_mapping_context_to_file()` in
//! kernel-open/nvidia/nv-usermap.c), and prepares a file once: a second call is refused with
//! `NV_ERR_STATE_IN_USE`. So there is one record for each file. It is there from before the driver
//! is asked, because whether the driver agreed is an output, and an output is not believed.

use crate::{
    policy::{
        event::RefusalCause,
        ids::FileId,
        record_table::{
            RecordMap,
            RecordTable, //
        },
        records::RecordId, //
    },
    store::Exhausted, //
};

/// A file that shows, or may show, an object.
#[derive(Debug)]
struct ShownObject {
    file: FileId,
    object: RecordId,
    /// Bytes of BAR1 that may be taken for it.
    bar1: u64,
    previous: Option<RecordId>,
    next: Option<RecordId>,
}

/// All of a tenant.
#[derive(Debug)]
pub(super) struct CpuMappings {
    by_file: RecordMap<ShownObject>,
    /// The first record of each object that has one.
    by_object: RecordTable,
}

impl CpuMappings {
    pub(super) const fn new(seed: u64) -> Self {
        Self {
            by_file: RecordMap::new(seed),
            by_object: RecordTable::new(seed),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.by_file.is_empty()
    }

    /// Whether a file shows an object.
    pub(super) fn shows(&self, file: FileId) -> bool {
        self.by_file.find(file.0).is_some()
    }

    /// One of the files that show an object.
    pub(super) fn file_of(&self, object: RecordId) -> Option<FileId> {
        let first = self.by_object.get(key_of(object))?;
        Some(self.by_file.records().get(first)?.file)
    }

    /// The next file whose object is meant, from record number `at` on, which is moved behind it.
    pub(super) fn next(
        &self,
        at: &mut usize,
        is_meant: impl Fn(RecordId) -> bool,
    ) -> Option<FileId> {
        let mut records = self.by_file.records().places(*at);
        let found = records.find(|(_, record)| is_meant(record.object));
        *at = found.map_or(usize::MAX, |(place, _)| place.saturating_add(1));
        found.map(|(_, record)| record.file)
    }

    /// A file is going to show an object, or shows it. Gives the bytes of BAR1 that may be taken
    /// for that; [`RefusalCause::FileInUse`] if it shows another object.
    pub(super) fn enter(
        &mut self,
        file: FileId,
        object: RecordId,
    ) -> Result<&mut u64, RefusalCause> {
        let id = match self.by_file.find(file.0) {
            Some(id) => id,
            None => self.insert(file, object)?,
        };
        let record = self.by_file.at_mut(id).ok_or(Exhausted)?;
        if record.object != object {
            return Err(RefusalCause::FileInUse);
        }
        Ok(&mut record.bar1)
    }

    /// A file is going to show an object. It shows none yet.
    fn insert(&mut self, file: FileId, object: RecordId) -> Result<RecordId, Exhausted> {
        self.by_object.reserve()?;
        let next = self.by_object.get(key_of(object));
        let shown = ShownObject {
            file,
            object,
            bar1: 0,
            previous: None,
            next,
        };
        let id = self.by_file.insert(file.0, shown)?;
        match next {
            Some(next) => {
                if let Some(next) = self.by_file.at_mut(next) {
                    next.previous = Some(id);
                }
                self.by_object.set(key_of(object), id);
            }
            None => self.by_object.insert(key_of(object), id)?,
        }
        Ok(id)
    }

    /// A file shows nothing any more.
    pub(super) fn remove(&mut self, file: FileId) {
        let Some(record) = self.by_file.remove(file.0) else {
            return;
        };
        if let Some(next) = record.next.and_then(|next| self.by_file.at_mut(next)) {
            next.previous = record.previous;
        }
        match (record.previous, record.next) {
            (Some(previous), next) => {
                if let Some(previous) = self.by_file.at_mut(previous) {
                    previous.next = next;
                }
            }
            (None, Some(next)) => self.by_object.set(key_of(record.object), next),
            (None, None) => self.by_object.remove(key_of(record.object)),
        }
    }
}

/// The key of an object in the table of objects.
fn key_of(object: RecordId) -> u64 {
    u64::from(object.number().get())
}
