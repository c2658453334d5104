// SPDX-License-Identifier: GPL-2.0
//! The accounting of one tenant: whose compute work can be taken off the GPU at any moment.

use crate::{
    nvidia::{
        capability::GRAPHICS,
        class::Kind,
        handle::{
            ClientHandle,
            ObjectHandle, //
        }, //
    },
    policy::{
        accounting::Accounting,
        event::{
            PreemptionOrder,
            RefusalCause,
            Ticket, //
        },
        forest::is_scheduled,
        ids::ShareId,
        object::Preemption,
        records::RecordId, //
    }, //
};

impl Accounting {
    /// The order for the driver after it has made a graphics object, before the object is [said to
    /// be there](Accounting::end_alloc). `None`: there is none.
    pub fn preemption_order(&self, ticket: &Ticket) -> Option<PreemptionOrder> {
        self.forest.preemption_order(self.context_of(ticket)?)
    }

    /// The driver has done so, or cannot on this GPU.
    pub fn preempts_any_time(&mut self, ticket: &Ticket) {
        let object = self.forest.objects.find(ticket.object);
        // A free that is in flight may take the context away again.
        let stays = object.is_some_and(|object| self.forest.can_be_shown(object));
        if let (Some(context), true) = (self.context_of(ticket), stays) {
            self.forest.end_graphics(context, Preemption::AnyTime);
        }
    }

    /// A channel or a group of channels is about to be put on the runlist. Any other object is the
    /// driver's to refuse, but not one that is not there: another call may be making it just now,
    /// and it would be on the runlist without a note.
    pub fn begin_schedule(
        &mut self,
        client: ClientHandle,
        object: ObjectHandle,
    ) -> Result<(), RefusalCause> {
        let id = self.forest.find(client, object);
        let id = id.ok_or(RefusalCause::UnknownObject)?;
        let found = self.forest.objects.get(id);
        if found.is_some_and(|found| is_scheduled(found.kind)) {
            return self.forest.begin_schedule(id);
        }
        Ok(())
    }

    /// A graphics object is about to be made on a channel of a share.
    pub(super) fn begin_graphics(
        &mut self,
        channel: RecordId,
        share: Option<ShareId>,
    ) -> Result<RecordId, RefusalCause> {
        let ledger = share.and_then(|share| self.accounts.ledgers.get(share));
        let capabilities = self.capabilities(ledger.map(|ledger| ledger.gpu()));
        self.forest
            .begin_graphics(channel, capabilities.meets(GRAPHICS))
    }

    /// The call of a ticket is over: a mode that was not set by now is not.
    pub(super) fn end_graphics(&mut self, ticket: &Ticket) {
        if let Some(context) = self.context_of(ticket) {
            self.forest.end_graphics(context, Preemption::AsMade);
        }
    }

    /// The context of the graphics object that a ticket is for.
    fn context_of(&self, ticket: &Ticket) -> Option<RecordId> {
        let objects = &self.forest.objects;
        let object = objects.get(objects.find(ticket.object)?)?;
        let [_, _, context, ..] = ticket.names;
        let context = context.filter(|_| object.kind == Kind::GraphicsObject);
        objects.find(context?)
    }
}
