// SPDX-License-Identifier: GPL-2.0 OR MIT
//! `inst restore` and `inst save`: the instances of a file, so that they are there again after a boot.

use super::inst_create::{create_all, request};
use super::{inst_list, open, target};
use crate::capabilities::Capabilities;
use crate::cli::Managed;
use crate::client::errno;
use crate::control::{Control, Host, PathError};
use crate::error::{Facts, Failure, Problem};
use crate::hook::journal;
use crate::json::{device_path, managed_mode, InstanceId};
use crate::output::{table, Report};
use crate::selector::Selector;
use crate::size::Bytes;
use cgpu_uapi::{
    capability::DEFAULT, text, Gpu, Name, FLAG_OVERCOMMIT, MANAGED_SPILL, WEIGHT_DEFAULT,
};
use clap::ValueEnum;
use nix::errno::Errno;
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::Path;

/// The file.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Saved {
    #[serde(default)]
    instance: Vec<Entry>,
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
}

fn default_managed() -> String {
    managed_mode(MANAGED_SPILL).to_owned()
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
        request.managed_mode = Managed::from_str(&entry.managed, false)?.number();
        let made = create_all(control, vec![request]).map_err(|f| f.problem.to_string())?;
        body.restored
            .extend(made.iter().map(|m| InstanceId::new(&m.key, m.id)));
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
    let entry = |i: &cgpu_uapi::Instance| {
        let gpu = gpus.iter().find(|g| g.minor == i.key.gpu_minor);
        Entry {
            name: i.key.name.as_str().unwrap_or_default().to_owned(),
            // Minors may be others after a boot.
            gpus: vec![gpu.map_or_else(|| i.key.gpu_minor.to_string(), |g| text(&g.pci).to_owned())],
            mem: format!("{}B", i.memory_limit_bytes),
            weight: i.weight,
            caps: Capabilities(i.capabilities).to_string(),
            overcommit: gpu.is_some_and(|g| g.allotted_bytes > g.memory_bytes),
            managed: managed_mode(i.managed_mode).to_owned(),
        }
    };
    let saved = Saved {
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
