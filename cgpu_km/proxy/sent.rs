// SPDX-License-Identifier: GPL-2.0
//! Calls of the driver, and what of its answers is believed.

use super::{
    call::{
        Call,
        Errno,
        Returned,
        Role,
        Route,
        Session, //
    },
    part::Part,
    stop::{
        get,
        set, //
    }, //
};
use crate::{
    nvidia::{
        class::Kind,
        escape::Escape,
        handle::{
            ClientHandle,
            ObjectHandle, //
        },
        nvos,
        status::NvStatus,
        wire::Field, //
    },
    policy::{
        Accounting,
        AllocDone,
        Ticket, //
    }, //
};

/// The driver's answer to a call that makes or changes something.
#[derive(Clone, Copy, Debug)]
pub(super) struct DriverReply {
    /// The return value, if the driver was reached.
    pub(super) returned: Returned,
    /// The status that stood in the argument afterwards. Other threads of the program can have
    /// written it.
    pub(super) status: Option<NvStatus>,
}

impl DriverReply {
    /// The answer with the status field's number.
    pub(super) fn new(returned: Returned, status: Option<u32>) -> Self {
        let status = status.map(NvStatus);
        Self { returned, status }
    }

    /// Whether the driver was reached and says that the call has worked.
    pub(super) fn is_ok(&self) -> bool {
        self.returned == Ok(0) && self.status == Some(NvStatus::NV_OK)
    }

    /// The outcome of a call that makes an object, as far as it can be believed.
    ///
    /// A status is an output: threads of the program can overwrite it before we read it. "Made" is
    /// believed, because it can only raise what is charged. "Refused" is verified: the object is
    /// freed, whether it is there or not, so the driver has none that the accounting does not know.
    /// A program cannot stop that call, but can be killed before it, or close the control file of
    /// the client. Then the object counts as made until its client goes.
    ///
    /// So every object counts against its limit. A client is found by its number instead
    /// ([`super::clients`]).
    pub(super) fn has_made(
        &self,
        call: &mut impl Call,
        kind: Kind,
        client: ClientHandle,
        object: ObjectHandle,
    ) -> bool {
        self.is_made(kind, || is_freed(call, client, object))
    }

    /// The same for a call on a file of whatever role. On a GPU's file the driver makes memory and
    /// events, but frees nothing (`NV_CTL_DEVICE_ONLY` in `RmIoctl()`, escape.c). So the object is
    /// freed through the control file that its client was made on.
    pub(super) fn has_made_on(
        &self,
        call: &mut impl Call,
        session: &Session,
        kind: Kind,
        (client, object): (ClientHandle, ObjectHandle),
    ) -> bool {
        match session.role {
            Role::Gpu(_) => self.is_made(kind, || is_freed_elsewhere(call, client, object)),
            Role::Control | Role::Uvm => self.has_made(call, kind, client, object),
        }
    }

    /// Ends the call of an object: `done` says whether it was made. If the driver was not reached,
    /// it keeps nothing of what it has refused.
    pub(super) fn end_alloc(
        &self,
        accounting: &mut Accounting,
        ticket: Ticket,
        done: Option<AllocDone>,
    ) {
        match self.returned {
            Ok(_) => accounting.end_alloc(ticket, done),
            Err(_) => accounting.cancel_alloc(ticket),
        }
    }

    fn is_made(&self, kind: Kind, is_freed: impl FnOnce() -> bool) -> bool {
        match (self.returned, self.status) {
            // The driver was not reached.
            (Err(_), _) => false,
            (Ok(0), Some(NvStatus::NV_OK)) => true,
            _ if kind == Kind::Root => false,
            // If that is true, the object of that handle may have come out of a descriptor, and is
            // not to be freed.
            (Ok(0), Some(NvStatus::NV_ERR_INSERT_DUPLICATE_NAME)) => true,
            _ => !is_freed(),
        }
    }
}

/// Forwards a struct that holds no pointer and decides nothing.
pub(super) fn plain(call: &mut impl Call, code: u32, bytes: &mut [u8]) -> Returned {
    call.forward(code, &mut [Part::argument(bytes)], Route::Caller)
}

/// Runs a call without one bit of a field, and puts it back as the program had it.
pub(super) fn without<E: From<Errno>>(
    (field, bit): (Field<u32>, u32),
    bytes: &mut [u8],
    run: impl FnOnce(&mut [u8]) -> Result<i32, E>,
) -> Result<i32, E> {
    let wanted = get(field, bytes)?;
    set(field, bytes, wanted & !bit)?;
    let returned = run(bytes);
    let told = get(field, bytes)?;
    set(field, bytes, told | wanted & bit)?;
    returned
}

/// Frees an object that may not be there, and tells whether the driver got to it. (The driver
/// answers that there is no such object with success, too.)
///
/// Through the file of the call, which has to be a control file.
pub(super) fn is_freed(call: &mut impl Call, client: ClientHandle, object: ObjectHandle) -> bool {
    frees(client, object, |code, bytes| plain(call, code, bytes))
}

/// As [`is_freed`], through the control file that the client was made on.
fn is_freed_elsewhere(call: &mut impl Call, client: ClientHandle, object: ObjectHandle) -> bool {
    let Some(file) = call.look(|accounting| accounting.client_file(client)) else {
        return false;
    };
    frees(client, object, |code, bytes| {
        call.forward_on(file, code, &mut [Part::argument(bytes)])
    })
}

/// Whether `send` reaches the driver with a free of an object.
fn frees(
    client: ClientHandle,
    object: ObjectHandle,
    send: impl FnOnce(u32, &mut [u8]) -> Returned,
) -> bool {
    use nvos::nvos00;
    let mut bytes = [0; nvos00::SIZE];
    let filled = nvos00::H_ROOT.set(&mut bytes, client.0).is_some()
        && nvos00::H_OBJECT_OLD.set(&mut bytes, object.0).is_some();
    match nvos::request_code(Escape::RmFree.nr(), nvos00::SIZE) {
        Some(code) if filled => send(code, &mut bytes) == Ok(0),
        _ => false,
    }
}
