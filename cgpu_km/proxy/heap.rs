// SPDX-License-Identifier: GPL-2.0
//! The older ways of allocating: `NV_ESC_RM_VID_HEAP_CONTROL`, `NV_ESC_RM_ALLOC_MEMORY` and
//! `NV_ESC_RM_ALLOC_CONTEXT_DMA2`.
//!
//! Current CUDA uses the second alone, to register host memory. But the first two are ways to
//! video memory, and a channel can name what the third makes, so all are watched. The driver turns
//! them into allocations of ordinary classes (src/nvidia/interface/deprecated:
//! rmapi_deprecated_vidheapctrl.c, rmapi_deprecated_allocmemory.c, rmapi_deprecated_misc.c), and
//! the accounting sees those.

use super::{
    call::{
        Call,
        Errno,
        Held, //
    },
    class_rules::{
        check_place,
        check_range,
        kernel_tables,
        range_tables,
        space_of_range, //
    },
    notes,
    objects::free_object,
    orders::begin_alloc,
    owned::{
        allowed,
        check_file,
        check_made_on,
        owned,
        owns, //
    },
    sent::{
        plain,
        without,
        DriverReply, //
    },
    shown::{
        held,
        prepare, //
    },
    stop::{
        get,
        set,
        Asked,
        Stop, //
    }, //
};
use crate::{
    nvidia::{
        capability::GRAPHICS,
        class::{
            self,
            Kind, //
        },
        handle::{
            ClassId,
            ClientHandle,
            ObjectHandle, //
        },
        memory::{
            self,
            FLAGS_MEMORY_HANDLE_PROVIDED, //
        },
        nvos::{
            self,
            nvos02,
            nvos32,
            nvos32::alloc_size,
            nvos39, //
        },
        params,
        status::NvStatus,
        wire::Field, //
    },
    policy::{
        Alloc,
        AllocDone,
        CallKind,
        Reason,
        RefusalCause,
        Surroundings, //
    }, //
};

/// Runs `NV_ESC_RM_VID_HEAP_CONTROL`: functions 2 (ALLOC_SIZE), 3 (FREE) and 5 (INFO) pass.
#[inline(never)] // As `frontend::run`.
pub(super) fn vid_heap_control(
    call: &mut impl Call,
    asked: &Asked<'_>,
    bytes: &mut [u8],
) -> Result<i32, Stop> {
    match get(nvos32::FUNCTION, bytes)? {
        nvos::FUNCTION_ALLOC_SIZE => {
            let withheld = (alloc_size::ATTR2, memory::ATTR2_WITHHELD);
            without(withheld, bytes, |bytes| allocate(call, asked, bytes))
        }
        nvos::FUNCTION_FREE => {
            let client = ClientHandle(get(nvos32::H_ROOT, bytes)?);
            let object = ObjectHandle(get(nvos32::free::H_MEMORY, bytes)?);
            free_object(call, asked, bytes, (client, object), nvos32::STATUS)
        }
        nvos::FUNCTION_INFO => info(call, asked, bytes),
        _ => Err(Stop::refused(
            NvStatus::NV_ERR_NOT_SUPPORTED,
            Reason::Unlisted,
        )),
    }
}

/// Allocates: compare `_nvos32FunctionAllocSize()`.
fn allocate(call: &mut impl Call, asked: &Asked<'_>, bytes: &mut [u8]) -> Result<i32, Stop> {
    let flags = get(alloc_size::FLAGS, bytes)?;
    let (class, kind) = class_of(bytes)?;
    let below = (
        ClientHandle(get(nvos32::H_ROOT, bytes)?),
        ObjectHandle(get(nvos32::H_OBJECT_PARENT, bytes)?),
    );
    let around = call.look(|accounting| accounting.surroundings(below.0, below.1));
    match kind {
        Kind::VirtualMemory => check_range(around.capabilities, flags)?,
        Kind::VideoMemory => check_place(flags)?,
        _ => {}
    }
    // Without this flag the driver ignores the handle and makes one.
    let provided = flags & FLAGS_MEMORY_HANDLE_PROVIDED;
    let handle = match provided {
        0 => 0,
        _ => get(alloc_size::H_MEMORY, bytes)?,
    };
    let object = ObjectHandle(handle);
    let mut request = Alloc::of(
        asked.session.file,
        call.process(),
        below,
        object,
        (class, kind),
    );
    complete(&mut request, bytes)?;
    // The accounting chooses the handle if the driver would; the driver must take that one.
    set(
        alloc_size::FLAGS,
        bytes,
        flags | FLAGS_MEMORY_HANDLE_PROVIDED,
    )?;
    let places = OutputPlaces {
        status: nvos32::STATUS,
        handle: alloc_size::H_MEMORY,
        size: Some(alloc_size::SIZE),
    };
    let returned = charged(call, asked, bytes, (&request, None), &around, &places);
    let told = get(alloc_size::FLAGS, bytes)?;
    set(
        alloc_size::FLAGS,
        bytes,
        told & !FLAGS_MEMORY_HANDLE_PROVIDED | provided,
    )?;
    returned
}

/// The class that the driver chooses by flags and location.
fn class_of(bytes: &[u8]) -> Result<(ClassId, Kind), Stop> {
    if get(alloc_size::FLAGS, bytes)? & memory::FLAGS_VIRTUAL != 0 {
        Ok((class::NV50_MEMORY_VIRTUAL, Kind::VirtualMemory))
    } else if memory::uses_egm(get(alloc_size::ATTR2, bytes)?) {
        // Memory of another kind of machine, which no table of ours allows.
        Err(Stop::refused(
            NvStatus::NV_ERR_NOT_SUPPORTED,
            Reason::Parameters,
        ))
    } else if memory::is_video(get(alloc_size::ATTR, bytes)?) {
        Ok((class::NV01_MEMORY_LOCAL_USER, Kind::VideoMemory))
    } else {
        Ok((class::NV01_MEMORY_SYSTEM, Kind::SystemMemory))
    }
}

/// Completes a request that costs nothing yet by what the struct of ALLOC_SIZE says.
fn complete(request: &mut Alloc, bytes: &[u8]) -> Result<(), Errno> {
    let flags = get(alloc_size::FLAGS, bytes)?;
    let size = get(alloc_size::SIZE, bytes)?;
    match request.kind {
        Kind::VirtualMemory => {
            request.tables = range_tables(flags, size);
            request.size = size;
            request.uses[0] = space_of_range(nvos32::H_VA_SPACE, bytes);
        }
        Kind::VideoMemory => {
            let attr = get(alloc_size::ATTR, bytes)?;
            let attr2 = get(alloc_size::ATTR2, bytes)?;
            let alignment = get(alloc_size::ALIGNMENT, bytes)?;
            request.bytes = memory::taken(size, flags, attr, attr2, alignment);
            request.size = size;
            request.page = memory::page_size(size, attr, attr2);
        }
        Kind::SystemMemory => {
            let attr = get(alloc_size::ATTR, bytes)?;
            request.host = memory::host_taken(size, attr, get(alloc_size::ATTR2, bytes)?);
            request.size = size;
        }
        _ => {}
    }
    Ok(())
}

/// Tells of the heap what `FB_GET_INFO` tells of it, from which the driver takes it
/// (`_nvos32FunctionInfo()`). For the other functions the driver writes zeros there.
fn info(call: &mut impl Call, asked: &Asked<'_>, bytes: &mut [u8]) -> Result<i32, Stop> {
    use nvos32::*;
    let client = ClientHandle(get(H_ROOT, bytes)?);
    let parent = ObjectHandle(get(H_OBJECT_PARENT, bytes)?);
    check_file(call, asked.session, client)?;
    let Some(gpu) = call.look(|accounting| accounting.gpu_of(client, parent)) else {
        // The device is not there, or not the tenant's any more.
        return Err(if owns(call, client.0) {
            Stop::status(NvStatus::NV_ERR_OBJECT_NOT_FOUND)
        } else {
            Stop::status(RefusalCause::ForeignClient.status())
        });
    };
    let returned = plain(call, asked.code, bytes)?;
    // Done for every status, because another thread can have written it.
    let view = call.look(|accounting| accounting.fb_view(gpu));
    let view = view.ok_or(Errno::EINVAL)?;
    for (field, most) in [
        (TOTAL, view.limit),
        (FREE, view.free),
        (info::SIZE, view.free),
    ] {
        let told = get(field, bytes)?.min(most);
        set(field, bytes, told)?;
    }
    // It moves as neighbours take memory.
    set(info::OFFSET, bytes, 0)?;
    Ok(returned)
}

/// The driver's refusal of pages that it cannot pin (`os_lock_user_pages()`, os-mlock.c). A pin of
/// host memory of the driver's own would keep it after its charge has ended.
const PINNED_AGAIN: Stop = Stop::refused(NvStatus::NV_ERR_INVALID_ADDRESS, Reason::Parameters);

/// Runs `NV_ESC_RM_ALLOC_MEMORY`. The driver makes attributes of its flags, so that of memory for
/// the firmware is taken out.
#[inline(never)] // As `frontend::run`.
pub(super) fn alloc_memory(
    call: &mut impl Call,
    asked: &mut Asked<'_>,
    bytes: &mut [u8],
) -> Result<i32, Stop> {
    let known = (nvos02::FLAGS, params::FLAG_FIRMWARE_KNOWS);
    without(known, bytes, |bytes| make_memory(call, asked, bytes))
}

/// Host memory passes. Class 0x40 allocates nothing for an ordinary client: it tells the size of
/// the heap (`_rmAllocMemoryLocalUser()`), which is the instance's limit here.
fn make_memory(call: &mut impl Call, asked: &mut Asked<'_>, bytes: &mut [u8]) -> Result<i32, Stop> {
    use nvos02::*;
    let class = ClassId(get(H_CLASS, bytes)?);
    let kind = match class {
        class::NV01_MEMORY_SYSTEM => Kind::SystemMemory,
        class::NV01_MEMORY_SYSTEM_OS_DESCRIPTOR => Kind::OsDescriptor,
        class::NV01_MEMORY_LOCAL_USER => Kind::Inert,
        class::NV01_MEMORY_LOCAL_PRIVILEGED => return registers(call, asked, bytes),
        _ => {
            asked.name(CallKind::Class, class.0, None);
            let status = NvStatus::NV_ERR_INVALID_CLASS;
            return Err(Stop::refused(status, Reason::Unlisted));
        }
    };
    if kind == Kind::OsDescriptor && !params::is_cached_host_memory(get(FLAGS, bytes)?) {
        asked.name(CallKind::Class, class.0, None);
        let status = NvStatus::NV_ERR_INVALID_FLAGS;
        return Err(Stop::refused(status, Reason::Parameters));
    }
    let client = ClientHandle(get(H_ROOT, bytes)?);
    let parent = ObjectHandle(get(H_OBJECT_PARENT, bytes)?);
    let handle = ObjectHandle(get(H_OBJECT_NEW, bytes)?);
    let below = (client, parent);
    let mut request = Alloc::of(
        asked.session.file,
        call.process(),
        below,
        handle,
        (class, kind),
    );
    complete_older(&mut request, bytes)?;
    let places = OutputPlaces {
        status: STATUS,
        handle: H_OBJECT_NEW,
        size: None,
    };
    let around = call.look(|accounting| accounting.surroundings(below.0, below.1));
    owned(call, client.0)?;
    // Of host memory the driver prepares a mapping at once, unless it is told not to.
    let is_mapped = kind == Kind::SystemMemory && params::is_mapped_at_once(get(FLAGS, bytes)?);
    let file = if is_mapped {
        Some(held(call, get(FD, bytes)?)?)
    } else {
        None
    };
    let request = (&request, file.as_ref());
    let returned = if kind == Kind::OsDescriptor {
        let (start, last) = (get(P_MEMORY, bytes)?, get(LIMIT, bytes)?);
        let end = start.saturating_add(last).saturating_add(1);
        let made = call.while_pinned(start..end, |call| {
            charged(call, asked, bytes, request, &around, &places)
        });
        made.ok_or(PINNED_AGAIN)??
    } else {
        charged(call, asked, bytes, request, &around, &places)?
    };
    if class == class::NV01_MEMORY_LOCAL_USER && returned == 0 {
        let view = call.look(|accounting| {
            let gpu = accounting.gpu_of(client, parent);
            gpu.and_then(|gpu| accounting.fb_view(gpu))
        });
        // Done for every status, because another thread can have written it.
        if let Some(view) = view {
            let last = get(LIMIT, bytes)?.min(view.limit.saturating_sub(1));
            set(LIMIT, bytes, last)?;
        }
    }
    Ok(returned)
}

/// Completes a request for host memory by what the struct of `RM_ALLOC_MEMORY` says.
fn complete_older(request: &mut Alloc, bytes: &[u8]) -> Result<(), Errno> {
    use nvos02::*;
    let last = get(LIMIT, bytes)?;
    match request.kind {
        Kind::SystemMemory => {
            let attr = if params::is_in_one_piece(get(FLAGS, bytes)?) {
                memory::ATTR_CONTIGUOUS
            } else {
                0
            };
            request.size = last.wrapping_add(1);
            request.host = memory::host_taken(request.size, attr, 0);
        }
        // The memory is the program's own. The driver's lists of it are not.
        Kind::OsDescriptor => {
            request.size = last.saturating_add(1);
            request.host = memory::registered_taken(get(P_MEMORY, bytes)?, last);
        }
        _ => {}
    }
    Ok(())
}

/// `RM_ALLOC_MEMORY` of `NV01_MEMORY_LOCAL_PRIVILEGED`, the registers of a GPU.
///
/// Answered as the driver answers Vulkan, which makes one for each GPU and never names it again
/// (recorded on an H200). No object is made: the driver shows it to administrators alone
/// (`memMap_IMPL()` in mapping_cpu.c), and nothing of a container's may reach registers.
fn registers(call: &mut impl Call, asked: &mut Asked<'_>, bytes: &mut [u8]) -> Result<i32, Stop> {
    use nvos02::*;
    let class = class::NV01_MEMORY_LOCAL_PRIVILEGED;
    asked.name(CallKind::Class, class.0, None);
    let client = ClientHandle(get(H_ROOT, bytes)?);
    let parent = ObjectHandle(get(H_OBJECT_PARENT, bytes)?);
    allowed(call, asked.session.gpu(), GRAPHICS)
        .map_err(|reason| Stop::refused(NvStatus::NV_ERR_INVALID_CLASS, reason))?;
    owned(call, client.0)?;
    check_file(call, asked.session, client)?;
    // Compare `_rmAllocMemoryLocalPrivileged()`.
    if !params::is_without_memory(get(FLAGS, bytes)?) {
        return Err(Stop::status(NvStatus::NV_ERR_INVALID_FLAGS));
    }
    let gpu = call.look(|accounting| accounting.gpu_of(client, parent));
    gpu.ok_or(Stop::status(NvStatus::NV_ERR_OBJECT_NOT_FOUND))?;
    set(LIMIT, bytes, u64::from(u32::MAX))?;
    set(STATUS, bytes, NvStatus::NV_OK.0)?;
    Ok(0)
}

/// Runs `NV_ESC_RM_ALLOC_CONTEXT_DMA2`: a context for DMA, which the driver makes beside its memory
/// (`RmDeprecatedAllocContextDma()` in rmapi_deprecated_misc.c).
#[inline(never)] // As `frontend::run`.
pub(super) fn context_dma(
    call: &mut impl Call,
    asked: &Asked<'_>,
    bytes: &mut [u8],
) -> Result<i32, Stop> {
    use nvos39::*;
    let client = owned(call, get(H_OBJECT_PARENT, bytes)?)?;
    // The driver makes an object of whatever class this says (`RmDeprecatedAllocContextDma()` in
    // rmapi_deprecated_misc.c).
    if get(H_CLASS, bytes)? != class::NV01_CONTEXT_DMA.0 {
        return Err(Stop::refused(
            NvStatus::NV_ERR_INVALID_CLASS,
            Reason::Parameters,
        ));
    }
    let memory = ObjectHandle(get(H_MEMORY, bytes)?);
    let parent = call.look(|accounting| accounting.parent_of(client, memory));
    let parent = parent.ok_or(Stop::status(NvStatus::NV_ERR_OBJECT_NOT_FOUND))?;
    let handle = ObjectHandle(get(H_OBJECT_NEW, bytes)?);
    let (below, of) = (
        (client, parent),
        (class::NV01_CONTEXT_DMA, Kind::ContextDma),
    );
    let request = Alloc {
        memory: Some(memory),
        host: kernel_tables(get(FLAGS, bytes)?, get(LIMIT, bytes)?),
        ..Alloc::of(asked.session.file, call.process(), below, handle, of)
    };
    let places = OutputPlaces {
        status: STATUS,
        handle: H_OBJECT_NEW,
        size: None,
    };
    let around = call.look(|accounting| accounting.surroundings(below.0, below.1));
    charged(call, asked, bytes, (&request, None), &around, &places)
}

/// Offsets of the outputs in a flat struct that allocates.
struct OutputPlaces {
    status: Field<u32>,
    handle: Field<u32>,
    size: Option<Field<u64>>,
}

/// Reserves, forwards a flat struct, and records what became of it. If there is a file, it comes to
/// show the object.
fn charged<C: Call>(
    call: &mut C,
    asked: &Asked<'_>,
    bytes: &mut [u8],
    (request, file): (&Alloc, Option<&C::Held>),
    around: &Surroundings,
    places: &OutputPlaces,
) -> Result<i32, Stop> {
    check_made_on(asked.session, around.made_on)?;
    let ticket = begin_alloc(call, request, around.gpu)?;
    let written = places.handle.get(bytes).unwrap_or(0);
    let object = ticket.handle();
    let _ = places.handle.set(bytes, object.0);
    let returned = match file {
        None => plain(call, asked.code, bytes),
        Some(file) => {
            let number = file.session().file;
            let shown = call.accounting(|a| a.begin_cpu_map_of(&ticket, number));
            if let Err(refusal) = shown {
                call.accounting(|accounting| accounting.cancel_alloc(ticket));
                set(places.handle, bytes, written)?;
                return Err(refusal.into());
            }
            prepare(call, asked.code, bytes, file, nvos02::FD)
        }
    };
    let answer = DriverReply::new(returned, places.status.get(bytes));
    if let Some(file) = file.filter(|_| !answer.is_ok()) {
        // The status is an output: the file may show the object, which is about to be freed.
        let number = file.session().file;
        call.end_mappings(number);
        call.accounting(|accounting| accounting.end_shown(number));
    }
    let (kind, client) = (request.kind, request.client);
    let is_made = answer.has_made_on(call, asked.session, kind, (client, object))
        && notes::is_there(call, request, object);
    let done = is_made.then(|| AllocDone {
        object,
        bytes: match (request.kind, places.size) {
            (Kind::VideoMemory | Kind::SystemMemory, Some(size)) => size.get(bytes).unwrap_or(0),
            _ => 0,
        },
    });
    call.accounting(|accounting| answer.end_alloc(accounting, ticket, done));
    if !answer.is_ok() {
        set(places.handle, bytes, written)?;
    }
    Ok(answer.returned?)
}
