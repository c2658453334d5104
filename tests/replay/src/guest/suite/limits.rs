// SPDX-License-Identifier: GPL-2.0
//! How much an instance may have of what all share: clients, objects, events, host memory, files,
//! mappings of registers.

use cgpu_uapi::{Cause, InstanceLimit, Limited, LIMIT_DEFAULT};

use super::{
    doorbell::{ended, wait_for, while_frozen},
    mappings::{self, doorbell_file, map_doorbell, map_file, read, DOORBELL},
};
use crate::{
    bytes::{put_u32, put_u64, u32_at},
    guest::{
        instance::Instance,
        process::spawn,
        rm,
        tools::{at, control, equal, fails, sys, RefusalsAllowed, Test, Verdict, GPU, MIB},
    },
    layout, sys as os,
};

pub(super) const TESTS: &[Test] = &[
    ("limits: clients and objects, changed while in use", live),
    ("limits: a neighbour has its own", neighbours),
    ("limits: host memory, changed while in use", host_memory),
    (
        "limits: memory that the driver refuses is not counted",
        refused,
    ),
    ("limits: files, changed while in use", files),
    ("limits: mappings of registers", register_mappings),
    ("limits: after many refusals calls wait", waits),
];

const OBJECT: u32 = 0x5C00_0100;
const INSUFFICIENT_RESOURCES: u32 = 0x1a;
const INVALID_ADDRESS: u32 = 0x1e;

fn limit(instance: &Instance, what: Limited) -> Result<InstanceLimit, String> {
    let limits = sys("limits", control()?.limits(instance.name, GPU))?;
    let found = limits.into_iter().find(|l| l.what == what.number());
    found.ok_or_else(|| format!("{} has no limit", what.name()))
}

fn set(instance: &Instance, what: Limited, limit: u64) -> Verdict {
    sys(
        "set",
        control()?.set_limit(instance.name, GPU, what.number(), limit),
    )
}

fn status<T>(result: Result<T, rm::Failure>) -> u32 {
    match result {
        Ok(_) => 0,
        Err(failure) => failure.status().unwrap_or(u32::MAX),
    }
}

fn object(client: &rm::Client, number: u32) -> u32 {
    status(client.memory(OBJECT + number, MIB))
}

fn root(client: &rm::Client) -> u32 {
    status(rm::alloc(client.ctl, 0, 0, 0, rm::ROOT, &mut []))
}

fn live() -> Verdict {
    let instance = Instance::new("limits", 256 * MIB)?;
    let client = instance.client()?;
    let seen = limit(&instance, Limited::Objects)?;
    equal("device and subdevice", &(seen.used, seen.is_set), &(2, 0))?;
    equal("the default", &seen.limit, &(16_384 + 512))?;
    set(&instance, Limited::Objects, 3)?;
    equal("a third object", &object(&client, 0), &0)?;
    equal("a fourth", &object(&client, 1), &INSUFFICIENT_RESOURCES)?;
    set(&instance, Limited::Objects, 4)?;
    equal("with a higher limit", &object(&client, 1), &0)?;
    set(&instance, Limited::Objects, 1)?;
    at("free", client.free(OBJECT))?;
    equal(
        "above the limit",
        &object(&client, 0),
        &INSUFFICIENT_RESOURCES,
    )?;
    set(&instance, Limited::Objects, LIMIT_DEFAULT)?;
    equal("with the default", &object(&client, 0), &0)?;
    let seen = limit(&instance, Limited::Objects)?;
    equal("counted", &(seen.used, seen.refused), &(4, 2))?;
    set(&instance, Limited::Clients, 2)?;
    equal("a second client", &root(&client), &0)?;
    equal("a third", &root(&client), &INSUFFICIENT_RESOURCES)?;
    let none = control()?.set_limit(instance.name, GPU, Limited::Clients.number(), 0);
    equal("no limit", &none, &Err(Cause::LimitZero.errno()))?;
    client.close();
    for what in Limited::ALL {
        equal(what.name(), &limit(&instance, what)?.used, &0)?;
    }
    Ok(())
}

/// A registration of no memory, on the GPU's file, on which the driver frees nothing.
fn refused() -> Verdict {
    let instance = Instance::new("refused", 256 * MIB)?;
    let client = instance.client()?;
    let before = limit(&instance, Limited::Objects)?.used;
    // Twice, because the handle must be free again.
    for _ in 0..2 {
        let mut outer = [0; 56];
        put_u32(&mut outer, 0, client.handle);
        put_u32(&mut outer, 4, rm::DEVICE_HANDLE);
        put_u32(&mut outer, 8, OBJECT);
        put_u32(&mut outer, 12, 0x71);
        // Cached, and not mapped at once.
        put_u32(&mut outer, 16, 0x4000_1000);
        put_u64(&mut outer, 24, 0x1000);
        put_u64(&mut outer, 32, 0xfff);
        let size = u32::try_from(outer.len()).unwrap_or(0);
        let request = 3 << 30 | size << 16 | layout::NV_TYPE << 8 | layout::NR_ALLOC_MEMORY;
        let told = os::ioctl(client.gpu, request, &mut outer);
        equal("reached", &told.is_ok(), &true)?;
        equal("status", &u32_at(&outer, 40), &INVALID_ADDRESS)?;
        equal(
            "objects",
            &limit(&instance, Limited::Objects)?.used,
            &before,
        )?;
    }
    equal("with its handle", &object(&client, 0), &0)?;
    client.close();
    Ok(())
}

fn neighbours() -> Verdict {
    let (first, second) = (
        Instance::new("first", 256 * MIB)?,
        Instance::new("second", 256 * MIB)?,
    );
    set(&first, Limited::Clients, 1)?;
    let client = first.client()?;
    equal("a second client", &root(&client), &INSUFFICIENT_RESOURCES)?;
    let other = second.client()?;
    equal("the neighbour's second", &root(&other), &0)?;
    client.close();
    other.close();
    Ok(())
}

fn host(client: &rm::Client, number: u32, bytes: u64) -> u32 {
    status(client.system_memory(OBJECT + number, bytes))
}

fn host_memory() -> Verdict {
    let instance = Instance::new("hostmemory", 256 * MIB)?;
    let client = instance.client()?;
    equal("by default", &host(&client, 0, 64 * MIB), &0)?;
    set(&instance, Limited::HostMemory, 65 * MIB)?;
    equal("a page", &host(&client, 1, 4096), &0)?;
    equal("1 MiB more", &host(&client, 2, MIB), &rm::NO_MEMORY)?;
    let seen = limit(&instance, Limited::HostMemory)?;
    let told = (seen.used, seen.limit, seen.is_set, seen.refused);
    equal("counted", &told, &(64 * MIB + 4096, 65 * MIB, 1, 1))?;
    // The GPU's memory is another matter.
    equal("of the GPU", &status(client.memory(OBJECT + 3, MIB)), &0)?;
    at("free", client.free(OBJECT))?;
    equal("after a free", &host(&client, 2, MIB), &0)?;
    client.close();
    equal(
        "after all",
        &limit(&instance, Limited::HostMemory)?.used,
        &0,
    )
}

/// Opens a node of an instance.
fn file(instance: &Instance, node: &str) -> Result<i32, os::Errno> {
    let path = format!("{}/{node}", instance.folder());
    os::open(&path, libc::O_RDWR | libc::O_CLOEXEC)
}

fn files() -> Verdict {
    let instance = Instance::new("manyfiles", 256 * MIB)?;
    let seen = limit(&instance, Limited::Files)?;
    equal("the default", &seen.limit, &(16_384 + 128))?;
    set(&instance, Limited::Files, 3)?;
    let client = instance.client()?;
    let third = sys("a third", file(&instance, "nvidia0"))?;
    for node in ["nvidia0", "nvidiactl", "nvidia-uvm"] {
        fails(node, file(&instance, node).map(drop), libc::ENOMEM)?;
    }
    set(&instance, Limited::Files, 4)?;
    let fourth = sys("with a higher limit", file(&instance, "nvidia-uvm"))?;
    sys("close", os::close(third))?;
    let seen = limit(&instance, Limited::Files)?;
    equal("counted", &(seen.used, seen.refused), &(3, 3))?;
    sys("close", os::close(fourth))?;
    client.close();
    equal("after all", &limit(&instance, Limited::Files)?.used, &0)
}

/// A child reads the registers: 0, or the status with which it ended.
fn child_reads(address: u64) -> Result<i32, String> {
    let child = spawn(|| {
        read(address);
        0
    });
    ended(sys("fork", child)?)
}

fn register_mappings() -> Verdict {
    let instance = Instance::new("registers", 256 * MIB)?;
    let client = instance.client()?;
    set(&instance, Limited::Mappings, 1)?;
    let counted = |used: u64, refused: u64| {
        let seen = limit(&instance, Limited::Mappings)?;
        equal("counted", &(seen.used, seen.refused), &(used, refused))
    };
    let address = map_doorbell(&instance, &client)?;
    let fd = doorbell_file(&instance.folder(), &client)?;
    let second = || os::mmap(0, DOORBELL, libc::PROT_READ, libc::MAP_SHARED, fd, 0);
    fails("a second", second().map(drop), libc::EAGAIN)?;
    counted(1, 1)?;
    // Memory is another matter.
    let memory = mappings::map_memory(&instance, &client, OBJECT)?;
    counted(1, 1)?;
    mappings::unmap(memory, 4096)?;
    // A mapping that is moved is there twice for a moment.
    let place = sys(
        "a place",
        os::mmap(
            0,
            DOORBELL,
            0,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        ),
    )?;
    // SAFETY: what lies there was just mapped, for this.
    sys("mremap", unsafe {
        os::move_mapping(address, place, DOORBELL)
    })?;
    let address = place;
    read(address);
    counted(1, 1)?;
    equal("a child", &child_reads(address)?, &libc::SIGBUS)?;
    // Its end is told when its parent knows of it, or a little later.
    wait_for(
        "gone",
        || Ok(limit(&instance, Limited::Mappings)?.used == 1),
    )?;
    counted(1, 2)?;
    // No copy is made any more.
    equal("another", &child_reads(address)?, &libc::SIGSEGV)?;
    counted(1, 2)?;
    read(address);
    set(&instance, Limited::Mappings, LIMIT_DEFAULT)?;
    let other = map_file(0, DOORBELL, fd)?;
    counted(2, 2)?;
    equal("a child with room", &child_reads(other)?, &0)?;
    sys("close", os::close(fd))?;
    mappings::unmap(address, DOORBELL)?;
    mappings::unmap(other, DOORBELL)?;
    client.close();
    counted(0, 2)
}

/// Whether a process sleeps before a call, in the state `S`: it can be killed, stopped and frozen.
fn is_in_wait(child: i32) -> Result<bool, String> {
    let read = |file| {
        let path = format!("/proc/{child}/{file}");
        at(&path, std::fs::read_to_string(&path))
    };
    let (stat, place) = (read("stat")?, read("wchan")?);
    let state = stat.rsplit(") ").next().unwrap_or("").chars().next();
    Ok(state == Some('S') && place.contains("sleep_until_signal"))
}

/// A program is refused a call without end, with one a second: it waits all the time. It can be
/// frozen, stopped and killed meanwhile, does not notice signals, and holds nobody up.
fn waits() -> Verdict {
    let (instance, neighbour) = (
        Instance::new("refused", 256 * MIB)?,
        Instance::new("beside", 256 * MIB)?,
    );
    let _rate = RefusalsAllowed::set(1)?;
    let child = spawn(|| {
        let Ok(client) = instance.client() else {
            return 2;
        };
        loop {
            if client.refused_channel(OBJECT).is_err() {
                return 3;
            }
        }
    });
    let child = sys("fork", child)?;
    let waiting = || wait_for("in its wait", || is_in_wait(child));
    waiting()?;
    while_frozen(child, || {
        let client = neighbour.client()?;
        equal("a neighbour's object", &object(&client, 0), &0)?;
        client.close();
        Ok(())
    })?;
    waiting()?;
    sys("stop", os::kill(child, libc::SIGSTOP))?;
    let stat = format!("/proc/{child}/stat");
    wait_for("stopped", || {
        Ok(at(&stat, std::fs::read_to_string(&stat))?.contains(") T "))
    })?;
    sys("continue", os::kill(child, libc::SIGCONT))?;
    waiting()?;
    sys("kill", os::kill(child, libc::SIGKILL))?;
    equal("ended", &ended(child)?, &libc::SIGKILL)
}
