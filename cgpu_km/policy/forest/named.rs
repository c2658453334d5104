// SPDX-License-Identifier: GPL-2.0
//! The objects that a call names: a client, or an object of one.

use super::Forest;
use crate::{
    nvidia::{
        class::Kind,
        handle::{
            ClassId,
            ClientHandle,
            ObjectHandle, //
        }, //
    },
    policy::{
        event::RefusalCause,
        object::{
            key_of,
            Client,
            Object,
            ObjectLife, //
        },
        records::RecordId, //
    }, //
};

/// An object that a call names.
pub(in crate::policy) struct NamedObject<'a> {
    pub(in crate::policy) id: RecordId,
    pub(in crate::policy) object: &'a Object,
    pub(in crate::policy) owner: &'a Client,
}

impl NamedObject<'_> {
    /// An object below it, of its client and GPU, that is about to be asked for. It has no handle
    /// yet.
    pub(in crate::policy) fn child(&self, class: ClassId, kind: Kind) -> Object {
        let mut child = Object::coming(self.object.client, ObjectHandle(0), class, kind);
        (child.owner, child.share) = (self.object.owner, self.object.share);
        child
    }
}

impl Forest {
    /// The object that the driver has under a handle.
    pub(in crate::policy) fn find(
        &self,
        client: ClientHandle,
        handle: ObjectHandle,
    ) -> Option<RecordId> {
        let id = self.by_handle.get(key_of(client, handle))?;
        (self.objects.get(id)?.life == ObjectLife::Here).then_some(id)
    }

    /// The object of a handle that the driver has, or that it is being asked for.
    pub(in crate::policy) fn find_made(
        &self,
        client: ClientHandle,
        handle: ObjectHandle,
    ) -> Option<RecordId> {
        let id = self.by_handle.get(key_of(client, handle))?;
        (self.objects.get(id)?.life != ObjectLife::Gone).then_some(id)
    }

    /// The object that stands for a client.
    pub(in crate::policy) fn find_root(&self, client: ClientHandle) -> Option<RecordId> {
        self.find(client, ObjectHandle(client.0))
    }

    /// The record of a client that the driver has.
    pub(in crate::policy) fn client(&self, client: ClientHandle) -> Option<&Client> {
        self.record_of(self.find_root(client)?)
    }

    /// The record of the client that an object is of.
    #[inline]
    pub(in crate::policy) fn record_of(&self, object: RecordId) -> Option<&Client> {
        self.clients.get(self.objects.get(object)?.owner?)
    }

    /// The client that a call names.
    pub(in crate::policy) fn owner(&self, client: ClientHandle) -> Result<&Client, RefusalCause> {
        self.client(client).ok_or(RefusalCause::ForeignClient)
    }

    /// The object that a call names, and its client. An object that is here has a client that is.
    pub(in crate::policy) fn named(
        &self,
        client: ClientHandle,
        handle: ObjectHandle,
    ) -> Result<NamedObject<'_>, RefusalCause> {
        let found = self.find(client, handle).and_then(|id| {
            let object = self.objects.get(id)?;
            let owner = self.clients.get(object.owner?)?;
            Some(NamedObject { id, object, owner })
        });
        match found {
            Some(found) => Ok(found),
            None => Err(self
                .owner(client)
                .err()
                .unwrap_or(RefusalCause::UnknownObject)),
        }
    }

    /// No other object can be made under this handle.
    pub(in crate::policy) fn is_taken(&self, client: ClientHandle, handle: ObjectHandle) -> bool {
        self.by_handle.get(key_of(client, handle)).is_some()
    }
}
