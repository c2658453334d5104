// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The figures of a host in the text format of Prometheus, version 0.0.4: families of samples with
//! their help and type, and labels that tell instances and GPUs apart.
//!
//! To add a figure: a row in one of the tables.

use crate::json::known;
use cgpu_uapi::{
    state, text, Gpu, GpuCompute, Instance, InstanceCompute, InstanceKey, Mode, Period, Policy,
    Version,
};
use std::fmt::{Display, Write};

/// The name of the text in HTTP.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The module's records, of which the figures are made.
pub struct Figures {
    /// Versions.
    pub version: Version,
    /// The GPUs; none while the driver is away.
    pub gpus: Vec<Gpu>,
    /// The instances.
    pub instances: Vec<Instance>,
    /// How each GPU is shared.
    pub gpu_compute: Vec<GpuCompute>,
    /// The GPU time of each instance.
    pub instance_compute: Vec<InstanceCompute>,
}

/// The figures as a page of text.
pub fn text_of(figures: &Figures) -> String {
    let mut page = MetricsPage::default();
    let info = "Versions of the module and the driver.";
    page.family("cgpu_info", info);
    let (version, driver) = (&figures.version, known(&figures.version.driver));
    let labels = [
        ("module", text(&version.module)),
        ("driver", driver.as_deref().unwrap_or_default()),
    ];
    page.sample("cgpu_info", &labels, 1);
    page.families(&GPU, &figures.gpus, |gpu| {
        vec![
            ("gpu", gpu.minor.to_string()),
            ("uuid", text(&gpu.uuid).to_owned()),
            ("pci_address", text(&gpu.pci).to_owned()),
        ]
    });
    page.families(&INSTANCE, &figures.instances, |i| labels_of(&i.key));
    page.families(&GPU_COMPUTE_INFO, &figures.gpu_compute, |gpu| {
        vec![
            ("gpu", gpu.minor.to_string()),
            ("policy", Policy::name_of(gpu.policy).to_owned()),
            ("period", Period::name_of(gpu.period).to_owned()),
            ("mode", Mode::name_of(gpu.mode).to_owned()),
        ]
    });
    page.families(&GPU_COMPUTE, &figures.gpu_compute, |gpu| {
        vec![("gpu", gpu.minor.to_string())]
    });
    page.families(&INSTANCE_COMPUTE, &figures.instance_compute, |i| {
        labels_of(&i.key)
    });
    page.0
}

/// Labels of an instance.
fn labels_of(key: &InstanceKey) -> Vec<(&'static str, String)> {
    let name = key.name.as_str().unwrap_or_default();
    vec![
        ("instance", name.to_owned()),
        ("gpu", key.gpu_minor.to_string()),
    ]
}

/// A further label, and the value.
type Sample<T> = ((&'static str, &'static str), fn(&T) -> f64);

/// No further label.
const PLAIN: (&str, &str) = ("", "");

/// Samples of one name.
struct Family<T: 'static> {
    name: &'static str,
    help: &'static str,
    samples: &'static [Sample<T>],
}

const GPU: [Family<Gpu>; 4] = [
    Family {
        name: "cgpu_gpu_memory_bytes",
        help: "Memory of the GPU.",
        samples: &[(PLAIN, |g| g.memory_bytes as f64)],
    },
    Family {
        name: "cgpu_gpu_memory_allotted_bytes",
        help: "Sum of the limits of the GPU's instances.",
        samples: &[(PLAIN, |g| g.allotted_bytes as f64)],
    },
    Family {
        name: "cgpu_gpu_memory_used_bytes",
        help: "Memory of the GPU that is charged to its instances, contexts included.",
        samples: &[(PLAIN, |g| g.used_bytes as f64)],
    },
    Family {
        name: "cgpu_gpu_instances",
        help: "Instances on the GPU.",
        samples: &[(PLAIN, |g| f64::from(g.instances))],
    },
];

const INSTANCE: [Family<Instance>; 9] = [
    Family {
        name: "cgpu_instance_memory_limit_bytes",
        help: "Memory limit.",
        samples: &[(PLAIN, |i| i.memory_limit_bytes as f64)],
    },
    Family {
        name: "cgpu_instance_memory_used_bytes",
        help: "Memory charged for the programs' objects.",
        samples: &[(PLAIN, |i| i.memory_used_bytes as f64)],
    },
    Family {
        name: "cgpu_instance_memory_overhead_bytes",
        help: "Memory charged for CUDA contexts beside the objects.",
        samples: &[(PLAIN, |i| i.memory_overhead_bytes as f64)],
    },
    Family {
        name: "cgpu_instance_memory_reserved_bytes",
        help: "Memory reserved by allocations in flight.",
        samples: &[(PLAIN, |i| i.memory_reserved_bytes as f64)],
    },
    Family {
        name: "cgpu_instance_memory_peak_bytes",
        help: "Highest memory charged for objects so far.",
        samples: &[(PLAIN, |i| i.memory_peak_bytes as f64)],
    },
    Family {
        name: "cgpu_instance_refused_total",
        help: "Refused: allocations for want of memory, calls that no table allows.",
        samples: &[
            (("kind", "memory"), |i| i.memory_refused as f64),
            (("kind", "call"), |i| i.calls_refused as f64),
        ],
    },
    Family {
        name: "cgpu_instance_weight",
        help: "Weight, 1 to 100.",
        samples: &[(PLAIN, |i| f64::from(i.weight))],
    },
    Family {
        name: "cgpu_instance_processes",
        help: "Processes that hold memory.",
        samples: &[(PLAIN, |i| f64::from(i.processes))],
    },
    Family {
        name: "cgpu_instance_open_files",
        help: "Open files: of the instance's GPU node, of the tenant's control and UVM nodes.",
        samples: &[
            (("node", "gpu"), |i| f64::from(i.open_files)),
            (("node", "tenant"), |i| f64::from(i.tenant_open_files)),
        ],
    },
];

const GPU_COMPUTE_INFO: [Family<GpuCompute>; 1] = [Family {
    name: "cgpu_gpu_compute_info",
    help: "How the GPU's compute time is shared: policy, base period, and by what at the moment.",
    samples: &[(PLAIN, |_| 1.0)],
}];

const GPU_COMPUTE: [Family<GpuCompute>; 2] = [
    Family {
        name: "cgpu_gpu_compute_switches_total",
        help: "Changes from one instance's window to another's.",
        samples: &[(PLAIN, |g| g.switches as f64)],
    },
    Family {
        name: "cgpu_gpu_compute_calls_total",
        help: "Calls into the driver that the scheduler made.",
        samples: &[(PLAIN, |g| g.calls as f64)],
    },
];

const INSTANCE_COMPUTE: [Family<InstanceCompute>; 10] = [
    Family {
        name: "cgpu_instance_compute_gpu_time_seconds_total",
        help: "GPU time of the instance; nothing is added under the policy native.",
        samples: &[(PLAIN, |i| seconds(i.gpu_time_ns))],
    },
    Family {
        name: "cgpu_instance_compute_blocked_seconds_total",
        help: "Time that a task of the instance was blocked at its doorbell.",
        samples: &[(PLAIN, |i| seconds(i.blocked_ns))],
    },
    Family {
        name: "cgpu_instance_compute_windows_total",
        help: "Windows and slices that the instance had.",
        samples: &[(PLAIN, |i| i.windows as f64)],
    },
    Family {
        name: "cgpu_instance_compute_preemptions_total",
        help: "Times that the instance was switched off with work.",
        samples: &[(PLAIN, |i| i.preemptions as f64)],
    },
    Family {
        name: "cgpu_instance_compute_blocked_tasks",
        help: "Tasks that are blocked at the instance's doorbell.",
        samples: &[(PLAIN, |i| f64::from(i.blocked_tasks))],
    },
    Family {
        name: "cgpu_instance_compute_high_priority",
        help: "1: of high priority.",
        samples: &[(PLAIN, |i| is(i, state::HIGH_PRIORITY))],
    },
    Family {
        name: "cgpu_instance_compute_suspended",
        help: "1: kept off the GPU by the operator.",
        samples: &[(PLAIN, |i| is(i, state::SUSPENDED))],
    },
    Family {
        name: "cgpu_instance_compute_given_seconds_total",
        help: "Deprecated: the same as cgpu_instance_compute_gpu_time_seconds_total.",
        samples: &[(PLAIN, |i| seconds(i.gpu_time_ns))],
    },
    Family {
        name: "cgpu_instance_compute_parked_seconds_total",
        help: "Deprecated: the same as cgpu_instance_compute_blocked_seconds_total.",
        samples: &[(PLAIN, |i| seconds(i.blocked_ns))],
    },
    Family {
        name: "cgpu_instance_compute_parked_tasks",
        help: "Deprecated: the same as cgpu_instance_compute_blocked_tasks.",
        samples: &[(PLAIN, |i| f64::from(i.blocked_tasks))],
    },
];

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

fn is(instance: &InstanceCompute, bit: u32) -> f64 {
    f64::from(u8::from(instance.state & bit != 0))
}

#[derive(Default)]
struct MetricsPage(String);

impl MetricsPage {
    /// The samples of some families: one for each record, and more where a family tells them apart.
    fn families<T>(
        &mut self,
        families: &[Family<T>],
        records: &[T],
        labels: fn(&T) -> Vec<(&'static str, String)>,
    ) {
        for family in families {
            self.family(family.name, family.help);
            for record in records {
                let own = labels(record);
                for ((key, word), value) in family.samples {
                    let own = own.iter().map(|(key, text)| (*key, text.as_str()));
                    let further = [(*key, *word)]
                        .into_iter()
                        .filter(|(key, _)| !key.is_empty());
                    let labels: Vec<_> = own.chain(further).collect();
                    self.sample(family.name, &labels, value(record));
                }
            }
        }
    }

    /// A family that only grows is a counter, and its name ends so.
    fn family(&mut self, name: &str, help: &str) {
        let kind = if name.ends_with("_total") {
            "counter"
        } else {
            "gauge"
        };
        self.line(format_args!("# HELP {name} {help}\n# TYPE {name} {kind}\n"));
    }

    fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: impl Display) {
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
