// SPDX-License-Identifier: GPL-2.0
//! The pages through which parameters reach the driver, taken away while a call is made.
//!
//! Between the module's check and the driver's copy the bytes lie in the program's own memory. If
//! the program could put a page of its own there, the driver would act on what nobody has checked.

use std::sync::atomic::Ordering::{Relaxed, Release};

use super::{
    attack::Own,
    scene::{clean_up, GPU, LIMIT, MIB},
};
use crate::{
    control::folder,
    guest::{
        race, rm,
        taking::{beside, Taken, Trying, WAYS},
        tools::{control, device_instance},
    },
};

pub(super) const ATTACKS: &[Own] = &[
    Own {
        name: "scratch: taken away by another thread",
        function: "-",
        run: || taken_away(Who::Thread),
    },
    Own {
        name: "scratch: taken away by a process sharing the memory",
        function: "-",
        run: || taken_away(Who::Process),
    },
];

/// The attacker that takes it away.
enum Who {
    Thread,
    Process,
}

const MEMORY: u32 = 0x5C00_0010;
/// Calls that are made meanwhile, at least; and how often all ways are tried, at least.
const CALLS: u32 = 2000;
const ROUNDS: u64 = 50;

/// Runs `work` while another thread tries.
fn in_thread<T>(trying: &Trying, work: impl FnOnce() -> T) -> Result<T, String> {
    std::thread::scope(|scope| {
        let other = scope.spawn(|| trying.run());
        let result = work();
        trying.stop.store(true, Release);
        other.join().map_err(|_| "panicked".to_owned())?;
        Ok(result)
    })
}

/// Makes calls until all ways were tried often enough.
fn call(client: &rm::Client, trying: &Trying) -> Result<(), String> {
    let mut made = 0;
    while made < CALLS || trying.rounds.load(Relaxed) < ROUNDS {
        if let Some(way) = trying.worked() {
            return Err(format!("not refused: {way}"));
        }
        let memory = client.memory(MEMORY, 2 * MIB);
        memory.map_err(|e| format!("memory: {e}"))?;
        client.free(MEMORY).map_err(|e| format!("free: {e}"))?;
        made += 1;
    }
    Ok(())
}

fn taken_away(who: Who) -> Result<String, String> {
    let failed = |what: &'static str| move |e: i32| format!("{what}: errno {e}");
    let control = control()?;
    clean_up(&control);
    let made = control.create("attacker", GPU, LIMIT, 1);
    made.map_err(failed("create"))?;
    let number = device_instance(&control, GPU)?;
    let client = rm::Client::open(&folder("attacker"), GPU, number);
    let client = client.map_err(|e| format!("client: {e}"))?;
    let range = race::scratch_range()?;
    let trying = Trying::new(Taken::new(range)?);
    let calls = || call(&client, &trying);
    match who {
        Who::Thread => in_thread(&trying, calls),
        Who::Process => beside(&trying, calls),
    }??;
    if race::scratch_range()? != range {
        return Err("it is not where it was".to_owned());
    }
    trying.taken.close();
    client.close();
    Ok(format!("{} ways are refused", WAYS.len()))
}
