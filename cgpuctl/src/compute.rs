// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Compute time: its JSON objects, and its words for people.

use crate::json::{object, InstanceId};
use cgpu_uapi::{self as uapi, set, state, Mode, Period, Policy};

/// How a GPU is shared: a line of 80 columns at most.
pub fn compute_line(gpu: &uapi::GpuCompute) -> String {
    format!(
        "GPU {}: policy {}, period {}, {}",
        gpu.minor,
        Policy::name_of(gpu.policy),
        Period::name_of(gpu.period),
        sharing(gpu),
    )
}

/// How a GPU is shared at the moment.
pub fn sharing(gpu: &uapi::GpuCompute) -> &'static str {
    match Mode::from_number(gpu.mode) {
        Some(Mode::Native) => "left to the driver",
        Some(Mode::Free) => "no instance held back",
        Some(Mode::Slices) => "shared by time slices",
        Some(Mode::Windows) => "shared by windows",
        None => "shared in an unknown way",
    }
}

/// The mechanisms that the scheduler can use on a GPU.
fn mechanisms(bits: u32) -> Vec<&'static str> {
    let there = uapi::mechanism::NAMES
        .iter()
        .filter(|(bit, _)| bits & bit != 0);
    there.map(|(_, name)| *name).collect()
}

/// The word for an instance's state.
pub fn doing(bits: u32) -> &'static str {
    if bits & state::SUSPENDED != 0 {
        "suspended"
    } else if bits & state::WORKING == 0 {
        "idle"
    } else if bits & state::RUNNING != 0 {
        "running"
    } else {
        "waiting"
    }
}

/// The rules beside the policy that a GPU has from the start: percent for high priority, burst in
/// milliseconds (`Rules::DEFAULT`, `cgpu_km/policy/sched/rules.rs`).
const PRIORITY_PERCENT: u32 = 80;
const BURST_MS: u32 = 200;

/// Whether the rules of a GPU are those that it has from the start.
pub fn has_default_rules(gpu: &uapi::GpuCompute) -> bool {
    let numbers = (gpu.max_instances, gpu.priority_percent, gpu.burst_ms);
    gpu.policy == Policy::Native.number()
        && gpu.period == Period::Latency.number()
        && numbers == (16, PRIORITY_PERCENT, BURST_MS)
}

/// The names of the rules that a request sets to other values than those from the start, without
/// the policy and `max_instances`, which is about limits too.
pub fn named_rules(request: &uapi::GpuSetCompute) -> Vec<&'static str> {
    let rules = [
        (
            set::PERIOD,
            "period",
            request.period,
            Period::Latency.number(),
        ),
        (
            set::PRIORITY_PERCENT,
            "priority_percent",
            request.priority_percent,
            PRIORITY_PERCENT,
        ),
        (set::BURST, "burst", request.burst_ms, BURST_MS),
    ];
    let named = rules
        .into_iter()
        .filter(|(bit, _, value, default)| request.set & bit != 0 && value != default);
    named.map(|(_, name, ..)| name).collect()
}

/// An instance's own burst; `None`: that of its GPU.
pub fn own_burst(burst_ms: u32) -> Option<u32> {
    (burst_ms != uapi::BURST_OF_GPU).then_some(burst_ms)
}

/// A length of time, for people.
pub fn seconds(ns: u64) -> String {
    format!("{:.1} s", ns as f64 / 1e9)
}

object! {
    /// The GPU time of an instance since it was made.
    pub struct InstanceCompute of i: &uapi::InstanceCompute {
        #[serde(flatten)]
        id: InstanceId = InstanceId::new(&i.key, i.id),
        high_priority: bool = i.state & state::HIGH_PRIORITY != 0,
        suspended: bool = i.state & state::SUSPENDED != 0,
        working: bool = i.state & state::WORKING != 0,
        gpu_time_ns: u64 = i.gpu_time_ns,
        window_count: u64 = i.windows,
        preemption_count: u64 = i.preemptions,
        blocked_ns: u64 = i.blocked_ns,
        blocked_task_count: u32 = i.blocked_tasks,
        owed_ns: u64 = i.owed_ns,
        burst_ms: Option<u32> = own_burst(i.burst_ms),
    }
}

object! {
    /// How the compute time of a GPU is shared.
    pub struct GpuCompute of gpu: &uapi::GpuCompute {
        minor: u32 = gpu.minor,
        policy: u32 = gpu.policy,
        policy_name: &'static str = Policy::name_of(gpu.policy),
        period: &'static str = Period::name_of(gpu.period),
        mode: &'static str = Mode::name_of(gpu.mode),
        max_instances: u32 = gpu.max_instances,
        priority_percent: u32 = gpu.priority_percent,
        burst_ms: u32 = gpu.burst_ms,
        mechanisms: Vec<&'static str> = mechanisms(gpu.mechanisms),
        switch_count: u64 = gpu.switches,
        call_count: u64 = gpu.calls,
    }
}
