// SPDX-License-Identifier: GPL-2.0
//! Objects and clients that are freed while a control looks for them. The driver follows pointers
//! to both before it takes a lock. A free beside it is a use of freed memory in the host's kernel.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
};

use super::{
    attack::Own,
    rest::alone,
    scene::{in_instances, open_client, Place},
};
use crate::{guest::rm, standin, sys};

pub(super) const ATTACKS: &[Own] = &[
    Own {
        name: "objects freed while a control looks for them",
        function: "rmapi_deprecated_control.c:RmDeprecatedGetControlHandler",
        run: || compare(objects),
    },
    Own {
        name: "clients closed while a control looks for them",
        function: "rmapi_deprecated_control.c:RmDeprecatedGetControlHandler",
        run: || compare(clients),
    },
];

/// Frees of each attack.
const ROUNDS: u32 = 50;
/// Attacks on the driver's nodes until one of the frees comes beside a lookup. The machine's
/// processors may be busy.
const TRIES: u32 = 20;
/// Threads that make controls.
const THREADS: u32 = 3;
/// NV2080_CTRL_CMD_GPU_GET_GID_INFO, which programs ask for all the time.
const GET_GID_INFO: u32 = 0x2080_014A;

/// On the driver's nodes some frees come beside a lookup, through an instance none does.
fn compare(attack: fn(&str) -> Result<(), String>) -> Result<String, String> {
    if standin::is_in_reach() {
        alone(|| hit_on_nodes(attack))?;
    }
    match in_instances(|| counted(attack, &Place::Instance.folder("attacker")))? {
        0 => Ok(format!("0 in {ROUNDS} frees")),
        count => Err(format!("{count} in {ROUNDS} frees")),
    }
}

/// The attack works on the driver's nodes.
fn hit_on_nodes(attack: fn(&str) -> Result<(), String>) -> Result<(), String> {
    for _ in 0..TRIES {
        if counted(attack, &Place::Driver.folder("attacker"))? > 0 {
            return Ok(());
        }
    }
    Err(format!(
        "none of {} frees on the driver's nodes",
        TRIES * ROUNDS
    ))
}

fn counted(attack: fn(&str) -> Result<(), String>, folder: &str) -> Result<u32, String> {
    let (result, freed) = standin::with_slow_lookup(|| attack(folder))?;
    result.map(|()| freed)
}

/// A subdevice that is freed and made again.
fn objects(folder: &str) -> Result<(), String> {
    let client = open_client(folder)?;
    let (ctl, handle) = (client.ctl, client.handle);
    let subdevice = rm::SUBDEVICE_HANDLE;
    let result = beside_controls(ctl, handle, || {
        for _ in 0..ROUNDS {
            sys::sleep_ms(1);
            rm::free(ctl, handle, subdevice)?;
            client.alloc(rm::DEVICE_HANDLE, subdevice, rm::SUBDEVICE, &mut [0; 4])?;
        }
        Ok(())
    });
    client.close();
    result.map_err(|failure: rm::Failure| failure.to_string())
}

/// Clients whose file is closed. The controls come through another one.
fn clients(folder: &str) -> Result<(), String> {
    let other = open_client(folder)?;
    for _ in 0..ROUNDS {
        let client = open_client(folder)?;
        beside_controls(other.ctl, client.handle, || {
            sys::sleep_ms(1);
            client.close();
        });
    }
    other.close();
    Ok(())
}

/// Makes controls of a client's subdevice until `work` is done. Their answers do not matter: the
/// subdevice comes and goes.
fn beside_controls<T>(ctl: i32, client: u32, work: impl FnOnce() -> T) -> T {
    let is_done = AtomicBool::new(false);
    let ask = || {
        while !is_done.load(Ordering::Relaxed) {
            let object = rm::SUBDEVICE_HANDLE;
            let _ = rm::control(ctl, client, object, GET_GID_INFO, &mut [0; 268]);
        }
    };
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(ask);
        }
        let result = work();
        is_done.store(true, Ordering::Relaxed);
        result
    })
}
