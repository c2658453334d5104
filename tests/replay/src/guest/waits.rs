// SPDX-License-Identifier: GPL-2.0
//! `waits`: how long a neighbour waits while a tenant does its worst.
//!
//! The neighbour makes clients, rings its doorbell and waits for kernels of 15 us, over and over.
//! The tenant does one thing without end on the nodes of its own instance. What both do on the
//! driver's own nodes is told too, where the neighbour can do it there.

mod load;

use std::time::{Duration, Instant};

use load::{Load, LOADS};
use serde::Serialize;

use super::{
    cgroup::mount_root,
    instance::{clean_up, Instance},
    rm,
    suite::doorbell::put_policy,
    tools::{at, device_instance, open_node, sys, GIB, GPU},
    work::Work,
};
use crate::{control::mount_cgpufs, sys as os};
use cgpu_uapi::Policy;

/// The length of a kernel, nanoseconds.
const KERNEL: u64 = 15_000;

/// A neighbour's waits of one sort beside a load.
#[derive(Debug, Serialize)]
struct WaitLine {
    /// The tenant did this.
    load: &'static str,
    /// Both used the nodes of an `instance` each, or of the `driver`.
    nodes: &'static str,
    /// The neighbour waited for this: `client`, `launch` or `window`.
    what: &'static str,
    /// How often.
    waits: usize,
    median_us: f64,
    worst_us: f64,
}

/// Waits of one sort.
#[derive(Default)]
struct Waits(Vec<Duration>);

impl Waits {
    fn note(&mut self, began: Instant) {
        self.0.push(began.elapsed());
    }

    fn tell(
        mut self,
        load: &'static str,
        nodes: &'static str,
        what: &'static str,
    ) -> Result<(), String> {
        self.0.sort_unstable();
        let microseconds = |wait: Option<&Duration>| wait.map_or(0.0, |w| w.as_secs_f64() * 1e6);
        let line = WaitLine {
            load,
            nodes,
            what,
            waits: self.0.len(),
            median_us: microseconds(self.0.get(self.0.len() / 2)),
            worst_us: microseconds(self.0.last()),
        };
        println!("{}", at("JSON", serde_json::to_string(&line))?);
        Ok(())
    }
}

/// New clients on the nodes of a folder.
fn clients(folder: &str, length: Duration) -> Result<Waits, String> {
    let ctl = open_node(folder, "nvidiactl")?;
    let mut waits = Waits::default();
    let end = Instant::now() + length;
    while Instant::now() < end {
        let began = Instant::now();
        let handle = at("client", rm::alloc(ctl, 0, 0, 0, rm::ROOT, &mut []))?;
        waits.note(began);
        at("free", rm::free(ctl, handle, handle))?;
    }
    sys("close", os::close(ctl))?;
    Ok(waits)
}

/// Kernels: until the launch is done, and from then until the GPU has run them.
fn kernels(work: &Work, length: Duration) -> Result<[Waits; 2], String> {
    let [mut launches, mut windows] = [Waits::default(), Waits::default()];
    let end = Instant::now() + length;
    while Instant::now() < end {
        let began = Instant::now();
        at("launch", work.launch(KERNEL, 1, 0))?;
        launches.note(began);
        let began = Instant::now();
        at("launch", work.launch(KERNEL, 1, 1))?;
        windows.note(began);
    }
    Ok([launches, windows])
}

/// Beside a load in an instance.
fn in_instance(load: &Load, length: Duration) -> Result<(), String> {
    let (tenant, neighbour) = (Instance::new("worst", GIB)?, Instance::new("waits", GIB)?);
    put_policy(Policy::Weight)?;
    let work = Work::new(&neighbour)?;
    let gpu = device_instance(&neighbour.control, GPU)?;
    let running = load.start(&tenant.folder(), gpu)?;
    let told = clients(&neighbour.folder(), length)
        .and_then(|waits| waits.tell(load.name, "instance", "client"))
        .and_then(|()| kernels(&work, length))
        .and_then(|[launches, windows]| {
            launches.tell(load.name, "instance", "launch")?;
            windows.tell(load.name, "instance", "window")
        });
    running.end()?;
    work.close()?;
    told
}

/// Beside a load on the driver's own nodes.
fn on_the_driver(load: &Load, length: Duration) -> Result<(), String> {
    let gpu = device_instance(&super::tools::control()?, GPU)?;
    let running = load.start("/dev", gpu)?;
    let told = clients("/dev", length).and_then(|w| w.tell(load.name, "driver", "client"));
    running.end()?;
    told
}

/// Each load whose name has `only` in it; every sort of wait is looked at for so many seconds.
/// Prints a line of JSON for each sort.
pub fn run(only: &str, seconds: u64) -> Result<(), String> {
    mount_cgpufs()?;
    mount_root()?;
    os::adopt_orphans();
    let length = Duration::from_secs(seconds);
    for load in LOADS.iter().filter(|load| load.name.contains(only)) {
        let told = on_the_driver(load, length).and_then(|()| in_instance(load, length));
        clean_up();
        told.map_err(|e| format!("{}: {e}", load.name))?;
    }
    put_policy(Policy::Native)
}
