// SPDX-License-Identifier: GPL-2.0
//! Changes by the operator while two programs keep the GPU full: each takes effect a turn
//! later, and no kernel is lost by it.

use super::{
    program::{measure, GpuProgram, Habit, MS, NAMES, US},
    report::{calls, line, mode, ShareLine},
};
use crate::{
    guest::{
        suite::doorbell::{put, put_policy},
        work::{now, Account},
    },
    sys as os,
};
use cgpu_uapi::Policy;

/// Until a change must be in effect: a turn.
const TURN_MS: u64 = 32;
/// How long the shares are measured then.
const AFTER_MS: u64 = 1000;
/// How far a share may be from the one that is wanted, in parts of the GPU.
const BOUND: f64 = 0.1;

/// A change, by the files in `/proc/cgpu_km/0` and what is written to them, and the shares that
/// follow.
struct Change {
    name: &'static str,
    writes: &'static [(&'static str, &'static str)],
    wanted: [f64; 2],
}

const CHANGES: [Change; 5] = [
    Change {
        name: "weights turned round",
        writes: &[("weighta/weight", "25"), ("weightb/weight", "75")],
        wanted: [0.25, 0.75],
    },
    Change {
        name: "policy preemptive",
        writes: &[("policy", "1")],
        wanted: [0.5, 0.5],
    },
    Change {
        name: "policy weight, the first one of high priority",
        writes: &[("policy", "2"), ("weighta/highprio", "1")],
        wanted: [0.8, 0.2],
    },
    Change {
        name: "the first one suspended",
        writes: &[("weighta/highprio", "0"), ("weighta/suspended", "1")],
        wanted: [0.0, 1.0],
    },
    Change {
        name: "the first one resumed",
        writes: &[("weighta/suspended", "0")],
        wanted: [0.25, 0.75],
    },
];

/// Long kernels, one at a time, and short ones in a queue.
const HABITS: [Habit; 2] = [
    Habit {
        kernel: 16 * MS,
        depth: 1,
    },
    Habit {
        kernel: 800 * US,
        depth: 8,
    },
];

/// Makes the changes, one after the other, and measures after each.
pub(super) fn run(
    mut alone: impl FnMut(Habit) -> Result<f64, String>,
) -> Result<Vec<ShareLine>, String> {
    let rates = [alone(HABITS[0])?, alone(HABITS[1])?];
    put_policy(Policy::Native)?;
    let programs = [
        GpuProgram::start(NAMES[0], 75, HABITS[0])?,
        GpuProgram::start(NAMES[1], 25, HABITS[1])?,
    ];
    put_policy(Policy::Weight)?;
    os::sleep_ms(500);
    let mut lines = Vec::new();
    for change in &CHANGES {
        for (file, value) in change.writes {
            put(file, value)?;
        }
        os::sleep_ms(TURN_MS);
        let (began, before) = (now()?, calls()?);
        let used = measure(&programs, 0, AFTER_MS)?;
        let per_second = (calls()? - before) as f64 * 1e9 / (now()? - began) as f64;
        let of_alone: Vec<f64> = used.iter().zip(rates).map(|(u, r)| u / r).collect();
        let wanted = change.wanted.to_vec();
        let case = format!("changed under load: {}", change.name);
        lines.push(line(case, wanted, of_alone, BOUND, per_second, mode()?));
    }
    put_policy(Policy::Native)?;
    for program in &programs {
        program.halt()?;
    }
    // Longer than all that is queued takes.
    os::sleep_ms(100);
    for program in programs {
        let account = Account::of(program.client)?;
        let whole = account.finished * program.habit.kernel;
        if account.finished != account.submitted || account.ran != whole {
            return Err(format!("{}: {account:?}", program.habit.name()));
        }
        program.end()?;
    }
    Ok(lines)
}
