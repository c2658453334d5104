// SPDX-License-Identifier: GPL-2.0
//! The UVM proxy, by hand.

use crate::{
    bytes::{put_u32, put_u64, u32_at, u64_at},
    guest::{
        instance::Instance,
        rm,
        tools::{at, equal, holds, sys, tests, Verdict, GIB, GPU, MIB},
        uvm::{uuid, Space, VA_SPACE},
    },
    layout, standin, sys as os,
};

tests! {
    "uvm: initialized in shared mode without showing it" => initialize;
    "uvm: requests of the tools are refused" => tools;
    "uvm: what is mapped stays charged after its free" => keeps;
    "uvm: page tables are charged up to the limit" => tables;
    "uvm: page tables of what UVM maps itself" => fixed_tables;
    "uvm: page tables of regions come and go" => region_tables;
    "uvm: page tables of a range of addresses" => range_tables;
    "uvm: page tables of what RM maps" => rm_tables;
}

fn initialize() -> Verdict {
    let instance = Instance::new("uvm", GIB)?;
    let path = format!("{}/nvidia-uvm", instance.folder());
    let first = sys(&path, os::open(&path, libc::O_RDWR | libc::O_CLOEXEC))?;
    let second = sys(&path, os::open(&path, libc::O_RDWR | libc::O_CLOEXEC))?;
    let mut params = [0; 16];
    sys(
        "initialize",
        os::ioctl(first, layout::UVM_INITIALIZE, &mut params),
    )?;
    equal("flags", &u64_at(&params, 0), &0)?;
    equal("status", &u32_at(&params, 8), &0)?;
    let mut params = [0; 8];
    put_u32(&mut params, 0, u32::try_from(first).unwrap_or(0));
    sys(
        "MM",
        os::ioctl(second, layout::UVM_MM_INITIALIZE, &mut params),
    )?;
    equal("MM status", &u32_at(&params, 4), &0x0001_0006)?;
    sys("close", os::close(second))?;
    sys("close", os::close(first))
}

fn tools() -> Verdict {
    let instance = Instance::new("uvmtools", GIB)?;
    let path = format!("{}/nvidia-uvm", instance.folder());
    let fd = sys(&path, os::open(&path, libc::O_RDWR | libc::O_CLOEXEC))?;
    let mut params = [0; 16];
    sys(
        "initialize",
        os::ioctl(fd, layout::UVM_INITIALIZE, &mut params),
    )?;
    // READ_PROCESS_MEMORY, CLEAN_UP_ZOMBIE_RESOURCES, RUN_TEST.
    for (request, status_at) in [(62, 32), (69, 0), (9, 0)] {
        let mut params = [0; 64];
        let call = os::ioctl(fd, request, &mut params);
        let worked = call.is_ok() && u32_at(&params, status_at) == 0;
        holds(&format!("request {request} works"), !worked)?;
    }
    sys("close", os::close(fd))
}

/// The address at which the test maps memory.
const BASE: u64 = 0x20_0000_0000;
fn keeps() -> Verdict {
    const MEMORY: u32 = 0x5C00_0100;
    const LENGTH: u64 = 4 * MIB;
    let instance = Instance::new("uvmkeeps", GIB)?;
    let client = instance.client()?;
    let uuid = uuid(GPU)?;
    let mut params = [0; 56];
    put_u32(&mut params, 4, OF_UVM);
    let made = client.alloc(rm::DEVICE_HANDLE, 8, VA_SPACE, &mut params);
    at("address space", made)?;
    let space = at("UVM", Space::open(&instance.folder()))?;
    at("register", space.register(&uuid, client.handle, 8))?;

    // The accounting and the stand-in's heap, which says what this test has taken, in three states.
    let idle = standin::heap(GPU)?.used;
    let taken = |what: &str, bytes: u64| -> Verdict {
        equal(&format!("charged {what}"), &instance.used()?, &bytes)?;
        equal(
            &format!("heap {what}"),
            &(standin::heap(GPU)?.used - idle),
            &bytes,
        )
    };
    for end in 0..3 {
        at("range", space.create_range(BASE, LENGTH))?;
        at("memory", client.memory(MEMORY, LENGTH))?;
        let memory = (client.handle, MEMORY);
        at("map", space.map((BASE, LENGTH), &uuid, memory))?;
        taken("while mapped", LENGTH)?;
        at("free", client.free(MEMORY))?;
        taken("after the free", LENGTH)?;
        // It ends with an unmapping, with the range, and with the file.
        if end == 0 {
            at("unmap", space.unmap((BASE, LENGTH), &uuid))?;
            taken("after the unmapping", 0)?;
        }
        if end < 2 {
            at("free", space.free_range(BASE, LENGTH))?;
        } else {
            space.close();
        }
        taken("at the end", 0)?;
    }
    client.close();
    Ok(())
}

/// Flags of an address space as CUDA makes it for UVM: its page tables are UVM's.
const OF_UVM: u32 = 0x48;
/// An address with nothing near it, for whole address spaces of tests.
const FAR: u64 = 0x100_0000_0000;

/// An address space of UVM on an instance, with its client.
fn space(instance: &Instance) -> Result<(Space, crate::guest::rm::Client, [u8; 16]), String> {
    let client = instance.client()?;
    let uuid = uuid(GPU)?;
    let mut params = [0; 56];
    put_u32(&mut params, 4, OF_UVM);
    let device = rm::DEVICE_HANDLE;
    let made = client.alloc(device, 8, VA_SPACE, &mut params);
    at("address space", made)?;
    let space = at("UVM", Space::open(&instance.folder()))?;
    at("register", space.register(&uuid, client.handle, 8))?;
    Ok((space, client, uuid))
}

fn tables() -> Verdict {
    const MEMORY: u32 = 0x5C00_0100;
    const PAGE: u64 = 4096;
    const STRIDE: u64 = 512 * MIB;
    // One object of 2 MiB, and 8 KiB of tables for each page of it that is mapped far from others.
    const LIMIT: u64 = 4 * MIB;
    let instance = Instance::new("tables", LIMIT)?;
    let (space, client, uuid) = space(&instance)?;
    at("memory", client.memory(MEMORY, 2 * MIB))?;
    let memory = (client.handle, MEMORY);
    let before = standin::heap(GPU)?.tables;
    let overhead = || instance.get().map(|i| i.memory_overhead_bytes);
    let agree = |what: &str| -> Verdict {
        let there = standin::heap(GPU)?.tables - before;
        equal(what, &overhead()?, &there)
    };

    let mut mapped = 0;
    let refusal = loop {
        let base = FAR + mapped * STRIDE;
        at("range", space.create_range(base, PAGE))?;
        if let Err(refusal) = space.map((base, PAGE), &uuid, memory) {
            at("free of a range", space.free_range(base, PAGE))?;
            break refusal;
        }
        mapped += 1;
        holds("there is no end", mapped < 1000)?;
    };
    equal("refusal", &refusal.status(), &Some(0x51))?;
    holds("too few", mapped > 200)?;
    agree("full")?;
    let share = instance.get()?;
    let taken = share.memory_used_bytes + share.memory_overhead_bytes;
    holds(
        "over the limit",
        taken <= LIMIT && taken + 16 * 1024 > LIMIT,
    )?;
    // The answer is the free memory, and it can be had again when some of it is gone.
    let free = at("FB_GET_INFO", client.fb_info(&[rm::HEAP_FREE]))?;
    equal(
        "free",
        &(u64::from(free[0]) << 10),
        &((LIMIT - taken) & !1023),
    )?;
    for number in 0..mapped / 2 {
        let base = FAR + number * STRIDE;
        if number % 2 == 0 {
            at("unmap", space.unmap((base, PAGE), &uuid))?;
        }
        at("free of a range", space.free_range(base, PAGE))?;
        agree("half of it")?;
    }
    // Large pages take next to nothing: 2 MiB that lie on a multiple of 2 MiB.
    let (base, less) = (FAR + 2048 * STRIDE, overhead()?);
    at("range", space.create_range(base, 2 * MIB))?;
    at("map", space.map((base, 2 * MIB), &uuid, memory))?;
    agree("a large page")?;
    holds("a large page is dear", overhead()? - less <= 3 * 4096)?;
    sys("close", os::close(space.fd))?;
    agree("at the end")?;
    equal("at the end", &overhead()?, &0)?;
    client.close();
    Ok(())
}

fn fixed_tables() -> Verdict {
    let instance = Instance::new("fixed", 4 * MIB)?;
    let (space, client, uuid) = space(&instance)?;
    let before = standin::heap(GPU)?.tables;
    let overhead = || instance.get().map(|i| i.memory_overhead_bytes);
    let pool = |base: u64| {
        let mut params = vec![0; 9248];
        put_u64(&mut params, 0, base);
        put_u64(&mut params, 8, 4096);
        space.call(layout::UVM_ALLOC_SEMAPHORE_POOL, &mut params, 9240)
    };
    let mut made = 0;
    let refusal = loop {
        match pool(FAR + made * 512 * MIB) {
            Ok(()) => made += 1,
            Err(refusal) => break refusal,
        }
        holds("there is no end", made < 1000)?;
    };
    equal("refusal", &refusal.status(), &Some(0x51))?;
    let there = standin::heap(GPU)?.tables - before;
    holds("more is there than is charged", there <= overhead()?)?;
    let left = instance.get()?.memory_limit_bytes - overhead()?;
    holds("too few", made > 200 && left < 16 * 1024)?;
    // No driver says for certain that a pool is gone, so it stays charged. A new one at the same
    // addresses is paid for already.
    at("free", space.free_range(FAR, 4096))?;
    holds("a pool too many", pool(FAR + 1000 * 512 * MIB).is_err())?;
    at("the same again", pool(FAR))?;
    let region = |base: u64| {
        let mut params = [0; 40];
        put_u64(&mut params, 0, base);
        put_u64(&mut params, 8, 4096);
        params[16..32].copy_from_slice(&uuid);
        space.call(layout::UVM_MAP_DYNAMIC_PARALLELISM_REGION, &mut params, 32)
    };
    let sked = region(FAR + 1000 * 512 * MIB);
    holds("another way to the same", sked.is_err())?;
    sys("close", os::close(space.fd))?;
    equal("at the end", &overhead()?, &0)?;
    equal("tables at the end", &standin::heap(GPU)?.tables, &before)?;
    client.close();
    Ok(())
}

fn region_tables() -> Verdict {
    let instance = Instance::new("regions", 4 * MIB)?;
    let (space, client, uuid) = space(&instance)?;
    let overhead = || instance.get().map(|i| i.memory_overhead_bytes);
    let before = overhead()?;
    for turn in 0..1000 {
        let base = FAR + turn * 512 * MIB;
        let mut params = [0; 40];
        put_u64(&mut params, 0, base);
        put_u64(&mut params, 8, 4096);
        params[16..32].copy_from_slice(&uuid);
        let made = space.call(layout::UVM_MAP_DYNAMIC_PARALLELISM_REGION, &mut params, 32);
        at("region", made)?;
        holds("it costs nothing", overhead()? > before)?;
        at("free", space.free_range(base, 4096))?;
        equal("after it", &overhead()?, &before)?;
    }
    sys("close", os::close(space.fd))?;
    client.close();
    Ok(())
}

fn range_tables() -> Verdict {
    const RANGE: u32 = 0x5C00_0110;
    const VIRTUAL: u32 = 0x50A0;
    const LAZY: u32 = 0x400;
    let instance = Instance::new("ranges", GIB)?;
    let client = instance.client()?;
    let before = standin::heap(GPU)?.ranges;
    let overhead = || instance.get().map(|i| i.memory_overhead_bytes);
    let range = |bytes: u64, flags: u32| {
        let mut params = crate::guest::rm::memory_params(client.handle, bytes);
        put_u32(&mut params, 8, 0x8_0000 | flags);
        put_u32(&mut params, 24, 0);
        client.alloc(rm::DEVICE_HANDLE, RANGE, VIRTUAL, &mut params)
    };
    // As CUDA makes one: nothing of it is in the GPU.
    at("lazy", range(1 << 40, LAZY))?;
    equal("charged lazily", &overhead()?, &0)?;
    at("free", client.free(RANGE))?;
    // Its page tables are 2 GiB at once.
    let refused = range(1 << 40, 0).err().and_then(|e| e.status());
    equal("1 TiB", &refused, &Some(0x51))?;
    at("64 GiB", range(64 << 30, 0))?;
    let there = standin::heap(GPU)?.ranges - before;
    let charged = overhead()?;
    holds("no tables", there >= 128 * MIB)?;
    holds(
        "too little",
        charged >= there && charged < there + there / 8,
    )?;
    at("free", client.free(RANGE))?;
    equal("after the free", &overhead()?, &0)?;
    // Address spaces have some, too, unless they are UVM's.
    for (number, flags) in (0..4).zip([0, OF_UVM, 0, OF_UVM]) {
        let mut params = [0; 56];
        put_u32(&mut params, 4, flags);
        let device = rm::DEVICE_HANDLE;
        let made = client.alloc(device, RANGE + number, VA_SPACE, &mut params);
        at("address space", made)?;
    }
    equal("address spaces", &overhead()?, &(40 << 10))?;
    let there = standin::heap(GPU)?.ranges - before;
    equal("their tables", &there, &(40 << 10))?;
    client.close();
    equal("after the end", &overhead()?, &0)?;
    equal("tables", &standin::heap(GPU)?.ranges, &before)
}

fn rm_tables() -> Verdict {
    use cgpu_uapi::capability;
    const RANGES: [u32; 2] = [0x5C00_0120, 0x5C00_0121];
    const WHOLE: u32 = 0x70;
    const MEMORY: u32 = 0x5C00_0122;
    const MAPS: u64 = 400;
    let instance = Instance::new("mapper", 8 * MIB)?;
    let bits = capability::COMPUTE | capability::GRAPHICS;
    let set = instance.control.set_capabilities("mapper", GPU, bits);
    sys("capabilities", set)?;
    let client = instance.client()?;
    let (used, before) = (standin::heap(GPU)?.used, standin::heap(GPU)?.ranges);
    at("memory", client.memory(MEMORY, 2 * MIB))?;
    let device = rm::DEVICE_HANDLE;
    let mut params = crate::guest::rm::memory_params(client.handle, 1 << 46);
    put_u32(&mut params, 8, 0x8_0400);
    put_u32(&mut params, 24, 0);
    at("lazy", client.alloc(device, RANGES[0], 0x50A0, &mut params))?;
    at(
        "whole",
        client.alloc(device, RANGES[1], WHOLE, &mut [0; 24]),
    )?;
    let map = |range: u32, place: u64| {
        let mut outer = [0; 64];
        for (at, value) in [(0, client.handle), (4, device), (8, range), (12, MEMORY)] {
            put_u32(&mut outer, at, value);
        }
        put_u64(&mut outer, 24, 4096);
        // NVOS46_FLAGS_DMA_OFFSET_FIXED.
        put_u32(&mut outer, 32, 1 << 15);
        put_u64(&mut outer, 48, place);
        let called = os::ioctl(client.ctl, 0xC040_4657, &mut outer);
        called.map(|_| u32_at(&outer, 56))
    };
    // Each takes tables of its own, which nothing shows.
    let mut mapped = 0;
    while mapped < MAPS {
        let range = RANGES[usize::from(mapped % 2 == 1)];
        match sys("map", map(range, (mapped + 1) << 38))? {
            0 => mapped += 1,
            0x51 => break,
            status => return Err(format!("mapping {mapped}: status {status:#x}")),
        }
    }
    holds("no end of them", mapped > 100 && mapped < MAPS)?;
    let heap = standin::heap(GPU)?;
    let (there, own) = (heap.ranges - before, heap.used - used);
    let charged = instance.get().map(|i| i.memory_overhead_bytes)?;
    holds("no tables", there >= mapped * 12 * 1024)?;
    holds("too little", charged >= there)?;
    holds("more than the limit", there + own <= 8 * MIB)?;
    for range in RANGES {
        at("free", client.free(range))?;
    }
    let charged = instance.get().map(|i| i.memory_overhead_bytes)?;
    equal("after the end", &charged, &0)?;
    equal("tables", &standin::heap(GPU)?.ranges, &before)?;
    client.close();
    Ok(())
}
