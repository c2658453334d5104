// SPDX-License-Identifier: GPL-2.0
//! The GPU in turns: what programs that ring without end are given, from one end of the module to the other.
//!
//! A program's time is its processor time: it rings without end, so it runs whenever it is not held up. That
//! of a machine that gets few turns of its host is as long as its clock says, so shares are right there too.

use std::time::{Duration, Instant};

use super::doorbell::{faults, proc, put, status, wait_for, wait_parked, Bell};
use super::{at, equal, holds, sys, Instance, Outcome, Test, GIB, GPU};
use crate::guest::process::spawn;
use crate::sys as os;

pub(super) const TESTS: &[Test] = &[
    ("turns: who is alone wakes nobody", quiet),
    ("turns: a cap holds up and lets go on", let_go),
    ("turns: 30 percent are 30 percent", capped),
    ("turns: 75 to 25", weighted),
    ("turns: a weight is changed while programs ring", changed),
];

/// How long shares are measured.
const MEASURED: Duration = Duration::from_secs(3);

/// The policy of the GPU, put back when this goes.
struct Policy(String);

impl Policy {
    fn set(number: &str) -> Result<Self, String> {
        let before = at("policy", std::fs::read_to_string(proc("policy")))?;
        put("policy", number)?;
        Ok(Self(before.trim().to_owned()))
    }
}

impl Drop for Policy {
    fn drop(&mut self) {
        // It was the policy before, so it is one.
        let _ = put("policy", &self.0);
    }
}

/// A process that rings without end.
struct Ringer {
    child: i32,
    /// The clock of its processor time.
    clock: libc::clockid_t,
}

impl Ringer {
    fn start(bell: &Bell) -> Result<Self, String> {
        let child = spawn(|| {
            for token in 1.. {
                bell.ring(token);
            }
            0
        });
        let child = sys("fork", child)?;
        let mut clock = 0;
        // SAFETY: the place is there.
        let found = unsafe { libc::clock_getcpuclockid(child, &mut clock) };
        equal("clock", &found, &0)?;
        Ok(Self { child, clock })
    }

    /// How long it ran so far.
    fn ran(&self) -> Duration {
        let mut time = libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        // SAFETY: the place is there.
        unsafe { libc::clock_gettime(self.clock, &mut time) };
        Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
    }

    fn end(self) -> Outcome {
        sys("kill", os::kill(self.child, libc::SIGKILL))?;
        sys("wait", os::wait(self.child)).map(drop)
    }
}

/// What each of them was let in the time that is measured, as a part of it.
fn parts(ringers: &[&Ringer]) -> Vec<f64> {
    let before: Vec<_> = ringers.iter().map(|r| r.ran()).collect();
    let began = Instant::now();
    std::thread::sleep(MEASURED);
    let took = began.elapsed().as_secs_f64();
    let after = ringers.iter().zip(before);
    after
        .map(|(r, before)| r.ran().saturating_sub(before).as_secs_f64() / took)
        .collect()
}

/// Whether `measure` gives `wanted`, but for a tenth of it. A test machine that does not get its turns in time takes
/// who has none for one that has no work: it is measured up to five times.
fn settles(what: &str, mut measure: impl FnMut() -> f64, wanted: f64) -> Outcome {
    let mut result = Ok(());
    for _ in 0..5 {
        result = near(what, measure(), wanted);
        if result.is_ok() {
            break;
        }
    }
    result
}

/// Whether `got` is `wanted`, but for a tenth of it.
fn near(what: &str, got: f64, wanted: f64) -> Outcome {
    holds(
        &format!("{what}: {got:.3}, not {wanted:.3}"),
        (got - wanted).abs() <= wanted / 10.0,
    )
}

/// How often the thread that shares the GPU was woken.
fn wakeups() -> Result<u64, String> {
    let name = format!("cgpu-sched/{GPU}");
    let tasks = at("/proc", std::fs::read_dir("/proc"))?;
    let mut tasks = tasks.filter_map(Result::ok).map(|task| task.path());
    let thread = tasks.find(|task| {
        let comm = std::fs::read_to_string(task.join("comm"));
        comm.is_ok_and(|comm| comm.trim() == name)
    });
    let thread = thread.ok_or_else(|| format!("there is no {name}"))?;
    let text = at("status", std::fs::read_to_string(thread.join("status")))?;
    let mut lines = text.lines().filter_map(|line| line.split_once(':'));
    let count = lines.find(|(key, _)| *key == "voluntary_ctxt_switches");
    count
        .and_then(|(_, count)| count.trim().parse().ok())
        .ok_or_else(|| format!("{name} has no count"))
}

/// Under a policy that shares: one program that rings all the time, and an instance that does nothing.
fn quiet() -> Outcome {
    let bell = Bell::new("turnquiet")?;
    let idle = Instance::new("turnidle", GIB)?;
    let policy = Policy::set("2")?;
    bell.ring(1);
    // What the policy and the ring had to be done for.
    let mut woken = 0;
    wait_for("it is quiet", || {
        let before = core::mem::replace(&mut woken, wakeups()?);
        os::sleep_ms(200);
        Ok(before == woken)
    })?;
    let faulted = faults()?;
    for token in 2..500 {
        bell.ring(token);
        os::sleep_ms(1);
    }
    equal("wakeups", &wakeups()?, &woken)?;
    equal("faults", &faults()?, &faulted)?;
    equal("rung", &bell.direct.rung(), &499)?;
    drop((policy, idle));
    bell.end()
}

/// A fixed part for a program that is alone; then none.
fn let_go() -> Outcome {
    let bell = Bell::new("turncap")?;
    put("turncap/weight", "30")?;
    let policy = Policy::set("3")?;
    let child = spawn(|| {
        for token in 1.. {
            bell.ring(token);
        }
        0
    });
    let child = sys("fork", child)?;
    let windows = || status(&bell.instance, "compute_windows");
    let result = wait_for("windows and parkings", || {
        Ok(windows()? >= 5 && status(&bell.instance, "compute_parkings")? >= 5)
    });
    let rung = bell.direct.rung();
    drop(policy);
    result?;
    // Without a cap it is let alone again.
    wait_parked(&bell.instance, 0)?;
    wait_for("rung after the cap", || Ok(bell.direct.rung() != rung))?;
    os::sleep_ms(50);
    let parkings = status(&bell.instance, "compute_parkings")?;
    os::sleep_ms(200);
    equal(
        "parkings without a cap",
        &status(&bell.instance, "compute_parkings")?,
        &parkings,
    )?;
    sys("kill", os::kill(child, libc::SIGKILL))?;
    sys("wait", os::wait(child))?;
    bell.end()
}

fn capped() -> Outcome {
    let bell = Bell::new("turnfixed")?;
    put("turnfixed/weight", "30")?;
    let policy = Policy::set("3")?;
    let ringer = Ringer::start(&bell)?;
    os::sleep_ms(500);
    let result = settles("a cap of 0.3", || parts(&[&ringer])[0], 0.3);
    ringer.end()?;
    drop(policy);
    result?;
    bell.end()
}

/// The share of the second of two that ring without end.
fn share(a: &Ringer, b: &Ringer) -> f64 {
    let got = parts(&[a, b]);
    got[1] / (got[0] + got[1])
}

fn weighted() -> Outcome {
    let (a, b) = (Bell::new("turna")?, Bell::new("turnb")?);
    put("turna/weight", "75")?;
    put("turnb/weight", "25")?;
    let policy = Policy::set("2")?;
    let (ra, rb) = (Ringer::start(&a)?, Ringer::start(&b)?);
    os::sleep_ms(500);
    let result = settles("25 of 100", || share(&ra, &rb), 0.25);
    let switches = status(&a.instance, "compute_windows")?;
    ra.end()?;
    rb.end()?;
    drop(policy);
    result?;
    holds("there were no windows", switches > 10)?;
    a.end()?;
    b.end()
}

fn changed() -> Outcome {
    let (a, b) = (Bell::new("turnc")?, Bell::new("turnd")?);
    let policy = Policy::set("2")?;
    let (ra, rb) = (Ringer::start(&a)?, Ringer::start(&b)?);
    os::sleep_ms(500);
    put("turnc/weight", "3")?;
    // Its turn, and the rest of the one before.
    os::sleep_ms(100);
    let result = settles("1 of 4", || share(&ra, &rb), 0.25);
    ra.end()?;
    rb.end()?;
    drop(policy);
    result?;
    a.end()?;
    b.end()
}
