// SPDX-License-Identifier: GPL-2.0
//! Managed memory: what programs ask of UVM about it.
//!
//! The module's own calls ([`super::orders`]) keep what does not fit in host memory. A program's
//! calls that could undo this (`UVM_SET_PREFERRED_LOCATION`, `UVM_UNSET_PREFERRED_LOCATION`,
//! `UVM_ENABLE_READ_DUPLICATION`, `UVM_MIGRATE` to a GPU) are forwarded for what counts, run by
//! run, and answered for the rest. `UVM_MIGRATE_RANGE_GROUP` to a GPU names no addresses. It is
//! answered, and data moves when it is touched, because all GPUs of these drivers can fault.
//!
//! The driver gets no semaphore of `UVM_MIGRATE`: see [`LaterSemaphore`].

use super::{
    call::{
        Call,
        Errno,
        Returned,
        UserAddr, //
    },
    orders::put_out,
    stop::{
        get,
        set,
        Stop, //
    },
    uvm_call::UvmCall,
    uvm_structs::splitting, //
};
use crate::{
    nvidia::{
        status::NvStatus,
        uvm::{
            self,
            preferred_location::PREFERRED_CPU_NUMA_NODE,
            UvmWish,
            ANY_NODE,
            CPU_UUID, //
        }, //
    },
    policy::{
        Admission,
        Location,
        ManagedWish,
        Run, //
    }, //
};

/// `UVM_REGISTER_GPU_VASPACE`: from now on the GPU can hold what the file has. Of a GPU that the
/// tenant has no longer the driver may know an address space still. The file gets none of it.
pub(super) fn register(call: &mut impl Call, request: &mut UvmCall<'_>) -> Result<i32, Stop> {
    let uuid = request.uuid(uvm::register_vaspace::UUID.start)?;
    let gpu = call.gpu_by_uuid(&uuid);
    let gpu = gpu.ok_or(Stop::status(NvStatus::NV_ERR_INVALID_DEVICE))?;
    loop {
        let entered =
            call.accounting(|accounting| accounting.enter_managed(request.file, gpu, &uuid))?;
        let done = match entered {
            Admission::Ready => break,
            Admission::Crowded(order) => put_out(call, order),
            Admission::Refused => false,
        };
        if !done {
            return Err(Stop::status(NvStatus::NV_ERR_NO_MEMORY));
        }
    }
    Ok(request.forward(call)?)
}

/// The calls about managed memory that can bring it onto a GPU or change what a program wants of
/// it.
pub(super) fn touch(
    call: &mut impl Call,
    request: &mut UvmCall<'_>,
    wish: UvmWish,
) -> Result<i32, Stop> {
    if wish == UvmWish::Migrate {
        return migrate(call, request);
    }
    let range = request.range()?;
    splitting(call, request, range, |call, request| {
        touch_pieces(call, request, wish)
    })
}

fn touch_pieces(
    call: &mut impl Call,
    request: &mut UvmCall<'_>,
    wish: UvmWish,
) -> Result<i32, Stop> {
    let range = request.range()?;
    if wish == UvmWish::Migrate && request.uuid(uvm::migrate::UUID.start)? == CPU_UUID {
        // Nothing comes onto a GPU.
        return Ok(request.forward(call)?);
    }
    let wanted = Wanted::read(request, wish)?;
    // The file may have a GPU that the tenant had before: the driver keeps it until the file is
    // closed.
    if !wanted.is_of(call) {
        return Err(Stop::status(NvStatus::NV_ERR_INVALID_DEVICE));
    }
    let touch = call
        .accounting(|accounting| accounting.begin_touch(request.file, range.base, range.length))?;
    // `uvm_api_range_type_check()`, uvm_policy.c. (The driver knows other memory too, HMM and ATS,
    // but not in an address space that processes share, which all here are: see `super::uvm`.)
    let touch = touch.ok_or(Stop::status(NvStatus::NV_ERR_INVALID_ADDRESS))?;
    let returned = if touch.runs.iter().all(|run| run.counts) {
        request.forward(call)
    } else {
        in_runs(call, request, &touch.runs).unwrap_or_else(Err)
    };
    let is_done = request.has_worked(returned);
    call.accounting(|accounting| {
        accounting.end_touch(touch);
        if is_done {
            accounting.wish(request.file, range.base, range.length, |wish| {
                wanted.enter(wish)
            });
        }
    });
    Ok(returned?)
}

/// The wish that a call says.
enum Wanted {
    Preferred(Option<Location>),
    Duplicated(bool),
    /// A migration: a wish for now, not for later.
    Once(Location),
}

impl Wanted {
    fn read(request: &UvmCall<'_>, wish: UvmWish) -> Result<Self, Errno> {
        Ok(match wish {
            UvmWish::Prefer => Self::Preferred(Some(Location {
                uuid: request.uuid(uvm::preferred_location::UUID.start)?,
                // Branches before 550 have no node, but the status there.
                node: if PREFERRED_CPU_NUMA_NODE.offset() == request.entry.status.offset() {
                    ANY_NODE
                } else {
                    get(PREFERRED_CPU_NUMA_NODE, request.bytes)?
                },
            })),
            UvmWish::Unprefer => Self::Preferred(None),
            UvmWish::Duplicate => Self::Duplicated(true),
            UvmWish::Unduplicate => Self::Duplicated(false),
            UvmWish::Migrate => Self::Once(Location {
                uuid: request.uuid(uvm::migrate::UUID.start)?,
                node: ANY_NODE,
            }),
        })
    }

    /// Whether the place that the call names, if any, is the CPU or a GPU of the tenant's.
    fn is_of(&self, call: &impl Call) -> bool {
        let place = match *self {
            Self::Preferred(place) => place,
            Self::Once(place) => Some(place),
            Self::Duplicated(_) => None,
        };
        place.is_none_or(|place| place.uuid == CPU_UUID || call.gpu_by_uuid(&place.uuid).is_some())
    }

    /// Enters it in what the accounting knows of the program's wishes.
    fn enter(&self, wish: &mut ManagedWish) {
        match *self {
            Self::Preferred(place) => wish.preferred = place,
            Self::Duplicated(duplicated) => wish.duplicated = duplicated,
            Self::Once(_) => {}
        }
    }
}

/// `UVM_MIGRATE`. If it has a semaphore, the module writes that when the memory has been moved.
fn migrate(call: &mut impl Call, request: &mut UvmCall<'_>) -> Result<i32, Stop> {
    let Some(later) = LaterSemaphore::take(request)? else {
        return migrate_in_pieces(call, request);
    };
    let returned = later.run(call, request);
    later.put(request)?;
    let returned = returned?;
    if request.has_worked(Ok(returned)) && later.release(call).is_err() {
        return Err(Stop::status(NvStatus::NV_ERR_INVALID_ADDRESS));
    }
    Ok(returned)
}

/// Bytes that one call of the driver moves: at 10 GiB/s it takes 6 ms.
const MIGRATED_AT_ONCE: u64 = 64 << 20;
/// Calls of the driver for one of the program's. Above 64 GiB each moves more.
const MOST_PIECES: u64 = 1024;

/// Moves what the call names, a piece at a time.
///
/// A call that lasts as long as its migration holds the lock of the address space all the while
/// (`uvm_api_migrate()`, uvm_migrate.c). A thread that waits to change the address space, and the
/// driver's service of GPU faults behind it, would wait as long.
fn migrate_in_pieces(call: &mut impl Call, request: &mut UvmCall<'_>) -> Result<i32, Stop> {
    use uvm::migrate::{
        BASE,
        LENGTH, //
    };
    let range = request.range()?;
    let Some(end) = range.base.checked_add(range.length) else {
        return touch_pieces(call, request, UvmWish::Migrate);
    };
    let piece = (range.length / MOST_PIECES).max(1);
    let piece = piece.next_multiple_of(MIGRATED_AT_ONCE);
    let mut base = range.base;
    let returned = loop {
        // Ends where blocks of the driver's end, of 2 MiB.
        let next = (base & !(MIGRATED_AT_ONCE - 1))
            .saturating_add(piece)
            .min(end);
        set(BASE, request.bytes, base)?;
        set(LENGTH, request.bytes, next - base)?;
        let returned = touch_pieces(call, request, UvmWish::Migrate);
        base = next;
        let has_worked = returned.is_ok_and(|code| request.has_worked(Ok(code)));
        if base == end || !has_worked {
            break returned;
        }
    };
    set(BASE, request.bytes, range.base)?;
    set(LENGTH, request.bytes, range.length)?;
    returned
}

/// The semaphore that tells a program when a migration is done that goes on after the call.
///
/// The driver never gets one. It takes the pool's place among the program's addresses from a
/// pointer that is null while neither the CPU nor a GPU has the pool mapped
/// (`semaphore_release_from_cpu()`, uvm_migrate.c, 535 to 595). A program can make a pool and not
/// map it, or unmap it beside the call. So the call lasts as long as the migration, and the module
/// writes the semaphore where the program has it.
struct LaterSemaphore {
    flags: u32,
    address: u64,
    payload: u32,
}

impl LaterSemaphore {
    /// Takes it out of a call, so that the call lasts as long as the migration.
    fn take(request: &mut UvmCall<'_>) -> Result<Option<Self>, Stop> {
        use uvm::migrate::*;
        let later = Self {
            flags: get(FLAGS, request.bytes)?,
            address: get(SEMAPHORE_ADDRESS, request.bytes)?,
            payload: get(SEMAPHORE_PAYLOAD, request.bytes)?,
        };
        if later.address == 0 {
            return Ok(None);
        }
        // As `uvm_api_migrate()` has both, uvm_migrate.c.
        if later.flags != uvm::MIGRATE_FLAG_ASYNC {
            return Err(Stop::status(NvStatus::NV_ERR_INVALID_ARGUMENT));
        }
        if later.address % u64::from(u32::BITS / u8::BITS) != 0 {
            return Err(Stop::status(NvStatus::NV_ERR_INVALID_ADDRESS));
        }
        let now = Self {
            flags: 0,
            address: 0,
            payload: 0,
        };
        now.put(request)?;
        Ok(Some(later))
    }

    /// Puts it into a call.
    fn put(&self, request: &mut UvmCall<'_>) -> Result<(), Errno> {
        use uvm::migrate::*;
        set(FLAGS, request.bytes, self.flags)?;
        set(SEMAPHORE_ADDRESS, request.bytes, self.address)?;
        set(SEMAPHORE_PAYLOAD, request.bytes, self.payload)
    }

    /// Moves what the call names, if it names anything: without addresses it is the semaphore
    /// alone (`uvm_api_migrate()`).
    fn run(&self, call: &mut impl Call, request: &mut UvmCall<'_>) -> Result<i32, Stop> {
        if request.range()?.length != 0 {
            return migrate_in_pieces(call, request);
        }
        if !Wanted::read(request, UvmWish::Migrate)?.is_of(call) {
            return Err(Stop::status(NvStatus::NV_ERR_INVALID_DEVICE));
        }
        set(request.entry.status, request.bytes, NvStatus::NV_OK.0)?;
        Ok(0)
    }

    /// Writes it.
    fn release(&self, call: &mut impl Call) -> Result<(), Errno> {
        call.write_word(UserAddr(self.address), self.payload)
    }
}

/// Forwards a call only for what counts. The program's struct gets the first status that is not
/// good.
fn in_runs(
    call: &mut impl Call,
    request: &mut UvmCall<'_>,
    runs: &[Run],
) -> Result<Returned, Errno> {
    use uvm::migrate::{
        BASE,
        LENGTH, //
    };
    let range = request.range()?;
    set(request.entry.status, request.bytes, NvStatus::NV_OK.0)?;
    let mut returned = Ok(0);
    for run in runs.iter().filter(|run| run.counts) {
        set(BASE, request.bytes, run.base)?;
        set(LENGTH, request.bytes, run.length)?;
        returned = request.forward(call);
        if !request.has_worked(returned) {
            break;
        }
    }
    set(BASE, request.bytes, range.base)?;
    set(LENGTH, request.bytes, range.length)?;
    Ok(returned)
}

/// `UVM_MIGRATE_RANGE_GROUP`.
pub(super) fn migrate_group(call: &mut impl Call, request: &mut UvmCall<'_>) -> Result<i32, Stop> {
    let place = request.uuid(uvm::migrate_range_group::UUID.start)?;
    if place == CPU_UUID {
        return Ok(request.forward(call)?);
    }
    if call.gpu_by_uuid(&place).is_none() {
        return Err(Stop::status(NvStatus::NV_ERR_INVALID_DEVICE));
    }
    set(request.entry.status, request.bytes, NvStatus::NV_OK.0)?;
    Ok(0)
}

/// `UVM_VALIDATE_VA_RANGE`: whether there is a range of just these addresses. If a part of it is
/// spilled, the driver has two (`uvm_va_range_split()`), but for the program it is the one that it
/// has mapped.
pub(super) fn validate(call: &mut impl Call, request: &mut UvmCall<'_>) -> Result<i32, Stop> {
    let range = request.range()?;
    let returned = request.forward(call)?;
    let status = request.entry.status;
    let is_invalid = status.get(request.bytes) == Some(NvStatus::NV_ERR_INVALID_ADDRESS.0);
    let is_spilled = is_invalid
        && call.look(|accounting| accounting.is_spilled_in(request.file, range.base, range.length));
    if is_spilled {
        set(status, request.bytes, NvStatus::NV_OK.0)?;
    }
    Ok(returned)
}
