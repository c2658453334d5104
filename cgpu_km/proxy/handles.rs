// SPDX-License-Identifier: GPL-2.0
//! Calls that name a client, and with it what is whose.
//!
//! Handles are no secret: the driver counts those of clients up, and programs number their objects all
//! alike. In most calls the driver compares a client with the file that the call came through
//! (`rmclientValidate_IMPL()` in src/nvidia/src/kernel/rmapi/client.c), in some with the calling process,
//! and in some it compares nothing. Here a client is the tenant's own in every call, or the call is
//! refused as the driver refuses a client that does not exist: a neighbour's must not be told from none.
//! Objects are named within their client, so that nothing else has to be asked of them.

use super::frontend::get;
use super::frontend::note_refused;
use super::frontend::plain;
use super::frontend::set;
use super::Call;
use super::Errno;
use super::Session;
use crate::nvidia::handle::ClientHandle;
use crate::nvidia::nvos;
use crate::nvidia::params::share_type;
use crate::nvidia::status::NvStatus;
use crate::nvidia::wire::Field;
use crate::policy::RefusalCause;

/// What is said to a client that is not the tenant's.
pub(super) const FOREIGN: NvStatus = RefusalCause::ForeignClient.status();

/// Whether a client is the tenant's.
pub(super) fn owns(call: &mut impl Call, client: u32) -> bool {
    call.books(|books| books.owns_client(ClientHandle(client)))
}

/// `NV_ESC_RM_SHARE`: gives others the use of an object.
pub(super) fn share(
    call: &mut impl Call,
    session: &Session,
    code: u32,
    bytes: &mut [u8],
) -> Result<i32, Errno> {
    use nvos::nvos57;
    let kind = get(nvos57::TYPE, bytes)?;
    let target = get(nvos57::TARGET, bytes)?;
    if let Err(status) = check_policy(call, kind, target) {
        note_refused(call, session);
        return set(nvos57::STATUS, bytes, status.0).map(|()| 0);
    }
    checked(call, session, code, bytes, nvos57::H_CLIENT, nvos57::STATUS)
}

/// A policy that shares one of the tenant's objects.
///
/// `ALL` must pass: CUDA IPC shares its memory so with the other processes of its container. It does not
/// give the object to other tenants: to use it is to name its client in a call (`NV_ESC_RM_DUP_OBJECT`,
/// above all), and each such call asks whose client that is. The same holds for the other types that do
/// not say who: the clients of the same user, process, GPU or partition, which are parts of `ALL`. What
/// must not pass are the two that say who and mean somebody else: another tenant's client, whose entry
/// for the object would stay behind in it (`clientAddAccessBackRef()`, rs_server.c), and the fabric
/// manager.
pub(super) fn check_policy(call: &mut impl Call, kind: u16, target: u32) -> Result<(), NvStatus> {
    match kind {
        share_type::NONE
        | share_type::ALL
        | share_type::OS_SECURITY_TOKEN
        | share_type::PID
        | share_type::SMC_PARTITION
        | share_type::GPU => Ok(()),
        share_type::CLIENT if owns(call, target) => Ok(()),
        share_type::CLIENT => Err(FOREIGN),
        // Compare serverShareResourceAccess() in rs_server.c.
        _ => Err(NvStatus::NV_ERR_INVALID_ARGUMENT),
    }
}

/// `NV_ESC_ALLOC_OS_EVENT`: the driver looks for nothing but whether the pair of client and descriptor
/// number is taken (`allocate_os_event()` in src/nvidia/arch/nvalloc/unix/src/osapi.c), so that another
/// tenant's could be taken first.
pub(super) fn alloc_os_event(
    call: &mut impl Call,
    session: &Session,
    code: u32,
    bytes: &mut [u8],
) -> Result<i32, Errno> {
    use nvos::os_event::*;
    // What it says to whatever is wrong.
    let status = NvStatus::NV_ERR_INSUFFICIENT_RESOURCES;
    checked_or(call, session, code, bytes, H_CLIENT, STATUS, status)
}

/// `NV_ESC_FREE_OS_EVENT`: the driver frees any that exists (`free_os_event()`, there).
pub(super) fn free_os_event(
    call: &mut impl Call,
    session: &Session,
    code: u32,
    bytes: &mut [u8],
) -> Result<i32, Errno> {
    use nvos::free_os_event::*;
    // What it says where there is none.
    let status = NvStatus::NV_ERR_INVALID_EVENT;
    checked_or(call, session, code, bytes, H_CLIENT, STATUS, status)
}

/// `NV_ESC_RM_MAP_MEMORY`.
pub(super) fn map_memory(
    call: &mut impl Call,
    session: &Session,
    code: u32,
    bytes: &mut [u8],
) -> Result<i32, Errno> {
    use nvos::nvos33::*;
    checked(call, session, code, bytes, H_CLIENT, STATUS)
}

/// `NV_ESC_RM_UNMAP_MEMORY`.
pub(super) fn unmap_memory(
    call: &mut impl Call,
    session: &Session,
    code: u32,
    bytes: &mut [u8],
) -> Result<i32, Errno> {
    use nvos::nvos34::*;
    checked(call, session, code, bytes, H_CLIENT, STATUS)
}

/// `NV_ESC_RM_UPDATE_DEVICE_MAPPING_INFO`.
pub(super) fn update_mapping(
    call: &mut impl Call,
    session: &Session,
    code: u32,
    bytes: &mut [u8],
) -> Result<i32, Errno> {
    use nvos::nvos56::*;
    checked(call, session, code, bytes, H_CLIENT, STATUS)
}

/// Forwards a struct without pointers if the client in it is the tenant's.
fn checked(
    call: &mut impl Call,
    session: &Session,
    code: u32,
    bytes: &mut [u8],
    client: Field<u32>,
    status: Field<u32>,
) -> Result<i32, Errno> {
    checked_or(call, session, code, bytes, client, status, FOREIGN)
}

/// The same with a refusal of its own.
fn checked_or(
    call: &mut impl Call,
    session: &Session,
    code: u32,
    bytes: &mut [u8],
    client: Field<u32>,
    status: Field<u32>,
    refusal: NvStatus,
) -> Result<i32, Errno> {
    let client = get(client, bytes)?;
    if !owns(call, client) {
        note_refused(call, session);
        return set(status, bytes, refusal.0).map(|()| 0);
    }
    plain(call, code, bytes)
}
