// SPDX-License-Identifier: GPL-2.0
//! `mmap` on the proxies.

use std::{
    os::unix::fs::FileExt,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
};

use cgpu_uapi::Cause;

use crate::{
    bytes::{put_u32, put_u64, u32_at},
    guest::{
        instance::Instance,
        process::in_child,
        rm,
        tools::{at, equal, fails, holds, sys, tests, Verdict, GIB, GPU},
    },
    layout, sys as os,
};

tests! {
    "mmap: a page of memory, read and written" => page;
    "mmap: a mapping without descriptor holds the instance" => holds_instance;
    "mmap: a mapping ends with its object's unmapping" => unmapped_object;
    "mmap: a child has it too" => child;
    "mmap: memory that is unmapped while it ends" => ends_while_unmapped;
    "mmap: host memory that is shown is not registered" => registered;
    "mmap: the doorbell" => doorbell;
    "mmap: /proc/PID/mem does not reach registers and memory" => debugged;
    "mmap: not without RM_MAP_MEMORY, not of another size" => unprepared;
}

const HANDLE: u32 = 0x5C00_0010;
/// NVOS33 flags as CUDA passes them for memory.
const FLAGS: u32 = 0x000C_0000;
const PAGE: u64 = 4096;

/// A page of system memory mapped through a file of its own; the file and the address.
fn map_page(instance: &Instance, client: &rm::Client) -> Result<(i32, u64), String> {
    at("memory", client.system_page(HANDLE))?;
    let path = format!("{}/nvidiactl", instance.folder());
    let fd = sys(&path, os::open(&path, libc::O_RDWR | libc::O_CLOEXEC))?;
    let names = (client.handle, rm::DEVICE_HANDLE, HANDLE);
    at("RM_MAP_MEMORY", rm::map(client.ctl, names, PAGE, FLAGS, fd))?;
    let prot = libc::PROT_READ | libc::PROT_WRITE;
    let address = sys("mmap", os::mmap(0, PAGE, prot, libc::MAP_SHARED, fd, 0))?;
    Ok((fd, address))
}

pub(in crate::guest) fn read(address: u64) -> u32 {
    // SAFETY: the tests read pages that they have mapped.
    unsafe { (address as *const u32).read_volatile() }
}

pub(in crate::guest) fn write(address: u64, value: u32) {
    // SAFETY: the tests write to pages that they have mapped for that.
    unsafe { (address as *mut u32).write_volatile(value) };
}

pub(in crate::guest) fn unmap(address: u64, len: u64) -> Verdict {
    // SAFETY: nothing of the program lies in a range that the driver gave.
    sys("munmap", unsafe { os::munmap(address, len) })
}

fn page() -> Verdict {
    let instance = Instance::new("mmap", GIB)?;
    let client = instance.client()?;
    let (fd, address) = map_page(&instance, &client)?;
    write(address, 0x1234_5678);
    equal("read", &read(address), &0x1234_5678)?;
    unmap(address, PAGE)?;
    sys("close", os::close(fd))?;
    client.close();
    equal("files", &instance.get()?.tenant_open_files, &0)
}

fn holds_instance() -> Verdict {
    let instance = Instance::new("mapped", GIB)?;
    let client = instance.client()?;
    let (fd, address) = map_page(&instance, &client)?;
    sys("close", os::close(fd))?;
    write(address, 7);
    equal("read", &read(address), &7)?;
    client.close();
    equal("files", &instance.get()?.tenant_open_files, &1)?;
    let destroyed = instance.control.destroy("mapped", GPU);
    fails("destroy", destroyed, Cause::Busy.errno())?;
    // With the client its memory has gone.
    ended(address)?;
    unmap(address, PAGE)?;
    equal("files", &instance.get()?.tenant_open_files, &0)
}

/// A page can no longer be touched: the child that does so ends with SIGBUS.
pub(super) fn ended(address: u64) -> Verdict {
    let touched = in_child(|| {
        read(address);
        Ok(())
    });
    let bus = format!("the process ended with status {:#x}", libc::SIGBUS);
    equal("a look at the page", &touched, &Err(bus))
}

/// Registers so many pages of the program's memory; the status.
fn register(client: &rm::Client, handle: u32, address: u64, pages: u64) -> Result<u32, String> {
    let mut outer = [0; 56];
    for (at, value) in [
        (0, client.handle),
        (4, rm::DEVICE_HANDLE),
        (8, handle),
        (12, 0x71),
        // Cached, not contiguous, and not to be mapped.
        (16, 0x4000_1010),
    ] {
        put_u32(&mut outer, at, value);
    }
    put_u64(&mut outer, 24, address);
    put_u64(&mut outer, 32, pages * PAGE - 1);
    let request = 3 << 30 | 56 << 16 | layout::NV_TYPE << 8 | layout::NR_ALLOC_MEMORY;
    sys(
        "RM_ALLOC_MEMORY",
        os::ioctl(client.gpu, request, &mut outer),
    )?;
    Ok(u32_at(&outer, 40))
}

/// Neither alone nor among the program's own pages, before it moves nor by a move.
fn registered() -> Verdict {
    const INVALID_ADDRESS: u32 = 0x1e;
    let instance = Instance::new("registered", GIB)?;
    let client = instance.client()?;
    let (fd, address) = map_page(&instance, &client)?;
    let prot = libc::PROT_READ | libc::PROT_WRITE;
    let own = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    let pages = sys("pages", os::mmap(0, 3 * PAGE, prot, own, -1, 0))?;
    let register = |handle, address, pages| register(&client, handle, address, pages);
    equal("own pages", &register(HANDLE + 1, pages, 3)?, &0)?;
    equal(
        "shown",
        &register(HANDLE + 2, address, 1)?,
        &INVALID_ADDRESS,
    )?;
    // SAFETY: Both places were mapped for this, and nothing else refers to them.
    let moved = unsafe { os::move_mapping(address, pages + PAGE, PAGE) };
    fails("mremap", moved, libc::EINVAL)?;
    let (shared, place) = (libc::MAP_SHARED | libc::MAP_FIXED, pages + PAGE);
    sys("mmap", os::mmap(place, PAGE, prot, shared, fd, 0))?;
    let among = register(HANDLE + 2, pages, 3)?;
    equal("among own pages", &among, &INVALID_ADDRESS)?;
    equal("before it", &register(HANDLE + 2, pages, 1)?, &0)?;
    equal("after it", &register(HANDLE + 3, place + PAGE, 1)?, &0)?;
    unmap(address, PAGE)?;
    unmap(pages, 3 * PAGE)?;
    sys("close", os::close(fd))?;
    client.close();
    Ok(())
}

fn unmapped_object() -> Verdict {
    let instance = Instance::new("unmapped", GIB)?;
    let client = instance.client()?;
    let (fd, address) = map_page(&instance, &client)?;
    let names = (client.handle, rm::DEVICE_HANDLE, HANDLE);
    // Ended whatever address the call names: only the driver knows the right one.
    let refused = rm::unmap(client.ctl, names, 1);
    holds("the driver knows no such mapping", refused.is_err())?;
    ended(address)?;
    let prot = libc::PROT_READ;
    let late = os::mmap(0, PAGE, prot, libc::MAP_SHARED, fd, 0);
    fails("mmap", late, libc::EINVAL)?;
    unmap(address, PAGE)?;
    sys("close", os::close(fd))?;
    client.close();
    Ok(())
}

fn child() -> Verdict {
    let instance = Instance::new("mapfork", GIB)?;
    let client = instance.client()?;
    let (fd, address) = map_page(&instance, &client)?;
    write(address, 1);
    in_child(|| {
        equal("in the child", &read(address), &1)?;
        write(address, 2);
        Ok(())
    })?;
    equal("from the child", &read(address), &2)?;
    unmap(address, PAGE)?;
    sys("close", os::close(fd))?;
    client.close();
    Ok(())
}

/// One thread unmaps what another frees. Before Linux 6.16 the kernel warned if they met, which
/// fails the whole run.
fn ends_while_unmapped() -> Verdict {
    const ROUNDS: u32 = 2_000;
    let instance = Instance::new("meeting", GIB)?;
    let client = instance.client()?;
    let (mapped, started) = (AtomicU64::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let unmapper = scope.spawn(|| -> Verdict {
            for _ in 0..ROUNDS {
                let address = loop {
                    match mapped.swap(0, Ordering::Acquire) {
                        0 => std::hint::spin_loop(),
                        1 => return Ok(()),
                        address => break address,
                    }
                };
                started.store(true, Ordering::Release);
                unmap(address, PAGE)?;
            }
            Ok(())
        });
        let freer = || -> Verdict {
            for _ in 0..ROUNDS {
                let address = map_memory(&instance, &client, HANDLE)?;
                started.store(false, Ordering::Relaxed);
                mapped.store(address, Ordering::Release);
                while !started.load(Ordering::Acquire) && !unmapper.is_finished() {
                    std::hint::spin_loop();
                }
                at("free", client.free(HANDLE))?;
            }
            Ok(())
        };
        let freed = freer();
        // An end for the thread that waits for a mapping that does not come.
        if freed.is_err() {
            mapped.store(1, Ordering::Release);
        }
        let unmapped = unmapper.join().unwrap_or_else(|_| Err("panicked".into()));
        freed.and(unmapped)
    })?;
    client.close();
    equal("files", &instance.get()?.tenant_open_files, &0)
}

/// Length of the doorbell's region.
pub(in crate::guest) const DOORBELL: u64 = 0x1_0000;

/// A file of the GPU's by which `len` bytes of an object may be mapped.
fn object_file(folder: &str, client: &rm::Client, len: u64) -> Result<i32, String> {
    part_file(folder, client, (0, len))
}

/// The same of a part of it: from which byte on, and how many.
fn part_file(folder: &str, client: &rm::Client, part: (u64, u64)) -> Result<i32, String> {
    let path = format!("{folder}/nvidia{GPU}");
    let fd = sys(&path, os::open(&path, libc::O_RDWR | libc::O_CLOEXEC))?;
    let names = (client.handle, rm::SUBDEVICE_HANDLE, HANDLE);
    at(
        "RM_MAP_MEMORY",
        rm::map_part(client.ctl, names, part, rm::MAP_OF_DOORBELL, fd),
    )?;
    Ok(fd)
}

/// Maps it, at `address` if that is not 0.
pub(super) fn map_file(address: u64, len: u64, fd: i32) -> Result<u64, String> {
    let prot = libc::PROT_READ | libc::PROT_WRITE;
    sys(
        "mmap",
        os::mmap(address, len, prot, libc::MAP_SHARED, fd, 0),
    )
}

/// A page of the GPU's memory, through a file that is closed again.
pub(super) fn map_memory(
    instance: &Instance,
    client: &rm::Client,
    object: u32,
) -> Result<u64, String> {
    at("memory", client.memory(object, PAGE))?;
    let path = format!("{}/nvidia{GPU}", instance.folder());
    let fd = sys(&path, os::open(&path, libc::O_RDWR | libc::O_CLOEXEC))?;
    let names = (client.handle, rm::DEVICE_HANDLE, object);
    let told = rm::map(client.ctl, names, PAGE, rm::MAP_OF_MEMORY, fd);
    at("RM_MAP_MEMORY", told)?;
    let address = map_file(0, PAGE, fd)?;
    sys("close", os::close(fd))?;
    Ok(address)
}

/// A mapping of `len` bytes of an object through such a file, which is closed again.
fn map_object(folder: &str, client: &rm::Client, len: u64) -> Result<u64, String> {
    let fd = object_file(folder, client, len)?;
    let address = map_file(0, len, fd)?;
    sys("close", os::close(fd))?;
    Ok(address)
}

/// A page of the registers whose first page, with the doorbell, a client has mapped already.
pub(super) fn map_other_page(
    instance: &Instance,
    client: &rm::Client,
    offset: u64,
) -> Result<u64, String> {
    let fd = part_file(&instance.folder(), client, (offset, PAGE))?;
    let address = map_file(0, PAGE, fd)?;
    sys("close", os::close(fd))?;
    Ok(address)
}

/// A file by which the doorbell that a client has mapped already may be mapped once more.
pub(super) fn doorbell_file(folder: &str, client: &rm::Client) -> Result<i32, String> {
    object_file(folder, client, DOORBELL)
}

/// The doorbell that a client has mapped already, through another file, which is closed again.
pub(in crate::guest) fn map_once_more(folder: &str, client: &rm::Client) -> Result<u64, String> {
    map_object(folder, client, DOORBELL)
}

/// The doorbell, mapped as CUDA does it.
pub(in crate::guest) fn map_doorbell(
    instance: &Instance,
    client: &rm::Client,
) -> Result<u64, String> {
    map_doorbell_in(&instance.folder(), client)
}

/// The same through the nodes of a folder.
pub(in crate::guest) fn map_doorbell_in(folder: &str, client: &rm::Client) -> Result<u64, String> {
    map_doorbell_with(folder, client, &mut [])
}

/// The same, through BAR1, as CUDA asks for it on a Hopper GPU.
pub(super) fn map_doorbell_through_bar1(folder: &str, client: &rm::Client) -> Result<u64, String> {
    map_doorbell_with(folder, client, &mut [1, 0])
}

fn map_doorbell_with(folder: &str, client: &rm::Client, params: &mut [u8]) -> Result<u64, String> {
    at(
        "usermode",
        client.alloc(rm::SUBDEVICE_HANDLE, HANDLE, rm::USERMODE, params),
    )?;
    map_object(folder, client, DOORBELL)
}

fn doorbell() -> Verdict {
    let instance = Instance::new("doorbell", GIB)?;
    let client = instance.client()?;
    let address = map_doorbell(&instance, &client)?;
    // The doorbell with the token of a channel that does not exist.
    write(address + rm::BELL, 0);
    unmap(address, DOORBELL)?;
    client.close();
    Ok(())
}

fn debugged() -> Verdict {
    let path = "/proc/self/mem";
    let memory = std::fs::File::options().read(true).write(true).open(path);
    let memory = at(path, memory)?;
    let no_access = |what: &str, address: u64| {
        let read = memory.read_at(&mut [0; 4], address);
        let written = memory.write_at(&[0; 4], address);
        let errno = |result: std::io::Result<usize>| match result {
            Ok(_) => Ok(()),
            Err(e) => Err(e.raw_os_error().unwrap_or(0)),
        };
        fails(&format!("{what} read"), errno(read), libc::EIO)?;
        fails(&format!("{what} written"), errno(written), libc::EIO)
    };
    let instance = Instance::new("debugged", GIB)?;
    let client = instance.client()?;
    let bell = map_doorbell(&instance, &client)?;
    no_access("the doorbell", bell + rm::BELL)?;
    // The program itself has it.
    write(bell + rm::BELL, 0);
    at("free", client.free(HANDLE))?;
    at("memory", client.memory(HANDLE, 2 << 20))?;
    let memory = map_object(&instance.folder(), &client, PAGE)?;
    write(memory, 5);
    no_access("video memory", memory)?;
    equal("read", &read(memory), &5)?;
    unmap(memory, PAGE)?;
    unmap(bell, DOORBELL)?;
    client.close();
    Ok(())
}

fn unprepared() -> Verdict {
    let instance = Instance::new("unprepared", GIB)?;
    let client = instance.client()?;
    let prot = libc::PROT_READ | libc::PROT_WRITE;
    let map = |fd, len| os::mmap(0, len, prot, libc::MAP_SHARED, fd, 0);
    for fd in [client.ctl, client.gpu] {
        holds("mapped without preparation", map(fd, PAGE).is_err())?;
    }
    at("memory", client.system_page(HANDLE))?;
    let path = format!("{}/nvidiactl", instance.folder());
    let fd = sys(&path, os::open(&path, libc::O_RDWR | libc::O_CLOEXEC))?;
    let names = (client.handle, rm::DEVICE_HANDLE, HANDLE);
    at("RM_MAP_MEMORY", rm::map(client.ctl, names, PAGE, FLAGS, fd))?;
    holds("more than was prepared", map(fd, 4 * PAGE).is_err())?;
    sys("close", os::close(fd))?;
    client.close();
    Ok(())
}
