// SPDX-License-Identifier: GPL-2.0
//! `weights`: what programs in instances get of a GPU's compute time, from one end of the module to
//! the other.
//!
//! Each program keeps up to `depth` kernels of one length launched, and launches the next one when
//! one has ended: it stores its channel's token to the doorbell, through the module, and tells the
//! stand-in driver what the ring holds (`tests/fake_nvidia/fake_engine.c`). The stand-in runs them
//! on the model of `tests/gpu_model`, whose accounts give the verdict. Run it on a machine whose
//! clock counts instructions (`tests/vm/run.sh --count-instructions`): then nothing that the host
//! does reaches the figures.

mod live;
mod priority;
mod program;
mod report;
mod service;

use program::{measure, GpuProgram, Habit, MS, NAMES, US};
use report::{calls, line, mode, ShareLine};

use super::{
    instance::{clean_up, Instance},
    suite::doorbell::{put_policy, status},
    tools::GIB,
    work::now,
};
use crate::{control::mount_cgpufs, sys as os};
use cgpu_uapi::Policy;

/// Milliseconds that programs run before they are measured, and in which they are measured.
const BEFORE: u64 = 1000;
const MEASURED: u64 = 2000;
/// The same where time slices are taken by then.
const BEFORE_SLICES: u64 = 3000;
/// The same for a program that is alone and under no cap.
const BEFORE_ALONE: u64 = 50;
const MEASURED_ALONE: u64 = 300;
/// The kernel's work after its boot is over by then, milliseconds.
const AFTER_BOOT: u64 = 5000;
/// The largest error of a share, as a fraction of it.
const BOUND: f64 = 0.1;
/// The same for kernels of 800 ms, whose shares hang on where the driver's samples fall
/// (docs/compute.md): far below what it is without any, 1.8 for a cap and 3 for two.
const SAMPLED_CAP: f64 = 0.5;
const SAMPLED_PAIR: f64 = 1.0;

/// The part of the GPU's time that a program alone uses.
fn alone(habit: Habit) -> Result<f64, String> {
    put_policy(Policy::Native)?;
    let program = [GpuProgram::start("alone", 1, habit)?];
    let used = measure(&program, BEFORE_ALONE, MEASURED_ALONE)?;
    let [program] = program;
    program.end()?;
    Ok(used[0])
}

/// A case: a policy, and programs with their weights.
struct Case {
    policy: Policy,
    programs: Vec<(u32, Habit)>,
    /// The most that the error may be.
    bound: f64,
    /// Milliseconds before the programs are measured.
    before: u64,
    /// Milliseconds in which they are measured.
    measured: u64,
    /// How the GPU is to be shared at the end; `None` where a program may be taken to have no work
    /// at that moment, since only the driver's samples tell that it has.
    mode: Option<&'static str>,
}

impl Case {
    fn name(&self) -> String {
        let habits: Vec<_> = self
            .programs
            .iter()
            .map(|(_, habit)| habit.name())
            .collect();
        match self.programs.as_slice() {
            [(cap, _)] => format!("cap of {cap} %: {}", habits[0]),
            programs => {
                let weights: Vec<_> = programs.iter().map(|(w, _)| w.to_string()).collect();
                format!("{}: {}", weights.join(" : "), habits.join(" beside "))
            }
        }
    }

    fn run(
        &self,
        mut alone: impl FnMut(Habit) -> Result<f64, String>,
    ) -> Result<ShareLine, String> {
        let mut rates = Vec::new();
        for (_, habit) in &self.programs {
            rates.push(alone(*habit)?);
        }
        let mut programs = Vec::new();
        // Each has the GPU for a moment, as if it had been there before the policy was set.
        put_policy(Policy::Native)?;
        for (name, (weight, habit)) in NAMES.into_iter().zip(&self.programs) {
            programs.push(GpuProgram::start(name, *weight, *habit)?);
        }
        put_policy(self.policy)?;
        let (began, before) = (now()?, calls()?);
        let used = measure(&programs, self.before, self.measured)?;
        let (ended, after) = (now()?, calls()?);
        let mode = mode()?;
        let windows = status(&programs[0].instance, "compute_windows")?;
        for program in &programs {
            eprintln!(
                "{}: {} windows, blocked {} times, given {}",
                program.habit.name(),
                status(&program.instance, "compute_windows")?,
                status(&program.instance, "compute_blocked_count")?,
                status(&program.instance, "compute_gpu_time_ns")?,
            );
        }
        for program in programs {
            program.end()?;
        }
        if windows < 3 {
            return Err(format!("{windows} windows"));
        }
        if let Some(wanted) = self.mode.filter(|wanted| mode != *wanted) {
            return Err(format!("{mode}, not {wanted}"));
        }
        let of_alone: Vec<f64> = used.iter().zip(rates).map(|(u, r)| u / r).collect();
        let all: u32 = match self.programs.as_slice() {
            [_] => 100,
            programs => programs.iter().map(|(weight, _)| weight).sum(),
        };
        let share = |(weight, _): &(u32, Habit)| f64::from(*weight) / f64::from(all);
        let wanted = self.programs.iter().map(share).collect();
        let per_second = (after - before) as f64 * 1e9 / (ended - began) as f64;
        let line = line(self.name(), wanted, of_alone, self.bound, per_second, mode);
        Ok(line)
    }
}

fn cases() -> Vec<Case> {
    let habit = |kernel, depth| Habit { kernel, depth };
    let case = |policy, programs| Case {
        policy,
        programs,
        bound: BOUND,
        before: BEFORE,
        measured: MEASURED,
        mode: Some("windows"),
    };
    let habits: Vec<Habit> = [15 * US, 16 * MS]
        .into_iter()
        .flat_map(|kernel| [1, 8].map(|depth| habit(kernel, depth)))
        .collect();
    let mut cases = Vec::new();
    for &habit in &habits {
        cases.push(case(Policy::Fixed, vec![(30, habit)]));
    }
    for &a in &habits {
        for &b in &habits {
            let mut pair = case(Policy::Weight, vec![(75, a), (25, b)]);
            if [a, b].iter().all(|h| h.depth > 1 && h.kernel < MS) {
                // Their queues are full, of short kernels.
                pair.before = BEFORE_SLICES;
                pair.mode = Some("slices");
            }
            cases.push(pair);
        }
    }
    // Beyond every window.
    cases.push(case(Policy::Fixed, vec![(30, habit(81 * MS, 1))]));
    let pair = vec![(75, habit(81 * MS, 8)), (25, habit(15 * US, 1))];
    cases.push(case(Policy::Weight, pair));
    // In a kernel of most of a second a program is silent as one without work: the driver's samples
    // tell.
    let (long, short) = (habit(800 * MS, 1), habit(15 * US, 1));
    cases.push(Case {
        bound: SAMPLED_CAP,
        mode: None,
        ..case(Policy::Fixed, vec![(30, long)])
    });
    cases.push(Case {
        bound: SAMPLED_PAIR,
        // Two kernels fill two seconds nearly.
        measured: 3 * MEASURED,
        mode: None,
        ..case(Policy::Weight, vec![(25, long), (75, short)])
    });
    cases
}

/// Runs all cases whose names have `only` in them, and prints a line of JSON for each. Whether all
/// errors are within their bounds.
pub fn run(only: &str) -> Result<bool, String> {
    mount_cgpufs()?;
    // The module looks for GPUs when the first instance is made; the policy is set before.
    drop(Instance::new(NAMES[0], GIB)?);
    let mut rates: Vec<(Habit, f64)> = Vec::new();
    let (mut passed, mut failed) = (0, 0);
    os::sleep_ms(AFTER_BOOT);
    let mut rate = |habit: Habit| -> Result<f64, String> {
        if let Some((_, rate)) = rates.iter().find(|(h, _)| *h == habit) {
            return Ok(*rate);
        }
        let rate = alone(habit)?;
        eprintln!("alone: {} uses {rate:.3} of the GPU", habit.name());
        rates.push((habit, rate));
        Ok(rate)
    };
    let mut tell = |case: &str, line: Result<ShareLine, String>| -> Result<(), String> {
        let line = match line {
            Ok(line) => line,
            Err(e) => {
                failed += 1;
                println!("FAILED  {case}: {e}");
                return Ok(());
            }
        };
        let within = line.error <= line.bound;
        println!(
            "{}",
            serde_json::to_string(&line).map_err(|e| e.to_string())?
        );
        if within {
            passed += 1;
        } else {
            failed += 1;
            println!("FAILED  {}: off by {} of the share", line.case, line.error);
        }
        Ok(())
    };
    for case in cases() {
        if !case.name().contains(only) {
            continue;
        }
        let line = case.run(&mut rate);
        clean_up();
        tell(&case.name(), line)?;
    }
    if only.is_empty() || only == "changed" {
        let lines = live::run(&mut rate);
        clean_up();
        let lines = match lines {
            Ok(lines) => lines.into_iter().map(Ok).collect(),
            Err(e) => vec![Err(e)],
        };
        for line in lines {
            tell("changed under load", line)?;
        }
    }
    if only.is_empty() || only == "priority" {
        let line = priority::run();
        clean_up();
        tell("high priority", line)?;
    }
    if only.is_empty() || only == "service" {
        let line = service::run();
        clean_up();
        tell("service", line)?;
    }
    put_policy(Policy::Native)?;
    println!("{passed} passed, {failed} failed");
    Ok(failed == 0 && passed > 0)
}
