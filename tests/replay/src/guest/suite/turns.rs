// SPDX-License-Identifier: GPL-2.0
//! The GPU in turns: that they are taken where they are needed, and that nothing happens where they
//! are not.

use super::doorbell::{faults, proc, put, put_policy, status, wait_for, Bell};
use crate::{
    guest::{
        instance::Instance,
        process::spawn,
        tools::{at, equal, sys, Test, Verdict, GIB, GPU},
        work::Work,
    },
    sys as os,
};
use cgpu_uapi::Policy;

pub(super) const TESTS: &[Test] = &[
    ("turns: who is alone wakes nobody", quiet),
    ("turns: a cap holds up and lets go on", let_go),
];

/// The policy of the GPU, put back when this goes.
pub(in crate::guest) struct PolicySet(String);

impl PolicySet {
    pub(in crate::guest) fn set(policy: Policy) -> Result<Self, String> {
        let before = at("policy", std::fs::read_to_string(proc("policy")))?;
        put_policy(policy)?;
        Ok(Self(before.trim().to_owned()))
    }
}

impl Drop for PolicySet {
    fn drop(&mut self) {
        // It was the policy before, so it is one.
        let _ = put("policy", &self.0);
    }
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

/// Under a policy that shares: one program that rings all the time, and an instance that does
/// nothing.
fn quiet() -> Verdict {
    let bell = Bell::new("turnquiet")?;
    let idle = Instance::new("turnidle", GIB)?;
    let policy = PolicySet::set(Policy::Weight)?;
    // The work for the policy and the first ring after it.
    let mut woken = 0;
    wait_for("it is quiet", || {
        let before = core::mem::replace(&mut woken, wakeups()?);
        bell.ring(1);
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

/// A fixed part for a program that is alone, whose channel is switched off and on; then none.
fn let_go() -> Verdict {
    let instance = Instance::new("turnoff", GIB)?;
    put("turnoff/weight", "30")?;
    let work = Work::new(&instance)?;
    let policy = PolicySet::set(Policy::Fixed)?;
    let child = spawn(|| {
        while work.launch(1_000_000, 1, 4).is_ok() {}
        1
    });
    let child = sys("fork", child)?;
    let windows = || status(&instance, "compute_windows");
    let result = wait_for("windows and preemptions", || {
        Ok(windows()? >= 5 && status(&instance, "compute_preemptions")? >= 5)
    });
    equal(
        "times blocked",
        &status(&instance, "compute_blocked_count")?,
        &0,
    )?;
    drop(policy);
    result?;
    // Without a cap it is let alone again.
    wait_for("on", || Ok(work.account()?.off == 0))?;
    let (before, finished) = (windows()?, work.account()?.finished);
    wait_for("more work", || Ok(work.account()?.finished > finished + 5))?;
    equal("windows without a cap", &windows()?, &before)?;
    sys("kill", os::kill(child, libc::SIGKILL))?;
    sys("wait", os::wait(child))?;
    work.close()
}
