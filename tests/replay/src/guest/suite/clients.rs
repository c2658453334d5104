// SPDX-License-Identifier: GPL-2.0
//! A new client's handle, which the driver writes where other threads of the program can write as
//! well.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use crate::{
    guest::{
        instance::Instance,
        rm,
        tools::{at, holds, sys, tests, Verdict, GIB, MIB},
    },
    sys as os,
};

tests! {
    "clients: a handle that another thread writes is not the new client's" => forged;
}

const SHARED: u32 = 0x5C00_0300;
const STOLEN: u32 = 0x5C00_0301;
const CALLS: u32 = 6000;

/// The module's scratch of this process: first and last address.
pub(super) fn scratch() -> Result<(u64, u64), String> {
    let maps = at("maps", std::fs::read_to_string("/proc/self/maps"))?;
    let line = maps.lines().find(|line| line.contains("[cgpu-scratch]"));
    let range = line.and_then(|line| line.split(' ').next());
    let (start, end) = range
        .and_then(|range| range.split_once('-'))
        .ok_or("the process has no scratch")?;
    let number = |text| at("maps", u64::from_str_radix(text, 16));
    Ok((number(start)?, number(end)?))
}

/// The outcome of new clients beside threads that write a neighbour's handle.
#[derive(Debug)]
struct Seen {
    /// Writes that arrived in the scratch.
    written: u64,
    /// Clients that were said to be the neighbour's.
    forged: u32,
    /// Memory of the neighbour's was duplicated.
    stolen: bool,
}

fn attack() -> Result<Seen, String> {
    let (neighbour, own) = (
        Instance::new("neighbour", GIB)?,
        Instance::new("forger", GIB)?,
    );
    let victim = neighbour.client()?;
    at("memory", victim.memory(SHARED, 2 * MIB))?;
    // As CUDA does for IPC: with everybody.
    at("share", rm::share(victim.ctl, (victim.handle, SHARED), 1))?;
    let client = own.client()?;
    let steal = || {
        let source = (victim.handle, SHARED);
        let parent = rm::DEVICE_HANDLE;
        rm::dup(client.ctl, client.handle, parent, STOLEN, source).is_ok()
    };
    holds("the neighbour's memory is in reach before", !steal())?;

    let file = "/tmp/forged-handle";
    at(file, std::fs::write(file, victim.handle.to_le_bytes()))?;
    let file = sys(file, os::open(file, libc::O_RDONLY | libc::O_CLOEXEC))?;
    let (start, end) = scratch()?;
    let (stop, written) = (AtomicBool::new(false), AtomicU64::new(0));
    let mut forged = 0;
    std::thread::scope(|scope| {
        let write = || {
            while !stop.load(Relaxed) {
                for page in (start..end).step_by(4096) {
                    // hObjectNew of NVOS21 and NVOS64.
                    let arrived = os::pread_into(file, page + 8, 4) == Ok(4);
                    written.fetch_add(u64::from(arrived), Relaxed);
                }
            }
        };
        scope.spawn(write);
        for _ in 0..CALLS {
            match rm::alloc(client.ctl, 0, 0, 0, 0x41, &mut []) {
                Ok(handle) if handle == victim.handle => forged += 1,
                Ok(handle) => drop(rm::free(client.ctl, handle, handle)),
                // A handle that is none, or what else was written.
                Err(_) => {}
            }
        }
        stop.store(true, Relaxed);
    });
    let stolen = steal();
    sys("close", os::close(file))?;
    client.close();
    victim.close();
    Ok(Seen {
        written: written.into_inner(),
        forged,
        stolen,
    })
}

fn forged() -> Verdict {
    let seen = attack()?;
    println!("        {seen:?}");
    holds("nothing was written", seen.written > 0)?;
    holds(
        "a forged handle is believed",
        seen.forged == 0 && !seen.stolen,
    )
}
