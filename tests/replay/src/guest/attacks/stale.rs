// SPDX-License-Identifier: GPL-2.0
//! Memory that was freed, reached by whoever had it mapped.
//!
//! The driver takes nothing out of a program's memory when it frees or unmaps an object, and goes
//! on making mappings of the file. In these attacks a program maps memory and has it freed, in one
//! of several ways. A neighbour takes memory and writes a secret into it, and the program reads and
//! writes through the mapping that it had, or makes one now. On the driver's own nodes every piece
//! of the neighbour's memory is reached; through an instance none may be.

use std::{
    io::{Read, Write},
    os::{fd::AsRawFd, unix::net::UnixStream},
    sync::atomic::{
        AtomicU32,
        Ordering::{Acquire, Release},
    },
};

use super::{
    attack::Own,
    rest::alone,
    scene::{in_instances, Place, GPU, MIB},
};
use crate::{
    control::folder,
    facts,
    guest::{
        process::{in_child, receive_fd, send_fd, spawn},
        rm,
        tools::{control, device_instance},
    },
    standin, sys,
};

pub(super) const ATTACKS: &[Own] = &[
    Own {
        name: "mapping: memory read and written after its free",
        function: "mapping_cpu.c:memUnmap_IMPL",
        run: || reach_freed(|program| program.free_each(), Way::Kept),
    },
    Own {
        name: "mapping: memory mapped after its free",
        function: "nv-mmap.c:nvidia_mmap_helper",
        run: || reach_freed(|program| program.free_each(), Way::Late),
    },
    Own {
        name: "mapping: memory read and written after its device's free",
        function: "mapping_cpu.c:memUnmap_IMPL",
        run: || reach_freed(|program| program.free(rm::DEVICE_HANDLE), Way::Kept),
    },
    Own {
        name: "mapping: memory read and written after its client's free",
        function: "mapping_cpu.c:memUnmap_IMPL",
        run: || reach_freed(|program| program.free(program.client.handle), Way::Kept),
    },
    Own {
        name: "mapping: memory mapped after its control file was closed",
        function: "nv-mmap.c:nvidia_mmap_helper",
        run: || reach_freed(|program| program.close_control(), Way::Late),
    },
    Own {
        name: "mapping: memory moved (mremap) and read after its free",
        function: "mapping_cpu.c:memUnmap_IMPL",
        run: || reach_freed(|program| program.free_each(), Way::Moved),
    },
    Own {
        name: "mapping: memory read and written after RM_UNMAP_MEMORY and free",
        function: "mapping_cpu.c:memUnmap_IMPL",
        run: || reach_freed(|program| program.unmap_each(), Way::Kept),
    },
    Own {
        name: "mapping: inherited memory read and written after its free",
        function: "mapping_cpu.c:memUnmap_IMPL",
        run: || reach_freed(|program| program.free_each(), Way::Forked),
    },
    Own {
        name: "mapping: a passed file's memory mapped after its free",
        function: "nv-mmap.c:nvidia_mmap_helper",
        run: || reach_freed(|program| program.free_each(), Way::Sent),
    },
    Own {
        name: "mapping: memory mapped by another thread during its free",
        function: "nv-mmap.c:nvidia_mmap_helper",
        run: race_with_frees,
    },
    Own {
        name: "mapping: memory mapped in the name of another object",
        function: "osapi.c:RmCreateMmapContextLocked",
        run: left_behind,
    },
    Own {
        name: "mapping: host memory mapped after its free",
        function: "nv-mmap.c:nvidia_mmap_helper",
        run: host_memory,
    },
];

/// Pieces of memory, of 2 MiB each.
const PIECES: u32 = 8;
const PIECE: u64 = 2 * MIB;
/// The part of each that is mapped.
const PAGE: u64 = 4096;
const FIRST: u32 = 0x5c00_0100;
pub(super) const SECRET: u32 = 0x5ec2_e700;
const SCRIBBLE: u32 = 0xbad0_0000;

/// How the program reaches the memory afterwards.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    /// By the mapping that it had.
    Kept,
    /// By one that it makes now.
    Late,
    /// By the mapping that it had, at another address.
    Moved,
    /// By a child's mapping, from before.
    Forked,
    /// By one that another process makes now, of a file that it was sent.
    Sent,
}

/// A program with pieces of memory, each mapped through a file of its own.
pub(super) struct Program {
    client: rm::Client,
    pieces: Vec<Piece>,
}

/// A piece that is mapped.
#[derive(Clone, Copy)]
pub(super) struct Piece {
    fd: i32,
    pub(super) address: u64,
    /// As the driver names the mapping.
    told: u64,
}

fn folder_of(place: Place, name: &str) -> String {
    match place {
        Place::Driver => "/dev".to_owned(),
        Place::Instance => folder(name),
    }
}

fn client_in(folder: &str) -> Result<rm::Client, String> {
    client_on(folder, GPU)
}

/// A client with a device of this GPU.
pub(super) fn client_on(folder: &str, gpu: u32) -> Result<rm::Client, String> {
    let control = control()?;
    let number = device_instance(&control, gpu)?;
    say("client", rm::Client::open(folder, gpu, number))
}

fn say<T>(what: &str, result: Result<T, impl std::fmt::Display>) -> Result<T, String> {
    result.map_err(|e| format!("{what}: {e}"))
}

fn page_of(fd: i32) -> Result<u64, String> {
    let prot = libc::PROT_READ | libc::PROT_WRITE;
    let mapped = sys::mmap(0, PAGE, prot, libc::MAP_SHARED, fd, 0);
    mapped.map_err(|errno| format!("mmap: errno {errno}"))
}

fn read(address: u64) -> u32 {
    // SAFETY: A page that was mapped; where it has no memory any more, the process ends.
    unsafe { (address as *const u32).read_volatile() }
}

fn write(address: u64, value: u32) {
    // SAFETY: The page was mapped for writing; where it has no memory any more, the process ends.
    unsafe { (address as *mut u32).write_volatile(value) };
}

impl Program {
    /// One in `name`, which writes `value` and the number of the piece into each.
    pub(super) fn new(place: Place, name: &str, value: u32) -> Result<Self, String> {
        Self::on(place, name, GPU, value)
    }

    /// The same on this GPU.
    pub(super) fn on(place: Place, name: &str, gpu: u32, value: u32) -> Result<Self, String> {
        let folder = folder_of(place, name);
        let client = client_on(&folder, gpu)?;
        let mut pieces = Vec::new();
        for piece in 0..PIECES {
            let handle = FIRST + piece;
            say("memory", client.memory(handle, PIECE))?;
            let mapped = mapped(&folder, &client, (rm::DEVICE_HANDLE, handle), gpu)?;
            write(mapped.address, value | piece);
            pieces.push(mapped);
        }
        Ok(Self { client, pieces })
    }

    /// Each piece has what was written to it.
    pub(super) fn is_unharmed(&self) -> bool {
        secrets(&self.pieces, false) == self.pieces.len()
    }

    pub(super) fn client(&self) -> &rm::Client {
        &self.client
    }

    /// The first piece that does not have what was written, and what it has.
    pub(super) fn changed(&self, value: u32) -> Option<(u32, u32)> {
        let seen = self.pieces.iter().map(|piece| read(piece.address));
        (0..).zip(seen).find(|(piece, seen)| *seen != value | piece)
    }

    fn free(&self, object: u32) -> Result<(), String> {
        say("free", self.client.free(object))
    }

    fn free_each(&self) -> Result<(), String> {
        (0..PIECES).try_for_each(|piece| self.free(FIRST + piece))
    }

    fn unmap_each(&self) -> Result<(), String> {
        for (piece, handle) in self.pieces.iter().zip(FIRST..) {
            let names = (self.client.handle, rm::DEVICE_HANDLE, handle);
            let unmapped = rm::unmap(self.client.ctl, names, piece.told);
            say("RM_UNMAP_MEMORY", unmapped)?;
        }
        self.free_each()
    }

    fn close_control(&self) -> Result<(), String> {
        // The GPU's file holds the control file that it was registered with.
        say("close", sys::close(self.client.ctl))?;
        say("close", sys::close(self.client.gpu))
    }

    pub(super) fn close(self) {
        give_up(&self.pieces);
        // Its control file may be closed already.
        let _ = rm::free(self.client.ctl, self.client.handle, self.client.handle);
        let _ = sys::close(self.client.ctl);
        let _ = sys::close(self.client.gpu);
    }
}

/// A page of memory of a client, mapped by way of this device and a file of this GPU.
pub(super) fn mapped(
    folder: &str,
    client: &rm::Client,
    (device, memory): (u32, u32),
    gpu: u32,
) -> Result<Piece, String> {
    let path = format!("{folder}/nvidia{gpu}");
    let fd = say(&path, sys::open(&path, libc::O_RDWR | libc::O_CLOEXEC))?;
    let names = (client.handle, device, memory);
    let told = rm::map(client.ctl, names, PAGE, rm::MAP_OF_MEMORY, fd);
    let page = say("RM_MAP_MEMORY", told).and_then(|told| Ok((told, page_of(fd)?)));
    if page.is_err() {
        let _ = sys::close(fd);
    }
    let (told, address) = page?;
    Ok(Piece { fd, address, told })
}

/// Unmaps and closes pieces.
pub(super) fn give_up(pieces: &[Piece]) {
    for piece in pieces {
        // SAFETY: Pages of this program's own.
        let _ = unsafe { sys::munmap(piece.address, PAGE) };
        let _ = sys::close(piece.fd);
    }
}

/// How many pieces show what `look` says, through mappings from before or ones made now.
fn count(pieces: &[Piece], late: bool, look: impl Fn(u64) -> bool) -> usize {
    let reaches = |piece: &&Piece| {
        // A page that is gone ends the process.
        let reached = in_child(|| {
            let address = if late {
                page_of(piece.fd)?
            } else {
                piece.address
            };
            look(address)
                .then_some(())
                .ok_or_else(|| "something else".to_owned())
        });
        reached.is_ok()
    };
    pieces.iter().filter(reaches).count()
}

/// Whether a page is there: a read of one that is not ends the process.
fn is_there(address: u64) -> bool {
    read(address);
    true
}

/// How many pieces a neighbour's secret is read from.
pub(super) fn secrets(pieces: &[Piece], late: bool) -> usize {
    count(pieces, late, |address| read(address) & !0xff == SECRET)
}

/// The same. All that can be written to are written to.
fn spoil(pieces: &[Piece], late: bool) -> usize {
    let seen = secrets(pieces, late);
    let _ = count(pieces, late, |address| {
        write(address, SCRIBBLE);
        true
    });
    seen
}

/// Another process with the pieces of a program.
struct Holder {
    socket: UnixStream,
    pid: i32,
}

impl Holder {
    /// Forks one off: with the program's mappings, or with none, to be sent the files.
    fn new(pieces: &[Piece], way: Way) -> Result<Self, String> {
        let (ours, theirs) = say("socketpair", UnixStream::pair())?;
        let pid = spawn(|| match hold(pieces, way, theirs) {
            Ok(()) => 0,
            Err(_) => 1,
        });
        let pid = pid.map_err(|errno| format!("fork: errno {errno}"))?;
        if way == Way::Sent {
            for piece in pieces {
                send_fd(&ours, piece.fd).map_err(|errno| format!("sendmsg: errno {errno}"))?;
            }
        }
        Ok(Self { socket: ours, pid })
    }

    /// As [`spoil`], there.
    fn spoil(mut self) -> Result<usize, String> {
        let mut seen = [0];
        say("the other process", self.socket.write_all(&[1]))?;
        say("the other process", self.socket.read_exact(&mut seen))?;
        sys::wait(self.pid).map_err(|errno| format!("wait: errno {errno}"))?;
        Ok(usize::from(seen[0]))
    }
}

/// The work of a [`Holder`].
fn hold(pieces: &[Piece], way: Way, mut socket: UnixStream) -> Result<(), String> {
    let mut sent = Vec::new();
    let mut own = pieces.to_vec();
    if way == Way::Sent {
        give_up(pieces);
        for piece in &mut own {
            let fd = receive_fd(&socket).map_err(|errno| format!("recvmsg: errno {errno}"))?;
            piece.fd = fd.as_raw_fd();
            sent.push(fd);
        }
    }
    say("socket", socket.read_exact(&mut [0]))?;
    let seen = spoil(&own, way == Way::Sent);
    say(
        "socket",
        socket.write_all(&[u8::try_from(seen).unwrap_or(u8::MAX)]),
    )
}

/// Moves all pages of a program to other addresses.
fn move_all(program: &mut Program) -> Result<(), String> {
    for Piece { address, .. } in &mut program.pieces {
        // SAFETY: A page of this program's own, which nobody else knows.
        let moved = unsafe {
            libc::mremap(
                *address as *mut libc::c_void,
                PAGE as usize,
                PAGE as usize,
                libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED,
                (*address + (1 << 30)) as *mut libc::c_void,
            )
        };
        if moved == libc::MAP_FAILED {
            return Err("mremap failed".to_owned());
        }
        *address = moved as u64;
    }
    Ok(())
}

/// How many pieces of a neighbour's memory a program reads, and writes, after it has freed its own.
fn reached(
    place: Place,
    free: impl Fn(&Program) -> Result<(), String>,
    way: Way,
) -> Result<(usize, usize), String> {
    let mut program = Program::new(place, "attacker", 0)?;
    if way == Way::Moved {
        move_all(&mut program)?;
    }
    let own = count(&program.pieces, false, is_there);
    if own != PIECES as usize {
        return Err(format!("{own} of its own pieces can be read"));
    }
    let holder = match way {
        Way::Forked | Way::Sent => Some(Holder::new(&program.pieces, way)?),
        Way::Kept | Way::Late | Way::Moved => None,
    };
    free(&program)?;
    let victim = Program::new(place, "victim", SECRET)?;
    let late = way == Way::Late;
    let (seen, kept) = match holder {
        Some(holder) => (holder.spoil()?, 0),
        None => (
            spoil(&program.pieces, late),
            count(&program.pieces, late, is_there),
        ),
    };
    // There is no mapping of it, even if nobody else has the memory yet.
    if kept != 0 && matches!(place, Place::Instance) {
        return Err(format!("{kept} of its mappings are still there"));
    }
    let spoilt = victim.pieces.iter();
    let spoilt = spoilt
        .filter(|piece| read(piece.address) == SCRIBBLE)
        .count();
    victim.close();
    program.close();
    Ok((seen, spoilt))
}

/// The attack on the driver's nodes, where it must work, and through an instance.
fn reach_freed(free: impl Fn(&Program) -> Result<(), String>, way: Way) -> Result<String, String> {
    let all = PIECES as usize;
    let direct = alone(|| reached(Place::Driver, &free, way))?;
    if direct != (all, all) {
        return Err(format!(
            "on the driver it reads and writes {direct:?} of {all}"
        ));
    }
    match in_instances(|| reached(Place::Instance, &free, way))? {
        (0, 0) => Ok(format!("0 of {all}; on the driver {all}")),
        through => Err(format!("it reads and writes {through:?} of {all}")),
    }
}

/// How often memory is mapped while another thread frees it.
const RACES: u32 = 1500;

/// The progress of two threads that make a round together.
#[derive(Default)]
struct Rounds {
    begun: AtomicU32,
    freed: AtomicU32,
}

/// The number of no round: there are no more.
const OVER: u32 = u32::MAX;

fn wait_until(done: impl Fn() -> bool) {
    while !done() {
        std::thread::yield_now();
    }
}

/// Lets a moment pass, which is longer for a larger number.
fn pause(length: u32) {
    for _ in 0..length {
        std::hint::spin_loop();
    }
}

/// Frees the object of each round, at another moment in each.
fn free_in_rounds(client: &rm::Client, rounds: &Rounds) -> Result<(), String> {
    let mut result = Ok(());
    for round in 1.. {
        wait_until(|| rounds.begun.load(Acquire) >= round);
        if rounds.begun.load(Acquire) == OVER {
            break;
        }
        pause(round % 64 * 16);
        result = result.and(say("free", client.free(FIRST)));
        rounds.freed.store(round, Release);
    }
    result
}

/// Maps memory while another thread frees it. Whether it was mapped, and whether it can be read
/// then.
fn map_in_round(
    folder: &str,
    client: &rm::Client,
    (rounds, round): (&Rounds, u32),
    sink: i32,
) -> Result<(bool, bool), String> {
    let path = format!("{folder}/nvidia{GPU}");
    let fd = say(&path, sys::open(&path, libc::O_RDWR | libc::O_CLOEXEC))?;
    say("memory", client.memory(FIRST, PIECE))?;
    let names = (client.handle, rm::DEVICE_HANDLE, FIRST);
    say(
        "RM_MAP_MEMORY",
        rm::map(client.ctl, names, PAGE, rm::MAP_OF_MEMORY, fd),
    )?;
    rounds.begun.store(round, Release);
    pause(round / 64 % 64 * 16);
    let mapped = page_of(fd);
    wait_until(|| rounds.freed.load(Acquire) == round);
    let (mut made, mut seen) = (false, false);
    if let Ok(address) = mapped {
        made = true;
        seen = sys::pwrite_from(sink, address, 4).is_ok();
        // SAFETY: The page that was just mapped.
        let _ = unsafe { sys::munmap(address, PAGE) };
    }
    say("close", sys::close(fd))?;
    Ok((made, seen))
}

/// How many mappings are made while their memory is freed, and how many show it afterwards.
fn raced(place: Place) -> Result<(u32, u32), String> {
    let folder = folder_of(place, "attacker");
    let client = client_in(&folder)?;
    let sink = say("memfd", sys::memory_file(c"sink"))?;
    let rounds = Rounds::default();
    let result = std::thread::scope(|scope| {
        let freeing = scope.spawn(|| free_in_rounds(&client, &rounds));
        let counted = (1..=RACES).try_fold((0, 0), |(made, seen), round| {
            let (is_made, is_seen) = map_in_round(&folder, &client, (&rounds, round), sink)?;
            Ok((made + u32::from(is_made), seen + u32::from(is_seen)))
        });
        rounds.begun.store(OVER, Release);
        let freed = freeing.join().map_err(|_| "panicked".to_owned())?;
        freed.and(counted)
    });
    say("close", sys::close(sink))?;
    client.close();
    result
}

fn race_with_frees() -> Result<String, String> {
    let (made, seen) = alone(|| raced(Place::Driver))?;
    if (made, seen) != (RACES, RACES) {
        return Err(format!("on the driver {made} are made and {seen} readable"));
    }
    match in_instances(|| raced(Place::Instance))? {
        (0, _) => Err("none is made in time".to_owned()),
        (made, 0) => Ok(format!("0 of {made}; on the driver {RACES}")),
        (made, seen) => Err(format!("{seen} of {made} show memory that is freed")),
    }
}

/// The first branch whose driver has a thread's mapping in a slot of the thread.
const HAS_SLOT: u32 = 570;

/// A file that is to show an object, of a client that may be another process's.
fn prepared(folder: &str, client: &rm::Client, object: u32, node: &str) -> Result<i32, String> {
    let path = format!("{folder}/{node}");
    let fd = say(&path, sys::open(&path, libc::O_RDWR | libc::O_CLOEXEC))?;
    let names = (client.handle, rm::DEVICE_HANDLE, object);
    let told = rm::map(client.ctl, names, PAGE, rm::MAP_OF_MEMORY, fd);
    say("RM_MAP_MEMORY", told).map(|_| fd)
}

/// A child is refused a mapping of its parent's memory, and then maps host memory of its own, by a
/// file of the GPU. That cannot be, unless the file shows what was refused.
fn mapped_by_child(folder: &str, parent: &rm::Client) -> Result<(), String> {
    let node = format!("nvidia{GPU}");
    if prepared(folder, parent, FIRST, &node).is_ok() {
        return Err("a child maps its parent's memory".to_owned());
    }
    let own = client_in(folder)?;
    say("memory", own.system_page(FIRST))?;
    let fd = prepared(folder, &own, FIRST, &node)?;
    page_of(fd).map(drop)
}

/// A mapping is refused half-way, and the thread's next one, of another object, shows its place.
fn left_behind() -> Result<String, String> {
    if facts::branch() < HAS_SLOT {
        standin::needed("branches before 570 have no slot for a thread's mapping")?;
    }
    let tried = |place| -> Result<Result<(), String>, String> {
        let folder = folder_of(place, "attacker");
        let client = client_in(&folder)?;
        say("memory", client.memory(FIRST, PIECE))?;
        let mapped = in_child(|| mapped_by_child(&folder, &client));
        client.close();
        Ok(mapped)
    };
    alone(|| tried(Place::Driver))?.map_err(|how| format!("on the driver: {how}"))?;
    match in_instances(|| tried(Place::Instance))? {
        Err(how) if how.starts_with("RM_MAP_MEMORY") => Ok(how),
        Err(how) => Err(how),
        Ok(()) => Err("it is mapped".to_owned()),
    }
}

/// Host memory that is freed before it is mapped: the driver's file keeps a pointer to it.
fn host_memory() -> Result<String, String> {
    let late = |place| -> Result<Result<u64, String>, String> {
        let folder = folder_of(place, "attacker");
        let client = client_in(&folder)?;
        say("memory", client.system_page(FIRST))?;
        let path = format!("{folder}/nvidiactl");
        let fd = say(&path, sys::open(&path, libc::O_RDWR | libc::O_CLOEXEC))?;
        let names = (client.handle, rm::DEVICE_HANDLE, FIRST);
        say(
            "RM_MAP_MEMORY",
            rm::map(client.ctl, names, PAGE, rm::MAP_OF_MEMORY, fd),
        )?;
        say("free", client.free(FIRST))?;
        let mapped = page_of(fd);
        if let Ok(address) = mapped {
            // SAFETY: The page that was just mapped.
            let _ = unsafe { sys::munmap(address, PAGE) };
        }
        say("close", sys::close(fd))?;
        client.close();
        Ok(mapped)
    };
    // Of NVIDIA's driver the end is chance: it looks into freed memory for what to map
    // (nvidia_mmap_helper(), nv-mmap.c).
    if standin::is_in_reach() {
        alone(|| late(Place::Driver))??;
    }
    match in_instances(|| late(Place::Instance))? {
        Err(how) => Ok(how),
        Ok(_) => Err("it is mapped".to_owned()),
    }
}
