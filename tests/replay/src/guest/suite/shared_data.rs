// SPDX-License-Identifier: GPL-2.0
//! The page of `RM_USER_SHARED_DATA`: a tenant's own, in the place of the GPU's.

use std::sync::{
    atomic::{AtomicBool, AtomicU64, Ordering},
    Barrier,
};

use super::{doorbell::wait_for, mappings::ended};
use crate::{
    facts,
    guest::{
        instance::Instance,
        process::{in_child, spawn},
        rm,
        tools::{at, equal, holds, sys, tests, Verdict, GIB, MIB},
    },
    standin, sys as os,
};

tests! {
    "shared data: memory is the instance's" => memory;
    "shared data: allocations and settings show within a second" => live;
    "shared data: the hardware shows, others' work does not" => sections;
    "shared data: nobody writes to it" => read_only;
    "shared data: each tenant has its own" => tenants;
    "shared data: all files of a tenant show one page" => one_page;
    "shared data: by two objects, two mappings, in a child" => routes;
    "shared data: whatever file the descriptor means by then" => raced;
    "shared data: the driver's page is never there" => never_there;
}

const HANDLE: u32 = 0x5C00_00DE;
const SECOND: u32 = 0x5C00_01DE;
const CLASS: u32 = 0xDE;
/// As CUDA maps it: for reading.
const FLAGS: u32 = 0x0008_0001;
const PAGE: u64 = 4096;

/// The layout of the page (`NV00DE_SHARED_DATA`, cl00de.h), in words.
struct Places {
    /// Its size in bytes.
    length: u64,
    /// The stamp of the section with total and free memory.
    stamp: u64,
    /// Total memory; what is free stands behind it.
    total: u64,
    /// The stamp of the clocks.
    clocks: u64,
    /// The stamp of the utilisation, and what ends it.
    utilisation: std::ops::Range<u64>,
}

/// Of the branches whose drivers the tests meet: `pmaMemoryInfo`, `clkPublicDomainInfos` and
/// `perfDevUtil` of 570, 580 and 595; `bar1` and memory in one section of 550.
static PLACES: [(u32, Places); 4] = [
    (
        550,
        Places {
            length: 320,
            stamp: 0,
            total: 2,
            clocks: 4,
            utilisation: 9..11,
        },
    ),
    (
        570,
        Places {
            length: 464,
            stamp: 2,
            total: 3,
            clocks: 9,
            utilisation: 14..20,
        },
    ),
    (
        580,
        Places {
            length: 2600,
            stamp: 2,
            total: 3,
            clocks: 9,
            utilisation: 247..253,
        },
    ),
    (
        595,
        Places {
            length: 3144,
            stamp: 2,
            total: 3,
            clocks: 9,
            utilisation: 249..255,
        },
    ),
];

/// The branch whose page has BAR1 and a count of the firmware's failures alone.
const NO_MEMORY: u32 = 535;

fn places() -> Result<&'static Places, String> {
    let branch = facts::branch();
    if branch == NO_MEMORY {
        standin::needed("the page of branch 535 says nothing of memory and clocks")?;
    }
    let found = PLACES.iter().find(|(known, _)| *known == branch);
    found
        .map(|(_, places)| places)
        .ok_or_else(|| format!("nobody has said what the page of {branch} is like"))
}

fn word(address: u64, index: u64) -> u64 {
    // SAFETY: the tests read pages that they have mapped.
    unsafe { ((address + 8 * index) as *const u64).read_volatile() }
}

/// Total and free memory as a page reports them.
fn memory_of(address: u64) -> Result<(u64, u64), String> {
    let total = places()?.total;
    Ok((word(address, total), word(address, total + 1)))
}

fn unmap(address: u64) -> Verdict {
    // SAFETY: nothing of the program lies in a page that the driver gave.
    sys("munmap", unsafe { os::munmap(address, PAGE) })
}

fn object(client: &rm::Client) -> Verdict {
    let made = client.alloc(rm::SUBDEVICE_HANDLE, HANDLE, CLASS, &mut [0; 8]);
    at("shared data", made).map(drop)
}

/// Maps an object through a file of its own, which is closed again.
fn map(instance: &Instance, client: &rm::Client, object: u32, prot: i32) -> Result<u64, String> {
    map_at(0, instance, client, (object, prot))
}

/// The same at an address; 0: anywhere.
fn map_at(
    address: u64,
    instance: &Instance,
    client: &rm::Client,
    (object, prot): (u32, i32),
) -> Result<u64, String> {
    let path = format!("{}/nvidiactl", instance.folder());
    let fd = sys(&path, os::open(&path, libc::O_RDWR | libc::O_CLOEXEC))?;
    let names = (client.handle, rm::SUBDEVICE_HANDLE, object);
    at(
        "RM_MAP_MEMORY",
        rm::map(client.ctl, names, places()?.length, FLAGS, fd),
    )?;
    let address = sys(
        "mmap",
        os::mmap(address, PAGE, prot, libc::MAP_SHARED, fd, 0),
    )?;
    sys("close", os::close(fd))?;
    Ok(address)
}

fn shown(instance: &Instance, client: &rm::Client) -> Result<u64, String> {
    object(client)?;
    map(instance, client, HANDLE, libc::PROT_READ)
}

/// Wants the page to say so. The module writes it every 500 ms, but on a worker of the kernel's.
fn soon(address: u64, wanted: (u64, u64)) -> Verdict {
    // If it never does, the difference says more.
    let _ = wait_for("shown", || Ok(memory_of(address)? == wanted));
    equal("shown", &memory_of(address)?, &wanted)
}

fn memory() -> Verdict {
    let instance = Instance::new("rusd", GIB)?;
    let client = instance.client()?;
    at("memory", client.memory(0x5C00_0040, 64 * MIB))?;
    let page = shown(&instance, &client)?;
    equal("at once", &memory_of(page)?, &(GIB, GIB - 64 * MIB))?;
    at("free", client.free(HANDLE))?;
    ended(page)?;
    unmap(page)?;
    client.close();
    equal("files", &instance.get()?.tenant_open_files, &0)
}

fn live() -> Verdict {
    let instance = Instance::new("rusdlive", GIB)?;
    let client = instance.client()?;
    let page = shown(&instance, &client)?;
    let at_stamp = places()?.stamp;
    let stamp = word(page, at_stamp);
    at("memory", client.memory(0x5C00_0040, 128 * MIB))?;
    soon(page, (GIB, GIB - 128 * MIB))?;
    holds("another stamp", word(page, at_stamp) != stamp)?;
    instance.set_memory(2 * GIB)?;
    soon(page, (2 * GIB, 2 * GIB - 128 * MIB))?;
    at("free", client.free(0x5C00_0040))?;
    soon(page, (2 * GIB, 2 * GIB))?;
    unmap(page)?;
    client.close();
    Ok(())
}

fn sections() -> Verdict {
    standin::needed("nobody writes the figures of the hardware: the emulated firmware has none")?;
    let places = places()?;
    let instance = Instance::new("rusdall", GIB)?;
    let client = instance.client()?;
    let page = shown(&instance, &client)?;
    holds("clocks have a time", word(page, places.clocks) != 0)?;
    // In MHz, of the graphics domain: the stand-in's.
    equal(
        "clock",
        &(word(page, places.clocks + 1) & 0xffff_ffff),
        &1980,
    )?;
    for index in places.utilisation.clone() {
        equal("utilisation", &word(page, index), &0)?;
    }
    unmap(page)?;
    client.close();
    Ok(())
}

fn read_only() -> Verdict {
    let instance = Instance::new("rusdwrite", GIB)?;
    let client = instance.client()?;
    object(&client)?;
    let both = libc::PROT_READ | libc::PROT_WRITE;
    let page = map(&instance, &client, HANDLE, both)?;
    // SAFETY: the page is mapped, and nothing of the program lies there.
    let result = unsafe { libc::mprotect(page as *mut libc::c_void, 4096, both) };
    equal("mprotect", &result, &-1)?;
    let memory = at(
        "mem",
        std::fs::File::options().write(true).open("/proc/self/mem"),
    )?;
    let written = std::os::unix::fs::FileExt::write_at(&memory, &[1], page);
    holds("written by /proc/self/mem", written.is_err())?;
    let killed = in_child(|| {
        // SAFETY: it is mapped; that this fails is what is tested.
        unsafe { (page as *mut u64).write_volatile(1) };
        Ok(())
    });
    holds("written", killed.is_err())?;
    equal("shown", &memory_of(page)?, &(GIB, GIB))?;
    unmap(page)?;
    client.close();
    Ok(())
}

fn tenants() -> Verdict {
    let (one, two) = (
        Instance::new("rusda", GIB)?,
        Instance::new("rusdb", 3 * GIB)?,
    );
    let (a, b) = (one.client()?, two.client()?);
    let (page_a, page_b) = (shown(&one, &a)?, shown(&two, &b)?);
    at("memory", a.memory(0x5C00_0040, 256 * MIB))?;
    soon(page_a, (GIB, GIB - 256 * MIB))?;
    equal("the other's", &memory_of(page_b)?, &(3 * GIB, 3 * GIB))?;
    unmap(page_a)?;
    unmap(page_b)?;
    a.close();
    b.close();
    Ok(())
}

/// The page frame that is mapped at an address, as the kernel tells root.
fn frame(address: u64) -> Result<u64, String> {
    let file = at("pagemap", std::fs::File::open("/proc/self/pagemap"))?;
    let mut entry = [0; 8];
    let read = std::os::unix::fs::FileExt::read_exact_at(&file, &mut entry, address / PAGE * 8);
    at("pagemap", read)?;
    // Without the flags above the frame's number.
    Ok(u64::from_le_bytes(entry) & ((1 << 55) - 1))
}

/// The host's work for a page, twice a second, does not grow with the files that map it.
fn one_page() -> Verdict {
    const FILES: usize = 100;
    let (one, two) = (
        Instance::new("rusdone", GIB)?,
        Instance::new("rusdtwo", GIB)?,
    );
    let (a, b) = (one.client()?, two.client()?);
    let (first, other) = (shown(&one, &a)?, shown(&two, &b)?);
    let wanted = frame(first)?;
    holds("no frame is told", wanted != 0)?;
    holds("the other tenant's", frame(other)? != wanted)?;
    for _ in 0..FILES {
        let page = map(&one, &a, HANDLE, libc::PROT_READ)?;
        equal("frame", &frame(page)?, &wanted)?;
        unmap(page)?;
    }
    at("memory", a.memory(0x5C00_0040, 64 * MIB))?;
    soon(first, (GIB, GIB - 64 * MIB))?;
    // When nobody maps it any more it goes, and comes again.
    unmap(first)?;
    let again = map(&one, &a, HANDLE, libc::PROT_READ)?;
    equal("again", &memory_of(again)?, &(GIB, GIB - 64 * MIB))?;
    unmap(again)?;
    unmap(other)?;
    a.close();
    b.close();
    Ok(())
}

fn routes() -> Verdict {
    let instance = Instance::new("rusdways", GIB)?;
    let client = instance.client()?;
    object(&client)?;
    // The accounting lets nobody duplicate it; a second object is as good.
    let another = client.alloc(rm::SUBDEVICE_HANDLE, SECOND, CLASS, &mut [0; 8]);
    at("second object", another)?;
    let other = map(&instance, &client, SECOND, libc::PROT_READ)?;
    equal("by the second object", &memory_of(other)?, &(GIB, GIB))?;
    // Two mappings through one file.
    let path = format!("{}/nvidiactl", instance.folder());
    let fd = sys(&path, os::open(&path, libc::O_RDWR | libc::O_CLOEXEC))?;
    let names = (client.handle, rm::SUBDEVICE_HANDLE, HANDLE);
    at(
        "RM_MAP_MEMORY",
        rm::map(client.ctl, names, places()?.length, FLAGS, fd),
    )?;
    let again = || os::mmap(0, PAGE, libc::PROT_READ, libc::MAP_SHARED, fd, 0);
    let (first, second) = (sys("mmap", again())?, sys("mmap", again())?);
    unmap(first)?;
    sys("close", os::close(fd))?;
    at("memory", client.memory(0x5C00_0040, 32 * MIB))?;
    soon(second, (GIB, GIB - 32 * MIB))?;
    in_child(|| soon(second, (GIB, GIB - 32 * MIB)))?;
    unmap(second)?;
    unmap(other)?;
    client.close();
    equal("files", &instance.get()?.tenant_open_files, &0)
}

/// While RM_MAP_MEMORY is made, another thread turns the descriptor to another file, and back.
fn raced() -> Verdict {
    let instance = Instance::new("rusdrace", GIB)?;
    let client = instance.client()?;
    object(&client)?;
    let path = format!("{}/nvidiactl", instance.folder());
    let open = || sys(&path, os::open(&path, libc::O_RDWR | libc::O_CLOEXEC));
    let length = places()?.length;
    let mut mapped = [0; 2];
    for _ in 0..100 {
        let files = [open()?, open()?];
        let fd = open()?;
        let stop = AtomicBool::new(false);
        let turned = Barrier::new(2);
        let names = (client.handle, rm::SUBDEVICE_HANDLE, HANDLE);
        let prepared = std::thread::scope(|scope| {
            scope.spawn(|| {
                // From here on the number never means the file that the loop opened.
                let _ = os::copy_to(files[0], fd, true);
                turned.wait();
                while !stop.load(Ordering::Relaxed) {
                    for file in files {
                        let _ = os::copy_to(file, fd, true);
                    }
                }
            });
            turned.wait();
            let prepared = rm::map(client.ctl, names, length, FLAGS, fd);
            stop.store(true, Ordering::Relaxed);
            prepared
        });
        at("RM_MAP_MEMORY", prepared)?;
        for (file, count) in files.into_iter().zip(&mut mapped) {
            if let Ok(page) = os::mmap(0, PAGE, libc::PROT_READ, libc::MAP_SHARED, file, 0) {
                *count += 1;
                equal("shown", &memory_of(page)?, &(GIB, GIB))?;
                unmap(page)?;
            }
        }
        for file in files.into_iter().chain([fd]) {
            sys("close", os::close(file))?;
        }
    }
    equal("mapped, once a call", &mapped.iter().sum::<u32>(), &100)?;
    client.close();
    Ok(())
}

/// A word of a page, of which the kernel takes a reference for a pipe. It does not copy it.
fn word_by_pipe([reader, writer]: [i32; 2], address: u64, index: u64) -> Result<u64, i32> {
    let part = libc::iovec {
        iov_base: (address + 8 * index) as *mut libc::c_void,
        iov_len: 8,
    };
    let mut bytes = [0_u8; 8];
    // SAFETY: one part, which lives over the call, and room for as much; the kernel checks the
    // address.
    let got = unsafe {
        match libc::vmsplice(writer, &raw const part, 1, 0) {
            8 => libc::read(reader, bytes.as_mut_ptr().cast(), bytes.len()),
            _ => -1,
        }
    };
    match got {
        8 => Ok(u64::from_ne_bytes(bytes)),
        _ => Err(os::errno()),
    }
}

/// How far threads are that read a page which is being mapped.
struct Looking {
    /// The driver's page has been put in, and its `mmap` does not go on.
    begun: AtomicU64,
    /// Threads that have read.
    done: AtomicU64,
}

/// Lets the driver's `mmap` go on when the threads had their time.
fn let_go(looking: &Looking) -> Verdict {
    let held = wait_for("a task in the driver's mmap", || {
        let refs = standin::read("refs")?;
        Ok(standin::number(&refs, "held_maps") == 1)
    });
    looking.begun.store(1, Ordering::Release);
    os::sleep_ms(300);
    let early = looking.done.load(Ordering::Acquire);
    standin::hold_maps(false)?;
    held?;
    equal("threads that did not wait", &early, &0)
}

/// While the driver's `mmap` is about to be left, its page is in the page table already.
fn never_there() -> Verdict {
    /// Nothing is mapped there.
    const PLACE: u64 = 0x2000_0000_0000;
    let instance = Instance::new("rusdearly", GIB)?;
    let client = instance.client()?;
    object(&client)?;
    let total = places()?.total;
    let looking: &Looking = os::shared()?;
    let mut ends = [0; 2];
    // SAFETY: room for two descriptors.
    equal("pipe", &unsafe { libc::pipe(ends.as_mut_ptr()) }, &0)?;
    standin::hold_maps(true)?;
    // Of another process: threads of this one could wait for the memory that is being mapped.
    let helper = spawn(|| match let_go(looking) {
        Ok(()) => 0,
        Err(text) => {
            eprintln!("{text}");
            1
        }
    });
    let helper = sys("fork", helper)?;
    let when_begun = |read: &dyn Fn() -> Result<u64, i32>| {
        while looking.begun.load(Ordering::Acquire) == 0 {
            os::sleep_ms(1);
        }
        let seen = read();
        looking.done.fetch_add(1, Ordering::Release);
        seen
    };
    let (mapped, loaded, pinned) = std::thread::scope(|scope| {
        let load = scope.spawn(|| when_begun(&|| Ok(word(PLACE, total))));
        let pin = scope.spawn(|| when_begun(&|| word_by_pipe(ends, PLACE, total)));
        os::sleep_ms(100);
        let mapped = map_at(PLACE, &instance, &client, (HANDLE, libc::PROT_READ));
        (mapped, load.join(), pin.join())
    });
    equal("helper", &sys("wait", os::wait(helper))?, &0)?;
    let read = |seen: std::thread::Result<_>| seen.map_err(|_| "a thread ended".to_owned());
    equal("loaded", &read(loaded)?, &Ok(GIB))?;
    equal("by a pipe", &read(pinned)?, &Ok(GIB))?;
    unmap(mapped?)?;
    client.close();
    Ok(())
}
