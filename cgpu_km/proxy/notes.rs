// SPDX-License-Identifier: GPL-2.0
//! The driver's object under a handle: what a new channel names for its errors, and a new range.

use super::{
    call::{
        Call,
        Errno,
        Route, //
    },
    part::{
        Part,
        CONTROL_PARAMS, //
    },
    stop::{
        get,
        set,
        Stop, //
    }, //
};
use crate::{
    nvidia::{
        class::Kind,
        escape::Escape,
        handle::{
            ClassId,
            ObjectHandle, //
        },
        nvos::{
            self,
            nvos54, //
        },
        params::handle_info,
        rmapi::GET_HANDLE_INFO,
        status::NvStatus, //
    },
    policy::{
        Alloc,
        RefusalCause, //
    }, //
};

/// Refuses a channel whose errors would go to nothing. The accounting knows such memory, and no
/// call frees it meanwhile. But whether the driver has made it is an output of another call, which
/// a program can forge ([`DriverReply::has_made`](super::sent::DriverReply::has_made)). Of a handle
/// that is not there the driver would take a null pointer. So it is asked where no program sees it.
pub(super) fn check(call: &mut impl Call, request: &Alloc) -> Result<(), Stop> {
    let Some(notes) = request.memory else {
        return Ok(());
    };
    let class = class_of(call, request.client.0, notes.0)?;
    let entry = class.and_then(|class| call.tables().class(class));
    let takes_notes = entry.is_some_and(|entry| {
        matches!(
            entry.kind,
            Kind::SystemMemory | Kind::VideoMemory | Kind::OsDescriptor | Kind::ContextDma
        )
    });
    if takes_notes {
        Ok(())
    } else {
        Err(RefusalCause::NoNotes.into())
    }
}

/// Whether the driver has a new object, if that counts: a range that was asked for with its page
/// tables. Of one that was refused, the tables count on
/// ([`Accounting::end_alloc`](crate::policy::Accounting::end_alloc)), so that it was made is not
/// believed. It is if nobody answers.
pub(super) fn is_there(call: &mut impl Call, request: &Alloc, object: ObjectHandle) -> bool {
    if request.kind != Kind::VirtualMemory || request.tables == 0 {
        return true;
    }
    let class = class_of(call, request.client.0, object.0);
    class.is_err() || class.is_ok_and(|class| class.is_some())
}

/// The class that the driver knows an object by.
fn class_of(call: &mut impl Call, client: u32, object: u32) -> Result<Option<ClassId>, Errno> {
    let mut outer = [0; nvos54::SIZE];
    set(nvos54::H_CLIENT, &mut outer, client)?;
    set(nvos54::H_OBJECT, &mut outer, client)?;
    set(nvos54::CMD, &mut outer, GET_HANDLE_INFO.0)?;
    let size = u32::try_from(handle_info::SIZE).map_err(|_| Errno::EINVAL)?;
    set(nvos54::PARAMS_SIZE, &mut outer, size)?;
    let mut params = [0; handle_info::SIZE];
    set(handle_info::H_OBJECT, &mut params, object)?;
    set(handle_info::INDEX, &mut params, nvos::HANDLE_INFO_CLASS)?;
    let code = nvos::request_code(Escape::RmControl.nr(), nvos54::SIZE).ok_or(Errno::EINVAL)?;
    let parts = &mut [
        Part::argument(&mut outer),
        Part::pointed(&mut params, CONTROL_PARAMS),
    ];
    call.forward(code, parts, Route::Unseen)?;
    let class = get(handle_info::I_RESULT, &params)?;
    let is_known = get(nvos54::STATUS, &outer)? == NvStatus::NV_OK.0;
    Ok(u32::try_from(class).ok().filter(|_| is_known).map(ClassId))
}
