// SPDX-License-Identifier: GPL-2.0
//! The accounting of one tenant: files that show objects to the processor.
//!
//! A mapping must not outlive what it shows: the driver gives the memory to somebody else and
//! leaves the mapping as it is. So whoever has the driver free or unmap an object goes through the
//! files that show it, or anything below it, and ends what they show, before the driver is asked.
//! From then on until the driver has answered no file comes to show it.

use crate::{
    nvidia::{
        class::Kind,
        handle::{
            ClientHandle,
            ObjectHandle, //
        }, //
    },
    policy::{
        accounting::Accounting,
        event::{
            FreeTicket,
            RefusalCause,
            Ticket, //
        },
        forest::is_scheduled,
        ids::FileId,
        ledgers::Ledgers,
        object::Object,
        records::RecordId, //
    },
    store::Exhausted,
    uapi::Limited, //
};

/// A part of an object takes BAR1, if it is video memory, of which `counted` bytes count already.
/// Gives the bytes that count more, until the object is gone.
fn charge_bar1(
    ledgers: &mut Ledgers,
    object: &mut Object,
    part: (u64, u64),
    counted: u64,
) -> Result<u64, RefusalCause> {
    let ledger = object.share.and_then(|share| ledgers.get(share));
    let Some(ledger) = ledger.filter(|_| object.kind == Kind::VideoMemory) else {
        return Ok(0);
    };
    let whole = ledger.quotas.bar1_bytes(part, object.page);
    let more = whole.saturating_sub(counted);
    ledgers.count(object.share, Limited::Bar1, more)?;
    object.grow_bar1(more);
    Ok(more)
}

impl Accounting {
    /// `NV_ESC_RM_MAP_MEMORY` is about to prepare a file for a mapping of a part of an object, from
    /// a byte on, so many bytes. Tells whether that is a doorbell page to be shown through BAR1.
    ///
    /// Video memory takes BAR1 for each mapping, until it is unmapped or freed, whether or not the
    /// file is closed. That it was unmapped is an output, and not believed, so what was taken
    /// counts until the object is gone.
    ///
    /// # Errors
    ///
    /// The refusal that the caller is told. The call is not forwarded.
    pub fn begin_cpu_map(
        &mut self,
        client: ClientHandle,
        object: ObjectHandle,
        file: FileId,
        part: (u64, u64),
    ) -> Result<bool, RefusalCause> {
        let found = self.forest.named(client, object)?;
        let (id, through_bar1) = (found.id, found.object.is_through_bar1());
        self.show(id, file, part)?;
        Ok(through_bar1)
    }

    /// The same for an object that is still coming, in the same call of the driver.
    pub fn begin_cpu_map_of(&mut self, ticket: &Ticket, file: FileId) -> Result<(), RefusalCause> {
        let object = self.forest.objects.find(ticket.object);
        // Host memory, which takes no BAR1.
        self.show(object.ok_or(RefusalCause::UnknownObject)?, file, (0, 0))
    }

    /// A file comes to show a part of an object, or shows it already: the driver may have refused
    /// it before. From now on it keeps host memory charged, and the driver has a record more.
    fn show(&mut self, id: RecordId, file: FileId, part: (u64, u64)) -> Result<(), RefusalCause> {
        self.count_mapping(id)?;
        let shown = self.show_part(id, file, part);
        shown.inspect_err(|_| self.uncount_mapping(id))
    }

    /// The driver is about to keep a record of a mapping with an object: of one for the processor
    /// with what is mapped (`refAddMapping()`, rs_resource.c), of one for the GPU with the range.
    /// It keeps that until it is unmapped or the object is gone, whatever becomes of files.
    pub(super) fn count_mapping(&mut self, id: RecordId) -> Result<(), RefusalCause> {
        let share = self.forest.objects.get(id).ok_or(Exhausted)?.share;
        self.forest.mapped.raise(id)?;
        let counted = self.accounts.ledgers.count(share, Limited::Objects, 1);
        Ok(counted.inspect_err(|_| {
            self.forest.mapped.lower(id);
        })?)
    }

    /// The driver has one such record less, for certain.
    pub(super) fn uncount_mapping(&mut self, id: RecordId) {
        if !self.forest.mapped.lower(id) {
            return;
        }
        let share = self.forest.objects.get(id).and_then(|object| object.share);
        self.accounts.ledgers.uncount(share, Limited::Objects, 1);
    }

    /// The driver has unmapped a mapping of an object, and has told so where no program could write
    /// it. Before the call's ticket is handed back.
    pub fn unmapped_for_cpu(&mut self, ticket: &FreeTicket) {
        let id = ticket
            .object
            .and_then(|object| self.forest.objects.find(object));
        if let Some(id) = id {
            self.uncount_mapping(id);
        }
    }

    fn show_part(
        &mut self,
        id: RecordId,
        file: FileId,
        part: (u64, u64),
    ) -> Result<(), RefusalCause> {
        let forest = &mut self.forest;
        let can_be_shown = forest.can_be_shown(id);
        let object = forest.objects.get_mut(id).filter(|_| can_be_shown);
        let object = object.ok_or(RefusalCause::UnknownObject)?;
        if is_scheduled(object.kind) {
            // A channel also ends with its address space, of which the accounting knows nothing.
            return Err(RefusalCause::WrongClass);
        }
        let is_host = object.kind == Kind::SystemMemory && !forest.shown.shows(file);
        let hold = object.hold.filter(|_| is_host);
        let owner = object.owner.and_then(|owner| forest.clients.get(owner));
        let bar1 = forest.shown.enter(file, id)?;
        if let Some((hold, owner)) = hold.zip(owner) {
            let kept = self.mapped_hosts.reserve().and_then(|()| {
                let kept = self.accounts.share(Some(hold), owner.process)?;
                kept.map_or(Ok(()), |kept| self.mapped_hosts.insert(file, kept))
            });
            kept.inspect_err(|_| forest.shown.remove(file))?;
            return Ok(());
        }
        // A file shows a thing once: of two calls the driver refuses one.
        let more = charge_bar1(&mut self.accounts.ledgers, object, part, *bar1)?;
        *bar1 = bar1.saturating_add(more);
        Ok(())
    }

    /// The device by way of which the driver is to map an object, where the program says `by`: one
    /// above the object, if there is one.
    ///
    /// The driver takes the mapping away with what it was told, even if the object stays
    /// (`refAddMapping()` in rs_resource.c, `_clientUnmapBackRefMappings()` in rs_client.c). CUDA
    /// says a subdevice, which is beside the memory. An object's own device goes with it.
    pub fn device_of_map(
        &self,
        client: ClientHandle,
        by: ObjectHandle,
        object: ObjectHandle,
    ) -> ObjectHandle {
        let forest = &self.forest;
        let own = forest.find(client, object).and_then(|object| {
            let by = forest.find(client, by)?;
            let device = forest.objects.get(forest.device_of(object)?)?;
            (!forest.is_below(object, by)).then_some(device.handle)
        });
        own.unwrap_or(by)
    }

    /// A mapping of an object is about to get a name by its program
    /// (`NV_ESC_RM_UPDATE_DEVICE_MAPPING_INFO`). Tells whether others may have one already.
    pub fn begin_rename(
        &mut self,
        client: ClientHandle,
        object: ObjectHandle,
    ) -> Result<bool, RefusalCause> {
        let object = self.forest.named(client, object)?.id;
        Ok(self.forest.mapped.rename(object)?)
    }

    /// Whether mappings of an object may have names that its program gave them.
    pub fn has_renamed(&self, client: ClientHandle, object: ObjectHandle) -> bool {
        let found = self.forest.named(client, object);
        found.is_ok_and(|found| self.forest.mapped.has_renamed(found.id))
    }

    /// The driver is about to map a part of an object for the host's kernel. That takes BAR1, if it
    /// is video memory, and counts until the object is gone. Gives the bytes that count.
    pub(super) fn take_bar1(
        &mut self,
        id: RecordId,
        part: (u64, u64),
    ) -> Result<u64, RefusalCause> {
        let object = self.forest.objects.get_mut(id);
        let object = object.ok_or(RefusalCause::UnknownObject)?;
        charge_bar1(&mut self.accounts.ledgers, object, part, 0)
    }

    /// The driver was not asked for what [`Accounting::take_bar1`] has counted.
    pub(super) fn give_back_bar1(&mut self, id: RecordId, bytes: u64) {
        if let Some(object) = self.forest.objects.get_mut(id) {
            let less = object.shrink_bar1(bytes);
            let ledgers = &mut self.accounts.ledgers;
            ledgers.uncount(object.share, Limited::Bar1, less);
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
        self.begin_end(client, object, None)
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
