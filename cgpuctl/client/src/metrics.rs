// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The figures of a host in the text format of Prometheus, version 0.0.4: families of samples with
//! their help and type, and labels that tell instances and GPUs apart.
//!
//! To add a figure: a row in one of the tables.

use crate::{control::Control, text::known};
use cgpu_uapi::{
    state, text, Cause, Gpu, GpuCompute, Instance, InstanceCompute, InstanceKey, InstanceLimit,
    Limited, Mode, Period, Policy, Version,
};
use nix::errno::Errno;
use std::fmt::{Display, Write};

/// The text's `Content-Type` in HTTP.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The module's records, of which the figures are made.
pub struct Figures {
    /// Versions.
    pub version: Version,
    /// The GPUs; none while the driver is away.
    pub gpus: Vec<Gpu>,
    /// The instances.
    pub instances: Vec<Instance>,
    /// The limits of each instance beside those of memory and channels.
    pub limits: Vec<OneLimit>,
    /// How each GPU is shared.
    pub gpu_compute: Vec<GpuCompute>,
    /// The GPU time of each instance.
    pub instance_compute: Vec<InstanceCompute>,
}

/// A limit of an instance.
pub struct OneLimit {
    /// The instance that has the limit.
    pub key: InstanceKey,
    /// The resource, its limit, and what counts against it.
    pub limit: InstanceLimit,
}

/// The limits of some instances. One that is destroyed meanwhile has none.
pub fn limits_of(control: &dyn Control, instances: &[Instance]) -> Result<Vec<OneLimit>, Errno> {
    let mut all = Vec::new();
    for Instance { key, .. } in instances {
        match control.limits(key) {
            Err(errno) if errno == Errno::from_raw(Cause::NoSuchInstance.errno()) => {}
            limits => all.extend(
                limits?
                    .into_iter()
                    .map(|limit| OneLimit { key: *key, limit }),
            ),
        }
    }
    Ok(all)
}

/// Memory of an instance that counts against its limit: what `nvidia-smi` shows in the container.
pub fn charged(i: &Instance) -> u64 {
    let parts = [
        i.memory_used_bytes,
        i.memory_overhead_bytes,
        i.memory_managed_bytes,
    ];
    parts.into_iter().fold(0, u64::saturating_add)
}

/// The figures as a page of text.
pub fn text_of(figures: &Figures) -> String {
    MetricsPage::of(figures, &|_| vec![]).text()
}

/// Labels of an instance.
fn labels_of(key: &InstanceKey) -> Labels {
    let name = key.name.as_str().unwrap_or_default();
    vec![
        ("instance", name.to_owned()),
        ("gpu", key.gpu_minor.to_string()),
    ]
}

/// A further label, if it takes one, and the value.
type Sample<T> = (&'static [(&'static str, &'static str)], fn(&T) -> f64);

/// Samples of one name.
struct Family<T: 'static> {
    name: &'static str,
    help: &'static str,
    samples: &'static [Sample<T>],
}

/// Declares families of samples of a record: `name: "help", label=word |record| value, ..;`.
macro_rules! families {
    ($table:ident of $record:ty; $($name:ident: $help:literal,
        $($($key:ident=$word:ident)? |$of:tt| $value:expr),+;)*) => {
        const $table: &[Family<$record>] = &[$(Family {
            name: stringify!($name),
            help: $help,
            samples: &[$((&[$((stringify!($key), stringify!($word)))?], |$of| $value)),+],
        }),*];
    };
}

families! { GPU of Gpu;
    cgpu_gpu_memory_bytes: "Memory of the GPU.",
        |g| g.memory_bytes as f64;
    cgpu_gpu_memory_allotted_bytes: "Sum of the limits of the GPU's instances.",
        |g| g.allotted_bytes as f64;
    cgpu_gpu_memory_used_bytes: "Memory of the GPU that counts for its instances: objects, contexts and managed memory.",
        |g| g.used_bytes as f64;
    cgpu_gpu_instances: "Instances on the GPU.",
        |g| f64::from(g.instances);
}

families! { INSTANCE of Instance;
    cgpu_instance_memory_limit_bytes: "Memory limit.",
        |i| i.memory_limit_bytes as f64;
    cgpu_instance_memory_charged_bytes: "All memory that counts against the limit, as nvidia-smi in the container shows it.",
        |i| charged(i) as f64;
    cgpu_instance_memory_used_bytes: "Memory charged for the programs' objects alone, a part of what is charged.",
        |i| i.memory_used_bytes as f64;
    cgpu_instance_memory_overhead_bytes: "Memory charged for CUDA contexts and page tables, beside the objects.",
        |i| i.memory_overhead_bytes as f64;
    cgpu_instance_memory_managed_bytes: "Managed memory that the GPU may hold, charged beside the objects.",
        |i| i.memory_managed_bytes as f64;
    cgpu_instance_memory_spilled_bytes: "Managed memory that did not fit and is in host memory.",
        |i| i.memory_spilled_bytes as f64;
    cgpu_instance_memory_reserved_bytes: "Memory reserved by allocations in flight.",
        |i| i.memory_reserved_bytes as f64;
    cgpu_instance_memory_peak_bytes: "Highest memory charged for objects so far.",
        |i| i.memory_peak_bytes as f64;
    cgpu_instance_refused_total: "Refused: allocations for want of memory, channels, calls that no table allows.",
        kind=memory |i| i.memory_refused as f64,
        kind=channel |i| f64::from(i.channels_refused),
        kind=call |i| i.calls_refused as f64;
    cgpu_instance_channel_limit: "Most channels, and most groups of them, on a runlist.",
        |i| f64::from(i.channel_limit);
    cgpu_instance_channels: "Channels, or groups of them if those are more, on the fullest runlist.",
        |i| f64::from(i.channels);
    cgpu_instance_weight: "Weight, 1 to 100.",
        |i| f64::from(i.weight);
    cgpu_instance_processes: "Processes that hold memory.",
        |i| f64::from(i.processes);
    cgpu_instance_open_files: "Open files: of the instance's GPU node, of the tenant's control and UVM nodes.",
        node=gpu |i| f64::from(i.open_files),
        node=tenant |i| f64::from(i.tenant_open_files);
}

families! { LIMIT of OneLimit;
    cgpu_instance_limit: "Most that the instance may have of a thing.",
        |l| l.limit.limit as f64;
    cgpu_instance_limit_used: "What counts against that.",
        |l| l.limit.used as f64;
    cgpu_instance_limit_refused_total: "How often more was refused.",
        |l| l.limit.refused as f64;
}

families! { GPU_COMPUTE_INFO of GpuCompute;
    cgpu_gpu_compute_info: "How the GPU's compute time is shared: policy, base period, and by what at the moment.",
        |_| 1.0;
}

families! { GPU_COMPUTE of GpuCompute;
    cgpu_gpu_compute_switches_total: "Changes from one instance's window to another's.",
        |g| g.switches as f64;
    cgpu_gpu_compute_calls_total: "Calls into the driver that the scheduler made.",
        |g| g.calls as f64;
    cgpu_gpu_compute_burst_seconds: "Most GPU time that an instance without a burst of its own is owed.",
        |g| f64::from(g.burst_ms) / 1e3;
}

families! { INSTANCE_COMPUTE of InstanceCompute;
    cgpu_instance_compute_gpu_time_seconds_total: "GPU time of the instance; nothing is added under the policy native.",
        |i| seconds(i.gpu_time_ns);
    cgpu_instance_compute_blocked_seconds_total: "Time that a task of the instance was blocked at its doorbell.",
        |i| seconds(i.blocked_ns);
    cgpu_instance_compute_windows_total: "Windows and slices that the instance had.",
        |i| i.windows as f64;
    cgpu_instance_compute_preemptions_total: "Times that the instance was switched off with work.",
        |i| i.preemptions as f64;
    cgpu_instance_compute_blocked_tasks: "Tasks that are blocked at the instance's doorbell.",
        |i| f64::from(i.blocked_tasks);
    cgpu_instance_compute_owed_seconds: "GPU time that the instance is owed because it left its share to others.",
        |i| seconds(i.owed_ns);
    cgpu_instance_compute_high_priority: "1: of high priority.",
        |i| is(i, state::HIGH_PRIORITY);
    cgpu_instance_compute_suspended: "1: kept off the GPU by the operator.",
        |i| is(i, state::SUSPENDED);
}

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

fn is(instance: &InstanceCompute, bit: u32) -> f64 {
    f64::from(u8::from(instance.state & bit != 0))
}

/// Labels of a sample: names and values.
type Labels = Vec<(&'static str, String)>;

/// The text, as far as it is written.
#[derive(Default)]
pub struct MetricsPage(String);

impl MetricsPage {
    /// A page with the figures; `more` are further labels of an instance's samples.
    pub fn of(figures: &Figures, more: &dyn Fn(&InstanceKey) -> Labels) -> Self {
        let mut page = Self::default();
        page.family("cgpu_info", "Versions of the module and the driver.");
        let (version, driver) = (&figures.version, known(&figures.version.driver));
        let labels = [
            ("module", text(&version.module)),
            ("driver", driver.as_deref().unwrap_or_default()),
        ];
        page.sample("cgpu_info", &labels, 1);
        page.families(GPU, &figures.gpus, |gpu| {
            vec![
                ("gpu", gpu.minor.to_string()),
                ("uuid", text(&gpu.uuid).to_owned()),
                ("pci_address", text(&gpu.pci).to_owned()),
            ]
        });
        let all = |key: &InstanceKey| {
            let mut labels = labels_of(key);
            labels.extend(more(key));
            labels
        };
        page.families(INSTANCE, &figures.instances, |i| all(&i.key));
        page.families(LIMIT, &figures.limits, |one| {
            let mut labels = all(&one.key);
            labels.push(("of", Limited::name_of(one.limit.what).to_owned()));
            labels
        });
        page.families(GPU_COMPUTE_INFO, &figures.gpu_compute, |gpu| {
            vec![
                ("gpu", gpu.minor.to_string()),
                ("policy", Policy::name_of(gpu.policy).to_owned()),
                ("period", Period::name_of(gpu.period).to_owned()),
                ("mode", Mode::name_of(gpu.mode).to_owned()),
            ]
        });
        page.families(GPU_COMPUTE, &figures.gpu_compute, |gpu| {
            vec![("gpu", gpu.minor.to_string())]
        });
        page.families(INSTANCE_COMPUTE, &figures.instance_compute, |i| all(&i.key));
        page
    }

    /// The whole text.
    pub fn text(self) -> String {
        self.0
    }

    /// The samples of some families: one for each record, and more where a family tells them apart.
    fn families<T>(
        &mut self,
        families: &[Family<T>],
        records: &[T],
        labels: impl Fn(&T) -> Labels,
    ) {
        for family in families {
            self.family(family.name, family.help);
            for record in records {
                let own = labels(record);
                for (further, value) in family.samples {
                    let own = own.iter().map(|(key, text)| (*key, text.as_str()));
                    let labels: Vec<_> = own.chain(further.iter().copied()).collect();
                    self.sample(family.name, &labels, value(record));
                }
            }
        }
    }

    /// Begins a family: a counter if its name ends in `_total`, otherwise a gauge.
    pub fn family(&mut self, name: &str, help: &str) {
        let kind = if name.ends_with("_total") {
            "counter"
        } else {
            "gauge"
        };
        self.line(format_args!("# HELP {name} {help}\n# TYPE {name} {kind}\n"));
    }

    /// A sample of the family that was begun last.
    pub fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: impl Display) {
        let labels: Vec<_> = labels
            .iter()
            .map(|(key, value)| format!("{key}=\"{}\"", escaped(value)))
            .collect();
        self.line(format_args!("{name}{{{}}} {value}\n", labels.join(",")));
    }

    fn line(&mut self, text: std::fmt::Arguments<'_>) {
        // Writing into a String does not fail.
        let _ = self.0.write_fmt(text);
    }
}

/// A label's value between its quotes.
fn escaped(value: &str) -> String {
    value
        .replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_cannot_end_its_line() {
        assert_eq!(escaped("a\"b\\c\nd"), "a\\\"b\\\\c\\nd");
    }
}
