// SPDX-License-Identifier: GPL-2.0
//! `storm-pages`: processes of two tenants map memory, free it under mappings, map it late, fork,
//! and pass files on, at random and all at once.
//!
//! Each object of memory has a tag of its own, with which its page is filled before anybody else
//! can map it. Every page that is read later, by whoever and through whatever mapping, must have
//! the tag of the object that the mapping was made for. A mapping that is gone faults. One that a
//! process has ended itself must fault, and one that nothing has ended must not.
//!
//! The same storm comes first on the driver's own nodes, which let a program read what was freed:
//! there it must find other objects' tags. With a seed each process throws the same dice; how
//! processes take turns is the scheduler's.

mod board;
mod program;
mod view;

use std::{
    os::unix::net::UnixDatagram,
    sync::atomic::Ordering::Relaxed,
    time::{Duration, Instant},
};

use board::PagesBoard;
use program::{Inboxes, CHANNEL_STEP, STEPS};
use serde::Serialize;

use crate::{
    control::{self, Control},
    guest::{
        process::spawn,
        suite::doorbell::wait_for,
        tools::{control, device_instance, RefusalsAllowed, GIB, GPU},
        uvm,
    },
    random::Random,
    standin::{self, KernelLog},
    sys,
};

/// The folder of the driver's own nodes.
const DIRECT: &str = "/dev";
const TENANTS: [&str; 2] = ["pages-one", "pages-two"];
/// Processes of each tenant.
const PROCESSES: usize = 2;
const SEATS: usize = TENANTS.len() * PROCESSES;
/// The part of the time that is spent on the driver's own nodes, and the least of it, in seconds.
const DIRECT_PART: u64 = 4;
const DIRECT_LEAST_S: u64 = 3;
/// Fewest steps of each kind that say something, and fewest pages read.
const FEWEST: u64 = 3;
const FEWEST_READS: u64 = 100;
/// How many times as long it may take until that much has happened.
const LONGEST: u32 = 20;

/// The counts of one storm.
#[derive(Debug, Default, Serialize)]
pub struct PagesCounts {
    /// Steps that worked, by kind, and those that found no mapping any more.
    pub steps: Vec<(&'static str, u64)>,
    /// Pages that were read.
    pub reads: u64,
    /// Reads and writes that faulted.
    pub faults: u64,
    /// Processes killed in the midst of it.
    pub kills: u64,
    /// Pages with the tag of another object.
    pub foreign: u64,
    /// Pages with something else than a tag.
    pub odd: u64,
    /// Pages read through mappings that their process had ended.
    pub outlived: u64,
    /// Mappings that faulted although nothing had ended them.
    pub lost: u64,
}

/// Counts and findings.
#[derive(Debug, Default, Serialize)]
pub struct PagesReport {
    /// The seed of the random numbers.
    pub seed: u64,
    /// On the driver's own nodes.
    pub direct: PagesCounts,
    /// Through instances.
    pub instances: PagesCounts,
    /// Findings that must not be.
    pub wrong: Vec<String>,
    /// Lines of the kernel's log that tell of a fault in the kernel.
    pub kernel_warnings: usize,
}

impl PagesCounts {
    fn of(board: &PagesBoard, kills: u64) -> Self {
        let steps = STEPS.iter().zip(&board.steps);
        Self {
            steps: steps
                .map(|(&(name, ..), count)| (name, count.load(Relaxed)))
                .collect(),
            reads: board.reads.load(Relaxed),
            faults: board.faults.load(Relaxed),
            kills,
            foreign: board.foreign.load(Relaxed),
            odd: board.odd.load(Relaxed),
            outlived: board.outlived.load(Relaxed),
            lost: board.lost.load(Relaxed),
        }
    }

    /// Findings that must not be in instances.
    fn wrong(&self) -> Vec<String> {
        let harm = [
            (self.foreign, "pages of other objects were read"),
            (self.odd, "pages with no tag were read"),
            (self.outlived, "pages were read through ended mappings"),
            (self.lost, "mappings were lost"),
        ];
        let harm = harm.into_iter().filter(|(count, _)| *count != 0);
        let harm = harm.map(|(count, what)| format!("{count} {what}"));
        harm.chain(self.too_few()).collect()
    }

    /// The kinds of steps of which there were too few for the storm to say something.
    fn too_few(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        let mut least = self.steps.clone();
        least.extend([("kills", self.kills), ("faults", self.faults)]);
        for (what, count) in least {
            // NVIDIA's driver wants more of a channel that UVM is to keep.
            let is_possible = what != CHANNEL_STEP || standin::is_in_reach();
            if count < FEWEST && is_possible {
                wrong.push(format!("too few steps: {count} {what}"));
            }
        }
        if self.reads < FEWEST_READS {
            wrong.push(format!("too few reads: {}", self.reads));
        }
        wrong
    }
}

/// A storm in progress.
struct PagesStorm<'a> {
    board: &'static PagesBoard,
    /// The folder of each tenant's nodes.
    folders: [String; 2],
    inboxes: Inboxes,
    pids: [i32; SEATS],
    random: &'a mut Random,
    gpu: program::PagesGpu,
    kills: u64,
}

impl PagesStorm<'_> {
    /// Puts a process where there is none.
    fn seat(&mut self, seat: usize) -> Result<(), String> {
        let (board, gpu, seed) = (self.board, self.gpu, self.random.next());
        let (folder, inboxes) = (&self.folders[seat / PROCESSES], &self.inboxes);
        let pid = spawn(|| program::run(board, seat, folder, inboxes, gpu, seed));
        self.pids[seat] = pid.map_err(|e| format!("fork: errno {e}"))?;
        Ok(())
    }

    fn kill(&mut self, seat: usize) -> Result<(), String> {
        let pid = std::mem::take(&mut self.pids[seat]);
        sys::kill(pid, libc::SIGKILL).map_err(|e| format!("kill: errno {e}"))?;
        match sys::wait(pid).map_err(|e| format!("wait: errno {e}"))? {
            libc::SIGKILL => Ok(()),
            status => Err(format!("a process had ended with status {status:#x}")),
        }
    }

    /// On a busy machine it takes longer until enough has happened. Then no process is killed any
    /// more.
    fn blow(&mut self, time: Duration) -> Result<(), String> {
        let began = Instant::now();
        let end = began + time;
        for seat in 0..SEATS {
            self.seat(seat)?;
        }
        while Instant::now() < end {
            sys::sleep_ms(100 + self.random.below(300));
            let seat = self.random.index(SEATS);
            self.kill(seat)?;
            self.kills += 1;
            self.seat(seat)?;
        }
        while self.says_too_little() && began.elapsed() < time * LONGEST {
            sys::sleep_ms(100);
        }
        Ok(())
    }

    fn says_too_little(&self) -> bool {
        let counts = PagesCounts::of(self.board, self.kills);
        if self.board.direct.load(Relaxed) == 0 {
            !counts.too_few().is_empty()
        } else {
            counts.foreign == 0
        }
    }
}

/// A storm on the nodes of two folders.
fn storm(folders: [String; 2], seconds: u64, random: &mut Random) -> Result<PagesCounts, String> {
    let control = control()?;
    let gpu = program::PagesGpu {
        device_instance: device_instance(&control, GPU)?,
        uuid: uvm::uuid(GPU)?,
    };
    let mut inboxes = Vec::new();
    for _ in 0..SEATS {
        let (ours, theirs) = UnixDatagram::pair().map_err(|e| format!("socketpair: {e}"))?;
        for socket in [&ours, &theirs] {
            let set = socket.set_nonblocking(true);
            set.map_err(|e| format!("socket: {e}"))?;
        }
        inboxes.push((ours, theirs));
    }
    let board: &PagesBoard = sys::shared()?;
    let is_direct = folders.iter().all(|folder| folder == DIRECT);
    board.direct.store(u32::from(is_direct), Relaxed);
    let mut storm = PagesStorm {
        board,
        folders,
        inboxes: inboxes.into(),
        pids: [0; SEATS],
        random,
        gpu,
        kills: 0,
    };
    let blown = storm.blow(Duration::from_secs(seconds));
    for seat in 0..SEATS {
        if storm.pids[seat] != 0 {
            storm.kill(seat)?;
        }
    }
    blown?;
    Ok(PagesCounts::of(storm.board, storm.kills))
}

/// No file and no memory is left, so the instance can be removed.
fn remove(control: &Control, name: &str) -> Result<(), String> {
    // The kernel puts the files of killed processes away a moment later.
    wait_for("something is left", || {
        let seen = control.get(name, GPU);
        let seen = seen.map_err(|e| format!("get: errno {e}"))?;
        let files = seen.open_files + seen.tenant_open_files;
        Ok((seen.memory_used_bytes, files, seen.processes) == (0, 0, 0))
    })?;
    let removed = control.destroy(name, GPU);
    removed.map_err(|e| format!("destroy: errno {e}"))
}

/// Runs both storms.
pub fn run(seconds: u64, seed: Option<u64>) -> Result<PagesReport, String> {
    control::mount_cgpufs()?;
    let _rate = RefusalsAllowed::set(0)?;
    let mut log = KernelLog::from_now();
    let seed = seed.unwrap_or_else(Random::seed);
    eprintln!("storm: seed {seed:#x}");
    let mut random = Random(seed);
    let direct_s = (seconds / DIRECT_PART).max(DIRECT_LEAST_S);
    let direct = storm(TENANTS.map(|_| DIRECT.to_owned()), direct_s, &mut random)?;
    let control = control()?;
    for name in TENANTS {
        let made = control.create(name, GPU, GIB, 1);
        made.map_err(|e| format!("create {name}: errno {e}"))?;
    }
    let instances = storm(TENANTS.map(control::folder), seconds, &mut random)?;
    let mut wrong = instances.wrong();
    if direct.foreign == 0 {
        wrong.push("on the driver's nodes it found no page of another's".to_owned());
    }
    for name in TENANTS {
        wrong.extend(remove(&control, name).err().map(|e| format!("{name}: {e}")));
    }
    standin::reset("unanswered")?;
    Ok(PagesReport {
        seed,
        direct,
        instances,
        wrong,
        kernel_warnings: log.tell_faults(),
    })
}
