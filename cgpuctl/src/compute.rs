// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Compute time: its JSON objects, and its words for people.

use crate::json::InstanceId;
use cgpu_uapi::{self as uapi, state, Mode, Period, Policy};
use serde::Serialize;

/// One line on how a GPU is shared.
pub fn compute_line(gpu: &uapi::GpuCompute) -> String {
    format!(
        "GPU {}: policy {} {}, period {}, {}; mechanisms: {}",
        gpu.minor,
        gpu.policy,
        Policy::name_of(gpu.policy),
        Period::name_of(gpu.period),
        match Mode::from_number(gpu.mode) {
            Some(Mode::Native) => "left to the driver",
            Some(Mode::Free) => "no instance held back",
            Some(Mode::Slices) => "shared by time slices",
            Some(Mode::Windows) => "shared by windows",
            None => "shared in an unknown way",
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

/// A length of time, for people.
pub fn seconds(ns: u64) -> String {
    format!("{:.1} s", ns as f64 / 1e9)
}

/// The GPU time of an instance since it was made.
#[derive(Serialize)]
pub struct InstanceCompute {
    /// Which.
    #[serde(flatten)]
    pub id: InstanceId,
    high_priority: bool,
    suspended: bool,
    working: bool,
    gpu_time_ns: u64,
    window_count: u64,
    preemption_count: u64,
    blocked_ns: u64,
    blocked_task_count: u32,
    #[serde(flatten)]
    deprecated: OldInstanceKeys,
}

/// Keys that have other names now.
#[derive(Serialize)]
struct OldInstanceKeys {
    given_ns: u64,
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
            gpu_time_ns: compute.gpu_time_ns,
            window_count: compute.windows,
            preemption_count: compute.preemptions,
            blocked_ns: compute.blocked_ns,
            blocked_task_count: compute.blocked_tasks,
            deprecated: OldInstanceKeys {
                given_ns: compute.gpu_time_ns,
                parked_ns: compute.blocked_ns,
                parked_task_count: compute.blocked_tasks,
            },
        }
    }
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
    mechanisms: Vec<&'static str>,
    /// Deprecated: the same as `mechanisms`.
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
            mechanisms: mechanisms(gpu.mechanisms),
            means: mechanisms(gpu.mechanisms),
            switch_count: gpu.switches,
            call_count: gpu.calls,
        }
    }
}
