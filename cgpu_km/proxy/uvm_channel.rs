// SPDX-License-Identifier: GPL-2.0
//! Channels that UVM keeps, and so their memory and ids after they were freed.
//!
//! A registration keeps what the channel costs charged until it is gone for certain. The status
//! that the driver writes is no certainty: other threads of the program can overwrite it. It is
//! certain that UVM has no channel of a name any more when it was asked to let go of just that
//! name, which it does or says that it has none (`uvm_unregister_channel()`, uvm_user_channel.c),
//! and no other call that lets go of channels is in flight. So:
//!
//! * a `UVM_UNREGISTER_CHANNEL` is believed;
//! * if a GPU or its address space is said to be unregistered, each of its channels is let go of
//!   once more by itself;
//! * if a registration is said to have failed, it is undone: it is let go of.

use super::{
    call::{
        Call,
        Errno,
        Route, //
    },
    part::Part,
    stop::{
        get,
        Stop, //
    },
    uvm_call::UvmCall,
    uvm_map, //
};
use crate::{
    nvidia::{
        handle::{
            ClientHandle,
            ObjectHandle, //
        },
        uvm::{
            self,
            register_channel, //
        }, //
    },
    policy::Registered, //
};

/// `UVM_REGISTER_CHANNEL`.
pub(super) fn register(call: &mut impl Call, request: &mut UvmCall<'_>) -> Result<i32, Stop> {
    let (client, channel) = names(request)?;
    let uuid = request.uuid(register_channel::UUID.start)?;
    let Some(gpu) = call.gpu_by_uuid(&uuid) else {
        // The driver itself finds no address space of that GPU in the file, and refuses.
        return Ok(request.forward(call)?);
    };
    let registered = Registered {
        file: request.file,
        gpu,
        uuid,
        client,
        channel,
    };
    let ticket = call.accounting(|accounting| accounting.begin_register(&registered))?;
    let returned = request.forward(call);
    let is_made = request.has_worked(returned)
        || returned.is_ok() && !is_unregistered(call, &uuid, client, channel);
    call.accounting(|accounting| accounting.end_register(ticket, is_made));
    Ok(returned?)
}

/// `UVM_UNREGISTER_CHANNEL`.
pub(super) fn unregister(call: &mut impl Call, request: &mut UvmCall<'_>) -> Result<i32, Stop> {
    let (client, channel) = names(request)?;
    let file = request.file;
    call.accounting(|accounting| accounting.begin_unregister(file))?;
    let found = call.look(|accounting| accounting.registered(file, client, channel));
    let returned = request.forward(call);
    call.accounting(|accounting| {
        if let (Some(found), Ok(0)) = (found, returned) {
            accounting.unregistered(found);
        }
        accounting.end_unregister(file);
    });
    Ok(returned?)
}

/// `UVM_UNREGISTER_GPU_VASPACE` and `UVM_UNREGISTER_GPU`: all channels of the GPU go, and all that
/// is mapped for it.
pub(super) fn unregister_gpu(call: &mut impl Call, request: &mut UvmCall<'_>) -> Result<i32, Stop> {
    let file = request.file;
    let gpu = call.gpu_by_uuid(&request.uuid(0)?);
    call.accounting(|accounting| accounting.begin_unregister(file))?;
    let moment = call.look(|accounting| accounting.registering_moment());
    let returned = uvm_map::unregister(call, request);
    let has_worked = returned
        .as_ref()
        .is_ok_and(|&returned| request.has_worked(Ok(returned)));
    if let Some(gpu) = gpu.filter(|_| has_worked) {
        while let Some(found) =
            call.look(|accounting| accounting.next_registered(file, gpu, moment))
        {
            // A registration that cannot be ended now stays charged.
            if !is_unregistered(call, &found.uuid, found.client, found.channel) {
                break;
            }
            call.accounting(|accounting| accounting.unregistered(found));
        }
    }
    call.accounting(|accounting| accounting.end_unregister(file));
    returned
}

/// The client and the channel that a request names.
fn names(request: &UvmCall<'_>) -> Result<(ClientHandle, ObjectHandle), Stop> {
    let (Some(client), Some(channel)) = (request.entry.client, request.entry.object) else {
        return Err(Errno::EINVAL.into());
    };
    Ok((
        ClientHandle(get(client, request.bytes)?),
        ObjectHandle(get(channel, request.bytes)?),
    ))
}

/// Bytes of the largest `UVM_UNREGISTER_CHANNEL_PARAMS` of a branch.
const LARGEST_UNREGISTER: usize = 28;

/// Has UVM let go of just this channel, and tells whether the driver got to it. (Whether there was
/// anything does not matter.)
fn is_unregistered(
    call: &mut impl Call,
    uuid: &[u8; 16],
    client: ClientHandle,
    channel: ObjectHandle,
) -> bool {
    // It differs among branches: the older ones name the GPU as well, first of all.
    let Some(entry) = call.tables().uvm(uvm::UNREGISTER_CHANNEL) else {
        return false;
    };
    let mut bytes = [0; LARGEST_UNREGISTER];
    let size = usize::try_from(entry.size).unwrap_or(usize::MAX);
    let (Some(bytes), Some(at), Some(named)) = (bytes.get_mut(..size), entry.client, entry.object)
    else {
        return false;
    };
    if at.offset() >= uuid.len() {
        if let Some(place) = bytes.first_chunk_mut() {
            *place = *uuid;
        }
    }
    let filled = at.set(bytes, client.0).is_some() && named.set(bytes, channel.0).is_some();
    let mut parts = [Part::argument(bytes)];
    filled && call.forward(uvm::UNREGISTER_CHANNEL, &mut parts, Route::Caller) == Ok(0)
}
