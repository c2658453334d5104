// SPDX-License-Identifier: GPL-2.0
//! Memory that UVM maps, and so keeps after its object was freed.
//!
//! A mapping keeps its memory charged until it is gone for certain. The status that the driver writes is
//! no certainty: other threads of the program can overwrite it. What is certain is that the driver has no
//! mapping any more that it was asked to unmap by itself, by just its addresses and for its GPU
//! (`uvm_unmap_external()`, uvm_map_external.c: with nothing to split, there is nothing to refuse). So:
//!
//! * an unmapping of just one mapping is believed;
//! * so is the end of a range (`UVM_FREE`), while all ranges of the file are known ([`crate::policy`], ranges.rs);
//! * where a call for more than that says that it has worked (`UVM_UNMAP_EXTERNAL` of several, a GPU unregistered,
//!   `UVM_FREE` in another file), each mapping that it has taken is unmapped once more by itself;
//! * where a mapping is said to have failed, it is unmapped, and so made true;
//! * what a new mapping takes the place of whole, which the driver would unmap, is unmapped before it.

use super::few::Few;
use super::frontend::get;
use super::frontend::note;
use super::uvm::answer;
use super::uvm::forward;
use super::uvm::has_worked;
use super::Call;
use super::Copied;
use super::Errno;
use super::Gap;
use super::Part;
use super::Route;
use super::Session;
use super::UserAddr;
use crate::nvidia::handle::ClientHandle;
use crate::nvidia::handle::ObjectHandle;
use crate::nvidia::status::NvStatus;
use crate::nvidia::uvm;
use crate::nvidia::uvm::map_gpus;
use crate::nvidia::uvm::UvmEntry;
use crate::nvidia::wire::Field;
use crate::policy::CallKind;
use crate::policy::Map;
use crate::policy::MapTicket;
use crate::policy::RangeEnd;
use crate::policy::RefusalCause;
use crate::policy::Span;

type Uuid = [u8; 16];

/// Takes the parameters of `UVM_MAP_EXTERNAL_ALLOCATION`, which since 550 have room for more GPUs than there are:
/// 9 KiB, of which one entry or two are used.
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
    let gap = Gap {
        at,
        len: count_at.saturating_sub(at),
    };
    params.take_around(call, argument, gap, &behind)
}

/// Parameters of this size fit on one page of the scratch, where they cost little.
const WHOLE: usize = 4096;

/// `UVM_MAP_EXTERNAL_ALLOCATION`.
pub(super) fn map(
    call: &mut impl Call,
    session: &Session,
    entry: &UvmEntry,
    bytes: &mut [u8],
    gap: Gap,
) -> Result<i32, Errno> {
    use uvm::map_external::*;
    let (Some(client), Some(memory)) = (entry.client, entry.object) else {
        return Err(Errno::EINVAL);
    };
    let client = ClientHandle(get(client, bytes)?);
    let memory = ObjectHandle(get(memory, bytes)?);
    let (base, length) = (get(BASE, bytes)?, get(LENGTH, bytes)?);
    let mut maps: Few<(Map, Option<MapTicket>)> = Few::new();
    let count_at = bytes.len().checked_sub(map_gpus::COUNT_TO_END);
    let count_at = count_at.ok_or(Errno::EINVAL)?;
    let count = used(count_at, get(Field::<u64>::at(count_at), bytes)?);
    for number in 0..count {
        let uuid = uuid_at(bytes, map_gpus::AT + number * map_gpus::SIZE)?;
        if maps.iter().any(|(map, _)| map.uuid == uuid) {
            continue;
        }
        let Some(gpu) = call.gpu_by_uuid(&uuid) else {
            return answer(entry, bytes, NvStatus::NV_ERR_INVALID_DEVICE);
        };
        let map = Map {
            file: session.file,
            gpu,
            uuid,
            client,
            memory,
            base,
            length,
            offset: get(OFFSET, bytes)?,
        };
        maps.push((map, None))?;
    }
    if maps.is_empty() {
        return answer(entry, bytes, NvStatus::NV_ERR_INVALID_ARGUMENT);
    }
    let begun = maps.iter_mut().try_for_each(|(map, ticket)| {
        *ticket = Some(begin(call, map)?);
        Ok::<(), RefusalCause>(())
    });
    if let Err(refusal) = begun {
        for ticket in maps.iter_mut().filter_map(|(_, ticket)| ticket.take()) {
            call.accounting(|accounting| accounting.end_map(ticket, false));
        }
        if let Some(reason) = refusal.reason() {
            note(call, session, CallKind::Uvm, entry.cmd, reason);
        }
        return answer(entry, bytes, refusal.status());
    }
    let mut part = Part::argument(bytes);
    part.gap = gap;
    let returned = call.forward(entry.cmd, &mut [part], Route::Caller);
    let ok = has_worked(entry, returned, bytes);
    for (map, ticket) in maps.iter_mut() {
        let made = ok || returned.is_ok() && !is_unmapped(call, &map.uuid, base, length);
        if let Some(ticket) = ticket.take() {
            call.accounting(|accounting| accounting.end_map(ticket, made));
        }
    }
    returned
}

/// Enters a mapping in the accounting. What it would take the place of is unmapped before.
fn begin(call: &mut impl Call, map: &Map) -> Result<MapTicket, RefusalCause> {
    let begun = call.accounting(|accounting| accounting.begin_map(map));
    let covers = |refusal: &RefusalCause| *refusal == RefusalCause::MappingInTheWay;
    let covers = begun.as_ref().is_err_and(covers);
    let Some(last) = last_of(map.base, map.length).filter(|_| covers) else {
        return begun;
    };
    let span = Span {
        file: map.file,
        gpu: Some(map.gpu),
        base: map.base,
        last,
    };
    let moment = call.look(|accounting| accounting.moment());
    match clear(call, span, moment) {
        Ok(()) => call.accounting(|accounting| accounting.begin_map(map)),
        Err(_) => begun,
    }
}

/// `UVM_ALLOC_SEMAPHORE_POOL` and `UVM_MAP_DYNAMIC_PARALLELISM_REGION`, whose page tables stay charged.
pub(super) fn fixed(
    call: &mut impl Call,
    session: &Session,
    entry: &UvmEntry,
    bytes: &mut [u8],
) -> Result<i32, Errno> {
    // Both begin with them.
    use uvm::map_external::{BASE, LENGTH};
    let (base, length) = (get(BASE, bytes)?, get(LENGTH, bytes)?);
    if let Err(refusal) =
        call.accounting(|accounting| accounting.begin_fixed(session.file, base, length))
    {
        return answer(entry, bytes, refusal.status());
    }
    forward(call, entry.cmd, bytes, Route::Caller)
}

/// `UVM_UNMAP_EXTERNAL`.
pub(super) fn unmap(
    call: &mut impl Call,
    session: &Session,
    entry: &UvmEntry,
    bytes: &mut [u8],
) -> Result<i32, Errno> {
    use uvm::unmap_external::*;
    let (base, length) = (get(BASE, bytes)?, get(LENGTH, bytes)?);
    let gpu = call.gpu_by_uuid(&uuid_at(bytes, UUID.start)?);
    let moment = call.look(|accounting| accounting.moment());
    let span = gpu.zip(last_of(base, length)).map(|(gpu, last)| Span {
        file: session.file,
        gpu: Some(gpu),
        base,
        last,
    });
    let first = span.and_then(|span| call.look(|accounting| accounting.mapped(span, moment)));
    let alone = first.filter(|first| first.base == base && first.length == length);
    let returned = forward(call, entry.cmd, bytes, Route::Caller)?;
    let ok = has_worked(entry, Ok(returned), bytes);
    match (alone, span) {
        (Some(alone), _) if returned == 0 => {
            call.accounting(|accounting| accounting.unmapped(alone))
        }
        // What cannot be unmapped now stays charged.
        (None, Some(span)) if ok => clear(call, span, moment).unwrap_or(()),
        _ => {}
    }
    Ok(returned)
}

/// `UVM_CREATE_EXTERNAL_RANGE`.
pub(super) fn create(
    call: &mut impl Call,
    session: &Session,
    entry: &UvmEntry,
    bytes: &mut [u8],
) -> Result<i32, Errno> {
    // Both begin with them.
    use uvm::map_external::{BASE, LENGTH};
    let (base, length) = (get(BASE, bytes)?, get(LENGTH, bytes)?);
    let ticket =
        match call.accounting(|accounting| accounting.begin_range(session.file, base, length)) {
            Ok(ticket) => ticket,
            Err(refusal) => return answer(entry, bytes, refusal.status()),
        };
    let returned = forward(call, entry.cmd, bytes, Route::Caller);
    let made = has_worked(entry, returned, bytes);
    call.accounting(|accounting| accounting.end_range(ticket, made));
    returned
}

/// `UVM_FREE`: the range with all that is mapped in it.
pub(super) fn free(
    call: &mut impl Call,
    session: &Session,
    entry: &UvmEntry,
    bytes: &mut [u8],
) -> Result<i32, Errno> {
    let base = get(uvm::free::BASE, bytes)?;
    // From 595 on the driver asks for no length.
    let long = entry.status.offset() > LENGTH.offset();
    let length = long.then(|| get(LENGTH, bytes)).transpose()?;
    match call.accounting(|accounting| accounting.begin_range_free(session.file, base, length)) {
        Ok(RangeEnd::Certain(going)) => {
            let returned = forward(call, entry.cmd, bytes, Route::Caller);
            call.accounting(|accounting| accounting.end_range_free(going, returned == Ok(0)));
            returned
        }
        Ok(RangeEnd::Nothing) => forward(call, entry.cmd, bytes, Route::Caller),
        Ok(RangeEnd::Lost) => free_lost(call, session, entry, bytes, (base, length)),
        Err(refusal) => answer(entry, bytes, refusal.status()),
    }
}

/// The same in a file of which nobody knows the ranges.
fn free_lost(
    call: &mut impl Call,
    session: &Session,
    entry: &UvmEntry,
    bytes: &mut [u8],
    (base, length): (u64, Option<u64>),
) -> Result<i32, Errno> {
    let moment = call.look(|accounting| accounting.moment());
    let span = |last| Span {
        file: session.file,
        gpu: None,
        base,
        last,
    };
    // Without a length, a range that is mapped in pieces counts until those are unmapped, or the file is closed.
    let length = length.or_else(|| {
        let first = call.look(|accounting| accounting.mapped(span(u64::MAX), moment));
        let first = first.filter(|first| first.base == base);
        first.map(|first| first.length)
    });
    let returned = forward(call, entry.cmd, bytes, Route::Caller)?;
    let ok = has_worked(entry, Ok(returned), bytes);
    let last = length.and_then(|length| last_of(base, length));
    if let (Some(last), true) = (last, ok) {
        clear(call, span(last), moment).unwrap_or(());
    }
    Ok(returned)
}

/// `UVM_FREE_PARAMS::length`, up to 580.
const LENGTH: Field<u64> = Field::at(8);

/// `UVM_UNREGISTER_GPU_VASPACE` and `UVM_UNREGISTER_GPU`: all that is mapped for the GPU goes.
pub(super) fn unregister(
    call: &mut impl Call,
    session: &Session,
    entry: &UvmEntry,
    bytes: &mut [u8],
) -> Result<i32, Errno> {
    let gpu = call.gpu_by_uuid(&uuid_at(bytes, 0)?);
    let moment = call.look(|accounting| accounting.moment());
    let returned = forward(call, entry.cmd, bytes, Route::Caller)?;
    let ok = has_worked(entry, Ok(returned), bytes);
    if let (Some(_), true) = (gpu, ok) {
        let span = Span {
            file: session.file,
            gpu,
            base: 0,
            last: u64::MAX,
        };
        clear(call, span, moment).unwrap_or(());
    }
    Ok(returned)
}

/// Unmaps, one by one, what lies whole in a span and was there at that moment. What the driver could not
/// be asked for stays charged.
fn clear(call: &mut impl Call, span: Span, moment: u64) -> Result<(), Errno> {
    while let Some(mapped) = call.look(|accounting| accounting.mapped(span, moment)) {
        if !is_unmapped(call, &mapped.uuid, mapped.base, mapped.length) {
            return Err(Errno::EAGAIN);
        }
        call.accounting(|accounting| accounting.unmapped(mapped));
    }
    Ok(())
}

/// Unmaps just these addresses, and tells whether the driver got to it. (Whether there was anything does
/// not matter.)
fn is_unmapped(call: &mut impl Call, uuid: &Uuid, base: u64, length: u64) -> bool {
    use uvm::unmap_external::*;
    let mut bytes = [0; SIZE];
    let filled = BASE.set(&mut bytes, base).is_some() && LENGTH.set(&mut bytes, length).is_some();
    let Some(place) = bytes.get_mut(UUID) else {
        return false;
    };
    place.copy_from_slice(uuid);
    filled && forward(call, uvm::UNMAP_EXTERNAL, &mut bytes, Route::Caller) == Ok(0)
}

/// How many GPUs a mapping is for, as its number of them at `count_at` says; 0 for more than there is room for,
/// which is as wrong as none (`uvm_map_external_allocation()`, uvm_map_external.c).
fn used(count_at: usize, count: u64) -> usize {
    let room = count_at.saturating_sub(map_gpus::AT) / map_gpus::SIZE;
    let count = usize::try_from(count).ok();
    count.filter(|count| *count <= room).unwrap_or(0)
}

pub(super) fn uuid_at(bytes: &[u8], at: usize) -> Result<Uuid, Errno> {
    let uuid = bytes.get(at..at.saturating_add(16)).ok_or(Errno::EINVAL)?;
    Uuid::try_from(uuid).map_err(|_| Errno::EINVAL)
}

/// The last byte of a range; `None`: it has none, or goes beyond the end of the address space.
fn last_of(base: u64, length: u64) -> Option<u64> {
    base.checked_add(length.checked_sub(1)?)
}
