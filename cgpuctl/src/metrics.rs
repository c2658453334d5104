// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The figures of a host in the text format of Prometheus, version 0.0.4: families of samples with their
//! help and type, and labels that tell instances and GPUs apart.

mod compute;

pub use compute::Compute;

use crate::json::known;
use cgpu_uapi::{text, Gpu, Instance, Version};
use std::fmt::{Display, Write};

/// What the text is called in HTTP.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// All that is told.
pub fn text_of(
    version: &Version,
    gpus: &[Gpu],
    instances: &[Instance],
    compute: &Compute,
) -> String {
    let mut page = Page::default();
    page.family(
        "cgpu_info",
        Kind::Gauge,
        "Versions of the module and the driver.",
    );
    let driver = known(&version.driver).unwrap_or_default();
    page.sample(
        "cgpu_info",
        &[("module", text(&version.module)), ("driver", &driver)],
        1,
    );
    for family in &GPU_FAMILIES {
        page.family(family.name, family.kind, family.help);
        for gpu in gpus {
            let minor = gpu.minor.to_string();
            let labels = [
                ("gpu", minor.as_str()),
                ("uuid", text(&gpu.uuid)),
                ("pci_address", text(&gpu.pci)),
            ];
            page.sample(family.name, &labels, (family.value)(gpu));
        }
    }
    for family in &FAMILIES {
        page.family(family.name, family.kind, family.help);
        for instance in instances {
            let minor = instance.key.gpu_minor.to_string();
            let name = instance.key.name.as_str().unwrap_or_default();
            for (label, value) in family.samples {
                let labels = [("instance", name), ("gpu", &minor), *label];
                let labels = labels.iter().filter(|(key, _)| !key.is_empty());
                page.sample(family.name, labels, value(instance));
            }
        }
    }
    compute.tell(&mut page);
    page.0
}

/// What a family's samples are.
#[derive(Clone, Copy)]
enum Kind {
    /// Grows only, and its name ends in `_total`.
    Counter,
    /// Goes up and down.
    Gauge,
}

struct GpuFamily {
    name: &'static str,
    kind: Kind,
    help: &'static str,
    value: fn(&Gpu) -> u64,
}

const GPU_FAMILIES: [GpuFamily; 4] = [
    GpuFamily {
        name: "cgpu_gpu_memory_bytes",
        kind: Kind::Gauge,
        help: "Memory of the GPU.",
        value: |g| g.memory_bytes,
    },
    GpuFamily {
        name: "cgpu_gpu_memory_allotted_bytes",
        kind: Kind::Gauge,
        help: "Sum of the limits of the GPU's instances.",
        value: |g| g.allotted_bytes,
    },
    GpuFamily {
        name: "cgpu_gpu_memory_used_bytes",
        kind: Kind::Gauge,
        help: "Memory of the GPU that is charged to its instances, contexts included.",
        value: |g| g.used_bytes,
    },
    GpuFamily {
        name: "cgpu_gpu_instances",
        kind: Kind::Gauge,
        help: "Instances on the GPU.",
        value: |g| g.instances.into(),
    },
];

/// A further label, or none (empty), and the value.
type Sample = ((&'static str, &'static str), fn(&Instance) -> u64);

const PLAIN: (&str, &str) = ("", "");

struct Family {
    name: &'static str,
    kind: Kind,
    help: &'static str,
    samples: &'static [Sample],
}

const FAMILIES: [Family; 9] = [
    Family {
        name: "cgpu_instance_memory_limit_bytes",
        kind: Kind::Gauge,
        help: "Memory limit.",
        samples: &[(PLAIN, |i| i.memory_limit_bytes)],
    },
    Family {
        name: "cgpu_instance_memory_used_bytes",
        kind: Kind::Gauge,
        help: "Memory charged for the programs' objects.",
        samples: &[(PLAIN, |i| i.memory_used_bytes)],
    },
    Family {
        name: "cgpu_instance_memory_overhead_bytes",
        kind: Kind::Gauge,
        help: "Memory charged for CUDA contexts beside the objects.",
        samples: &[(PLAIN, |i| i.memory_overhead_bytes)],
    },
    Family {
        name: "cgpu_instance_memory_reserved_bytes",
        kind: Kind::Gauge,
        help: "Memory reserved by allocations in flight.",
        samples: &[(PLAIN, |i| i.memory_reserved_bytes)],
    },
    Family {
        name: "cgpu_instance_memory_peak_bytes",
        kind: Kind::Gauge,
        help: "Highest memory charged for objects so far.",
        samples: &[(PLAIN, |i| i.memory_peak_bytes)],
    },
    Family {
        name: "cgpu_instance_refused_total",
        kind: Kind::Counter,
        help: "Refused: allocations for want of memory, calls that no table allows.",
        samples: &[
            (("kind", "memory"), |i| i.memory_refused),
            (("kind", "call"), |i| i.calls_refused),
        ],
    },
    Family {
        name: "cgpu_instance_weight",
        kind: Kind::Gauge,
        help: "Weight, 1 to 100.",
        samples: &[(PLAIN, |i| i.weight.into())],
    },
    Family {
        name: "cgpu_instance_processes",
        kind: Kind::Gauge,
        help: "Processes that hold memory.",
        samples: &[(PLAIN, |i| i.processes.into())],
    },
    Family {
        name: "cgpu_instance_open_files",
        kind: Kind::Gauge,
        help: "Open files: of the instance's GPU node, of the tenant's control and UVM nodes.",
        samples: &[
            (("node", "gpu"), |i| i.open_files.into()),
            (("node", "tenant"), |i| i.tenant_open_files.into()),
        ],
    },
];

#[derive(Default)]
struct Page(String);

impl Page {
    fn family(&mut self, name: &str, kind: Kind, help: &str) {
        let kind = match kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
        };
        self.line(format_args!("# HELP {name} {help}\n# TYPE {name} {kind}\n"));
    }

    fn sample<'a>(
        &mut self,
        name: &str,
        labels: impl IntoIterator<Item = &'a (&'a str, &'a str)>,
        value: impl Display,
    ) {
        let labels: Vec<_> = labels
            .into_iter()
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
    fn counters_end_in_total_and_nothing_else_does() {
        for family in &FAMILIES {
            let counter = matches!(family.kind, Kind::Counter);
            assert_eq!(family.name.ends_with("_total"), counter, "{}", family.name);
        }
    }

    #[test]
    fn a_label_cannot_end_its_line() {
        assert_eq!(escaped("a\"b\\c\nd"), "a\\\"b\\\\c\\nd");
    }
}
