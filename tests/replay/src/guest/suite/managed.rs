// SPDX-License-Identifier: GPL-2.0
//! Managed memory through an instance: what its GPU holds, by the stand-in's own figures, is never
//! more than the limit.

use cgpu_uapi::{Cause, Limited, ManagedMode};

use crate::{
    bytes::{put_u32, put_u64, u32_at},
    guest::{
        instance::Instance,
        process, rm,
        tools::{at, control, equal, fails, holds, sys, tests, Verdict, GIB, GPU, MIB},
        uvm::{space_params, uuid, Space, CPU, VA_SPACE},
    },
    standin::{self, Switched},
    sys as os,
};

tests! {
    "managed: what does not fit stays in host memory" => spills;
    "managed: touched at once, it stays within the limit" => touched_at_once;
    "managed: memory objects get room, and it comes back" => makes_room;
    "managed: limits change while it is mapped" => limits;
    "managed: refused in modes charge and deny" => refused;
    "managed: partial, replaced, moved and inherited mappings" => mappings;
    "managed: an ended child's memory still counts" => ended;
    "managed: threads that map, migrate and allocate" => threads;
}

const BASE: u64 = 0x30_0000_0000;
/// Managed memory that counts at the limit of the tests.
const LIMIT: u64 = 64 * MIB;
/// Room for page tables beside it, less than managed memory comes in.
const TABLES: u64 = MIB;
const MEMORY: u32 = 0x5C00_0200;
const SPACE_HANDLE: u32 = 8;
const SHARED: i32 = libc::MAP_SHARED;
const READ_WRITE: i32 = libc::PROT_READ | libc::PROT_WRITE;

/// A program with a UVM file on an instance, and what the GPU held before.
struct ManagedProgram {
    instance: Instance,
    client: rm::Client,
    space: Space,
    resident_before: u64,
    used_before: u64,
}

impl ManagedProgram {
    fn new(name: &'static str) -> Result<Self, String> {
        let before = standin::heap(GPU)?;
        let instance = Instance::new(name, LIMIT + TABLES)?;
        let client = instance.client()?;
        let device = rm::DEVICE_HANDLE;
        let made = client.alloc(device, SPACE_HANDLE, VA_SPACE, &mut space_params());
        at("address space", made)?;
        let space = at("UVM", Space::open(&instance.folder()))?;
        let registered = space.register(&uuid(GPU)?, client.handle, SPACE_HANDLE);
        at("register", registered)?;
        Ok(Self {
            instance,
            client,
            space,
            resident_before: before.resident,
            used_before: before.used,
        })
    }

    fn try_map(&self, base: u64, length: u64) -> Result<(), i32> {
        os::mmap(base, length, READ_WRITE, SHARED, self.space.fd, base).map(drop)
    }

    fn map(&self, base: u64, length: u64) -> Verdict {
        sys("mmap", self.try_map(base, length))
    }

    fn unmap(&self, base: u64, length: u64) -> Verdict {
        // SAFETY: the tests map nothing else there.
        sys("munmap", unsafe { os::munmap(base, length) })
    }

    /// A request about a span; its status.
    fn ask(
        &self,
        request: u32,
        base: u64,
        length: u64,
        to: Option<[u8; 16]>,
    ) -> Result<u32, String> {
        let mut params = [0; 80];
        put_u64(&mut params, 0, base);
        put_u64(&mut params, 8, length);
        if let Some(uuid) = to {
            params[16..32].copy_from_slice(&uuid);
        }
        let status_at = match request {
            42 => {
                put_u32(&mut params, 32, u32::MAX);
                36
            }
            51 => {
                put_u32(&mut params, 52, u32::MAX);
                72
            }
            46 | 47 => 32,
            _ => 16,
        };
        sys("request", os::ioctl(self.space.fd, request, &mut params))?;
        Ok(u32_at(&params, status_at))
    }

    /// The instance's managed memory: on the GPU, and spilled.
    fn figures(&self) -> Result<(u64, u64), String> {
        let instance = self.instance.get()?;
        Ok((instance.memory_managed_bytes, instance.memory_spilled_bytes))
    }

    /// The GPU touches it all, and holds so much of it then.
    fn touched(&self, base: u64, length: u64) -> Result<u64, String> {
        standin::touch(GPU, base, length)?;
        Ok(standin::heap(GPU)?.resident - self.resident_before)
    }

    /// Objects and managed memory with data, by the stand-in.
    fn on_gpu(&self) -> Result<u64, String> {
        let heap = standin::heap(GPU)?;
        Ok(heap.resident - self.resident_before + heap.used - self.used_before)
    }

    fn end(self) -> Verdict {
        self.client.close();
        self.space.close();
        let heap = standin::heap(GPU)?;
        equal(
            "on the GPU at the end",
            &heap.resident,
            &self.resident_before,
        )?;
        let instance = self.instance.get()?;
        equal("managed at the end", &instance.memory_managed_bytes, &0)?;
        equal("spilled at the end", &instance.memory_spilled_bytes, &0)
    }
}

fn spills() -> Verdict {
    let program = ManagedProgram::new("spills")?;
    let gpu = uuid(GPU)?;
    let length = 2 * LIMIT;
    program.map(BASE, length)?;
    equal("figures", &program.figures()?, &(LIMIT, LIMIT))?;
    equal("validated", &program.ask(72, BASE, length, None)?, &0)?;
    equal("touched", &program.touched(BASE, length)?, &LIMIT)?;
    // This could undo it: the driver gets none of it for what is spilled.
    let mut group = [0; 16];
    at("group", program.space.call(23, &mut group, 8))?;
    let mut member = [0; 32];
    member[..8].copy_from_slice(&group[..8]);
    put_u64(&mut member, 8, BASE);
    put_u64(&mut member, 16, length);
    at("member", program.space.call(31, &mut member, 24))?;
    let undo: [(u32, Option<[u8; 16]>); 9] = [
        (43, None),
        (42, Some(gpu)),
        (51, Some(gpu)),
        (44, None),
        (51, Some(gpu)),
        (46, Some(gpu)),
        (45, None),
        (42, Some(CPU)),
        (43, None),
    ];
    for (request, to) in undo {
        let what = format!("request {request}");
        equal(&what, &program.ask(request, BASE, length, to)?, &0)?;
        let upper = BASE + LIMIT;
        equal(&what, &program.ask(request, upper, LIMIT, to)?, &0)?;
        equal(&what, &program.touched(BASE, length)?, &LIMIT)?;
    }
    let mut migrate = [0; 32];
    migrate[..8].copy_from_slice(&group[..8]);
    migrate[8..24].copy_from_slice(&gpu);
    at("migrate", program.space.call(53, &mut migrate, 24))?;
    equal("group", &program.touched(BASE, length)?, &LIMIT)?;
    // Addresses that are no managed memory: the driver's own answer.
    equal(
        "elsewhere",
        &program.ask(51, BASE - MIB, MIB, Some(gpu))?,
        &0x1E,
    )?;
    // The first half goes, the second comes back.
    program.unmap(BASE, LIMIT)?;
    equal("request", &program.ask(72, BASE + LIMIT, LIMIT, None)?, &0)?;
    equal("figures", &program.figures()?, &(LIMIT, 0))?;
    equal("touched", &program.touched(BASE + LIMIT, LIMIT)?, &LIMIT)?;
    program.unmap(BASE + LIMIT, LIMIT)?;
    equal("figures", &program.figures()?, &(0, 0))?;
    program.end()
}

fn touched_at_once() -> Verdict {
    let _touch = Switched::on(standin::touch_new)?;
    let program = ManagedProgram::new("atonce")?;
    // In the moment before the driver is told a GPU can touch some, sixteen times: see
    // docs/managed-memory.md. Here it touches all of a range, which a real one has not the time
    // for.
    const MAPPINGS: u64 = 40;
    // More of it is spilled than the test machine lets an instance have.
    let (host_side, name) = (&program.instance.control, program.instance.name);
    let host = Limited::HostMemory.number();
    sys("host memory", host_side.set_limit(name, GPU, host, 4 * GIB))?;
    for number in 0..MAPPINGS {
        program.map(BASE + number * LIMIT, LIMIT)?;
    }
    // The memory that counted has made room for the page tables of all.
    let (counted, spilled) = program.figures()?;
    equal("figures", &(counted + spilled), &(MAPPINGS * LIMIT))?;
    let share = program.instance.get()?;
    let tables = share.memory_overhead_bytes;
    holds(
        "page tables of 2 MiB each",
        tables >= MAPPINGS * LIMIT / 512,
    )?;
    holds("more than the limit", counted + tables <= LIMIT + TABLES)?;
    holds("too little", counted + tables + 2 * MIB > LIMIT + TABLES)?;
    holds("more is on the GPU", program.on_gpu()? <= 17 * LIMIT)?;
    program.unmap(BASE, MAPPINGS * LIMIT)?;
    program.end()
}

fn makes_room() -> Verdict {
    let program = ManagedProgram::new("room")?;
    program.map(BASE, LIMIT)?;
    equal("touched", &program.touched(BASE, LIMIT)?, &LIMIT)?;
    at("memory", program.client.memory(MEMORY, 16 * MIB))?;
    equal(
        "figures",
        &program.figures()?,
        &(LIMIT - 16 * MIB, 16 * MIB),
    )?;
    program.touched(BASE, LIMIT)?;
    equal("on the GPU", &program.on_gpu()?, &LIMIT)?;
    let more = program.client.memory(MEMORY + 1, LIMIT);
    holds("more than the limit", more.is_err())?;
    equal(
        "figures",
        &program.figures()?,
        &(LIMIT - 16 * MIB, 16 * MIB),
    )?;
    at("free", program.client.free(MEMORY))?;
    equal("figures", &program.figures()?, &(LIMIT, 0))?;
    equal("touched", &program.touched(BASE, LIMIT)?, &LIMIT)?;
    program.unmap(BASE, LIMIT)?;
    program.end()
}

fn limits() -> Verdict {
    let program = ManagedProgram::new("limits")?;
    program.map(BASE, LIMIT)?;
    program.touched(BASE, LIMIT)?;
    program.instance.set_memory(LIMIT / 2 + TABLES)?;
    equal("lower", &program.figures()?, &(LIMIT / 2, LIMIT / 2))?;
    equal("touched", &program.touched(BASE, LIMIT)?, &(LIMIT / 2))?;
    program.instance.set_memory(LIMIT + TABLES)?;
    equal("higher", &program.figures()?, &(LIMIT, 0))?;
    equal("touched", &program.touched(BASE, LIMIT)?, &LIMIT)?;
    // In the other modes what is there stays, over the limit.
    for mode in [ManagedMode::Charge, ManagedMode::Deny] {
        let set = control()?.set_managed("limits", GPU, mode.number());
        sys("set-managed", set)?;
        program.instance.set_memory(LIMIT / 2 + TABLES)?;
        equal("kept", &program.figures()?, &(LIMIT, 0))?;
        program.instance.set_memory(LIMIT + TABLES)?;
    }
    let wrong = control()?.set_managed("limits", GPU, 3);
    fails("mode 3", wrong, Cause::Malformed.errno())?;
    program.unmap(BASE, LIMIT)?;
    program.end()
}

fn refused() -> Verdict {
    let program = ManagedProgram::new("refused")?;
    let set = |mode: ManagedMode| {
        let set = control()?.set_managed("refused", GPU, mode.number());
        sys("set-managed", set)
    };
    program.map(BASE, LIMIT / 2)?;
    set(ManagedMode::Charge)?;
    let second = BASE + LIMIT;
    fails("charge", program.try_map(second, LIMIT), libc::ENOMEM)?;
    // The driver has none of it.
    equal("validated", &program.ask(72, second, LIMIT, None)?, &0x1E)?;
    program.map(second, LIMIT / 2)?;
    equal("figures", &program.figures()?, &(LIMIT, 0))?;
    holds("an object", program.client.memory(MEMORY, 2 * MIB).is_err())?;
    program.unmap(second, LIMIT / 2)?;
    set(ManagedMode::Deny)?;
    fails("deny", program.try_map(second, 4096), libc::ENOMEM)?;
    equal("touched", &program.touched(BASE, 2 * LIMIT)?, &(LIMIT / 2))?;
    equal("refused", &program.instance.get()?.managed_refused, &2)?;
    // A semaphore pool is no managed memory.
    let pool = BASE + 4 * LIMIT;
    let mut params = [0; 9248];
    put_u64(&mut params, 0, pool);
    put_u64(&mut params, 8, 2 * MIB);
    at("pool", program.space.call(68, &mut params, 9240))?;
    program.map(pool, 2 * MIB)?;
    program.unmap(pool, 2 * MIB)?;
    equal("refused", &program.instance.get()?.managed_refused, &2)?;
    program.unmap(BASE, LIMIT / 2)?;
    program.end()
}

fn mappings() -> Verdict {
    let program = ManagedProgram::new("mappings")?;
    program.map(BASE, LIMIT)?;
    // A hole in the middle, and something in its place.
    program.unmap(BASE + 8 * MIB, 8 * MIB)?;
    equal("hole", &program.figures()?, &(LIMIT - 8 * MIB, 0))?;
    program.map(BASE + 8 * MIB, 16 * 4096)?;
    equal("filled", &program.figures()?, &(LIMIT - 6 * MIB, 0))?;
    // All of it replaced.
    // SAFETY: Only the test's own mappings are there.
    sys("replace", unsafe {
        os::map_over(program.space.fd, BASE, 2 * LIMIT)
    })?;
    equal("replaced", &program.figures()?, &(LIMIT, LIMIT))?;
    equal("touched", &program.touched(BASE, 2 * LIMIT)?, &LIMIT)?;
    // Moved: the driver gives the memory up.
    // SAFETY: Only the test's own mappings are at either place.
    sys("move", unsafe {
        os::move_mapping(BASE, BASE + 16 * LIMIT, 2 * LIMIT)
    })?;
    equal("moved", &program.figures()?, &(0, 0))?;
    program.unmap(BASE + 16 * LIMIT, 2 * LIMIT)?;
    // A child has none of it, and its end ends nothing.
    program.map(BASE, LIMIT)?;
    let before = program.figures()?;
    process::in_child(|| {
        let other = program.try_map(BASE + 4 * LIMIT, LIMIT);
        fails("a child's mmap", other, libc::EOPNOTSUPP)
    })?;
    equal("after a child", &program.figures()?, &before)?;
    program.map(BASE + 4 * LIMIT, LIMIT)?;
    program.unmap(BASE + 4 * LIMIT, LIMIT)?;
    program.unmap(BASE, LIMIT)?;
    program.end()
}

fn ended() -> Verdict {
    let program = ManagedProgram::new("ended")?;
    process::in_child(|| {
        program.map(BASE, LIMIT)?;
        equal("touched by a child", &program.touched(BASE, LIMIT)?, &0)?;
        // To the child's own GPU work, which the stand-in knows by the process that made the file.
        equal(
            "migrated",
            &program.ask(51, BASE, LIMIT, Some(uuid(GPU)?))?,
            &0,
        )
    })?;
    // The child's memory stays on the GPU, so it counts.
    equal("on the GPU", &program.on_gpu()?, &LIMIT)?;
    equal("figures", &program.figures()?, &(LIMIT, 0))?;
    // It is the child that has the file's mappings, although it has ended.
    let again = program.try_map(BASE + LIMIT, LIMIT);
    fails("the parent's mmap", again, libc::EOPNOTSUPP)?;
    equal("figures", &program.figures()?, &(LIMIT, 0))?;
    program.end()
}

/// A step of splitmix64.
fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut x = *state;
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

fn threads() -> Verdict {
    let program = ManagedProgram::new("threads")?;
    let gpu = uuid(GPU)?;
    // A GPU can keep what it touches in the moment after an `mmap`, so often in a file
    // (`MOST_PROMPT`, policy/managed.rs). From then on it keeps nothing, which is counted here.
    for _ in 0..16 {
        program.map(BASE, 2 * LIMIT)?;
        program.unmap(BASE, 2 * LIMIT)?;
    }
    let work = |thread: u64| -> Verdict {
        let mut state = thread;
        for _ in 0..150 {
            let number = random(&mut state) % 8;
            let base = BASE + number * LIMIT;
            let length = (1 + random(&mut state) % 24) * 2 * MIB;
            match random(&mut state) % 8 {
                // Each may fail: other threads do the same.
                0 | 1 => drop(program.try_map(base, length)),
                2 => drop(program.unmap(base, length)),
                3 => drop(program.ask(51, base, length, Some(gpu))?),
                4 => drop(program.ask(42, base, length, Some(gpu))?),
                5 => drop(program.ask(43, base, length, None)?),
                6 => drop(program.client.memory(MEMORY + thread as u32, length)),
                _ => drop(program.client.free(MEMORY + thread as u32)),
            }
            standin::touch(GPU, base, length)?;
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let started: Vec<_> = (0..3)
            .map(|thread| scope.spawn(move || work(thread)))
            .collect();
        started.into_iter().try_for_each(|thread| {
            let ended = thread.join();
            ended.unwrap_or_else(|_| Err("a thread panicked".to_owned()))
        })
    })?;
    standin::touch(GPU, BASE, 8 * LIMIT)?;
    let share = program.instance.get()?;
    let counted = share.memory_managed_bytes + share.memory_used_bytes;
    holds("more counts than the limit", counted <= LIMIT)?;
    let on_gpu = program.on_gpu()?;
    holds(
        &format!("{on_gpu} on the GPU, {counted} counted"),
        on_gpu <= counted,
    )?;
    program.unmap(BASE, 9 * LIMIT)?;
    program.end()
}
