// SPDX-License-Identifier: GPL-2.0
//! Memory behind descriptors: shared in a tenant, charged once, and until the last reference is
//! gone.

use std::{
    os::{
        fd::{AsRawFd, OwnedFd},
        unix::net::UnixStream,
    },
    sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst},
};

use crate::{
    bytes::put_u32,
    guest::{
        instance::Instance,
        process::{in_child, receive_fd, send_fd, spawn},
        rm::{self, Failure},
        tools::{at, equal, holds, open_node, sys, tests, Verdict, GIB, GPU, MIB},
    },
    standin, sys as os,
};

tests! {
    "exports: memory passed over a socket is charged once" => between_processes;
    "exports: charged until object, copy and file are gone" => any_order;
    "exports: a descriptor in a socket keeps memory charged" => in_a_socket;
    "exports: a killed exporter's memory stays" => killed;
    "exports: another tenant's descriptor is none" => other_tenant;
    "exports: a list of objects" => list;
    "exports: a descriptor replaced during import is counted right" => changing_number;
}

const MEMORY: u32 = 0x5C00_0010;
const COPY: u32 = 0x5C00_0020;
/// The driver's answer to a descriptor that is no file of its own.
const INVALID_PARAMETER: Failure = Failure::Status(0x3B);

/// A new control file of an instance.
fn control_file(instance: &Instance) -> Result<i32, String> {
    open_node(&instance.folder(), "nvidiactl")
}

/// The figures of the accounting and of the driver's heap.
fn used(instance: &Instance) -> Result<(u64, u64), String> {
    Ok((instance.used()?, standin::heap(GPU)?.used))
}

fn pair() -> Result<(UnixStream, UnixStream), String> {
    UnixStream::pair().map_err(|e| e.to_string())
}

/// A client with memory behind a descriptor; the descriptor.
fn exported(instance: &Instance, bytes: u64) -> Result<(rm::Client, i32), String> {
    let client = instance.client()?;
    at("memory", client.memory(MEMORY, bytes))?;
    let fd = control_file(instance)?;
    at("export", rm::export(&client, MEMORY, fd))?;
    Ok((client, fd))
}

fn between_processes() -> Verdict {
    let instance = Instance::new("vmm", GIB)?;
    let (client, fd) = exported(&instance, 512 * MIB)?;
    let (ours, theirs) = pair()?;
    sys("send", send_fd(&ours, fd))?;
    in_child(|| {
        let fd: OwnedFd = sys("receive", receive_fd(&theirs))?;
        let client = instance.client()?;
        let copy = at("import", rm::import(&client, 0, fd.as_raw_fd()))?;
        holds("no handle", copy != 0)?;
        equal("charged", &instance.used()?, &(512 * MIB))?;
        // Three quarters of what is left would not fit twice.
        at("more", client.memory(COPY, 512 * MIB))?;
        holds(
            "beyond the limit",
            client.memory(COPY + 1, 2 * MIB).is_err(),
        )
    })?;
    equal("after", &used(&instance)?, &(512 * MIB, 512 * MIB))?;
    sys("close", os::close(fd))?;
    client.close();
    drop((ours, theirs));
    equal("at the end", &used(&instance)?, &(0, 0))
}

fn any_order() -> Verdict {
    let instance = Instance::new("orders", GIB)?;
    for order in [
        [0, 1, 2],
        [0, 2, 1],
        [1, 0, 2],
        [1, 2, 0],
        [2, 0, 1],
        [2, 1, 0],
    ] {
        let (client, fd) = exported(&instance, 4 * MIB)?;
        at("import", rm::import(&client, COPY, fd))?;
        for what in order {
            equal("held", &used(&instance)?, &(4 * MIB, 4 * MIB))?;
            match what {
                0 => at("free", client.free(MEMORY))?,
                1 => at("free", client.free(COPY))?,
                _ => sys("close", os::close(fd))?,
            }
        }
        equal("at the end", &used(&instance)?, &(0, 0))?;
        client.close();
    }
    Ok(())
}

fn in_a_socket() -> Verdict {
    let instance = Instance::new("socket", GIB)?;
    let (client, fd) = exported(&instance, 4 * MIB)?;
    let (ours, theirs) = pair()?;
    sys("send", send_fd(&ours, fd))?;
    sys("close", os::close(fd))?;
    client.close();
    equal("nobody has it open", &used(&instance)?, &(4 * MIB, 4 * MIB))?;
    drop((ours, theirs));
    equal("the socket is gone", &used(&instance)?, &(0, 0))
}

fn killed() -> Verdict {
    let instance = Instance::new("killed", GIB)?;
    let (ours, theirs) = pair()?;
    let child = spawn(|| {
        let done =
            exported(&instance, 4 * MIB).and_then(|(_, fd)| sys("send", send_fd(&theirs, fd)));
        match done {
            Ok(()) => loop {
                std::thread::park();
            },
            Err(_) => 1,
        }
    });
    let child = sys("fork", child)?;
    let fd = sys("receive", receive_fd(&ours))?;
    sys("kill", os::kill(child, libc::SIGKILL))?;
    sys("wait", os::wait(child))?;
    equal("after the kill", &used(&instance)?, &(4 * MIB, 4 * MIB))?;
    let client = instance.client()?;
    at("import", rm::import(&client, COPY, fd.as_raw_fd()))?;
    drop(fd);
    equal("the copy has it", &used(&instance)?, &(4 * MIB, 4 * MIB))?;
    client.close();
    equal("at the end", &used(&instance)?, &(0, 0))
}

fn other_tenant() -> Verdict {
    let (one, two) = (Instance::new("giver", GIB)?, Instance::new("taker", GIB)?);
    let (client, fd) = exported(&one, 4 * MIB)?;
    let other = two.client()?;
    let refused = Err(INVALID_PARAMETER);
    equal("import", &rm::import(&other, COPY, fd), &refused)?;
    at("memory", other.memory(MEMORY, 2 * MIB))?;
    let empty = control_file(&one)?;
    let put = rm::export(&other, MEMORY, empty);
    equal("export", &put, &Err(INVALID_PARAMETER))?;
    equal("no file", &rm::import(&other, COPY, 999), &refused)?;
    equal("theirs", &two.used()?, &(2 * MIB))?;
    sys("close", os::close(empty))?;
    sys("close", os::close(fd))?;
    other.close();
    client.close();
    equal("at the end", &(one.used()?, used(&two)?), &(0, (0, 0)))
}

fn list() -> Verdict {
    let instance = Instance::new("list", GIB)?;
    let client = instance.client()?;
    at("memory", client.memory(MEMORY, 2 * MIB))?;
    at("memory", client.memory(MEMORY + 1, 4 * MIB))?;
    let fd = control_file(&instance)?;
    // OS_UNIX_EXPORT_OBJECTS_TO_FD: places 1 to 3 of 8, the middle one empty.
    let mut params = [0; 2128];
    params[..4].copy_from_slice(&fd.to_le_bytes());
    put_u32(&mut params, 4, rm::DEVICE_HANDLE);
    params[8] = 8;
    put_u32(&mut params, 76, MEMORY);
    put_u32(&mut params, 84, MEMORY + 1);
    params[2124] = 3;
    params[2126] = 1;
    let ctl = (client.ctl, client.handle);
    at(
        "export",
        rm::control(ctl.0, ctl.1, ctl.1, 0x3D0B, &mut params),
    )?;
    at("free", client.free(MEMORY))?;
    at("free", client.free(MEMORY + 1))?;
    equal("held", &used(&instance)?, &(6 * MIB, 6 * MIB))?;
    // OS_UNIX_GET_EXPORT_OBJECT_INFO.
    let mut info = [0; 80];
    info[..4].copy_from_slice(&fd.to_le_bytes());
    at("info", rm::control(ctl.0, ctl.1, ctl.1, 0x3D08, &mut info))?;
    equal("places", &info[12], &8)?;
    // OS_UNIX_IMPORT_OBJECTS_FROM_FD: all of the 8.
    let mut params = [0; 652];
    params[..4].copy_from_slice(&fd.to_le_bytes());
    put_u32(&mut params, 4, rm::DEVICE_HANDLE);
    for place in 0..8 {
        put_u32(&mut params, 8 + 4 * place, COPY + place as u32);
    }
    params[648] = 8;
    at(
        "import",
        rm::control(ctl.0, ctl.1, ctl.1, 0x3D0C, &mut params),
    )?;
    equal("kinds", &&params[520..528], &&[0, 1, 0, 1, 0, 0, 0, 0][..])?;
    sys("close", os::close(fd))?;
    equal("the copies hold", &used(&instance)?, &(6 * MIB, 6 * MIB))?;
    at("free", client.free(COPY + 3))?;
    equal("one copy holds", &used(&instance)?, &(2 * MIB, 2 * MIB))?;
    client.close();
    equal("at the end", &used(&instance)?, &(0, 0))
}

/// A thread gives the descriptor's number to files with little and with much memory in turns, while
/// imports from it run. Whatever comes out, the accounting must have the size of it: after the
/// objects and files are gone, one copy is left, and the driver's heap says how large it is.
fn changing_number() -> Verdict {
    const NUMBER: i32 = 400;
    /// So many rounds at least, and more as long as one of the files was not seen.
    const ROUNDS: u32 = 40;
    let instance = Instance::new("number", GIB)?;
    let flips = AtomicU32::new(0);
    let over = AtomicBool::new(false);
    let mut sizes = [0; 2];
    for round in 0..5 * ROUNDS {
        if round >= ROUNDS && sizes.iter().all(|seen: &u32| *seen > 0) {
            break;
        }
        let client = instance.client()?;
        let mut files = [0; 2];
        for (n, bytes) in [(0, 2 * MIB), (1, 256 * MIB)] {
            at("memory", client.memory(MEMORY + n, bytes))?;
            let fd = control_file(&instance)?;
            at("export", rm::export(&client, MEMORY + n, fd))?;
            at("free", client.free(MEMORY + n))?;
            files[n as usize] = fd;
        }
        sys("dup2", os::dup2(files[0], NUMBER))?;
        over.store(false, SeqCst);
        let imported = std::thread::scope(|scope| {
            scope.spawn(|| {
                while !over.load(SeqCst) {
                    for fd in files {
                        let _ = os::dup2(fd, NUMBER);
                        flips.fetch_add(1, SeqCst);
                    }
                }
            });
            let before = flips.load(SeqCst);
            while flips.load(SeqCst) == before {
                std::hint::spin_loop();
            }
            let imported = rm::import(&client, COPY, NUMBER);
            over.store(true, SeqCst);
            imported
        });
        at("import", imported)?;
        for fd in [files[0], files[1], NUMBER] {
            sys("close", os::close(fd))?;
        }
        let (accounting, heap) = used(&instance)?;
        equal("the copy", &accounting, &heap)?;
        match accounting {
            0 => return Err("the copy is nothing".to_owned()),
            bytes => sizes[usize::from(bytes > 2 * MIB)] += 1,
        }
        client.close();
        equal("at the end", &used(&instance)?, &(0, 0))?;
    }
    println!(
        "        {} flips; {sizes:?} came from the small and the large one",
        flips.load(SeqCst)
    );
    Ok(())
}
