// SPDX-License-Identifier: GPL-2.0
//! Objects of one GPU that a tenant of two names in calls for the other one.
//!
//! The driver takes the memory's place on its own GPU for a place on the other one, where it is
//! whoever's. Each attack works on the driver's own nodes.

use super::{
    attack::Own,
    rest::alone,
    scene::{clean_up, gpus, Place, GPU, LIMIT, MIB},
    stale::{client_on, give_up, mapped, secrets, Program, SECRET},
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
        name: "another GPU: memory mapped through its BAR1",
        function: "mapping_cpu.c:memMap_IMPL",
        run: || reach_neighbour(|both| through_bar1(both, false)),
    },
    Own {
        name: "another GPU: a copy of memory mapped through its BAR1 (RM_DUP_OBJECT)",
        function: "mem.c:memCopyConstruct_IMPL",
        run: || reach_neighbour(|both| through_bar1(both, true)),
    },
];

/// The program's device on the other GPU.
const DEVICE_THERE: u32 = 0x5c00_0090;
/// Its memory on the first one. The driver gives memory of both GPUs in the same order.
const FIRST: u32 = 0x5c00_0100;
const PIECES: u32 = 64;
const PIECE: u64 = 2 * MIB;

/// A program with devices of both GPUs in one client.
struct Both {
    folder: String,
    client: rm::Client,
    other: u32,
    node: i32,
}

impl Both {
    fn new(place: Place, other: u32) -> Result<Self, String> {
        let folder = place.folder("attacker");
        let client = client_on(&folder, GPU)?;
        let node = open_node(&folder, &format!("nvidia{other}"))?;
        let mut device = [0; 56];
        put_u32(&mut device, 0, gpus()?.other.1);
        let made = client.alloc(client.handle, DEVICE_THERE, rm::DEVICE, &mut device);
        at("the other GPU's device", made)?;
        Ok(Self {
            folder,
            client,
            other,
            node,
        })
    }

    fn close(self) {
        self.client.close();
        let _ = sys::close(self.node);
    }
}

/// How many pieces of the program's memory show a neighbour's of the other GPU; why there are none.
type Reached = Result<usize, String>;

fn through_bar1(both: &Both, copied: bool) -> Result<Reached, String> {
    let mut pieces = Vec::new();
    let mut refused = String::new();
    for handle in FIRST..FIRST + PIECES {
        at("memory", both.client.memory(handle, PIECE))?;
        let memory = if copied { handle + PIECES } else { handle };
        if copied {
            let (ctl, name) = (both.client.ctl, both.client.handle);
            if let Err(how) = rm::dup(ctl, name, DEVICE_THERE, memory, (name, handle)) {
                refused = format!("RM_DUP_OBJECT: {how}");
                continue;
            }
        }
        let names = (DEVICE_THERE, memory);
        match mapped(&both.folder, &both.client, names, both.other) {
            Ok(piece) => pieces.push(piece),
            Err(how) => refused = how,
        }
    }
    let seen = secrets(&pieces, false);
    give_up(&pieces);
    Ok(if pieces.is_empty() {
        Err(refused)
    } else {
        Ok(seen)
    })
}

fn tried(
    place: Place,
    other: u32,
    attack: fn(&Both) -> Result<Reached, String>,
) -> Result<Reached, String> {
    let victim = Program::on(place, "victim", other, SECRET)?;
    let both = Both::new(place, other)?;
    let seen = attack(&both);
    both.close();
    victim.close();
    seen
}

fn reach_neighbour(attack: fn(&Both) -> Result<Reached, String>) -> Result<String, String> {
    let control = control()?;
    let other = second_gpu(&control)?.ok_or("there is no second GPU")?;
    let direct = alone(|| tried(Place::Driver, other, attack))?;
    let direct = match direct {
        Ok(seen) if seen > 0 => seen,
        other => return Err(format!("does not work on the driver: {other:?}")),
    };
    clean_up(&control);
    for (name, gpu) in [("victim", other), ("attacker", GPU), ("attacker", other)] {
        let made = control.create(name, gpu, LIMIT / 2, 1);
        made.map_err(|errno| format!("create: errno {errno}"))?;
    }
    let through = tried(Place::Instance, other, attack);
    clean_up(&control);
    match through? {
        Err(how) => Ok(format!("{direct} read on the driver; refused: {how}")),
        Ok(seen) => Err(format!("{seen} of a neighbour's pieces are read")),
    }
}
