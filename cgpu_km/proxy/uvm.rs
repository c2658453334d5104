// SPDX-License-Identifier: GPL-2.0
//! `ioctl` on `/dev/nvidia-uvm`.
//!
//! UVM's request codes are plain numbers without a size; each has one struct with a status inside
//! (kernel-open/nvidia-uvm/uvm_ioctl.h). Some of them need more than forwarding:
//!
//! * `UVM_INITIALIZE` gets the flag for sharing between processes, and gives it back cleared: it
//!   detaches the VA space from the process's memory, which the driver would otherwise tie to a file
//!   that it must recognise as its own (`uvm_api_mm_initialize()`, `uvm_file_is_nvidia_uvm()`).
//! * `UVM_MM_INITIALIZE` is then answered here as the driver answers it for such a VA space:
//!   "not required, no loss of functionality".
//! * What keeps memory or gives it up is in [`super::uvm_map`], what concerns managed memory in
//!   [`super::managed`].
//! * `UVM_REGISTER_GPU` looks for a file of the GPU in the caller's descriptor table, so the GPU's
//!   worker runs it. Calls that name a client must stay with the caller: the driver compares process
//!   ids.

use super::frontend::allowed;
use super::frontend::get;
use super::frontend::note;
use super::frontend::set;
use super::handles;
use super::managed;
use super::uvm_map;
use super::Call;
use super::Copied;
use super::Errno;
use super::Part;
use super::Route;
use super::Session;
use super::UserAddr;
use crate::nvidia::status::NvStatus;
use crate::nvidia::uvm;
use crate::nvidia::uvm::UvmEntry;
use crate::nvidia::uvm::UvmKind;
use crate::policy::CallKind;
use crate::policy::Reason;

/// What `uvm_test_ioctl()` gives for a request that is in no table (ENOSYS).
const UNKNOWN: Errno = Errno(38);

/// Runs one request.
pub(super) fn ioctl(
    call: &mut impl Call,
    session: &Session,
    request: u32,
    argument: UserAddr,
) -> Result<i32, Errno> {
    let Some(entry) = call.tables().uvm(request) else {
        note(call, session, CallKind::Uvm, request, Reason::Unlisted);
        return Err(UNKNOWN);
    };
    if let Err(reason) = allowed(call, None, entry.capabilities) {
        note(call, session, CallKind::Uvm, request, reason);
        return Err(UNKNOWN);
    }
    if entry.size == 0 {
        // UVM_DEINITIALIZE takes no parameters.
        return call.forward(request, &mut [], Route::Caller);
    }
    let size = usize::try_from(entry.size).map_err(|_| Errno::EINVAL)?;
    let mut params = Copied::none();
    let moved;
    let entry = if entry.kind == UvmKind::MapExternal {
        uvm_map::take(&mut params, call, argument, size)?;
        moved = entry.without(params.gap.at, params.gap.len);
        &moved
    } else {
        params.take(call, argument, size)?;
        entry
    };
    let gap = params.gap;
    let bytes = &mut params.bytes;
    if names_another(call, entry, bytes)? {
        note(call, session, CallKind::Uvm, request, Reason::Foreign);
        set(entry.status, bytes, handles::FOREIGN.0)?;
        return params.write_back(call).map(|()| 0);
    }
    let returned = match entry.kind {
        UvmKind::Initialize => initialize(call, request, bytes),
        UvmKind::MmInitialize => set(
            uvm::mm_initialize::RM_STATUS,
            bytes,
            NvStatus::NV_WARN_NOTHING_TO_DO.0,
        )
        .map(|()| 0),
        UvmKind::RegisterGpu => register_gpu(call, request, bytes),
        UvmKind::MapExternal => uvm_map::map(call, session, entry, bytes, gap),
        UvmKind::UnmapExternal => uvm_map::unmap(call, session, entry, bytes),
        UvmKind::Free => uvm_map::free(call, session, entry, bytes),
        _ if entry.cmd == uvm::REGISTER_GPU_VASPACE => {
            managed::register(call, session, entry, bytes)
        }
        _ if matches!(
            entry.cmd,
            uvm::SET_PREFERRED_LOCATION
                | uvm::UNSET_PREFERRED_LOCATION
                | uvm::ENABLE_READ_DUPLICATION
                | uvm::DISABLE_READ_DUPLICATION
                | uvm::MIGRATE
        ) =>
        {
            managed::touch(call, session, entry, bytes)
        }
        _ if matches!(
            entry.cmd,
            uvm::ALLOC_SEMAPHORE_POOL | uvm::MAP_DYNAMIC_PARALLELISM_REGION
        ) =>
        {
            uvm_map::fixed(call, session, entry, bytes)
        }
        _ if entry.cmd == uvm::CREATE_EXTERNAL_RANGE => {
            uvm_map::create(call, session, entry, bytes)
        }
        _ if entry.cmd == uvm::MIGRATE_RANGE_GROUP => managed::migrate_group(call, entry, bytes),
        _ if entry.cmd == uvm::VALIDATE_VA_RANGE => managed::validate(call, session, entry, bytes),
        _ if matches!(entry.cmd, uvm::UNREGISTER_GPU | uvm::UNREGISTER_GPU_VASPACE) => {
            uvm_map::unregister(call, session, entry, bytes)
        }
        _ => forward(call, request, bytes, Route::Caller),
    }?;
    params.write_back(call)?;
    managed::rebalance(call);
    Ok(returned)
}

/// Whether a call names a client that is not the tenant's. The driver asks whether it is the calling process's
/// (`RS_SHARE_TYPE_PID`, `cliresShareCallback_IMPL()` in client_resource.c), or one that shares with all.
fn names_another(call: &mut impl Call, entry: &UvmEntry, bytes: &[u8]) -> Result<bool, Errno> {
    let Some(client) = entry.client else {
        return Ok(false);
    };
    let client = get(client, bytes)?;
    // CUDA registers a GPU without a client: it is there for partitions of one.
    let none = client == 0 && entry.kind == UvmKind::RegisterGpu;
    Ok(!none && !handles::owns(call, client))
}

pub(super) fn forward(
    call: &mut impl Call,
    request: u32,
    bytes: &mut [u8],
    route: Route,
) -> Result<i32, Errno> {
    let mut parts = [Part::argument(bytes)];
    call.forward(request, &mut parts, route)
}

/// Answers in the driver's place.
pub(super) fn answer(entry: &UvmEntry, bytes: &mut [u8], status: NvStatus) -> Result<i32, Errno> {
    set(entry.status, bytes, status.0).map(|()| 0)
}

/// Whether a request was made and the driver says that it has worked.
pub(super) fn has_worked(entry: &UvmEntry, returned: Result<i32, Errno>, bytes: &[u8]) -> bool {
    returned == Ok(0) && entry.status.get(bytes) == Some(NvStatus::NV_OK.0)
}

fn initialize(call: &mut impl Call, request: u32, bytes: &mut [u8]) -> Result<i32, Errno> {
    use uvm::initialize::*;
    let wanted = get(FLAGS, bytes)?;
    set(FLAGS, bytes, wanted | uvm::FLAG_MULTI_PROCESS_SHARING_MODE)?;
    let returned = forward(call, request, bytes, Route::Caller);
    set(FLAGS, bytes, wanted)?;
    returned
}

fn register_gpu(call: &mut impl Call, request: u32, bytes: &mut [u8]) -> Result<i32, Errno> {
    use uvm::register_gpu::*;
    let uuid = bytes
        .get(UUID)
        .and_then(|uuid| <[u8; 16]>::try_from(uuid).ok())
        .ok_or(Errno::EINVAL)?;
    // A GPU that is not the tenant's: the driver itself finds no file of it and refuses.
    let route = match call.gpu_by_uuid(&uuid) {
        Some(gpu) => Route::Worker(gpu),
        None => Route::Caller,
    };
    forward(call, request, bytes, route)
}
