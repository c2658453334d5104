// SPDX-License-Identifier: GPL-2.0
//! A tenant's worst.

use std::{
    fs,
    sync::atomic::{AtomicU32, Ordering},
    thread,
};

use crate::{
    guest::{
        cgroup::ROOT,
        process::{gather, spawn},
        rm::{self, Client},
        suite::mappings::{map_doorbell_in, map_once_more},
        tools::{at, open_node, sys, GPU},
    },
    sys as os,
};

/// How many threads make clients, in so many processes.
const THREADS: u32 = 10_000;
const PROCESSES: u32 = 10;
/// How many threads make channel groups.
const MAKERS: u32 = 64;
/// Files that are open at once.
const FILES: u32 = 100_000;
/// Mappings of the doorbell: so many in each of so many processes.
const MAPPINGS: u32 = 100;
const FORKS: u32 = 600;
/// More groups than a runlist has channels.
const GROUPS: u32 = 2100;
/// The handle of the first one.
const GROUP_HANDLE: u32 = 0x5D00_0000;
/// The memory of a control group that is always at its limit.
const GROUP_BYTES: u64 = 6 << 20;
const GROUP: &str = "waits";

/// A tenant's place, and its word that it has all that it wants.
struct TenantPlace<'a> {
    folder: &'a str,
    device_instance: u32,
    ready: &'a AtomicU32,
}

impl TenantPlace<'_> {
    fn client(&self) -> Result<Client, String> {
        at(
            "client",
            Client::open(self.folder, GPU, self.device_instance),
        )
    }

    fn is_ready(&self) {
        self.ready.fetch_add(1, Ordering::AcqRel);
    }
}

/// Something that a tenant does without end.
pub(super) struct Load {
    pub(super) name: &'static str,
    processes: u32,
    /// Does it; ends only by failing.
    body: fn(&TenantPlace<'_>) -> Result<(), String>,
}

/// A load that goes on.
pub(super) struct Running(Vec<i32>);

pub(super) const LOADS: &[Load] = &[
    Load {
        name: "nothing",
        processes: 0,
        body: |_| Ok(()),
    },
    Load {
        name: "10,000 threads of idle priority make clients",
        processes: PROCESSES,
        body: make_clients,
    },
    Load {
        name: "threads of idle priority make channel groups beside busy ones",
        processes: 1,
        body: starve_makers_of_groups,
    },
    Load {
        name: "a memory cgroup at its limit",
        processes: 2,
        body: live_at_a_limit,
    },
    Load {
        name: "100,000 files",
        processes: 1,
        body: open_files,
    },
    Load {
        name: "60,000 mappings of registers",
        processes: 1,
        body: map_registers,
    },
    Load {
        name: "all channels of a runlist",
        processes: 1,
        body: take_channels,
    },
];

impl Load {
    /// Begins, and waits until the tenant has what it wants.
    pub(super) fn start(&self, folder: &str, device_instance: u32) -> Result<Running, String> {
        let ready: &AtomicU32 = os::shared()?;
        let mut running = Running(Vec::new());
        for _ in 0..self.processes {
            let place = TenantPlace {
                folder,
                device_instance,
                ready,
            };
            let pid = spawn(|| match (self.body)(&place) {
                Ok(()) => 0,
                Err(text) => {
                    eprintln!("{}: {text}", self.name);
                    1
                }
            });
            running.0.push(sys("fork", pid)?);
        }
        match gather(ready, self.processes) {
            Ok(()) => Ok(running),
            Err(late) => running.end().and(Err(late)),
        }
    }
}

impl Running {
    pub(super) fn end(self) -> Result<(), String> {
        for pid in &self.0 {
            sys("kill", os::kill(*pid, libc::SIGKILL))?;
        }
        // Those that they left behind, too.
        while os::wait(-1).is_ok() {}
        let _ = fs::remove_dir(format!("{ROOT}/{GROUP}"));
        Ok(())
    }
}

fn for_ever() -> ! {
    loop {
        os::sleep_ms(1000);
    }
}

fn make_clients(place: &TenantPlace<'_>) -> Result<(), String> {
    let ctl = open_node(place.folder, "nvidiactl")?;
    for _ in 0..THREADS / PROCESSES {
        let thread = thread::Builder::new().stack_size(32 << 10).spawn(move || {
            os::be_idle();
            rm::client_after_client(ctl)
        });
        at("thread", thread)?;
    }
    place.is_ready();
    for_ever()
}

/// Each group takes the scheduler's lock, in a thread that gets a processor when all others sleep.
fn starve_makers_of_groups(place: &TenantPlace<'_>) -> Result<(), String> {
    for _ in 0..MAKERS {
        let client = place.client()?;
        let thread = thread::Builder::new().spawn(move || {
            os::be_idle();
            loop {
                let made = client.channel_group(GROUP_HANDLE, rm::COMPUTE);
                let _ = made.and_then(|()| client.free(GROUP_HANDLE));
            }
        });
        at("thread", thread)?;
    }
    let processors = at("processors", thread::available_parallelism())?;
    for _ in 0..processors.get() {
        let busy = thread::Builder::new().spawn(|| loop {
            std::hint::spin_loop();
        });
        at("thread", busy)?;
    }
    place.is_ready();
    for_ever()
}

/// Names that are not there fill the group's memory, so that each of its allocations reclaims.
fn live_at_a_limit(place: &TenantPlace<'_>) -> Result<(), String> {
    let group = format!("{ROOT}/{GROUP}");
    let control = format!("{ROOT}/cgroup.subtree_control");
    at(&control, fs::write(&control, "+memory"))?;
    // The other process may have made it.
    let _ = fs::create_dir(&group);
    for (file, text) in [
        ("memory.high", GROUP_BYTES.to_string()),
        ("cgroup.procs", "0".to_owned()),
    ] {
        let path = format!("{group}/{file}");
        at(&path, fs::write(&path, text))?;
    }
    let ctl = open_node(place.folder, "nvidiactl")?;
    let looker = thread::Builder::new().spawn(|| {
        for name in 0_u64.. {
            let _ = fs::metadata(format!("/dev/{name:040}"));
        }
    });
    at("thread", looker)?;
    os::sleep_ms(2000);
    place.is_ready();
    rm::client_after_client(ctl)
}

fn open_files(place: &TenantPlace<'_>) -> Result<(), String> {
    os::raise_fd_limit();
    for _ in 0..FILES {
        if open_node(place.folder, "nvidiactl").is_err() {
            break;
        }
    }
    place.is_ready();
    for_ever()
}

fn map_registers(place: &TenantPlace<'_>) -> Result<(), String> {
    let client = place.client()?;
    map_doorbell_in(place.folder, &client)?;
    for _ in 1..MAPPINGS {
        if map_once_more(place.folder, &client).is_err() {
            break;
        }
    }
    for _ in 0..FORKS {
        if spawn(|| for_ever()).is_err() {
            break;
        }
    }
    place.is_ready();
    for_ever()
}

fn take_channels(place: &TenantPlace<'_>) -> Result<(), String> {
    let client = place.client()?;
    for group in (0..GROUPS).map(|number| GROUP_HANDLE + 2 * number) {
        if client.channel_group(group, rm::COMPUTE).is_err()
            || client.channel(group, group + 1).is_err()
        {
            break;
        }
    }
    place.is_ready();
    for_ever()
}
