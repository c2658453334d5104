// SPDX-License-Identifier: GPL-2.0
//! The GPU in turns: what programs that ring without end are given, from one end of the module to the other.
//!
//! A program's time is what it saw itself: the time between two rings that follow each other at once. What it
//! was held up is the rest.

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

/// A ring after a longer pause than this was held up.
const AT_ONCE: Duration = Duration::from_millis(2);
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

/// A process that rings without end, and tells how long it was let.
struct Ringer {
    child: i32,
    page: u64,
}

impl Ringer {
    fn start(bell: &Bell) -> Result<Self, String> {
        let prot = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_SHARED | libc::MAP_ANONYMOUS;
        let page = sys("mmap", os::mmap(0, 4096, prot, flags, -1, 0))?;
        let child = spawn(|| {
            let (mut last, mut open) = (Instant::now(), Duration::ZERO);
            for token in 1.. {
                bell.ring(token);
                let now = Instant::now();
                let pause = now - last;
                last = now;
                if pause < AT_ONCE {
                    open += pause;
                    // SAFETY: the page was mapped above.
                    unsafe { (page as *mut u64).write_volatile(open.as_nanos() as u64) };
                }
            }
            0
        });
        let child = sys("fork", child)?;
        Ok(Self { child, page })
    }

    /// How long it was let ring so far.
    fn open(&self) -> Duration {
        // SAFETY: the page is mapped as long as this is there.
        Duration::from_nanos(unsafe { (self.page as *const u64).read_volatile() })
    }

    fn end(self) -> Outcome {
        sys("kill", os::kill(self.child, libc::SIGKILL))?;
        sys("wait", os::wait(self.child))?;
        // SAFETY: mapped by `start`, used by nobody any more.
        sys("munmap", unsafe { os::munmap(self.page, 4096) })
    }
}

/// What each of them was let in the time that is measured, as a part of it.
fn parts(ringers: &[&Ringer]) -> Vec<f64> {
    let before: Vec<_> = ringers.iter().map(|r| r.open()).collect();
    let began = Instant::now();
    std::thread::sleep(MEASURED);
    let took = began.elapsed().as_secs_f64();
    let after = ringers.iter().zip(before);
    after
        .map(|(r, before)| (r.open() - before).as_secs_f64() / took)
        .collect()
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
    os::sleep_ms(200);
    let (woken, faulted) = (wakeups()?, faults()?);
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
    let got = parts(&[&ringer]);
    ringer.end()?;
    drop(policy);
    near("a cap of 0.3", got[0], 0.3)?;
    bell.end()
}

/// The shares of two that ring without end.
fn shares(a: &Ringer, b: &Ringer) -> (f64, f64) {
    let got = parts(&[a, b]);
    let all = got[0] + got[1];
    (got[0] / all, got[1] / all)
}

fn weighted() -> Outcome {
    let (a, b) = (Bell::new("turna")?, Bell::new("turnb")?);
    put("turna/weight", "75")?;
    put("turnb/weight", "25")?;
    let policy = Policy::set("2")?;
    let (ra, rb) = (Ringer::start(&a)?, Ringer::start(&b)?);
    os::sleep_ms(500);
    let (got_a, got_b) = shares(&ra, &rb);
    let switches = status(&a.instance, "compute_windows")?;
    ra.end()?;
    rb.end()?;
    drop(policy);
    near("75 of 100", got_a, 0.75)?;
    near("25 of 100", got_b, 0.25)?;
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
    let (got_a, got_b) = shares(&ra, &rb);
    ra.end()?;
    rb.end()?;
    drop(policy);
    near("3 of 4", got_a, 0.75)?;
    near("1 of 4", got_b, 0.25)?;
    a.end()?;
    b.end()
}
