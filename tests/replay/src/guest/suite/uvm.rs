// SPDX-License-Identifier: GPL-2.0
//! The UVM proxy, by hand.

use super::{at, equal, holds, sys, Instance, Outcome, Test, GIB, GPU, MIB};
use crate::bytes::{put_u32, u32_at, u64_at};
use crate::guest::uvm::{uuid, Space, VA_SPACE};
use crate::layout;
use crate::standin;
use crate::sys as os;

pub(super) const TESTS: &[Test] = &[
    (
        "uvm: initialized in shared mode without showing it",
        initialize,
    ),
    ("uvm: requests of the tools are refused", tools),
    ("uvm: what is mapped stays charged after its free", keeps),
];

fn initialize() -> Outcome {
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

fn tools() -> Outcome {
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

/// Where the test maps memory.
const BASE: u64 = 0x20_0000_0000;
fn keeps() -> Outcome {
    const MEMORY: u32 = 0x5C00_0100;
    const LENGTH: u64 = 4 * MIB;
    let instance = Instance::new("uvmkeeps", GIB)?;
    let client = instance.client()?;
    let uuid = uuid(GPU)?;
    at(
        "address space",
        client.alloc(super::rm::DEVICE_HANDLE, 8, VA_SPACE, &mut [0; 56]),
    )?;
    let space = at("UVM", Space::open(&instance.folder()))?;
    at("register", space.register(&uuid, client.handle, 8))?;

    // The books and the stand-in's heap, which says what this test has taken, in three states.
    let idle = standin::heap(GPU)?.used;
    let taken = |what: &str, bytes: u64| -> Outcome {
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
