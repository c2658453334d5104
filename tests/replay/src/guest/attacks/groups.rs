// SPDX-License-Identifier: GPL-2.0
//! Copies of groups of channels, and of those behind descriptors.

use super::{
    attack::Own,
    rest::alone,
    scene::{clean_up, gpus, Place, GPU, LIMIT, MIB, OWN},
    stale::client_on,
};
use crate::{
    bytes::put_u32,
    guest::{
        instance::Instance,
        process::spawn,
        rm,
        suite::{
            doorbell::{put, wait_for},
            turns::PolicySet,
        },
        tools::{at, control, open_node, second_gpu},
        work::{Account, Work, GROUP},
    },
    standin, sys,
};
use cgpu_uapi::Policy;

pub(super) const ATTACKS: &[Own] = &[
    Own {
        name: "channel group taken out on another GPU (OS_UNIX_IMPORT_OBJECT_FROM_FD)",
        function: "kernel_channel_group_api.c:kchangrpapiCopyConstruct_IMPL",
        run: on_another_gpu,
    },
    Own {
        name: "channel group copied to run beyond its part (RM_DUP_OBJECT)",
        function: "kernel_channel_group_api.c:kchangrpapiCopyConstruct_IMPL",
        run: || beyond_the_part(copied),
    },
    Own {
        name: "channel group from a descriptor beyond its part (OS_UNIX_IMPORT_OBJECT_FROM_FD)",
        function: "rmobjexportimport.c:RmImportObject",
        run: || beyond_the_part(from_descriptor),
    },
    Own {
        name: "a context share of the driver's own replaced",
        function: "kernel_channel_group_api.c:kchangrpapiSetLegacyMode_IMPL",
        run: share_of_the_driver,
    },
];

/// A group of the program's own, its device on the other GPU, and what is made of the group.
const GROUP_HERE: u32 = OWN;
const DEVICE_THERE: u32 = OWN + 1;
const COPY: u32 = OWN + 2;
/// A channel in the copy.
const CHANNEL: u32 = OWN + 3;
/// FERMI_CONTEXT_SHARE_A.
const CONTEXT_SHARE: u32 = 0x9067;
/// The first handles that the driver gives to objects of its own (`RS_UNIQUE_HANDLE_BASE`).
const DRIVERS_HANDLES: std::ops::Range<u32> = 0xcaf0_0000..0xcaf0_0010;

/// Makes a group for compute.
fn group(client: &rm::Client) -> Result<(), String> {
    at("group", client.channel_group(GROUP_HERE, rm::COMPUTE))
}

/// Takes a group out of a descriptor below a device of another GPU.
fn import_there(place: Place, other: u32) -> Result<Result<u32, rm::Failure>, String> {
    let folder = place.folder("attacker");
    let known = gpus()?;
    let client = rm::Client::open(&folder, GPU, known.instance);
    let client = client.map_err(|e| format!("client: {e}"))?;
    let there = open_node(&folder, &format!("nvidia{other}"))?;
    let mut device = [0; 56];
    put_u32(&mut device, 0, known.other.1);
    let made = client.alloc(client.handle, DEVICE_THERE, rm::DEVICE, &mut device);
    made.map_err(|e| format!("the other GPU's device: {e}"))?;
    group(&client)?;
    let file = open_node(&folder, "nvidiactl")?;
    let put = rm::export(&client, GROUP_HERE, file);
    put.map_err(|e| format!("the group's export: {e}"))?;
    let taken = rm::import_below(&client, DEVICE_THERE, COPY, file);
    // The copy first: the last one to go is the one on the group's own GPU.
    if taken.is_ok() {
        client.free(COPY).map_err(|e| format!("RM_FREE: {e}"))?;
    }
    client.close();
    for fd in [file, there] {
        sys::close(fd).map_err(|errno| format!("close: errno {errno}"))?;
    }
    Ok(taken)
}

fn on_another_gpu() -> Result<String, String> {
    let control = control()?;
    let other = second_gpu(&control)?.ok_or("there is no second GPU")?;
    let direct = alone(|| import_there(Place::Driver, other))?;
    direct.map_err(|e| format!("does not work on the driver: {e}"))?;
    clean_up(&control);
    for gpu in [GPU, other] {
        let made = control.create("attacker", gpu, LIMIT / 2, 1);
        made.map_err(|errno| format!("create: errno {errno}"))?;
    }
    let through = import_there(Place::Instance, other);
    clean_up(&control);
    match through? {
        Err(how) => Ok(format!("works directly; refused: {how}")),
        Ok(_) => Err("a group is on a GPU that is not its own".to_owned()),
    }
}

/// The handles of the driver's range behind which a client has an object: a context share of this
/// group cannot be made there. Or why one cannot be made for another reason.
fn taken(client: &rm::Client, group: u32) -> Result<Vec<u32>, rm::Failure> {
    let mut taken = Vec::new();
    for handle in DRIVERS_HANDLES {
        match client.alloc(group, handle, CONTEXT_SHARE, &mut [0; 12]) {
            Ok(_) => client.free(handle)?,
            Err(failure) if failure.status() == Some(rm::DUPLICATE_NAME) => taken.push(handle),
            Err(failure) => return Err(failure),
        }
    }
    Ok(taken)
}

/// A channel that names no context share gets one of the driver's own, in the program's client and
/// below the channel's group. The program frees it, and a share of another group takes its handle,
/// by which the driver goes on finding it. (If that group is of another GPU, the next channel's
/// objects follow a null pointer; to show that would end the machine.) How many were replaced.
fn replace_share(client: &rm::Client) -> Result<usize, rm::Failure> {
    const OTHER: u32 = OWN + 4;
    for group in [GROUP_HERE, OTHER] {
        client.channel_group(group, rm::COMPUTE)?;
    }
    let before = taken(client, OTHER)?;
    client.channel(GROUP_HERE, OWN + 5)?;
    let mut made = taken(client, OTHER)?;
    made.retain(|share| !before.contains(share));
    for share in &made {
        client.free(*share)?;
        client.alloc(OTHER, *share, CONTEXT_SHARE, &mut [0; 12])?;
    }
    client.channel(GROUP_HERE, CHANNEL)?;
    Ok(made.len())
}

fn share_of_the_driver() -> Result<String, String> {
    let replaced = |place: Place| {
        let client = client_on(&place.folder("attacker"), GPU)?;
        let replaced = replace_share(&client);
        client.close();
        Ok(replaced)
    };
    let control = control()?;
    let direct = alone(|| replaced(Place::Driver))?;
    match direct {
        Ok(0) => return Err("the driver has made no share".to_owned()),
        Ok(_) => clean_up(&control),
        Err(how) => return Err(format!("does not work on the driver: {how}")),
    }
    let made = control.create("attacker", GPU, LIMIT / 2, 1);
    made.map_err(|errno| format!("create: errno {errno}"))?;
    let through = replaced(Place::Instance);
    clean_up(&control);
    match through? {
        Err(how) => Ok(format!("works directly; refused: {how}")),
        Ok(_) => Err("a channel has another group's share".to_owned()),
    }
}

/// Makes a copy of a group, on the nodes of a folder.
type Copy = fn(&str, &rm::Client, u32) -> Result<(), String>;

fn copied(_: &str, client: &rm::Client, group: u32) -> Result<(), String> {
    let name = client.handle;
    let copied = rm::dup(client.ctl, name, rm::DEVICE_HANDLE, COPY, (name, group));
    copied.map(drop).map_err(|e| format!("RM_DUP_OBJECT: {e}"))
}

fn from_descriptor(folder: &str, client: &rm::Client, group: u32) -> Result<(), String> {
    let file = open_node(folder, "nvidiactl")?;
    at("the group's export", rm::export(client, group, file))?;
    at("the group's import", rm::import(client, COPY, file))?;
    sys::close(file).map_err(|errno| format!("close: errno {errno}"))
}

/// Copies a group and makes a channel in the copy.
fn channel_in_copy(
    copy: Copy,
    folder: &str,
    client: &rm::Client,
    group: u32,
) -> Result<(), String> {
    copy(folder, client, group)?;
    at("channel in the copy", client.channel(COPY, CHANNEL))
}

/// Directly: the GPU has the channel, and nobody switches it off.
fn runs_directly(copy: Copy) -> Result<(), String> {
    let folder = Place::Driver.folder("attacker");
    let client = rm::Client::open(&folder, GPU, gpus()?.instance);
    let client = client.map_err(|e| format!("client: {e}"))?;
    group(&client)?;
    channel_in_copy(copy, &folder, &client, GROUP_HERE)?;
    let account = Account::of(client.handle)?;
    client.close();
    match (account.channels, account.off) {
        (1, 0) => Ok(()),
        _ => Err(format!("does not work on the driver: {account:?}")),
    }
}

/// Under a cap, a program that always has work is switched off with all of its channels.
fn switched_off(copy: Copy) -> Result<(), String> {
    let instance = Instance::new("attacker", 256 * MIB)?;
    put("attacker/weight", "30")?;
    let work = Work::new(&instance)?;
    let folder = Place::Instance.folder("attacker");
    channel_in_copy(copy, &folder, &work.client, GROUP)?;
    let policy = PolicySet::set(Policy::Fixed)?;
    let child = spawn(|| {
        while work.launch(1_000_000, 1, 4).is_ok() {}
        1
    });
    let child = child.map_err(|errno| format!("fork: errno {errno}"))?;
    let seen = wait_for("both channels are off", || {
        let account = work.account()?;
        Ok((account.channels, account.off) == (2, 2))
    });
    drop(policy);
    sys::kill(child, libc::SIGKILL).map_err(|errno| format!("kill: errno {errno}"))?;
    sys::wait(child).map_err(|errno| format!("wait: errno {errno}"))?;
    work.close()?;
    seen
}

fn beyond_the_part(copy: Copy) -> Result<String, String> {
    standin::needed("what runs on the GPU is seen from below alone")?;
    runs_directly(copy)?;
    switched_off(copy)?;
    Ok("switched off with the others".to_owned())
}
