// SPDX-License-Identifier: GPL-2.0
//! The accounting of one tenant: channels that UVM keeps.

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
            RefusalCause,
            RegisterTicket, //
        },
        ids::{
            FileId,
            GpuId, //
        },
        registered::{
            FoundChannel,
            Registered, //
        }, //
    }, //
};

impl Accounting {
    /// A channel is about to be registered with UVM (`UVM_REGISTER_CHANNEL`). What it costs, and
    /// its group, stays charged from now on.
    pub fn begin_register(&mut self, of: &Registered) -> Result<RegisterTicket, RefusalCause> {
        let owner = self.forest.owner(of.client)?;
        let (root, process) = (owner.root, owner.process);
        let named = self.forest.named(of.client, of.channel).ok();
        let channel = named
            .filter(|named| named.object.kind == Kind::Channel)
            .ok_or(RefusalCause::UnknownChannel)?;
        let (channel, object) = (channel.id, channel.object);
        let registered = self.registered(of.file, of.client, of.channel);
        if registered.is_some() {
            return Err(RefusalCause::ChannelRegistered);
        }
        self.registered.reserve()?;
        let hold = self.accounts.share(object.hold, process)?;
        let registration = self.registered.insert(of, hold);
        let registration = registration.inspect_err(|_| self.release_hold(hold))?;
        let names = [Some(root), Some(channel), None];
        Ok(RegisterTicket {
            registration,
            names: names.map(|id| self.forest.hold_name(id?)),
        })
    }

    /// The driver has answered a call that [`Accounting::begin_register`] agreed to. Not `made`: it
    /// certainly has no such channel.
    pub fn end_register(&mut self, ticket: RegisterTicket, made: bool) {
        let RegisterTicket {
            registration,
            names,
        } = ticket;
        if made {
            self.registered.settle(registration);
        } else {
            let hold = self.registered.cancel(registration);
            self.release_hold(hold);
        }
        self.release_names(names);
    }

    /// A call is about to take channels from UVM, on a file.
    pub fn begin_unregister(&mut self, file: FileId) -> Result<(), RefusalCause> {
        Ok(self.registered.begin_end(file)?)
    }

    /// The driver was asked to take just this channel from UVM, by a call that
    /// [`Accounting::begin_unregister`] knows of.
    pub fn unregistered(&mut self, channel: FoundChannel) {
        self.registered.let_go(channel.name);
    }

    /// That call has ended. What is gone is credited when no other one is in flight on the file,
    /// which could be about to let go of it.
    pub fn end_unregister(&mut self, file: FileId) {
        self.registered.end_end(file);
        while let Some(hold) = self.registered.take_gone(file) {
            self.release_hold(hold);
        }
    }

    /// A channel that UVM has through a file by this name, or is about to have.
    pub fn registered(
        &self,
        file: FileId,
        client: ClientHandle,
        channel: ObjectHandle,
    ) -> Option<FoundChannel> {
        self.registered.find(file, client, channel)
    }

    /// The next channel of a GPU that UVM has had through a file since that moment or longer.
    pub fn next_registered(&self, file: FileId, gpu: GpuId, moment: u64) -> Option<FoundChannel> {
        self.registered.next(file, gpu, moment)
    }

    /// The present moment, for [`Accounting::next_registered`].
    pub fn registering_moment(&self) -> u64 {
        self.registered.now()
    }
}
