// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The families about compute time.

use super::{Kind, Page};
use cgpu_uapi::{state, GpuCompute, InstanceCompute, Mode, Period, Policy};

/// What the module tells of compute time.
#[derive(Default)]
pub struct Compute {
    /// Of each GPU.
    pub gpus: Vec<GpuCompute>,
    /// Of each instance.
    pub instances: Vec<InstanceCompute>,
}

type Of<T> = (&'static str, Kind, &'static str, fn(&T) -> f64);

const GPU: [Of<GpuCompute>; 2] = [
    (
        "cgpu_gpu_compute_switches_total",
        Kind::Counter,
        "Changes from one instance's window to another's.",
        |g| g.switches as f64,
    ),
    (
        "cgpu_gpu_compute_calls_total",
        Kind::Counter,
        "Calls into the driver that the scheduler made.",
        |g| g.calls as f64,
    ),
];

const INSTANCE: [Of<InstanceCompute>; 7] = [
    (
        "cgpu_instance_compute_given_seconds_total",
        Kind::Counter,
        "Time that the instance had the GPU; nothing is added under the policy native.",
        |i| seconds(i.gpu_time_ns),
    ),
    (
        "cgpu_instance_compute_parked_seconds_total",
        Kind::Counter,
        "Time that a task of the instance slept at its doorbell.",
        |i| seconds(i.blocked_ns),
    ),
    (
        "cgpu_instance_compute_windows_total",
        Kind::Counter,
        "Windows and slices that the instance had.",
        |i| i.windows as f64,
    ),
    (
        "cgpu_instance_compute_preemptions_total",
        Kind::Counter,
        "Times that the instance was switched off with work.",
        |i| i.preemptions as f64,
    ),
    (
        "cgpu_instance_compute_parked_tasks",
        Kind::Gauge,
        "Tasks that sleep at the instance's doorbell.",
        |i| f64::from(i.blocked_tasks),
    ),
    (
        "cgpu_instance_compute_high_priority",
        Kind::Gauge,
        "1: of high priority.",
        |i| is(i, state::HIGH_PRIORITY),
    ),
    (
        "cgpu_instance_compute_suspended",
        Kind::Gauge,
        "1: kept off the GPU by the operator.",
        |i| is(i, state::SUSPENDED),
    ),
];

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

fn is(instance: &InstanceCompute, bit: u32) -> f64 {
    f64::from(u8::from(instance.state & bit != 0))
}

impl Compute {
    pub(super) fn tell(&self, page: &mut Page) {
        const INFO: &str = "cgpu_gpu_compute_info";
        let help =
            "How the GPU's compute time is shared: policy, base period, and by what at the moment.";
        page.family(INFO, Kind::Gauge, help);
        for gpu in &self.gpus {
            let minor = gpu.minor.to_string();
            let labels = [
                ("gpu", minor.as_str()),
                ("policy", Policy::name_of(gpu.policy)),
                ("period", Period::name_of(gpu.period)),
                ("mode", Mode::name_of(gpu.mode)),
            ];
            page.sample(INFO, &labels, 1);
        }
        for (name, kind, help, value) in &GPU {
            page.family(name, *kind, help);
            for gpu in &self.gpus {
                let minor = gpu.minor.to_string();
                page.sample(name, &[("gpu", minor.as_str())], value(gpu));
            }
        }
        for (name, kind, help, value) in &INSTANCE {
            page.family(name, *kind, help);
            for instance in &self.instances {
                let minor = instance.key.gpu_minor.to_string();
                let name_of = instance.key.name.as_str().unwrap_or_default();
                let labels = [("instance", name_of), ("gpu", minor.as_str())];
                page.sample(name, &labels, value(instance));
            }
        }
    }
}
