// SPDX-License-Identifier: GPL-2.0
//! Things of which the driver and the GPU's firmware have one store for everybody.

use super::{
    attack::attacks,
    scene::{told, Attacker, OWN},
};
use crate::{
    bytes::{put_u32, put_u64},
    guest::{rm, tools::Verdict},
    layout,
};

attacks! {
    "clients without end": "rs_server.c:_serverCreateEntryAndLockForNewClient",
        Passes, Told, clients;
    "objects without end": "rs_client.c:clientAllocResource_IMPL", Passes, Told, objects;
    "events without end": "event.c:eventConstruct_IMPL", Passes, Told, events;
}

/// More than an instance of 16 may have of each.
const CLIENTS: u32 = 1000;
const OBJECTS: u32 = 20_000;
const EVENTS: u32 = 5000;
/// The descriptor's number in the key of the events.
const KEY: u32 = 5;

/// Makes things until so many are there.
fn many(most: u32, what: &str, mut make: impl FnMut(u32) -> Verdict) -> Verdict {
    for count in 0..most {
        make(count).map_err(|end| format!("{end} after {count} {what}"))?;
    }
    Ok(())
}

fn clients(attacker: &Attacker) -> Verdict {
    many(CLIENTS, "clients", |_| {
        told(rm::alloc(attacker.client.ctl, 0, 0, 0, rm::ROOT, &mut []))
    })
}

fn objects(attacker: &Attacker) -> Verdict {
    many(OBJECTS, "objects", |count| {
        attacker.alloc(rm::DEVICE_HANDLE, OWN + count, rm::SUBDEVICE, &mut [0; 4])
    })
}

fn events(attacker: &Attacker) -> Verdict {
    let mut key = [0; 16];
    put_u32(&mut key, 0, attacker.client.handle);
    put_u32(&mut key, 8, KEY);
    attacker.escape(206, &mut key, 12)?;
    many(EVENTS, "events", |count| {
        let mut params = [0; 24];
        put_u32(&mut params, 0, attacker.client.handle);
        put_u32(&mut params, 8, layout::CLASS_OS_EVENT);
        put_u64(&mut params, 16, u64::from(KEY));
        let class = layout::CLASS_OS_EVENT;
        attacker.alloc(rm::SUBDEVICE_HANDLE, OWN + count, class, &mut params)
    })
}
