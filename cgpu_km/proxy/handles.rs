// SPDX-License-Identifier: GPL-2.0
//! Escapes that name a client and hold no pointer: mappings, sharing, events.
//!
//! Each looks first whether the client is the tenant's ([`super::owned`]).

use super::{
    call::{
        Call,
        Held,
        Returned,
        Role,
        Route,
        Session, //
    },
    orders::rebalance,
    owned::{
        check_file,
        check_made_on,
        check_policy,
        owned,
        FOREIGN, //
    },
    part::Part,
    sent::{
        plain,
        without,
        DriverReply, //
    },
    shown::{
        end_shown,
        held,
        prepare, //
    },
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
        escape::Escape,
        handle::{
            ClientHandle,
            ObjectHandle, //
        },
        nvos::{
            self,
            *, //
        },
        status::NvStatus,
        wire::Field, //
    },
    policy::{
        Reason,
        RefusalCause,
        RmMap,
        RmUnmap, //
    }, //
};

/// `NV_ESC_RM_SHARE`: lets other clients use an object.
pub(super) fn share(
    call: &mut impl Call,
    asked: &Asked<'_>,
    bytes: &mut [u8],
) -> Result<i32, Stop> {
    owned(call, get(nvos57::H_CLIENT, bytes)?)?;
    check_policy(get(nvos57::TYPE, bytes)?)?;
    Ok(plain(call, asked.code, bytes)?)
}

/// A bit that no address has which the driver gives to a mapping: those are of the host's memory or
/// of a GPU on its bus.
const RENAMED: u64 = 1 << 63;

/// `NV_ESC_RM_UPDATE_DEVICE_MAPPING_INFO`: says where a mapping lies in the process. The driver
/// takes any number, and finds the mapping by it from then on (`RmUpdateDeviceMappingInfo()`,
/// osapi.c).
///
/// It must not be the address that the driver gives another mapping of the object. If the second
/// half of `NV_ESC_RM_MAP_MEMORY` refuses, the driver unmaps by address what the first half has
/// mapped (`RmIoctl()`, escape.c), and the first mapping of that address goes
/// (`refFindCpuMappingWithFilter()`, rs_resource.c). A file would go on showing its place in BAR1,
/// which others get. So the driver gets each such number with a bit that its own have not.
#[inline(never)] // As `frontend::run`.
pub(super) fn update_mapping(
    call: &mut impl Call,
    asked: &Asked<'_>,
    bytes: &mut [u8],
) -> Result<i32, Stop> {
    use nvos56::{
        H_CLIENT,
        H_MEMORY,
        P_NEW_CPU_ADDRESS,
        P_OLD_CPU_ADDRESS,
        SIZE,
        STATUS, //
    };
    let client = owned(call, get(H_CLIENT, bytes)?)?;
    let memory = ObjectHandle(get(H_MEMORY, bytes)?);
    let renamed = call.accounting(|accounting| accounting.begin_rename(client, memory))?;
    let new = get(P_NEW_CPU_ADDRESS, bytes)?;
    set(P_NEW_CPU_ADDRESS, bytes, new | RENAMED)?;
    let named = (P_OLD_CPU_ADDRESS, STATUS, renamed);
    let returned = by_address::<SIZE>(call, asked.code, bytes, named, Route::Caller);
    set(P_NEW_CPU_ADDRESS, bytes, new)?;
    returned
}

/// Forwards a struct of so many bytes that names a mapping by its address, and has a status. If
/// mappings of the object may have been `renamed`, the driver is asked first for one by the name
/// that it then has.
fn by_address<const SIZE: usize>(
    call: &mut impl Call,
    code: u32,
    bytes: &mut [u8],
    (address, status, renamed): (Field<u64>, Field<u32>, bool),
    route: Route,
) -> Result<i32, Stop> {
    let mut checked = [0; SIZE];
    for (into, from) in checked.iter_mut().zip(bytes.iter()) {
        *into = *from;
    }
    let asked = get(address, bytes)?;
    if renamed {
        set(address, bytes, asked | RENAMED)?;
        let returned = call.forward(code, &mut [Part::argument(bytes)], route)?;
        set(address, bytes, asked)?;
        let told = Some(get(status, bytes)?);
        if DriverReply::new(Ok(returned), told).is_ok() {
            return Ok(returned);
        }
        call.refused_by_driver();
        // The program can write over what the driver has told, which was not checked.
        for (into, from) in bytes.iter_mut().zip(checked) {
            *into = from;
        }
    }
    Ok(call.forward(code, &mut [Part::argument(bytes)], route)?)
}

/// `NV_ESC_RM_MAP_MEMORY_DMA`: maps memory into a range of a GPU's address space. The driver is
/// asked where no program sees its answer, because where the mapping is says what ends it.
#[inline(never)] // As `frontend::run`.
pub(super) fn map_dma(
    call: &mut impl Call,
    asked: &Asked<'_>,
    bytes: &mut [u8],
) -> Result<i32, Stop> {
    use nvos46::{
        FLAGS,
        H_CLIENT,
        H_DEVICE,
        H_DMA,
        H_MEMORY,
        LENGTH,
        OFFSET, //
    };
    let client = owned(call, get(H_CLIENT, bytes)?)?;
    check_file(call, asked.session, client)?;
    let flags = get(FLAGS, bytes)?;
    if flags & nvos::MAP_REUSES_ADDRESSES != 0 {
        let status = NvStatus::NV_ERR_INVALID_ARGUMENT;
        return Err(Stop::refused(status, Reason::Parameters));
    }
    let map = RmMap {
        client,
        device: ObjectHandle(get(H_DEVICE, bytes)?),
        range: ObjectHandle(get(H_DMA, bytes)?),
        memory: ObjectHandle(get(H_MEMORY, bytes)?),
        offset: get(OFFSET, bytes)?,
        length: get(LENGTH, bytes)?,
        for_kernel: flags & nvos::MAP_FOR_KERNEL != 0,
        of_other_kind: flags & nvos::MAP_OF_OTHER_KIND != 0,
    };
    let ticket = call.accounting(|accounting| accounting.begin_rm_map(&map))?;
    // The GPU may write then, too, which the program may ask for as well.
    let defer = nvos::MAP_DEFERS_TLB_INVALIDATION | nvos::MAP_READ_ONLY;
    let returned = prompt(call, asked.code, bytes, (FLAGS, defer), Route::Unseen);
    let made =
        Some(nvos::mapped_at(bytes)).filter(|_| is_done(Escape::RmMapMemoryDma, returned, bytes));
    call.accounting(|accounting| accounting.end_rm_map(ticket, made));
    // Its page tables may have taken the room of managed memory.
    rebalance(call);
    Ok(returned?)
}

/// Whether the driver has done a call, where no program could write what it has told.
fn is_done(escape: Escape, returned: Returned, bytes: &[u8]) -> bool {
    let told = escape
        .status(bytes.len())
        .and_then(|status| status.get(bytes));
    DriverReply::new(returned, told).is_ok()
}

/// `NV_ESC_RM_UNMAP_MEMORY_DMA`: ends such mappings. The driver is asked where no program sees its
/// answer, because its record of a mapping counts until it is certainly gone.
#[inline(never)] // As `frontend::run`.
pub(super) fn unmap_dma(
    call: &mut impl Call,
    asked: &Asked<'_>,
    bytes: &mut [u8],
) -> Result<i32, Stop> {
    use nvos47::{
        FLAGS,
        H_CLIENT,
        H_DEVICE,
        H_DMA, //
    };
    let client = owned(call, get(H_CLIENT, bytes)?)?;
    check_file(call, asked.session, client)?;
    let (base, length) = nvos::unmapped_part(bytes);
    let unmap = RmUnmap {
        client,
        device: ObjectHandle(get(H_DEVICE, bytes)?),
        range: ObjectHandle(get(H_DMA, bytes)?),
        base,
        length,
    };
    let ticket = call.accounting(|accounting| accounting.begin_rm_unmap(&unmap))?;
    let defer = nvos::UNMAP_DEFERS_TLB_INVALIDATION;
    let returned = prompt(call, asked.code, bytes, (FLAGS, defer), Route::Unseen);
    let done = is_done(Escape::RmUnmapMemoryDma, returned, bytes);
    call.accounting(|accounting| accounting.end_rm_unmap(ticket, done));
    Ok(returned?)
}

/// `NV_ESC_RM_MAP_MEMORY`: prepares a file for a mapping. If the memory is a doorbell that was
/// asked for through BAR1, the mapping will show one there.
#[inline(never)] // As `frontend::run`.
pub(super) fn map_memory(
    call: &mut impl Call,
    asked: &Asked<'_>,
    bytes: &mut [u8],
) -> Result<i32, Stop> {
    use nvos33::{
        FD,
        H_CLIENT,
        H_DEVICE,
        H_MEMORY,
        LENGTH,
        OFFSET,
        STATUS, //
    };
    let client = ClientHandle(get(H_CLIENT, bytes)?);
    let memory = ObjectHandle(get(H_MEMORY, bytes)?);
    // The mapping ends with the file that the client was made on.
    let made_on = call.look(|accounting| accounting.client_file(client));
    check_made_on(asked.session, Some(made_on.ok_or(FOREIGN)?))?;
    let file = held(call, get(FD, bytes)?)?;
    let device = ObjectHandle(get(H_DEVICE, bytes)?);
    check_role(call, file.session(), (client, device, memory))?;
    let number = file.session().file;
    let part = (get(OFFSET, bytes)?, get(LENGTH, bytes)?);
    let (ticket, through_bar1, way) = call.accounting(|accounting| {
        let ticket = accounting.begin_named_map(client, device, memory)?;
        let way = accounting.device_of_map(client, device, memory);
        match accounting.begin_cpu_map(client, memory, number, part) {
            Ok(through_bar1) => Ok((ticket, through_bar1, way)),
            Err(refusal) => {
                accounting.end_named_map(ticket);
                Err(refusal)
            }
        }
    })?;
    let returned = set(H_DEVICE, bytes, way.0);
    let returned = returned.and_then(|()| prepare(call, asked.code, bytes, &file, FD));
    call.accounting(|accounting| accounting.end_named_map(ticket));
    set(H_DEVICE, bytes, device.0)?;
    let returned = returned?;
    let is_prepared = returned == 0 && get(STATUS, bytes)? == NvStatus::NV_OK.0;
    if is_prepared && through_bar1 {
        call.show_doorbell(&file);
    }
    Ok(returned)
}

/// Refuses a file that is not right for a mapping, as the driver refuses it: a GPU's file for a
/// mapping through another GPU's device, and a control file for video memory.
///
/// The driver puts the mapping into a file of the GPU of that device, or of host memory into a
/// control file (`RmCreateMmapContextLocked()` in osapi.c). 595 forgets the memory that it took for
/// it (`nv_add_mapping_context_to_file()` in nv-usermap.c).
fn check_role(
    call: &mut impl Call,
    session: Session,
    (client, device, memory): (ClientHandle, ObjectHandle, ObjectHandle),
) -> Result<(), Stop> {
    let is_wrong = call.look(|accounting| match session.role {
        Role::Gpu(shown) => {
            let device = accounting.gpu_of(client, device);
            device.is_some_and(|device| device != shown)
        }
        Role::Control => accounting.kind_of(client, memory) == Some(Kind::VideoMemory),
        Role::Uvm => true,
    });
    if is_wrong {
        return Err(Stop::status(NvStatus::NV_ERR_INVALID_ARGUMENT));
    }
    Ok(())
}

/// `NV_ESC_RM_UNMAP_MEMORY`: the driver gives the mapping's place to others, and leaves it in the
/// programs that have it. It is asked where no program sees its answer, because its record of the
/// mapping counts until it is certainly gone.
#[inline(never)] // As `frontend::run`.
pub(super) fn unmap_memory(
    call: &mut impl Call,
    asked: &Asked<'_>,
    bytes: &mut [u8],
) -> Result<i32, Stop> {
    let client = owned(call, get(nvos34::H_CLIENT, bytes)?)?;
    check_file(call, asked.session, client)?;
    let memory = ObjectHandle(get(nvos34::H_MEMORY, bytes)?);
    let mut at = 0;
    let (ticket, first) = call.accounting(|accounting| {
        let ticket = accounting.begin_cpu_unmap(client, memory)?;
        let first = accounting.shown_below(&ticket, &mut at);
        Ok::<_, RefusalCause>((ticket, first))
    })?;
    end_shown(call, &ticket, first, &mut at);
    let renamed = call.look(|accounting| accounting.has_renamed(client, memory));
    let named = (nvos34::P_LINEAR_ADDRESS, nvos34::STATUS, renamed);
    let route = Route::Unseen;
    let returned = by_address::<{ nvos34::SIZE }>(call, asked.code, bytes, named, route);
    let told = nvos34::STATUS.get(bytes).map(NvStatus);
    call.accounting(|accounting| {
        if returned == Ok(0) && told == Some(NvStatus::NV_OK) {
            accounting.unmapped_for_cpu(&ticket);
        }
        accounting.end_free(ticket, false);
    });
    returned
}

/// Forwards a struct without one of its flags.
///
/// With the flag the GPU goes on using its old translations until they are looked up anew
/// (`dmaAllocMapping_GM107()`, `dmaFreeMapping_GM107()` in virt_mem_allocator_gm107.c). The memory
/// behind them could be another tenant's by then. The driver gets no such request; that costs time,
/// not correctness.
fn prompt(
    call: &mut impl Call,
    code: u32,
    bytes: &mut [u8],
    defer: (Field<u32>, u32),
    route: Route,
) -> Returned {
    without(defer, bytes, |bytes| {
        call.forward(code, &mut [Part::argument(bytes)], route)
    })
}

/// `NV_ESC_RM_IDLE_CHANNELS`: waits in the driver, with its lock of the GPU held, until channels
/// are idle. Answered as the driver answers Vulkan, which names no channel, or names several and is
/// refused (recorded on an H200). A list of no channel is done (`RmIdleChannels()` in
/// kernel_idle_channels.c).
#[inline(never)] // As `frontend::run`.
pub(super) fn idle_channels(call: &mut impl Call, bytes: &mut [u8]) -> Result<i32, Stop> {
    use nvos30::*;
    let lists = get(FLAGS, bytes)? & nvos::IDLE_CHANNELS_WHICH == 0;
    owned(call, get(H_CLIENT, bytes)?)?;
    if !lists || get(NUM_CHANNELS, bytes)? != 0 {
        return Err(Stop::refused(
            NvStatus::NV_ERR_INSUFFICIENT_PERMISSIONS,
            Reason::Forbidden,
        ));
    }
    set(STATUS, bytes, NvStatus::NV_OK.0)?;
    Ok(0)
}
