// SPDX-License-Identifier: GPL-2.0 OR MIT
//! `inst restore` and `inst save`: the instances of a file and how their GPUs are shared, so that they are
//! there again after a boot. That an instance is suspended is not kept.

use super::inst_create::{create_all, request};
use super::{gpu_set_policy, inst_list, open, target};
use crate::capabilities::Capabilities;
use crate::cli::{self, SetPolicy};
use crate::client::errno;
use crate::control::{Control, Host, PathError};
use crate::error::{Facts, Failure, Problem};
use crate::hook::journal;
use crate::json::{device_path, priority, InstanceId};
use crate::output::{table, Report};
use crate::selector::Selector;
use crate::size::Bytes;
use cgpu_uapi::{
    capability::DEFAULT, set, text, Gpu, GpuCompute, InstanceSetCompute, ManagedMode, Name, Period,
    Policy, Priority, FLAG_OVERCOMMIT, WEIGHT_DEFAULT,
};
use nix::errno::Errno;
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::Path;
use zerocopy::FromZeros;

/// The file.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Saved {
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    gpu: Vec<Sharing>,
    #[serde(default)]
    instance: Vec<Entry>,
}

/// How a GPU's compute time is shared, as `gpu set-policy` takes it.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Sharing {
    gpu: String,
    policy: String,
    period: Option<String>,
    max_inst: Option<u32>,
    prio_ratio: Option<u32>,
}

/// Instances of one name.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    name: String,
    /// As `--gpu` takes them.
    gpus: Vec<String>,
    /// As `--mem` takes it.
    mem: String,
    #[serde(default = "default_weight")]
    weight: u32,
    /// As `--caps` takes them.
    #[serde(default = "default_caps")]
    caps: String,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    overcommit: bool,
    /// As `--managed` takes it.
    #[serde(default = "default_managed")]
    managed: String,
    /// As `inst set-priority` takes it.
    #[serde(default = "default_priority")]
    priority: String,
}

fn default_managed() -> String {
    ManagedMode::Spill.name().to_owned()
}

fn default_priority() -> String {
    Priority::Normal.name().to_owned()
}

fn default_caps() -> String {
    Capabilities(DEFAULT).to_string()
}

fn default_weight() -> u32 {
    WEIGHT_DEFAULT
}

#[derive(Serialize)]
struct Body {
    restored: Vec<InstanceId>,
    present: Vec<InstanceId>,
}

pub(super) fn restore(host: &dyn Host, file: &Path) -> Result<Report, Failure> {
    restore_report(host, file)
        .map_err(|problem| problem.when(format!("restore the instances of {}", file.display())))
}

fn restore_report(host: &dyn Host, file: &Path) -> Result<Report, Problem> {
    let path = host.path(file);
    let text = fs::read_to_string(&path).map_err(|e| PathError {
        action: "reading",
        path: file.to_owned(),
        errno: errno(&e),
    })?;
    let saved: Saved = toml::from_str(&text).map_err(|e| Problem::BadFile {
        why: e.to_string().trim_end().replace('\n', " "),
    })?;
    let control = open(host)?;
    let gpus = control
        .gpus()
        .map_err(|errno| Problem::explain(errno, &Facts::default()))?;
    host.mount_cgpufs()?;
    let mut body = Body {
        restored: vec![],
        present: vec![],
    };
    // One GPU that is gone is no reason to be without the others' instances.
    let mut faults = Vec::new();
    for sharing in &saved.gpu {
        if let Err(why) = restore_sharing(&*control, &gpus, sharing) {
            faults.push(format!("the policy of GPU {}: {why}", sharing.gpu));
        }
    }
    for entry in &saved.instance {
        for gpu in &entry.gpus {
            if let Err(why) = restore_one(&*control, &gpus, entry, gpu, &mut body) {
                faults.push(format!("{} on {gpu}: {why}", entry.name));
            }
        }
    }
    if !faults.is_empty() {
        return Err(Problem::NotRestored { faults });
    }
    Report::new(&body, table_of(&body))
}

fn restore_sharing(control: &dyn Control, gpus: &[Gpu], sharing: &Sharing) -> Result<(), String> {
    let selector: Selector = sharing.gpu.parse().map_err(|e| format!("{e}"))?;
    let minors =
        target::select(gpus, std::slice::from_ref(&selector)).map_err(|e| e.to_string())?;
    let period = sharing
        .period
        .as_ref()
        .map(|period| Period::from_name(period).ok_or("take the period latency or throughput"));
    let wish = SetPolicy {
        gpu: selector,
        policy: cli::policy(&sharing.policy).ok_or(
            "take fair, preemptive, weight, fixed, soft or native, or a number from 0 to 5",
        )?,
        period: period.transpose()?,
        max_inst: sharing.max_inst,
        prio_ratio: sharing.prio_ratio,
    };
    for minor in minors {
        let request = gpu_set_policy::request(&wish, minor);
        control.set_gpu_compute(&request).map_err(|errno| {
            Problem::explain(
                errno,
                &Facts {
                    gpu: Some(minor),
                    ..Facts::default()
                },
            )
            .to_string()
        })?;
    }
    Ok(())
}

fn restore_one(
    control: &dyn Control,
    gpus: &[Gpu],
    entry: &Entry,
    gpu: &str,
    body: &mut Body,
) -> Result<(), String> {
    let name = Name::new(&entry.name).ok_or(crate::cli::NAME_RULE)?;
    let selector: Selector = gpu.parse().map_err(|e| format!("{e}"))?;
    let limit: Bytes = entry.mem.parse().map_err(|e| format!("{e}"))?;
    let minors = target::select(gpus, &[selector]).map_err(|e| e.to_string())?;
    let all = control.instances().map_err(|e| e.to_string())?;
    for minor in minors {
        let there = |i: &&cgpu_uapi::Instance| i.key.name == name && i.key.gpu_minor == minor;
        if let Some(instance) = all.iter().find(there) {
            body.present.push(instance.into());
            continue;
        }
        let caps: Capabilities = entry.caps.parse().map_err(|e| format!("{e}"))?;
        let mut request = request(name, minor, limit, entry.weight);
        request.capabilities = caps.0;
        request.flags = if entry.overcommit { FLAG_OVERCOMMIT } else { 0 };
        request.managed_mode = ManagedMode::from_name(&entry.managed)
            .ok_or("take the managed mode spill, charge or deny")?
            .number();
        let priority =
            Priority::from_name(&entry.priority).ok_or("take the priority high or normal")?;
        let made = create_all(control, vec![request]).map_err(|f| f.problem.to_string())?;
        body.restored
            .extend(made.iter().map(|m| InstanceId::new(&m.key, m.id)));
        if priority == Priority::High {
            let mut request = InstanceSetCompute::new_zeroed();
            request.key = target::key(name, minor);
            request.set = set::HIGH_PRIORITY;
            request.high_priority = 1;
            let set = control.set_instance_compute(&request);
            set.map_err(|errno| Problem::explain(errno, &Facts::default()).to_string())?;
        }
    }
    Ok(())
}

fn table_of(body: &Body) -> String {
    let row = |state: &'static str| {
        move |id: &InstanceId| {
            let (name, minor, number) = id.parts();
            [
                name.to_owned(),
                minor.to_string(),
                device_path(number),
                state.to_owned(),
            ]
        }
    };
    let rows: Vec<_> = body
        .restored
        .iter()
        .map(row("made"))
        .chain(body.present.iter().map(row("was there")))
        .collect();
    if rows.is_empty() {
        return "No instances in the file.\n".to_owned();
    }
    table(["NAME", "GPU", "DEVICE", "STATE"], rows)
}

#[derive(Serialize)]
struct SavedBody {
    output: String,
    saved: Vec<InstanceId>,
}

pub(super) fn save(host: &dyn Host, file: &Path) -> Result<Report, Failure> {
    save_report(host, file)
        .map_err(|problem| problem.when(format!("save the instances to {}", file.display())))
}

fn save_report(host: &dyn Host, file: &Path) -> Result<Report, Problem> {
    let control = open(host)?;
    let gpus = control
        .gpus()
        .map_err(|errno| Problem::explain(errno, &Facts::default()))?;
    let of_containers = journal::names(&host.path(Path::new(journal::FOLDER)));
    let mut instances = inst_list::all(&*control)?;
    // Those that the hook made go with their containers.
    instances.retain(|i| {
        let name = i.key.name.as_str().unwrap_or_default();
        !of_containers.iter().any(|n| n == name)
    });
    let explain = |errno| Problem::explain(errno, &Facts::default());
    let states = control.instance_compute().map_err(explain)?;
    let entry = |i: &cgpu_uapi::Instance| {
        let gpu = gpus.iter().find(|g| g.minor == i.key.gpu_minor);
        let state = states.iter().find(|s| s.id == i.id).map_or(0, |s| s.state);
        Entry {
            name: i.key.name.as_str().unwrap_or_default().to_owned(),
            // Minors may be others after a boot.
            gpus: vec![gpu.map_or_else(|| i.key.gpu_minor.to_string(), |g| text(&g.pci).to_owned())],
            mem: format!("{}B", i.memory_limit_bytes),
            weight: i.weight,
            caps: Capabilities(i.capabilities).to_string(),
            overcommit: gpu.is_some_and(|g| g.allotted_bytes > g.memory_bytes),
            managed: ManagedMode::name_of(i.managed_mode).to_owned(),
            priority: priority(state).name().to_owned(),
        }
    };
    let used = |g: &&GpuCompute| instances.iter().any(|i| i.key.gpu_minor == g.minor);
    let sharing = |g: &GpuCompute| {
        let gpu = gpus.iter().find(|gpu| gpu.minor == g.minor);
        Sharing {
            gpu: gpu.map_or_else(|| g.minor.to_string(), |gpu| text(&gpu.pci).to_owned()),
            policy: Policy::name_of(g.policy).to_owned(),
            period: Some(Period::name_of(g.period).to_owned()),
            max_inst: Some(g.max_instances),
            prio_ratio: Some(g.priority_percent),
        }
    };
    let shared = control.gpu_compute().map_err(explain)?;
    let saved = Saved {
        gpu: shared.iter().filter(used).map(sharing).collect(),
        instance: instances.iter().map(entry).collect(),
    };
    let toml = toml::to_string(&saved).map_err(|_| Problem::Output { errno: Errno::EIO })?;
    let text = format!("# Instances that `cgpuctl inst restore` makes at boot.\n\n{toml}");
    super::cdi_generate::write(&host.path(file), &text)?;
    let body = SavedBody {
        output: file.display().to_string(),
        saved: instances.iter().map(InstanceId::from).collect(),
    };
    let said = format!("{}: {} instances\n", body.output, body.saved.len());
    Report::new(body, said)
}
