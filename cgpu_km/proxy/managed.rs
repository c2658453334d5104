// SPDX-License-Identifier: GPL-2.0
//! Managed memory: what programs ask of UVM about it, and what we ask.
//!
//! What the accounting says ([`crate::policy::Accounting`]) is made so by calls on the program's own UVM file:
//!
//! * `UVM_SET_PREFERRED_LOCATION` to the CPU for what does not fit. From then on the driver puts no page
//!   of it on a GPU, whoever touches it, as long as read duplication is off and no call migrates it
//!   (`block_select_processor_residency()`, kernel-open/nvidia-uvm/uvm_va_block.c).
//! * `UVM_MIGRATE` to the CPU after it, for what a GPU may hold already.
//! * When there is room again, `UVM_SET_PREFERRED_LOCATION` to each GPU, and then what the program wanted, or
//!   `UVM_UNSET_PREFERRED_LOCATION`. A GPU that has used memory of the host has mapped it, and goes on doing so
//!   without a fault, whatever is preferred later (seen on an H100); that it is the preferred location takes
//!   its mappings away (`preferred_location_unmap_remote_pages()`, uvm_policy.c).
//!
//! A program's own calls that could undo this (`UVM_SET_PREFERRED_LOCATION`, `UVM_UNSET_PREFERRED_LOCATION`,
//! `UVM_ENABLE_READ_DUPLICATION`, `UVM_MIGRATE` to a GPU) are forwarded for what counts, run by run, and
//! answered for the rest. `UVM_MIGRATE_RANGE_GROUP` to a GPU names no addresses; it is answered, and data
//! moves when it is touched, as all GPUs of these drivers can fault.

use super::frontend::get;
use super::frontend::set;
use super::uvm::answer;
use super::uvm::forward;
use super::uvm::has_worked;
use super::uvm_map::uuid_at;
use super::Call;
use super::Errno;
use super::Part;
use super::Route;
use super::Session;
use crate::nvidia::status::NvStatus;
use crate::nvidia::uvm;
use crate::nvidia::uvm::UvmEntry;
use crate::nvidia::uvm::ANY_NODE;
use crate::nvidia::uvm::CPU_UUID;
use crate::nvidia::wire::Field;
use crate::policy::Admission;
use crate::policy::Alloc;
use crate::policy::FileId;
use crate::policy::GpuId;
use crate::policy::Location;
use crate::policy::ManagedOrder;
use crate::policy::ManagedWish;
use crate::policy::RefusalCause;
use crate::policy::Run;
use crate::policy::Ticket;

/// Largest struct of the calls that are made here.
const LARGEST: usize = uvm::migrate::SIZE;

/// Most pieces that one call of a program puts in order for others.
const MOST_ORDERS: usize = 256;

/// The parts of a call about a span of addresses.
struct Request {
    cmd: u32,
    uuid: Option<[u8; 16]>,
    node: Option<(Field<i32>, i32)>,
}

const TO_CPU: Request = Request {
    cmd: uvm::MIGRATE,
    uuid: Some(CPU_UUID),
    node: Some((uvm::migrate::CPU_NUMA_NODE, ANY_NODE)),
};

/// A request that has nothing but a span.
const fn plain(cmd: u32) -> Request {
    Request {
        cmd,
        uuid: None,
        node: None,
    }
}

fn prefer(location: &Location) -> Request {
    Request {
        cmd: uvm::SET_PREFERRED_LOCATION,
        uuid: Some(location.uuid),
        node: Some((
            uvm::preferred_location::PREFERRED_CPU_NUMA_NODE,
            location.node,
        )),
    }
}

const HOST: Location = Location {
    uuid: CPU_UUID,
    node: ANY_NODE,
};

/// Makes a call of our own about an order's piece, and tells whether the driver says that it has worked.
fn ask(call: &mut impl Call, order: &ManagedOrder, request: &Request) -> bool {
    let Some(entry) = call.tables().uvm(request.cmd) else {
        return false;
    };
    let mut bytes = [0; LARGEST];
    let size = usize::try_from(entry.size).unwrap_or(usize::MAX);
    let Some(bytes) = bytes.get_mut(..size) else {
        return false;
    };
    // All of them begin with the address and the length, and with the UUID where there is one.
    let mut filled = uvm::migrate::BASE.set(bytes, order.base).is_some()
        && uvm::migrate::LENGTH.set(bytes, order.length).is_some();
    if let Some(uuid) = request.uuid {
        let place = bytes.get_mut(uvm::migrate::UUID);
        filled &= place.map(|place| place.copy_from_slice(&uuid)).is_some();
    }
    if let Some((field, node)) = request.node {
        // Branches before 550 have no node, but the status there.
        if field != Field::at(entry.status.offset()) {
            filled &= field.set(bytes, node).is_some();
        }
    }
    let part = Part::argument(bytes);
    let mut parts = [part];
    let returned = filled.then(|| call.forward_on(order.file, request.cmd, &mut parts));
    let [part] = parts;
    returned == Some(Ok(0)) && entry.status.get(part.bytes) == Some(NvStatus::NV_OK.0)
}

/// Tells the driver what a program wants for memory that a GPU may hold.
fn grant(call: &mut impl Call, order: &ManagedOrder) {
    let preferred = order.wish.preferred;
    let mut number = 0;
    while let Some(uuid) = call.look(|accounting| accounting.managed_home(order.file, number)) {
        number += 1;
        let home = Location {
            uuid,
            node: ANY_NODE,
        };
        if preferred.is_none_or(|place| place.uuid != uuid) {
            // A GPU that the program has unregistered since has no mappings, and the driver says no.
            ask(call, order, &prefer(&home));
        }
    }
    let done = preferred.is_some_and(|location| ask(call, order, &prefer(&location)));
    if !done {
        // What the program wanted may be of no use any more, as a GPU that it has unregistered.
        ask(call, order, &plain(uvm::UNSET_PREFERRED_LOCATION));
    }
    if order.wish.duplicated {
        ask(call, order, &plain(uvm::ENABLE_READ_DUPLICATION));
    }
}

/// Brings a piece to host memory, for good.
fn put_out(call: &mut impl Call, order: ManagedOrder) -> bool {
    let done = (!order.wish.duplicated || ask(call, &order, &plain(uvm::DISABLE_READ_DUPLICATION)))
        && ask(call, &order, &prefer(&HOST))
        && ask(call, &order, &TO_CPU);
    if !done {
        grant(call, &order);
    }
    call.accounting(|accounting| accounting.left(order, done));
    done
}

/// Tells the driver what becomes of memory that was just mapped, before the program runs on; `late`: so much
/// time has passed since that a GPU can have touched it. What the driver does not take is unmapped again.
pub fn settle(call: &mut impl Call, file: FileId, base: u64, length: u64, late: bool) {
    while let Some(tell) = call.accounting(|accounting| accounting.tell(file, base, length, late)) {
        let order = tell.order;
        let told = ask(call, &order, &prefer(&HOST));
        let done = told && (!tell.bring || ask(call, &order, &TO_CPU));
        let (base, length) = (order.base, order.length);
        call.accounting(|accounting| accounting.told(order, done));
        if !done {
            call.unmap(base, length);
            break;
        }
    }
    // Its page tables may need the room of what counts.
    relieve(call);
}

/// Brings what the driver does in line with the accounting, after something was freed or a limit was changed:
/// what does not fit any more goes to host memory, and what fits again comes back.
pub fn rebalance(call: &mut impl Call) {
    if !call.look(|accounting| accounting.has_managed()) || !relieve(call) {
        return;
    }
    for _ in 0..MOST_ORDERS {
        let Some(order) = call.accounting(|accounting| accounting.give_back()) else {
            return;
        };
        grant(call, &order);
        call.accounting(|accounting| accounting.returned(order));
    }
}

/// Brings to host memory what does not fit any more, and tells whether the driver did so.
fn relieve(call: &mut impl Call) -> bool {
    for _ in 0..MOST_ORDERS {
        let Some(order) = call.accounting(|accounting| accounting.make_good()) else {
            break;
        };
        if !put_out(call, order) {
            return false;
        }
    }
    true
}

/// [`Accounting::begin_alloc`](crate::policy::Accounting::begin_alloc). Managed memory on the GPU of what the object is
/// made below makes room for it first, as it does in the driver itself (`uvm_pmm_gpu_pma_evict_pages()`,
/// uvm_pmm_gpu.c).
pub(super) fn begin_alloc(
    call: &mut impl Call,
    request: &Alloc,
    gpu: Option<GpuId>,
) -> Result<Ticket, RefusalCause> {
    let bytes = request.most();
    let begun = call.accounting(|accounting| {
        match gpu.filter(|gpu| accounting.begin_demand(*gpu, bytes)) {
            Some(crowded) => Err(crowded),
            None => Ok(accounting.begin_alloc(request)),
        }
    });
    let gpu = match begun {
        Ok(begun) => return begun,
        Err(crowded) => crowded,
    };
    while let Some(order) = call.accounting(|accounting| accounting.make_room(gpu, bytes)) {
        if !put_out(call, order) {
            break;
        }
    }
    call.accounting(|accounting| {
        let begun = accounting.begin_alloc(request);
        accounting.end_demand();
        begun
    })
}

/// `UVM_REGISTER_GPU_VASPACE`: from now on the GPU can hold what the file has.
pub(super) fn register(
    call: &mut impl Call,
    session: &Session,
    entry: &UvmEntry,
    bytes: &mut [u8],
) -> Result<i32, Errno> {
    let uuid = uuid_at(bytes, uvm::register_vaspace::UUID.start)?;
    let gpu = call.gpu_by_uuid(&uuid);
    while let Some(gpu) = gpu {
        let done = match call
            .accounting(|accounting| accounting.enter_managed(session.file, gpu, &uuid))?
        {
            Admission::Ready => break,
            Admission::Crowded(order) => put_out(call, order),
            Admission::Refused => false,
        };
        if !done {
            return answer(entry, bytes, NvStatus::NV_ERR_NO_MEMORY);
        }
    }
    forward(call, entry.cmd, bytes, Route::Caller)
}

/// The calls about managed memory that can bring it onto a GPU or change what a program wants of it.
pub(super) fn touch(
    call: &mut impl Call,
    session: &Session,
    entry: &UvmEntry,
    bytes: &mut [u8],
) -> Result<i32, Errno> {
    use uvm::migrate::*;
    let (base, length) = (get(BASE, bytes)?, get(LENGTH, bytes)?);
    let is_migration = entry.cmd == uvm::MIGRATE;
    if is_migration && (length == 0 || uuid_at(bytes, UUID.start)? == CPU_UUID) {
        // Nothing comes onto a GPU: to the CPU, or a semaphore alone.
        return forward(call, entry.cmd, bytes, Route::Caller);
    }
    let Some(wish) = wish(entry, bytes)? else {
        return answer(entry, bytes, NvStatus::NV_ERR_INVALID_ADDRESS);
    };
    let touch = call.accounting(|accounting| accounting.begin_touch(session.file, base, length));
    let Some(touch) = touch? else {
        // `uvm_api_range_type_check()`, uvm_policy.c. (The driver knows other memory too, HMM and ATS, but
        // not in an address space that processes share, which all here are: see `super::uvm`.)
        return answer(entry, bytes, NvStatus::NV_ERR_INVALID_ADDRESS);
    };
    let returned = if touch.runs.iter().all(|run| run.counts) {
        forward(call, entry.cmd, bytes, Route::Caller)
    } else {
        let known = wish
            .preferred()
            .is_none_or(|place| place.uuid == CPU_UUID || call.gpu_by_uuid(&place.uuid).is_some());
        match known {
            true => in_runs(call, entry, bytes, &touch.runs),
            false => answer(entry, bytes, NvStatus::NV_ERR_INVALID_DEVICE),
        }
    };
    let ok = has_worked(entry, returned, bytes);
    call.accounting(|accounting| {
        accounting.end_touch(touch);
        if ok {
            accounting.wish(session.file, base, length, |place| wish.apply(place));
        }
    });
    returned
}

/// What a call says that a program wants.
enum Wanted {
    Preferred(Option<Location>),
    Duplicated(bool),
    /// A migration: a wish for now, not for later.
    Once(Location),
}

impl Wanted {
    /// The place that the call names.
    fn preferred(&self) -> Option<Location> {
        match *self {
            Self::Preferred(place) => place,
            Self::Once(place) => Some(place),
            Self::Duplicated(_) => None,
        }
    }

    fn apply(&self, wish: &mut ManagedWish) {
        match *self {
            Self::Preferred(place) => wish.preferred = place,
            Self::Duplicated(duplicated) => wish.duplicated = duplicated,
            Self::Once(_) => {}
        }
    }
}

/// `None`: the call is none of those.
fn wish(entry: &UvmEntry, bytes: &[u8]) -> Result<Option<Wanted>, Errno> {
    use uvm::preferred_location::*;
    let location = || {
        let node = match PREFERRED_CPU_NUMA_NODE == Field::at(entry.status.offset()) {
            true => ANY_NODE,
            false => get(PREFERRED_CPU_NUMA_NODE, bytes)?,
        };
        let uuid = uuid_at(bytes, UUID.start)?;
        Ok::<_, Errno>(Location { uuid, node })
    };
    Ok(Some(match entry.cmd {
        uvm::SET_PREFERRED_LOCATION => Wanted::Preferred(Some(location()?)),
        uvm::UNSET_PREFERRED_LOCATION => Wanted::Preferred(None),
        uvm::ENABLE_READ_DUPLICATION => Wanted::Duplicated(true),
        uvm::DISABLE_READ_DUPLICATION => Wanted::Duplicated(false),
        uvm::MIGRATE => Wanted::Once(Location {
            uuid: uuid_at(bytes, uvm::migrate::UUID.start)?,
            node: ANY_NODE,
        }),
        _ => return Ok(None),
    }))
}

/// Forwards a call for what counts alone. The program's struct gets the first status that is not good.
fn in_runs(
    call: &mut impl Call,
    entry: &UvmEntry,
    bytes: &mut [u8],
    runs: &[Run],
) -> Result<i32, Errno> {
    use uvm::migrate::*;
    let (base, length) = (get(BASE, bytes)?, get(LENGTH, bytes)?);
    let is_migration = entry.cmd == uvm::MIGRATE;
    let semaphore = match is_migration {
        true => (get(FLAGS, bytes)?, get(SEMAPHORE_ADDRESS, bytes)?),
        false => (0, 0),
    };
    let later = semaphore.0 & uvm::MIGRATE_FLAG_ASYNC != 0 && semaphore.1 != 0;
    let payload = match is_migration {
        true => get(SEMAPHORE_PAYLOAD, bytes)?,
        false => 0,
    };
    if later {
        // The semaphore tells that all is done: so each run is waited for.
        set(FLAGS, bytes, semaphore.0 & !uvm::MIGRATE_FLAG_ASYNC)?;
        set(SEMAPHORE_ADDRESS, bytes, 0)?;
        set(SEMAPHORE_PAYLOAD, bytes, 0)?;
    }
    let mut returned = answer(entry, bytes, NvStatus::NV_OK);
    let mut ok = true;
    for run in runs.iter().filter(|run| run.counts) {
        set(BASE, bytes, run.base)?;
        set(LENGTH, bytes, run.length)?;
        returned = forward(call, entry.cmd, bytes, Route::Caller);
        ok = has_worked(entry, returned, bytes);
        if !ok {
            break;
        }
    }
    if later {
        set(FLAGS, bytes, semaphore.0)?;
        set(SEMAPHORE_ADDRESS, bytes, semaphore.1)?;
        set(SEMAPHORE_PAYLOAD, bytes, payload)?;
        if ok {
            // No addresses: the semaphore alone (`uvm_api_migrate()`, uvm_migrate.c).
            set(BASE, bytes, 0)?;
            set(LENGTH, bytes, 0)?;
            returned = forward(call, entry.cmd, bytes, Route::Caller);
        }
    }
    set(BASE, bytes, base)?;
    set(LENGTH, bytes, length)?;
    returned
}

/// `UVM_MIGRATE_RANGE_GROUP`.
pub(super) fn migrate_group(
    call: &mut impl Call,
    entry: &UvmEntry,
    bytes: &mut [u8],
) -> Result<i32, Errno> {
    let place = uuid_at(bytes, uvm::migrate_range_group::UUID.start)?;
    let status = match call.gpu_by_uuid(&place) {
        _ if place == CPU_UUID => return forward(call, entry.cmd, bytes, Route::Caller),
        Some(_) => NvStatus::NV_OK,
        None => NvStatus::NV_ERR_INVALID_DEVICE,
    };
    answer(entry, bytes, status)
}

/// `UVM_VALIDATE_VA_RANGE`: whether there is a range of just these addresses. Where a part of it is spilled,
/// the driver has two (`uvm_va_range_split()`), but for the program it is the one that it has mapped.
pub(super) fn validate(
    call: &mut impl Call,
    session: &Session,
    entry: &UvmEntry,
    bytes: &mut [u8],
) -> Result<i32, Errno> {
    use uvm::validate::*;
    let (base, length) = (get(BASE, bytes)?, get(LENGTH, bytes)?);
    let returned = forward(call, entry.cmd, bytes, Route::Caller)?;
    let invalid = entry.status.get(bytes) == Some(NvStatus::NV_ERR_INVALID_ADDRESS.0);
    if invalid && call.look(|accounting| accounting.is_spilled_in(session.file, base, length)) {
        set(entry.status, bytes, NvStatus::NV_OK.0)?;
    }
    Ok(returned)
}
