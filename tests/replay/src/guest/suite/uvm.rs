// SPDX-License-Identifier: GPL-2.0
//! The UVM proxy, by hand.

use super::{at, equal, holds, sys, Instance, Outcome, Test, GIB, GPU, MIB};
use crate::bytes::{put_u32, put_u64, u32_at, u64_at};
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
const VA_SPACE: u32 = 0x90F1;

/// The GPU, as UVM names it.
fn uuid() -> Result<[u8; 16], String> {
    let values = standin::read("gpus")?;
    let text = values.get(&format!("gpu{GPU}_uuid")).ok_or("no UUID")?;
    let text = text.trim_start_matches("GPU-").replace('-', "");
    let number = u128::from_str_radix(&text, 16).map_err(|e| format!("{text}: {e}"))?;
    Ok(number.to_be_bytes())
}

/// A request that has to work.
fn works(fd: i32, request: u32, params: &mut [u8], status_at: usize) -> Outcome {
    let what = format!("request {request}");
    sys(&what, os::ioctl(fd, request, params))?;
    equal(&what, &u32_at(params, status_at), &0)
}

/// Base and length of a range.
fn range(params: &mut [u8], base: u64, length: u64) {
    put_u64(params, 0, base);
    put_u64(params, 8, length);
}

fn keeps() -> Outcome {
    const MEMORY: u32 = 0x5C00_0100;
    const LENGTH: u64 = 4 * MIB;
    let instance = Instance::new("uvmkeeps", GIB)?;
    let client = instance.client()?;
    let uuid = uuid()?;
    at(
        "address space",
        client.alloc(super::rm::DEVICE_HANDLE, 8, VA_SPACE, &mut [0; 56]),
    )?;
    let path = format!("{}/nvidia-uvm", instance.folder());
    let fd = sys(&path, os::open(&path, libc::O_RDWR | libc::O_CLOEXEC))?;
    works(fd, layout::UVM_INITIALIZE, &mut [0; 16], 8)?;
    let mut gpu = [0; 40];
    gpu[..16].copy_from_slice(&uuid);
    works(fd, 37, &mut gpu, 36)?;
    let mut space = [0; 32];
    space[..16].copy_from_slice(&uuid);
    put_u32(&mut space, 20, client.handle);
    put_u32(&mut space, 24, 8);
    works(fd, 25, &mut space, 28)?;

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
        let mut params = [0; 24];
        range(&mut params, BASE, LENGTH);
        works(fd, 73, &mut params, 16)?;
        at("memory", client.memory(MEMORY, LENGTH))?;
        let mut params = [0; 9264];
        range(&mut params, BASE, LENGTH);
        params[24..40].copy_from_slice(&uuid);
        put_u64(&mut params, 9240, 1);
        put_u32(&mut params, 9252, client.handle);
        put_u32(&mut params, 9256, MEMORY);
        works(fd, 33, &mut params, 9260)?;
        taken("while mapped", LENGTH)?;
        at("free", client.free(MEMORY))?;
        taken("after the free", LENGTH)?;
        // It ends with an unmapping, with the range, and with the file.
        if end == 0 {
            let mut params = [0; 40];
            range(&mut params, BASE, LENGTH);
            params[16..32].copy_from_slice(&uuid);
            works(fd, 66, &mut params, 32)?;
            taken("after the unmapping", 0)?;
        }
        if end < 2 {
            let mut params = [0; 24];
            range(&mut params, BASE, LENGTH);
            works(fd, 34, &mut params, 16)?;
        } else {
            sys("close", os::close(fd))?;
        }
        taken("at the end", 0)?;
    }
    client.close();
    Ok(())
}
