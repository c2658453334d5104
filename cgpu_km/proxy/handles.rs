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
use crate::nvidia::escape::Escape;
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

/// An escape whose argument names a client and holds no pointer: it goes to the driver if the client is
/// the tenant's.
pub(super) struct Named {
    escape: Escape,
    client: Field<u32>,
    status: Field<u32>,
    /// What is said to a client that is not.
    refusal: NvStatus,
}

const fn named(escape: Escape, client: Field<u32>, status: Field<u32>) -> Named {
    Named {
        escape,
        client,
        status,
        refusal: FOREIGN,
    }
}

impl Named {
    const fn refused_with(self, refusal: NvStatus) -> Self {
        Self { refusal, ..self }
    }

    /// What is known so of an escape.
    pub(super) fn of(escape: Escape) -> Option<&'static Self> {
        NAMED.iter().find(|named| named.escape == escape)
    }
}

/// Those that need nothing else.
static NAMED: [Named; 6] = [
    named(
        Escape::RmShare,
        nvos::nvos57::H_CLIENT,
        nvos::nvos57::STATUS,
    ),
    // The driver looks for nothing but whether the pair of client and descriptor number is taken
    // (`allocate_os_event()` in src/nvidia/arch/nvalloc/unix/src/osapi.c), so that another tenant's could
    // be taken first. The status is what it says to whatever is wrong.
    named(
        Escape::AllocOsEvent,
        nvos::os_event::H_CLIENT,
        nvos::os_event::STATUS,
    )
    .refused_with(NvStatus::NV_ERR_INSUFFICIENT_RESOURCES),
    // The driver frees any that exists (`free_os_event()`, there), and says this where there is none.
    named(
        Escape::FreeOsEvent,
        nvos::free_os_event::H_CLIENT,
        nvos::free_os_event::STATUS,
    )
    .refused_with(NvStatus::NV_ERR_INVALID_EVENT),
    named(
        Escape::RmMapMemory,
        nvos::nvos33::H_CLIENT,
        nvos::nvos33::STATUS,
    ),
    named(
        Escape::RmUnmapMemory,
        nvos::nvos34::H_CLIENT,
        nvos::nvos34::STATUS,
    ),
    named(
        Escape::RmUpdateDeviceMappingInfo,
        nvos::nvos56::H_CLIENT,
        nvos::nvos56::STATUS,
    ),
];

/// Forwards a struct without pointers if the client in it is the tenant's.
pub(super) fn checked(
    call: &mut impl Call,
    session: &Session,
    code: u32,
    bytes: &mut [u8],
    named: &Named,
) -> Result<i32, Errno> {
    let client = get(named.client, bytes)?;
    let verdict = match named.escape {
        _ if !owns(call, client) => Err(named.refusal),
        Escape::RmShare => {
            let kind = get(nvos::nvos57::TYPE, bytes)?;
            let target = get(nvos::nvos57::TARGET, bytes)?;
            check_policy(call, kind, target)
        }
        _ => Ok(()),
    };
    if let Err(status) = verdict {
        note_refused(call, session);
        return set(named.status, bytes, status.0).map(|()| 0);
    }
    plain(call, code, bytes)
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
