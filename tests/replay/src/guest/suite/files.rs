// SPDX-License-Identifier: GPL-2.0
//! File operations of the proxies: open, fork, dup, passing, exec, poll, kill.

use std::{
    io::{Read, Write},
    os::{fd::AsRawFd, unix::net::UnixStream},
    sync::atomic::{AtomicBool, Ordering},
};

use io_uring::IoUring;

use super::doorbell::wait_for;
use crate::{
    bytes::u32_at,
    guest::{
        instance::Instance,
        process::{in_child, receive_fd, send_fd, spawn},
        rm,
        tools::{at, equal, fails, holds, open_node, sys, tests, Verdict, GIB, MIB},
    },
    standin::{self, Switched},
    sys as os,
};

tests! {
    "files: read-only and non-blocking opens" => modes;
    "files: counted while open" => counted;
    "files: a file lives until its last descriptor" => last_descriptor;
    "files: a child uses what it inherited" => inherited;
    "files: a passed descriptor works" => passed;
    "files: exec keeps a file" => exec;
    "files: poll says what the driver says" => poll;
    "files: unknown requests fail as in the driver" => unknown_request;
    "files: killed in the middle of calls" => killed;
    "files: rmmod is refused while a file is open" => busy_module;
    "files: IOCTL_XFER_CMD does not pass a limit" => xfer;
    "files: none takes a lock" => locks;
    "files: a late end holds up no other tenant's" => late_ends;
    "files: an unread one holds up no reader" => unread;
}

/// The proxy nodes of an instance on the first GPU.
const NODES: [&str; 3] = ["nvidia0", "nvidiactl", "nvidia-uvm"];
/// The handle of a memory object.
const MEMORY: u32 = 0x5C00_0010;

fn modes() -> Verdict {
    let instance = Instance::new("modes", GIB)?;
    for node in NODES {
        let path = format!("{}/{node}", instance.folder());
        for flags in [
            libc::O_RDONLY,
            libc::O_WRONLY,
            libc::O_RDWR | libc::O_NONBLOCK,
        ] {
            let fd = sys(&path, os::open(&path, flags))?;
            sys("close", os::close(fd))?;
        }
    }
    Ok(())
}

fn counted() -> Verdict {
    let instance = Instance::new("counted", GIB)?;
    let folder = instance.folder();
    let open = |node| open_node(&folder, node);
    let fds = [open("nvidia0")?, open("nvidiactl")?, open("nvidia-uvm")?];
    let seen = instance.get()?;
    equal("own files", &seen.open_files, &1)?;
    equal("tenant's files", &seen.tenant_open_files, &2)?;
    for fd in fds {
        sys("close", os::close(fd))?;
    }
    let seen = instance.get()?;
    let files = (seen.open_files, seen.tenant_open_files);
    equal("files", &files, &(0, 0))
}

fn last_descriptor() -> Verdict {
    let instance = Instance::new("last", GIB)?;
    let client = instance.client()?;
    at("memory", client.memory(MEMORY, 32 * MIB))?;
    let copy = sys("dup", os::dup_above(client.ctl, 3))?;
    let (mut here, there) = at("sockets", UnixStream::pair())?;
    let child = sys(
        "fork",
        spawn(|| i32::from((&there).read_exact(&mut [0]).is_err())),
    )?;
    client.close();
    equal("with a copy open", &instance.used()?, &(32 * MIB))?;
    sys("close", os::close(copy))?;
    equal("with a child alive", &instance.used()?, &(32 * MIB))?;
    at("tell", here.write_all(&[1]))?;
    equal("child", &sys("wait", os::wait(child))?, &0)?;
    equal("at last", &instance.used()?, &0)
}

fn inherited() -> Verdict {
    let instance = Instance::new("inherit", GIB)?;
    let client = instance.client()?;
    in_child(|| {
        // The driver knows a client by its file, not by the process.
        at("memory", client.memory(MEMORY, 32 * MIB).map(drop))
    })?;
    equal("used", &instance.used()?, &(32 * MIB))?;
    at("free", client.free(MEMORY))?;
    equal("used", &instance.used()?, &0)?;
    client.close();
    Ok(())
}

fn passed() -> Verdict {
    let instance = Instance::new("passed", GIB)?;
    let (ours, theirs) = at("socket", UnixStream::pair())?;
    let folder = instance.folder();
    let sender = sys(
        "fork",
        spawn(move || {
            let Ok(fd) = os::open(&format!("{folder}/nvidiactl"), libc::O_RDWR) else {
                return 1;
            };
            i32::from(send_fd(&theirs, fd).is_err())
        }),
    )?;
    let fd = sys("receive", receive_fd(&ours))?;
    equal("sender", &sys("wait", os::wait(sender))?, &0)?;
    let root = rm::alloc(fd.as_raw_fd(), 0, 0, 0, rm::ROOT, &mut []);
    at("root", root).map(drop)
}

fn exec() -> Verdict {
    let instance = Instance::new("exec", GIB)?;
    let path = format!("{}/nvidiactl", instance.folder());
    let fd = sys(&path, os::open(&path, libc::O_RDWR))?;
    let status = std::process::Command::new("/proc/self/exe")
        .args(["use-fd", &fd.to_string()])
        .status();
    holds(
        "the program could not use it",
        at("exec", status)?.success(),
    )?;
    sys("close", os::close(fd))
}

fn poll() -> Verdict {
    let instance = Instance::new("poll", GIB)?;
    for node in ["nvidiactl", "nvidia0"] {
        let fd = open_node(&instance.folder(), node)?;
        let mut item = libc::pollfd {
            fd,
            events: libc::POLLIN | libc::POLLPRI,
            revents: 0,
        };
        // SAFETY: one entry that lives over the call.
        let ready = unsafe { libc::poll(&mut item, 1, 0) };
        equal(node, &(ready, item.revents), &(0, 0))?;
        sys("close", os::close(fd))?;
    }
    Ok(())
}

fn unknown_request() -> Verdict {
    let instance = Instance::new("unknown", GIB)?;
    let path = format!("{}/nvidiactl", instance.folder());
    let fd = sys(&path, os::open(&path, libc::O_RDWR))?;
    // Number 0xFE, which no escape has.
    let call = os::ioctl(fd, 0xC004_46FE, &mut [0; 4]);
    holds("an unknown escape works", call.is_err())?;
    // TCGETS.
    let call = os::ioctl(fd, 0x5401, &mut [0; 64]);
    holds("a terminal's request works", call.is_err())?;
    // RM_CONTROL with a null argument.
    fails("null", os::ioctl(fd, 0xC020_462A, &mut []), libc::EFAULT)?;
    sys("close", os::close(fd))
}

fn killed() -> Verdict {
    let instance = Instance::new("killed", GIB)?;
    for i in 0..20_u64 {
        let victim = sys(
            "fork",
            spawn(|| loop {
                let Ok(client) = instance.client() else {
                    continue;
                };
                for n in 0..16 {
                    let _ = client.memory(MEMORY + n, 16 * MIB);
                }
                let _ = client.free(MEMORY);
                client.close();
            }),
        )?;
        std::thread::sleep(std::time::Duration::from_micros(2000 + 1777 * i));
        sys("kill", os::kill(victim, libc::SIGKILL))?;
        sys("wait", os::wait(victim))?;
        let seen = instance.get()?;
        let left = (
            seen.memory_used_bytes,
            seen.memory_reserved_bytes,
            seen.open_files,
            seen.tenant_open_files,
        );
        equal("left behind", &left, &(0, 0, 0, 0))?;
    }
    Ok(())
}

fn busy_module() -> Verdict {
    let instance = Instance::new("rmmod", GIB)?;
    let path = format!("{}/nvidiactl", instance.folder());
    let fd = sys(&path, os::open(&path, libc::O_RDWR))?;
    let removed = super::unload::delete_module(c"cgpu_km");
    fails("rmmod", removed, libc::EWOULDBLOCK)?;
    sys("close", os::close(fd))
}

fn xfer() -> Verdict {
    let instance = Instance::new("xfer", 64 * MIB)?;
    let client = instance.client()?;
    let mut params = rm::memory_params(client.handle, 128 * MIB);
    let mut outer = [0; 48];
    for (at, value) in [
        (0, client.handle),
        (4, rm::DEVICE_HANDLE),
        (8, MEMORY),
        (12, rm::VIDEO_MEMORY),
    ] {
        crate::bytes::put_u32(&mut outer, at, value);
    }
    crate::bytes::put_u64(&mut outer, 16, params.as_mut_ptr() as u64);
    let made = rm::xfer(client.ctl, 0x2B, &mut outer).is_ok() && u32_at(&outer, 40) == 0;
    holds("more than the limit was granted", !made)?;
    equal("used", &instance.used()?, &0)?;
    client.close();
    Ok(())
}

/// The result of a call that returns -1 if it fails.
fn result_of(returned: i32) -> Result<(), i32> {
    match returned {
        -1 => Err(os::errno()),
        _ => Ok(()),
    }
}

/// Sets a lock of the whole file by `fcntl`, of the process or of the open file, or asks for one.
fn record_lock(fd: i32, command: i32, kind: i32) -> Result<(), i32> {
    // SAFETY: zeros are a value of it.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = kind as libc::c_short;
    // SAFETY: the lock lives over the call.
    result_of(unsafe { libc::fcntl(fd, command, &raw mut lock) })
}

/// Whether a file has no lock, and can give one up that is not there.
fn has_no_locks(fd: i32) -> Verdict {
    for operation in [libc::LOCK_SH, libc::LOCK_EX] {
        fails("flock", os::flock(fd, operation), libc::ENOLCK)?;
    }
    sys("flock that unlocks", os::flock(fd, libc::LOCK_UN))?;
    for command in [libc::F_SETLK, libc::F_OFD_SETLK] {
        for kind in [libc::F_RDLCK, libc::F_WRLCK] {
            fails("fcntl", record_lock(fd, command, kind), libc::ENOLCK)?;
        }
        sys("unlock", record_lock(fd, command, libc::F_UNLCK))?;
    }
    // Nor does it tell of the host's.
    for command in [libc::F_GETLK, libc::F_OFD_GETLK] {
        let asked = record_lock(fd, command, libc::F_WRLCK);
        fails("who has a lock", asked, libc::ENOLCK)?;
    }
    // SAFETY: takes no pointer.
    let leased = result_of(unsafe { libc::fcntl(fd, libc::F_SETLEASE, libc::F_WRLCK) });
    fails("lease", leased, libc::EINVAL)
}

fn locks() -> Verdict {
    let (one, two) = (Instance::new("locka", GIB)?, Instance::new("lockb", GIB)?);
    for node in NODES {
        let proxied = [
            open_node(&one.folder(), node)?,
            open_node(&two.folder(), node)?,
        ];
        for fd in proxied {
            has_no_locks(fd)?;
        }
        // The host's programs have locks of the driver's node.
        let (host, other) = (open_node("/dev", node)?, open_node("/dev", node)?);
        sys("the host's flock", os::flock(host, libc::LOCK_EX))?;
        let set = record_lock(host, libc::F_OFD_SETLK, libc::F_WRLCK);
        sys("the host's fcntl", set)?;
        // An end of a tenant's file does not end them.
        for fd in proxied {
            has_no_locks(fd)?;
            sys("close", os::close(fd))?;
        }
        fails("flock", os::flock(other, libc::LOCK_EX), libc::EWOULDBLOCK)?;
        let set = record_lock(other, libc::F_OFD_SETLK, libc::F_WRLCK);
        fails("fcntl", set, libc::EAGAIN)?;
        for fd in [host, other] {
            sys("close", os::close(fd))?;
        }
    }
    Ok(())
}

/// The driver's own name of the object that is mapped.
const SHOWN: u32 = 0x5C00_0011;
/// NVOS33 flags as CUDA passes them for memory.
const MAP_FLAGS: u32 = 0x000C_0000;

/// Closes a file so that a worker of the kernel does it: the end of an io_uring that has it last.
fn close_late(fd: i32) -> Verdict {
    let ring = at("io_uring", IoUring::new(1))?;
    at("register", ring.submitter().register_files(&[fd]))?;
    sys("close", os::close(fd))
}

/// A tenant that keeps the end of its control file waiting: another file of its shows what is in
/// the file's client, and is in the driver's `mmap`.
struct Waiting {
    instance: Instance,
    client: rm::Client,
    shows: i32,
    held: Switched,
    child: i32,
}

impl Waiting {
    fn new(name: &'static str) -> Result<Self, String> {
        let instance = Instance::new(name, GIB)?;
        let client = instance.client()?;
        at("memory", client.system_page(SHOWN))?;
        let shows = open_node(&instance.folder(), "nvidiactl")?;
        let names = (client.handle, rm::DEVICE_HANDLE, SHOWN);
        at("map", rm::map(client.ctl, names, 4096, MAP_FLAGS, shows))?;
        // It has the control file as well.
        sys("close", os::close(client.gpu))?;
        let held = Switched::on(standin::hold_maps)?;
        let child = spawn(|| {
            // The parent has it last.
            let closed = os::close(client.ctl);
            let mapped = os::mmap(0, 4096, libc::PROT_READ, libc::MAP_SHARED, shows, 0);
            // Its object may be gone by then.
            i32::from(closed.is_err() || mapped.is_err())
        });
        let child = sys("fork", child)?;
        wait_for("a task in the driver's mmap", || {
            let refs = standin::read("refs")?;
            Ok(standin::number(&refs, "held_maps") == 1)
        })?;
        Ok(Self {
            instance,
            client,
            shows,
            held,
            child,
        })
    }

    fn files(&self) -> Result<u32, String> {
        Ok(self.instance.get()?.tenant_open_files)
    }

    /// The driver's `mmap` ends, and with it the wait.
    fn end(self) -> Verdict {
        drop(self.held);
        sys("wait", os::wait(self.child))?;
        sys("close", os::close(self.shows))?;
        wait_for("the tenant's files to end", || {
            let seen = self.instance.get()?;
            Ok(seen.tenant_open_files == 0 && seen.memory_used_bytes == 0)
        })
    }
}

/// The kernel has one worker for all files that end late.
fn late_ends() -> Verdict {
    let (slow, other) = (Waiting::new("slow")?, Instance::new("apart", GIB)?);
    close_late(slow.client.ctl)?;
    os::sleep_ms(500);
    equal("files of the slow one", &slow.files()?, &2)?;
    close_late(open_node(&other.folder(), "nvidiactl")?)?;
    let ended = wait_for("the other one's file to end", || {
        Ok(other.get()?.tenant_open_files == 0)
    });
    let waits = slow.files()?;
    slow.end()?;
    ended?;
    equal("files of the slow one meanwhile", &waits, &2)
}

/// A file ends with the socket in which it lies unread, in the task that closes that.
fn unread() -> Verdict {
    let sender = Waiting::new("sender")?;
    let (here, there) = at("sockets", UnixStream::pair())?;
    let (mut go, mut went) = at("sockets", UnixStream::pair())?;
    at("send", send_fd(&here, sender.client.ctl))?;
    sys("close", os::close(sender.client.ctl))?;
    let closed = os::shared::<AtomicBool>()?;
    let daemon = spawn(|| {
        let told = went.read_exact(&mut [0]);
        let ended = os::close(there.as_raw_fd());
        closed.store(true, Ordering::SeqCst);
        i32::from(told.is_err() || ended.is_err())
    });
    let daemon = sys("fork", daemon)?;
    drop(there);
    at("tell", go.write_all(&[1]))?;
    let goes_on = wait_for("the one who closes the socket to go on", || {
        Ok(closed.load(Ordering::SeqCst))
    });
    let files = sender.files()?;
    sender.end()?;
    equal("daemon", &sys("wait", os::wait(daemon))?, &0)?;
    goes_on?;
    equal("files of the sender meanwhile", &files, &2)
}
