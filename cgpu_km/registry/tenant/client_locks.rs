// SPDX-License-Identifier: GPL-2.0
//! The locks that keep calls on one client of the driver's apart ([`crate::proxy::ClientUse`]).
//!
//! A tenant has a few of them, and a client's handle says which one is its own: handles that follow
//! each other have different ones. They are a tenant's, so no tenant waits for another's call.

use crate::{
    os_interface::{RwGuard, RwSemaphore},
    proxy::ClientUse,
};
use kernel::prelude::*;

/// Locks of a tenant.
const COUNT: usize = 8;

/// A tenant's locks.
#[pin_data]
pub(super) struct ClientLocks {
    #[pin]
    locks: [RwSemaphore; COUNT],
}

impl ClientLocks {
    /// Locks that nobody has.
    pub(super) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            locks <- pin_init::pin_init_array_from_fn(|_| RwSemaphore::new()),
        })
    }

    /// Takes a client's lock as a call needs it; `EINTR` if the calling task is killed while it
    /// waits. A task has one of them at a time.
    pub(super) fn take(&self, client_use: ClientUse) -> Result<RwGuard<'_>> {
        // CAST: `usize` is wider.
        let place = client_use.client.0 as usize % COUNT;
        let lock = self.locks.get(place).ok_or(EINVAL)?;
        if client_use.alone {
            lock.alone()
        } else {
            lock.share()
        }
    }
}
