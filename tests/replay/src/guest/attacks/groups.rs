// SPDX-License-Identifier: GPL-2.0
//! Copies of groups of channels, and of those behind descriptors.

use super::{
    attack::Own,
    rest::alone,
    scene::{clean_up, gpus, Place, GPU, LIMIT, OWN},
    stale::client_on,
};
use crate::{
    bytes::put_u32,
    guest::{
        rm,
        tools::{at, control, open_node, second_gpu},
    },
    sys,
};

pub(super) const ATTACKS: &[Own] = &[
    Own {
        name: "channel group taken out on another GPU (OS_UNIX_IMPORT_OBJECT_FROM_FD)",
        function: "kernel_channel_group_api.c:kchangrpapiCopyConstruct_IMPL",
        run: on_another_gpu,
    },
    Own {
        name: "channel group copied to outlive its address space (RM_DUP_OBJECT)",
        function: "kernel_channel_group_api.c:kchangrpapiCopyConstruct_IMPL",
        run: || refused_alone(copy_group),
    },
    Own {
        name: "channel group from a descriptor (OS_UNIX_IMPORT_OBJECT_FROM_FD)",
        function: "rmobjexportimport.c:RmImportObject",
        run: || refused_alone(export_group),
    },
    Own {
        name: "context share copied below another group (RM_DUP_OBJECT)",
        function: "kernel_ctxshare.c:kctxshareapiCopyConstruct_IMPL",
        run: || refused_alone(copy_share),
    },
    Own {
        name: "a context share of the driver's own replaced",
        function: "kernel_channel_group_api.c:kchangrpapiSetLegacyMode_IMPL",
        run: || refused_alone(replace_share),
    },
];

/// A group of the program's own, its device on the other GPU, and what is made of the group.
const GROUP_HERE: u32 = OWN;
const DEVICE_THERE: u32 = OWN + 1;
const COPY: u32 = OWN + 2;
/// A channel in the copy.
const CHANNEL: u32 = OWN + 3;
/// NV2080_ENGINE_TYPE_COPY2.
const COPIES: u32 = 11;
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
    let taken = put.and_then(|()| rm::import_below(&client, DEVICE_THERE, COPY, file));
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
/// objects follow a null pointer; to show that would end the machine.)
fn replace_share(_: &str, client: &rm::Client) -> Result<(), rm::Failure> {
    const OTHER: u32 = OWN + 4;
    for group in [GROUP_HERE, OTHER] {
        client.channel_group(group, COPIES)?;
    }
    let before = taken(client, OTHER)?;
    client.channel(GROUP_HERE, OWN + 5)?;
    let made = taken(client, OTHER)?;
    let made = made.into_iter().find(|share| !before.contains(share));
    let share = made.ok_or(rm::Failure::Status(rm::NOT_FOUND))?;
    // The first one is that of channels that ask for no thread.
    client.free(share)?;
    client.alloc(OTHER, share, CONTEXT_SHARE, &mut [0; 12])?;
    client.channel(GROUP_HERE, CHANNEL)
}

/// Copies a group, and makes a channel in the copy. (If the copy is another client's, the address
/// space can go before it; what the next channel does then would end the machine.)
fn copy_group(_: &str, client: &rm::Client) -> Result<(), rm::Failure> {
    let name = client.handle;
    client.channel_group(GROUP_HERE, COPIES)?;
    rm::dup(
        client.ctl,
        name,
        rm::DEVICE_HANDLE,
        COPY,
        (name, GROUP_HERE),
    )?;
    client.channel(COPY, CHANNEL)
}

/// The same by way of a descriptor.
fn export_group(folder: &str, client: &rm::Client) -> Result<(), rm::Failure> {
    client.channel_group(GROUP_HERE, COPIES)?;
    let file = open_node(folder, "nvidiactl").map_err(|_| rm::Failure::Status(0))?;
    let exported = rm::export(client, GROUP_HERE, file).and_then(|()| {
        rm::import(client, COPY, file)?;
        client.channel(COPY, CHANNEL)
    });
    let _ = sys::close(file);
    exported
}

/// Copies a group's share below another group. (If the first group is freed then, the driver goes
/// on using it when the copy is.)
fn copy_share(_: &str, client: &rm::Client) -> Result<(), rm::Failure> {
    const OTHER: u32 = OWN + 4;
    const SHARE: u32 = OWN + 5;
    for group in [GROUP_HERE, OTHER] {
        client.channel_group(group, COPIES)?;
    }
    client.alloc(GROUP_HERE, SHARE, CONTEXT_SHARE, &mut [0; 12])?;
    let name = client.handle;
    rm::dup(client.ctl, name, OTHER, COPY, (name, SHARE))?;
    // In the order in which nothing is used that is gone.
    client.free(COPY)
}

/// Works on the driver's own nodes, and is refused through an instance.
fn refused_alone(
    attack: impl Fn(&str, &rm::Client) -> Result<(), rm::Failure>,
) -> Result<String, String> {
    let made = |place: Place| {
        let folder = place.folder("attacker");
        let client = client_on(&folder, GPU)?;
        let made = attack(&folder, &client);
        client.close();
        Ok(made)
    };
    let control = control()?;
    let direct = alone(|| made(Place::Driver))?;
    direct.map_err(|how| format!("does not work on the driver: {how}"))?;
    clean_up(&control);
    let created = control.create("attacker", GPU, LIMIT / 2, 1);
    created.map_err(|errno| format!("create: errno {errno}"))?;
    let through = made(Place::Instance);
    clean_up(&control);
    match through? {
        Err(how) => Ok(format!("works directly; refused: {how}")),
        Ok(()) => Err("works through an instance".to_owned()),
    }
}
