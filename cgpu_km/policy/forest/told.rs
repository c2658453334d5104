// SPDX-License-Identifier: GPL-2.0
//! The sizes of GPUs' memory that clients know.

use super::Forest;
use crate::{
    nvidia::handle::ClientHandle,
    policy::ids::ShareId, //
};

impl Forest {
    /// The size that a client was last told a GPU's memory has, in KiB; 0: none.
    pub(in crate::policy) fn told_size(&self, client: ClientHandle, share: ShareId) -> u32 {
        let told = self.client(client).map(|client| &client.told);
        let told = told.and_then(|told| told.get(share.index()));
        told.copied().unwrap_or(0)
    }

    /// A client is told one.
    pub(in crate::policy) fn tell_size(&mut self, client: ClientHandle, share: ShareId, kib: u32) {
        let root = self.find_root(client);
        let owner = root.and_then(|root| self.objects.get(root)?.owner);
        let client = owner.and_then(|owner| self.clients.get_mut(owner));
        if let Some(told) = client.and_then(|client| client.told.get_mut(share.index())) {
            *told = kib;
        }
    }
}
