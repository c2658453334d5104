// SPDX-License-Identifier: GPL-2.0
//! The driver's lists of all GPUs and processes: a tenant sees its own.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

use super::{at, control, equal, fails, holds, sys, Instance, Outcome, Test, GIB, GPU, MIB};
use crate::bytes::{put_u32, u32_at, u64_at};
use crate::guest::process::{in_child, spawn, unshare};
use crate::guest::rm;
use crate::sys as os;

const NV_ESC_CARD_INFO_ONE: u32 = 0xC048_46C8;
const NV_ESC_ATTACH_GPUS_TO_FD_ONE: u32 = 0xC004_46D4;
const GET_ATTACHED_IDS: u32 = 0x0201;
const GET_ID_INFO_V2: u32 = 0x0205;
const GET_PIDS: u32 = 0x2080_018D;
const GET_PID_INFO: u32 = 0x2080_018E;
const MEMORY: u32 = 0x5C00_0010;

pub(super) const TESTS: &[Test] = &[
    ("lists: GPUs of others are not there", gpus),
    ("lists: processes of others are not there", processes),
    (
        "lists: processes have the numbers of the caller's namespace",
        namespace,
    ),
];

fn gpus() -> Outcome {
    let all = sys("list of GPUs", control()?.gpus())?;
    let own = all.iter().find(|gpu| gpu.minor == GPU).ok_or("no GPU")?;
    let other = all.iter().find(|gpu| gpu.minor != GPU);
    let other = other.ok_or("there is no second GPU")?;
    let one = Instance::new("lists", GIB)?;
    let client = one.client()?;
    let ask =
        |cmd, params: &mut [u8]| rm::control(client.ctl, client.handle, client.handle, cmd, params);

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

    // There is room for one card, and one is the tenant's: the driver alone refuses, for there are two.
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

/// The processes with a device object, as a client sees them.
fn listed(client: &rm::Client) -> Result<Vec<u32>, String> {
    let mut params = vec![0; 3812];
    put_u32(&mut params, 4, rm::DEVICE);
    let control = rm::control(
        client.ctl,
        client.handle,
        rm::SUBDEVICE_HANDLE,
        GET_PIDS,
        &mut params,
    );
    at("GET_PIDS", control)?;
    let count = u32_at(&params, 8);
    Ok((0..count as usize)
        .map(|i| u32_at(&params, 12 + 4 * i))
        .collect())
}

/// What two processes hold, as a client sees it.
fn held(client: &rm::Client, pids: [u32; 2]) -> Result<[u64; 2], String> {
    let mut params = vec![0; 14408];
    put_u32(&mut params, 0, 2);
    put_u32(&mut params, 8, pids[0]);
    put_u32(&mut params, 80, pids[1]);
    let control = rm::control(
        client.ctl,
        client.handle,
        rm::SUBDEVICE_HANDLE,
        GET_PID_INFO,
        &mut params,
    );
    at("GET_PID_INFO", control)?;
    equal("first", &u32_at(&params, 8), &pids[0])?;
    equal("second", &u32_at(&params, 80), &pids[1])?;
    Ok([u64_at(&params, 24), u64_at(&params, 96)])
}

fn processes() -> Outcome {
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

fn namespace() -> Outcome {
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
