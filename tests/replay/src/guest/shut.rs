// SPDX-License-Identifier: GPL-2.0
//! `shut`: how long a gate takes to shut, by how many mappings of registers are behind it.
//!
//! With `run.sh --count-instructions` a nanosecond is an instruction of the machine's one
//! processor. There the GPU's thread, which has a higher priority, runs while the file of
//! `/proc/cgpu_km` is written to.

use std::{
    sync::atomic::{AtomicU32, Ordering},
    time::Instant,
};

use serde::Serialize;

use super::{
    instance::{clean_up, Instance},
    process::spawn,
    suite::{
        doorbell::{ended, put, status, wait_for},
        mappings::{map_doorbell, map_once_more, read, unmap, DOORBELL},
    },
    tools::{equal, sys, Verdict, GIB},
};
use crate::{control::mount_cgpufs, sys as os};

/// Mappings of each process.
const EACH: u32 = 8;
/// How often each number is measured; the smallest time counts.
const TIMES: u32 = 3;

/// The time for a number of mappings.
#[derive(Debug, Serialize)]
pub struct ShutTime {
    /// Mappings of registers, each with its pages.
    pub mappings: u32,
    /// Nanoseconds until the gate is shut.
    pub nanoseconds: u64,
}

/// Measures each of these numbers, multiples of 8.
pub fn run(numbers: &[u32]) -> Result<Vec<ShutTime>, String> {
    mount_cgpufs()?;
    clean_up();
    numbers.iter().map(|number| measure(*number)).collect()
}

fn measure(mappings: u32) -> Result<ShutTime, String> {
    let instance = Instance::new("shut", GIB)?;
    let client = instance.client()?;
    let mut addresses = vec![map_doorbell(&instance, &client)?];
    for _ in 1..EACH {
        addresses.push(map_once_more(&instance.folder(), &client)?);
    }
    let ready: &AtomicU32 = os::shared()?;
    ready.store(0, Ordering::Relaxed);
    let children = mappings / EACH - 1;
    let children: Result<Vec<i32>, i32> = (0..children)
        .map(|_| {
            spawn(|| {
                touch(&addresses);
                ready.fetch_add(1, Ordering::Relaxed);
                loop {
                    os::sleep_ms(1_000_000);
                }
            })
        })
        .collect();
    let children = sys("fork", children)?;
    wait_for("ready", || {
        Ok(ready.load(Ordering::Relaxed) as usize == children.len())
    })?;
    equal(
        "mappings",
        &status(&instance, "mappings")?,
        &u64::from(mappings),
    )?;
    let mut nanoseconds = u64::MAX;
    for _ in 0..TIMES {
        touch(&addresses);
        nanoseconds = nanoseconds.min(shut(&instance)?);
    }
    for child in children {
        sys("kill", os::kill(child, libc::SIGKILL))?;
        ended(child)?;
    }
    for address in addresses {
        unmap(address, DOORBELL)?;
    }
    client.close();
    Ok(ShutTime {
        mappings,
        nanoseconds,
    })
}

fn touch(addresses: &[u64]) {
    for address in addresses {
        read(*address);
    }
}

/// The time from the operator's command until the gate is shut. It is opened again.
fn shut(instance: &Instance) -> Result<u64, String> {
    let suspended = format!("{}/suspended", instance.name);
    let began = Instant::now();
    put(&suspended, "1")?;
    while status(instance, "compute_shut")? != 1 {
        std::thread::yield_now();
    }
    let took = began.elapsed().as_nanos();
    put(&suspended, "0")?;
    open(instance)?;
    u64::try_from(took).map_err(|e| e.to_string())
}

fn open(instance: &Instance) -> Verdict {
    wait_for("open", || Ok(status(instance, "compute_shut")? == 0))
}
