// SPDX-License-Identifier: GPL-2.0
//! The accounting of one tenant: files that show objects to the processor.
//!
//! A mapping must not outlive what it shows: the driver gives the memory to somebody else and
//! leaves the mapping as it is. So whoever has the driver free or unmap an object goes through the
//! files that show it, or anything below it, and ends what they show, before the driver is asked.
//! From then on until the driver has answered no file comes to show it.

use crate::{
    nvidia::handle::{ClientHandle, ObjectHandle},
    policy::{
        accounting::Accounting,
        event::{FreeTicket, RefusalCause, Ticket},
        forest::is_scheduled,
        ids::FileId,
        slots::Slot,
    },
};

impl Accounting {
    /// `NV_ESC_RM_MAP_MEMORY` is about to prepare a file for a mapping of an object.
    pub fn begin_cpu_map(
        &mut self,
        client: ClientHandle,
        object: ObjectHandle,
        file: FileId,
    ) -> Result<(), RefusalCause> {
        let forest = &self.forest;
        if forest.client(client).is_none() {
            return Err(RefusalCause::ForeignClient);
        }
        let object = forest.find(client, object);
        self.show(object, file)
    }

    /// The same for an object that is still coming, in the same call of the driver.
    pub fn begin_cpu_map_of(&mut self, ticket: &Ticket, file: FileId) -> Result<(), RefusalCause> {
        let object = self.forest.objects.find(ticket.object);
        self.show(object, file)
    }

    fn show(&mut self, object: Option<Slot>, file: FileId) -> Result<(), RefusalCause> {
        let forest = &mut self.forest;
        let object = object.filter(|&object| forest.can_be_shown(object));
        let object = object.ok_or(RefusalCause::UnknownObject)?;
        let kind = forest.objects.get(object).map(|object| object.kind);
        if kind.is_some_and(is_scheduled) {
            // A channel also ends with its address space, of which the accounting knows nothing.
            return Err(RefusalCause::WrongClass);
        }
        match forest.shown.shown_by(file) {
            // The driver may have refused it before.
            Some(shown) if shown == object => Ok(()),
            Some(_) => Err(RefusalCause::FileInUse),
            None => Ok(forest.shown.insert(file, object)?),
        }
    }

    /// `NV_ESC_RM_UNMAP_MEMORY` is about to end mappings of an object. To be handed back to
    /// [`Accounting::end_free`], as not freed.
    ///
    /// The address by which it names one of them is an output of the driver, and not believed, so
    /// all of them end.
    pub fn begin_cpu_unmap(
        &mut self,
        client: ClientHandle,
        object: ObjectHandle,
    ) -> Result<FreeTicket, RefusalCause> {
        self.begin_free(client, object, None)
    }

    /// A file that shows what is about to be freed or unmapped, as long as there is one. It is to
    /// show nothing any more, and then to be [told](Accounting::end_shown). `at` is 0 at first.
    pub fn shown_below(&self, ticket: &FreeTicket, at: &mut usize) -> Option<FileId> {
        let object = ticket.object?;
        let object = self.forest.objects.find(object)?;
        self.forest.next_shown(object, at)
    }

    /// A file shows nothing any more.
    pub fn end_shown(&mut self, file: FileId) {
        self.forest.shown.remove(file);
    }

    /// The driver is about to release a file, and to free the clients that were made on it. Call
    /// this until it gives no file, with `at` 0 at first; each is to show nothing any more, and
    /// then to be [told](Accounting::end_shown).
    pub fn shown_by_clients_of(&mut self, file: FileId, at: &mut usize) -> Option<FileId> {
        if *at == 0 {
            self.forest.end_mappings_of(file);
        }
        self.forest.next_shown_of(file, at)
    }
}
