// SPDX-License-Identifier: GPL-2.0
//! `weights`: what programs in instances get of a GPU's compute time, from one end of the module to the other.
//!
//! Each program keeps up to `depth` kernels of one length launched, and launches the next one when one has
//! ended: it stores its channel's token to the doorbell, through the module, and tells the stand-in driver what the
//! ring holds (`tests/fake_nvidia/fake_engine.c`). The stand-in runs them on the model of `tests/gpu_model`, whose accounts
//! give the verdict. Run it on a machine whose clock counts instructions (`tests/vm/run.sh
//! --count-instructions`): then nothing that the host does reaches the figures.

mod live;
mod priority;

use serde::Serialize;

use super::instance::{clean_up, Instance};
use super::process::spawn;
use super::suite::doorbell::{proc, put, status, wait_for};
use super::tools::{at, sys, GIB, GPU};
use super::work::{now, Account, Work};
use crate::control::{mount_cgpufs, Control};
use crate::sys as os;
use cgpu_uapi::Cause;
use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

const US: u64 = 1_000;
const MS: u64 = 1_000_000;
/// How long programs run before they are measured, and how long that is, milliseconds.
const BEFORE: u64 = 1000;
const MEASURED: u64 = 2000;
/// The same where time slices are taken by then.
const BEFORE_SLICES: u64 = 3000;
/// The same for a program that is alone and under no cap.
const BEFORE_ALONE: u64 = 50;
const MEASURED_ALONE: u64 = 300;
/// What the kernel has to do after its boot is over by then, milliseconds.
const AFTER_BOOT: u64 = 5000;
/// What a share may be off by, as a fraction of it.
const BOUND: f64 = 0.1;
/// The same for kernels of 800 ms, whose shares hang on where the driver's samples fall (docs/compute.md): far below what
/// it is without any, 1.8 for a cap and 3 for two.
const SAMPLED_CAP: f64 = 0.5;
const SAMPLED_PAIR: f64 = 1.0;

/// What a program does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Habit {
    /// Length of each kernel, nanoseconds.
    kernel: u64,
    /// Kernels launched and not yet ended, at most.
    depth: u32,
}

impl Habit {
    fn name(self) -> String {
        let length = match self.kernel {
            long if long >= MS => format!("{} ms", long / MS),
            short => format!("{} us", short / US),
        };
        format!("{length} depth {}", self.depth)
    }
}

/// A program in an instance of its own.
struct Program {
    child: i32,
    /// Its client's handle.
    client: u32,
    habit: Habit,
    instance: Instance,
}

impl Program {
    /// It launches without end.
    fn start(name: &'static str, weight: u32, habit: Habit) -> Result<Self, String> {
        let launch = |work: &Work, _: &mut UnixStream| {
            while work.launch(habit.kernel, 1, habit.depth).is_ok() {}
        };
        Self::spawn(name, weight, habit, launch).map(|(program, _)| program)
    }

    /// Its process has a client of its own, by which the driver knows it, and does this without end; its end of the socket, and
    /// ours.
    fn spawn(
        name: &'static str,
        weight: u32,
        habit: Habit,
        body: impl FnOnce(&Work, &mut UnixStream),
    ) -> Result<(Self, UnixStream), String> {
        let instance = Instance::new(name, GIB)?;
        put(&format!("{name}/weight"), &weight.to_string())?;
        let (mut ours, mut theirs) = at("pair", UnixStream::pair())?;
        let child = spawn(|| {
            let Ok(work) = Work::new(&instance) else {
                return 1;
            };
            if theirs.write_all(&work.client.handle.to_ne_bytes()).is_ok() {
                body(&work, &mut theirs);
            }
            1
        });
        drop(theirs);
        let mut client = [0; 4];
        at("client", ours.read_exact(&mut client))?;
        let program = Self {
            child: sys("fork", child)?,
            client: u32::from_ne_bytes(client),
            habit,
            instance,
        };
        Ok((program, ours))
    }

    /// How long its kernels have run, nanoseconds.
    fn ran(&self) -> Result<u64, String> {
        Account::of(self.client).map(|account| account.ran)
    }

    /// It launches nothing more; its client stays.
    fn halt(&self) -> Result<(), String> {
        sys("stop", os::kill(self.child, libc::SIGSTOP))
    }

    /// Ends it, and its instance; an error if it had ended by itself.
    fn end(mut self) -> Result<(), String> {
        let child = std::mem::take(&mut self.child);
        sys("kill", os::kill(child, libc::SIGKILL))?;
        let status = sys("wait", os::wait(child))?;
        if status != libc::SIGKILL {
            return Err(format!(
                "{}: ended by itself, status {status:#x}",
                self.habit.name()
            ));
        }
        let Instance { control, name, .. } = &self.instance;
        // What it had open may be closed a moment later.
        wait_for("closed", || match control.destroy(name, GPU) {
            Err(errno) if errno == Cause::Busy.errno() => Ok(false),
            destroyed => sys("destroy", destroyed).map(|()| true),
        })
    }
}

impl Drop for Program {
    /// Where a case came to nothing: the next one has the GPU to itself.
    fn drop(&mut self) {
        if self.child != 0 {
            let _ = os::kill(self.child, libc::SIGKILL);
            let _ = os::wait(self.child);
        }
    }
}

/// The parts of the GPU's time in which kernels of each program ran.
fn measure(programs: &[Program], before: u64, measured: u64) -> Result<Vec<f64>, String> {
    let ran = || {
        programs
            .iter()
            .map(Program::ran)
            .collect::<Result<Vec<_>, _>>()
    };
    os::sleep_ms(before);
    let (began, first) = (now()?, ran()?);
    os::sleep_ms(measured);
    let (ended, last) = (now()?, ran()?);
    let took = (ended - began) as f64;
    Ok(first
        .iter()
        .zip(last)
        .map(|(a, b)| (b - a) as f64 / took)
        .collect())
}

/// What a program that is alone uses of the GPU, a part of its time.
fn alone(habit: Habit) -> Result<f64, String> {
    put("policy", "5")?;
    let program = [Program::start("alone", 1, habit)?];
    let used = measure(&program, BEFORE_ALONE, MEASURED_ALONE)?;
    let [program] = program;
    program.end()?;
    Ok(used[0])
}

/// One line of the report.
#[derive(Debug, Serialize)]
struct Line {
    case: String,
    /// Shares that were wanted, and that came out, of what the programs had together; a cap: of what the program has alone.
    wanted: Vec<f64>,
    got: Vec<f64>,
    /// The worst error, as a fraction of the share that was wanted.
    error: f64,
    bound: f64,
    /// All together, as a fraction of one alone.
    throughput: f64,
    calls_per_second: f64,
    /// How the GPU was shared at the end.
    mode: String,
}

/// How the GPU is shared now.
fn mode() -> Result<String, String> {
    let text = at("status", fs::read_to_string(proc("status")))?;
    let mode = text.lines().find_map(|line| line.strip_prefix("mode: "));
    Ok(mode.ok_or("no mode in the GPU's status")?.to_owned())
}

/// A line of shares `of_alone`, each of what its program has alone.
fn line(
    case: String,
    wanted: Vec<f64>,
    of_alone: Vec<f64>,
    bound: f64,
    calls_per_second: f64,
    mode: String,
) -> Line {
    let throughput: f64 = of_alone.iter().sum();
    let got: Vec<f64> = match of_alone.len() {
        1 => of_alone,
        _ => of_alone.iter().map(|got| got / throughput).collect(),
    };
    // Of a share of nothing, all is too much.
    let error = |(got, wanted): (&f64, &f64)| (got - wanted).abs() / wanted.max(1e-6);
    let error = got.iter().zip(&wanted).map(error).fold(0.0, f64::max);
    Line {
        case,
        wanted,
        got: got.into_iter().map(rounded).collect(),
        error: rounded(error),
        bound,
        throughput: rounded(throughput),
        calls_per_second: rounded(calls_per_second),
        mode,
    }
}

/// Calls into the driver that the scheduler made so far.
fn calls() -> Result<u64, String> {
    let gpu = Control::open().and_then(|c| c.gpu_compute(GPU));
    Ok(sys("compute", gpu)?.calls)
}

fn rounded(figure: f64) -> f64 {
    (figure * 1e4).round() / 1e4
}

/// A case: a policy, and programs with their weights.
struct Case {
    policy: u32,
    programs: Vec<(u32, Habit)>,
    /// The most that the error may be.
    bound: f64,
    /// How long before, and how long it is measured, milliseconds.
    times: (u64, u64),
    /// How the GPU is to be shared at the end; `None` where a program may be taken to have no work at that moment, since
    /// only the driver's samples tell that it has.
    mode: Option<&'static str>,
}

const NAMES: [&str; 2] = ["weighta", "weightb"];

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

    fn run(&self, mut alone: impl FnMut(Habit) -> Result<f64, String>) -> Result<Line, String> {
        let mut rates = Vec::new();
        for (_, habit) in &self.programs {
            rates.push(alone(*habit)?);
        }
        let mut programs = Vec::new();
        // Each has the GPU for a moment, as if it had been there before the policy was set.
        put("policy", "5")?;
        for (name, (weight, habit)) in NAMES.into_iter().zip(&self.programs) {
            programs.push(Program::start(name, *weight, *habit)?);
        }
        put("policy", &self.policy.to_string())?;
        let (began, before) = (now()?, calls()?);
        let used = measure(&programs, self.times.0, self.times.1)?;
        let (ended, after) = (now()?, calls()?);
        let mode = mode()?;
        let windows = status(&programs[0].instance, "compute_windows")?;
        for program in &programs {
            eprintln!(
                "{}: {} windows, {} parkings, given {}",
                program.habit.name(),
                status(&program.instance, "compute_windows")?,
                status(&program.instance, "compute_parkings")?,
                status(&program.instance, "compute_given_ns")?,
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
        times: (BEFORE, MEASURED),
        mode: Some("windows"),
    };
    let habits: Vec<Habit> = [15 * US, 16 * MS]
        .into_iter()
        .flat_map(|kernel| [1, 8].map(|depth| habit(kernel, depth)))
        .collect();
    let mut cases = Vec::new();
    for &habit in &habits {
        cases.push(case(3, vec![(30, habit)]));
    }
    for &a in &habits {
        for &b in &habits {
            let mut pair = case(2, vec![(75, a), (25, b)]);
            if [a, b].iter().all(|h| h.depth > 1 && h.kernel < MS) {
                // Their queues are full, of short kernels.
                pair.times = (BEFORE_SLICES, MEASURED);
                pair.mode = Some("slices");
            }
            cases.push(pair);
        }
    }
    // Beyond every window.
    cases.push(case(3, vec![(30, habit(81 * MS, 1))]));
    let pair = vec![(75, habit(81 * MS, 8)), (25, habit(15 * US, 1))];
    cases.push(case(2, pair));
    // In a kernel of most of a second a program is silent as one without work: the driver's samples tell.
    let (long, short) = (habit(800 * MS, 1), habit(15 * US, 1));
    cases.push(Case {
        bound: SAMPLED_CAP,
        mode: None,
        ..case(3, vec![(30, long)])
    });
    cases.push(Case {
        bound: SAMPLED_PAIR,
        // Two kernels fill two seconds nearly.
        times: (BEFORE, 3 * MEASURED),
        mode: None,
        ..case(2, vec![(25, long), (75, short)])
    });
    cases
}

/// Runs all cases whose names have `only` in them, and prints a line of JSON for each. Whether all errors are
/// within their bounds.
pub fn run(only: &str) -> Result<bool, String> {
    mount_cgpufs()?;
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
    let mut tell = |case: &str, line: Result<Line, String>| -> Result<(), String> {
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
    put("policy", "5")?;
    println!("{passed} passed, {failed} failed");
    Ok(failed == 0 && passed > 0)
}
