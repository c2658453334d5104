// SPDX-License-Identifier: GPL-2.0
//! `chaos`: random and mutated calls, mappings, forks and ends of processes, through all proxies of
//! two tenants at once.
//!
//! Processes are made, do what their dice say, and end in the middle of it, by themselves or
//! killed. What they ask for is in part right (so that objects and mappings come to be) and then
//! wrong in a few bits. What fails here by chance fails in all of its ways; the ends are compared:
//! the kernel's log has no fault, no memory is charged, no file, mapping, object or event is left
//! in the driver, and the tenants can be destroyed. Some clients, memory and mappings must have
//! been granted, and no process may end otherwise than by itself or by our kill.
//!
//! The seed is printed first. With the same seed each process throws the same dice; how processes
//! interleave is the scheduler's.

use std::{
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use super::{
    process::spawn,
    rm,
    suite::doorbell::wait_for,
    tools::{control, device_instance, RefusalsAllowed},
};
use crate::{
    bytes::{put_u32, put_u64, u32_at},
    control::{mount_cgpufs, Control},
    layout,
    standin::{self, KernelLog},
    sys,
};

const GPU: u32 = 0;
const MIB: u64 = 1 << 20;
/// The tenants.
const TENANTS: [&str; 2] = ["chaos-a", "chaos-b"];
/// Steps of a process, if it is not killed before.
const STEPS: u64 = 400;
/// Bytes behind every pointer of a call whose size is left to chance: more than the driver takes.
const ROOM: usize = 128 << 10;
/// Descriptors and mappings that a process keeps.
const KEPT: usize = 24;

/// splitmix64: its whole state is one number, so a process begins anywhere.
struct Dice(u64);

impl Dice {
    fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    fn below(&mut self, sides: u64) -> u64 {
        self.roll() % sides
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        let at = usize::try_from(self.below(from.len() as u64)).unwrap_or(0);
        from[at]
    }

    /// Changes some bytes: none in half of the cases.
    fn mutate(&mut self, bytes: &mut [u8]) {
        if bytes.is_empty() || self.below(2) == 0 {
            return;
        }
        for _ in 0..=self.below(3) {
            let at = usize::try_from(self.below(bytes.len() as u64)).unwrap_or(0);
            bytes[at] = match self.below(4) {
                0 => 0,
                1 => 0xff,
                2 => bytes[at] ^ 1 << self.below(8),
                _ => u8::try_from(self.below(256)).unwrap_or(0),
            };
        }
    }
}

/// Calls that were granted, counted by all processes in memory that they share.
#[derive(Default)]
#[repr(C)]
struct Granted {
    clients: AtomicU64,
    memory: AtomicU64,
    mappings: AtomicU64,
}

/// A process: its dice, files and mappings.
struct ChaosProgram {
    granted: &'static Granted,
    dice: Dice,
    folder: String,
    files: Vec<i32>,
    maps: Vec<(u64, u64)>,
    client: u32,
    /// The file through which the client was made; it works through no other.
    own_file: i32,
    handles: [u32; 12],
}

impl ChaosProgram {
    fn new(seed: u64, tenant: &str, granted: &'static Granted) -> Self {
        let mut handles = [0; 12];
        for (i, handle) in (0x5c00_0001..).zip(handles.iter_mut()) {
            *handle = i;
        }
        Self {
            granted,
            dice: Dice(seed),
            folder: crate::control::folder(tenant),
            files: Vec::new(),
            maps: Vec::new(),
            client: 0,
            own_file: -1,
            handles,
        }
    }

    /// A client, a device and a subdevice, memory and a mapping of it: chance would seldom make
    /// these. A neighbour may have left too little for them.
    fn begin(&mut self, device_instance: u32) {
        let Ok(client) = rm::Client::open(&self.folder, GPU, device_instance) else {
            return;
        };
        self.granted.clients.fetch_add(1, Relaxed);
        self.files.extend([client.ctl, client.gpu]);
        (self.client, self.own_file) = (client.handle, client.ctl);
        (self.handles[0], self.handles[1]) = (rm::DEVICE_HANDLE, rm::SUBDEVICE_HANDLE);
        // The next one is the subdevice's too.
        let memory = self.handles[3];
        if client.memory(memory, 2 * MIB).is_err() {
            return;
        }
        self.granted.memory.fetch_add(1, Relaxed);
        let names = (client.handle, rm::DEVICE_HANDLE, memory);
        let prepared = rm::map(client.ctl, names, MIB, rm::MAP_OF_MEMORY, client.gpu);
        let prot = libc::PROT_READ | libc::PROT_WRITE;
        let mapped = prepared.map(|_| sys::mmap(0, MIB, prot, libc::MAP_SHARED, client.gpu, 0));
        if let Ok(Ok(at)) = mapped {
            self.maps.push((at, MIB));
            self.granted.mappings.fetch_add(1, Relaxed);
        }
    }

    fn open(&mut self) {
        let name = self
            .dice
            .pick(&["nvidiactl", "nvidiactl", "nvidia0", "nvidia-uvm"]);
        let flags = self.dice.pick(&[
            libc::O_RDWR,
            libc::O_RDWR | libc::O_NONBLOCK,
            libc::O_RDONLY,
        ]);
        if self.files.len() >= KEPT {
            self.close();
        }
        if let Ok(fd) = sys::open(&format!("{}/{name}", self.folder), flags | libc::O_CLOEXEC) {
            self.files.push(fd);
        }
    }

    fn close(&mut self) {
        if !self.files.is_empty() {
            let at = usize::try_from(self.dice.below(self.files.len() as u64)).unwrap_or(0);
            let _ = sys::close(self.files.swap_remove(at));
        }
    }

    fn file(&mut self) -> i32 {
        if self.files.is_empty() {
            -1
        } else {
            self.dice.pick(&self.files)
        }
    }

    /// The same, mostly the client's.
    fn file_of_client(&mut self) -> i32 {
        if self.dice.below(4) == 0 {
            self.file()
        } else {
            self.own_file
        }
    }

    fn handle(&mut self) -> u32 {
        match self.dice.below(12) {
            0 => self.client,
            1 => 0,
            2 => 0xc1d0_0000 | u32::try_from(self.dice.below(64)).unwrap_or(0),
            _ => self.dice.pick(&self.handles),
        }
    }

    /// The same, in half of the cases the device's.
    fn handle_of_device(&mut self) -> u32 {
        if self.dice.below(2) == 0 {
            self.handles[0]
        } else {
            self.handle()
        }
    }

    /// Any escape or request with any bytes.
    fn wild(&mut self) {
        let mut bytes = vec![0; ROOM];
        for word in bytes.chunks_exact_mut(8).take(24) {
            word.copy_from_slice(&self.dice.roll().to_le_bytes());
        }
        // Pointers that lead nowhere, or into the argument itself.
        let own = bytes.as_ptr() as u64;
        let pointer = self
            .dice
            .pick(&[own, 0, 1, own + 4096, u64::MAX - 4095, 1 << 47]);
        put_u64(&mut bytes, 16, pointer);
        let nr = u32::try_from(self.dice.below(256)).unwrap_or(0);
        let size = self
            .dice
            .pick(&[0, 4, 8, 16, 24, 28, 32, 48, 56, 72, 184, 560, 2304, 2608]);
        let request = match self.dice.below(3) {
            0 => u32::try_from(self.dice.below(100)).unwrap_or(0),
            1 => self.dice.pick(&[layout::UVM_INITIALIZE, 0x3000_0002]),
            _ => 3 << 30 | size << 16 | layout::NV_TYPE << 8 | nr,
        };
        let _ = sys::ioctl(self.file(), request, &mut bytes);
    }

    /// RM_ALLOC, nearly right.
    fn alloc(&mut self) {
        let (class, size) = self.dice.pick(&[
            (rm::ROOT, 0),
            (rm::ROOT, 0),
            (rm::DEVICE, 56),
            (rm::DEVICE, 56),
            (rm::SUBDEVICE, 4),
            (rm::VIDEO_MEMORY, 128),
            (rm::VIDEO_MEMORY, 128),
            (rm::SYSTEM_MEMORY, 128),
            (0x90f1, 56),
            (0xa06c, 20),
            (0xc86f, 368),
            (rm::USERMODE, 2),
            (0x79, 24),
            (0xde, 8),
        ]);
        // The class may be changed below, and with it what the driver writes.
        let mut params = vec![0; if size == 0 { 0 } else { ROOM }];
        if class == rm::VIDEO_MEMORY || class == rm::SYSTEM_MEMORY {
            let bytes = (1 + self.dice.below(64)) * MIB;
            params[..size].copy_from_slice(&rm::memory_params(self.client, bytes));
        }
        self.dice.mutate(&mut params[..size]);
        let mut outer = vec![0; 48];
        let root = class == rm::ROOT;
        let (parent, new) = match class {
            rm::DEVICE => (self.client, self.handle_of_device()),
            _ => (self.handle_of_device(), self.handle()),
        };
        let fd = if root {
            self.file()
        } else {
            self.file_of_client()
        };
        for (at, value) in [
            (0, if root { 0 } else { self.client }),
            (4, parent),
            (8, if root { 0 } else { new }),
            (12, class),
        ] {
            put_u32(&mut outer, at, value);
        }
        if !params.is_empty() {
            put_u64(&mut outer, 16, params.as_mut_ptr() as u64);
        }
        // Neither pointer may be changed: the driver writes behind it.
        self.dice.mutate(&mut outer[..16]);
        let request = 3 << 30 | 48 << 16 | layout::NV_TYPE << 8 | 0x2b;
        let done = sys::ioctl(fd, request, &mut outer).is_ok();
        if !done || u32_at(&outer, 40) != 0 {
            return;
        }
        // A new client has no device, so most are made and left.
        if root && self.dice.below(4) == 0 {
            (self.client, self.own_file) = (u32_at(&outer, 8), fd);
        }
        // The class that was asked for, after the mutation.
        match u32_at(&outer, 12) {
            rm::ROOT => &self.granted.clients,
            rm::VIDEO_MEMORY | rm::SYSTEM_MEMORY => &self.granted.memory,
            _ => return,
        }
        .fetch_add(1, Relaxed);
    }

    /// A control out of some, with zeros or a mutation of them.
    fn control(&mut self) {
        let (cmd, size) = self.dice.pick(&[
            (0x2080_1303, 1028),
            (0x2080_018e, 14408),
            (0x2080_018d, 3812),
            (0x201, 128),
            (0xa06c_0103, 8),
            (0x2080_110b, 536),
            (0x2080_014a, 268),
            (0xd04, 12),
            (0x0080_170d, 24),
            (0x2080_8159, 332),
        ]);
        let mut params = vec![0; size];
        // A list of channels has pointers in it.
        if cmd != 0x0080_170d {
            self.dice.mutate(&mut params);
        }
        let (fd, client, object) = (self.file_of_client(), self.client, self.handle());
        let _ = rm::control(fd, client, object, cmd, &mut params);
    }

    fn free(&mut self) {
        let (fd, client, object) = (self.file_of_client(), self.client, self.handle());
        let _ = rm::free(fd, client, object);
    }

    fn dup(&mut self) {
        let (fd, client) = (self.file_of_client(), self.client);
        let (parent, new) = (self.handle_of_device(), self.handle());
        let source = (self.client, self.handle());
        let _ = rm::dup(fd, client, parent, new, source);
    }

    /// RM_MAP_MEMORY and an mmap of what it prepared, or of nothing.
    fn map(&mut self) {
        let length = self.dice.pick(&[4096, 0x1_0000, MIB, 2 * MIB]);
        let (ctl, fd) = (self.file_of_client(), self.file());
        let mut outer = [0; 56];
        let names = [self.client, self.handle_of_device(), self.handle()];
        for (at, value) in [0, 4, 8].into_iter().zip(names) {
            put_u32(&mut outer, at, value);
        }
        put_u64(&mut outer, 24, length);
        put_u32(&mut outer, 48, u32::try_from(fd).unwrap_or(u32::MAX));
        let request = 3 << 30 | 56 << 16 | layout::NV_TYPE << 8 | 0x4e;
        let _ = sys::ioctl(ctl, request, &mut outer);
        let prot = self.dice.pick(&[
            libc::PROT_READ,
            libc::PROT_WRITE,
            libc::PROT_READ | libc::PROT_WRITE,
        ]);
        if let Ok(at) = sys::mmap(0, length, prot, libc::MAP_SHARED, fd, 0) {
            if self.maps.len() >= KEPT {
                self.unmap();
            }
            self.maps.push((at, length));
            self.granted.mappings.fetch_add(1, Relaxed);
        }
    }

    /// Takes a mapping away, or a part of it.
    fn unmap(&mut self) {
        if self.maps.is_empty() {
            return;
        }
        let at = usize::try_from(self.dice.below(self.maps.len() as u64)).unwrap_or(0);
        let (address, length) = self.maps.swap_remove(at);
        let part = match self.dice.below(3) {
            0 => 4096,
            _ => length,
        };
        // SAFETY: the driver gave this range and nothing of the program lies in it.
        let _ = unsafe { sys::munmap(address, part) };
    }

    /// UVM requests that make and end mappings, nearly right.
    fn uvm(&mut self) {
        let (request, size) = self.dice.pick(&[
            (layout::UVM_INITIALIZE, 16),
            (layout::UVM_MM_INITIALIZE, 8),
            (37, 40),
            (38, 24),
            (25, 32),
            (26, 24),
            (33, 9264),
            (34, 24),
            (66, 40),
            (73, 24),
        ]);
        let mut params = vec![0; size];
        let base = 0x20_0000_0000 + self.dice.below(8) * 2 * MIB;
        if size >= 24 && request != 37 && request != 25 {
            put_u64(&mut params, 0, base);
            put_u64(&mut params, 8, 2 * MIB);
        }
        if request == 33 {
            put_u64(&mut params, 9240, 1);
            put_u32(&mut params, 9252, self.client);
            put_u32(&mut params, 9256, self.handle());
        }
        self.dice.mutate(&mut params);
        let _ = sys::ioctl(self.file(), request, &mut params);
    }

    /// A child that does a few steps with everything that it inherited, and ends.
    fn fork(&mut self) {
        let Ok(pid) = sys::fork() else { return };
        if pid == 0 {
            sys::die_with_parent();
            for _ in 0..10 {
                self.step(false);
            }
            sys::exit_now(0);
        }
        let killed = self.dice.below(3) == 0;
        if killed {
            let _ = sys::kill(pid, libc::SIGKILL);
        }
        if let Err(why) = ended_well(pid, killed) {
            eprintln!("storm: a child of a process: {why}");
            sys::exit_now(1);
        }
    }

    fn step(&mut self, may_fork: bool) {
        match self.dice.below(20) {
            0..=2 => self.open(),
            3 => self.close(),
            4..=5 => self.wild(),
            6..=9 => self.alloc(),
            10..=11 => self.control(),
            12 => self.free(),
            13 => self.dup(),
            14..=15 => self.map(),
            16 => self.unmap(),
            17..=18 => self.uvm(),
            _ if may_fork => self.fork(),
            _ => {}
        }
    }
}

/// The driver's counts, which must be at the end as they were.
fn counts() -> Result<Vec<(String, u64)>, String> {
    let mut counts = Vec::new();
    if !standin::is_in_reach() {
        // The module's own are looked at, and that the driver can be unloaded.
        return Ok(counts);
    }
    for (file, keys) in [
        ("refs", &["files", "mappings", "events"][..]),
        ("objects", &["clients", "objects"]),
        (
            "heap",
            &["gpu0_used_bytes", "gpu0_contexts", "gpu0_managed_bytes"],
        ),
    ] {
        let values = standin::read(file)?;
        counts.extend(
            keys.iter()
                .map(|key| ((*key).to_owned(), standin::number(&values, key))),
        );
    }
    Ok(counts)
}

/// Waits for a process, which ends by itself, or by our signal if it was `killed`.
fn ended_well(pid: i32, killed: bool) -> Result<(), String> {
    match sys::wait(pid).map_err(|e| format!("wait: errno {e}"))? {
        0 => Ok(()),
        libc::SIGKILL if killed => Ok(()),
        status => Err(format!("it ended with wait status {status:#x}")),
    }
}

/// One process of it.
fn process(seed: u64, tenant: &str, granted: &'static Granted, device_instance: u32) -> i32 {
    let mut program = ChaosProgram::new(seed, tenant, granted);
    program.begin(device_instance);
    program.open();
    for _ in 0..STEPS {
        program.step(true);
    }
    0
}

/// Runs it; whether everything is as it was.
pub fn run(seconds: u64, seed: Option<u64>, processes: u32) -> Result<bool, String> {
    mount_cgpufs()?;
    let _rate = RefusalsAllowed::set(0)?;
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_err(|e| e.to_string())?;
    let seed = seed.unwrap_or_else(|| u64::try_from(now.as_nanos() & 0xffff_ffff).unwrap_or(0));
    println!("seed {seed}");
    let mut log = KernelLog::from_now();
    let control = control()?;
    let device_instance = device_instance(&control, GPU)?;
    let before = counts()?;
    for name in TENANTS {
        let made = control.create(name, GPU, 512 * MIB, 1);
        made.map_err(|e| format!("create {name}: errno {e}"))?;
    }
    let end = Instant::now() + Duration::from_secs(seconds);
    let mut dice = Dice(seed);
    let mut running = Vec::new();
    let granted: &Granted = sys::shared()?;
    let mut wrong = Vec::new();
    let (mut made, mut killed) = (0_u64, 0_u64);
    while Instant::now() < end {
        let (next, tenant) = (dice.roll(), dice.pick(&TENANTS));
        let pid = spawn(|| process(next, tenant, granted, device_instance))
            .map_err(|e| format!("fork: errno {e}"))?;
        made += 1;
        running.push(pid);
        if running.len() >= usize::try_from(processes.max(1)).unwrap_or(1) {
            let pid = running.remove(0);
            let kill = dice.below(4) == 0;
            if kill {
                killed += 1;
                let _ = sys::kill(pid, libc::SIGKILL);
            }
            wrong.extend(ended_well(pid, kill).err());
        }
    }
    for pid in running {
        wrong.extend(ended_well(pid, false).err());
    }
    println!("{made} processes, {killed} killed");
    for (what, count) in [
        ("clients", &granted.clients),
        ("objects of memory", &granted.memory),
        ("mappings", &granted.mappings),
    ] {
        let count = count.load(Relaxed);
        println!("{count} {what} granted");
        if count == 0 {
            wrong.push(format!("no {what} were granted"));
        }
    }
    finish(&control, &before, &mut log, wrong)
}

/// Compares the end with the beginning.
fn finish(
    control: &Control,
    before: &[(String, u64)],
    log: &mut KernelLog,
    mut wrong: Vec<String>,
) -> Result<bool, String> {
    wrong.extend(log.faults());
    let mut calls = 0;
    for name in TENANTS {
        let seen = control
            .get(name, GPU)
            .map_err(|e| format!("get {name}: errno {e}"))?;
        calls += seen.calls_refused + seen.memory_refused;
        // The kernel may still be putting away a process that was killed.
        let mut left = (0, 0);
        let none_left = wait_for("something is left", || {
            let seen = control.get(name, GPU);
            let seen = seen.map_err(|e| format!("get: errno {e}"))?;
            left = (seen.memory_used_bytes, seen.tenant_open_files);
            Ok(left == (0, 0))
        });
        if let Err(why) = none_left {
            wrong.push(format!("{name}: {why}: memory and open files {left:?}"));
        }
        if let Err(e) = control.destroy(name, GPU) {
            wrong.push(format!("destroy {name}: errno {e}"));
        }
    }
    for ((what, was), (_, is)) in before.iter().zip(counts()?) {
        if *was != is {
            wrong.push(format!("{what} was {was} and is {is}"));
        }
    }
    standin::reset("unanswered")?;
    println!("{calls} calls refused");
    for line in &wrong {
        println!("FAILED {line}");
    }
    println!(
        "{} passed, {} failed",
        u32::from(wrong.is_empty()),
        wrong.len()
    );
    Ok(wrong.is_empty())
}
