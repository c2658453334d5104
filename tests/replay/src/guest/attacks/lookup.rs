// SPDX-License-Identifier: GPL-2.0
//! Objects and clients that are freed while a control looks for them. The driver follows pointers
//! to both before it takes a lock. A free beside it is a use of freed memory in the host's kernel.
//! The same holds for an address space that UVM registers.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
};

use cgpu_uapi::Policy;

use super::{
    attack::Own,
    rest::alone,
    scene::{in_instances, open_client, Place, GPU, OWN},
    seen::timeslices_of,
};
use crate::{
    guest::{
        rm,
        suite::doorbell::{put_policy, wait_for},
        uvm,
    },
    standin, sys,
};

pub(super) const ATTACKS: &[Own] = &[
    Own {
        name: "objects freed while a control looks for them",
        function: "rmapi_deprecated_control.c:RmDeprecatedGetControlHandler",
        run: || free_beside_lookups(objects),
    },
    Own {
        name: "clients closed while a control looks for them",
        function: "rmapi_deprecated_control.c:RmDeprecatedGetControlHandler",
        run: || free_beside_lookups(clients),
    },
    Own {
        name: "address spaces freed while UVM looks for them",
        function: "nv_gpu_ops.c:nvGpuOpsDupAddressSpace",
        run: || free_beside_lookups(spaces),
    },
    Own {
        name: "clients closed while UVM looks for them",
        function: "nv_gpu_ops.c:nvGpuOpsDupAddressSpace",
        run: || free_beside_lookups(clients_of_uvm),
    },
    Own {
        name: "groups freed while the scheduler looks for them",
        function: "rmapi_deprecated_control.c:RmDeprecatedGetControlHandler",
        run: || in_instances(|| none(under_a_policy()?)),
    },
];

/// Frees of each attack.
const ROUNDS: u32 = 50;
/// Attacks on the driver's nodes until one of the frees comes beside a lookup. The machine's
/// processors may be busy.
const TRIES: u32 = 20;
/// Threads that make controls.
const THREADS: u32 = 3;
/// Groups of a client whose slices the scheduler sets.
const GROUPS: u32 = 3;
/// The slices that they have at first, in microseconds (kernel_fifo_gv100.c).
const NEW_SLICES: u64 = 3 * 1024;
/// NV2080_CTRL_CMD_GPU_GET_GID_INFO, which programs ask for all the time.
const GET_GID_INFO: u32 = 0x2080_014A;

/// On the driver's nodes some frees come beside a lookup, through an instance none does.
fn free_beside_lookups(attack: fn(&str) -> Result<(), String>) -> Result<String, String> {
    if standin::is_in_reach() {
        alone(|| hit_on_nodes(attack))?;
    }
    none(in_instances(|| {
        counted(attack, &Place::Instance.folder("attacker"))
    })?)
}

/// No free came beside a lookup.
fn none(count: u32) -> Result<String, String> {
    let said = format!("{count} in {ROUNDS} frees");
    if count == 0 {
        Ok(said)
    } else {
        Err(said)
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

/// UVM files with the GPU, one for each thread. (A client of the program has the GPU's file open.)
fn uvm_files(folder: &str) -> Result<Vec<uvm::Space>, String> {
    let gpu = uvm::uuid(GPU)?;
    let open = |_| {
        let space = uvm::Space::open(folder)?;
        space.register_gpu(&gpu)?;
        Ok(space)
    };
    let opened: Result<Vec<uvm::Space>, rm::Failure> = (0..THREADS).map(open).collect();
    opened.map_err(|failure| failure.to_string())
}

fn make_space(client: &rm::Client) -> Result<(), String> {
    let mut params = uvm::space_params();
    let made = client.alloc(rm::DEVICE_HANDLE, OWN, uvm::VA_SPACE, &mut params);
    made.map(drop).map_err(|failure| failure.to_string())
}

/// An address space that is freed and made again.
fn spaces(folder: &str) -> Result<(), String> {
    let client = open_client(folder)?;
    make_space(&client)?;
    let files = uvm_files(folder)?;
    let result = beside_registrations(&files, client.handle, || {
        for _ in 0..ROUNDS {
            sys::sleep_ms(1);
            client.free(OWN).map_err(|failure| failure.to_string())?;
            make_space(&client)?;
        }
        Ok(())
    });
    files.into_iter().for_each(uvm::Space::close);
    client.close();
    result
}

/// Clients whose file is closed. UVM has files of its own.
fn clients_of_uvm(folder: &str) -> Result<(), String> {
    let other = open_client(folder)?;
    let files = uvm_files(folder)?;
    for _ in 0..ROUNDS {
        let client = open_client(folder)?;
        make_space(&client)?;
        beside_registrations(&files, client.handle, || {
            sys::sleep_ms(1);
            client.close();
        });
    }
    files.into_iter().for_each(uvm::Space::close);
    other.close();
    Ok(())
}

/// The scheduler sets slices: under `native` it leaves them to the driver.
fn under_a_policy() -> Result<u32, String> {
    put_policy(Policy::Weight)?;
    let result = counted(scheduled, &Place::Instance.folder("attacker"));
    put_policy(Policy::Native)?;
    result
}

/// Groups with a channel, whose slices the scheduler sets: each has a part of its instance's. They
/// are freed, or go with the file.
fn scheduled(folder: &str) -> Result<(), String> {
    for round in 0..ROUNDS {
        let client = open_client(folder)?;
        for group in OWN..OWN + GROUPS {
            let made = client.channel_group(group, rm::COMPUTE);
            let made = made.and_then(|()| client.channel(group, group + GROUPS));
            made.map_err(|failure| failure.to_string())?;
        }
        if round == 0 {
            wait_for("slices that are set", || {
                Ok(slices(client.handle)? != NEW_SLICES)
            })?;
        }
        sys::sleep_ms(u64::from(round % 4));
        if round % 2 == 0 {
            client.free(OWN).map_err(|failure| failure.to_string())?;
        }
        client.close();
    }
    Ok(())
}

/// The sum of the slices of a client's groups, in microseconds.
fn slices(client: u32) -> Result<u64, String> {
    let clients = standin::read("clients")?;
    let line = clients.get(&format!("{client:#010x}"));
    let sum = line.and_then(|line| timeslices_of(line)?.parse().ok());
    sum.ok_or_else(|| format!("no slices of {client:#010x} are told"))
}

/// Makes controls of a client's subdevice until `work` is done. Their answers do not matter: the
/// subdevice comes and goes.
fn beside_controls<T>(ctl: i32, client: u32, work: impl FnOnce() -> T) -> T {
    let ask = |_| {
        let object = rm::SUBDEVICE_HANDLE;
        let _ = rm::control(ctl, client, object, GET_GID_INFO, &mut [0; 268]);
    };
    beside(ask, work)
}

/// Has UVM register a client's address space, and give it up, until `work` is done.
fn beside_registrations<T>(files: &[uvm::Space], client: u32, work: impl FnOnce() -> T) -> T {
    // The GPU stays in the file. Its UUID was asked for when it came there.
    let gpu = uvm::uuid(GPU).unwrap_or_default();
    let ask = |thread: usize| {
        let registered = files
            .get(thread)
            .map(|file| file.register_space(&gpu, client, OWN));
        if let (Some(file), Some(Ok(()))) = (files.get(thread), registered) {
            let _ = file.unregister_space(&gpu);
        }
    };
    beside(ask, work)
}

/// Has threads call `ask` with their numbers until `work` is done.
fn beside<T>(ask: impl Fn(usize) + Sync, work: impl FnOnce() -> T) -> T {
    let is_done = AtomicBool::new(false);
    let (ask, is_done) = (&ask, &is_done);
    thread::scope(|scope| {
        for thread in 0..THREADS as usize {
            scope.spawn(move || {
                while !is_done.load(Ordering::Relaxed) {
                    ask(thread);
                }
            });
        }
        let result = work();
        is_done.store(true, Ordering::Relaxed);
        result
    })
}
