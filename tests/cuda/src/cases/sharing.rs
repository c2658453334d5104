// SPDX-License-Identifier: GPL-2.0
//! Memory that is more than an allocation: reserved addresses, pools, and what another process
//! opens.

use std::{
    fs::File,
    os::fd::{FromRawFd, OwnedFd},
    process::Stdio,
};

use crate::{
    api::{
        AccessDescription, AllocationProperties, Cuda, IpcHandle, MemoryLocation, PoolProperties,
    },
    device::{pattern, same, Event, Memory, Stream},
    peer,
    verdict::{ensure, Verdict},
};

const MIB: usize = 1 << 20;
/// `CU_MEM_LOCATION_TYPE_DEVICE`.
const ON_DEVICE: i32 = 1;
/// `CU_MEM_ALLOCATION_TYPE_PINNED`.
const PINNED: i32 = 1;
/// `CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR`.
const DESCRIPTOR: i32 = 1;

/// Addresses are reserved, memory is mapped there and elsewhere, and exported to another process.
pub(super) fn virtual_memory(cuda: &Cuda, device: i32) -> Verdict {
    let location = MemoryLocation {
        kind: ON_DEVICE,
        device,
    };
    let properties = AllocationProperties {
        kind: PINNED,
        handle_types: DESCRIPTOR,
        location,
        ..AllocationProperties::default()
    };
    let mut piece = 0;
    cuda.granularity(&mut piece, &properties, 0)?;
    let bytes = (4 * MIB).next_multiple_of(piece);
    let (mut first, mut allocation) = (0, 0);
    cuda.address_reserve(&mut first, 2 * bytes, 0, 0, 0)?;
    let second = first + bytes as u64;
    cuda.allocation_create(&mut allocation, bytes, &properties, 0)?;
    for at in [first, second] {
        cuda.allocation_map(at, bytes, 0, allocation, 0)?;
    }
    cuda.set_access(
        first,
        2 * bytes,
        &AccessDescription {
            location,
            rights: 3,
        },
        1,
    )?;
    let written = pattern(bytes, peer::GIVEN);
    let mut read = vec![0; bytes];
    cuda.copy_in(first, &written)?;
    cuda.copy_out(&mut read, second)?;
    same(&read, &written).map_err(|why| format!("at the other address: {why}"))?;

    let mut descriptor = -1;
    cuda.allocation_export(&mut descriptor, allocation, DESCRIPTOR, 0)?;
    // SAFETY: libcuda has just opened it for us, and keeps nothing of it.
    let descriptor = unsafe { OwnedFd::from_raw_fd(descriptor) };
    peer::start("import", device, bytes, Stdio::from(File::from(descriptor)))?.end()?;
    cuda.copy_out(&mut read, first)?;
    same(&read, &pattern(bytes, peer::ANSWERED))
        .map_err(|why| format!("written by the other process: {why}"))?;

    for at in [first, second] {
        cuda.allocation_unmap(at, bytes)?;
    }
    cuda.allocation_release(allocation)?;
    Ok(cuda.address_free(first, 2 * bytes)?)
}

/// Memory that a stream allocates and frees, from the device's own pool and from one of the
/// program's.
pub(super) fn pools(cuda: &Cuda, device: i32) -> Verdict {
    const SIZE: usize = 4 * MIB;
    let stream = Stream::new(cuda)?;
    let (mut usual, mut own, mut address) = (0, 0, 0);
    cuda.pool_default(&mut usual, device)?;
    cuda.pool_create(
        &mut own,
        &PoolProperties {
            handle_types: 0,
            ..exported(device)
        },
    )?;
    let written = pattern(SIZE, 37);
    for pool in [usual, own] {
        cuda.pool_allocate(&mut address, SIZE, pool, stream.handle)?;
        stream.wait()?;
        cuda.copy_in(address, &written)?;
        let mut read = vec![0; SIZE];
        cuda.copy_out(&mut read, address)?;
        same(&read, &written)?;
        cuda.free_async(address, stream.handle)?;
        stream.wait()?;
        cuda.pool_trim(pool, 0)?;
    }
    cuda.allocate_async(&mut address, SIZE, stream.handle)?;
    cuda.free_async(address, stream.handle)?;
    stream.wait()?;
    Ok(cuda.pool_destroy(own)?)
}

/// The properties of a pool that another process may open.
fn exported(device: i32) -> PoolProperties {
    PoolProperties {
        kind: PINNED,
        handle_types: DESCRIPTOR,
        location: MemoryLocation {
            kind: ON_DEVICE,
            device,
        },
        security: 0,
        largest: 0,
        reserved: [0; 7],
    }
}

/// A pool is exported as a file descriptor.
pub(super) fn pool_export(cuda: &Cuda, device: i32) -> Verdict {
    let mut pool = 0;
    cuda.pool_create(&mut pool, &exported(device))?;
    let mut descriptor = -1;
    // A pool whose export was refused is left alone: libcuda 550 faults when it is destroyed then.
    cuda.pool_export(&mut descriptor, pool, DESCRIPTOR, 0)?;
    // SAFETY: libcuda has just opened it for us, and keeps nothing of it.
    drop(unsafe { OwnedFd::from_raw_fd(descriptor) });
    Ok(cuda.pool_destroy(pool)?)
}

/// Another process opens our memory and our event, reads what is there and answers.
pub(super) fn ipc(cuda: &Cuda, device: i32) -> Verdict {
    /// `CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS`.
    const SHARED_EVENT: u32 = 2 | 4;
    const SIZE: usize = 2 * MIB;
    let memory = Memory::new(cuda, SIZE)?;
    let event = Event::new(cuda, SHARED_EVENT)?;
    let stream = Stream::new(cuda)?;
    cuda.copy_in(memory.address, &pattern(SIZE, peer::GIVEN))?;
    cuda.event_record(event.handle, stream.handle)?;
    let (mut shown, mut signalled) = (IpcHandle([0; 64]), IpcHandle([0; 64]));
    cuda.ipc_memory(&mut shown, memory.address)?;
    cuda.ipc_event(&mut signalled, event.handle)?;
    ensure(shown.0 != signalled.0, || {
        "both handles are the same".into()
    })?;
    let mut other = peer::start("open", device, SIZE, Stdio::piped())?;
    other.send(&shown)?;
    other.send(&signalled)?;
    other.end()?;
    let mut read = vec![0; SIZE];
    cuda.copy_out(&mut read, memory.address)?;
    same(&read, &pattern(SIZE, peer::ANSWERED))
        .map_err(|why| format!("written by the other process: {why}"))?;
    Ok(memory.free()?)
}
