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
use super::frontend::note;
use super::frontend::plain;
use super::frontend::refused;
use super::frontend::set;
use super::managed;
use super::Call;
use super::Errno;
use super::Session;
use crate::nvidia::class::NV01_CONTEXT_DMA;
use crate::nvidia::escape::Escape;
use crate::nvidia::handle::ClientHandle;
use crate::nvidia::handle::ObjectHandle;
use crate::nvidia::nvos;
use crate::nvidia::params::share_type;
use crate::nvidia::status::NvStatus;
use crate::nvidia::wire::Field;
use crate::policy::CallKind;
use crate::policy::Reason;
use crate::policy::RefusalCause;

/// What is said to a client that is not the tenant's.
pub(super) const FOREIGN: NvStatus = RefusalCause::ForeignClient.status();

/// Whether a client is the tenant's.
pub(super) fn owns(call: &mut impl Call, client: u32) -> bool {
    call.look(|accounting| accounting.owns_client(ClientHandle(client)))
}

/// Whether the clients at these places of parameters are the tenant's, or 0. (The tables are made from the
/// parameters' own size, so that each is there.)
pub(super) fn are_own(call: &mut impl Call, places: &[usize], params: &[u8]) -> bool {
    places
        .iter()
        .all(|&at| match Field::<u32>::at(at).get(params) {
            None | Some(0) => true,
            Some(client) => owns(call, client),
        })
}

/// An escape whose argument names a client and holds no pointer: it goes to the driver if the client is
/// the tenant's.
pub(super) struct Named {
    escape: Escape,
    client: Field<u32>,
    status: Place,
    /// What is said to a client that is not.
    refusal: NvStatus,
}

/// Where the status stands.
enum Place {
    /// Here.
    At(Field<u32>),
    /// In a struct that has grown with the branches: the last field, which four bytes of padding follow.
    Last,
}

const fn named(escape: Escape, client: Field<u32>, status: Place) -> Named {
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

    /// Where the status stands in the struct.
    fn status_in(&self, bytes: &[u8]) -> Field<u32> {
        match self.status {
            Place::At(place) => place,
            Place::Last => Field::at(bytes.len().saturating_sub(8)),
        }
    }
}

/// Those of them. What else some of them say is looked at in [`says`].
static NAMED: [Named; 9] = [
    named(
        Escape::RmShare,
        nvos::nvos57::H_CLIENT,
        Place::At(nvos::nvos57::STATUS),
    ),
    // The driver looks for nothing but whether the pair of client and descriptor number is taken
    // (`allocate_os_event()` in src/nvidia/arch/nvalloc/unix/src/osapi.c), so that another tenant's could
    // be taken first. The status is what it says to whatever is wrong.
    named(
        Escape::AllocOsEvent,
        nvos::os_event::H_CLIENT,
        Place::At(nvos::os_event::STATUS),
    )
    .refused_with(NvStatus::NV_ERR_INSUFFICIENT_RESOURCES),
    // The driver frees any that exists (`free_os_event()`, there), and says this where there is none.
    named(
        Escape::FreeOsEvent,
        nvos::free_os_event::H_CLIENT,
        Place::At(nvos::free_os_event::STATUS),
    )
    .refused_with(NvStatus::NV_ERR_INVALID_EVENT),
    named(
        Escape::RmMapMemory,
        nvos::nvos33::H_CLIENT,
        Place::At(nvos::nvos33::STATUS),
    ),
    named(
        Escape::RmUnmapMemory,
        nvos::nvos34::H_CLIENT,
        Place::At(nvos::nvos34::STATUS),
    ),
    named(
        Escape::RmUpdateDeviceMappingInfo,
        nvos::nvos56::H_CLIENT,
        Place::At(nvos::nvos56::STATUS),
    ),
    named(
        Escape::RmAllocContextDma2,
        nvos::nvos39::H_OBJECT_PARENT,
        Place::At(nvos::nvos39::STATUS),
    ),
    named(Escape::RmMapMemoryDma, nvos::nvos46::H_CLIENT, Place::Last),
    named(
        Escape::RmUnmapMemoryDma,
        nvos::nvos47::H_CLIENT,
        Place::Last,
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
    let verdict = match owns(call, client) {
        true => says(call, named.escape, bytes)?,
        false => Err((named.refusal, Reason::Foreign)),
    };
    if let Err((status, reason)) = verdict {
        let number = u32::from(named.escape.nr());
        note(call, session, CallKind::Escape, number, reason);
        return set(named.status_in(bytes), bytes, status.0).map(|()| 0);
    }
    if named.escape != Escape::RmMapMemoryDma {
        return prompt(call, code, bytes, named.escape);
    }
    use nvos::nvos46::{H_DMA, H_MEMORY, LENGTH};
    let range = ObjectHandle(get(H_DMA, bytes)?);
    let (memory, length) = (ObjectHandle(get(H_MEMORY, bytes)?), get(LENGTH, bytes)?);
    let client = ClientHandle(client);
    let begun =
        call.accounting(|accounting| accounting.begin_rm_map(client, range, memory, length));
    let ticket = match begun {
        Ok(ticket) => ticket,
        Err(refusal) => {
            let told = refused(call, session, code, &refusal);
            return set(named.status_in(bytes), bytes, told.0).map(|()| 0);
        }
    };
    let returned = prompt(call, code, bytes, named.escape);
    call.accounting(|accounting| accounting.end_rm_map(ticket));
    // Its page tables may have had the room of managed memory.
    managed::rebalance(call);
    returned
}

/// `NV_ESC_RM_MAP_MEMORY`: prepares a file for a mapping. One of a doorbell that was asked for through BAR1 is to
/// show one there.
///
/// The file is the one that the descriptor stands for when the driver has looked. Whoever exchanges it in between has that of its
/// own files show the doorbell there which would have shown it through BAR0.
pub(super) fn map_memory(
    call: &mut impl Call,
    session: &Session,
    code: u32,
    bytes: &mut [u8],
    named: &Named,
) -> Result<i32, Errno> {
    use nvos::nvos33::{FD, H_CLIENT, H_MEMORY, STATUS};
    let client = ClientHandle(get(H_CLIENT, bytes)?);
    let (memory, descriptor) = (ObjectHandle(get(H_MEMORY, bytes)?), get(FD, bytes)?);
    let returned = checked(call, session, code, bytes, named);
    let is_prepared = returned == Ok(0) && get(STATUS, bytes)? == NvStatus::NV_OK.0;
    if is_prepared && call.look(|accounting| accounting.is_through_bar1(client, memory)) {
        call.show_doorbell(descriptor);
    }
    returned
}

/// Forwards a struct, without the flag of [`deferral`].
fn prompt(call: &mut impl Call, code: u32, bytes: &mut [u8], escape: Escape) -> Result<i32, Errno> {
    let Some((flags, defer)) = deferral(escape) else {
        return plain(call, code, bytes);
    };
    let wanted = get(flags, bytes)?;
    set(flags, bytes, wanted & !defer)?;
    let returned = plain(call, code, bytes);
    set(flags, bytes, wanted)?;
    returned
}

/// `NV_ESC_RM_IDLE_CHANNELS`: waits until channels are idle, in the driver with its lock of the GPU held. Answered as
/// the driver answers Vulkan, which asks for no channel, or for several and is told that it may not (recorded on an
/// H200): the list that has none is done (`RmIdleChannels()` in kernel_idle_channels.c).
pub(super) fn idle_channels(
    call: &mut impl Call,
    session: &Session,
    bytes: &mut [u8],
) -> Result<i32, Errno> {
    use nvos::nvos30::*;
    let lists = get(FLAGS, bytes)? & nvos::IDLE_CHANNELS_WHICH == 0;
    let (status, reason) = match owns(call, get(H_CLIENT, bytes)?) {
        false => (FOREIGN, Some(Reason::Foreign)),
        true if lists && get(NUM_CHANNELS, bytes)? == 0 => (NvStatus::NV_OK, None),
        true => {
            let refusal = NvStatus::NV_ERR_INSUFFICIENT_PERMISSIONS;
            (refusal, Some(Reason::Forbidden))
        }
    };
    if let Some(reason) = reason {
        let number = u32::from(Escape::RmIdleChannels.nr());
        note(call, session, CallKind::Escape, number, reason);
    }
    set(STATUS, bytes, status.0).map(|()| 0)
}

/// What else an escape on a client of the tenant's own says, and what of it may not be.
fn says(
    call: &mut impl Call,
    escape: Escape,
    bytes: &[u8],
) -> Result<Result<(), (NvStatus, Reason)>, Errno> {
    Ok(match escape {
        Escape::RmShare => {
            let kind = get(nvos::nvos57::TYPE, bytes)?;
            let target = get(nvos::nvos57::TARGET, bytes)?;
            check_policy(call, kind, target).map_err(|status| (status, Reason::Foreign))
        }
        // The driver makes an object of whatever class this says (`RmDeprecatedAllocContextDma()` in
        // rmapi_deprecated_misc.c).
        Escape::RmAllocContextDma2 if get(nvos::nvos39::H_CLASS, bytes)? != NV01_CONTEXT_DMA.0 => {
            Err((NvStatus::NV_ERR_INVALID_CLASS, Reason::Parameters))
        }
        _ => Ok(()),
    })
}

/// The flag by which the GPU goes on using what was mapped before, until somebody has its translations
/// looked up anew (`dmaAllocMapping_GM107()`, `dmaFreeMapping_GM107()` in virt_mem_allocator_gm107.c). The
/// memory behind them could be another tenant's by then. The driver gets no such request; that costs
/// time, not correctness.
fn deferral(escape: Escape) -> Option<(Field<u32>, u32)> {
    match escape {
        Escape::RmMapMemoryDma => Some((nvos::nvos46::FLAGS, nvos::MAP_DEFERS_TLB_INVALIDATION)),
        Escape::RmUnmapMemoryDma => {
            Some((nvos::nvos47::FLAGS, nvos::UNMAP_DEFERS_TLB_INVALIDATION))
        }
        _ => None,
    }
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
