// SPDX-License-Identifier: GPL-2.0
//! The locks that keep calls on one client of the driver's apart ([`crate::proxy::ClientUse`]).
//!
//! A tenant has a few of them, and a client's handle says which one is its own: handles that follow
//! each other have different ones. They are a tenant's, so no tenant waits for another's call.

use crate::{
    nvidia::handle::ClientHandle,
    os_interface::{
        RwGuard,
        RwSemaphore, //
    },
    proxy::ClientUse, //
};
use kernel::{
    prelude::*,
    sync::Arc, //
};

/// Locks of a tenant.
const COUNT: usize = 8;

/// A tenant's locks.
#[pin_data]
pub struct ClientLocks {
    #[pin]
    locks: [RwSemaphore; COUNT],
}

impl ClientLocks {
    /// Locks that nobody has.
    pub fn new() -> Result<Arc<Self>> {
        let locks = pin_init!(Self {
            locks <- pin_init::pin_init_array_from_fn(|_| RwSemaphore::new()),
        });
        Arc::pin_init(locks, GFP_KERNEL)
    }

    /// Takes a client's lock as a call needs it; `EINTR` if the calling task is killed while it
    /// waits. A task has one of them at a time.
    pub fn take(&self, client_use: ClientUse) -> Result<RwGuard<'_>> {
        let lock = self.lock(client_use.client).ok_or(EINVAL)?;
        if client_use.alone {
            lock.alone()
        } else {
            lock.share()
        }
    }

    /// Takes a client's lock beside others who share it. `None` if a call has it alone.
    pub fn try_share(&self, client: ClientHandle) -> Option<RwGuard<'_>> {
        self.lock(client)?.try_share()
    }

    fn lock(&self, client: ClientHandle) -> Option<&RwSemaphore> {
        // CAST: `usize` is wider.
        self.locks.get(client.0 as usize % COUNT)
    }
}
