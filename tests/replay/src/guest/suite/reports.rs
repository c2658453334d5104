// SPDX-License-Identifier: GPL-2.0
//! Reports about all instances, and changes of one, beside a tenant whose lock is kept.

use std::{
    fs,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    thread,
    time::{Duration, Instant},
};

use super::clients::stay_on;
use crate::{
    guest::{
        instance::Instance,
        rm,
        tools::{holds, open_node, sys, tests, Verdict, GIB},
    },
    sys as os,
};

tests! {
    "reports: lists wait for no tenant" => lists;
    "reports: a neighbour's limit waits for no tenant" => limits;
}

/// How often it is tried to have the lock kept, and how often it is to be.
const TRIES: u32 = 300;
const WANTED: u32 = 3;
/// So long a task of realtime priority keeps the processor of the tenant's program.
const KEPT: Duration = Duration::from_millis(150);
/// A call that takes longer has waited for the tenant.
const SLOW: Duration = Duration::from_millis(100);
const MOST_SLOW: u32 = 10;

/// A client that there is not.
const NOBODY: u32 = 0xc1d0_0fff;

/// The kernel's file of how it preempts tasks in calls (`PREEMPT_DYNAMIC`). It lists all ways, the
/// present one in parentheses.
const PREEMPTION: &str = "/sys/kernel/debug/sched/preempt";

/// Tasks in calls are preempted, also by a kernel that does not do so by itself, such as 6.1. Until
/// this is dropped.
struct Preempted(String);

impl Preempted {
    fn fully() -> Self {
        let ways = fs::read_to_string(PREEMPTION).unwrap_or_default();
        let present = ways.split(['(', ')']).nth(1).unwrap_or_default();
        // A kernel without the file does it always, or the test says that no lock was kept.
        let _ = fs::write(PREEMPTION, "full");
        Self(present.to_owned())
    }
}

impl Drop for Preempted {
    fn drop(&mut self) {
        let _ = fs::write(PREEMPTION, &self.0);
    }
}

/// The threads of the test.
struct KeptLock {
    done: AtomicBool,
    busy: AtomicBool,
}

impl KeptLock {
    /// Calls that the module refuses: each takes the tenant's lock, and nothing else takes long.
    fn refused_calls(&self, ctl: i32) {
        stay_on(1);
        while !self.done.load(Relaxed) {
            let _ = rm::control(ctl, NOBODY, NOBODY, 0x2080_0110, &mut []);
        }
    }

    /// Takes the processor of those calls when it is told to.
    fn keep_the_processor(&self) {
        stay_on(1);
        os::be_realtime();
        while !self.done.load(Relaxed) {
            let until = Instant::now() + KEPT;
            while self.busy.load(Relaxed) && Instant::now() < until {
                std::hint::spin_loop();
            }
            self.busy.store(false, Relaxed);
            os::sleep_ms(1);
        }
    }

    /// How long the lists take beside the busy task, and whether the lock was kept meanwhile: then
    /// what is asked of the instance itself waits.
    fn lists(&self, kept: &Instance) -> Result<(Duration, bool), String> {
        self.beside_busy_task(kept, || {
            sys("instances", kept.control.instances())?;
            sys("gpus", kept.control.gpus())
        })
    }

    /// The same for a limit of another instance, while the instance's own is to be changed.
    fn limits(&self, kept: &Instance, other: &Instance) -> Result<(Duration, bool), String> {
        thread::scope(|scope| {
            self.beside_busy_task(kept, || {
                scope.spawn(|| kept.set_memory(GIB));
                os::sleep_ms(5);
                other.set_memory(GIB)
            })
        })
    }

    fn beside_busy_task<T>(
        &self,
        kept: &Instance,
        work: impl FnOnce() -> Result<T, String>,
    ) -> Result<(Duration, bool), String> {
        self.busy.store(true, Relaxed);
        os::sleep_ms(10);
        let began = Instant::now();
        work()?;
        let took = began.elapsed();
        kept.get()?;
        let waited = began.elapsed().saturating_sub(took);
        while self.busy.load(Relaxed) {
            os::sleep_ms(1);
        }
        Ok((took, waited > SLOW / 4))
    }
}

fn lists() -> Verdict {
    let kept = Instance::new("kept", GIB)?;
    beside_kept_lock(&kept, |beside| beside.lists(&kept))
}

fn limits() -> Verdict {
    let (kept, other) = (Instance::new("kept", GIB)?, Instance::new("other", GIB)?);
    beside_kept_lock(&kept, |beside| beside.limits(&kept, &other))
}

/// Makes reports beside a tenant whose lock is kept, until that was so often enough.
fn beside_kept_lock(
    kept: &Instance,
    report: impl Fn(&KeptLock) -> Result<(Duration, bool), String>,
) -> Verdict {
    let _preempted = Preempted::fully();
    let ctl = open_node(&kept.folder(), "nvidiactl")?;
    let beside = KeptLock {
        done: AtomicBool::new(false),
        busy: AtomicBool::new(false),
    };
    let seen = thread::scope(|scope| {
        scope.spawn(|| beside.refused_calls(ctl));
        scope.spawn(|| beside.keep_the_processor());
        stay_on(0);
        let looked = look(|| report(&beside));
        beside.done.store(true, Relaxed);
        looked
    });
    sys("close", os::close(ctl))?;
    seen
}

/// With a call that waits, the lock is never kept any more when the call has come.
fn look(report: impl Fn() -> Result<(Duration, bool), String>) -> Verdict {
    let (mut times, mut slow) = (0, 0);
    for _ in 0..TRIES {
        let (took, was_kept) = report()?;
        // One may be slow for another reason.
        slow += u32::from(took > SLOW);
        times += u32::from(was_kept && took <= SLOW);
        if times == WANTED {
            return Ok(());
        }
        holds(&format!("{slow} calls were slow"), slow < MOST_SLOW)?;
    }
    Err(format!(
        "the lock was kept {times} times, {slow} calls were slow"
    ))
}
