// SPDX-License-Identifier: GPL-2.0
//! The objects that a tenant has put behind descriptors.
//!
//! A control file has places for objects (`nvfp->handles`; os.c). The driver puts a duplicate of
//! its own there (`RmExportObject()`, rmobjexportimport.c), which stays until the file is closed
//! (`rm_cleanup_file_private()`, osapi.c), whatever becomes of the object. Each is therefore a hold
//! on what the object costs.
//!
//! Whether the driver has put an object in its place is an output, and not believed: it counts as
//! being there from before the driver is asked until the file is closed. So that it is always known
//! what an import gives, a place is used once.

use crate::{
    nvidia::{
        class::Kind,
        handle::ClassId,
        memory::PageSize, //
    },
    policy::{
        count::lower,
        ids::{
            FileId,
            ShareId, //
        },
        record_table::{
            RecordMap,
            RecordTable, //
        },
        records::{
            Named,
            RecordId,
            Ref, //
        },
        steps::step, //
    },
    store::Exhausted, //
};

/// Most objects of one tenant behind descriptors. CUDA puts one behind each.
const MOST_EXPORTS: usize = 1 << 18;

/// An object in a file.
#[derive(Debug)]
pub(super) struct Export {
    pub(super) class: ClassId,
    pub(super) kind: Kind,
    /// Its hold on what it keeps charged; `None` for what costs nothing.
    pub(super) hold: Option<RecordId>,
    pub(super) page: PageSize,
    /// Bytes of memory.
    pub(super) size: u64,
    /// The GPU that the object is of.
    pub(super) share: Option<ShareId>,
    file: FileId,
    place: u16,
    previous: Option<RecordId>,
    next: Option<RecordId>,
}

impl Export {
    /// A record of an object that is about to be put into a place of a file.
    pub(super) fn new(file: FileId, place: u16, class: ClassId, kind: Kind) -> Self {
        Self {
            class,
            kind,
            hold: None,
            page: PageSize::Small,
            size: 0,
            share: None,
            file,
            place,
            previous: None,
            next: None,
        }
    }
}

/// A file's exports, and how many are being imported from it.
#[derive(Debug)]
struct FileExports {
    first: Option<RecordId>,
    /// Imports in flight.
    importing: usize,
}

/// All exports of a tenant.
#[derive(Debug)]
pub(super) struct Exports {
    records: Named<Export>,
    by_place: RecordTable,
    /// By the file that has exports in it, or from which some are being imported.
    files: RecordMap<FileExports>,
}

impl Exports {
    pub(super) const fn new(seed: u64) -> Self {
        Self {
            records: Named::new(),
            by_place: RecordTable::new(seed),
            files: RecordMap::new(seed),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.records.len() == 0 && self.files.is_empty()
    }

    /// The object that is, or may be, in a place of a file.
    pub(super) fn find(&self, file: FileId, place: u16) -> Option<RecordId> {
        self.by_place.get(key_of(file, place)?)
    }

    pub(super) fn get(&self, id: RecordId) -> Option<&Export> {
        self.records.get(id)
    }

    /// Whether something is being imported from a file.
    pub(super) fn is_read(&self, file: FileId) -> bool {
        let exports = self.files.get(file.0);
        exports.is_some_and(|exports| exports.importing > 0)
    }

    /// Makes room for one more, so that [`Exports::insert`] cannot fail.
    pub(super) fn reserve(&mut self) -> Result<(), Exhausted> {
        if self.records.len() >= MOST_EXPORTS {
            return Err(Exhausted);
        }
        self.records.reserve()?;
        self.by_place.reserve()?;
        self.files.reserve()
    }

    /// Puts something into a place that is free.
    pub(super) fn insert(&mut self, export: Export) -> Result<Ref, Exhausted> {
        self.reserve()?;
        let key = key_of(export.file, export.place).ok_or(Exhausted)?;
        let file = export.file;
        self.note_file(file)?;
        let id = self.records.insert(export)?;
        self.by_place.insert(key, id)?;
        let next = self
            .files
            .get_mut(file.0)
            .and_then(|exports| exports.first.replace(id));
        if let Some(next) = next.and_then(|next| self.records.get_mut(next)) {
            next.previous = Some(id);
        }
        if let Some(export) = self.records.get_mut(id) {
            export.next = next;
        }
        self.records.name(id).ok_or(Exhausted)
    }

    /// The driver was not asked. Gives the object, whose hold is to be released.
    pub(super) fn cancel(&mut self, name: Ref) -> Option<Export> {
        let id = self.records.find(name)?;
        self.remove(id)
    }

    /// The driver has closed the file. Gives one of its objects, as long as there are any.
    pub(super) fn take_of(&mut self, file: FileId) -> Option<Export> {
        step();
        let first = self.files.get(file.0)?.first?;
        self.remove(first)
    }

    /// An import from a file is in flight until [`Exports::end_import`].
    pub(super) fn begin_import(&mut self, file: FileId) -> Result<(), Exhausted> {
        self.note_file(file)?;
        if let Some(exports) = self.files.get_mut(file.0) {
            exports.importing += 1;
        }
        Ok(())
    }

    pub(super) fn end_import(&mut self, file: FileId) {
        if let Some(exports) = self.files.get_mut(file.0) {
            lower(&mut exports.importing, 1);
        }
        self.forget_unused(file);
    }

    /// Notes a file, if it is not known yet.
    fn note_file(&mut self, file: FileId) -> Result<(), Exhausted> {
        if self.files.find(file.0).is_none() {
            let exports = FileExports {
                first: None,
                importing: 0,
            };
            self.files.insert(file.0, exports)?;
        }
        Ok(())
    }

    fn remove(&mut self, id: RecordId) -> Option<Export> {
        let export = self.records.remove(id)?;
        if let Some(key) = key_of(export.file, export.place) {
            self.by_place.remove(key);
        }
        if let Some(next) = export.next.and_then(|next| self.records.get_mut(next)) {
            next.previous = export.previous;
        }
        match export.previous {
            Some(previous) => {
                if let Some(previous) = self.records.get_mut(previous) {
                    previous.next = export.next;
                }
            }
            None => {
                if let Some(exports) = self.files.get_mut(export.file.0) {
                    exports.first = export.next;
                }
            }
        }
        self.forget_unused(export.file);
        Some(export)
    }

    /// Forgets a file in which nothing is any more.
    fn forget_unused(&mut self, file: FileId) {
        let unused = |exports: &FileExports| exports.first.is_none() && exports.importing == 0;
        if self.files.get(file.0).is_some_and(unused) {
            self.files.remove(file.0);
        }
    }
}

/// The key of a place. Files are counted from 0 and never use up 48 bits.
fn key_of(file: FileId, place: u16) -> Option<u64> {
    let high = file.0.checked_mul(1 << 16)?;
    high.checked_add(u64::from(place))
}
