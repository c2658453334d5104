// SPDX-License-Identifier: GPL-2.0
//! The driver's lists of all GPUs and processes: a tenant sees its own.

use std::{
    fs::{File, OpenOptions},
    io::{Read, Write},
    os::{
        fd::AsRawFd,
        unix::{fs::FileExt, net::UnixStream},
    },
    sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
};

use super::clients::scratch;
use crate::{
    bytes::{put_u32, u32_at, u64_at},
    facts,
    guest::{
        instance::Instance,
        process::{in_child, spawn, unshare},
        rm,
        tools::{at, control, equal, fails, holds, sys, tests, Verdict, GIB, GPU, MIB},
    },
    sys as os,
};

const NV_ESC_CARD_INFO_ONE: u32 = 0xC048_46C8;
const NV_ESC_ATTACH_GPUS_TO_FD_ONE: u32 = 0xC004_46D4;
const GET_ATTACHED_IDS: u32 = 0x0201;
const GET_ID_INFO_V2: u32 = 0x0205;
const GET_PROBED_IDS: u32 = 0x0214;
const GET_PIDS: u32 = 0x2080_018D;
const GET_PID_INFO: u32 = 0x2080_018E;
const MEMORY: u32 = 0x5C00_0010;

tests! {
    "lists: GPUs of others are not there" => gpus;
    "lists: processes of others are not there" => processes;
    "lists: processes have the numbers of the caller's namespace" => namespace;
    "lists: reports about others cannot be read in transit" => unseen;
    "lists: records of others' GPUs cannot be read" => cards_unseen;
}

fn gpus() -> Verdict {
    let all = sys("list of GPUs", control()?.gpus())?;
    let own = all.iter().find(|gpu| gpu.minor == GPU).ok_or("no GPU")?;
    let other = all.iter().find(|gpu| gpu.minor != GPU);
    let other = other.ok_or("there is no second GPU")?;
    let one = Instance::new("lists", GIB)?;
    let client = one.client()?;
    let ask = |cmd, params: &mut [u8]| client.control(client.handle, cmd, params);

    let mut ids = [0; 128];
    at("attached", ask(GET_ATTACHED_IDS, &mut ids))?;
    equal("first", &u32_at(&ids, 0), &own.gpu_id)?;
    equal("second", &u32_at(&ids, 4), &u32::MAX)?;
    let mut info = [0; 32];
    put_u32(&mut info, 0, own.gpu_id);
    at("own GPU", ask(GET_ID_INFO_V2, &mut info))?;
    equal("instance", &u32_at(&info, 8), &own.device_instance)?;
    put_u32(&mut info, 0, other.gpu_id);
    let told = ask(GET_ID_INFO_V2, &mut info);
    equal("the other's", &told, &Err(rm::Failure::Status(0x1F)))?;
    equal("the id", &u32_at(&info, 0), &other.gpu_id)?;

    // There is room for one card, and one is the tenant's: the driver alone refuses, for there are
    // two.
    let mut card = [0; 72];
    sys(
        "cards",
        os::ioctl(client.ctl, NV_ESC_CARD_INFO_ONE, &mut card),
    )?;
    equal("card", &u32_at(&card, 16), &own.gpu_id)?;
    let mut id = other.gpu_id.to_le_bytes();
    let opened = os::ioctl(client.ctl, NV_ESC_ATTACH_GPUS_TO_FD_ONE, &mut id);
    fails("the other is opened", opened, libc::EINVAL)?;
    client.close();
    Ok(())
}

/// The processes with a subdevice, as a client sees them.
fn listed(client: &rm::Client) -> Result<Vec<u32>, String> {
    let mut params = vec![0; 3812];
    put_u32(&mut params, 4, rm::SUBDEVICE);
    let control = client.control(rm::SUBDEVICE_HANDLE, GET_PIDS, &mut params);
    at("GET_PIDS", control)?;
    let count = u32_at(&params, 8);
    Ok((0..count as usize)
        .map(|i| u32_at(&params, 12 + 4 * i))
        .collect())
}

/// The memory of two processes, as a client sees it.
fn held(client: &rm::Client, pids: [u32; 2]) -> Result<[u64; 2], String> {
    let mut params = vec![0; 14408];
    put_u32(&mut params, 0, 2);
    put_u32(&mut params, 8, pids[0]);
    put_u32(&mut params, 80, pids[1]);
    let control = client.control(rm::SUBDEVICE_HANDLE, GET_PID_INFO, &mut params);
    at("GET_PID_INFO", control)?;
    equal("first", &u32_at(&params, 8), &pids[0])?;
    equal("second", &u32_at(&params, 80), &pids[1])?;
    Ok([u64_at(&params, 24), u64_at(&params, 96)])
}

fn processes() -> Verdict {
    let one = Instance::new("one", GIB)?;
    let two = Instance::new("two", GIB)?;
    let (mut ours, mut theirs) = UnixStream::pair().map_err(|e| e.to_string())?;
    let child = spawn(|| {
        let ready = two.client().and_then(|client| {
            at("memory", client.memory(MEMORY, 6 * MIB))?;
            at("told", theirs.write_all(&[1]))?;
            // Until the other end is closed, or says so.
            let _ = theirs.read(&mut [0]);
            client.close();
            Ok(())
        });
        i32::from(ready.is_err())
    });
    let child = sys("spawn", child)?;
    at("the other tenant", ours.read_exact(&mut [0]))?;
    let client = one.client()?;
    at("memory", client.memory(MEMORY, 2 * MIB))?;
    let own = std::process::id();
    let other = child.unsigned_abs();
    let seen = listed(&client).and_then(|pids| Ok((pids, held(&client, [own, other])?)));
    client.close();
    let _ = ours.write_all(&[1]);
    equal("the other's end", &sys("wait", os::wait(child))?, &0)?;
    equal("listed", &seen?, &(vec![own], [2 * MIB, 0]))
}

fn namespace() -> Verdict {
    let one = Instance::new("spaces", GIB)?;
    sys("unshare", unshare(libc::CLONE_NEWPID))?;
    in_child(|| {
        equal("number", &std::process::id(), &1)?;
        let client = one.client()?;
        at("memory", client.memory(MEMORY, 2 * MIB))?;
        equal("listed", &listed(&client)?, &vec![1])?;
        equal("held", &held(&client, [1, 2])?, &[2 * MIB, 0])?;
        client.close();
        Ok(())
    })?;
    holds("memory is left", one.used()? == 0)
}

/// How often a list is asked for, at least, while another thread looks for what is kept from the
/// program.
const LOOKS: u32 = 4000;
/// How often at most, until the thread has seen what goes through the scratch.
const MOST_LOOKS: u32 = 200 * LOOKS;

/// Offset on a call's page of its command, if it has one (`NVOS54_PARAMETERS.cmd`). Half copied,
/// 0x205 is 0x200, which is a GPU's id, too. The module puts no id there.
const COMMAND: usize = 8;

/// Bytes of the scratch that one thread's calls go through (`SLOT_PAGES`, os_interface/scratch.rs).
const SLOT: u64 = 49 * 4096;

/// Finds of a thread in the module's scratch.
#[derive(Debug, Default)]
struct InScratch {
    /// Pages with the id of the program's own GPU, which its calls send through the scratch.
    own: AtomicU64,
    /// Pages with the other GPU's id.
    other: AtomicU64,
}

impl InScratch {
    /// Reads a slot from `start` on, again and again, until it is told to stop.
    fn look(&self, stop: &AtomicBool, file: &File, start: u64, [own, other]: [u32; 2]) {
        let mut page = [0; 4096];
        while !stop.load(Relaxed) {
            for address in (start..start + SLOT).step_by(page.len()) {
                // Not by load: if there is nothing to read, that is a signal, and this an error.
                let copied = os::pwrite_from(file.as_raw_fd(), address, page.len());
                if copied != Ok(page.len()) || file.read_exact_at(&mut page, 0).is_err() {
                    continue;
                }
                put_u32(&mut page, COMMAND, 0);
                for (id, count) in [(own, &self.own), (other, &self.other)] {
                    let has = page.chunks_exact(4).any(|word| word == id.to_le_bytes());
                    count.fetch_add(u64::from(has), Relaxed);
                }
            }
        }
    }
}

/// While a program asks for a list, another thread of it sees nothing of another tenant's GPU. The
/// program also asks about its own GPU, until the thread has seen that: so it can see.
fn hidden(ask: fn(&rm::Client) -> Verdict) -> Verdict {
    let all = sys("list of GPUs", control()?.gpus())?;
    let own = all.iter().find(|gpu| gpu.minor == GPU).ok_or("no GPU")?;
    let other = all.iter().find(|gpu| gpu.minor != GPU);
    let other = other.ok_or("there is no second GPU")?.gpu_id;
    let one = Instance::new("onlooker", GIB)?;
    let client = one.client()?;
    let path = "/tmp/scratch-page";
    let options = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(true)
        .open(path);
    let file = at(path, options)?;
    let (start, _) = scratch()?;
    let (stop, seen) = (AtomicBool::new(false), InScratch::default());
    let asked = std::thread::scope(|scope| {
        scope.spawn(|| seen.look(&stop, &file, start, [own.gpu_id, other]));
        let mut asked = 0;
        let mut made = Ok(());
        while made.is_ok() && (asked < LOOKS || asked < MOST_LOOKS && seen.own.load(Relaxed) == 0) {
            let mut info = [0; 32];
            put_u32(&mut info, 0, own.gpu_id);
            let (fd, own) = (client.ctl, client.handle);
            made = ask(&client).and_then(|()| {
                let told = rm::control(fd, own, own, GET_ID_INFO_V2, &mut info);
                at("own GPU", told)
            });
            asked += 1;
        }
        stop.store(true, Relaxed);
        made.map(|()| asked)
    });
    client.close();
    println!("        asked {} times: {seen:?}", asked?);
    holds("its own was not seen", seen.own.into_inner() > 0)?;
    equal("the other GPU", &seen.other.into_inner(), &0)
}

fn probed(client: &rm::Client) -> Verdict {
    let mut ids = vec![0; facts::control_size(GET_PROBED_IDS).unwrap_or(0)];
    let (fd, own) = (client.ctl, client.handle);
    at(
        "probed",
        rm::control(fd, own, own, GET_PROBED_IDS, &mut ids),
    )
}

fn unseen() -> Verdict {
    hidden(probed)
}

fn cards(client: &rm::Client) -> Verdict {
    let mut card = [0; 72];
    sys(
        "cards",
        os::ioctl(client.ctl, NV_ESC_CARD_INFO_ONE, &mut card),
    )?;
    Ok(())
}

fn cards_unseen() -> Verdict {
    hidden(cards)
}
