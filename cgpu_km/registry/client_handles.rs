// SPDX-License-Identifier: GPL-2.0
//! The handles of all containers' clients ([`crate::policy::ClientLists`]), which tenants share.
//!
//! They are behind a spinlock, so no task is taken off its processor while it has the lock. A
//! tenant takes it under its own state.

use crate::{
    nvidia::handle::ClientHandle,
    policy::ClientLists, //
};
use kernel::{
    new_spinlock,
    prelude::*,
    sync::{
        Arc,
        SpinLock, //
    }, //
};

/// The handles that clients of containers have.
#[pin_data]
pub(super) struct ClientHandles {
    #[pin]
    lists: SpinLock<ClientLists>,
}

impl ClientHandles {
    /// Those of no client.
    pub(super) fn new() -> Result<Arc<Self>> {
        let lists = ClientLists::new().map_err(|_| ENOMEM)?;
        Arc::pin_init(
            pin_init!(Self {
                lists <- new_spinlock!(lists),
            }),
            GFP_KERNEL,
        )
    }

    /// A handle for a new client, until it is [taken back](Self::take_back).
    pub(super) fn give(&self) -> Result<ClientHandle> {
        self.lists.lock().give().ok_or(ENOMEM)
    }

    /// No client has this handle any more.
    pub(super) fn take_back(&self, client: ClientHandle) {
        self.lists.lock().take_back(client);
    }
}
