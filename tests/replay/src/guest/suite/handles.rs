// SPDX-License-Identifier: GPL-2.0
//! Calls that the driver lets everybody make and the module does not: each first done on the
//! driver's own nodes, where it works, and then through an instance, where it does not and harms
//! nobody.

use crate::{
    bytes::{put_u32, put_u64, u32_at, u64_at},
    guest::{
        instance::Instance,
        rm,
        tools::{at, control, device_instance, equal, holds, tests, Verdict, GIB, GPU, MIB},
    },
    layout, sys,
};

tests! {
    "handles: another's event keys are neither freed nor taken" => event_keys;
    "handles: another tenant's memory is neither mapped nor shared" => memory;
    "handles: an event does not tell a kernel address" => event_address;
    "handles: no program's object is a doorbell through BAR1" => doorbell;
    "handles: uncached host memory is not registered" => host_memory;
    "handles: timeslices are remembered, other scheduling is refused" => scheduling;
}

const ALLOC_OS_EVENT: u32 = 206;
const FREE_OS_EVENT: u32 = 207;
const MAP_MEMORY: u32 = 0x4e;
const SHARE: u32 = 0x35;
const OBJECT: u32 = 0x5c00_0010;

/// A program on the driver's own nodes.
fn stock() -> Result<rm::Client, String> {
    let instance = device_instance(&control()?, GPU)?;
    at("stock client", rm::Client::open("/dev", GPU, instance))
}

/// A call with a struct; the status at `at` in it.
fn status(fd: i32, nr: u32, outer: &mut [u8], at: usize) -> Result<u32, String> {
    let size = u32::try_from(outer.len()).unwrap_or(0);
    let request = 3 << 30 | size << 16 | layout::NV_TYPE << 8 | nr;
    sys::ioctl(fd, request, outer).map_err(|errno| format!("escape {nr}: errno {errno}"))?;
    Ok(u32_at(outer, at))
}

/// NV_ESC_ALLOC_OS_EVENT or _FREE_OS_EVENT of a pair of client and descriptor.
fn event_key(fd: i32, nr: u32, client: u32) -> Result<u32, String> {
    let mut outer = [0; 16];
    put_u32(&mut outer, 0, client);
    put_u32(&mut outer, 8, 77);
    status(fd, nr, &mut outer, 12)
}

fn event_keys() -> Verdict {
    // osapi.c: allocate_os_event() and free_os_event() ask nobody whose client it is.
    let (a, b) = (stock()?, stock()?);
    equal(
        "stock: alloc",
        &event_key(a.ctl, ALLOC_OS_EVENT, a.handle)?,
        &0,
    )?;
    equal(
        "stock: foreign free",
        &event_key(b.ctl, FREE_OS_EVENT, a.handle)?,
        &0,
    )?;
    equal(
        "stock: own free",
        &event_key(a.ctl, FREE_OS_EVENT, a.handle)?,
        &0x28,
    )?;
    a.close();
    b.close();
    let (one, two) = (Instance::new("one", GIB)?, Instance::new("two", GIB)?);
    let (a, b) = (one.client()?, two.client()?);
    equal(
        "foreign key",
        &event_key(b.ctl, ALLOC_OS_EVENT, a.handle)?,
        &0x1a,
    )?;
    equal("own key", &event_key(a.ctl, ALLOC_OS_EVENT, a.handle)?, &0)?;
    equal(
        "foreign free",
        &event_key(b.ctl, FREE_OS_EVENT, a.handle)?,
        &0x28,
    )?;
    equal("own free", &event_key(a.ctl, FREE_OS_EVENT, a.handle)?, &0)?;
    a.close();
    b.close();
    Ok(())
}

fn memory() -> Verdict {
    let (one, two) = (Instance::new("one", GIB)?, Instance::new("two", GIB)?);
    let (a, b) = (one.client()?, two.client()?);
    at("memory of a", a.memory(OBJECT, 2 * MIB))?;
    at("memory of b", b.memory(OBJECT, 2 * MIB))?;
    // The driver refuses this one itself: the client is of another file.
    let mut map = [0; 56];
    put_u32(&mut map, 0, a.handle);
    put_u32(&mut map, 4, rm::DEVICE_HANDLE);
    put_u32(&mut map, 8, OBJECT);
    put_u64(&mut map, 24, 2 * MIB);
    put_u32(&mut map, 48, u32::try_from(b.gpu).unwrap_or(0));
    equal("map", &status(b.ctl, MAP_MEMORY, &mut map, 40)?, &0x33)?;
    let share = |kind: u8, target: u32| {
        let mut outer = [0; 24];
        put_u32(&mut outer, 0, b.handle);
        put_u32(&mut outer, 4, OBJECT);
        put_u32(&mut outer, 8, target);
        put_u32(&mut outer, 12, 1);
        outer[16] = kind;
        status(b.ctl, SHARE, &mut outer, 20)
    };
    equal("share with a's client", &share(3, a.handle)?, &0x1f)?;
    equal("share with all", &share(1, 0)?, &0)?;
    // Shared with all, but not reachable for another tenant.
    let source = (b.handle, OBJECT);
    let copy = rm::dup(a.ctl, a.handle, rm::DEVICE_HANDLE, OBJECT + 1, source);
    holds("a copies what b shares with all", copy.is_err())?;
    at("a works on", a.memory(OBJECT + 2, 2 * MIB))?;
    a.close();
    b.close();
    Ok(())
}

/// Makes an event; what stands where the descriptor's number was.
fn event(client: &rm::Client) -> Result<u64, String> {
    let mut params = [0; 24];
    put_u32(&mut params, 0, client.handle);
    put_u32(&mut params, 8, layout::CLASS_OS_EVENT);
    put_u32(&mut params, 12, rm::ENGINE_EVENT);
    put_u64(&mut params, 16, 77);
    equal(
        "key",
        &event_key(client.ctl, ALLOC_OS_EVENT, client.handle)?,
        &0,
    )?;
    let class = layout::CLASS_OS_EVENT;
    at(
        "event",
        client.alloc(rm::SUBDEVICE_HANDLE, OBJECT, class, &mut params),
    )?;
    Ok(u64_at(&params, 16))
}

fn event_address() -> Verdict {
    let client = stock()?;
    let told = event(&client)?;
    holds(&format!("stock: {told:#x} is no address"), told >> 47 != 0)?;
    client.close();
    let instance = Instance::new("event", GIB)?;
    let client = instance.client()?;
    equal("told", &event(&client)?, &77)?;
    client.close();
    Ok(())
}

/// Makes a doorbell page through BAR1; its address space as GET_ADDR_SPACE_TYPE tells it.
fn bar1(client: &rm::Client) -> Result<u32, String> {
    let mut params = [1, 0];
    at(
        "doorbell",
        client.alloc(rm::SUBDEVICE_HANDLE, OBJECT, 0xc661, &mut params),
    )?;
    equal("parameters", &params, &[1, 0])?;
    let mut kind = [0; 12];
    put_u32(&mut kind, 0, OBJECT);
    let (ctl, handle) = (client.ctl, client.handle);
    at("0xd01", rm::control(ctl, handle, handle, 0xd01, &mut kind))?;
    Ok(u32_at(&kind, 8))
}

fn doorbell() -> Verdict {
    const VIDMEM: u32 = 2;
    const REGMEM: u32 = 3;
    let client = stock()?;
    equal("stock", &bar1(&client)?, &VIDMEM)?;
    client.close();
    let instance = Instance::new("doorbell", GIB)?;
    let client = instance.client()?;
    equal("through the instance", &bar1(&client)?, &REGMEM)?;
    client.close();
    Ok(())
}

fn host_memory() -> Verdict {
    let instance = Instance::new("host", GIB)?;
    let client = instance.client()?;
    // UNCACHED, not contiguous and contiguous: osmemdesc.c takes the second for device registers.
    for flags in [0x4000_0010, 0x4000_0000] {
        let mut outer = [0; 56];
        put_u32(&mut outer, 0, client.handle);
        put_u32(&mut outer, 4, rm::DEVICE_HANDLE);
        put_u32(&mut outer, 8, OBJECT);
        put_u32(&mut outer, 12, 0x71);
        put_u32(&mut outer, 16, flags);
        put_u64(&mut outer, 32, 0xfff);
        let told = status(client.gpu, layout::NR_ALLOC_MEMORY, &mut outer, 40)?;
        equal("status", &told, &0x29)?;
    }
    client.close();
    Ok(())
}

fn scheduling() -> Verdict {
    let instance = Instance::new("sched", GIB)?;
    let client = instance.client()?;
    at("group", client.channel_group(OBJECT, rm::COMPUTE))?;
    let run = |cmd: u32, params: &mut [u8]| client.control(OBJECT, cmd, params);
    let mut slice = [0; 8];
    at("get", run(0xa06c_0104, &mut slice))?;
    equal("default", &u64_at(&slice, 0), &1024)?;
    put_u64(&mut slice, 0, 123_456);
    at("set", run(0xa06c_0103, &mut slice))?;
    let mut slice = [0; 8];
    at("get", run(0xa06c_0104, &mut slice))?;
    equal("remembered", &u64_at(&slice, 0), &123_456)?;
    at("preempt", run(0xa06c_0105, &mut [1, 0, 0, 0, 0, 0, 0, 0]))?;
    for cmd in [0xa06c_0107, 0xa06c_0110] {
        let refused = run(cmd, &mut [0; 4]);
        equal("refused", &refused, &Err(rm::Failure::Status(0x56)))?;
    }
    client.close();
    Ok(())
}
