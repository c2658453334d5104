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
//! * One number is between theirs: it is the program's.
//! * None is: the program got no client, whatever was written.
//! * More are: others made clients in between, and the program's is made once more.
//!
//! Programs of the host make clients at any time. Programs in instances make one at a time, but
//! nobody waits for a task that takes too long ([`Call::clients`]). The number in between may then
//! be another task's, and the client is made once more as well. The task that did not wait may take
//! the other's client for its own, if it got none. That client was given to nobody, and is on the
//! file of a task that frees it.
//!
//! A harness in user space has no such client, and believes the driver.

use super::{
    call::{Call, Errno, Returned},
    sent::is_freed,
};
use crate::nvidia::handle::{ClientHandle, ObjectHandle};

/// Most attempts until nobody else makes clients meanwhile.
const TRIES: usize = 32;

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
    mut forward: impl FnMut(&mut C) -> (Returned, ObjectHandle),
) -> Result<(Returned, NewClient), Errno> {
    for _ in 0..TRIES {
        let (made, alone) = call.clients(|call| between(call, &mut forward))?;
        let Made {
            returned,
            told,
            numbers,
        } = made?;
        match numbers {
            None => return Ok((returned, NewClient::AsTold)),
            Some((before, after)) => match after.map(|after| before.until(after)) {
                Some(1) => return Ok((returned, NewClient::None)),
                Some(2) if alone => return Ok((returned, NewClient::As(before.next()))),
                _ if returned.is_err() => return Ok((returned, NewClient::None)),
                _ => {}
            },
        }
        // Of this file, or refused.
        is_freed(call, ClientHandle(told.0), told);
    }
    Ok((Ok(0), NewClient::None))
}

/// The result of one attempt.
struct Made {
    returned: Returned,
    told: ObjectHandle,
    /// The kernel's clients before it and after it, where there is a kernel; the latter may have
    /// been refused.
    numbers: Option<(ClientHandle, Option<ClientHandle>)>,
}

/// Makes a client between two of the kernel's own.
fn between<C: Call>(
    call: &mut C,
    forward: &mut impl FnMut(&mut C) -> (Returned, ObjectHandle),
) -> Result<Made, Errno> {
    let before = call.passing_client()?;
    let (returned, told) = forward(call);
    let numbers = before.map(|before| (before, call.passing_client().ok().flatten()));
    Ok(Made {
        returned,
        told,
        numbers,
    })
}
