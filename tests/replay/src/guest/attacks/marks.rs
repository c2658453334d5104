// SPDX-License-Identifier: GPL-2.0
//! Marks of userfaultfd in a mapping that is being made. Before Linux 7.1 the kernel enters a
//! mapping before the driver fills it, and from Linux 6.7 on a program could put marks into the
//! empty entries of any mapping. The driver's `remap_pfn_range()` stops the kernel where an entry
//! is not empty, with a lock of the whole GPU held.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
};

use super::{
    attack::Own,
    scene::{in_instances, open_client, told, Place, GPU, OWN},
};
use crate::{
    guest::{rm, tools::open_node},
    sys,
};

pub(super) const ATTACKS: &[Own] = &[Own {
    name: "mapping: filled beside marks of userfaultfd",
    function: "nv-mmap.c:nvidia_mmap_helper",
    run: || in_instances(beside_marks),
}];

/// Mappings that are made while the marks are put.
const ROUNDS: u32 = 2_000;
/// Bytes of a mapping.
const LENGTH: u64 = 16 << 12;
/// Its address, which nothing else has.
const ADDRESS: u64 = 0x5000_0000_0000;

/// Requests and flags of include/uapi/linux/userfaultfd.h.
const USER_MODE_ONLY: i32 = 1;
const API: u32 = 0xc018_aa3f;
const REGISTER: u32 = 0xc020_aa00;
const WRITE_PROTECT: u32 = 0xc018_aa06;
const VERSION: u64 = 0xaa;
/// UFFD_FEATURE_PAGEFAULT_FLAG_WP, WP_UNPOPULATED and WP_ASYNC.
const FEATURES: u64 = 1 | 1 << 13 | 1 << 15;
/// UFFDIO_REGISTER_MODE_WP.
const OF_WRITES: u64 = 2;
/// UFFDIO_WRITEPROTECT_MODE_WP.
const PROTECT: u64 = 1;

/// A descriptor of userfaultfd that can put marks; `None`: this kernel has none.
fn marker() -> Option<i32> {
    let flags = libc::O_CLOEXEC | libc::O_NONBLOCK | USER_MODE_ONLY;
    // SAFETY: It makes a descriptor, and reads nothing of this program.
    let fd = unsafe { libc::syscall(libc::SYS_userfaultfd, flags) };
    let fd = i32::try_from(fd).ok().filter(|fd| *fd >= 0)?;
    ask(fd, API, &[VERSION, FEATURES, 0]).ok().map(|()| fd)
}

fn ask(fd: i32, request: u32, words: &[u64]) -> Result<(), i32> {
    let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    sys::ioctl(fd, request, &mut bytes).map(drop)
}

/// Puts marks into the entries of the mapping, if there is one.
fn mark(fd: i32) -> Result<(), i32> {
    ask(fd, REGISTER, &[ADDRESS, LENGTH, OF_WRITES, 0])?;
    ask(fd, WRITE_PROTECT, &[ADDRESS, LENGTH, PROTECT])
}

fn beside_marks() -> Result<String, String> {
    let Some(marker) = marker() else {
        return Ok("no such marks in this kernel".to_owned());
    };
    let folder = Place::Instance.folder("attacker");
    let client = open_client(&folder)?;
    let is_done = AtomicBool::new(false);
    let seen = thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !is_done.load(Ordering::Relaxed) {
                    let _ = mark(marker);
                }
            });
        }
        let seen = map_all(&client, &folder, marker);
        is_done.store(true, Ordering::Relaxed);
        seen
    });
    client.close();
    let _ = sys::close(marker);
    let seen = seen?;
    let Maps {
        made,
        refused,
        can_be_marked,
    } = seen;
    let kernel = if can_be_marked {
        ""
    } else {
        ", and the kernel takes no marks there"
    };
    if made == 0 {
        return Err(format!("{refused} refused, none made"));
    }
    Ok(format!("{made} made, {refused} refused{kernel}"))
}

/// How the mappings went.
struct Maps {
    made: u32,
    refused: u32,
    /// A mapping that was made can be marked.
    can_be_marked: bool,
}

fn map_all(client: &rm::Client, folder: &str, marker: i32) -> Result<Maps, String> {
    let names = (client.handle, rm::DEVICE_HANDLE, OWN);
    let mut seen = Maps {
        made: 0,
        refused: 0,
        can_be_marked: false,
    };
    for _ in 0..ROUNDS {
        let fd = open_node(folder, &format!("nvidia{GPU}"))?;
        // New in each round: a mapping's BAR1 counts until its memory is freed.
        told(client.memory(OWN, LENGTH))?;
        let prepared = rm::map(client.ctl, names, LENGTH, rm::MAP_OF_MEMORY, fd);
        prepared.map_err(|failure| format!("RM_MAP_MEMORY: {failure}"))?;
        let access = libc::PROT_READ | libc::PROT_WRITE;
        match sys::mmap(ADDRESS, LENGTH, access, libc::MAP_SHARED, fd, 0) {
            Ok(at) => {
                seen.made += 1;
                seen.can_be_marked |= mark(marker).is_ok();
                // SAFETY: The mapping is this function's own.
                let unmapped = unsafe { sys::munmap(at, LENGTH) };
                unmapped.map_err(|errno| format!("munmap: errno {errno}"))?;
            }
            Err(libc::EAGAIN) => seen.refused += 1,
            Err(errno) => return Err(format!("mmap: errno {errno}")),
        }
        told(client.free(OWN))?;
        let _ = sys::close(fd);
    }
    Ok(seen)
}
