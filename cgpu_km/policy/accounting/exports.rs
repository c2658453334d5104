// SPDX-License-Identifier: GPL-2.0
//! The accounting of one tenant: what goes behind descriptors, and what comes out of them.

use crate::{
    nvidia::{
        handle::{
            ClientHandle,
            ObjectHandle, //
        }, //
    },
    policy::{
        accounting::{
            objects::{
                check_copy,
                Likeness, //
            },
            Accounting, //
        },
        descriptor::Export,
        event::{
            AllocDone,
            DescriptorPlaces,
            ExportTicket,
            ImportTicket,
            RefusalCause,
            Ticket, //
        },
        file_costs::places,
        ids::ShareId,
        records::RecordId, //
    },
    store::List,
    uapi::Limited, //
};

/// The limits that an object behind a descriptor counts against: the driver duplicates it into a
/// client of its own, under one of the handles that it has for all exports of the host
/// (`RmExportObject()`, rmobjexportimport.c).
const LIMITED: [Limited; 2] = [Limited::Objects, Limited::Exports];

impl Accounting {
    /// Objects are about to be put into places of a control file (`OS_UNIX_EXPORT_OBJECT_TO_FD`,
    /// `OS_UNIX_EXPORT_OBJECTS_TO_FD`). Their cost stays charged until the file is closed.
    pub fn begin_export(
        &mut self,
        export: &DescriptorPlaces<'_>,
    ) -> Result<ExportTicket, RefusalCause> {
        let (client, file) = (export.client, export.file);
        let owner = self.forest.owner(client)?;
        let (root, process) = (owner.root, owner.process);
        for (place, object) in export.each() {
            if object.0 == 0 {
                continue;
            }
            let place = place.ok_or(RefusalCause::NoPlace)?;
            check_copy(self.forest.named(client, object)?.object.kind)?;
            if self.exports.find(file, place).is_some() {
                return Err(RefusalCause::PlaceTaken);
            }
            if self.exports.is_read(file) {
                // The result of that import would not be known.
                return Err(RefusalCause::FileInFlight);
            }
        }
        let count = export.objects.len();
        let mut ticket = ExportTicket {
            names: List::new(),
            exports: List::new(),
        };
        ticket.names.reserve(count.saturating_add(1))?;
        ticket.exports.reserve(count)?;
        let put = self.put(export, process, &mut ticket);
        let kept = put.and_then(|()| self.keep_for_file(file, places(export.made)));
        if let Err(refusal) = kept {
            self.end_export(ticket, false);
            return Err(refusal);
        }
        if let Some(root) = self.forest.hold_name(root) {
            ticket.names.push(root)?;
        }
        Ok(ticket)
    }

    /// The driver has answered a call that [`Accounting::begin_export`] agreed to. Not `asked`: it
    /// was not reached.
    pub fn end_export(&mut self, ticket: ExportTicket, asked: bool) {
        let ExportTicket { mut names, exports } = ticket;
        if !asked {
            for &export in exports.iter() {
                if let Some(export) = self.exports.cancel(export) {
                    self.release_export(&export);
                }
            }
        }
        while let Some(name) = names.pop() {
            self.forest.release_name(name);
        }
    }

    /// Objects are about to be taken out of places of a control file
    /// (`OS_UNIX_IMPORT_OBJECT_FROM_FD`, `OS_UNIX_IMPORT_OBJECTS_FROM_FD`), and put below a
    /// `parent` of the client. Each shares what the exported object costs. A place to which nothing
    /// was exported gives nothing. The driver must be asked for them under the handles of
    /// [`ImportTicket::handle`].
    pub fn begin_import(
        &mut self,
        import: &DescriptorPlaces<'_>,
        parent: ObjectHandle,
    ) -> Result<ImportTicket, RefusalCause> {
        if !self.owns_client(import.client) {
            return Err(RefusalCause::ForeignClient);
        }
        let mut objects = List::new();
        objects.reserve(import.objects.len())?;
        self.exports.begin_import(import.file)?;
        let mut ticket = ImportTicket {
            file: import.file,
            objects,
        };
        for (place, object) in import.each() {
            let from = place.and_then(|place| self.exports.find(import.file, place));
            let taken = from.map(|from| self.take(import.client, parent, object, from));
            let pushed = match taken.transpose() {
                // Room was made above.
                Ok(taken) => ticket.objects.push(taken).map_err(RefusalCause::from),
                Err(refusal) => Err(refusal),
            };
            if let Err(refusal) = pushed {
                self.end_import(ticket, |_| false);
                return Err(refusal);
            }
        }
        Ok(ticket)
    }

    /// The driver has answered a call that [`Accounting::begin_import`] agreed to; `made` says of
    /// each place, by its number in the call, whether its object is there.
    pub fn end_import(&mut self, ticket: ImportTicket, made: impl Fn(usize) -> bool) {
        let ImportTicket { file, mut objects } = ticket;
        while let Some(object) = objects.pop() {
            if let Some(object) = object {
                let handle = object.handle();
                let done = made(objects.len()).then_some(AllocDone {
                    object: handle,
                    bytes: 0,
                });
                self.end_ticket(object, done);
            }
        }
        self.exports.end_import(file);
    }

    /// Puts the objects into their places and holds the names that the call uses.
    fn put(
        &mut self,
        export: &DescriptorPlaces<'_>,
        process: RecordId,
        ticket: &mut ExportTicket,
    ) -> Result<(), RefusalCause> {
        for (place, object) in export.each() {
            let (Some(place), false) = (place, object.0 == 0) else {
                continue;
            };
            let found = self.forest.named(export.client, object)?;
            let (id, object) = (found.id, found.object);
            let kind = object.kind;
            let mut record = Export::new(export.file, place, object.class, kind);
            (record.page, record.size) = (object.page, object.size());
            record.share = object.share;
            self.exports.reserve()?;
            record.hold = self.accounts.share(object.hold, process)?;
            let (hold, share) = (record.hold, record.share);
            if let Err(refusal) = self.count_export(share) {
                self.release_hold(hold);
                return Err(refusal);
            }
            let record = match self.exports.insert(record) {
                Ok(record) => record,
                Err(e) => {
                    self.uncount_export(share);
                    self.release_hold(hold);
                    return Err(e.into());
                }
            };
            // Room was made in the ticket.
            ticket.exports.push(record)?;
            if let Some(name) = self.forest.hold_name(id) {
                ticket.names.push(name)?;
            }
        }
        Ok(())
    }

    /// Counts an object that is about to be behind a descriptor.
    fn count_export(&mut self, share: Option<ShareId>) -> Result<(), RefusalCause> {
        let ledgers = &mut self.accounts.ledgers;
        for (number, what) in LIMITED.into_iter().enumerate() {
            if let Err(what) = ledgers.count(share, what, 1) {
                for counted in LIMITED.into_iter().take(number) {
                    ledgers.uncount(share, counted, 1);
                }
                return Err(what.into());
            }
        }
        Ok(())
    }

    fn uncount_export(&mut self, share: Option<ShareId>) {
        for what in LIMITED {
            self.accounts.ledgers.uncount(share, what, 1);
        }
    }

    /// An object is behind its descriptor no longer.
    pub(super) fn release_export(&mut self, export: &Export) {
        self.uncount_export(export.share);
        self.release_hold(export.hold);
    }

    /// Begins one object that comes out of a file.
    fn take(
        &mut self,
        client: ClientHandle,
        parent: ObjectHandle,
        object: ObjectHandle,
        from: RecordId,
    ) -> Result<Ticket, RefusalCause> {
        let from = self.exports.get(from).ok_or(RefusalCause::UnknownObject)?;
        let likeness = Likeness {
            class: from.class,
            kind: from.kind,
            // A doorbell may be one through BAR1.
            asked: 1,
            size: from.size,
            page: from.page,
            share: from.share,
            hold: from.hold,
        };
        self.begin_copy(client, parent, object, &likeness, [None; 2])
    }
}
