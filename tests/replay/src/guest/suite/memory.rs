// SPDX-License-Identifier: GPL-2.0
//! The memory limit, by hand.

use super::doorbell::wait_for;
use crate::{
    bytes::{put_u32, put_u64, u32_at, u64_at},
    guest::{
        instance::Instance,
        process::spawn,
        rm::{self, Failure},
        tools::{at, control, equal, holds, sys, tests, Verdict, GIB, GPU, MIB},
    },
    layout,
    standin::{self, Switched},
    sys as os,
};

tests! {
    "memory: granted up to the limit, refused beyond" => boundary;
    "memory: a refusal changes nothing" => refusal;
    "memory: sizes are charged as the driver rounds them" => rounding;
    "memory: VID_HEAP_CONTROL counts too" => vid_heap;
    "memory: what is freed with an ancestor is credited" => ancestors;
    "memory: a close or an exit credits everything" => exits;
    "memory: a copy shares the charge" => duplicates;
    "memory: a place in the fabric shares the charge" => fabric;
    "memory: limits change while in use" => live;
    "memory: poll reports a limit below what is used" => told;
    "memory: reports show the limit" => reports;
    "memory: an unmapped address is EFAULT or a status" => bad_pointer;
    "memory: an answer that cannot be written is charged" => unwritable;
    "memory: many processes at the limit at once" => race;
}

const FIRST: u32 = 0x5C00_0010;

fn refused<T: std::fmt::Debug>(what: &str, result: Result<T, Failure>) -> Verdict {
    match result {
        Err(Failure::Status(rm::NO_MEMORY)) => Ok(()),
        other => Err(format!("{what}: {other:?}, not status 0x51")),
    }
}

fn boundary() -> Verdict {
    let instance = Instance::new("boundary", 256 * MIB)?;
    let client = instance.client()?;
    refused("one block more", client.memory(FIRST, 258 * MIB))?;
    equal(
        "granted",
        &at("all", client.memory(FIRST, 256 * MIB))?,
        &(256 * MIB),
    )?;
    refused("beyond", client.memory(FIRST + 1, 2 * MIB))?;
    refused("beyond", client.memory(FIRST + 1, 1))?;
    let seen = instance.get()?;
    equal("used", &seen.memory_used_bytes, &(256 * MIB))?;
    equal("refused", &seen.memory_refused, &3)?;
    at("free", client.free(FIRST))?;
    at("again", client.memory(FIRST, 128 * MIB))?;
    at("again", client.memory(FIRST + 1, 128 * MIB))?;
    client.close();
    let seen = instance.get()?;
    equal("used", &seen.memory_used_bytes, &0)?;
    equal("peak", &seen.memory_peak_bytes, &(256 * MIB))
}

fn refusal() -> Verdict {
    let instance = Instance::new("refusal", 64 * MIB)?;
    let client = instance.client()?;
    let mut params = rm::memory_params(client.handle, GIB);
    let before = params;
    let result = client.alloc(rm::DEVICE_HANDLE, FIRST, rm::VIDEO_MEMORY, &mut params);
    refused("alloc", result)?;
    holds("the parameters were changed", params == before)?;
    // The handle is free: it can be used at once.
    at("smaller", client.memory(FIRST, 2 * MIB))?;
    client.close();
    Ok(())
}

fn rounding() -> Verdict {
    let instance = Instance::new("rounding", 64 * MIB)?;
    let client = instance.client()?;
    for bytes in [1, 4096, 2 * MIB - 1, 2 * MIB, 2 * MIB + 1, 5 * MIB] {
        let given = at("alloc", client.memory(FIRST, bytes))?;
        holds("less than asked for", given >= bytes)?;
        equal("charged", &instance.used()?, &given)?;
        at("free", client.free(FIRST))?;
    }
    client.close();
    Ok(())
}

fn vid_heap() -> Verdict {
    let instance = Instance::new("vidheap", 64 * MIB)?;
    let client = instance.client()?;
    let alloc = |handle, bytes| {
        rm::vid_heap_alloc(client.ctl, client.handle, rm::DEVICE_HANDLE, handle, bytes)
    };
    let (_, given) = at("alloc", alloc(FIRST, 32 * MIB))?;
    equal("charged", &instance.used()?, &given)?;
    refused("beyond", alloc(FIRST + 1, 64 * MIB))?;
    at("free", client.free(FIRST))?;
    equal("used", &instance.used()?, &0)?;
    client.close();
    Ok(())
}

fn ancestors() -> Verdict {
    let instance = Instance::new("ancestors", GIB)?;
    let client = instance.client()?;
    at("memory", client.memory(FIRST, 32 * MIB))?;
    at("memory", client.memory(FIRST + 1, 32 * MIB))?;
    at("free the device", client.free(rm::DEVICE_HANDLE))?;
    equal("used", &instance.used()?, &0)?;
    client.close();
    let client = instance.client()?;
    at("memory", client.memory(FIRST, 32 * MIB))?;
    at("free the client", client.free(client.handle))?;
    equal("used", &instance.used()?, &0)?;
    client.close();
    Ok(())
}

fn exits() -> Verdict {
    let instance = Instance::new("exits", GIB)?;
    let client = instance.client()?;
    at("memory", client.memory(FIRST, 32 * MIB))?;
    client.close();
    equal("after close", &instance.used()?, &0)?;
    for signal in [0, libc::SIGKILL] {
        let pid = sys(
            "fork",
            spawn(|| {
                let Ok(client) = instance.client() else {
                    return 1;
                };
                if client.memory(FIRST, 32 * MIB).is_err() {
                    return 2;
                }
                if signal == 0 {
                    return 0;
                }
                loop {
                    os::sleep_ms(10_000);
                }
            }),
        )?;
        if signal != 0 {
            wait_for("its memory", || Ok(instance.used()? != 0))?;
            equal("before the kill", &instance.used()?, &(32 * MIB))?;
            sys("kill", os::kill(pid, signal))?;
        }
        equal("status", &sys("wait", os::wait(pid))?, &signal)?;
        equal("after exit", &instance.used()?, &0)?;
    }
    Ok(())
}

fn duplicates() -> Verdict {
    let instance = Instance::new("dup", GIB)?;
    let client = instance.client()?;
    at("memory", client.memory(FIRST, 32 * MIB))?;
    let copy = rm::dup(
        client.ctl,
        client.handle,
        rm::DEVICE_HANDLE,
        FIRST + 1,
        (client.handle, FIRST),
    );
    at("dup", copy)?;
    equal("charged once", &instance.used()?, &(32 * MIB))?;
    at("free", client.free(FIRST))?;
    equal("the copy holds it", &instance.used()?, &(32 * MIB))?;
    at("free", client.free(FIRST + 1))?;
    equal("gone", &instance.used()?, &0)?;
    client.close();
    Ok(())
}

/// CUDA frees the memory first, then its place in NVLink's fabric.
fn fabric() -> Verdict {
    const FABRIC: u32 = 0xf8;
    const NOT_SUPPORTED: u32 = 0x56;
    let place = |size: u64, flags: u32, memory: u32| {
        let mut params = [0; 48];
        put_u64(&mut params, 0, 2 * MIB);
        put_u64(&mut params, 8, size);
        put_u64(&mut params, 16, 2 * MIB);
        put_u32(&mut params, 24, flags);
        put_u32(&mut params, 40, memory);
        params
    };
    let instance = Instance::new("fabric", GIB)?;
    let client = instance.client()?;
    let make = |handle, mut params: [u8; 48]| {
        client.alloc(rm::SUBDEVICE_HANDLE, handle, FABRIC, &mut params)
    };
    at("memory", client.memory(FIRST, 32 * MIB))?;
    let without = make(FIRST + 1, place(32 * MIB, 0, FIRST));
    // INVALID_STATE of a GPU that could have one, as an H200 without NVSwitch.
    let refusals = [0x40, NOT_SUPPORTED].map(|status| Err(Failure::Status(status)));
    let what = format!("where there is no fabric: {without:?}");
    holds(&what, refusals.contains(&without))?;
    let _fabric = Switched::on(standin::fabric)?;
    let late = make(FIRST + 1, place(32 * MIB, 1, 0));
    equal(
        "without memory",
        &late,
        &Err(Failure::Status(NOT_SUPPORTED)),
    )?;
    let small = make(FIRST + 1, place(64 * MIB, 0, FIRST));
    equal("more than the memory", &small, &Err(Failure::Status(0x1f)))?;
    at("fabric", make(FIRST + 1, place(32 * MIB, 0, FIRST)))?;
    refused("a second", make(FIRST + 2, place(32 * MIB, 0, FIRST)))?;
    equal("charged once", &instance.used()?, &(32 * MIB))?;
    at("free", client.free(FIRST))?;
    equal("the place holds it", &instance.used()?, &(32 * MIB))?;
    at("free", client.free(FIRST + 1))?;
    equal("gone", &instance.used()?, &0)?;
    client.close();
    Ok(())
}

fn live() -> Verdict {
    let instance = Instance::new("live", 128 * MIB)?;
    let client = instance.client()?;
    at("memory", client.memory(FIRST, 128 * MIB))?;
    refused("full", client.memory(FIRST + 1, 2 * MIB))?;
    instance.set_memory(256 * MIB)?;
    at("raised", client.memory(FIRST + 1, 128 * MIB))?;
    instance.set_memory(64 * MIB)?;
    equal("nothing is taken away", &instance.used()?, &(256 * MIB))?;
    refused("over", client.memory(FIRST + 2, 2 * MIB))?;
    at("free", client.free(FIRST))?;
    refused("still over", client.memory(FIRST, 2 * MIB))?;
    at("free", client.free(FIRST + 1))?;
    at("below again", client.memory(FIRST, 64 * MIB))?;
    refused("full again", client.memory(FIRST + 1, 2 * MIB))?;
    client.close();
    Ok(())
}

fn told() -> Verdict {
    let instance = Instance::new("told", 128 * MIB)?;
    let watcher = control()?;
    let changed = |milliseconds| sys("poll", watcher.changed(milliseconds));
    let count = || {
        let path = format!("/proc/cgpu_km/{GPU}/told/status");
        let status = at(&path, std::fs::read_to_string(&path))?;
        let line = status
            .lines()
            .find_map(|l| l.strip_prefix("memory_over_limit_count: "));
        Ok::<_, String>(line.unwrap_or("none").to_owned())
    };
    let client = instance.client()?;
    at("memory", client.memory(FIRST, 128 * MIB))?;
    refused("full", client.memory(FIRST + 1, 2 * MIB))?;
    holds("nothing has happened", !changed(0)?)?;
    // Somebody waits for it while it happens.
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| changed(30_000));
        std::thread::sleep(std::time::Duration::from_millis(300));
        instance.set_memory(64 * MIB)?;
        let woken = waiting.join().map_err(|_| "the thread died".to_owned())??;
        holds("over, and nobody was told", woken)
    })?;
    holds("told once more until it is asked what", changed(0)?)?;
    let seen = sys("get", watcher.get("told", GPU))?;
    holds("not over", seen.memory_used_bytes > seen.memory_limit_bytes)?;
    holds("asked, and told again", !changed(0)?)?;
    equal("times", &count()?, &"1".to_owned())?;
    refused("over", client.memory(FIRST + 1, 2 * MIB))?;
    holds("a refusal is no change", !changed(0)?)?;
    at("free", client.free(FIRST))?;
    holds("below, and nobody was told", changed(1_000)?)?;
    at("below again", client.memory(FIRST, 64 * MIB))?;
    equal("times", &count()?, &"1".to_owned())?;
    client.close();
    Ok(())
}

fn reports() -> Verdict {
    let instance = Instance::new("reports", 512 * MIB)?;
    let client = instance.client()?;
    let kib = |bytes: u64| u32::try_from(bytes >> 10).unwrap_or(0);
    let told = at("info", client.fb_info(&[0x08, 0x09, 0x16]))?;
    equal("total", &told[0], &kib(512 * MIB))?;
    holds("heap", told[1] <= told[0])?;
    holds("free", told[2] <= told[1])?;
    at("memory", client.memory(FIRST, 64 * MIB))?;
    let later = at("info", client.fb_info(&[rm::TOTAL_RAM_SIZE, rm::HEAP_FREE]))?;
    equal("total", &later[0], &told[0])?;
    equal("free", &later[1], &(told[2] - kib(64 * MIB)))?;
    instance.set_memory(1024 * MIB)?;
    let raised = at("info", client.fb_info(&[0x08]))?;
    equal("total", &raised[0], &kib(1024 * MIB))?;
    client.close();
    Ok(())
}

fn bad_pointer() -> Verdict {
    let instance = Instance::new("pointer", 64 * MIB)?;
    let client = instance.client()?;
    let mut outer = [0; 48];
    for (at, value) in [
        (0, client.handle),
        (4, rm::DEVICE_HANDLE),
        (8, FIRST),
        (12, rm::VIDEO_MEMORY),
        (16, 0x1000),
    ] {
        crate::bytes::put_u32(&mut outer, at, value);
    }
    let call = os::ioctl(client.ctl, 0xC030_462B, &mut outer);
    let worked = call.is_ok() && crate::bytes::u32_at(&outer, 40) == 0;
    holds("it worked", !worked)?;
    let seen = instance.get()?;
    let left = (seen.memory_used_bytes, seen.memory_reserved_bytes);
    equal("charged", &left, &(0, 0))?;
    // The file works on.
    at("memory", client.memory(FIRST, 2 * MIB))?;
    client.close();
    Ok(())
}

/// A call counts by what it has made, whether the program could be told or not.
fn unwritable() -> Verdict {
    const READ_WRITE: i32 = libc::PROT_READ | libc::PROT_WRITE;
    let limit = 256 * MIB;
    let instance = Instance::new("unwritable", limit)?;
    let client = instance.client()?;
    let page = || {
        os::mmap(
            0,
            4096,
            READ_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
    };
    let [outer, params] = [sys("a page", page())?, sys("a page", page())?];
    // SAFETY: pages of our own, which nothing else refers to.
    let bytes = |page: u64, len| unsafe { std::slice::from_raw_parts_mut(page as *mut u8, len) };
    for read_only in [outer, params] {
        for number in 0..8 {
            bytes(params, 128).copy_from_slice(&rm::memory_params(client.handle, 64 * MIB));
            for (at, value) in [
                (0, client.handle),
                (4, rm::DEVICE_HANDLE),
                (8, FIRST + number),
                (12, rm::VIDEO_MEMORY),
            ] {
                put_u32(bytes(outer, 48), at, value);
            }
            put_u64(bytes(outer, 48), 16, params);
            protect(read_only, libc::PROT_READ)?;
            let call = os::ioctl(client.ctl, rm::request(0x2B, 48), bytes(outer, 48));
            protect(read_only, READ_WRITE)?;
            let worked = call.is_ok() && u32_at(bytes(outer, 48), 40) == 0;
            holds("the program was told that it worked", !worked)?;
        }
        // Four are there, and no more fitted.
        equal("used", &instance.used()?, &limit)?;
        for number in 0..8 {
            at("free", client.free(FIRST + number))?;
        }
        equal("used after all is freed", &instance.used()?, &0)?;
    }
    client.close();
    for page in [outer, params] {
        // SAFETY: pages of our own; the slices are used no more.
        sys("unmap", unsafe { os::munmap(page, 4096) })?;
    }
    Ok(())
}

fn protect(page: u64, protection: i32) -> Verdict {
    // SAFETY: a page of our own; while it cannot be written, nothing here writes to it.
    let done = unsafe { libc::mprotect(page as *mut libc::c_void, 4096, protection) };
    equal("mprotect", &done, &0)
}

/// Several processes allocate until they are refused; together they never have more than the limit.
fn race() -> Verdict {
    let limit = 256 * MIB;
    let instance = Instance::new("race", limit)?;
    let mut pids = Vec::new();
    for _ in 0..4 {
        pids.push(sys(
            "fork",
            spawn(|| {
                let Ok(client) = instance.client() else {
                    return 1;
                };
                for round in 0..5_u32 {
                    let mut held = 0;
                    loop {
                        let mut params = rm::memory_params(client.handle, 8 * MIB);
                        let handle = FIRST + held;
                        match client.alloc(rm::DEVICE_HANDLE, handle, rm::VIDEO_MEMORY, &mut params)
                        {
                            Ok(_) if u64_at(&params, layout::MEMORY_SIZE_AT) == 8 * MIB => {
                                held += 1
                            }
                            Err(Failure::Status(rm::NO_MEMORY)) => break,
                            _ => return 2,
                        }
                        if u64::from(held) * 8 * MIB > limit {
                            return 3;
                        }
                    }
                    for i in 0..held {
                        if client.free(FIRST + i).is_err() {
                            return 4;
                        }
                    }
                    if round == 4 {
                        client.close();
                        return 0;
                    }
                }
                0
            }),
        )?);
    }
    let mut highest = 0;
    for pid in pids {
        highest = highest.max(instance.used()?);
        equal("worker", &sys("wait", os::wait(pid))?, &0)?;
    }
    let seen = instance.get()?;
    holds(
        "over the limit",
        highest <= limit && seen.memory_peak_bytes <= limit,
    )?;
    equal("peak", &seen.memory_peak_bytes, &limit)?;
    equal("used", &seen.memory_used_bytes, &0)
}
