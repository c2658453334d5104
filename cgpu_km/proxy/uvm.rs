// SPDX-License-Identifier: GPL-2.0
//! `ioctl` on `/dev/nvidia-uvm`.
//!
//! UVM's request codes are plain numbers without a size; each has one struct with a status inside
//! (kernel-open/nvidia-uvm/uvm_ioctl.h). What is done about each is in its row in the tables:
//! [`UvmKind`].
//!
//! * `UVM_INITIALIZE` gets the flag for sharing between processes, and gives it back cleared. The
//!   flag detaches the VA space from the process's memory. Otherwise the driver would tie that to a
//!   file that it must recognise as its own (`uvm_api_mm_initialize()`,
//!   `uvm_file_is_nvidia_uvm()`).
//!   Then the driver lets several processes map the file, so the module lets one only, as the
//!   driver would (`TenantNode::maps_in_one`).
//!   What the driver takes for the VA space counts from before the call until the file is closed.
//! * `UVM_MM_INITIALIZE` is then answered here as the driver answers it for such a VA space:
//!   "not required, no loss of functionality".
//! * `UVM_REGISTER_GPU` looks for a file of the GPU in the caller's descriptor table, so the GPU's
//!   worker runs it. Calls that name a client must stay with the caller: the driver compares
//!   process ids.

use super::{
    call::{
        Call,
        Errno,
        Route,
        Session,
        UserAddr, //
    },
    copied::Copied,
    managed,
    orders::rebalance,
    owned::{
        allowed,
        owns,
        FOREIGN, //
    },
    stop::{
        get,
        set,
        Asked,
        Stop, //
    },
    uvm_call::UvmCall,
    uvm_channel,
    uvm_map,
    uvm_structs, //
};
use crate::{
    nvidia::{
        status::NvStatus,
        uvm::{
            self,
            UvmEntry,
            UvmKind, //
        }, //
    },
    policy::{
        CallKind,
        FixedKind,
        Reason, //
    }, //
};

/// Runs one request.
pub(super) fn ioctl(
    call: &mut impl Call,
    session: &Session,
    request: u32,
    argument: UserAddr,
) -> Result<i32, Errno> {
    let asked = Asked::new(session, request, CallKind::Uvm, request);
    let entry = match admit(call, request) {
        Ok(entry) => entry,
        Err(stop) => return asked.end(call, Err(stop), &mut [], None),
    };
    if entry.kind == UvmKind::Deinitialize {
        return call.forward(request, &mut [], Route::Caller);
    }
    let size = usize::try_from(entry.size).map_err(|_| Errno::EINVAL)?;
    let mut params = Copied::none();
    let moved;
    let entry = if entry.kind == UvmKind::MapExternal {
        uvm_map::take(&mut params, call, argument, size)?;
        moved = entry.without(params.hole.at, params.hole.len);
        &moved
    } else {
        params.take(call, argument, size)?;
        entry
    };
    let mut request = UvmCall {
        file: session.file,
        entry,
        bytes: &mut params.bytes,
        hole: params.hole,
    };
    let returned = run(call, &mut request);
    let returned = asked.end(call, returned, &mut params.bytes, Some(entry.status))?;
    params.write_back(call)?;
    rebalance(call);
    Ok(returned)
}

/// The request's row, if the tenant may make it.
fn admit(call: &mut impl Call, request: u32) -> Result<&'static UvmEntry, Stop> {
    let unknown = |reason| Stop::unknown(Errno::EINVAL, reason);
    let entry = call.tables().uvm(request);
    let entry = entry.ok_or(unknown(Reason::Unlisted))?;
    allowed(call, None, entry.capabilities).map_err(unknown)?;
    Ok(entry)
}

/// Does what the request's row says.
fn run(call: &mut impl Call, request: &mut UvmCall<'_>) -> Result<i32, Stop> {
    check_client(call, request)?;
    match request.entry.kind {
        UvmKind::Initialize => initialize(call, request),
        UvmKind::MmInitialize => {
            let status = NvStatus::NV_WARN_NOTHING_TO_DO.0;
            set(uvm::mm_initialize::RM_STATUS, request.bytes, status)?;
            Ok(0)
        }
        UvmKind::RegisterGpu => {
            let uuid = request.uuid(uvm::register_gpu::UUID.start)?;
            // The driver would open a GPU that is not the tenant's, with UVM's lock of all, before
            // it sees that the caller has no file of it (`nvUvmInterfaceRegisterGpu()`,
            // nv_uvm_interface.c).
            let gpu = call.gpu_by_uuid(&uuid);
            let gpu = gpu.ok_or(Stop::status(NvStatus::NV_ERR_GPU_UUID_NOT_FOUND))?;
            Ok(request.forward_by(call, Route::Worker(gpu))?)
        }
        UvmKind::UnregisterGpu => uvm_channel::unregister_gpu(call, request),
        UvmKind::RegisterChannel => uvm_channel::register(call, request),
        UvmKind::UnregisterChannel => uvm_channel::unregister(call, request),
        UvmKind::RegisterVaSpace => managed::register(call, request),
        UvmKind::CreateRange => uvm_map::create(call, request),
        UvmKind::SemaphorePool => uvm_map::fixed(call, request, FixedKind::SemaphorePool),
        UvmKind::ParallelismRegion => uvm_map::fixed(call, request, FixedKind::ParallelismRegion),
        UvmKind::MapExternal => uvm_map::map(call, request),
        UvmKind::UnmapExternal => uvm_map::unmap(call, request),
        UvmKind::Free => uvm_map::free(call, request),
        UvmKind::Touch(wish) => managed::touch(call, request, wish),
        UvmKind::MigrateGroup => managed::migrate_group(call, request),
        UvmKind::Split => {
            let range = request.range()?;
            uvm_structs::splitting(call, request, range, |call, request| {
                Ok(request.forward(call)?)
            })
        }
        UvmKind::CreateGroup => uvm_structs::create_group(call, request),
        UvmKind::DestroyGroup => uvm_structs::destroy_group(call, request),
        UvmKind::SetGroup => uvm_structs::set_group(call, request),
        UvmKind::PeerAccess => peer_access(call, request),
        UvmKind::Validate => managed::validate(call, request),
        UvmKind::Deinitialize | UvmKind::Plain => Ok(request.forward(call)?),
    }
}

/// Refuses a request that names a client that is not the tenant's. The driver asks whether it is
/// the calling process's (`RS_SHARE_TYPE_PID`, `cliresShareCallback_IMPL()` in client_resource.c),
/// or one that shares with all.
fn check_client(call: &mut impl Call, request: &UvmCall<'_>) -> Result<(), Stop> {
    let Some(client) = request.entry.client else {
        return Ok(());
    };
    let client = get(client, request.bytes)?;
    // CUDA registers a GPU without a client: it is there for partitions of one.
    let is_none = client == 0 && request.entry.kind == UvmKind::RegisterGpu;
    if is_none || owns(call, client) {
        Ok(())
    } else {
        Err(FOREIGN)
    }
}

/// `UVM_ENABLE_PEER_ACCESS` and `UVM_DISABLE_PEER_ACCESS`. The driver takes a lock of all tenants
/// before it looks whether the file has the GPUs (`uvm_api_enable_peer_access()`, uvm_va_space.c),
/// and waits for the file's own lock with it. So what it would refuse does not come so far.
fn peer_access(call: &mut impl Call, request: &mut UvmCall<'_>) -> Result<i32, Stop> {
    let [one, other] = uvm::PEERS;
    let one = call.gpu_by_uuid(&request.uuid(one)?);
    let other = call.gpu_by_uuid(&request.uuid(other)?);
    if one.is_none() || other.is_none() || one == other {
        return Err(Stop::status(NvStatus::NV_ERR_INVALID_DEVICE));
    }
    Ok(request.forward(call)?)
}

fn initialize(call: &mut impl Call, request: &mut UvmCall<'_>) -> Result<i32, Stop> {
    use uvm::initialize::FLAGS;
    let file = request.file;
    call.accounting(|accounting| accounting.begin_space(file))?;
    let wanted = get(FLAGS, request.bytes)?;
    let shared = wanted | uvm::FLAG_MULTI_PROCESS_SHARING_MODE;
    set(FLAGS, request.bytes, shared)?;
    let returned = request.forward(call);
    set(FLAGS, request.bytes, wanted)?;
    Ok(returned?)
}
