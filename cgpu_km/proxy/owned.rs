// SPDX-License-Identifier: GPL-2.0
//! Checks that objects are the tenant's own, and that it may make a call.
//!
//! Handles are no secret: the driver counts those of clients up, and programs number their objects
//! all alike. In most calls the driver compares a client with the file that the call came through
//! (`rmclientValidate_IMPL()` in src/nvidia/src/kernel/rmapi/client.c), in some with the calling
//! process, and in some with nothing. Here a client is the tenant's own in every call, or the call
//! is refused as the driver refuses a client that does not exist: a neighbour's client must look
//! like none. Objects are named within their client, so nothing else has to be asked of them.

use super::{
    call::{
        Call,
        Session, //
    },
    stop::Stop, //
};
use crate::{
    nvidia::{
        capability::{
            Capabilities,
            BASE, //
        },
        handle::ClientHandle,
        params::share_type,
        status::NvStatus,
        wire::Field, //
    },
    policy::{
        FileId,
        GpuId,
        Reason,
        RefusalCause, //
    }, //
};

/// The refusal of a client that is not the tenant's.
pub(super) const FOREIGN: Stop =
    Stop::refused(RefusalCause::ForeignClient.status(), Reason::Foreign);

/// Whether a client is the tenant's.
pub(super) fn owns(call: &mut impl Call, client: u32) -> bool {
    call.look(|accounting| accounting.owns_client(ClientHandle(client)))
}

/// A client of the tenant's; another one is refused.
pub(super) fn owned(call: &mut impl Call, client: u32) -> Result<ClientHandle, Stop> {
    if owns(call, client) {
        Ok(ClientHandle(client))
    } else {
        Err(FOREIGN)
    }
}

/// Refuses parameters that name another tenant's client at one of these places. 0 names none. (The
/// tables are made from the size of the parameters, so each place is there.)
pub(super) fn check_clients(
    call: &mut impl Call,
    places: &[usize],
    params: &[u8],
) -> Result<(), Stop> {
    let mut named = places
        .iter()
        .filter_map(|&at| Field::<u32>::at(at).get(params));
    if named.all(|client| client == 0 || owns(call, client)) {
        Ok(())
    } else {
        Err(FOREIGN)
    }
}

/// Refuses a call on a client through another control file than its own.
///
/// The driver takes a client through the control file that it was made on, or through a GPU's file
/// that was bound to that one (`rmclientValidate_IMPL()` in src/nvidia/src/kernel/rmapi/client.c).
/// A call through another file goes no further: the driver would refuse it, but whether it did is
/// an output, and what is charged to a client goes with its file.
///
/// A client that the accounting does not know is left to the accounting's own checks.
pub(super) fn check_file(
    call: &mut impl Call,
    session: &Session,
    client: ClientHandle,
) -> Result<(), Stop> {
    let file = call.look(|accounting| accounting.client_file(client));
    check_made_on(session, file)
}

/// As [`check_file`], for a client of which it is known on which file it was made.
pub(super) fn check_made_on(session: &Session, made_on: Option<FileId>) -> Result<(), Stop> {
    match session.control().zip(made_on) {
        Some((file, made_on)) if file != made_on => Err(RefusalCause::OtherFile.into()),
        _ => Ok(()),
    }
}

/// Whether the tenant may make a call that these sets of capabilities allow: on a GPU, or on none
/// in particular.
pub(super) fn allowed(
    call: &mut impl Call,
    gpu: Option<GpuId>,
    wanted: Capabilities,
) -> Result<(), Reason> {
    // Every set allows what is in BASE, so the accounting need not be asked.
    if wanted == BASE
        || call
            .look(|accounting| accounting.capabilities(gpu))
            .meets(wanted)
    {
        Ok(())
    } else {
        Err(Reason::Capability(wanted))
    }
}

/// Refuses a policy that shares one of the tenant's objects with somebody in particular.
///
/// `ALL` must pass: CUDA IPC shares its memory so with the other processes of its container. It
/// does not give the object to other tenants: to use it is to name its client in a call
/// (`NV_ESC_RM_DUP_OBJECT`, above all), and each such call asks whose client that is. The same
/// holds for the other types that name nobody: the clients of the same user, process, GPU or
/// partition, which are parts of `ALL`. Of each of them an object has one entry at most
/// (`rsSharePolicyEquals()`, rs_access_map.c).
///
/// Two types name somebody and must not pass. One is the fabric manager. The other is a client, in
/// which each call leaves an entry for the object, however often it is shared
/// (`clientAddAccessBackRef_IMPL()`, rs_client.c). No recorded program names one, not even its own.
pub(super) fn check_policy(kind: u16) -> Result<(), Stop> {
    match kind {
        share_type::NONE
        | share_type::ALL
        | share_type::OS_SECURITY_TOKEN
        | share_type::PID
        | share_type::SMC_PARTITION
        | share_type::GPU => Ok(()),
        // Compare serverShareResourceAccess() in rs_server.c.
        _ => Err(Stop::refused(
            NvStatus::NV_ERR_INVALID_ARGUMENT,
            Reason::Parameters,
        )),
    }
}
