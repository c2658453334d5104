// SPDX-License-Identifier: GPL-2.0
//! `NV_ESC_RM_ALLOC`: a new RM object.
//!
//! The envelope comes in two sizes (NVOS21, NVOS64; compare `RmIoctl()` in
//! src/nvidia/arch/nvalloc/unix/src/escape.c), and says nothing reliable about the size of the
//! parameters behind it: CUDA passes 0. The class decides, here as in the driver.

use super::clients;
use super::clients::Made;
use super::frontend::get;
use super::frontend::is_elsewhere;
use super::frontend::is_made;
use super::frontend::set;
use super::handles;
use super::managed;
use super::Call;
use super::Copied;
use super::Errno;
use super::Part;
use super::PointerAt;
use super::Role;
use super::Route;
use super::Session;
use super::UserAddr;
use crate::nvidia::capability::Capabilities;
use crate::nvidia::capability::BASE;
use crate::nvidia::capability::GRAPHICS;
use crate::nvidia::class::ClassEntry;
use crate::nvidia::class::Kind;
use crate::nvidia::class::NV01_EVENT;
use crate::nvidia::class::NV01_EVENT_OS_EVENT;
use crate::nvidia::class::NV50_MEMORY_VIRTUAL;
use crate::nvidia::handle::ClassId;
use crate::nvidia::handle::ClientHandle;
use crate::nvidia::handle::ObjectHandle;
use crate::nvidia::memory;
use crate::nvidia::memory::PageSize;
use crate::nvidia::nvos;
use crate::nvidia::params;
use crate::nvidia::status::NvStatus;
use crate::nvidia::wire::Field;
use crate::policy::tables_of;
use crate::policy::Accounting;
use crate::policy::Alloc;
use crate::policy::AllocDone;
use crate::policy::Audited;
use crate::policy::CallKind;
use crate::policy::FileId;
use crate::policy::GpuId;
use crate::policy::Reason;

/// The places of what both envelopes hold.
struct Envelope {
    params_size: Field<u32>,
    rights: Option<Field<u64>>,
    flags: Option<Field<u32>>,
    status: Field<u32>,
}

impl Envelope {
    fn of(size: usize) -> Self {
        if size == nvos::nvos21::SIZE {
            Self {
                params_size: nvos::nvos21::PARAMS_SIZE,
                rights: None,
                flags: None,
                status: nvos::nvos21::STATUS,
            }
        } else {
            Self {
                params_size: nvos::nvos64::PARAMS_SIZE,
                rights: Some(nvos::nvos64::P_RIGHTS_REQUESTED),
                flags: Some(nvos::nvos64::FLAGS),
                status: nvos::nvos64::STATUS,
            }
        }
    }
}

/// Where the pointer to the class's parameters stands in both envelopes.
const PARAMS_AT: PointerAt = PointerAt {
    part: 0,
    offset: nvos::nvos64::P_ALLOC_PARMS.offset(),
};
/// Where NVOS64 points to an `RS_ACCESS_MASK`.
const RIGHTS_AT: PointerAt = PointerAt {
    part: 0,
    offset: nvos::nvos64::P_RIGHTS_REQUESTED.offset(),
};

/// Runs `NV_ESC_RM_ALLOC` on its outer struct.
pub(super) fn alloc<C: Call>(
    call: &mut C,
    session: &Session,
    code: u32,
    outer: &mut [u8],
) -> Result<i32, Errno> {
    // Both envelopes begin alike.
    use nvos::nvos64::*;
    let envelope = Envelope::of(outer.len());
    let class = ClassId(get(H_CLASS, outer)?);
    let below = (
        ClientHandle(get(H_ROOT, outer)?),
        ObjectHandle(get(H_OBJECT_PARENT, outer)?),
    );
    let around = call.accounting(|accounting| Surroundings::of(accounting, below));
    let note = |call: &mut C, reason| {
        let noted = Audited {
            kind: CallKind::Class,
            number: class.0,
            reason,
        };
        call.audit(&noted, around.gpu.or(session.gpu()));
    };
    let entry = match listed(call, class, &around) {
        Ok(entry) => entry,
        Err(reason) => {
            note(call, reason);
            return set(envelope.status, outer, NvStatus::NV_ERR_INVALID_CLASS.0).map(|()| 0);
        }
    };
    if matches!(session.role, Role::Gpu(_)) && entry.kind != Kind::Event {
        // NV_CTL_DEVICE_ONLY in `RmIoctl()`, escape.c.
        return Err(Errno::EINVAL);
    }

    let pointer = UserAddr(get(P_ALLOC_PARMS, outer)?);
    let announced = get(envelope.params_size, outer)?;
    let flags = envelope.flags.map(|field| get(field, outer)).transpose()?;
    let invalid = if pointer.is_null() {
        entry.params != 0 && !entry.optional
    } else {
        entry.params == 0 || (announced != 0 && announced != entry.params)
    } || flags.is_some_and(|flags| flags & nvos::ALLOC_FLAG_FINN_SERIALIZED != 0);
    if invalid {
        // Compare rmapiParamsAcquire() in src/nvidia/src/kernel/rmapi/param_copy.c.
        return set(envelope.status, outer, NvStatus::NV_ERR_INVALID_ARGUMENT.0).map(|()| 0);
    }
    let mut copied = Copied::none();
    let mut params = match pointer.is_null() {
        true => None,
        false => {
            let len = usize::try_from(entry.params).map_err(|_| Errno::EINVAL)?;
            copied.take(call, pointer, len)?;
            Some(&mut copied)
        }
    };
    let mut rights = match envelope.rights.map(|field| get(field, outer)).transpose()? {
        None | Some(0) => None,
        Some(at) => Some(Copied::read(call, UserAddr(at), nvos::ACCESS_MASK_SIZE)?),
    };

    let params_bytes: &[u8] = params.as_ref().map_or(&[], |p| &p.bytes);
    if !handles::are_own(call, entry.clients, params_bytes) {
        note(call, Reason::Foreign);
        return set(envelope.status, outer, handles::FOREIGN.0).map(|()| 0);
    }
    if let Err(status) = privileged(class, entry.kind, params_bytes) {
        note(call, Reason::Parameters);
        return set(envelope.status, outer, status.0).map(|()| 0);
    }
    if class == NV50_MEMORY_VIRTUAL {
        let flags = memory::FLAGS.get(params_bytes).ok_or(Errno::EINVAL)?;
        if !may_be_made(&around, flags) {
            note(call, Reason::Parameters);
            return set(envelope.status, outer, NvStatus::NV_ERR_NOT_SUPPORTED.0).map(|()| 0);
        }
    }
    let memory = match entry.kind {
        Kind::FabricMemory => params::fabric_memory(params_bytes),
        _ => None,
    };
    if entry.kind == Kind::FabricMemory && memory.is_none() {
        note(call, Reason::Parameters);
        return set(envelope.status, outer, NvStatus::NV_ERR_NOT_SUPPORTED.0).map(|()| 0);
    }
    let written = get(H_OBJECT_NEW, outer)?;
    // A new client's handle, if the caller chooses it, stands in the place of the client
    // (`_rmAlloc()` in alloc_free.c, `serverAllocClient()` in rs_server.c).
    let is_client = entry.kind == Kind::Root;
    let requested = if is_client {
        get(H_ROOT, outer)?
    } else {
        written
    };
    let request = Alloc {
        file: session.file,
        process: call.process(),
        client: below.0,
        parent: below.1,
        object: ObjectHandle(requested),
        class,
        kind: entry.kind,
        device_instance: device_instance(entry.kind, params_bytes),
        bytes: match entry.kind {
            Kind::VideoMemory => memory::taken_bytes(params_bytes).ok_or(Errno::EINVAL)?,
            _ => 0,
        },
        tables: match entry.kind {
            Kind::VirtualMemory if class == NV50_MEMORY_VIRTUAL => {
                let flags = memory::FLAGS.get(params_bytes).ok_or(Errno::EINVAL)?;
                tables(flags, memory::SIZE.get(params_bytes).ok_or(Errno::EINVAL)?)
            }
            Kind::VaSpace => params::address_space_tables(params_bytes),
            _ => 0,
        },
        page: match entry.kind {
            Kind::VideoMemory => memory::page_size_of(params_bytes),
            _ => PageSize::Small,
        },
        context: params::is_compute(entry.kind, params_bytes),
    };
    if !is_client && is_elsewhere(session, around.made_on) {
        return set(envelope.status, outer, NvStatus::NV_ERR_INVALID_CLIENT.0).map(|()| 0);
    }
    let begun = match memory {
        Some(memory) => call.accounting(|accounting| accounting.begin_fabric(&request, memory)),
        None => managed::begin_alloc(call, &request, around.gpu),
    };
    let ticket = match begun {
        Ok(ticket) => ticket,
        Err(refusal) => {
            if let Some(reason) = refusal.reason() {
                note(call, reason);
            }
            return set(envelope.status, outer, refusal.status().0).map(|()| 0);
        }
    };
    // Where the caller left the handle to the driver, the accounting has chosen it. (There is room for
    // it: it was read from here.)
    if !is_client {
        let _ = H_OBJECT_NEW.set(outer, ticket.handle().0);
    }
    let kept = params
        .as_ref()
        .map_or(Kept::Nothing, |params| Kept::of(entry.kind, &params.bytes));
    let through_bar1 = matches!(kept, Kept::Bar1Mapping(wanted) if wanted != 0)
        && around.gpu.is_some_and(|gpu| call.has_doorbell(gpu));
    if let (true, Some(params)) = (through_bar1, &mut params) {
        let _ = params::usermode::B_BAR1_MAPPING.set(&mut params.bytes, 0);
    }
    let route = match request.device_instance {
        Some(instance) => Route::Worker(GpuId(instance)),
        None => Route::Caller,
    };

    let mut forward = |call: &mut C, outer: &mut [u8]| {
        let outer = Part::argument(outer);
        let params = params
            .as_mut()
            .map(|p| Part::pointed(&mut p.bytes, PARAMS_AT));
        let rights = rights
            .as_mut()
            .map(|r| Part::pointed(&mut r.bytes, RIGHTS_AT));
        match (params, rights) {
            (None, None) => call.forward(code, &mut [outer], route),
            (Some(p), None) => call.forward(code, &mut [outer, p], route),
            (None, Some(r)) => call.forward(code, &mut [outer, r], route),
            (Some(p), Some(r)) => call.forward(code, &mut [outer, p, r], route),
        }
    };
    let (returned, client_made) = match is_client {
        false => (forward(call, outer), Made::AsTold),
        true => {
            let mut asked = [0; nvos::nvos64::SIZE];
            let asked = asked.get_mut(..outer.len()).ok_or(Errno::EINVAL)?;
            asked.copy_from_slice(outer);
            let made = clients::make(call, |call| {
                outer.copy_from_slice(asked);
                let returned = forward(call, outer);
                (returned, ObjectHandle(H_OBJECT_NEW.get(outer).unwrap_or(0)))
            });
            match made {
                Ok(made) => made,
                Err(killed) => {
                    call.accounting(|accounting| accounting.end_alloc(ticket, None));
                    return Err(killed);
                }
            }
        }
    };
    match client_made {
        Made::AsTold => {}
        // What another thread has written there.
        Made::None if envelope.status.get(outer) == Some(NvStatus::NV_OK.0) => {
            let refusal = NvStatus::NV_ERR_INSUFFICIENT_RESOURCES;
            set(envelope.status, outer, refusal.0)?;
        }
        Made::None => {}
        Made::As(client) => {
            set(H_OBJECT_NEW, outer, client.0)?;
            if let Some(params) = &mut params {
                // A root's parameters are its handle.
                let _ = Field::<u32>::at(0).set(&mut params.bytes, client.0);
            }
        }
    }

    let told = envelope.status.get(outer);
    let ok = returned == Ok(0) && told == Some(NvStatus::NV_OK.0);
    let (kind, client) = (entry.kind, request.client);
    let made = is_made(call, kind, client, ticket.handle(), returned, told);
    let done = made.then(|| AllocDone {
        object: ObjectHandle(H_OBJECT_NEW.get(outer).unwrap_or(0)),
        bytes: match (request.kind, &params) {
            (Kind::VideoMemory, Some(p)) => memory::SIZE.get(&p.bytes).unwrap_or(0),
            _ => 0,
        },
    });
    call.accounting(|accounting| {
        let object = done.as_ref().map(|done| done.object);
        accounting.end_alloc(ticket, done);
        if let (true, Some(object)) = (through_bar1, object) {
            // It may have been freed already, by another thread.
            let _ = accounting.set_through_bar1(client, object);
        }
    });
    if !ok {
        set(H_OBJECT_NEW, outer, written)?;
    }
    if let Some(params) = &mut params {
        kept.put_back(&mut params.bytes);
        params.write_back(call)?;
    }
    returned
}

/// A field of the parameters that the program finds as it left it, whatever the driver was given in its place or has
/// written there.
enum Kept {
    Nothing,
    /// Whether a doorbell page is asked for through BAR1.
    Bar1Mapping(u8),
    /// Where an event's descriptor number stands, the driver leaves the address of its event object in
    /// the kernel.
    EventData(u64),
}

impl Kept {
    /// Takes note of the field of a class's parameters.
    fn of(kind: Kind, bytes: &[u8]) -> Self {
        let kept = match kind {
            Kind::Event => params::nv0005::DATA.get(bytes).map(Self::EventData),
            Kind::UserMode => {
                let wanted = params::usermode::B_BAR1_MAPPING.get(bytes);
                wanted.map(Self::Bar1Mapping)
            }
            _ => None,
        };
        kept.unwrap_or(Self::Nothing)
    }

    fn put_back(&self, bytes: &mut [u8]) {
        // Parameters without the field have nothing to be put back.
        let _ = match *self {
            Self::Nothing => None,
            Self::Bar1Mapping(wanted) => params::usermode::B_BAR1_MAPPING.set(bytes, wanted),
            Self::EventData(data) => params::nv0005::DATA.set(bytes, data),
        };
    }
}

/// What a container's parameters may not say, beside clients.
///
/// An event of the general class is one of the class that its parameters name (`rmapiFixupAllocParams()` in
/// rmapi_specific.c): another than the one for programs would be a callback in the kernel.
///
/// The doorbell page of the privileged is refused here as the driver refuses it (`usrmodeConstruct_IMPL()`
/// in usermode_api.c), whatever it takes the caller for.
///
/// # The doorbell page, and BAR1
///
/// CUDA asks for it through BAR1 since Hopper, and has to have it there: through BAR0, work of a program was not taken up
/// until its next ring whenever another program started (seen on an H200; the ring seems to overtake what is
/// written through BAR1 before it). But an object that is made so could be mapped into a GPU's address space
/// (`usrmodeGetMemInterMapParams_IMPL()` there). So the program's object is made through BAR0, and what it maps of it is the
/// page through BAR1 of an object that is no program's ([`Call::show_doorbell`]), by which rings arrive as well (docs/measurements/2026-11-22-doorbell.md).
/// Where there is none (before Hopper) the object is made as asked for. To map
/// either for the GPU is refused where that is asked for.
fn privileged(class: ClassId, kind: Kind, bytes: &[u8]) -> Result<(), NvStatus> {
    use params::usermode::*;
    if class == NV01_EVENT && params::nv0005::H_CLASS.get(bytes) != Some(NV01_EVENT_OS_EVENT.0) {
        return Err(NvStatus::NV_ERR_INVALID_CLASS);
    }
    if kind != Kind::UserMode || matches!(B_PRIV.get(bytes), None | Some(0)) {
        return Ok(());
    }
    Err(match B_BAR1_MAPPING.get(bytes) {
        None | Some(0) => NvStatus::NV_ERR_INVALID_PARAMETER,
        Some(_) => NvStatus::NV_ERR_INSUFFICIENT_PERMISSIONS,
    })
}

/// What an object is to be made below.
pub(super) struct Surroundings {
    /// The GPU that it is of.
    pub(super) gpu: Option<GpuId>,
    /// What the tenant's share of that is for, or all of its shares.
    capabilities: Capabilities,
    /// The file that the client was made on.
    pub(super) made_on: Option<FileId>,
}

impl Surroundings {
    pub(super) fn of(
        accounting: &Accounting,
        (client, parent): (ClientHandle, ObjectHandle),
    ) -> Self {
        let gpu = accounting.gpu_of(client, parent);
        Self {
            gpu,
            capabilities: accounting.capabilities(gpu),
            made_on: accounting.client_file(client),
        }
    }
}

/// The class's entry, if the tenant may make one there. (A client is below nothing; a device below a client,
/// which is of no GPU.)
fn listed(
    call: &impl Call,
    class: ClassId,
    around: &Surroundings,
) -> Result<&'static ClassEntry, Reason> {
    let entry = call.tables().class(class).ok_or(Reason::Unlisted)?;
    let wanted = entry.capabilities;
    match wanted == BASE || around.capabilities.meets(wanted) {
        true => Ok(entry),
        false => Err(Reason::Capability(wanted)),
    }
}

/// Whether a range of addresses may be made: where it reads as zeros, the driver keeps its page tables after its
/// end until something else happens in its address space (seen on an H200), in nobody's accounting. Graphics needs such
/// ranges, nothing else does.
pub(super) fn may_be_made(around: &Surroundings, flags: u32) -> bool {
    flags & memory::FLAGS_SPARSE == 0 || around.capabilities.meets(GRAPHICS)
}

/// What the driver takes for a range of addresses: it makes its page tables at once, unless it is asked not to.
pub(super) fn tables(flags: u32, length: u64) -> u64 {
    match memory::makes_tables(flags) {
        true => tables_of(length),
        false => 0,
    }
}

/// The device instance that an allocation of `NV01_DEVICE_0` names: the first GPU without
/// parameters, as `deviceConstruct_IMPL()` (src/nvidia/src/kernel/gpu/device.c) has it.
fn device_instance(kind: Kind, params: &[u8]) -> Option<u32> {
    (kind == Kind::Device).then(|| params::DEVICE_ID.get(params).unwrap_or(0))
}
