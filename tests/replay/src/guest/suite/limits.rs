// SPDX-License-Identifier: GPL-2.0
//! How much an instance may have of what all share: clients, objects, events, host memory.

use cgpu_uapi::{Cause, InstanceLimit, Limited, LIMIT_DEFAULT};

use super::doorbell::{ended, wait_for, while_frozen};
use crate::{
    guest::{
        instance::Instance,
        process::spawn,
        rm,
        tools::{at, control, equal, sys, RefusalsAllowed, Test, Verdict, GPU, MIB},
    },
    sys as os,
};

pub(super) const TESTS: &[Test] = &[
    ("limits: clients and objects, changed while in use", live),
    ("limits: a neighbour has its own", neighbours),
    ("limits: host memory, changed while in use", host_memory),
    ("limits: after many refusals calls wait", waits),
];

const OBJECT: u32 = 0x5C00_0100;
const INSUFFICIENT_RESOURCES: u32 = 0x1a;

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
/// frozen, stopped and killed meanwhile, does not notice signals, and keeps up nobody.
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
            if client.refused_group(OBJECT).is_err() {
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
