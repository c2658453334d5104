// SPDX-License-Identifier: GPL-2.0
//! The two older ways of allocating: `NV_ESC_RM_VID_HEAP_CONTROL` and `NV_ESC_RM_ALLOC_MEMORY`.
//!
//! Current CUDA uses the first not at all and the second only to register host memory, but both are
//! doors to video memory, so both are watched. The driver turns them into allocations of ordinary
//! classes (src/nvidia/interface/deprecated/rmapi_deprecated_vidheapctrl.c and
//! rmapi_deprecated_allocmemory.c), and the accounting sees those.

use super::alloc::{may_be_made, tables, Surroundings};
use super::frontend::allowed;
use super::frontend::check_file;
use super::frontend::freed;
use super::frontend::get;
use super::frontend::is_elsewhere;
use super::frontend::is_made;
use super::frontend::note;
use super::frontend::plain;
use super::frontend::refused;
use super::frontend::set;
use super::handles::owns;
use super::handles::FOREIGN;
use super::managed;
use super::Call;
use super::Errno;
use super::Session;
use crate::nvidia::capability::GRAPHICS;
use crate::nvidia::class;
use crate::nvidia::class::Kind;
use crate::nvidia::escape::Escape;
use crate::nvidia::handle::ClassId;
use crate::nvidia::handle::ClientHandle;
use crate::nvidia::handle::ObjectHandle;
use crate::nvidia::memory;
use crate::nvidia::memory::PageSize;
use crate::nvidia::nvos;
use crate::nvidia::params;
use crate::nvidia::status::NvStatus;
use crate::nvidia::wire::Field;
use crate::policy::Alloc;
use crate::policy::AllocDone;
use crate::policy::CallKind;
use crate::policy::Reason;

/// The number of the older heap interface, by which its refusals are noted.
// CAST: to a wider number.
const HEAP: u32 = Escape::RmVidHeapControl.nr() as u32;

/// Runs `NV_ESC_RM_VID_HEAP_CONTROL`: functions 2 (ALLOC_SIZE), 3 (FREE) and 5 (INFO) pass.
pub(super) fn vid_heap_control(
    call: &mut impl Call,
    session: &Session,
    code: u32,
    bytes: &mut [u8],
) -> Result<i32, Errno> {
    use nvos::nvos32::*;
    match get(FUNCTION, bytes)? {
        nvos::FUNCTION_ALLOC_SIZE => alloc_size(call, session, code, bytes),
        nvos::FUNCTION_FREE => free(call, session, code, bytes),
        nvos::FUNCTION_INFO => info(call, session, code, bytes),
        _ => {
            note(call, session, CallKind::Escape, HEAP, Reason::Unlisted);
            set(STATUS, bytes, NvStatus::NV_ERR_NOT_SUPPORTED.0).map(|()| 0)
        }
    }
}

/// Allocates: compare `_nvos32FunctionAllocSize()`, which chooses the class by flags and location.
fn alloc_size(
    call: &mut impl Call,
    session: &Session,
    code: u32,
    bytes: &mut [u8],
) -> Result<i32, Errno> {
    use nvos::nvos32::*;
    let flags = get(alloc_size::FLAGS, bytes)?;
    let attr = get(alloc_size::ATTR, bytes)?;
    let attr2 = get(alloc_size::ATTR2, bytes)?;
    let (class, kind) = if flags & memory::FLAGS_VIRTUAL != 0 {
        (class::NV50_MEMORY_VIRTUAL, Kind::VirtualMemory)
    } else if memory::uses_egm(attr2) {
        // Memory of another kind of machine, which no table of ours allows.
        note(call, session, CallKind::Escape, HEAP, Reason::Parameters);
        return set(STATUS, bytes, NvStatus::NV_ERR_NOT_SUPPORTED.0).map(|()| 0);
    } else if memory::is_video(attr) {
        (class::NV01_MEMORY_LOCAL_USER, Kind::VideoMemory)
    } else {
        (class::NV01_MEMORY_SYSTEM, Kind::SystemMemory)
    };
    let below = (
        ClientHandle(get(H_ROOT, bytes)?),
        ObjectHandle(get(H_OBJECT_PARENT, bytes)?),
    );
    let around = call.accounting(|accounting| Surroundings::of(accounting, below));
    if kind == Kind::VirtualMemory && !may_be_made(&around, flags) {
        note(call, session, CallKind::Escape, HEAP, Reason::Parameters);
        return set(STATUS, bytes, NvStatus::NV_ERR_NOT_SUPPORTED.0).map(|()| 0);
    }
    // Without this flag the driver ignores the handle and makes one.
    let requested = match flags & memory::FLAGS_MEMORY_HANDLE_PROVIDED {
        0 => 0,
        _ => get(alloc_size::H_MEMORY, bytes)?,
    };
    let request = Alloc {
        file: session.file,
        process: call.process(),
        client: below.0,
        parent: below.1,
        object: ObjectHandle(requested),
        class,
        kind,
        device_instance: None,
        bytes: match kind {
            Kind::VideoMemory => memory::taken(
                get(alloc_size::SIZE, bytes)?,
                flags,
                attr,
                attr2,
                get(alloc_size::ALIGNMENT, bytes)?,
            ),
            _ => 0,
        },
        tables: match kind {
            Kind::VirtualMemory => tables(flags, get(alloc_size::SIZE, bytes)?),
            _ => 0,
        },
        page: match kind {
            Kind::VideoMemory => memory::page_size(get(alloc_size::SIZE, bytes)?, attr, attr2),
            _ => PageSize::Small,
        },
        context: false,
    };
    // The accounting chooses the handle where the driver would; it must take that one.
    set(
        alloc_size::FLAGS,
        bytes,
        flags | memory::FLAGS_MEMORY_HANDLE_PROVIDED,
    )?;
    let returned = charged(
        call,
        session,
        code,
        bytes,
        &request,
        &around,
        &Places {
            status: STATUS,
            handle: alloc_size::H_MEMORY,
            size: Some(alloc_size::SIZE),
        },
    );
    let told = get(alloc_size::FLAGS, bytes)?;
    let provided = flags & memory::FLAGS_MEMORY_HANDLE_PROVIDED;
    set(
        alloc_size::FLAGS,
        bytes,
        told & !memory::FLAGS_MEMORY_HANDLE_PROVIDED | provided,
    )?;
    returned
}

/// Frees: the same as `NV_ESC_RM_FREE` of the memory object.
fn free(
    call: &mut impl Call,
    session: &Session,
    code: u32,
    bytes: &mut [u8],
) -> Result<i32, Errno> {
    use nvos::nvos32::*;
    let client = ClientHandle(get(H_ROOT, bytes)?);
    let object = ObjectHandle(get(free::H_MEMORY, bytes)?);
    freed(call, session, code, bytes, client, object, STATUS)
}

/// Tells of the heap what `FB_GET_INFO` tells of it, from which the driver takes it
/// (`_nvos32FunctionInfo()`). For the other functions it tells nothing: it writes zeros there.
fn info(
    call: &mut impl Call,
    session: &Session,
    code: u32,
    bytes: &mut [u8],
) -> Result<i32, Errno> {
    use nvos::nvos32::*;
    let client = ClientHandle(get(H_ROOT, bytes)?);
    let parent = ObjectHandle(get(H_OBJECT_PARENT, bytes)?);
    if let Err(refused) = check_file(call, session, client) {
        return set(STATUS, bytes, refused.0).map(|()| 0);
    }
    let gpu = call.look(|accounting| accounting.gpu_of(client, parent));
    let Some(gpu) = gpu else {
        // The device is not there, or not the tenant's any more.
        let known = call.look(|accounting| accounting.owns_client(client));
        let status = match known {
            true => NvStatus::NV_ERR_OBJECT_NOT_FOUND,
            false => super::handles::FOREIGN,
        };
        return set(STATUS, bytes, status.0).map(|()| 0);
    };
    let returned = plain(call, code, bytes)?;
    // Whatever the status says, which another thread can have written: nothing else is told.
    let Some(view) = call.look(|accounting| accounting.fb_view(gpu)) else {
        return Err(Errno::EINVAL);
    };
    for (field, most) in [
        (TOTAL, view.limit),
        (FREE, view.free),
        (info::SIZE, view.free),
    ] {
        let told = get(field, bytes)?.min(most);
        set(field, bytes, told)?;
    }
    Ok(returned)
}

/// Runs `NV_ESC_RM_ALLOC_MEMORY`.
///
/// Host memory passes. Class 0x40 allocates nothing for an ordinary client: it tells the size of the
/// heap (`_rmAllocMemoryLocalUser()`), which is the instance's limit here.
pub(super) fn alloc_memory(
    call: &mut impl Call,
    session: &Session,
    code: u32,
    bytes: &mut [u8],
) -> Result<i32, Errno> {
    use nvos::nvos02::*;
    let class = ClassId(get(H_CLASS, bytes)?);
    let kind = match class {
        class::NV01_MEMORY_SYSTEM => Kind::SystemMemory,
        class::NV01_MEMORY_SYSTEM_OS_DESCRIPTOR => Kind::OsDescriptor,
        class::NV01_MEMORY_LOCAL_USER => Kind::Inert,
        class::NV01_MEMORY_LOCAL_PRIVILEGED => return registers(call, session, bytes),
        _ => {
            note(call, session, CallKind::Class, class.0, Reason::Unlisted);
            return set(STATUS, bytes, NvStatus::NV_ERR_INVALID_CLASS.0).map(|()| 0);
        }
    };
    if kind == Kind::OsDescriptor && !params::is_cached_host_memory(get(FLAGS, bytes)?) {
        note(call, session, CallKind::Class, class.0, Reason::Parameters);
        return set(STATUS, bytes, NvStatus::NV_ERR_INVALID_FLAGS.0).map(|()| 0);
    }
    let client = ClientHandle(get(H_ROOT, bytes)?);
    let parent = ObjectHandle(get(H_OBJECT_PARENT, bytes)?);
    let request = Alloc {
        file: session.file,
        process: call.process(),
        client,
        parent,
        object: ObjectHandle(get(H_OBJECT_NEW, bytes)?),
        class,
        kind,
        device_instance: None,
        bytes: 0,
        tables: 0,
        page: PageSize::Small,
        context: false,
    };
    let places = Places {
        status: STATUS,
        handle: H_OBJECT_NEW,
        size: None,
    };
    let around = call.accounting(|accounting| Surroundings::of(accounting, (client, parent)));
    let returned = charged(call, session, code, bytes, &request, &around, &places)?;
    if class == class::NV01_MEMORY_LOCAL_USER && returned == 0 {
        let view = call.accounting(|accounting| {
            accounting
                .gpu_of(client, parent)
                .and_then(|gpu| accounting.fb_view(gpu))
        });
        // Whatever the status says, which another thread can have written.
        if let Some(view) = view {
            let last = get(LIMIT, bytes)?.min(view.limit.saturating_sub(1));
            set(LIMIT, bytes, last)?;
        }
    }
    Ok(returned)
}

/// `RM_ALLOC_MEMORY` of `NV01_MEMORY_LOCAL_PRIVILEGED`, the registers of a GPU: answered as the driver answers Vulkan,
/// which makes one for each GPU and never names it again (recorded on an H200). There is none: the driver shows it to
/// administrators alone (`memMap_IMPL()` in mapping_cpu.c), and nothing of a container's is to reach registers.
fn registers(call: &mut impl Call, session: &Session, bytes: &mut [u8]) -> Result<i32, Errno> {
    use nvos::nvos02::*;
    let class = class::NV01_MEMORY_LOCAL_PRIVILEGED.0;
    let client = ClientHandle(get(H_ROOT, bytes)?);
    let parent = ObjectHandle(get(H_OBJECT_PARENT, bytes)?);
    if let Err(reason) = allowed(call, session.gpu(), GRAPHICS) {
        note(call, session, CallKind::Class, class, reason);
        return set(STATUS, bytes, NvStatus::NV_ERR_INVALID_CLASS.0).map(|()| 0);
    }
    if !owns(call, client.0) {
        note(call, session, CallKind::Class, class, Reason::Foreign);
        return set(STATUS, bytes, FOREIGN.0).map(|()| 0);
    }
    let status = match check_file(call, session, client) {
        Err(refused) => refused,
        // Compare `_rmAllocMemoryLocalPrivileged()`.
        Ok(()) if !params::is_without_memory(get(FLAGS, bytes)?) => NvStatus::NV_ERR_INVALID_FLAGS,
        Ok(())
            if call
                .look(|accounting| accounting.gpu_of(client, parent))
                .is_none() =>
        {
            NvStatus::NV_ERR_OBJECT_NOT_FOUND
        }
        Ok(()) => {
            set(LIMIT, bytes, u64::from(u32::MAX))?;
            NvStatus::NV_OK
        }
    };
    set(STATUS, bytes, status.0).map(|()| 0)
}

/// Where the fields of a flat struct are that allocates.
struct Places {
    status: Field<u32>,
    handle: Field<u32>,
    size: Option<Field<u64>>,
}

/// Reserves, forwards a flat struct, and records what became of it.
fn charged(
    call: &mut impl Call,
    session: &Session,
    code: u32,
    bytes: &mut [u8],
    request: &Alloc,
    around: &Surroundings,
    places: &Places,
) -> Result<i32, Errno> {
    let Places {
        status,
        handle,
        size,
    } = *places;
    if is_elsewhere(session, around.made_on) {
        return set(status, bytes, NvStatus::NV_ERR_INVALID_CLIENT.0).map(|()| 0);
    }
    let ticket = match managed::begin_alloc(call, request, around.gpu) {
        Ok(ticket) => ticket,
        Err(refusal) => {
            let told = refused(call, session, code, &refusal);
            return set(status, bytes, told.0).map(|()| 0);
        }
    };
    let asked = handle.get(bytes).unwrap_or(0);
    let _ = handle.set(bytes, ticket.handle().0);
    let returned = plain(call, code, bytes);
    let told = status.get(bytes);
    let ok = returned == Ok(0) && told == Some(NvStatus::NV_OK.0);
    let (kind, client, object) = (request.kind, request.client, ticket.handle());
    let made = is_made(call, kind, client, object, returned, told);
    let done = made.then(|| AllocDone {
        object,
        bytes: match (kind, size) {
            (Kind::VideoMemory, Some(size)) => size.get(bytes).unwrap_or(0),
            _ => 0,
        },
    });
    call.accounting(|accounting| accounting.end_alloc(ticket, done));
    if !ok {
        set(handle, bytes, asked)?;
    }
    returned
}
