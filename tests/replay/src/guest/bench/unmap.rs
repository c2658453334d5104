// SPDX-License-Identifier: GPL-2.0
//! The price of unmapping memory. Before Linux 6.10 the module looks at each unmapping of the host,
//! because a program must not take its scratch away (os_interface/scratch/seal.c).

use std::path::Path;

use serde::Serialize;

use super::{
    calls::timed,
    figures::{Spread, LIMIT},
    side::BenchSide,
};
use crate::{
    control,
    guest::tools::{self, sys as told, GPU},
    sys,
};

/// Nanoseconds to map a page of a program's own, store to it and unmap it.
#[derive(Debug, Serialize)]
pub struct UnmapReport {
    /// Of a program that has none of the module's files.
    pub host: Spread,
    /// Of a program of an instance, after its first calls; none without the module.
    pub tenant: Option<Spread>,
}

fn page(_: u32) -> Result<(), String> {
    const PAGE: u64 = 4096;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    let prot = libc::PROT_READ | libc::PROT_WRITE;
    let at = told("mmap", sys::mmap(0, PAGE, prot, flags, -1, 0))?;
    // CAST: an address. SAFETY: The page was just mapped, writable.
    unsafe { std::ptr::write_volatile(at as *mut u8, 1) };
    // SAFETY: Nobody refers to the page.
    told("munmap", unsafe { sys::munmap(at, PAGE) })
}

fn pages(rounds: u32, count: u32) -> Result<Spread, String> {
    // In the first one caches are filled.
    timed(count, page)?;
    let taken: Result<_, _> = (0..rounds).map(|_| timed(count, page)).collect();
    taken.map(Spread::of)
}

/// Measures it, by so many rounds of so many calls.
pub fn run(rounds: u32, count: u32) -> Result<UnmapReport, String> {
    std::thread::sleep(super::SETTLE);
    let host = pages(rounds, count)?;
    if !Path::new("/dev/cgpuctl").exists() {
        return Ok(UnmapReport { host, tenant: None });
    }
    control::mount_cgpufs()?;
    let control = tools::control()?;
    let device = tools::device_instance(&control, GPU)?;
    let name = "unmap";
    told(name, control.create(name, GPU, LIMIT, 1))?;
    let side = BenchSide::open(&control::folder(name), device)?;
    let tenant = Some(pages(rounds, count)?);
    side.close();
    told("destroy", control.destroy(name, GPU))?;
    Ok(UnmapReport { host, tenant })
}
