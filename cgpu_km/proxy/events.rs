// SPDX-License-Identifier: GPL-2.0
//! Events: what happens to an object of a program, and is told to it.

use super::{
    call::Call,
    owned::owns,
    sent::{
        plain,
        DriverReply, //
    },
    stop::{
        get,
        Asked,
        Stop, //
    }, //
};
use crate::{
    nvidia::{
        class::Kind,
        handle::ClientHandle,
        nvos::{
            self,
            free_os_event,
            os_event, //
        },
        params::nv0005,
        status::NvStatus,
        wire::Field, //
    },
    policy::{
        Alloc,
        Reason, //
    }, //
};

/// Refuses an event that tells of others. The names of the request are held.
///
/// An event belongs to the object below which it is made, or to another one that its parameters
/// name (`eventConstruct_IMPL()` in event.c). Those of a channel or an engine's object are the
/// program's own. The driver tells each subdevice of what befalls the GPU: another program's crash,
/// bad memory, clocks (`gpuNotifySubDeviceEvent()`, gpu_rmapi.c). CUDA, Vulkan and video ask for
/// one kind of those alone, that an engine has done something, by which it is known that the GPU
/// works and no more. It cannot be told for whom.
pub(super) fn check(call: &mut impl Call, request: &Alloc, params: &[u8]) -> Result<(), Stop> {
    let field = |field: Field<u32>| field.get(params).unwrap_or(0);
    let client = field(nv0005::H_PARENT_CLIENT);
    let object = field(nv0005::H_SRC_RESOURCE);
    let is_elsewhere =
        (client != 0 && client != request.client.0) || (object != 0 && object != request.parent.0);
    let (client, parent) = (request.client, request.parent);
    let kind = call.look(|accounting| accounting.kind_of(client, parent));
    let is_told_of_others = match kind {
        Some(Kind::Subdevice) => field(nv0005::NOTIFY_INDEX) & nvos::EVENT_OF_AN_ENGINE == 0,
        Some(Kind::Root | Kind::Device) => true,
        _ => false,
    };
    if is_elsewhere || is_told_of_others {
        // The driver's answer to an unknown engine's event: event_notification.c,
        // eventGetEngineTypeFromSubNotifyIndex.
        return Err(Stop::refused(
            NvStatus::NV_ERR_NOT_SUPPORTED,
            Reason::Parameters,
        ));
    }
    Ok(())
}

/// `NV_ESC_ALLOC_OS_EVENT`: a key by which events find their file.
///
/// The driver looks for nothing but whether the pair of client and descriptor number is taken
/// (`allocate_os_event()` in src/nvidia/arch/nvalloc/unix/src/osapi.c), so that another tenant's
/// could be taken first. It has the status of a foreign client's for whatever is wrong.
#[inline(never)] // As `frontend::run`.
pub(super) fn make_key(
    call: &mut impl Call,
    asked: &Asked<'_>,
    bytes: &mut [u8],
) -> Result<i32, Stop> {
    let client = own_client(call, bytes, NvStatus::NV_ERR_INSUFFICIENT_RESOURCES)?;
    let (number, file) = (get(os_event::FD, bytes)?, asked.session.file);
    call.accounting(|accounting| accounting.begin_os_event(client, number, file))?;
    let returned = plain(call, asked.code, bytes);
    let answer = DriverReply::new(returned, os_event::STATUS.get(bytes));
    let made = returned.is_ok().then_some(answer.is_ok());
    call.accounting(|accounting| accounting.end_os_event(client, number, made));
    Ok(returned?)
}

/// `NV_ESC_FREE_OS_EVENT`: the driver frees any key that exists. Of one that does not it does not
/// hear: it would say so in the host's log (`free_os_event()` in osapi.c).
#[inline(never)] // As `frontend::run`.
pub(super) fn free_key(
    call: &mut impl Call,
    asked: &Asked<'_>,
    bytes: &mut [u8],
) -> Result<i32, Stop> {
    let client = own_client(call, bytes, NvStatus::NV_ERR_INVALID_EVENT)?;
    let number = get(os_event::FD, bytes)?;
    if !call.accounting(|accounting| accounting.begin_os_event_free(client, number)) {
        return Err(Stop::status(NvStatus::NV_ERR_INVALID_EVENT));
    }
    let returned = plain(call, asked.code, bytes);
    let is_reached = returned.is_ok();
    call.accounting(|accounting| accounting.end_os_event_free(client, number, is_reached));
    Ok(returned?)
}

/// The client of a key, if it is the tenant's.
fn own_client(call: &mut impl Call, bytes: &[u8], foreign: NvStatus) -> Result<ClientHandle, Stop> {
    let client = get(os_event::H_CLIENT, bytes)?;
    if !owns(call, client) {
        return Err(Stop::refused(foreign, Reason::Foreign));
    }
    Ok(ClientHandle(client))
}

// Both name it in the same place.
const _: () = assert!(os_event::H_CLIENT.offset() == free_os_event::H_CLIENT.offset());
