// SPDX-License-Identifier: GPL-2.0
//! How much longer a service waits that asks for less than its share, beside a program that keeps
//! the GPU full, and what that program has of the rest.
//!
//! Requests come at random, as fast as they come: one that finds another at work waits for it. They
//! come at the same moments with the neighbour and without.

use std::{
    io::{Read, Write},
    os::unix::net::UnixStream,
    time::{Duration, Instant},
};

use super::{
    program::{GpuProgram, Habit, MS, NAMES},
    report::{calls, mode, rounded, ShareLine},
};
use crate::guest::{
    suite::doorbell::put_policy,
    tools::at,
    work::{now, Work},
};
use cgpu_uapi::Policy;

/// A request: so many kernels of this length, one after the other. 17 ms were measured of a model
/// that serves (docs/measurements/2026-11-23-latency.md).
const KERNELS: u32 = 17;
const KERNEL: u64 = MS;
/// The part of the GPU that the requests ask for.
const ASKED: f64 = 0.4;
/// Those that come first are not counted: the scheduler learns from them when the service stops.
const FIRST: usize = 120;
const COUNTED: usize = 120;
/// The neighbour's work.
const BUSY: Habit = Habit {
    kernel: 16 * MS,
    depth: 8,
};
/// How many times as long as alone the median and the 99th percentile may take: 1.25 as on the
/// model, and 20 % for the emulated machine.
const SLOWER: f64 = 1.5;
/// The least part of the rest that the neighbour has: 0.93 as on the model, less 20 %.
const REST: f64 = 0.744;

/// The moments at which requests come, nanoseconds from the first: exponential pauses, the same in
/// every run.
fn arrivals() -> impl Iterator<Item = u64> {
    let mean = f64::from(KERNELS) * KERNEL as f64 / ASKED;
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut due = 0;
    (0..FIRST + COUNTED).map(move |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let part = (state >> 11) as f64 / (1_u64 << 53) as f64;
        due += (-mean * (1.0 - part).ln()) as u64;
        due
    })
}

/// Waits for a word, then serves all requests, and tells of each how long it took from the moment
/// it came.
fn serve(work: &Work, socket: &mut UnixStream) {
    let mut word = [0];
    if socket.read_exact(&mut word).is_err() {
        return;
    }
    let began = Instant::now();
    for due in arrivals() {
        let due = Duration::from_nanos(due);
        std::thread::sleep(due.saturating_sub(began.elapsed()));
        for _ in 0..KERNELS {
            if work.launch(KERNEL, 1, 1).is_err() {
                return;
            }
        }
        let took = began.elapsed().saturating_sub(due).as_nanos();
        let took = u64::try_from(took).unwrap_or(u64::MAX);
        if socket.write_all(&took.to_ne_bytes()).is_err() {
            return;
        }
    }
    // Until it is killed.
    let _ = socket.read_exact(&mut word);
}

/// The result of a run with or without a neighbour.
struct Served {
    /// The median and the 99th percentile of a request, nanoseconds.
    median: f64,
    tail: f64,
    /// The parts of the GPU's time that the service and the neighbour had.
    parts: [f64; 2],
    calls_per_second: f64,
    mode: String,
}

fn run_beside(busy: Option<Habit>) -> Result<Served, String> {
    put_policy(Policy::Native)?;
    let request = Habit {
        kernel: KERNEL,
        depth: 1,
    };
    let (service, mut socket) = GpuProgram::spawn("service", 1, request, serve)?;
    let neighbour = busy.map(|habit| GpuProgram::start(NAMES[0], 1, habit));
    let neighbour = neighbour.transpose()?;
    put_policy(Policy::Weight)?;
    at("ask", socket.write_all(&[1]))?;
    let mut next = || -> Result<u64, String> {
        let mut took = [0; 8];
        at("request", socket.read_exact(&mut took))?;
        Ok(u64::from_ne_bytes(took))
    };
    let ran = || -> Result<[u64; 2], String> {
        let neighbour = neighbour.as_ref().map(GpuProgram::ran).transpose()?;
        Ok([service.ran()?, neighbour.unwrap_or(0)])
    };
    for _ in 0..FIRST {
        next()?;
    }
    let (began, before, ran_before) = (now()?, calls()?, ran()?);
    let mut times = (0..COUNTED)
        .map(|_| next())
        .collect::<Result<Vec<_>, _>>()?;
    let (ended, after, ran_after) = (now()?, calls()?, ran()?);
    let mode = mode()?;
    for program in neighbour.into_iter().chain([service]) {
        program.end()?;
    }
    times.sort_unstable();
    let percentile = |percent: usize| times[(COUNTED * percent / 100).min(COUNTED - 1)] as f64;
    let took = (ended - began) as f64;
    Ok(Served {
        median: percentile(50),
        tail: percentile(99),
        parts: [0, 1].map(|i| (ran_after[i] - ran_before[i]) as f64 / took),
        calls_per_second: (after - before) as f64 * 1e9 / took,
        mode,
    })
}

/// The service's median and 99th percentile in times of what they are alone, and what the neighbour
/// has of the rest.
pub(super) fn run() -> Result<ShareLine, String> {
    let alone = run_beside(None)?;
    let beside = run_beside(Some(BUSY))?;
    let slower = [beside.median / alone.median, beside.tail / alone.tail];
    let [own, others] = beside.parts;
    let rest = others / (1.0 - own);
    eprintln!(
        "a request alone: {:.2} ms, 99 % {:.2} ms; beside {}: {:.2} ms, {:.2} ms",
        alone.median / MS as f64,
        alone.tail / MS as f64,
        BUSY.name(),
        beside.median / MS as f64,
        beside.tail / MS as f64,
    );
    let over = slower.map(|times| times / SLOWER - 1.0);
    let error = over.into_iter().fold(REST / rest - 1.0, f64::max);
    Ok(ShareLine {
        case: format!("a service that asks for {ASKED} beside {}", BUSY.name()),
        wanted: vec![SLOWER, SLOWER, REST],
        got: [slower[0], slower[1], rest].map(rounded).to_vec(),
        // Less waiting and more of the rest is no error.
        error: rounded(error.max(0.0)),
        bound: 0.0,
        throughput: rounded(own + others),
        calls_per_second: rounded(beside.calls_per_second),
        mode: beside.mode,
    })
}
