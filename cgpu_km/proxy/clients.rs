// SPDX-License-Identifier: GPL-2.0
//! The handle of a new client.
//!
//! A driver that chooses it writes it into memory of the program. There another thread can replace
//! it with a neighbour's before it is read. If that were believed, the neighbour's client would be
//! the program's own wherever a call names a client.
//!
//! So the module chooses. The driver takes the handle that stands in the place of the client
//! (`serverAllocClient()` in rs_server.c, with RS_COMPATABILITY_MODE, 535 to 595; seen on an H100
//! with 580). It is one that no client has and that nobody else chooses
//! ([`Call::unused_client`]). If the driver tells the kernel after the call that there is such a
//! client, the program has made it, whatever was written.
//!
//! A harness in user space cannot ask as the kernel. It lets the driver choose, and believes it.

use super::{
    call::{
        Call,
        Errno,
        Returned, //
    },
    sent::is_freed, //
};
use crate::nvidia::handle::ClientHandle;

/// The outcome of a call for a new client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NewClient {
    /// The driver has chosen, and its answer is all that there is.
    AsTold,
    /// There is none, whatever the answer says.
    None,
    /// It has this handle.
    As(ClientHandle),
}

/// Makes a client by `forward`, which is given the handle that it is to have, if the driver is not
/// to choose, and which gives the driver's return value.
pub(super) fn make<C: Call>(
    call: &mut C,
    forward: impl FnOnce(&mut C, Option<ClientHandle>) -> Returned,
) -> Result<(Returned, NewClient), Errno> {
    call.clients(|call| {
        let Some(client) = call.unused_client()? else {
            return Ok((forward(call, None), NewClient::AsTold));
        };
        let returned = forward(call, Some(client));
        match (returned, call.is_client(client)) {
            (Ok(_), Ok(true)) => Ok((returned, NewClient::As(client))),
            (_, Ok(false)) => {
                call.take_back_client(client);
                Ok((returned, NewClient::None))
            }
            // If it is there after all, nobody would know it.
            (failed, asked) => {
                if is_freed(call, client, client.root()) {
                    call.take_back_client(client);
                }
                asked.and(failed)?;
                Ok((failed, NewClient::None))
            }
        }
    })?
}
