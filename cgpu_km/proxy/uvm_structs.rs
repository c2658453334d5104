// SPDX-License-Identifier: GPL-2.0
//! Calls by which UVM makes structures of its own in the host's memory: parts of managed ranges,
//! and range groups. They count before the driver is asked.

use super::{
    call::Call,
    stop::{
        get,
        Stop, //
    },
    uvm_call::{
        AddressRange,
        UvmCall, //
    }, //
};
use crate::nvidia::{
    status::NvStatus,
    uvm::{
        destroy_range_group,
        set_range_group, //
    }, //
};

/// Runs a call that changes a part of the managed memory, and so may cut it.
pub(super) fn splitting<C: Call>(
    call: &mut C,
    request: &mut UvmCall<'_>,
    range: AddressRange,
    run: impl FnOnce(&mut C, &mut UvmCall<'_>) -> Result<i32, Stop>,
) -> Result<i32, Stop> {
    let AddressRange { base, length } = range;
    let begun = call.accounting(|accounting| accounting.begin_split(request.file, base, length))?;
    // As the driver has it: `uvm_api_range_type_check()`, uvm_policy.c.
    let ticket = begun.ok_or(Stop::status(NvStatus::NV_ERR_INVALID_ADDRESS))?;
    let returned = run(call, request);
    call.accounting(|accounting| accounting.end_split(ticket));
    returned
}

/// `UVM_SET_RANGE_GROUP`. The addresses stand behind the number of the group.
pub(super) fn set_group(call: &mut impl Call, request: &mut UvmCall<'_>) -> Result<i32, Stop> {
    use set_range_group::{
        LENGTH,
        REQUESTED_BASE, //
    };
    let range = AddressRange {
        base: get(REQUESTED_BASE, request.bytes)?,
        length: get(LENGTH, request.bytes)?,
    };
    splitting(call, request, range, |call, request| {
        Ok(request.forward(call)?)
    })
}

/// `UVM_CREATE_RANGE_GROUP`.
pub(super) fn create_group(call: &mut impl Call, request: &mut UvmCall<'_>) -> Result<i32, Stop> {
    let file = request.file;
    call.accounting(|accounting| accounting.begin_group(file))?;
    let returned = request.forward(call);
    let is_made = request.has_worked(returned);
    call.accounting(|accounting| accounting.end_group(file, is_made));
    Ok(returned?)
}

/// `UVM_DESTROY_RANGE_GROUP`.
pub(super) fn destroy_group(call: &mut impl Call, request: &mut UvmCall<'_>) -> Result<i32, Stop> {
    let file = request.file;
    let number = get(destroy_range_group::RANGE_GROUP_ID, request.bytes)?;
    let is_certain = call.look(|accounting| accounting.goes_group(file, number));
    let returned = request.forward(call)?;
    if is_certain && returned == 0 {
        call.accounting(|accounting| accounting.group_gone(file, number));
    }
    Ok(returned)
}
