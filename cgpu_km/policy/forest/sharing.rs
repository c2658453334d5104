// SPDX-License-Identifier: GPL-2.0
//! Devices that use the addresses of another client (`hClientShare`).
//!
//! The driver keeps the handle of that client. It looks for the client's device, and has the
//! addresses of that, when the device first needs some (`deviceInitClientShare()`, device_share.c).
//! If those are another client's as well, it calls itself, with no end where two share with each
//! other. And if the client has gone, its handle may have become a neighbour's by then.
//!
//! So a client either shares with another or is shared with, never both: no path is longer than
//! one step. The two are of one file, with which both go, and before that the one that is shared
//! with is not freed while a device uses it. Vulkan has such a pair.

use super::Forest;
use crate::{
    nvidia::handle::ClientHandle,
    policy::{
        count::lower,
        event::RefusalCause,
        records::RecordId, //
    }, //
};

impl Forest {
    /// The client whose addresses a new device of another one is to have: the object that stands
    /// for it. There is room for the device's note from now on, until [`Forest::share`] or
    /// [`Forest::forget_shared_promise`].
    pub(in crate::policy) fn shared_client(
        &mut self,
        own: ClientHandle,
        shared: ClientHandle,
    ) -> Result<RecordId, RefusalCause> {
        let (user, used) = (self.owner(own)?, self.owner(shared)?);
        let root = used.root;
        let is_step = user.file == used.file && user.users == 0 && used.shares == 0;
        if !is_step || !self.can_be_shown(root) {
            return Err(RefusalCause::NotShareable);
        }
        self.shared.promise()?;
        Ok(root)
    }

    /// There will be no such device.
    pub(in crate::policy) fn forget_shared_promise(&mut self) {
        self.shared.forget_promise();
    }

    /// A device that is about to be asked for uses the addresses of a client, until it is gone.
    pub(in crate::policy) fn share(&mut self, device: RecordId, root: RecordId) {
        self.shared.insert_promised(key(device), root);
        self.count_share(device, root, |count| count.saturating_add(1));
        if let Some(root) = self.objects.get_mut(root) {
            root.named = root.named.saturating_add(1);
        }
    }

    /// A device is about to go.
    pub(super) fn forget_share(&mut self, device: RecordId) {
        let Some(root) = self.shared.get(key(device)) else {
            return;
        };
        self.shared.remove(key(device));
        self.count_share(device, root, |count| count.saturating_sub(1));
        if let Some(root) = self.objects.get_mut(root) {
            lower(&mut root.named, 1);
        }
        self.bury(root);
    }

    /// Counts a device, in its own client and in the one whose addresses it uses, where they are
    /// still there.
    fn count_share(&mut self, device: RecordId, root: RecordId, count: impl Fn(u32) -> u32) {
        let owner_of = |id| self.objects.get(id).and_then(|object| object.owner);
        let (user, used) = (owner_of(device), owner_of(root));
        if let Some(user) = user.and_then(|user| self.clients.get_mut(user)) {
            user.shares = count(user.shares);
        }
        if let Some(used) = used.and_then(|used| self.clients.get_mut(used)) {
            used.users = count(used.users);
        }
    }

    /// Whether an object stands for a client whose addresses a device of another one uses.
    pub(in crate::policy) fn is_shared_with(&self, id: RecordId) -> bool {
        let client = self.record_of(id);
        client.is_some_and(|client| client.root == id && client.users > 0)
    }
}

/// The key of a device in [`Forest::shared`].
fn key(device: RecordId) -> u64 {
    u64::from(device.number().get())
}
