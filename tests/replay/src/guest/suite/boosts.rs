// SPDX-License-Identifier: GPL-2.0
//! The GPU's highest clock: what programs ask for, and what the module asks the driver for because
//! of it.

use super::doorbell::{proc, wait_for};
use crate::{
    bytes::put_u32,
    guest::{
        instance::Instance,
        process::spawn,
        rm,
        tools::{at, equal, sys, Test, Verdict, GIB},
    },
    standin, sys as os,
};

pub(super) const TESTS: &[Test] = &[
    ("boosts: the driver is asked once for all", once),
    ("boosts: one of a program that is killed ends", killed),
];

/// NV2080_CTRL_CMD_PERF_BOOST.
const PERF_BOOST: u32 = 0x2080_200a;
/// Longer than the module leaves a boost that nobody wants any more.
const LONG_MS: u64 = 1500;

/// Boosts that the driver has seen: those of programs, of the kernel, and those that there are.
fn seen() -> Result<[u64; 3], String> {
    let boosts = standin::read("boosts")?;
    Ok(["programs", "kernel", "boosted"].map(|key| standin::number(&boosts, key)))
}

/// Whether the module says that it has asked.
fn boosted() -> Result<bool, String> {
    let status = at("status", std::fs::read_to_string(proc("status")))?;
    Ok(status.lines().any(|line| line == "boosted: 1"))
}

/// As CUDA asks, without an end, and takes it back.
fn boost(client: &rm::Client, on: bool) -> Verdict {
    let mut params = [0; 8];
    put_u32(&mut params, 0, if on { 0x12 } else { 0x10 });
    put_u32(&mut params, 4, if on { u32::MAX } else { 0 });
    let asked = client.control(rm::SUBDEVICE_HANDLE, PERF_BOOST, &mut params);
    at("boost", asked)
}

/// Since `before`, the driver has had so many calls of the kernel, and there are so many boosts
/// more.
fn wait_asked(before: [u64; 3], calls: u64, boosts: u64) -> Verdict {
    let wanted = [before[0], before[1] + calls, before[2] + boosts];
    wait_for(&format!("{calls} calls, {boosts} boosts"), || {
        Ok(seen()? == wanted)
    })
}

fn once() -> Verdict {
    let (one, two) = (
        Instance::new("boostone", GIB)?,
        Instance::new("boosttwo", GIB)?,
    );
    let (first, second) = (one.client()?, two.client()?);
    let before = seen()?;
    equal("boosted", &boosted()?, &false)?;
    boost(&first, true)?;
    wait_asked(before, 1, 1)?;
    equal("boosted", &boosted()?, &true)?;
    boost(&second, true)?;
    boost(&first, true)?;
    boost(&first, false)?;
    os::sleep_ms(LONG_MS);
    wait_asked(before, 1, 1)?;
    boost(&second, false)?;
    wait_asked(before, 2, 0)?;
    equal("boosted", &boosted()?, &false)?;
    second.close();
    // It is given back with the client as well.
    boost(&first, true)?;
    wait_asked(before, 3, 1)?;
    first.close();
    wait_asked(before, 4, 0)
}

fn killed() -> Verdict {
    let instance = Instance::new("boostkill", GIB)?;
    let before = seen()?;
    let child = spawn(|| {
        let Ok(client) = instance.client() else {
            return 1;
        };
        if boost(&client, true).is_err() {
            return 2;
        }
        loop {
            os::sleep_ms(1000);
        }
    });
    let child = sys("fork", child)?;
    let asked = wait_asked(before, 1, 1);
    sys("kill", os::kill(child, libc::SIGKILL))?;
    sys("wait", os::wait(child))?;
    asked?;
    wait_asked(before, 2, 0)
}
