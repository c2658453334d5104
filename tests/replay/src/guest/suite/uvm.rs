// SPDX-License-Identifier: GPL-2.0
//! The UVM proxy, by hand.

use super::{equal, holds, sys, Instance, Outcome, Test, GIB};
use crate::bytes::{put_u32, u32_at, u64_at};
use crate::layout;
use crate::sys as os;

pub(super) const TESTS: &[Test] = &[
    (
        "uvm: initialized in shared mode without showing it",
        initialize,
    ),
    ("uvm: requests of the tools are refused", tools),
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
