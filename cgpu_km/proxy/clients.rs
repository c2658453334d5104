// SPDX-License-Identifier: GPL-2.0
//! The handle of a new client.
//!
//! The driver chooses it and writes it into memory of the program. There another thread can replace
//! it with a neighbour's before it is read. If that were believed, the neighbour's client would be
//! the program's own wherever a call names a client.
//!
//! No program can write what the driver tells the kernel. The driver numbers all clients of the
//! machine in one row (`clientCurrentHandleIndex`, `_serverCreateEntryAndLockForNewClient()` in
//! rs_server.c), the kernel's too. So a client of the kernel's own is made before the program's,
//! and another one after it:
//!
//! * One number lies between theirs: it is the program's.
//! * None does: the program has got no client, whatever was written.
//! * More do: a program of the host's makes clients beside us (through us it is one at a time), and
//!   the program's is made once more.
//!
//! A harness in user space has no such client, and believes the driver.

use super::{
    call::{Call, Errno},
    sent::is_freed,
};
use crate::nvidia::handle::{ClientHandle, ObjectHandle};

/// Most attempts until nobody else makes clients meanwhile.
const TRIES: usize = 16;

/// The outcome of a call for a new client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NewClient {
    /// The driver's answer is all that there is.
    AsTold,
    /// There is none, or none that anybody knows.
    None,
    /// It has this handle, unless the driver has refused it after all.
    As(ClientHandle),
}

/// Makes a client by `forward`, which gives the driver's return value and the handle that it seems
/// to have chosen.
pub(super) fn make<C: Call>(
    call: &mut C,
    mut forward: impl FnMut(&mut C) -> (Result<i32, Errno>, ObjectHandle),
) -> Result<(Result<i32, Errno>, NewClient), Errno> {
    call.clients(|call| {
        for _ in 0..TRIES {
            let Some(before) = call.passing_client()? else {
                return Ok((forward(call).0, NewClient::AsTold));
            };
            let (returned, told) = forward(call);
            let after = call.passing_client().ok().flatten();
            match after.map(|after| before.until(after)) {
                Some(1) => return Ok((returned, NewClient::None)),
                Some(2) => return Ok((returned, NewClient::As(before.next()))),
                _ if returned.is_err() => return Ok((returned, NewClient::None)),
                _ => {}
            }
            // Of this file, or refused.
            is_freed(call, ClientHandle(told.0), told);
        }
        Ok((Ok(0), NewClient::None))
    })?
}
