// SPDX-License-Identifier: GPL-2.0
//! Memory that UVM maps, and so keeps after its object was freed.
//!
//! A mapping keeps its memory charged until it is gone for certain. The status that the driver
//! writes is no certainty: other threads of the program can overwrite it. It is certain that the
//! driver has no mapping any more that it was asked to unmap by itself, by just its addresses and
//! for its GPU (`uvm_unmap_external()`, uvm_map_external.c: with nothing to split, there is nothing
//! to refuse). So:
//!
//! * an unmapping of just one mapping is believed;
//! * so is the end of a range (`UVM_FREE`), while all ranges of the file are known
//!   ([`crate::policy`], ranges.rs);
//! * if a call for more than that says that it has worked (`UVM_UNMAP_EXTERNAL` of several, a GPU
//!   unregistered, `UVM_FREE` in another file), each mapping that it has taken is unmapped once
//!   more by itself;
//! * if a mapping is said to have failed, it is undone: it is unmapped;
//! * what a new mapping takes the place of whole, which the driver would unmap, is unmapped before
//!   it.

use super::{
    call::{
        Call,
        Errno,
        Route,
        UserAddr, //
    },
    copied::Copied,
    few::Few,
    part::{
        Hole,
        Part, //
    },
    stop::{
        get,
        Stop, //
    },
    uvm_call::{
        AddressRange,
        Uuid,
        UvmCall, //
    }, //
};
use crate::{
    nvidia::{
        handle::{
            ClientHandle,
            ObjectHandle, //
        },
        status::NvStatus,
        uvm::{
            self,
            map_gpus, //
        },
        wire::Field, //
    },
    policy::{
        FixedKind,
        Map,
        MapTicket,
        RangeEnd,
        RefusalCause,
        Span, //
    }, //
};

/// Takes the parameters of `UVM_MAP_EXTERNAL_ALLOCATION`. Since 550 they have room for more GPUs
/// than there are: 9 KiB, of which one entry or two are used.
pub(super) fn take(
    params: &mut Copied,
    call: &mut impl Call,
    argument: UserAddr,
    size: usize,
) -> Result<(), Errno> {
    use map_gpus::*;
    if size <= WHOLE {
        return params.take(call, argument, size);
    }
    let count_at = size.checked_sub(COUNT_TO_END).ok_or(Errno::EINVAL)?;
    let mut behind = [0; COUNT_TO_END];
    call.read(argument.behind(count_at)?, &mut behind)?;
    let count = get(Field::<u64>::at(0), &behind)?;
    let at = AT + SIZE * used(count_at, count);
    let hole = Hole {
        at,
        len: count_at.saturating_sub(at),
    };
    params.take_around(call, argument, hole, &behind)
}

/// Parameters of this size fit on one page of the scratch, where they cost little.
const WHOLE: usize = 4096;

/// A mapping of one GPU, and what the accounting has set aside for it.
type GpuMap = (Map, Option<MapTicket>);

/// `UVM_MAP_EXTERNAL_ALLOCATION`.
pub(super) fn map(call: &mut impl Call, request: &mut UvmCall<'_>) -> Result<i32, Stop> {
    let mut maps = read_maps(call, request)?;
    let begun = maps.iter_mut().try_for_each(|(map, ticket)| {
        *ticket = Some(begin(call, map)?);
        Ok::<(), RefusalCause>(())
    });
    if let Err(refusal) = begun {
        for ticket in maps.iter_mut().filter_map(|(_, ticket)| ticket.take()) {
            call.accounting(|accounting| accounting.end_map(ticket, false));
        }
        return Err(refusal.into());
    }
    let range = request.range()?;
    let returned = request.forward(call);
    let has_worked = request.has_worked(returned);
    for (map, ticket) in maps.iter_mut() {
        let is_made = has_worked || returned.is_ok() && !is_unmapped(call, &map.uuid, range);
        if let Some(ticket) = ticket.take() {
            call.accounting(|accounting| accounting.end_map(ticket, is_made));
        }
    }
    Ok(returned?)
}

/// The mappings that a call asks for: one for each GPU.
fn read_maps(call: &impl Call, request: &UvmCall<'_>) -> Result<Few<GpuMap>, Stop> {
    let (Some(client), Some(memory)) = (request.entry.client, request.entry.object) else {
        return Err(Errno::EINVAL.into());
    };
    let AddressRange { base, length } = request.range()?;
    let count_at = request.bytes.len().checked_sub(map_gpus::COUNT_TO_END);
    let count_at = count_at.ok_or(Errno::EINVAL)?;
    let count = get(Field::<u64>::at(count_at), request.bytes)?;
    let mut maps: Few<GpuMap> = Few::new();
    for number in 0..used(count_at, count) {
        let uuid = request.uuid(map_gpus::AT + number * map_gpus::SIZE)?;
        if maps.iter().any(|(map, _)| map.uuid == uuid) {
            continue;
        }
        let gpu = call.gpu_by_uuid(&uuid);
        let map = Map {
            file: request.file,
            gpu: gpu.ok_or(Stop::status(NvStatus::NV_ERR_INVALID_DEVICE))?,
            uuid,
            client: ClientHandle(get(client, request.bytes)?),
            memory: ObjectHandle(get(memory, request.bytes)?),
            base,
            length,
            offset: get(uvm::map_external::OFFSET, request.bytes)?,
        };
        maps.push((map, None))?;
    }
    if maps.is_empty() {
        return Err(Stop::status(NvStatus::NV_ERR_INVALID_ARGUMENT));
    }
    Ok(maps)
}

/// Enters a mapping in the accounting. What it would take the place of is unmapped before.
fn begin(call: &mut impl Call, map: &Map) -> Result<MapTicket, RefusalCause> {
    let begun = call.accounting(|accounting| accounting.begin_map(map));
    let covers = |refusal: &RefusalCause| *refusal == RefusalCause::MappingInTheWay;
    let covers = begun.as_ref().is_err_and(covers);
    let range = AddressRange {
        base: map.base,
        length: map.length,
    };
    let Some(span) = range.span(map.file, Some(map.gpu)).filter(|_| covers) else {
        return begun;
    };
    let moment = call.look(|accounting| accounting.moment());
    match clear(call, span, moment) {
        Ok(()) => call.accounting(|accounting| accounting.begin_map(map)),
        Err(_) => begun,
    }
}

/// `UVM_ALLOC_SEMAPHORE_POOL` and `UVM_MAP_DYNAMIC_PARALLELISM_REGION`.
pub(super) fn fixed(
    call: &mut impl Call,
    request: &mut UvmCall<'_>,
    kind: FixedKind,
) -> Result<i32, Stop> {
    let AddressRange { base, length } = request.range()?;
    let ticket =
        call.accounting(|accounting| accounting.begin_fixed(request.file, base, length, kind))?;
    let returned = request.forward(call);
    call.accounting(|accounting| accounting.end_fixed(ticket));
    Ok(returned?)
}

/// `UVM_UNMAP_EXTERNAL`. For a GPU that the tenant has no longer the driver may have mappings
/// still. Nobody could count the cuts of those.
pub(super) fn unmap(call: &mut impl Call, request: &mut UvmCall<'_>) -> Result<i32, Stop> {
    let range = request.range()?;
    let gpu = call.gpu_by_uuid(&request.uuid(uvm::unmap_external::UUID.start)?);
    let gpu = gpu.ok_or(Stop::status(NvStatus::NV_ERR_INVALID_DEVICE))?;
    let span = range.span(request.file, Some(gpu));
    let span = span.ok_or(Stop::status(NvStatus::NV_ERR_INVALID_ADDRESS))?;
    let ticket = call.accounting(|accounting| accounting.begin_unmap(span))?;
    let moment = call.look(|accounting| accounting.moment());
    let first = call.look(|accounting| accounting.mapped(span, moment));
    let alone = first.filter(|first| first.base == range.base && first.length == range.length);
    let returned = request.forward(call);
    match alone {
        Some(alone) if returned == Ok(0) => {
            call.accounting(|accounting| accounting.unmapped(alone));
        }
        // A mapping that cannot be ended now stays charged.
        None if request.has_worked(returned) => clear(call, span, moment).unwrap_or(()),
        _ => {}
    }
    call.accounting(|accounting| accounting.end_unmap(ticket));
    Ok(returned?)
}

/// `UVM_CREATE_EXTERNAL_RANGE`.
pub(super) fn create(call: &mut impl Call, request: &mut UvmCall<'_>) -> Result<i32, Stop> {
    let AddressRange { base, length } = request.range()?;
    let ticket =
        call.accounting(|accounting| accounting.begin_range(request.file, base, length))?;
    let returned = request.forward(call);
    let is_made = request.has_worked(returned);
    call.accounting(|accounting| accounting.end_range(ticket, is_made));
    Ok(returned?)
}

/// `UVM_FREE`: the range with all that is mapped in it, or what [`fixed`] has made.
pub(super) fn free(call: &mut impl Call, request: &mut UvmCall<'_>) -> Result<i32, Stop> {
    let base = get(uvm::free::BASE, request.bytes)?;
    // From 595 on the driver asks for no length.
    let has_length = request.entry.status.offset() > LENGTH.offset();
    let length = has_length.then(|| get(LENGTH, request.bytes));
    let length = length.transpose()?;
    let (end, fixed) = call.accounting(|accounting| {
        let fixed = accounting.begin_fixed_free(request.file, base, length);
        (
            accounting.begin_range_free(request.file, base, length),
            fixed,
        )
    });
    let returned = match end? {
        RangeEnd::Certain(going) => {
            let returned = request.forward(call);
            call.accounting(|accounting| accounting.end_range_free(going, returned == Ok(0)));
            returned?
        }
        RangeEnd::Nothing => request.forward(call)?,
        RangeEnd::Lost => free_lost(call, request, base, length)?,
    };
    if let (0, Some(fixed)) = (returned, fixed) {
        call.accounting(|accounting| accounting.end_fixed_free(fixed));
    }
    Ok(returned)
}

/// The same of a range in a file of which nobody knows the ranges.
fn free_lost(
    call: &mut impl Call,
    request: &mut UvmCall<'_>,
    base: u64,
    length: Option<u64>,
) -> Result<i32, Stop> {
    let moment = call.look(|accounting| accounting.moment());
    let file = request.file;
    // Without a length, a range that is mapped in pieces counts until those are unmapped, or the
    // file is closed.
    let length = length.or_else(|| {
        let rest = Span {
            file,
            gpu: None,
            base,
            last: u64::MAX,
        };
        let first = call.look(|accounting| accounting.mapped(rest, moment));
        let first = first.filter(|first| first.base == base);
        first.map(|first| first.length)
    });
    let returned = request.forward(call)?;
    let span = length.and_then(|length| AddressRange { base, length }.span(file, None));
    if let (Some(span), true) = (span, request.has_worked(Ok(returned))) {
        clear(call, span, moment).unwrap_or(());
    }
    Ok(returned)
}

/// `UVM_FREE_PARAMS::length`, up to 580.
const LENGTH: Field<u64> = Field::at(8);

/// `UVM_UNREGISTER_GPU_VASPACE` and `UVM_UNREGISTER_GPU`: all that is mapped for the GPU goes.
pub(super) fn unregister(call: &mut impl Call, request: &mut UvmCall<'_>) -> Result<i32, Stop> {
    let gpu = call.gpu_by_uuid(&request.uuid(0)?);
    let moment = call.look(|accounting| accounting.moment());
    let returned = request.forward(call)?;
    if gpu.is_some() && request.has_worked(Ok(returned)) {
        let span = Span {
            file: request.file,
            gpu,
            base: 0,
            last: u64::MAX,
        };
        clear(call, span, moment).unwrap_or(());
    }
    Ok(returned)
}

/// Unmaps, one by one, what lies whole in a span and was there at that moment. What the driver
/// could not be asked for stays charged.
fn clear(call: &mut impl Call, span: Span, moment: u64) -> Result<(), Errno> {
    loop {
        let begun = call.accounting(|accounting| accounting.begin_clear(span, moment));
        let Some((mapped, ticket)) = begun.map_err(|_| Errno::ENOMEM)? else {
            return Ok(());
        };
        let range = AddressRange {
            base: mapped.base,
            length: mapped.length,
        };
        let is_gone = is_unmapped(call, &mapped.uuid, range);
        call.accounting(|accounting| {
            if is_gone {
                accounting.unmapped(mapped);
            }
            accounting.end_unmap(ticket);
        });
        if !is_gone {
            return Err(Errno::EAGAIN);
        }
    }
}

/// Unmaps just these addresses, and tells whether the driver got to it. (Whether there was anything
/// does not matter.)
fn is_unmapped(call: &mut impl Call, uuid: &Uuid, range: AddressRange) -> bool {
    use uvm::unmap_external::*;
    let mut bytes = [0; SIZE];
    let filled = BASE.set(&mut bytes, range.base).is_some()
        && LENGTH.set(&mut bytes, range.length).is_some();
    let Some(place) = bytes.get_mut(UUID) else {
        return false;
    };
    place.copy_from_slice(uuid);
    let mut parts = [Part::argument(&mut bytes)];
    filled && call.forward(uvm::UNMAP_EXTERNAL, &mut parts, Route::Caller) == Ok(0)
}

/// The number of GPUs that a mapping is for, as its count at `count_at` says. 0 for more than there
/// is room for, which is as wrong as none (`uvm_map_external_allocation()`, uvm_map_external.c).
fn used(count_at: usize, count: u64) -> usize {
    let room = count_at.saturating_sub(map_gpus::AT) / map_gpus::SIZE;
    let count = usize::try_from(count).ok();
    count.filter(|count| *count <= room).unwrap_or(0)
}
