// SPDX-License-Identifier: GPL-2.0
//! Freeing and duplicating RM objects.

use super::{
    call::Call,
    orders::rebalance,
    owned::check_file,
    sent::{
        plain,
        DriverReply, //
    },
    shown::end_shown,
    stop::{
        get,
        set,
        Asked,
        Stop, //
    }, //
};
use crate::{
    nvidia::{
        class::Kind,
        handle::{
            ClientHandle,
            ObjectHandle, //
        },
        nvos::{
            nvos00,
            nvos55, //
        },
        wire::Field, //
    },
    policy::RefusalCause, //
};

/// `NV_ESC_RM_FREE`.
#[inline(never)] // As `frontend::run`.
pub(super) fn free(call: &mut impl Call, asked: &Asked<'_>, bytes: &mut [u8]) -> Result<i32, Stop> {
    let client = ClientHandle(get(nvos00::H_ROOT, bytes)?);
    let object = ObjectHandle(get(nvos00::H_OBJECT_OLD, bytes)?);
    free_object(call, asked, bytes, (client, object), nvos00::STATUS)
}

/// Frees an object with all that hangs below it.
///
/// Their mappings end before the driver frees them ([`super::shown`]); their charges are given back
/// afterwards. A thread that allocates under the same handle in between gets an entry of
/// its own.
pub(super) fn free_object(
    call: &mut impl Call,
    asked: &Asked<'_>,
    bytes: &mut [u8],
    (client, object): (ClientHandle, ObjectHandle),
    status: Field<u32>,
) -> Result<i32, Stop> {
    let mut at = 0;
    let (ticket, first) = call.accounting(|accounting| {
        let ticket = accounting.begin_free(client, object, asked.session.control())?;
        let first = accounting.shown_below(&ticket, &mut at);
        Ok::<_, RefusalCause>((ticket, first))
    })?;
    end_shown(call, &ticket, first, &mut at);
    let returned = plain(call, asked.code, bytes);
    let is_freed = DriverReply::new(returned, status.get(bytes)).is_ok();
    let has_managed = call.accounting(|accounting| {
        accounting.end_free(ticket, is_freed);
        accounting.has_managed()
    });
    if has_managed {
        rebalance(call);
    }
    Ok(returned?)
}

/// `NV_ESC_RM_DUP_OBJECT`: a second object over the same memory, in the same tenant.
#[inline(never)] // As `frontend::run`.
pub(super) fn dup(call: &mut impl Call, asked: &Asked<'_>, bytes: &mut [u8]) -> Result<i32, Stop> {
    let client = ClientHandle(get(nvos55::H_CLIENT, bytes)?);
    let parent = ObjectHandle(get(nvos55::H_PARENT, bytes)?);
    let object = ObjectHandle(get(nvos55::H_OBJECT, bytes)?);
    let source_client = ClientHandle(get(nvos55::H_CLIENT_SRC, bytes)?);
    let source = ObjectHandle(get(nvos55::H_OBJECT_SRC, bytes)?);
    check_file(call, asked.session, client)?;
    let ticket = call.accounting(|accounting| {
        accounting.begin_dup(client, parent, object, source_client, source)
    })?;
    // If the caller left the handle to the driver, the accounting has chosen it.
    let made = ticket.handle();
    let _ = nvos55::H_OBJECT.set(bytes, made.0);
    let returned = plain(call, asked.code, bytes);
    let answer = DriverReply::new(returned, nvos55::STATUS.get(bytes));
    // A duplicate is what its source is.
    let kind = call.look(|accounting| accounting.kind_of(source_client, source));
    let kind = kind.unwrap_or(Kind::VideoMemory);
    let is_made = answer.has_made(call, kind, client, made);
    call.accounting(|accounting| accounting.end_dup(ticket, is_made.then_some(made)));
    if !answer.is_ok() {
        set(nvos55::H_OBJECT, bytes, object.0)?;
    }
    Ok(answer.returned?)
}
