// SPDX-License-Identifier: GPL-2.0
//! Answers about the tenant itself, without asking the driver.

use crate::{
    nvidia::{
        class::Kind,
        handle::{
            ClientHandle,
            ObjectHandle, //
        },
        params::DEFAULT_TIMESLICE_US, //
    },
    policy::{
        accounting::Accounting,
        boost::Boost,
        event::RefusalCause,
        records::RecordId, //
    }, //
};

impl Accounting {
    /// A call names an object of one of the tenant's clients, and wants of it what only objects of
    /// `kind` have.
    pub fn require(
        &self,
        client: ClientHandle,
        object: ObjectHandle,
        kind: Kind,
    ) -> Result<(), RefusalCause> {
        self.required(client, object, kind).map(|_| ())
    }

    /// The program sets the timeslice of a channel group, in microseconds. It is remembered and
    /// nothing else: how long a tenant's work runs is not for the tenant to say. A copy of the
    /// group has a memory of its own.
    pub fn set_timeslice(
        &mut self,
        client: ClientHandle,
        group: ObjectHandle,
        microseconds: u64,
    ) -> Result<(), RefusalCause> {
        let id = self.required(client, group, Kind::ChannelGroup)?;
        if let Some(group) = self.forest.objects.get_mut(id) {
            group.ask(microseconds);
        }
        Ok(())
    }

    /// The timeslice that the program has set for a channel group, in microseconds, or the driver's
    /// default.
    pub fn timeslice(
        &self,
        client: ClientHandle,
        group: ObjectHandle,
    ) -> Result<u64, RefusalCause> {
        let id = self.required(client, group, Kind::ChannelGroup)?;
        let group = self.forest.objects.get(id);
        Ok(group.map_or(DEFAULT_TIMESLICE_US, |group| group.asked()))
    }

    /// The program wants this boost of a subdevice's GPU from now on, instead of what it wanted
    /// before. It is remembered as long as there is the subdevice; [`Accounting::boost`] is what
    /// comes of all of them.
    pub fn set_boost(
        &mut self,
        client: ClientHandle,
        subdevice: ObjectHandle,
        boost: Boost,
    ) -> Result<(), RefusalCause> {
        let id = self.required(client, subdevice, Kind::Subdevice)?;
        self.forest.set_boost(id, boost, &mut self.accounts);
        Ok(())
    }

    /// The program has asked for a doorbell through BAR1, and the driver has made it through BAR0.
    /// It may be freed already.
    pub fn set_through_bar1(
        &mut self,
        client: ClientHandle,
        doorbell: ObjectHandle,
    ) -> Result<(), RefusalCause> {
        let id = self.required(client, doorbell, Kind::UserMode)?;
        if let Some(doorbell) = self.forest.objects.get_mut(id) {
            doorbell.ask(1);
        }
        Ok(())
    }

    /// The program is about to ask that some of the shared data be kept up to date.
    ///
    /// # Errors
    ///
    /// It is no such object; too many of them ask, or too often.
    pub fn begin_poll(
        &mut self,
        client: ClientHandle,
        data: ObjectHandle,
        now_s: u64,
    ) -> Result<(), RefusalCause> {
        let id = self.required(client, data, Kind::SharedData)?;
        let data = self.forest.objects.get_mut(id);
        let data = data.ok_or(RefusalCause::UnknownObject)?;
        let ledger = data
            .share
            .and_then(|share| self.accounts.ledgers.get_mut(share));
        let ledger = ledger.ok_or(RefusalCause::NoSuchGpu)?;
        if ledger.polls.change(data.is_polled(), now_s).is_err() {
            return Err(RefusalCause::PolledTooOften);
        }
        data.ask(1);
        Ok(())
    }

    pub(super) fn required(
        &self,
        client: ClientHandle,
        object: ObjectHandle,
        kind: Kind,
    ) -> Result<RecordId, RefusalCause> {
        let found = self.forest.named(client, object)?;
        if found.object.kind != kind {
            return Err(RefusalCause::WrongClass);
        }
        Ok(found.id)
    }
}
