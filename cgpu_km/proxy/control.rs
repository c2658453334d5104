// SPDX-License-Identifier: GPL-2.0
//! `NV_ESC_RM_CONTROL`: a command to an RM object.
//!
//! Most controls pass as they are. If there are pointers inside their parameters, what is pointed
//! to is copied as well, so that the driver never reads the program's memory for a decision of
//! ours. The others are answered, checked or rewritten as their row in the tables says: [`Care`].
//!
//! To add a control: see CONTRIBUTING.md. A new variant of [`Care`] does not compile before
//! [`control`], [`check_params`] and [`Report::of`] say what becomes of it.

use super::{
    answer::answer,
    call::{
        Call,
        Errno,
        Returned,
        Route,
        UserAddr, //
    },
    copied::{
        Bytes,
        Copied, //
    },
    exports,
    owned::{
        allowed,
        check_clients,
        check_made_on,
        check_policy, //
    },
    part::{
        Hole,
        Part,
        PointerAt,
        CONTROL_PARAMS, //
    },
    reports::Report,
    sent::plain,
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
        control::{
            Answered,
            Binding,
            Care,
            ControlEntry,
            Direction,
            Pointer,
            ProfileStep,
            LARGEST_PARAMS, //
        },
        handle::{
            ClientHandle,
            ControlCmd,
            ObjectHandle, //
        },
        nvos::nvos54,
        params::{
            debug_read,
            debug_write,
            group_schedule,
            kmb,
            pma_stream,
            poll,
            register_space,
            share_policy, //
        },
        status::NvStatus,
        wire::Field, //
    },
    policy::{
        CallKind,
        FileId,
        GpuId,
        Reason,
        RmMapTicket,
        StreamPart, //
    },
    store::List, //
};

/// Most pointers in the parameters of one control that we allow.
const MOST_POINTERS: usize = 4;
/// Bytes in which a profiler says how many bytes of records there are
/// (`NVB0CC_PMA_BYTES_AVAILABLE_SIZE`, ctrlb0ccprofiler.h).
const RECORD_COUNT: u64 = 4096;

/// Runs `NV_ESC_RM_CONTROL` on its outer struct.
pub(super) fn control(
    call: &mut impl Call,
    asked: &mut Asked<'_>,
    outer: &mut [u8],
) -> Result<i32, Stop> {
    let command = Command::read(call, outer)?;
    asked.name(CallKind::Control, command.cmd.0, command.gpu);
    let entry = command.admit(call, asked.gpu())?;
    if entry.care == Care::Firmware {
        asked.note(call, Reason::PassedUnseen);
    }
    let mut params = Copied::none();
    if !command.params.is_null() {
        let len = usize::try_from(command.size).map_err(|_| Errno::EINVAL)?;
        params.take(call, command.params, len)?;
    }
    // As the driver refuses it. It looks for the client first, without a lock, and a client goes
    // with the close of its own file, which has no call in flight.
    check_made_on(asked.session, command.file)?;
    let structs = (outer, &mut *params.bytes);
    let returned = match entry.care {
        Care::Answer(answered) => answer_in_place(call, &command, answered, structs)?,
        Care::Export(exported) => exports::control(call, asked, exported, command.client, structs)?,
        Care::OneGpu => pass_debug_access(call, asked, &command, entry, structs)?,
        Care::AddressSpace => pass_register_space(call, asked, &command, entry, structs)?,
        Care::Profile(step) => pass_profile(call, asked, &command, entry, step, structs)?,
        Care::Bound(binding) => pass_binding(call, asked, &command, entry, binding, structs)?,
        Care::Plain
        | Care::Gpus(_)
        | Care::Processes(_)
        | Care::Memory(_)
        | Care::Features
        | Care::Share
        | Care::Schedule
        | Care::Statistics
        | Care::Poll
        | Care::Firmware
        | Care::Preemption => pass(call, asked, &command, entry, structs)?,
    };
    if !command.params.is_null() {
        let written = params.write_back(call);
        if returned == 0 {
            written?;
        }
    }
    Ok(returned)
}

/// The content of NVOS54, and the accounting's facts about the object that it names.
struct Command {
    client: ClientHandle,
    object: ObjectHandle,
    cmd: ControlCmd,
    size: u32,
    params: UserAddr,
    flags: u32,
    /// The file that the client was made on; `None` if it is not the tenant's.
    file: Option<FileId>,
    /// The GPU of the object.
    gpu: Option<GpuId>,
}

impl Command {
    fn read(call: &mut impl Call, outer: &[u8]) -> Result<Self, Errno> {
        use nvos54::*;
        let client = ClientHandle(get(H_CLIENT, outer)?);
        let object = ObjectHandle(get(H_OBJECT, outer)?);
        let around = call.look(|accounting| accounting.surroundings(client, object));
        Ok(Self {
            client,
            object,
            cmd: ControlCmd(get(CMD, outer)?),
            size: get(PARAMS_SIZE, outer)?,
            params: UserAddr(get(PARAMS, outer)?),
            flags: get(FLAGS, outer)?,
            file: around.made_on,
            gpu: around.gpu,
        })
    }

    /// The control's entry, if the tenant may make it on this object, with parameters of this size.
    /// `gpu` has the capabilities that count.
    fn admit(
        &self,
        call: &mut impl Call,
        gpu: Option<GpuId>,
    ) -> Result<&'static ControlEntry, Stop> {
        if self.file.is_none() {
            let status = NvStatus::NV_ERR_INVALID_CLIENT;
            return Err(Stop::refused(status, Reason::Foreign));
        }
        if self.flags != 0 {
            // Calls from interrupts, around the driver's locks, or with parameters in another
            // encoding, in which the tables' sizes and pointers do not hold. No program sets any.
            let status = NvStatus::NV_ERR_INVALID_ARGUMENT;
            return Err(Stop::refused(status, Reason::Parameters));
        }
        if self.cmd.is_gss_privileged() {
            let status = NvStatus::NV_ERR_INSUFFICIENT_PERMISSIONS;
            return Err(Stop::refused(status, Reason::Forbidden));
        }
        let unsupported = |reason| Stop::refused(NvStatus::NV_ERR_NOT_SUPPORTED, reason);
        let entry = call.tables().control(self.cmd);
        let entry = entry.ok_or(unsupported(Reason::Unlisted))?;
        allowed(call, gpu, entry.capabilities).map_err(unsupported)?;
        // Compare `_rmapiRmControl()` in src/nvidia/src/kernel/rmapi/control.c for the order and
        // the statuses.
        let is_empty = self.size == 0;
        if !entry.takes(self.size)
            || self.size > LARGEST_PARAMS
            || is_empty != self.params.is_null()
        {
            return Err(Stop::status(NvStatus::NV_ERR_INVALID_ARGUMENT));
        }
        match entry.care {
            Care::Firmware => self.check_firmware(call)?,
            // The GPU must be known before the driver is asked. While another thread's call makes
            // the object, or frees it, the driver may have an object that the accounting does not
            // know, and would report on the whole GPU.
            Care::Memory(_) if self.gpu.is_none() => {
                return Err(Stop::status(NvStatus::NV_ERR_OBJECT_NOT_FOUND));
            }
            Care::Memory(_)
            | Care::Plain
            | Care::Gpus(_)
            | Care::Processes(_)
            | Care::Features
            | Care::Share
            | Care::Export(_)
            | Care::Schedule
            | Care::OneGpu
            | Care::AddressSpace
            | Care::Bound(_)
            | Care::Profile(_)
            | Care::Statistics
            | Care::Poll
            | Care::Preemption
            | Care::Answer(_) => {}
        }
        Ok(entry)
    }

    /// Refuses a control to the GPU's firmware on anything but a device or subdevice of the
    /// tenant's.
    ///
    /// The driver hands it on unseen: it checks neither its client nor the class of its object
    /// (`RmGssLegacyRpcCmd()` in rmapi_gss_legacy_control.c).
    fn check_firmware(&self, call: &mut impl Call) -> Result<(), Stop> {
        let (kind, gpu) = call.look(|accounting| {
            let kind = accounting.kind_of(self.client, self.object);
            (kind, accounting.gpu_of(self.client, self.object))
        });
        match (kind, gpu) {
            (Some(Kind::Device | Kind::Subdevice), Some(_)) => Ok(()),
            _ => Err(Stop::refused(
                NvStatus::NV_ERR_OBJECT_NOT_FOUND,
                Reason::Parameters,
            )),
        }
    }
}

// Both name it first.
const _: () = assert!(debug_read::H_MEMORY.offset() == debug_write::H_MEMORY.offset());

/// Answers a control that never reaches the driver.
fn answer_in_place(
    call: &mut impl Call,
    command: &Command,
    answered: Answered,
    (outer, params): (&mut [u8], &mut [u8]),
) -> Result<i32, Stop> {
    answer(call, (command.client, command.object), answered, params)?;
    set(nvos54::STATUS, outer, NvStatus::NV_OK.0)?;
    Ok(0)
}

/// The same as [`pass`], while the memory that the parameters name is of the object's GPU.
#[inline(never)] // Its frame would stand in that of every control.
fn pass_debug_access(
    call: &mut impl Call,
    asked: &Asked<'_>,
    command: &Command,
    entry: &ControlEntry,
    structs: (&mut [u8], &mut [u8]),
) -> Result<i32, Stop> {
    let (client, object) = (command.client, command.object);
    let memory = ObjectHandle(get(debug_read::H_MEMORY, structs.1)?);
    let ticket =
        call.accounting(|accounting| accounting.begin_debug_access(client, object, memory))?;
    pass_while_named(call, asked, command, entry, ticket, structs)
}

/// The same as [`pass`], while the object that the parameters name is an address space of the
/// object's GPU.
#[inline(never)] // As `pass_debug_access`.
fn pass_register_space(
    call: &mut impl Call,
    asked: &Asked<'_>,
    command: &Command,
    entry: &ControlEntry,
    structs: (&mut [u8], &mut [u8]),
) -> Result<i32, Stop> {
    let (client, object) = (command.client, command.object);
    let space = get(register_space::H_VA_SPACE, structs.1)?;
    let space = (space != 0).then_some(ObjectHandle(space));
    let ticket =
        call.accounting(|accounting| accounting.begin_register_space(client, object, space))?;
    pass_while_named(call, asked, command, entry, ticket, structs)
}

/// The same as [`pass`], while what the ticket names stays what it is.
fn pass_while_named(
    call: &mut impl Call,
    asked: &Asked<'_>,
    command: &Command,
    entry: &ControlEntry,
    ticket: RmMapTicket,
    structs: (&mut [u8], &mut [u8]),
) -> Result<i32, Stop> {
    let returned = pass(call, asked, command, entry, structs);
    call.accounting(|accounting| accounting.end_named_map(ticket));
    returned
}

/// Whether the driver has done what a control asked of it.
fn has_done(returned: &Result<i32, Stop>, outer: &[u8]) -> bool {
    matches!(returned, Ok(0)) && nvos54::STATUS.get(outer) == Some(NvStatus::NV_OK.0)
}

/// The same as [`pass`], for the binding of a channel to a surface of semaphores. Its answer may
/// lower a count, so no program sees it before it is believed ([`Care::is_unseen`]).
#[inline(never)] // As `pass_debug_access`.
fn pass_binding(
    call: &mut impl Call,
    asked: &Asked<'_>,
    command: &Command,
    entry: &ControlEntry,
    binding: Binding,
    (outer, params): (&mut [u8], &mut [u8]),
) -> Result<i32, Stop> {
    let (client, surface) = (command.client, command.object);
    let ticket = call.accounting(|accounting| accounting.begin_bind(client, surface, binding))?;
    let returned = pass(call, asked, command, entry, (outer, params));
    let is_ok = has_done(&returned, outer);
    let is_bound = is_ok == (binding == Binding::Made);
    call.accounting(|accounting| accounting.end_bind(ticket, is_bound));
    returned
}

/// The same as [`pass`], for a step of a profiler. Whether it has its stream is believed of an
/// answer that no program sees ([`Care::is_unseen`]).
#[inline(never)] // As `pass_debug_access`.
fn pass_profile(
    call: &mut impl Call,
    asked: &Asked<'_>,
    command: &Command,
    entry: &ControlEntry,
    step: ProfileStep,
    (outer, params): (&mut [u8], &mut [u8]),
) -> Result<i32, Stop> {
    let (client, profiler) = (command.client, command.object);
    let ticket = match step {
        ProfileStep::Stream => {
            let parts = parts_of_stream(params)?;
            call.accounting(|accounting| accounting.begin_stream(client, profiler, parts))?
        }
        ProfileStep::Bind => {
            call.accounting(|accounting| accounting.begin_bind_streams(client, profiler))?
        }
    };
    let returned = pass(call, asked, command, entry, (outer, params));
    let is_ok = has_done(&returned, outer);
    call.accounting(|accounting| accounting.end_profiler_call(ticket, is_ok));
    returned
}

/// The room for a stream's records, and that for how many bytes of them there are.
fn parts_of_stream(params: &[u8]) -> Result<[StreamPart; 2], Stop> {
    Ok([
        StreamPart {
            memory: ObjectHandle(get(pma_stream::H_MEM_PMA_BUFFER, params)?),
            offset: get(pma_stream::PMA_BUFFER_OFFSET, params)?,
            size: get(pma_stream::PMA_BUFFER_SIZE, params)?,
        },
        StreamPart {
            memory: ObjectHandle(get(pma_stream::H_MEM_PMA_BYTES_AVAILABLE, params)?),
            offset: get(pma_stream::PMA_BYTES_AVAILABLE_OFFSET, params)?,
            size: RECORD_COUNT,
        },
    ])
}

/// Has the driver run a control, and rewrites its report.
#[inline(never)] // Five call it.
fn pass(
    call: &mut impl Call,
    asked: &Asked<'_>,
    command: &Command,
    entry: &ControlEntry,
    (outer, params): (&mut [u8], &mut [u8]),
) -> Result<i32, Stop> {
    check_params(call, command, entry, params)?;
    let mut lists = read_lists(call, entry.pointers, params)?;
    let of = (command.client, command.object);
    let report = Report::of(call, entry.care, of, command.gpu, params, &lists)?;
    let route = if entry.care.is_unseen() && lists.iter().all(Option::is_some) {
        Route::Unseen
    } else {
        Route::Caller
    };
    let nested = (entry.pointers, &mut *lists);
    let returned = forward(call, asked.code, (outer, params), nested, route)?;
    let is_ok = returned == 0 && get(nvos54::STATUS, outer)? == NvStatus::NV_OK.0;
    report.rewrite(call, is_ok, params, &mut lists)?;
    for (list, pointer) in lists.iter().zip(entry.pointers) {
        // After an error the driver copies none of them back.
        if let (Some(list), true) = (list, is_ok && pointer.direction != Direction::In) {
            list.write_back(call)?;
        }
    }
    Ok(returned)
}

/// Refuses what the parameters of some controls may not say.
///
/// Those that name a client name one of the tenant's own: the driver looks some of them up for
/// themselves.
fn check_params(
    call: &mut impl Call,
    command: &Command,
    entry: &ControlEntry,
    params: &[u8],
) -> Result<(), Stop> {
    check_clients(call, entry.clients, params)?;
    match entry.care {
        // `cliresCtrlCmdClientSetInheritedSharePolicy_IMPL()` in client_resource.c.
        Care::Share => check_policy(get(share_policy::TYPE, params)?),
        // Channels are put on the runlist as a whole or not at all. A runlist that is submitted
        // later, or channels in it that are not enabled, are for schedulers.
        Care::Schedule => {
            // Before 580 there is no room for the second.
            let mut skips = [group_schedule::B_SKIP_SUBMIT, group_schedule::B_SKIP_ENABLE].iter();
            if skips.any(|skip| skip.get(params).is_some_and(|skip| skip != 0)) {
                let status = NvStatus::NV_ERR_INVALID_ARGUMENT;
                return Err(Stop::refused(status, Reason::Parameters));
            }
            if get(group_schedule::B_ENABLE, params)? == 0 {
                return Ok(());
            }
            let (client, object) = (command.client, command.object);
            Ok(call.accounting(|accounting| accounting.begin_schedule(client, object))?)
        }
        // The driver duplicates it for itself, in the program's client, and writes to it without a
        // look at its size (`kchannelCtrlCmdGetKmb_KERNEL()` in kernel_channel.c).
        Care::Statistics => match kmb::H_MEMORY.get(params) {
            None | Some(0) => Ok(()),
            Some(_) => Err(Stop::refused(
                NvStatus::NV_ERR_INVALID_ARGUMENT,
                Reason::Parameters,
            )),
        },
        Care::Poll => {
            if get(poll::POLLED_DATA_MASK, params)? == 0 {
                return Ok(());
            }
            let (client, object) = (command.client, command.object);
            let now = call.uptime_s();
            Ok(call.accounting(|accounting| accounting.begin_poll(client, object, now))?)
        }
        Care::Plain
        | Care::Gpus(_)
        | Care::Processes(_)
        | Care::Memory(_)
        | Care::Features
        | Care::Export(_)
        | Care::OneGpu
        | Care::AddressSpace
        | Care::Bound(_)
        | Care::Profile(_)
        | Care::Firmware
        | Care::Preemption
        | Care::Answer(_) => Ok(()),
    }
}

/// Copies what the pointers inside `params` point to; `None` for a null pointer or an empty list.
fn read_lists(
    call: &mut impl Call,
    pointers: &[Pointer],
    params: &[u8],
) -> Result<List<Option<Copied>>, Errno> {
    let mut lists = List::new();
    lists.reserve(pointers.len())?;
    for pointer in pointers {
        let at = UserAddr(get(Field::<u64>::at(pointer.at), params)?);
        // `None` is more than the driver takes: compare embeddedParamCopyIn() in
        // embedded_param_copy.c.
        let len = pointer.bytes(params).ok_or(Errno::EINVAL)?;
        lists.push(if at.is_null() || len == 0 {
            None
        } else if pointer.direction == Direction::Out {
            Some(Copied {
                at,
                bytes: Bytes::zeros(len)?,
                hole: Hole::default(),
            })
        } else {
            Some(Copied::read(call, at, len)?)
        })?;
    }
    Ok(lists)
}

/// Forwards the outer struct, the parameters and the lists behind the pointers in them.
fn forward(
    call: &mut impl Call,
    code: u32,
    (outer, params): (&mut [u8], &mut [u8]),
    (pointers, lists): (&[Pointer], &mut [Option<Copied>]),
    route: Route,
) -> Returned {
    if pointers.len() > MOST_POINTERS {
        return Err(Errno::EINVAL);
    }
    if params.is_empty() {
        return plain(call, code, outer);
    }
    let outer = Part::argument(outer);
    let params = Part::pointed(params, CONTROL_PARAMS);
    if pointers.is_empty() {
        return call.forward(code, &mut [outer, params], route);
    }
    let mut parts = List::new();
    parts.reserve(2 + lists.len())?;
    parts.push(outer)?;
    parts.push(params)?;
    for (list, pointer) in lists.iter_mut().zip(pointers) {
        if let Some(list) = list {
            let place = PointerAt {
                part: 1,
                offset: pointer.at,
            };
            parts.push(Part::pointed(&mut list.bytes, place))?;
        }
    }
    call.forward(code, &mut parts, route)
}
