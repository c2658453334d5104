// SPDX-License-Identifier: GPL-2.0
//! The escapes: `ioctl` on `/dev/nvidiactl` and `/dev/nvidiaN`.
//!
//! `nvidia_ioctl()` (kernel-open/nvidia/nv.c) looks at the number and the size in a request code
//! and at nothing else, and so does this. A parameter struct that may be too large for the size
//! field travels in an envelope, `NV_ESC_IOCTL_XFER_CMD`, whose inner number, size and address
//! stand in the program's memory. The envelope is opened here, once; the driver sees the inner
//! request alone.

use super::{
    alloc::alloc,
    call::{
        Call,
        Errno,
        Role,
        Session,
        UserAddr, //
    },
    control::control,
    copied::Copied,
    events,
    exports,
    handles,
    heap,
    lists,
    objects,
    owned::allowed,
    sent::plain,
    stop::{
        get,
        Asked,
        Stop, //
    }, //
};
use crate::{
    nvidia::{
        escape::{
            Devices,
            Escape,
            EscapeEntry, //
        },
        nvos, //
    },
    policy::{
        CallKind,
        Reason, //
    }, //
};

/// An escape out of its envelope.
struct EscapeRequest {
    nr: u8,
    size: usize,
    argument: UserAddr,
}

impl EscapeRequest {
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
    let request = EscapeRequest::decode(call, code, argument)?;
    let mut asked = Asked::new(session, code, CallKind::Escape, request.nr.into());
    let entry = match admit(call, session, &request) {
        Ok(entry) => entry,
        Err(stop) => return asked.end(call, Err(stop), &mut [], None),
    };
    // Out of its envelope it has another code.
    asked.code = nvos::request_code(request.nr, request.size).ok_or(Errno::EINVAL)?;
    let mut outer = Copied::none();
    outer.take(call, request.argument, request.size)?;
    let bytes: &mut [u8] = &mut outer.bytes;
    let returned = run(call, &mut asked, entry.escape, bytes);
    let status = entry.escape.status(request.size);
    let returned = asked.end(call, returned, bytes, status)?;
    outer.write_back(call)?;
    Ok(returned)
}

/// The escape's entry, if the tenant may make it on this node, with an argument of this size.
fn admit(
    call: &mut impl Call,
    session: &Session,
    request: &EscapeRequest,
) -> Result<&'static EscapeEntry, Stop> {
    let entry = call.tables().escape(request.nr);
    let entry = entry.ok_or(unknown(Reason::Unlisted))?;
    if entry.is_refused {
        return Err(unknown(Reason::Forbidden));
    }
    allowed(call, session.gpu(), entry.capabilities).map_err(unknown)?;
    // Compare NV_CTL_DEVICE_ONLY and NV_ACTUAL_DEVICE_ONLY in nv.c and escape.c.
    let is_here = match session.role {
        Role::Gpu(_) => entry.devices != Devices::Control,
        Role::Control | Role::Uvm => entry.devices != Devices::Gpu,
    };
    if !is_here || !entry.takes(request.size) {
        return Err(Errno::EINVAL.into());
    }
    Ok(entry)
}

/// Runs an escape on its argument. Each that is not [refused](EscapeEntry::is_refused) has a
/// function here, which looks at the client that it names.
#[inline(never)] // As the functions: their structs would stand in the frame of every escape.
fn run(
    call: &mut impl Call,
    asked: &mut Asked<'_>,
    escape: Escape,
    bytes: &mut [u8],
) -> Result<i32, Stop> {
    match escape {
        Escape::RmAlloc => alloc(call, asked, bytes),
        Escape::RmControl => control(call, asked, bytes),
        Escape::RmFree => objects::free(call, asked, bytes),
        Escape::RmDupObject => objects::dup(call, asked, bytes),
        Escape::RmShare => handles::share(call, asked, bytes),
        Escape::RmVidHeapControl => heap::vid_heap_control(call, asked, bytes),
        Escape::RmAllocMemory => heap::alloc_memory(call, asked, bytes),
        Escape::RmAllocContextDma2 => heap::context_dma(call, asked, bytes),
        Escape::RmMapMemory => handles::map_memory(call, asked, bytes),
        Escape::RmUnmapMemory => handles::unmap_memory(call, asked, bytes),
        Escape::RmUpdateDeviceMappingInfo => handles::update_mapping(call, asked, bytes),
        Escape::RmMapMemoryDma => handles::map_dma(call, asked, bytes),
        Escape::RmUnmapMemoryDma => handles::unmap_dma(call, asked, bytes),
        Escape::RmIdleChannels => handles::idle_channels(call, bytes),
        Escape::AllocOsEvent => events::make_key(call, asked, bytes),
        Escape::FreeOsEvent => events::free_key(call, asked, bytes),
        Escape::CardInfo => lists::card_info(call, bytes),
        Escape::AttachGpusToFd => lists::attach_gpus(call, asked.code, bytes),
        Escape::ExportToDmabufFd => Err(exports::dma_buf()),
        // The driver says so to a program that names the size which it has.
        Escape::SysParams => Ok(0),
        // No pointer is in them, and no handle that would matter.
        Escape::RegisterFd
        | Escape::CheckVersionStr
        | Escape::NumaInfo
        | Escape::WaitOpenComplete => Ok(plain(call, asked.code, bytes)?),
        Escape::RmAllocObject
        | Escape::RmI2cAccess
        | Escape::RmAccessRegistry
        | Escape::RmGetEventData
        | Escape::RmAddVblankCallback
        | Escape::RmBindContextDma
        | Escape::RmExportObjectToFd
        | Escape::RmImportObjectFromFd
        | Escape::RmLocklessDiagnostic
        | Escape::StatusCode
        | Escape::QueryDeviceIntr
        | Escape::SetNumaStatus
        // Taken out before.
        | Escape::IoctlXferCmd => Err(unknown(Reason::Forbidden)),
    }
}

/// As the driver refuses an escape that it does not know.
fn unknown(reason: Reason) -> Stop {
    Stop::unknown(Errno::EINVAL, reason)
}
