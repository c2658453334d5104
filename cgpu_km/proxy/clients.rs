// SPDX-License-Identifier: GPL-2.0
//! What handle a new client has.
//!
//! The driver chooses it and writes it into memory of the program, where another thread can write a neighbour's
//! over it before it is read. Believed, it would make the neighbour's client the program's own wherever a call
//! names a client.
//!
//! What no program can write is what the driver tells the kernel. It numbers all clients of the machine in one
//! row (`clientCurrentHandleIndex`, `_serverCreateEntryAndLockForNewClient()` in rs_server.c), the kernel's
//! too. So a client of the kernel's own is made before the program's and another one after it: if one number lies
//! between theirs, it is the program's, and if none does, the program has got none, whatever was written. If
//! more do, somebody makes clients beside us (a program of the host's; through us it is one at a time), and the
//! program's is made once more.
//!
//! In a harness in user space there is no such client, and the driver is believed.

use super::frontend::is_freed;
use super::Call;
use super::Errno;
use crate::nvidia::handle::{ClientHandle, ObjectHandle};

/// How often a client is made until nobody makes others meanwhile.
const TRIES: usize = 16;

/// What became of a call for a new client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Made {
    /// The driver's answer is all that there is.
    AsTold,
    /// There is none, or none that anybody knows.
    None,
    /// It has this handle, unless the driver has refused it after all.
    As(ClientHandle),
}

/// Makes a client by `forward`, which gives the driver's return value and the handle that it seems to have
/// chosen.
pub(super) fn make<C: Call>(
    call: &mut C,
    mut forward: impl FnMut(&mut C) -> (Result<i32, Errno>, ObjectHandle),
) -> Result<(Result<i32, Errno>, Made), Errno> {
    call.clients(|call| {
        for _ in 0..TRIES {
            let Some(before) = call.passing_client()? else {
                return Ok((forward(call).0, Made::AsTold));
            };
            let (returned, told) = forward(call);
            let after = call.passing_client().ok().flatten();
            match after.map(|after| before.until(after)) {
                Some(1) => return Ok((returned, Made::None)),
                Some(2) => return Ok((returned, Made::As(before.next()))),
                _ if returned.is_err() => return Ok((returned, Made::None)),
                _ => {}
            }
            // Of this file, or refused.
            is_freed(call, ClientHandle(told.0), told);
        }
        Ok((Ok(0), Made::None))
    })?
}
