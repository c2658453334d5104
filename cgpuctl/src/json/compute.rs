// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Compute time: its documents, and the words for it.

use super::InstanceId;
use cgpu_uapi::{self as uapi, state, Mode, Period, Policy, Priority};
use serde::Serialize;

/// One line on how a GPU is shared.
pub fn compute_line(gpu: &uapi::GpuCompute) -> String {
    format!(
        "GPU {}: policy {} {}, period {}, {}; means: {}",
        gpu.minor,
        gpu.policy,
        Policy::name_of(gpu.policy),
        Period::name_of(gpu.period),
        match gpu.mode {
            0 => "left to the driver",
            1 => "nobody held back",
            2 => "shared by time slices",
            3 => "shared by windows",
            _ => "shared in an unknown way",
        },
        mechanisms(gpu.mechanisms).join(" "),
    )
}

/// The mechanisms that the scheduler can use on a GPU.
fn mechanisms(bits: u32) -> Vec<&'static str> {
    let there = uapi::mechanism::NAMES
        .iter()
        .filter(|(bit, _)| bits & bit != 0);
    there.map(|(_, name)| *name).collect()
}

/// The priority in an instance's state.
pub fn priority(bits: u32) -> Priority {
    if bits & state::HIGH_PRIORITY != 0 {
        Priority::High
    } else {
        Priority::Normal
    }
}

/// What an instance does, by its state.
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

/// A length of time, for people.
pub fn seconds(ns: u64) -> String {
    format!("{:.1} s", ns as f64 / 1e9)
}

/// What an instance was given since it was made.
#[derive(Serialize)]
pub struct InstanceCompute {
    /// Which.
    #[serde(flatten)]
    pub id: InstanceId,
    high_priority: bool,
    suspended: bool,
    working: bool,
    given_ns: u64,
    window_count: u64,
    preemption_count: u64,
    parked_ns: u64,
    parked_task_count: u32,
}

impl From<&uapi::InstanceCompute> for InstanceCompute {
    fn from(compute: &uapi::InstanceCompute) -> Self {
        let is = |bit| compute.state & bit != 0;
        Self {
            id: InstanceId::new(&compute.key, compute.id),
            high_priority: is(state::HIGH_PRIORITY),
            suspended: is(state::SUSPENDED),
            working: is(state::WORKING),
            given_ns: compute.gpu_time_ns,
            window_count: compute.windows,
            preemption_count: compute.preemptions,
            parked_ns: compute.blocked_ns,
            parked_task_count: compute.blocked_tasks,
        }
    }
}

/// In `status`.
#[derive(Serialize)]
pub struct Compute {
    /// By minor.
    pub gpus: Vec<GpuCompute>,
    /// By name and GPU.
    pub instances: Vec<InstanceCompute>,
}

/// How the compute time of a GPU is shared.
#[derive(Serialize)]
pub struct GpuCompute {
    minor: u32,
    policy: u32,
    policy_name: &'static str,
    period: &'static str,
    mode: &'static str,
    max_instances: u32,
    priority_percent: u32,
    means: Vec<&'static str>,
    switch_count: u64,
    call_count: u64,
}

impl From<&uapi::GpuCompute> for GpuCompute {
    fn from(gpu: &uapi::GpuCompute) -> Self {
        Self {
            minor: gpu.minor,
            policy: gpu.policy,
            policy_name: Policy::name_of(gpu.policy),
            period: Period::name_of(gpu.period),
            mode: Mode::name_of(gpu.mode),
            max_instances: gpu.max_instances,
            priority_percent: gpu.priority_percent,
            means: mechanisms(gpu.mechanisms),
            switch_count: gpu.switches,
            call_count: gpu.calls,
        }
    }
}

/// `gpu set-policy`.
#[derive(Serialize)]
pub struct PolicySet {
    /// As it is now.
    #[serde(flatten)]
    pub gpu: GpuCompute,
    /// The policy before.
    pub previous_policy: u32,
    /// Its name.
    pub previous_policy_name: &'static str,
}

/// `inst set-priority`.
#[derive(Serialize)]
pub struct PrioritySet {
    /// In the order of the command line.
    pub instances: Vec<PrioritySetInstance>,
}

/// An instance whose priority was set.
#[derive(Serialize)]
pub struct PrioritySetInstance {
    /// Which.
    #[serde(flatten)]
    pub id: InstanceId,
    /// Whether it is high now.
    pub high_priority: bool,
}

/// `inst suspend`, `inst resume`.
#[derive(Serialize)]
pub struct SuspendedSet {
    /// In the order of the command line.
    pub instances: Vec<SuspendedSetInstance>,
}

/// An instance that was suspended or resumed.
#[derive(Serialize)]
pub struct SuspendedSetInstance {
    /// Which.
    #[serde(flatten)]
    pub id: InstanceId,
    /// Whether it is kept off the GPU now.
    pub suspended: bool,
}

/// `top`: one reading.
#[derive(Serialize)]
pub struct Top {
    /// By minor.
    pub gpus: Vec<GpuCompute>,
    /// By name and GPU.
    pub instances: Vec<TopInstance>,
}

/// An instance in `top`.
#[derive(Serialize)]
pub struct TopInstance {
    /// What it was given.
    #[serde(flatten)]
    pub compute: InstanceCompute,
    /// Its weight.
    pub weight: u32,
    /// Of the time between two readings, the part in which it had the GPU; `null` under the policy
    /// `native`, where nobody knows.
    pub share: Option<f64>,
    /// Charged to it.
    pub memory_used_bytes: u64,
    /// Its limit.
    pub memory_limit_bytes: u64,
}
