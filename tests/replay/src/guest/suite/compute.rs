// SPDX-License-Identifier: GPL-2.0
//! The operator's commands about compute time, by the control device and by `/proc/cgpu_km`.

use cgpu_uapi::{mechanism, set, state, Cause, GpuSetCompute, Policy, BURST_OF_GPU};

use super::doorbell::{proc, put, suspend, wait_blocked, wait_for, wait_shut, Bell};
use crate::{
    guest::{
        instance::Instance,
        tools::{at, control, equal, fails, holds, sys, tests, Verdict, GIB, GPU},
        work::{Account, Work},
    },
    sys as os,
};

tests! {
    "compute: policies by number" => policies;
    "compute: what does not fit is refused" => misfits;
    "compute: numbers that mean nothing are refused" => unknown;
    "compute: priority and suspension" => terms;
    "compute: what was given is told" => given;
    "compute: suspend takes it off, resume continues it" => taken_off;
    "compute: channels come and go while it is suspended" => come_and_go;
}

fn policy(policy: Policy) -> impl Fn(&mut GpuSetCompute) {
    move |wish| {
        wish.set = set::POLICY;
        wish.policy = policy.number();
    }
}

fn text(file: &str) -> Result<String, String> {
    Ok(at(file, std::fs::read_to_string(proc(file)))?
        .trim()
        .to_owned())
}

fn policies() -> Verdict {
    let c = control()?;
    for wanted in Policy::ALL {
        sys("set", c.set_gpu_compute(GPU, policy(wanted)))?;
        let found = sys("get", c.gpu_compute(GPU))?.policy;
        equal("policy", &found, &wanted.number())?;
        equal("in /proc", &text("policy")?.as_str(), &wanted.digits())?;
    }
    let all = |wish: &mut GpuSetCompute| {
        wish.set = set::PERIOD | set::MAX_INSTANCES | set::PRIORITY_PERCENT | set::BURST;
        (wish.period, wish.max_instances, wish.priority_percent) = (1, 5, 60);
        wish.burst_ms = 1000;
    };
    sys("set", c.set_gpu_compute(GPU, all))?;
    let gpu = sys("get", c.gpu_compute(GPU))?;
    equal("policy", &gpu.policy, &Policy::Native.number())?;
    equal(
        "the others",
        &(
            gpu.period,
            gpu.max_instances,
            gpu.priority_percent,
            gpu.burst_ms,
        ),
        &(1, 5, 60, 1000),
    )?;
    equal("max_inst", &text("max_inst")?, &"5".to_owned())?;
    equal("prio_ratio", &text("prio_ratio")?, &"60".to_owned())?;
    equal("burst_ms", &text("burst_ms")?, &"1000".to_owned())?;
    holds(
        "a GPU whose doorbells cannot be had",
        gpu.mechanisms & mechanism::DOORBELL != 0,
    )?;
    put("prio_ratio", "80")?;
    put("burst_ms", "200")?;
    put("max_inst", "16")?;
    let period = |wish: &mut GpuSetCompute| wish.set = set::PERIOD;
    sys("set", c.set_gpu_compute(GPU, period))?;
    let status = text("status")?;
    holds(&status, status.contains("period: latency\nmode: native"))
}

fn misfits() -> Verdict {
    let c = control()?;
    let (a, b) = (Instance::new("fita", GIB)?, Instance::new("fitb", GIB)?);
    let _native = Native;
    sys("weight", c.set_weight("fita", GPU, 70))?;
    sys("weight", c.set_weight("fitb", GPU, 31))?;
    let above = Cause::WeightsAboveWhole.errno();
    fails(
        "fixed",
        c.set_gpu_compute(GPU, policy(Policy::Fixed)),
        above,
    )?;
    equal(
        "policy",
        &sys("get", c.gpu_compute(GPU))?.policy,
        &Policy::Native.number(),
    )?;
    sys("weight", c.set_weight("fitb", GPU, 30))?;
    sys("fixed", c.set_gpu_compute(GPU, policy(Policy::Fixed)))?;
    fails("weight", c.set_weight("fitb", GPU, 31), above)?;
    equal("weight", &sys("get", c.get("fitb", GPU))?.weight, &30)?;
    fails("one more", c.create("fitc", GPU, GIB, 1), above)?;
    let fair = |wish: &mut GpuSetCompute| {
        wish.set = set::POLICY | set::MAX_INSTANCES;
        (wish.policy, wish.max_instances) = (Policy::FixedEqual.number(), 1);
    };
    let many = Cause::TooManyForPolicy.errno();
    fails("fair", c.set_gpu_compute(GPU, fair), many)?;
    equal(
        "policy",
        &sys("get", c.gpu_compute(GPU))?.policy,
        &Policy::Fixed.number(),
    )?;
    drop((a, b));
    sys("native", c.set_gpu_compute(GPU, policy(Policy::Native)))
}

fn unknown() -> Verdict {
    let c = control()?;
    let wishes: [fn(&mut GpuSetCompute); 6] = [
        |w| (w.set, w.policy) = (set::POLICY, 6),
        |w| (w.set, w.period) = (set::PERIOD, 3),
        |w| w.set = set::MAX_INSTANCES,
        |w| (w.set, w.max_instances) = (set::MAX_INSTANCES, 65),
        |w| (w.set, w.priority_percent) = (set::PRIORITY_PERCENT, 100),
        |w| (w.set, w.burst_ms) = (set::BURST, 10_001),
    ];
    for wish in wishes {
        let refused = c.set_gpu_compute(GPU, wish);
        fails("an unknown number", refused, Cause::UnknownPolicy.errno())?;
    }
    let wishes: [fn(&mut GpuSetCompute); 3] = [
        |_| {},
        |w| w.set = 1 << 5,
        |w| (w.set, w.period) = (set::POLICY, 1),
    ];
    for wish in wishes {
        let refused = c.set_gpu_compute(GPU, wish);
        fails("malformed", refused, Cause::Malformed.errno())?;
    }
    let elsewhere = c.set_gpu_compute(15, policy(Policy::Native));
    fails("no such GPU", elsewhere, Cause::NoSuchGpu.errno())?;
    let nobody = c.set_compute("nobody", GPU, |wish| wish.set = set::SUSPENDED);
    fails("no such instance", nobody, Cause::NoSuchInstance.errno())?;
    for (file, wrong) in [
        ("policy", "6"),
        ("prio_ratio", "0"),
        ("max_inst", "0"),
        ("burst_ms", "10001"),
    ] {
        holds(file, std::fs::write(proc(file), wrong).is_err())?;
    }
    Ok(())
}

fn terms() -> Verdict {
    let bell = Bell::new("terms")?;
    let c = control()?;
    let state = || Ok::<_, String>(sys("get", c.compute("terms", GPU))?.state);
    sys(
        "high",
        c.set_compute("terms", GPU, |wish| {
            wish.set = set::HIGH_PRIORITY;
            wish.high_priority = 1;
        }),
    )?;
    holds("not of high priority", state()? & state::HIGH_PRIORITY != 0)?;
    equal("highprio", &text("terms/highprio")?, &"1".to_owned())?;
    put("terms/highprio", "0")?;
    let burst = |burst_ms| {
        sys(
            "burst",
            c.set_compute("terms", GPU, |wish| {
                (wish.set, wish.burst_ms) = (set::INSTANCE_BURST, burst_ms);
            }),
        )?;
        equal(
            "burst",
            &sys("get", c.compute("terms", GPU))?.burst_ms,
            &burst_ms,
        )
    };
    burst(30)?;
    holds(
        "the burst is shown",
        text("terms/status")?.contains("compute_burst_ms: 30\n"),
    )?;
    burst(BURST_OF_GPU)?;
    holds("of high priority", state()? & state::HIGH_PRIORITY == 0)?;
    sys(
        "suspend",
        c.set_compute("terms", GPU, |wish| {
            wish.set = set::SUSPENDED;
            wish.suspended = 1;
        }),
    )?;
    holds("not suspended", state()? & state::SUSPENDED != 0)?;
    wait_shut(&bell.instance)?;
    let child = bell.ringer(7)?;
    wait_blocked(&bell.instance, 1)?;
    equal(
        "tasks",
        &sys("get", c.compute("terms", GPU))?.blocked_tasks,
        &1,
    )?;
    os::sleep_ms(50);
    equal("rung while suspended", &bell.direct.rung(), &0)?;
    sys(
        "resume",
        c.set_compute("terms", GPU, |wish| wish.set = set::SUSPENDED),
    )?;
    equal("ended", &sys("wait", os::wait(child))?, &0)?;
    equal("rung", &bell.direct.rung(), &7)?;
    let blocked = sys("get", c.compute("terms", GPU))?.blocked_ns;
    holds(&format!("blocked for {blocked} ns"), blocked >= 50_000_000)?;
    bell.end()
}

/// Has the GPU left to the driver again when this goes, however the test ends.
struct Native;

impl Drop for Native {
    fn drop(&mut self) {
        if let Ok(control) = control() {
            let _ = control.set_gpu_compute(GPU, policy(Policy::Native));
        }
    }
}

/// An instance alone is given all the time; under the policy native nobody knows.
fn given() -> Verdict {
    let bell = Bell::new("given")?;
    let c = control()?;
    bell.ring(1);
    equal(
        "given",
        &sys("get", c.compute("given", GPU))?.gpu_time_ns,
        &0,
    )?;
    let _native = Native;
    sys("weight", c.set_gpu_compute(GPU, policy(Policy::Weight)))?;
    // A ring before the doorbell is armed, which a thread does, is one that nobody hears of.
    wait_for("it is heard", || {
        bell.ring(2);
        Ok(sys("get", c.compute("given", GPU))?.state & state::WORKING != 0)
    })?;
    // The GPU's two moments are outside those of the instance.
    let gpu = sys("get", c.gpu_compute(GPU))?;
    let before = sys("get", c.compute("given", GPU))?;
    os::sleep_ms(200);
    let after = sys("get", c.compute("given", GPU))?;
    let later = sys("get", c.gpu_compute(GPU))?;
    sys("native", c.set_gpu_compute(GPU, policy(Policy::Native)))?;
    equal("mode", &later.mode, &1)?;
    let took = later.now_ns - gpu.now_ns;
    let got = after.gpu_time_ns - before.gpu_time_ns;
    let wanted = 190_000_000..=took + 100_000_000;
    holds(&format!("{got} of {took} ns"), wanted.contains(&got))?;
    bell.end()
}

/// A kernel of this length is not over before somebody is suspended, even on this slow machine.
const LONG: u64 = 10_000_000_000;

fn wait_account(what: &str, work: &Work, wanted: impl Fn(&Account) -> bool) -> Verdict {
    wait_for(what, || work.account().map(|account| wanted(&account)))
}

/// The driver's own interface is there, and takes a kernel off the GPU that runs already.
fn taken_off() -> Verdict {
    let instance = Instance::new("offgpu", GIB)?;
    let gpu = sys("get", control()?.gpu_compute(GPU))?;
    let wanted = mechanism::SWITCH | mechanism::TIMESLICE | mechanism::PREEMPT;
    let wanted = wanted | mechanism::DOORBELL | mechanism::SAMPLES;
    equal("mechanisms", &(gpu.mechanisms & wanted), &wanted)?;
    let work = Work::new(&instance)?;
    at("launch", work.launch(LONG, 1, 0))?;
    suspend(&instance, true)?;
    wait_account("off", &work, |account| account.off == 1)?;
    let before = work.account()?;
    holds("it was over before", before.finished == 0)?;
    os::sleep_ms(100);
    equal("nothing runs", &work.account()?, &before)?;
    suspend(&instance, false)?;
    wait_account("on again", &work, |account| account.off == 0)?;
    wait_account("finished", &work, |account| account.finished == 1)?;
    equal("ran", &work.account()?.ran, &LONG)?;
    work.close()
}

fn come_and_go() -> Verdict {
    let instance = Instance::new("offmore", GIB)?;
    let work = Work::new(&instance)?;
    suspend(&instance, true)?;
    wait_account("off", &work, |account| account.off == 1)?;
    work.another_channel()?;
    wait_account("both off", &work, |account| account.off == 2)?;
    work.free_channel()?;
    equal("channels", &work.account()?.channels, &1)?;
    suspend(&instance, false)?;
    wait_account("on again", &work, |account| account.off == 0)?;
    // With all that it has, while it is off.
    suspend(&instance, true)?;
    wait_account("off again", &work, |account| account.off == 1)?;
    work.close()
}
