// SPDX-License-Identifier: GPL-2.0
//! Managed memory: the calls that the module makes itself.
//!
//! Decisions of the [accounting](crate::policy::Accounting) are carried out by calls on the
//! program's own UVM file:
//!
//! * `UVM_SET_PREFERRED_LOCATION` to the CPU for what does not fit. From then on the driver puts no
//!   page of it on a GPU, whoever touches it, as long as read duplication is off and no call
//!   migrates it (`block_select_processor_residency()`, kernel-open/nvidia-uvm/uvm_va_block.c).
//! * `UVM_MIGRATE` to the CPU after it, for what a GPU may hold already. Read duplication is
//!   switched off before both, whatever the program is thought to want: with it on, a GPU keeps its
//!   copy (`uvm_va_block_migrate_locked()`, uvm_migrate.c).
//! * When there is room again, `UVM_SET_PREFERRED_LOCATION` to each GPU, and then what the program
//!   wanted, or `UVM_UNSET_PREFERRED_LOCATION`. A GPU that has used memory of the host has mapped
//!   it, and goes on using it without a fault, whatever is preferred later (seen on an H100). Its
//!   mappings go when it becomes the preferred location (`preferred_location_unmap_remote_pages()`,
//!   uvm_policy.c).

use super::{
    call::{
        Call,
        Host, //
    },
    part::Part, //
};
use crate::{
    nvidia::{
        status::NvStatus,
        uvm::{
            self,
            ANY_NODE,
            CPU_UUID, //
        },
        wire::Field, //
    },
    policy::{
        Alloc,
        FileId,
        GpuId,
        Location,
        MakingRoom,
        ManagedOrder,
        RefusalCause,
        Ticket, //
    }, //
};

/// Largest struct of the calls that are made here.
const LARGEST: usize = uvm::migrate::SIZE;

/// Most pieces that one call of a program puts in order for others.
const MOST_ORDERS: usize = 256;

/// A call of the module's about a span of addresses.
struct OwnCall {
    cmd: u32,
    uuid: Option<[u8; 16]>,
    node: Option<(Field<i32>, i32)>,
}

const TO_CPU: OwnCall = OwnCall {
    cmd: uvm::MIGRATE,
    uuid: Some(CPU_UUID),
    node: Some((uvm::migrate::CPU_NUMA_NODE, ANY_NODE)),
};

/// A call that has nothing but a span.
const fn plain(cmd: u32) -> OwnCall {
    OwnCall {
        cmd,
        uuid: None,
        node: None,
    }
}

fn prefer(location: &Location) -> OwnCall {
    OwnCall {
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

/// Makes a call about an order's piece. `true`: the driver says that it has worked.
fn ask(host: &mut impl Host, order: &ManagedOrder, own: &OwnCall) -> bool {
    let Some(entry) = host.tables().uvm(own.cmd) else {
        return false;
    };
    let mut bytes = [0; LARGEST];
    let size = usize::try_from(entry.size).unwrap_or(usize::MAX);
    let Some(bytes) = bytes.get_mut(..size) else {
        return false;
    };
    // All of them begin with the address and the length, then the UUID if there is one.
    let mut filled = uvm::migrate::BASE.set(bytes, order.base).is_some()
        && uvm::migrate::LENGTH.set(bytes, order.length).is_some();
    if let Some(uuid) = own.uuid {
        let place = bytes.get_mut(uvm::migrate::UUID);
        filled &= place.map(|place| place.copy_from_slice(&uuid)).is_some();
    }
    if let Some((field, node)) = own.node {
        // Branches before 550 have no node, but the status there.
        if field != Field::at(entry.status.offset()) {
            filled &= field.set(bytes, node).is_some();
        }
    }
    let part = Part::argument(bytes);
    let mut parts = [part];
    let returned = filled.then(|| host.forward_on(order.file, own.cmd, &mut parts));
    let [part] = parts;
    returned == Some(Ok(0)) && entry.status.get(part.bytes) == Some(NvStatus::NV_OK.0)
}

/// Tells the driver what a program wants for memory that a GPU may hold.
fn grant(host: &mut impl Host, order: &ManagedOrder) {
    let preferred = order.wish.preferred;
    let mut number = 0;
    while let Some(uuid) = host.look(|accounting| accounting.managed_home(order.file, number)) {
        number += 1;
        let home = Location {
            uuid,
            node: ANY_NODE,
        };
        if preferred.is_none_or(|place| place.uuid != uuid) {
            // A GPU that the program has unregistered since has no mappings, and the driver says
            // no.
            ask(host, order, &prefer(&home));
        }
    }
    let done = preferred.is_some_and(|location| ask(host, order, &prefer(&location)));
    if !done {
        // The preferred place may be gone, such as a GPU that the program has unregistered.
        ask(host, order, &plain(uvm::UNSET_PREFERRED_LOCATION));
    }
    if order.wish.duplicated {
        ask(host, order, &plain(uvm::ENABLE_READ_DUPLICATION));
    }
}

/// Brings a piece to host memory, for good. `true`: the driver did so.
pub(super) fn put_out(host: &mut impl Host, order: ManagedOrder) -> bool {
    // The accounting need not know that it is on: a call that the driver refuses for its last run
    // has switched it on for the first ones, and a status can be forged.
    let done = ask(host, &order, &plain(uvm::DISABLE_READ_DUPLICATION))
        && ask(host, &order, &prefer(&HOST))
        && ask(host, &order, &TO_CPU);
    if !done {
        grant(host, &order);
    }
    host.accounting(|accounting| accounting.left(order, done));
    done
}

/// Tells the driver what becomes of memory that was just mapped, before the program runs on.
/// `is_late`: by now a GPU can have touched much of it. That is asked when the driver has been
/// told, because until then a GPU can, and a program can keep the call waiting. If the driver does
/// not take it, it is unmapped again.
pub fn settle(
    call: &mut impl Call,
    file: FileId,
    base: u64,
    length: u64,
    is_late: impl Fn() -> bool,
) {
    while let Some(tell) = call.accounting(|accounting| accounting.tell(file, base, length)) {
        let order = tell.order;
        let told = ask(call, &order, &prefer(&HOST));
        let bring = tell.bring || is_late();
        let done = told && (!bring || ask(call, &order, &TO_CPU));
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

/// Brings the driver in line with the accounting, after something was freed or a limit was changed.
/// What does not fit any more goes to host memory, and what fits again comes back.
pub fn rebalance(host: &mut impl Host) {
    if !host.look(|accounting| accounting.has_managed()) || !relieve(host) {
        return;
    }
    for _ in 0..MOST_ORDERS {
        let Some(order) = host.accounting(|accounting| accounting.give_back()) else {
            return;
        };
        grant(host, &order);
        host.accounting(|accounting| accounting.returned(order));
    }
}

/// Brings to host memory what does not fit any more. `true`: the driver did so.
fn relieve(host: &mut impl Host) -> bool {
    for _ in 0..MOST_ORDERS {
        let Some(order) = host.accounting(|accounting| accounting.make_good()) else {
            break;
        };
        if !put_out(host, order) {
            return false;
        }
    }
    true
}

/// As [`Accounting::begin_alloc`](crate::policy::Accounting::begin_alloc), but managed memory on
/// the object's GPU makes room for it first, as in the driver itself
/// (`uvm_pmm_gpu_pma_evict_pages()`, uvm_pmm_gpu.c).
pub(super) fn begin_alloc(
    host: &mut impl Host,
    request: &Alloc,
    gpu: Option<GpuId>,
) -> Result<Ticket, RefusalCause> {
    let bytes = request.most();
    let begun = host.accounting(|accounting| {
        // Most tenants have none, and then nothing has to be looked up.
        let gpu = gpu.filter(|_| accounting.has_managed());
        match gpu.map(|gpu| (gpu, accounting.begin_demand(gpu, bytes))) {
            Some((crowded, MakingRoom::Begun)) => Err(crowded),
            _ => Ok(accounting.begin_alloc(request)),
        }
    });
    let gpu = match begun {
        Ok(begun) => return begun,
        Err(crowded) => crowded,
    };
    while let Some(order) = host.accounting(|accounting| accounting.make_room(gpu, bytes)) {
        if !put_out(host, order) {
            break;
        }
    }
    host.accounting(|accounting| {
        let begun = accounting.begin_alloc(request);
        accounting.end_demand();
        begun
    })
}
