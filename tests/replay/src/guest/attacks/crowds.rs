// SPDX-License-Identifier: GPL-2.0
//! More of a thing than a program needs: files and mappings, of which the module keeps and walks
//! lists, and what the driver keeps for files and exports.

use std::sync::atomic::{AtomicU32, Ordering};

use super::{
    attack::Own,
    rest::alone,
    scene::{in_instances, open_client, Place, GPU, OWN},
};
use crate::{
    bytes::put_u32,
    guest::{
        process::spawn,
        rm,
        suite::{
            doorbell::ended,
            mappings::{map_doorbell_in, read, DOORBELL},
        },
        tools::{control, open_node},
        uvm,
    },
    standin, sys,
};
use cgpu_uapi::Limited;

pub(super) const ATTACKS: &[Own] = &[
    Own {
        name: "files opened without end",
        function: "nv.c:nvidia_open",
        run: files,
    },
    Own {
        name: "registers mapped by forks without end",
        function: "nv-mmap.c:nvidia_vma_open",
        run: forks,
    },
    Own {
        name: "host memory in places for exports",
        function: "os.c:cliresCtrlCmdOsUnixCreateExportObjectFd_IMPL",
        run: || crowd_out(Limited::HostMemory, PLACES, with_places),
    },
    Own {
        name: "host memory in address spaces of UVM",
        function: "uvm_va_space.c:uvm_va_space_create",
        run: || crowd_out(Limited::HostMemory, SPACE, spaces),
    },
    Own {
        name: "exports without end",
        function: "rmobjexportimport.c:RmExportObject",
        run: || crowd_out(Limited::Exports, 1, exported),
    },
    Own {
        name: "handles for exports taken from all",
        function: "rmobjexportimport.c:RmExportObject",
        run: handles,
    },
];

/// How many of each a program asks for, and how many an instance may have.
const ASKED: u32 = 100;
const ALLOWED: u32 = 20;

type Take = fn(&str) -> Result<u32, String>;

/// How many places a control file gets, the bytes of those, and of the address space of a UVM file.
/// The driver allows 65,535 places. The stand-in takes twelve times the memory for each.
const MAX_OBJECTS: u16 = 16_384;
const PLACES: u64 = 64 << 10;
const SPACE: u64 = 384 << 10;
/// Objects in one call that exports.
const LIST: u16 = 512;
/// The driver's answer if it has no handle or no memory left.
const NO_MEMORY: u32 = 0x51;

/// On the driver's nodes a program gets all. Through an instance it gets as many as it may have, a
/// neighbour gets what it asks for, and nothing stays counted.
fn crowd_out(what: Limited, each: u64, take: Take) -> Result<String, String> {
    if standin::is_in_reach() {
        match alone(|| take(&Place::Driver.folder("attacker")))? {
            ASKED => {}
            count => return Err(format!("{count} of {ASKED} on the driver's nodes")),
        }
    }
    let (own, other) = in_instances(|| limited(what, each, take))?;
    match (own, other) {
        (ALLOWED, ASKED) => Ok(format!("{ALLOWED} of {ASKED}")),
        _ => Err(format!("{own} of {ASKED}, the neighbour {other}")),
    }
}

/// With a limit for `ALLOWED` of them, of which each counts with `each`.
fn limited(what: Limited, each: u64, take: Take) -> Result<(u32, u32), String> {
    let control = control()?;
    let errno = |errno| format!("limits: errno {errno}");
    let most = each * u64::from(ALLOWED);
    let set = control.set_limit("attacker", GPU, what.number(), most);
    set.map_err(errno)?;
    let own = take(&Place::Instance.folder("attacker"))?;
    let other = take(&Place::Instance.folder("victim"))?;
    let limits = control.limits("attacker", GPU).map_err(errno)?;
    let limit = limits.iter().find(|limit| limit.what == what.number());
    let limit = limit.ok_or("there is no such limit")?;
    if limit.used != 0 || limit.refused == 0 {
        return Err(format!("{} left, {} refused", limit.used, limit.refused));
    }
    Ok((own, other))
}

/// How many files of a GPU's node a program can open.
fn opened(folder: &str) -> Result<u32, String> {
    let path = format!("{folder}/nvidia{GPU}");
    let mut files = Vec::new();
    let mut end = Ok(());
    while files.len() < ASKED as usize && end.is_ok() {
        let opened = sys::open(&path, libc::O_RDWR | libc::O_CLOEXEC);
        end = opened.map(|fd| files.push(fd));
    }
    let count = u32::try_from(files.len()).unwrap_or(u32::MAX);
    for fd in files {
        sys::close(fd).map_err(|errno| format!("close: errno {errno}"))?;
    }
    match end {
        // As the driver's own where it has no memory for a file.
        Ok(()) | Err(libc::ENOMEM) => Ok(count),
        Err(errno) => Err(format!("{path}: errno {errno}")),
    }
}

/// How many processes of a program, which forks, can submit work at the same time.
fn submitting(folder: &str) -> Result<u32, String> {
    let client = open_client(folder)?;
    let doorbell = map_doorbell_in(folder, &client)?;
    read(doorbell);
    let able: &AtomicU32 = sys::shared()?;
    able.store(1, Ordering::Relaxed);
    let children = (1..ASKED).map(|_| fork(doorbell, able));
    let children: Result<Vec<i32>, String> = children.collect();
    // They end before this process does, whatever came of it.
    for child in children?.into_iter().filter(|child| *child != 0) {
        sys::kill(child, libc::SIGKILL).map_err(|errno| format!("kill: errno {errno}"))?;
        ended(child)?;
    }
    client.close();
    // SAFETY: The driver gave the range, and nothing else of the program is there.
    let gone = unsafe { sys::munmap(doorbell, DOORBELL) };
    gone.map_err(|errno| format!("munmap: errno {errno}"))?;
    Ok(able.load(Ordering::Relaxed))
}

/// Forks a child that looks at the registers and stays; 0 if that ended it.
fn fork(doorbell: u64, able: &AtomicU32) -> Result<i32, String> {
    let before = able.load(Ordering::Relaxed);
    let child = spawn(|| {
        read(doorbell);
        able.fetch_add(1, Ordering::Relaxed);
        loop {
            sys::sleep_ms(1000);
        }
    });
    let child = child.map_err(|errno| format!("fork: errno {errno}"))?;
    let mut status = 0;
    loop {
        if able.load(Ordering::Relaxed) != before {
            return Ok(child);
        }
        // SAFETY: the status is there to be written.
        if unsafe { libc::waitpid(child, &raw mut status, libc::WNOHANG) } == child {
            return match status & 0x7f {
                libc::SIGBUS | libc::SIGSEGV => Ok(0),
                _ => Err(format!("a child ended with status {status:#x}")),
            };
        }
        sys::sleep_ms(1);
    }
}

fn files() -> Result<String, String> {
    crowd_out(Limited::Files, 1, opened)
}

fn forks() -> Result<String, String> {
    crowd_out(Limited::Mappings, 1, submitting)
}

fn close_all(files: Vec<i32>) -> Result<(), String> {
    for fd in files {
        sys::close(fd).map_err(|errno| format!("close: errno {errno}"))?;
    }
    Ok(())
}

/// Whether a call has worked, `false`: there is no memory or no handle for it.
fn worked(result: Result<(), rm::Failure>) -> Result<bool, String> {
    match result {
        Ok(()) => Ok(true),
        Err(failure) if failure.status() == Some(NO_MEMORY) => Ok(false),
        Err(failure) => Err(failure.to_string()),
    }
}

/// How many control files a program can give many places (`maxObjects`).
fn with_places(folder: &str) -> Result<u32, String> {
    let client = open_client(folder)?;
    let mut files = Vec::new();
    let mut count = 0;
    while count < ASKED {
        let fd = open_node(folder, "nvidiactl")?;
        files.push(fd);
        let mut params = [0; 76];
        put_u32(&mut params, 0, rm::DEVICE_HANDLE);
        params[4..6].copy_from_slice(&MAX_OBJECTS.to_le_bytes());
        params[72..].copy_from_slice(&fd.to_le_bytes());
        if !worked(client.control(client.handle, 0x3d0a, &mut params))? {
            break;
        }
        count += 1;
    }
    close_all(files)?;
    client.close();
    Ok(count)
}

/// How many UVM files a program can have with an address space.
fn spaces(folder: &str) -> Result<u32, String> {
    let mut spaces = Vec::new();
    let mut count = 0;
    while count < ASKED {
        match uvm::Space::open(folder) {
            Ok(space) => spaces.push(space),
            Err(failure) if failure.status() == Some(NO_MEMORY) => break,
            Err(failure) => return Err(failure.to_string()),
        }
        count += 1;
    }
    spaces.into_iter().for_each(uvm::Space::close);
    Ok(count)
}

/// Puts an object so often into a control file, from a place on.
fn export(client: &rm::Client, fd: i32, (first, count): (u16, u16)) -> Result<bool, String> {
    let mut params = vec![0; 2128];
    params[..4].copy_from_slice(&fd.to_le_bytes());
    put_u32(&mut params, 4, rm::DEVICE_HANDLE);
    params[8..10].copy_from_slice(&u16::MAX.to_le_bytes());
    for number in 0..usize::from(count) {
        put_u32(&mut params, 76 + 4 * number, OWN);
    }
    params[2124..2126].copy_from_slice(&count.to_le_bytes());
    params[2126..].copy_from_slice(&first.to_le_bytes());
    worked(client.control(client.handle, 0x3d0b, &mut params))
}

/// A client with an object that can be exported.
fn exporter(folder: &str) -> Result<rm::Client, String> {
    let client = open_client(folder)?;
    let made = client.memory(OWN, 64 << 10);
    made.map_err(|e| format!("memory: {e}"))?;
    Ok(client)
}

/// How many times a program can export an object.
fn exported(folder: &str) -> Result<u32, String> {
    let client = exporter(folder)?;
    let fd = open_node(folder, "nvidiactl")?;
    let mut count = 0;
    while u32::from(count) < ASKED && export(&client, fd, (count, 1))? {
        count += 1;
    }
    close_all(vec![fd])?;
    client.close();
    Ok(u32::from(count))
}

/// Exports an object as often as the driver or the module allows: how often, and whether a
/// neighbour can export one meanwhile.
fn drained(place: Place) -> Result<(u32, bool), String> {
    /// Control files, which have more places than the driver has handles.
    const FILES: u16 = 9;
    let client = exporter(&place.folder("attacker"))?;
    let mut files = Vec::new();
    let mut count = 0;
    for _ in 0..FILES {
        let fd = open_node(&place.folder("attacker"), "nvidiactl")?;
        files.push(fd);
        // A list of which one has no place fails as a whole, so the last ones come alone.
        let (mut first, mut most) = (0, LIST);
        while most != 0 && first <= u16::MAX - LIST {
            if export(&client, fd, (first, most))? {
                first += most;
                count += u32::from(most);
            } else {
                most /= 2;
            }
        }
    }
    let neighbour = exporter(&place.folder("victim"))?;
    let fd = open_node(&place.folder("victim"), "nvidiactl")?;
    files.push(fd);
    let works = export(&neighbour, fd, (0, 1))?;
    close_all(files)?;
    neighbour.close();
    client.close();
    Ok((count, works))
}

/// On the driver's nodes one program takes all that the driver has for the whole host.
fn handles() -> Result<String, String> {
    /// By default one for each 2 MiB of the limit of 1 GiB, beside those of any instance.
    const MOST: u32 = 1024 + 512;
    if standin::is_in_reach() {
        match alone(|| drained(Place::Driver))? {
            (_, false) => {}
            (count, true) => return Err(format!("some are left after {count}")),
        }
    }
    match in_instances(|| drained(Place::Instance))? {
        (MOST, true) => Ok(format!("{MOST} of 524287, and the neighbour gets its own")),
        (count, works) => Err(format!("{count}, the neighbour: {works}")),
    }
}
