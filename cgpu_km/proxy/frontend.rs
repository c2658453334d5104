// SPDX-License-Identifier: GPL-2.0
//! The escapes: `ioctl` on `/dev/nvidiactl` and `/dev/nvidiaN`.
//!
//! `nvidia_ioctl()` (kernel-open/nvidia/nv.c) looks at the number and the size in a request code and
//! at nothing else, and so does this. A parameter struct that may be too large for the size field
//! travels in an envelope, `NV_ESC_IOCTL_XFER_CMD`, whose inner number, size and address stand in
//! the program's memory. The envelope is opened here, once; the driver sees the inner request alone.

use super::alloc;
use super::control;
use super::exports;
use super::handles;
use super::handles::Named;
use super::heap;
use super::lists;
use super::managed;
use super::Call;
use super::Copied;
use super::Errno;
use super::Part;
use super::Role;
use super::Route;
use super::Session;
use super::UserAddr;
use crate::nvidia::capability::Capabilities;
use crate::nvidia::capability::BASE;
use crate::nvidia::class::Kind;
use crate::nvidia::escape::Devices;
use crate::nvidia::escape::Escape;
use crate::nvidia::escape::Verdict;
use crate::nvidia::handle::ClientHandle;
use crate::nvidia::handle::ObjectHandle;
use crate::nvidia::nvos;
use crate::nvidia::status::NvStatus;
use crate::nvidia::wire::Field;
use crate::nvidia::wire::Wire;
use crate::policy::Audited;
use crate::policy::CallKind;
use crate::policy::FileId;
use crate::policy::GpuId;
use crate::policy::Reason;
use crate::policy::RefusalCause;

/// Reads a field of a struct whose size the tables have checked.
pub(super) fn get<T: Wire>(field: Field<T>, bytes: &[u8]) -> Result<T, Errno> {
    field.get(bytes).ok_or(Errno::EINVAL)
}

/// Writes a field of a struct whose size the tables have checked.
pub(super) fn set<T: Wire>(field: Field<T>, bytes: &mut [u8], value: T) -> Result<(), Errno> {
    field.set(bytes, value).ok_or(Errno::EINVAL)
}

/// An escape out of its envelope.
struct Request {
    nr: u8,
    size: usize,
    argument: UserAddr,
}

impl Request {
    /// Decodes a request code, and opens the envelope if it is one.
    fn decode(call: &mut impl Call, code: u32, argument: UserAddr) -> Result<Self, Errno> {
        let (nr, size) = nvos::request_parts(code);
        if Escape::from_nr(nr) != Some(Escape::IoctlXferCmd) {
            return Ok(Self { nr, size, argument });
        }
        if size != nvos::xfer::SIZE {
            return Err(Errno::EINVAL);
        }
        let mut envelope = [0; nvos::xfer::SIZE];
        call.read(argument, &mut envelope)?;
        let nr = u8::try_from(get(nvos::xfer::CMD, &envelope)?).map_err(|_| Errno::EINVAL)?;
        if Escape::from_nr(nr) == Some(Escape::IoctlXferCmd) {
            // The driver opens one envelope, and knows no escape of this number inside.
            return Err(Errno::EINVAL);
        }
        let size = usize::try_from(get(nvos::xfer::LEN, &envelope)?).map_err(|_| Errno::EINVAL)?;
        let argument = UserAddr(get(nvos::xfer::PTR, &envelope)?);
        Ok(Self { nr, size, argument })
    }
}

/// Runs an escape.
pub(super) fn ioctl(
    call: &mut impl Call,
    session: &Session,
    code: u32,
    argument: UserAddr,
) -> Result<i32, Errno> {
    let request = Request::decode(call, code, argument)?;
    let (kind, number) = (CallKind::Escape, u32::from(request.nr));
    let Some(entry) = call.tables().escape(request.nr) else {
        note(call, session, kind, number, Reason::Unlisted);
        return Err(Errno::EINVAL);
    };
    if entry.verdict == Verdict::Refuse {
        note(call, session, kind, number, Reason::Forbidden);
        return Err(Errno::EINVAL);
    }
    let gpu = session.gpu();
    if let Err(reason) = allowed(call, gpu, entry.capabilities) {
        note(call, session, kind, number, reason);
        return Err(Errno::EINVAL);
    }
    // Compare NV_CTL_DEVICE_ONLY and NV_ACTUAL_DEVICE_ONLY in nv.c and escape.c.
    let here = match session.role {
        Role::Gpu(_) => entry.devices != Devices::Control,
        Role::Control | Role::Uvm => entry.devices != Devices::Gpu,
    };
    if !here || !entry.takes(request.size) {
        return Err(Errno::EINVAL);
    }
    let code = nvos::request_code(request.nr, request.size).ok_or(Errno::EINVAL)?;
    let mut outer = Copied::none();
    outer.take(call, request.argument, request.size)?;
    let bytes = &mut outer.bytes;
    let returned = match entry.escape {
        Escape::RmAlloc => alloc::alloc(call, session, code, bytes),
        Escape::RmFree => free(call, session, code, bytes),
        Escape::RmControl => control::control(call, session, code, bytes),
        Escape::RmDupObject => dup(call, session, code, bytes),
        Escape::RmVidHeapControl => heap::vid_heap_control(call, session, code, bytes),
        Escape::RmAllocMemory => heap::alloc_memory(call, session, code, bytes),
        Escape::CardInfo => lists::card_info(call, bytes),
        Escape::AttachGpusToFd => lists::attach_gpus(call, code, bytes),
        Escape::RmIdleChannels => handles::idle_channels(call, session, bytes),
        Escape::ExportToDmabufFd => exports::dma_buf(call, session, bytes),
        escape => match Named::of(escape) {
            Some(named) if escape == Escape::RmMapMemory => {
                handles::map_memory(call, session, code, bytes, named)
            }
            Some(named) => handles::checked(call, session, code, bytes, named),
            None => plain(call, code, bytes),
        },
    }?;
    outer.write_back(call)?;
    Ok(returned)
}

/// Takes note of a call that was refused.
pub(super) fn note(
    call: &mut impl Call,
    session: &Session,
    kind: CallKind,
    number: u32,
    reason: Reason,
) {
    let noted = Audited {
        kind,
        number,
        reason,
    };
    call.audit(&noted, session.gpu());
}

/// Takes note of an escape that the accounting has refused, and gives what to tell the program.
pub(super) fn refused(
    call: &mut impl Call,
    session: &Session,
    code: u32,
    refusal: &RefusalCause,
) -> NvStatus {
    if let Some(reason) = refusal.reason() {
        let (nr, _) = nvos::request_parts(code);
        note(call, session, CallKind::Escape, u32::from(nr), reason);
    }
    refusal.status()
}

/// Whether the tenant may make a call on a GPU, or on none in particular, that these sets of
/// capabilities allow.
pub(super) fn allowed(
    call: &mut impl Call,
    gpu: Option<GpuId>,
    wanted: Capabilities,
) -> Result<(), Reason> {
    // What all have needs no look into the accounting.
    let may = wanted == BASE
        || call
            .look(|accounting| accounting.capabilities(gpu))
            .meets(wanted);
    match may {
        true => Ok(()),
        false => Err(Reason::Capability(wanted)),
    }
}

/// Forwards a struct that holds no pointer and decides nothing.
pub(super) fn plain(call: &mut impl Call, code: u32, bytes: &mut [u8]) -> Result<i32, Errno> {
    let mut parts = [Part::argument(bytes)];
    call.forward(code, &mut parts, Route::Caller)
}

/// A client can be used through the control file alone that it was made on, or a GPU's file that was
/// bound to that (`rmclientValidate_IMPL()` in src/nvidia/src/kernel/rmapi/client.c). A call through
/// another file goes no further: the driver would refuse it, but whether it did is an output, and
/// what is charged to a client goes with its file.
///
/// A client that the accounting does not know is left to them.
pub(super) fn check_file(
    call: &mut impl Call,
    session: &Session,
    client: ClientHandle,
) -> Result<(), NvStatus> {
    let file = call.look(|accounting| accounting.client_file(client));
    match is_elsewhere(session, file) {
        true => Err(NvStatus::NV_ERR_INVALID_CLIENT),
        false => Ok(()),
    }
}

/// Whether a control file is another one than a client was made on, if that is known.
pub(super) fn is_elsewhere(session: &Session, made_on: Option<FileId>) -> bool {
    session.role == Role::Control && made_on.is_some_and(|file| file != session.file)
}

/// What became of a call that makes an object, as far as it can be believed.
///
/// A status is an output: threads of the program can overwrite it before we read it. "Made" is
/// believed, since it can only raise what is charged. "Refused" is made true: the object is freed,
/// whether it is there or not, so the driver has none that the accounting does not know. A program cannot
/// stop that call, but can be killed before it; then the object counts as made until its client goes.
///
/// This is for objects that cost something, that tell which GPU those belong to, or that may not be taken for
/// another. What else the driver has without the accounting's knowledge does no harm: nothing can be had below it or copied from it.
pub(super) fn is_made(
    call: &mut impl Call,
    kind: Kind,
    client: ClientHandle,
    object: ObjectHandle,
    returned: Result<i32, Errno>,
    status: Option<u32>,
) -> bool {
    let matters = matches!(
        kind,
        Kind::VideoMemory
            | Kind::VirtualMemory
            | Kind::VaSpace
            | Kind::UserMode
            | Kind::FabricMemory
            | Kind::Device
            | Kind::Subdevice
            | Kind::ChannelGroup
            | Kind::Channel
    );
    match (returned, status.map(NvStatus)) {
        // The driver was not reached.
        (Err(_), _) => false,
        (Ok(0), Some(NvStatus::NV_OK)) => true,
        _ if !matters => false,
        // What has the handle, if that is true, is not to be freed: it may have come out of a
        // descriptor.
        (Ok(0), Some(NvStatus::NV_ERR_INSERT_DUPLICATE_NAME)) => true,
        _ => !is_freed(call, client, object),
    }
}

/// Frees an object that may not be there, and tells whether the driver got to it. (It answers that
/// there is no such object with success, too.)
pub(super) fn is_freed(call: &mut impl Call, client: ClientHandle, object: ObjectHandle) -> bool {
    use nvos::nvos00;
    let mut bytes = [0; nvos00::SIZE];
    let filled = nvos00::H_ROOT.set(&mut bytes, client.0).is_some()
        && nvos00::H_OBJECT_OLD.set(&mut bytes, object.0).is_some();
    match nvos::request_code(Escape::RmFree.nr(), nvos00::SIZE) {
        Some(code) if filled => plain(call, code, &mut bytes) == Ok(0),
        _ => false,
    }
}

/// `NV_ESC_RM_FREE`.
fn free(
    call: &mut impl Call,
    session: &Session,
    code: u32,
    bytes: &mut [u8],
) -> Result<i32, Errno> {
    use nvos::nvos00;
    let client = ClientHandle(get(nvos00::H_ROOT, bytes)?);
    let object = ObjectHandle(get(nvos00::H_OBJECT_OLD, bytes)?);
    freed(call, session, code, bytes, client, object, nvos00::STATUS)
}

/// Frees an object with all that hangs under it.
///
/// The accounting takes the objects out of reach before the driver frees them, and give back what they
/// were charged afterwards: a thread that allocates under the same handle in between gets an entry
/// of its own.
pub(super) fn freed(
    call: &mut impl Call,
    session: &Session,
    code: u32,
    bytes: &mut [u8],
    client: ClientHandle,
    object: ObjectHandle,
    status: Field<u32>,
) -> Result<i32, Errno> {
    if let Err(refused) = check_file(call, session, client) {
        return set(status, bytes, refused.0).map(|()| 0);
    }
    let ticket = match call.accounting(|accounting| accounting.begin_free(client, object)) {
        Ok(ticket) => ticket,
        Err(refusal) => {
            let told = refused(call, session, code, &refusal);
            return set(status, bytes, told.0).map(|()| 0);
        }
    };
    let returned = plain(call, code, bytes);
    let freed = returned == Ok(0) && status.get(bytes) == Some(NvStatus::NV_OK.0);
    call.accounting(|accounting| accounting.end_free(ticket, freed));
    managed::rebalance(call);
    returned
}

/// `NV_ESC_RM_DUP_OBJECT`: a second object over the same memory, in the same tenant.
fn dup(call: &mut impl Call, session: &Session, code: u32, bytes: &mut [u8]) -> Result<i32, Errno> {
    use nvos::nvos55;
    let client = ClientHandle(get(nvos55::H_CLIENT, bytes)?);
    let parent = ObjectHandle(get(nvos55::H_PARENT, bytes)?);
    let object = ObjectHandle(get(nvos55::H_OBJECT, bytes)?);
    let source_client = ClientHandle(get(nvos55::H_CLIENT_SRC, bytes)?);
    let source = ObjectHandle(get(nvos55::H_OBJECT_SRC, bytes)?);
    if let Err(refused) = check_file(call, session, client) {
        return set(nvos55::STATUS, bytes, refused.0).map(|()| 0);
    }
    let begun = call.accounting(|accounting| {
        accounting.begin_dup(client, parent, object, source_client, source)
    });
    let ticket = match begun {
        Ok(ticket) => ticket,
        Err(refusal) => {
            let told = refused(call, session, code, &refusal);
            return set(nvos55::STATUS, bytes, told.0).map(|()| 0);
        }
    };
    // Where the caller left the handle to the driver, the accounting has chosen it.
    let made = ticket.handle();
    let _ = nvos55::H_OBJECT.set(bytes, made.0);
    let returned = plain(call, code, bytes);
    let status = nvos55::STATUS.get(bytes);
    // What a duplicate is was decided by its source.
    let kind = call.look(|accounting| accounting.kind_of(source_client, source));
    let kind = kind.unwrap_or(Kind::VideoMemory);
    let done = is_made(call, kind, client, made, returned, status);
    call.accounting(|accounting| accounting.end_dup(ticket, done.then_some(made)));
    if returned != Ok(0) || status != Some(NvStatus::NV_OK.0) {
        set(nvos55::H_OBJECT, bytes, object.0)?;
    }
    returned
}
