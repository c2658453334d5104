// SPDX-License-Identifier: GPL-2.0
//! `NV_ESC_RM_ALLOC`: a new RM object.
//!
//! The envelope comes in two sizes (NVOS21, NVOS64; compare `RmIoctl()` in
//! src/nvidia/arch/nvalloc/unix/src/escape.c). It says nothing reliable about the size of the
//! parameters behind it: CUDA passes 0. The class decides, here as in the driver.

use super::{
    call::{
        Call,
        Errno,
        Returned,
        Role,
        Route,
        Session,
        UserAddr, //
    },
    class_rules::{
        ClassRules,
        KeptField, //
    },
    clients::{
        self,
        NewClient, //
    },
    copied::Copied,
    events,
    notes,
    orders::begin_alloc,
    owned::{
        check_clients,
        check_made_on, //
    },
    part::{
        Part,
        PointerAt, //
    },
    preemption::make_preemptible,
    sent::DriverReply,
    stop::{
        get,
        set,
        Asked,
        Stop, //
    }, //
};
use crate::{
    nvidia::{
        capability::BASE,
        class::{
            ClassEntry,
            Kind,
            Presence, //
        },
        handle::{
            ClassId,
            ClientHandle,
            ObjectHandle, //
        },
        memory,
        nvos::{
            self,
            nvos21,
            nvos64,
            nvos64::{
                H_OBJECT_NEW,
                H_ROOT, //
            }, //
        },
        params,
        status::NvStatus,
        wire::Field, //
    },
    policy::{
        Alloc,
        AllocDone,
        CallKind,
        GpuId,
        ProcessId,
        Reason,
        Surroundings,
        Ticket, //
    }, //
};

/// The pointer to the class's parameters in both envelopes.
const PARAMS_AT: PointerAt = PointerAt {
    part: 0,
    offset: nvos64::P_ALLOC_PARMS.offset(),
};
/// The pointer to an `RS_ACCESS_MASK` in NVOS64.
const RIGHTS_AT: PointerAt = PointerAt {
    part: 0,
    offset: nvos64::P_RIGHTS_REQUESTED.offset(),
};

/// Runs `NV_ESC_RM_ALLOC` on its outer struct.
#[inline(never)] // As `frontend::run`.
pub(super) fn alloc(
    call: &mut impl Call,
    asked: &mut Asked<'_>,
    outer: &mut [u8],
) -> Result<i32, Stop> {
    let envelope = Envelope::read(outer)?;
    let (client, parent) = envelope.below;
    let around = call.look(|accounting| accounting.surroundings(client, parent));
    asked.name(CallKind::Class, envelope.class.0, around.gpu);
    let entry = listed(call, envelope.class, &around)?;
    envelope.check(asked.session, entry)?;
    let mut structs = Structs::none();
    structs.read(call, &envelope, entry)?;
    let params: &[u8] = &structs.params.bytes;
    check_clients(call, entry.clients, params)?;
    let rules = ClassRules::of(entry.kind);
    (rules.check)(envelope.class, around.capabilities, params)?;
    let mut request = envelope.request(asked.session, call.process(), entry.kind);
    (rules.complete)(&mut request, params)?;
    if request.kind != Kind::Root {
        check_made_on(asked.session, around.made_on)?;
    }
    let ticket = admit(call, &request, &around, params)?;
    let kept = (rules.keep)(&request, params);
    kept.take_out(&mut structs.params.bytes);
    let is_through_bar1 = kept.wants_bar1() && around.gpu.is_some_and(|gpu| call.has_doorbell(gpu));
    if is_through_bar1 {
        KeptField::Bar1Mapping(0).put_back(&mut structs.params.bytes);
    }
    let sent = match request.kind {
        Kind::Root => structs.send_for_client(call, asked.code, outer),
        _ => {
            // If the caller left the handle to the driver, the accounting has chosen it. (There is
            // room for it: it was read from here.)
            let _ = H_OBJECT_NEW.set(outer, ticket.handle().0);
            let route = route(&request, structs.rights.is_some());
            Ok(structs.send(call, asked.code, outer, route))
        }
    };
    let mut answer = match sent {
        Ok(returned) => DriverReply::new(returned, status_in(outer).get(outer)),
        Err(killed) => {
            call.accounting(|accounting| accounting.cancel_alloc(ticket));
            return Err(killed.into());
        }
    };
    let mut done = done(
        call,
        asked.session,
        (&request, &ticket),
        &answer,
        (outer, &structs.params.bytes),
    );
    if let (Kind::GraphicsObject, Some(made)) = (request.kind, &done) {
        if let Err(refused) = make_preemptible(call, &request, &ticket, made.object) {
            set(status_in(outer), outer, refused.0)?;
            (answer.status, done) = (Some(refused), None);
        }
    }
    call.accounting(|accounting| {
        let object = done.as_ref().map(|done| done.object);
        answer.end_alloc(accounting, ticket, done);
        if let (true, Some(object)) = (is_through_bar1, object) {
            // Another thread may have freed it already.
            let _ = accounting.set_through_bar1(request.client, object);
        }
    });
    if !answer.is_ok() {
        set(H_OBJECT_NEW, outer, envelope.handle.0)?;
    }
    kept.put_back(&mut structs.params.bytes);
    let written = structs.write_back(call);
    let returned = answer.returned?;
    if returned == 0 {
        written?;
    }
    Ok(returned)
}

/// Charges an object, if the tenant may have it.
fn admit(
    call: &mut impl Call,
    request: &Alloc,
    around: &Surroundings,
    params: &[u8],
) -> Result<Ticket, Stop> {
    let ticket = charge(call, request, around, params)?;
    let checked = match request.kind {
        Kind::Event => events::check(call, request, params),
        Kind::Channel => notes::check(call, request).and_then(|()| expect_channel(call, around)),
        _ => Ok(()),
    };
    if let Err(refused) = checked {
        call.accounting(|accounting| accounting.cancel_alloc(ticket));
        return Err(refused);
    }
    Ok(ticket)
}

/// Makes room in the scheduler for a channel that was charged.
fn expect_channel(call: &mut impl Call, around: &Surroundings) -> Result<(), Stop> {
    match around.gpu {
        Some(gpu) => Ok(call.expect_channel(gpu)?),
        None => Ok(()),
    }
}

/// The content of both envelopes.
struct Envelope {
    /// The client and the parent of the new object.
    below: (ClientHandle, ObjectHandle),
    /// The handle that the caller wrote for the new object.
    handle: ObjectHandle,
    class: ClassId,
    params: UserAddr,
    params_size: u32,
    /// Address of the caller's `RS_ACCESS_MASK`; null in NVOS21, which has none.
    rights: UserAddr,
    flags: u32,
}

impl Envelope {
    /// Both envelopes begin alike.
    fn read(outer: &[u8]) -> Result<Self, Errno> {
        let (params_size, rights, flags) = if outer.len() == nvos21::SIZE {
            (get(nvos21::PARAMS_SIZE, outer)?, 0, 0)
        } else {
            (
                get(nvos64::PARAMS_SIZE, outer)?,
                get(nvos64::P_RIGHTS_REQUESTED, outer)?,
                get(nvos64::FLAGS, outer)?,
            )
        };
        Ok(Self {
            below: (
                ClientHandle(get(nvos64::H_ROOT, outer)?),
                ObjectHandle(get(nvos64::H_OBJECT_PARENT, outer)?),
            ),
            handle: ObjectHandle(get(H_OBJECT_NEW, outer)?),
            class: ClassId(get(nvos64::H_CLASS, outer)?),
            params: UserAddr(get(nvos64::P_ALLOC_PARMS, outer)?),
            params_size,
            rights: UserAddr(rights),
            flags,
        })
    }

    /// Refuses an envelope that does not fit its class, or its file.
    fn check(&self, session: &Session, entry: &ClassEntry) -> Result<(), Stop> {
        if matches!(session.role, Role::Gpu(_)) && entry.kind != Kind::Event {
            // NV_CTL_DEVICE_ONLY in `RmIoctl()`, escape.c.
            return Err(Errno::EINVAL.into());
        }
        let fits = if self.params.is_null() {
            entry.params == 0 || entry.presence == Presence::Optional
        } else {
            entry.params != 0 && (self.params_size == 0 || self.params_size == entry.params)
        };
        if !fits || self.flags & nvos::ALLOC_FLAG_FINN_SERIALIZED != 0 {
            // Compare rmapiParamsAcquire() in src/nvidia/src/kernel/rmapi/param_copy.c.
            return Err(Stop::status(NvStatus::NV_ERR_INVALID_ARGUMENT));
        }
        Ok(())
    }

    /// A request for the object, as far as the envelope says what it is.
    fn request(&self, session: &Session, process: ProcessId, kind: Kind) -> Alloc {
        // If the caller chooses a new client's handle, it stands in the place of the client
        // (`_rmAlloc()` in alloc_free.c, `serverAllocClient()` in rs_server.c).
        let handle = match kind {
            Kind::Root => self.below.0.root(),
            _ => self.handle,
        };
        let of = (self.class, kind);
        Alloc::of(session.file, process, self.below, handle, of)
    }
}

/// The class's entry, if the tenant may make one there. (A client is below nothing; a device is
/// below a client, which has no GPU.)
fn listed(
    call: &impl Call,
    class: ClassId,
    around: &Surroundings,
) -> Result<&'static ClassEntry, Stop> {
    let refused = |reason| Stop::refused(NvStatus::NV_ERR_INVALID_CLASS, reason);
    let entry = call.tables().class(class);
    let entry = entry.ok_or(refused(Reason::Unlisted))?;
    let wanted = entry.capabilities;
    if wanted == BASE || around.capabilities.meets(wanted) {
        Ok(entry)
    } else {
        Err(refused(Reason::Capability(wanted)))
    }
}

/// Reserves what the object will take.
fn charge(
    call: &mut impl Call,
    request: &Alloc,
    around: &Surroundings,
    params: &[u8],
) -> Result<Ticket, Stop> {
    let fabric = match request.kind {
        Kind::FabricMemory => params::fabric_memory(params),
        _ => None,
    };
    let ticket = match fabric {
        Some(memory) => call.accounting(|accounting| accounting.begin_fabric(request, memory)),
        None => begin_alloc(call, request, around.gpu),
    };
    Ok(ticket?)
}

/// The way on which an object is made.
///
/// The driver makes a device for a program that has a file of its GPU open (`osIsGpuAccessible()`
/// in `deviceConstruct_IMPL()`, device.c), or for the kernel. It asks for nothing else because of
/// who calls: a device has the rights that its client was given. By way of the kernel the task is
/// the program's own, whose process the driver compares with the client's (`NV_ASSERT` in
/// `NV_RM_RPC_ALLOC_SHARE_DEVICE`, rpc.h). The kernel's call has no place for rights that are asked
/// for, so a call that asks for some takes the worker of its GPU.
fn route(request: &Alloc, asks_for_rights: bool) -> Route {
    match request.device_instance {
        Some(instance) if asks_for_rights => Route::Worker(GpuId(instance)),
        Some(instance) => Route::Kernel(GpuId(instance)),
        None => Route::Caller,
    }
}

/// The field of the status in an envelope.
fn status_in(outer: &[u8]) -> Field<u32> {
    match outer.len() {
        nvos21::SIZE => nvos21::STATUS,
        _ => nvos64::STATUS,
    }
}

/// The object that a call has made, as far as its `answer` can be believed; `outer` and `params`
/// are what the driver left.
fn done(
    call: &mut impl Call,
    session: &Session,
    (request, ticket): (&Alloc, &Ticket),
    answer: &DriverReply,
    (outer, params): (&[u8], &[u8]),
) -> Option<AllocDone> {
    let (client, object) = (request.client, ticket.handle());
    let is_made = answer.has_made_on(call, session, request.kind, (client, object))
        && notes::is_there(call, request, object);
    is_made.then(|| AllocDone {
        object: ObjectHandle(H_OBJECT_NEW.get(outer).unwrap_or(0)),
        bytes: match request.kind {
            Kind::VideoMemory | Kind::SystemMemory => memory::SIZE.get(params).unwrap_or(0),
            _ => 0,
        },
    })
}

/// The structs that an envelope points to.
struct Structs {
    /// The class's parameters; if there are none, they are empty, at the null pointer.
    params: Copied,
    rights: Option<[u8; nvos::ACCESS_MASK_SIZE]>,
}

impl Structs {
    const fn none() -> Self {
        Self {
            params: Copied::none(),
            rights: None,
        }
    }

    /// Copies the structs from the program's memory.
    fn read(
        &mut self,
        call: &mut impl Call,
        envelope: &Envelope,
        entry: &ClassEntry,
    ) -> Result<(), Errno> {
        if !envelope.params.is_null() {
            let len = usize::try_from(entry.params).map_err(|_| Errno::EINVAL)?;
            self.params.take(call, envelope.params, len)?;
        }
        if !envelope.rights.is_null() {
            let mut rights = [0; nvos::ACCESS_MASK_SIZE];
            call.read(envelope.rights, &mut rights)?;
            self.rights = Some(rights);
        }
        Ok(())
    }

    /// Copies the parameters back.
    fn write_back(&self, call: &mut impl Call) -> Result<(), Errno> {
        if self.params.at.is_null() {
            return Ok(());
        }
        self.params.write_back(call)
    }

    /// Hands the envelope and its structs to the driver.
    fn send(
        &mut self,
        call: &mut impl Call,
        code: u32,
        outer: &mut [u8],
        route: Route,
    ) -> Returned {
        let outer = Part::argument(outer);
        let has_params = !self.params.at.is_null();
        let params = Part::pointed(&mut self.params.bytes, PARAMS_AT);
        let rights = self.rights.as_mut();
        match rights.map(|rights| Part::pointed(rights, RIGHTS_AT)) {
            None if has_params => call.forward(code, &mut [outer, params], route),
            None => call.forward(code, &mut [outer], route),
            Some(rights) if has_params => call.forward(code, &mut [outer, params, rights], route),
            Some(rights) => call.forward(code, &mut [outer, rights], route),
        }
    }

    /// As [`Structs::send`], for a new client, whose handle the module chooses and puts where the
    /// driver's answer would have it. A program that chooses itself is refused: no program of
    /// NVIDIA's does. It fails if the caller is killed while it waits for others of its tenant.
    #[inline(never)] // Its structs would stand in the frame of every allocation.
    fn send_for_client(
        &mut self,
        call: &mut impl Call,
        code: u32,
        outer: &mut [u8],
    ) -> Result<Returned, Errno> {
        let status = status_in(outer);
        let refusal = NvStatus::NV_ERR_INSUFFICIENT_RESOURCES;
        let asked = H_ROOT.get(outer).unwrap_or(0);
        let (returned, made) = clients::make(call, |call, chosen| {
            if let Some(client) = chosen {
                if asked != 0 {
                    set(status, outer, refusal.0)?;
                    return Ok(0);
                }
                set(H_ROOT, outer, client.0)?;
            }
            let returned = self.send(call, code, outer, Route::Caller);
            set(H_ROOT, outer, asked)?;
            returned
        })?;
        match made {
            NewClient::AsTold => {}
            // Another thread has written that there is one.
            NewClient::None if status.get(outer) == Some(NvStatus::NV_OK.0) => {
                set(status, outer, refusal.0)?;
            }
            NewClient::None => {}
            NewClient::As(client) => {
                set(status, outer, NvStatus::NV_OK.0)?;
                set(H_OBJECT_NEW, outer, client.0)?;
                // A client's parameters are its handle, if it has any.
                let _ = Field::<u32>::at(0).set(&mut self.params.bytes, client.0);
            }
        }
        Ok(returned)
    }
}
