// SPDX-License-Identifier: GPL-2.0
//! How long an instance of high priority waits for the GPU, which two others keep full.

use std::{
    io::{Read, Write},
    os::unix::net::UnixStream,
    time::Instant,
};

use super::{
    program::{GpuProgram, Habit, MS, NAMES, US},
    report::{calls, mode, rounded, ShareLine},
};
use crate::{
    guest::{
        suite::doorbell::{put, put_policy},
        tools::at,
        work::{now, Work},
    },
    sys as os,
};
use cgpu_uapi::Policy;

/// A request: so many kernels of this length, one after the other.
const KERNELS: u32 = 8;
const KERNEL: u64 = 500 * US;
const REQUESTS: u64 = 40;
/// It waits for no more than this, milliseconds: 2 ms (docs/compute.md), and what the emulated
/// machine adds.
const BOUND: f64 = 2.0 + ADDED;
const ADDED: f64 = 0.3;
/// The others' work.
const BUSY: Habit = Habit {
    kernel: 16 * MS,
    depth: 8,
};
/// How long before they are asked for the first time, milliseconds.
const BEFORE: u64 = 1000;

/// Waits for a word, and tells of each request how long its first kernel waited: from before the
/// doorbell is touched to its end, less its length.
fn requests(work: &Work, socket: &mut UnixStream) {
    let mut word = [0];
    if socket.read_exact(&mut word).is_err() {
        return;
    }
    for number in 0..REQUESTS {
        let asked = Instant::now();
        let mut waited = 0;
        for kernel in 0..KERNELS {
            if work.launch(KERNEL, 1, 1).is_err() {
                return;
            }
            if kernel == 0 {
                let took = u64::try_from(asked.elapsed().as_nanos()).unwrap_or(u64::MAX);
                waited = took.saturating_sub(KERNEL);
            }
        }
        if socket.write_all(&waited.to_ne_bytes()).is_err() {
            return;
        }
        os::sleep_ms(45 + number % 13);
    }
    // Until it is killed.
    let _ = socket.read_exact(&mut word);
}

/// The longest of all, the first one included, of whose kernels nothing is known.
pub(super) fn run() -> Result<ShareLine, String> {
    put_policy(Policy::Native)?;
    let request = Habit {
        kernel: KERNEL,
        depth: 1,
    };
    let (urgent, mut socket) = GpuProgram::spawn("urgent", 1, request, requests)?;
    put("urgent/highprio", "1")?;
    let others = [
        GpuProgram::start(NAMES[0], 1, BUSY)?,
        GpuProgram::start(NAMES[1], 1, BUSY)?,
    ];
    put_policy(Policy::Weight)?;
    os::sleep_ms(BEFORE);
    let ran = || -> Result<u64, String> { Ok(urgent.ran()? + others[0].ran()? + others[1].ran()?) };
    let (began, before, ran_before) = (now()?, calls()?, ran()?);
    at("ask", socket.write_all(&[1]))?;
    let mut waits = Vec::new();
    for _ in 0..REQUESTS {
        let mut waited = [0; 8];
        at("request", socket.read_exact(&mut waited))?;
        waits.push(u64::from_ne_bytes(waited));
    }
    let (ended, after, ran_after) = (now()?, calls()?, ran()?);
    let mode = mode()?;
    eprintln!("waits, ns: {waits:?}");
    for program in others.into_iter().chain([urgent]) {
        program.end()?;
    }
    let longest = waits.into_iter().max().unwrap_or(u64::MAX);
    let longest = longest as f64 / MS as f64;
    let took = (ended - began) as f64;
    let case = format!(
        "longest wait of high priority, ms, beside two of {}",
        BUSY.name()
    );
    Ok(ShareLine {
        case,
        wanted: vec![BOUND],
        got: vec![rounded(longest)],
        // A shorter one is no error.
        error: rounded((longest / BOUND - 1.0).max(0.0)),
        bound: 0.0,
        throughput: rounded((ran_after - ran_before) as f64 / took),
        calls_per_second: rounded((after - before) as f64 * 1e9 / took),
        mode,
    })
}
