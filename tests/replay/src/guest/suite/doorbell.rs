// SPDX-License-Identifier: GPL-2.0
//! The doorbell behind its gate: submissions that are held up, and what may happen meanwhile.
//!
//! Stores that arrive at the "GPU" are seen through a mapping of the same registers that the test
//! makes directly at the stand-in driver, as nobody in a container can.

use std::{
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    time::{Duration, Instant},
};

use cgpu_uapi::{Cause, Policy};

use super::mappings::{
    doorbell_file, map_doorbell_in, map_doorbell_through_bar1, map_file, map_other_page, read,
    write, DOORBELL,
};
use crate::{
    guest::{
        instance::Instance,
        process::{in_child, spawn, unshare},
        rm,
        tools::{at, device_instance, equal, fails, holds, sys, tests, Verdict, GIB, GPU},
    },
    standin::{self, Switched},
    sys as os,
};

tests! {
    "doorbell: alone it stays mapped" => alone;
    "doorbell: suspended it waits, resumed it goes on" => resumed;
    "doorbell: through BAR1 as well" => through_bar1;
    "doorbell: other registers wait as well" => other_registers;
    "doorbell: killed while blocked" => killed;
    "doorbell: killed threads do not wait as they exit" => exits;
    "doorbell: frozen while blocked" => frozen;
    "doorbell: system calls do not wait" => in_system_calls;
    "doorbell: a signal is served while blocked" => signalled;
    "doorbell: fork while blocked" => forked;
    "doorbell: what a child has is taken away too" => inherited;
    "doorbell: other threads go on meanwhile" => others;
    "doorbell: unmapped while blocked" => unmapped;
    "doorbell: no part of it alone" => parts;
    "doorbell: a futex does not get past" => futex;
    "doorbell: mapped again and again while its gate moves" => remapped;
    "doorbell: mapped again and again through BAR1" => remapped_through_bar1;
    "doorbell: no private mapping" => private;
    "doorbell: the driver takes it and gives it back" => revoked;
    "doorbell: given back too late it is taken again" => given_late;
}

/// The time that this slow machine may need for what takes a moment.
const PATIENCE: Duration = Duration::from_secs(60);

pub(in crate::guest) fn proc(file: &str) -> String {
    format!("/proc/cgpu_km/{GPU}/{file}")
}

pub(in crate::guest) fn put(file: &str, text: &str) -> Verdict {
    at(file, std::fs::write(proc(file), text))
}

/// Sets the policy of the GPU.
pub(in crate::guest) fn put_policy(policy: Policy) -> Verdict {
    put("policy", policy.digits())
}

/// Suspends an instance, and sees that its doorbell is shut; or resumes it.
pub(super) fn suspend(instance: &Instance, suspended: bool) -> Verdict {
    put(
        &format!("{}/suspended", instance.name),
        if suspended { "1" } else { "0" },
    )?;
    if suspended {
        wait_shut(instance)
    } else {
        Ok(())
    }
}

/// The scheduler, a thread, shuts it.
pub(super) fn wait_shut(instance: &Instance) -> Verdict {
    wait_for("shut", || Ok(status(instance, "compute_shut")? == 1))
}

/// A figure of the instance's `status`.
pub(in crate::guest) fn status(instance: &Instance, key: &str) -> Result<u64, String> {
    let file = format!("{}/status", instance.name);
    let text = at(&file, std::fs::read_to_string(proc(&file)))?;
    let mut lines = text.lines().filter_map(|line| line.split_once(": "));
    let found = lines.find(|(name, _)| *name == key);
    found
        .and_then(|(_, value)| value.parse().ok())
        .ok_or_else(|| format!("{file} has no {key}"))
}

pub(in crate::guest) fn wait_for(
    what: &str,
    mut done: impl FnMut() -> Result<bool, String>,
) -> Verdict {
    let end = Instant::now() + PATIENCE;
    while !done()? {
        holds(what, Instant::now() < end)?;
        os::sleep_ms(5);
    }
    Ok(())
}

pub(super) fn wait_blocked(instance: &Instance, tasks: u64) -> Verdict {
    wait_for(&format!("{tasks} blocked"), || {
        Ok(status(instance, "compute_blocked_tasks")? == tasks)
    })
}

/// How often a gate is shut and opened.
const MOVES: u32 = 20;

/// How a doorbell is mapped: through the nodes of a folder, for a client there.
type Map = fn(&str, &rm::Client) -> Result<u64, String>;

/// The registers as the host's root has them, directly.
pub(super) struct Direct {
    client: rm::Client,
    address: u64,
}

impl Direct {
    fn open(instance: &Instance, map: Map) -> Result<Self, String> {
        let number = device_instance(&instance.control, GPU)?;
        let client = at("direct client", rm::Client::open("/dev", GPU, number))?;
        let address = map("/dev", &client)?;
        Ok(Self { client, address })
    }

    pub(super) fn rung(&self) -> u32 {
        read(self.address + rm::BELL)
    }

    fn reset(&self) {
        write(self.address + rm::BELL, 0);
    }

    fn close(self) {
        // SAFETY: nothing of the program lies in a range that the driver gave.
        let _ = unsafe { os::munmap(self.address, DOORBELL) };
        self.client.close();
    }
}

/// An instance with a program that has its doorbell mapped.
pub(super) struct Bell {
    client: rm::Client,
    address: u64,
    pub(super) direct: Direct,
    pub(super) instance: Instance,
}

impl Bell {
    pub(super) fn new(name: &'static str) -> Result<Self, String> {
        Self::mapped_by(map_doorbell_in, name)
    }

    fn mapped_by(map: Map, name: &'static str) -> Result<Self, String> {
        let instance = Instance::new(name, GIB)?;
        let direct = Direct::open(&instance, map)?;
        let client = instance.client()?;
        let address = map(&instance.folder(), &client)?;
        direct.reset();
        Ok(Self {
            client,
            address,
            direct,
            instance,
        })
    }

    pub(super) fn ring(&self, token: u32) {
        write(self.address + rm::BELL, token);
    }

    /// A process that rings, and then ends with 0.
    pub(super) fn ringer(&self, token: u32) -> Result<i32, String> {
        let rung = spawn(|| {
            self.ring(token);
            0
        });
        sys("fork", rung)
    }

    fn unmap(&self) -> Verdict {
        // SAFETY: nothing of the program lies in a range that the driver gave.
        sys("munmap", unsafe { os::munmap(self.address, DOORBELL) })
    }

    /// Ends everything; nobody is blocked then and the instance can be destroyed.
    pub(super) fn end(self) -> Verdict {
        self.unmap()?;
        self.client.close();
        self.direct.close();
        equal(
            "blocked",
            &status(&self.instance, "compute_blocked_tasks")?,
            &0,
        )?;
        let destroyed = self.instance.control.destroy(self.instance.name, GPU);
        sys("destroy", destroyed)
    }
}

pub(super) fn faults() -> Result<u64, String> {
    Ok(standin::number(&standin::read("refs")?, "faults"))
}

fn alone() -> Verdict {
    let bell = Bell::new("bellalone")?;
    // Not even the first store faults.
    let before = faults()?;
    for token in 1..5000 {
        bell.ring(token);
    }
    equal("faults", &faults()?, &before)?;
    equal("rung", &bell.direct.rung(), &4999)?;
    equal(
        "times blocked",
        &status(&bell.instance, "compute_blocked_count")?,
        &0,
    )?;
    bell.end()
}

fn resumed() -> Verdict {
    let bell = Bell::new("bellstop")?;
    resumes(&bell)?;
    bell.end()
}

/// A doorbell as CUDA asks for it on a Hopper GPU, and the registers directly, where nothing may
/// arrive.
fn bell_through_bar1(name: &'static str) -> Result<(Bell, Direct), String> {
    let bell = Bell::mapped_by(map_doorbell_through_bar1, name)?;
    let registers = Direct::open(&bell.instance, map_doorbell_in)?;
    registers.reset();
    Ok((bell, registers))
}

fn through_bar1() -> Verdict {
    let (bell, registers) = bell_through_bar1("bellbarone")?;
    // No store faults, as through BAR0.
    let before = faults()?;
    bell.ring(8);
    bell.ring(9);
    equal("faults", &faults()?, &before)?;
    equal("rung", &bell.direct.rung(), &9)?;
    // A child has it as well.
    let child = bell.ringer(8)?;
    equal("ended", &sys("wait", os::wait(child))?, &0)?;
    equal("rung by a child", &bell.direct.rung(), &8)?;
    resumes(&bell)?;
    comes_back(&bell)?;
    equal("rung through BAR0", &registers.rung(), &0)?;
    registers.close();
    bell.end()
}

fn resumes(bell: &Bell) -> Verdict {
    bell.ring(1);
    suspend(&bell.instance, true)?;
    let child = bell.ringer(7)?;
    wait_blocked(&bell.instance, 1)?;
    os::sleep_ms(100);
    equal("rung while suspended", &bell.direct.rung(), &1)?;
    suspend(&bell.instance, false)?;
    equal("ended", &sys("wait", os::wait(child))?, &0)?;
    equal("rung", &bell.direct.rung(), &7)
}

/// The mapping is no doorbell, as far as anybody knows; but it is of the GPU's registers, as
/// their place says.
fn other_registers() -> Verdict {
    const PAGE: u64 = 0x3000;
    let bell = Bell::new("bellother")?;
    let address = map_other_page(&bell.instance, &bell.client, PAGE)?;
    let there = || read(bell.direct.address + PAGE);
    write(address, 1);
    equal("written", &there(), &1)?;
    suspend(&bell.instance, true)?;
    let child = spawn(|| {
        write(address, 7);
        0
    });
    let child = sys("fork", child)?;
    wait_blocked(&bell.instance, 1)?;
    os::sleep_ms(100);
    equal("written while suspended", &there(), &1)?;
    suspend(&bell.instance, false)?;
    equal("ended", &sys("wait", os::wait(child))?, &0)?;
    equal("written then", &there(), &7)?;
    // SAFETY: nothing of the program lies in a range that the driver gave.
    sys("munmap", unsafe { os::munmap(address, 0x1000) })?;
    bell.end()
}

fn killed() -> Verdict {
    let bell = Bell::new("bellkill")?;
    suspend(&bell.instance, true)?;
    let child = bell.ringer(7)?;
    wait_blocked(&bell.instance, 1)?;
    // An instance that is in use is not destroyed, blocked or not.
    let destroyed = bell.instance.control.destroy("bellkill", GPU);
    fails("destroy", destroyed, Cause::Busy.errno())?;
    sys("kill", os::kill(child, libc::SIGKILL))?;
    equal("ended", &sys("wait", os::wait(child))?, &libc::SIGKILL)?;
    wait_blocked(&bell.instance, 0)?;
    equal("rung", &bell.direct.rung(), &0)?;
    // Suspended as it is, it can go.
    bell.end()
}

/// The status of a process that ends soon.
pub(in crate::guest) fn ended(child: i32) -> Result<i32, String> {
    let mut status = 0;
    wait_for("ended", || {
        // SAFETY: the status is there to be written.
        Ok(unsafe { libc::waitpid(child, &raw mut status, libc::WNOHANG) } == child)
    })?;
    Ok(status)
}

/// The kernel writes 0 to an address of a thread's choice when that exits, after the signal that
/// ended it.
fn exits() -> Verdict {
    const THREADS: u32 = 3;
    let bell = Bell::new("bellexit")?;
    let ready: &AtomicU64 = os::shared()?;
    let child = spawn(|| {
        std::thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    // SAFETY: the address is used when this thread ends, and it never does.
                    unsafe { libc::syscall(libc::SYS_set_tid_address, bell.address + rm::BELL) };
                    ready.fetch_add(1, Ordering::Relaxed);
                    loop {
                        os::sleep_ms(1000);
                    }
                });
            }
        });
        0
    });
    let child = sys("fork", child)?;
    wait_for("threads", || {
        Ok(ready.load(Ordering::Relaxed) == u64::from(THREADS))
    })?;
    suspend(&bell.instance, true)?;
    sys("kill", os::kill(child, libc::SIGKILL))?;
    let status = ended(child);
    if status.is_err() {
        // So that the machine can go on.
        suspend(&bell.instance, false)?;
    }
    equal("ended", &status?, &libc::SIGKILL)?;
    bell.end()
}

/// The freezer's own state of a group of processes.
const FREEZER: &str = "/tmp/freezer";

/// A task that is blocked can be frozen, as it is before the machine sleeps.
fn frozen() -> Verdict {
    let bell = Bell::new("bellfrozen")?;
    suspend(&bell.instance, true)?;
    let child = bell.ringer(7)?;
    wait_blocked(&bell.instance, 1)?;
    while_frozen(child, || Ok(()))?;
    // Thawed, it is blocked as before.
    os::sleep_ms(50);
    wait_blocked(&bell.instance, 1)?;
    suspend(&bell.instance, false)?;
    equal("ended", &ended(child)?, &0)?;
    equal("rung", &bell.direct.rung(), &7)?;
    bell.end()
}

/// A system call that uses an address of the program: 0, or its errno.
type Reaches = fn(u64) -> i32;

/// Writes what is at an address to a pipe.
fn write_from(address: u64) -> i32 {
    let mut ends = [0; 2];
    // SAFETY: room for two descriptors; the kernel checks the address.
    let written = unsafe {
        libc::pipe(ends.as_mut_ptr());
        libc::write(ends[1], address as *const libc::c_void, 4)
    };
    if written < 0 {
        os::errno()
    } else {
        0
    }
}

/// Has the kernel copy the addresses of a new network namespace to an address. It does so under the
/// lock of all network devices of the host (RTNL).
fn addresses_to(address: u64) -> i32 {
    // `struct ifreq`: a name, then flags (IFF_UP). Loopback gets its address with that.
    let mut request = [0_u8; 40];
    request[..2].copy_from_slice(b"lo");
    request[16] = 1;
    // `struct ifconf`: the length of the room, then its address.
    let mut room = [0_u8; 16];
    room[..4].copy_from_slice(&4096_u32.to_ne_bytes());
    room[8..].copy_from_slice(&address.to_ne_bytes());
    // SAFETY: takes no pointer.
    let socket = || match unsafe { libc::socket(libc::AF_INET, libc::SOCK_DGRAM, 0) } {
        -1 => Err(os::errno()),
        socket => Ok(socket),
    };
    let asked = unshare(libc::CLONE_NEWNET)
        .and_then(|()| socket())
        .and_then(|socket| {
            os::ioctl(socket, libc::SIOCSIFFLAGS as u32, &mut request)?;
            os::ioctl(socket, libc::SIOCGIFCONF as u32, &mut room)
        });
    asked.map_or_else(|errno| errno, |_| 0)
}

/// A task that slept in a system call would keep what that has locked.
fn in_system_calls() -> Verdict {
    const CALLS: [(&str, Reaches); 2] = [("write", write_from), ("SIOCGIFCONF", addresses_to)];
    let bell = Bell::new("bellcalls")?;
    let memory: &[AtomicU64; 512] = os::shared()?;
    suspend(&bell.instance, true)?;
    for (name, reaches) in CALLS {
        let made_with = |address| sys("fork", spawn(|| reaches(address)));
        let ordinary = made_with(memory.as_ptr() as u64)?;
        equal(name, &ended(ordinary)?, &0)?;
        let status = ended(made_with(bell.address)?);
        if status.is_err() {
            // So that the machine can go on.
            suspend(&bell.instance, false)?;
        }
        equal(name, &status?, &(libc::EFAULT << 8))?;
    }
    equal("rung", &bell.direct.rung(), &0)?;
    bell.end()
}

/// Freezes a process as the kernel freezes all, and does something meanwhile.
pub(super) fn while_frozen(child: i32, run: impl FnOnce() -> Verdict) -> Verdict {
    at(FREEZER, std::fs::create_dir_all(FREEZER))?;
    sys("mount", mount_freezer())?;
    let group = format!("{FREEZER}/group");
    at(&group, std::fs::create_dir_all(&group))?;
    let put = |group: &str, file: &str, text: &str| {
        let path = format!("{group}/{file}");
        at(&path, std::fs::write(&path, text))
    };
    put(&group, "cgroup.procs", &child.to_string())?;
    put(&group, "freezer.state", "FROZEN")?;
    let path = format!("{group}/freezer.state");
    let is_frozen = wait_for("frozen", || {
        Ok(at(&path, std::fs::read_to_string(&path))?.trim() == "FROZEN")
    });
    let done = is_frozen.and_then(|()| run());
    put(&group, "freezer.state", "THAWED")?;
    done?;
    put(FREEZER, "cgroup.procs", &child.to_string())?;
    at(&group, std::fs::remove_dir(&group))?;
    sys("unmount", os::unmount(FREEZER, 0))
}

/// Mounts the controller by which the kernel freezes groups in the way that it freezes all.
fn mount_freezer() -> Result<(), i32> {
    // SAFETY: the strings end with NUL.
    let mounted = unsafe {
        libc::mount(
            c"freezer".as_ptr(),
            c"/tmp/freezer".as_ptr(),
            c"cgroup".as_ptr(),
            0,
            c"freezer".as_ptr().cast(),
        )
    };
    match mounted {
        0 => Ok(()),
        _ => Err(os::errno()),
    }
}

extern "C" fn leave(_signal: i32) {
    os::exit_now(9);
}

fn signalled() -> Verdict {
    let bell = Bell::new("bellsignal")?;
    suspend(&bell.instance, true)?;
    let child = spawn(|| {
        let handler = leave as extern "C" fn(i32);
        // SAFETY: the handler only ends the process.
        unsafe { libc::signal(libc::SIGUSR1, handler as libc::sighandler_t) };
        bell.ring(7);
        0
    });
    let child = sys("fork", child)?;
    wait_blocked(&bell.instance, 1)?;
    sys("kill", os::kill(child, libc::SIGUSR1))?;
    equal("ended", &sys("wait", os::wait(child))?, &(9 << 8))?;
    equal("rung", &bell.direct.rung(), &0)?;
    bell.end()
}

/// In a child of the test: a thread is blocked while another one forks.
fn forked() -> Verdict {
    let bell = Bell::new("bellfork")?;
    bell.ring(1);
    suspend(&bell.instance, true)?;
    let run = || -> Verdict {
        std::thread::scope(|scope| {
            scope.spawn(|| bell.ring(2));
            wait_blocked(&bell.instance, 1)?;
            let child = bell.ringer(3)?;
            wait_blocked(&bell.instance, 2)?;
            sys("kill", os::kill(child, libc::SIGKILL))?;
            sys("wait", os::wait(child))?;
            wait_blocked(&bell.instance, 1)?;
            equal("rung", &bell.direct.rung(), &1)?;
            suspend(&bell.instance, false)
        })
    };
    in_child(run)?;
    equal("rung", &bell.direct.rung(), &2)?;
    bell.end()
}

fn inherited() -> Verdict {
    let bell = Bell::new("bellchild")?;
    bell.ring(1);
    let child = spawn(|| {
        // The pages are there, from the parent.
        for token in 2.. {
            bell.ring(token);
            os::sleep_ms(1);
        }
        0
    });
    let child = sys("fork", child)?;
    wait_for("rung by the child", || Ok(bell.direct.rung() > 1))?;
    suspend(&bell.instance, true)?;
    wait_blocked(&bell.instance, 1)?;
    let rung = bell.direct.rung();
    os::sleep_ms(50);
    equal("rung", &bell.direct.rung(), &rung)?;
    sys("kill", os::kill(child, libc::SIGKILL))?;
    sys("wait", os::wait(child))?;
    bell.end()
}

fn others() -> Verdict {
    let bell = Bell::new("bellthreads")?;
    suspend(&bell.instance, true)?;
    let run = || -> Verdict {
        std::thread::scope(|scope| {
            scope.spawn(|| bell.ring(2));
            wait_blocked(&bell.instance, 1)?;
            let began = Instant::now();
            let prot = libc::PROT_READ | libc::PROT_WRITE;
            for _ in 0..100 {
                let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
                let page = sys("mmap", os::mmap(0, 4096, prot, flags, -1, 0))?;
                write(page, 1);
                // SAFETY: the page was mapped above.
                sys("munmap", unsafe { os::munmap(page, 4096) })?;
            }
            holds("it took long", began.elapsed() < PATIENCE)?;
            equal(
                "still blocked",
                &status(&bell.instance, "compute_blocked_tasks")?,
                &1,
            )?;
            suspend(&bell.instance, false)
        })
    };
    in_child(run)?;
    bell.end()
}

fn unmapped() -> Verdict {
    let bell = Bell::new("bellgone")?;
    suspend(&bell.instance, true)?;
    let run = || -> Verdict {
        std::thread::scope(|scope| {
            scope.spawn(|| bell.ring(2));
            wait_blocked(&bell.instance, 1)?;
            bell.unmap()?;
            suspend(&bell.instance, false)?;
            // The other thread's access has nothing to go to.
            os::sleep_ms(60_000);
            Ok(())
        })
    };
    let ended = in_child(run);
    let wanted = format!("the process ended with status {:#x}", libc::SIGSEGV);
    let core = format!("the process ended with status {:#x}", libc::SIGSEGV | 0x80);
    holds(
        &format!("ended otherwise: {ended:?}"),
        ended == Err(wanted) || ended == Err(core),
    )?;
    equal("rung", &bell.direct.rung(), &0)?;
    bell.end()
}

fn parts() -> Verdict {
    let bell = Bell::new("bellparts")?;
    // SAFETY: the doorbell's range has nothing of the program.
    let part = unsafe { os::munmap(bell.address, 4096) };
    fails("munmap of a page", part, libc::EINVAL)?;
    // SAFETY: no reference is to the doorbell's range, which is only rung by address.
    let protected =
        unsafe { libc::mprotect(bell.address as *mut libc::c_void, 4096, libc::PROT_READ) };
    equal("mprotect of a page", &protected, &-1)?;
    bell.ring(3);
    equal("rung", &bell.direct.rung(), &3)?;
    bell.end()
}

/// Has the kernel write 5 to an address, which never waits for anybody.
fn set_by_futex(address: u64) -> Result<(), i32> {
    // FUTEX_OP_SET 5, then compare with 0: needs the page to be writable there. Private: otherwise
    // the kernel asks for the page's place in a file first, and registers have none.
    let operation = (5 << 12) | (1 << 24);
    let other = 0_u32;
    // SAFETY: wakes nobody; the kernel checks the addresses.
    let result = unsafe {
        libc::syscall(
            libc::SYS_futex,
            &raw const other,
            libc::FUTEX_WAKE_OP | libc::FUTEX_PRIVATE_FLAG,
            1,
            1,
            address as *mut u32,
            operation,
        )
    };
    match result {
        -1 => Err(os::errno()),
        _ => Ok(()),
    }
}

fn futex() -> Verdict {
    let bell = Bell::new("bellfutex")?;
    sys("futex while open", set_by_futex(bell.address + rm::BELL))?;
    equal("rung", &bell.direct.rung(), &5)?;
    bell.direct.reset();
    suspend(&bell.instance, true)?;
    let result = set_by_futex(bell.address + rm::BELL);
    fails("futex", result, libc::EFAULT)?;
    equal("rung", &bell.direct.rung(), &0)?;
    let child = bell.ringer(7)?;
    wait_blocked(&bell.instance, 1)?;
    sys("kill", os::kill(child, libc::SIGKILL))?;
    sys("wait", os::wait(child))?;
    bell.end()
}

/// One thread maps and unmaps the doorbell, another one has it written to at any moment.
fn remapped() -> Verdict {
    let bell = Bell::new("bellagain")?;
    is_remapped(&bell)?;
    bell.end()
}

/// The same of one that is shown in the place of another: neither the driver's pages nor ours let a
/// ring through to BAR0, also between two threads' faults.
fn remapped_through_bar1() -> Verdict {
    let (bell, registers) = bell_through_bar1("bellagainone")?;
    is_remapped(&bell)?;
    equal("rung through BAR0", &registers.rung(), &0)?;
    registers.close();
    bell.end()
}

fn is_remapped(bell: &Bell) -> Verdict {
    let fd = doorbell_file(&bell.instance.folder(), &bell.client)?;
    let place = map_file(0, DOORBELL, fd)?;
    let unmap = || {
        // SAFETY: nothing of the program lies in a range that the driver gave.
        sys("munmap", unsafe { os::munmap(place, DOORBELL) })
    };
    let over = AtomicBool::new(false);
    // Mapped as it is, so that a write is sure to arrive.
    let still = AtomicBool::new(true);
    let maps = AtomicU64::new(0);
    let going = || !over.load(Ordering::Relaxed);
    let run = || -> Verdict {
        std::thread::scope(|scope| {
            let mapping = scope.spawn(|| -> Verdict {
                while going() {
                    if still.load(Ordering::Relaxed) {
                        os::sleep_ms(1);
                        continue;
                    }
                    unmap()?;
                    map_file(place, DOORBELL, fd)?;
                    maps.fetch_add(1, Ordering::Relaxed);
                }
                Ok(())
            });
            scope.spawn(|| {
                while going() {
                    let _ = set_by_futex(place + rm::BELL);
                }
            });
            let moved = (0..MOVES).try_for_each(|_| {
                wait_for("rung while open", || Ok(bell.direct.rung() != 0))?;
                still.store(false, Ordering::Relaxed);
                suspend(&bell.instance, true)?;
                bell.direct.reset();
                let before = maps.load(Ordering::Relaxed);
                wait_for("mappings", || {
                    Ok(maps.load(Ordering::Relaxed) > before + 100)
                })?;
                equal("rung while shut", &bell.direct.rung(), &0)?;
                still.store(true, Ordering::Relaxed);
                suspend(&bell.instance, false)
            });
            over.store(true, Ordering::Relaxed);
            let mapped = mapping.join();
            moved?;
            mapped.map_err(|_| "the thread that maps ended")?
        })
    };
    in_child(run)?;
    unmap()?;
    sys("close", os::close(fd))
}

fn private() -> Verdict {
    let bell = Bell::new("bellprivate")?;
    let fd = doorbell_file(&bell.instance.folder(), &bell.client)?;
    let prot = libc::PROT_READ | libc::PROT_WRITE;
    let mapped = os::mmap(0, DOORBELL, prot, libc::MAP_PRIVATE, fd, 0);
    fails("private mapping", mapped, libc::EINVAL)?;
    sys("close", os::close(fd))?;
    bell.end()
}

fn revoked() -> Verdict {
    let bell = Bell::new("bellpower")?;
    comes_back(&bell)?;
    bell.end()
}

/// Has the driver take all mappings of its GPU away.
fn revoke() -> Verdict {
    let path = format!("{}/revoke", standin::DEBUGFS);
    at(&path, std::fs::write(&path, format!("{GPU}")))
}

fn comes_back(bell: &Bell) -> Verdict {
    bell.ring(1);
    let before = faults()?;
    revoke()?;
    bell.ring(2);
    equal("rung", &bell.direct.rung(), &2)?;
    holds("no fault", faults()? > before)?;
    // Also while nobody may ring: it is not given back then.
    suspend(&bell.instance, true)?;
    revoke()?;
    let child = bell.ringer(3)?;
    wait_blocked(&bell.instance, 1)?;
    equal("rung", &bell.direct.rung(), &2)?;
    suspend(&bell.instance, false)?;
    equal("ended", &sys("wait", os::wait(child))?, &0)?;
    equal("rung", &bell.direct.rung(), &3)
}

fn given_late() -> Verdict {
    let bell = Bell::new("belllate")?;
    bell.ring(1);
    revoke()?;
    let before = faults()?;
    let held = Switched::on(standin::hold_faults)?;
    let child = bell.ringer(2)?;
    wait_for("a task in the driver's handler", || Ok(faults()? > before))?;
    // Its gate shuts meanwhile, and does not wait for it.
    suspend(&bell.instance, true)?;
    equal("in the handler", &faults()?, &(before + 1))?;
    drop(held);
    wait_blocked(&bell.instance, 1)?;
    equal("rung", &bell.direct.rung(), &1)?;
    suspend(&bell.instance, false)?;
    equal("ended", &sys("wait", os::wait(child))?, &0)?;
    equal("rung", &bell.direct.rung(), &2)?;
    bell.end()
}
