// SPDX-License-Identifier: GPL-2.0
//! Compute work that the GPU can be taken from at any moment. `policy::preemption` has why.

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
    sent::is_freed,
    stop::{
        get,
        set, //
    }, //
};
use crate::{
    nvidia::{
        escape::Escape,
        handle::ObjectHandle,
        nvos::{
            self,
            nvos54, //
        },
        params::{
            preemption_mode,
            CILP,
            SETS_CILP, //
        },
        rmapi::SET_PREEMPTION_MODE,
        status::NvStatus, //
    },
    policy::{
        Alloc,
        PreemptionOrder,
        Ticket, //
    }, //
};

/// Has the driver preempt the compute work of a new graphics object at any instruction, if it does
/// not yet.
///
/// A GPU that cannot is left as it is: the driver's refusal says nothing about the tenant.
///
/// # Errors
///
/// The status of the whole call. The program has taken away what the driver needed, by another
/// thread, or the instance went; the object was freed again.
pub(super) fn make_preemptible(
    call: &mut impl Call,
    request: &Alloc,
    ticket: &Ticket,
    object: ObjectHandle,
) -> Result<(), NvStatus> {
    let order = call.look(|accounting| accounting.preemption_order(ticket));
    let Some(order) = order else {
        return Ok(());
    };
    let told = set_cilp(call, request, order);
    if told.is_ok_and(|status| !misses_object(status)) {
        call.accounting(|accounting| accounting.preempts_any_time(ticket));
        return Ok(());
    }
    is_freed(call, request.client, object);
    Err(told.unwrap_or(NvStatus::NV_ERR_INVALID_STATE))
}

/// Whether the driver did not find something that a control names.
fn misses_object(status: NvStatus) -> bool {
    matches!(
        status,
        NvStatus::NV_ERR_INVALID_CLIENT
            | NvStatus::NV_ERR_INVALID_OBJECT
            | NvStatus::NV_ERR_INVALID_OBJECT_HANDLE
            | NvStatus::NV_ERR_INVALID_OBJECT_PARENT
            | NvStatus::NV_ERR_OBJECT_NOT_FOUND
    )
}

/// Asks the driver for it. No program sees the words of the call.
fn set_cilp(
    call: &mut impl Call,
    request: &Alloc,
    order: PreemptionOrder,
) -> Result<NvStatus, Errno> {
    let mut outer = [0; nvos54::SIZE];
    set(nvos54::H_CLIENT, &mut outer, request.client.0)?;
    set(nvos54::H_OBJECT, &mut outer, order.subdevice.0)?;
    set(nvos54::CMD, &mut outer, SET_PREEMPTION_MODE.0)?;
    let size = u32::try_from(preemption_mode::SIZE).map_err(|_| Errno::EINVAL)?;
    set(nvos54::PARAMS_SIZE, &mut outer, size)?;
    let mut params = [0; preemption_mode::SIZE];
    set(preemption_mode::FLAGS, &mut params, SETS_CILP)?;
    set(preemption_mode::H_CHANNEL, &mut params, order.channels.0)?;
    set(preemption_mode::CILP_PREEMPT_MODE, &mut params, CILP)?;
    let code = nvos::request_code(Escape::RmControl.nr(), nvos54::SIZE).ok_or(Errno::EINVAL)?;
    let parts = &mut [
        Part::argument(&mut outer),
        Part::pointed(&mut params, CONTROL_PARAMS),
    ];
    call.forward(code, parts, Route::Unseen)?;
    get(nvos54::STATUS, &outer).map(NvStatus)
}

/// A program sets the mode: it becomes CILP in the parameters. Returns the mode that it asked for,
/// to be put back.
pub(super) fn always_cilp(params: &mut [u8]) -> Result<u32, Errno> {
    let asked = get(preemption_mode::CILP_PREEMPT_MODE, params)?;
    if get(preemption_mode::FLAGS, params)? & SETS_CILP != 0 {
        set(preemption_mode::CILP_PREEMPT_MODE, params, CILP)?;
    }
    Ok(asked)
}
