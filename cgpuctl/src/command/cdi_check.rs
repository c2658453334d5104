// SPDX-License-Identifier: GPL-2.0 OR MIT
//! `cdi list` and `cdi validate`: what the CDI files of this host say, and whether it is so.

use super::cdi_generate::spec;
use crate::{
    args::{Files, Form, Listing},
    cdi::{self, Edits, Spec, SpecDevice, KIND},
    error::{Failure, Problem},
    host::{Host, PathError},
    output::Report,
    text::{lines, table},
    verb::Verb,
};
use clap::Args;
use serde::Serialize;
use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

/// The file that the installed udev rule writes.
const OURS: &str = "/run/cdi/cgpu.json";

/// List the devices that the CDI files in /etc/cdi and /run/cdi have, and whether they are ready.
#[derive(Args)]
#[command(after_help = "Examples:\n  cgpuctl cdi list -q")]
pub(crate) struct CdiList {
    #[command(flatten)]
    listing: Listing,
}

/// Check CDI files: their form, the files that they name, and whether they have the present
/// instances.
#[derive(Args)]
#[command(after_help = "Examples:\n  cgpuctl cdi validate /run/cdi/cgpu.json")]
pub(crate) struct CdiValidate {
    /// The files; those of this host if left out.
    #[arg(value_name = "FILE")]
    specs: Vec<PathBuf>,
}

#[derive(Serialize)]
struct CdiListMembers {
    cdi_devices: Vec<CdiDevice>,
}

#[derive(Serialize)]
struct CdiDevice {
    name: String,
    spec_path: Option<String>,
    faults: Vec<String>,
}

#[derive(Serialize)]
struct ValidateMembers {
    specs: Vec<ValidSpec>,
}

#[derive(Serialize)]
struct ValidSpec {
    path: String,
    cdi_devices: Vec<String>,
}

/// A file that may be one of ours.
struct FoundSpec {
    path: PathBuf,
    spec: Result<Spec, String>,
}

impl Verb for CdiList {
    fn attempt(&self) -> String {
        "list the CDI devices".to_owned()
    }

    fn run(&self, host: &dyn Host) -> Result<Report, Failure> {
        let (now, _) = spec(host, &Files::default(), None)?;
        let mut devices = Vec::new();
        for found in files(host)? {
            let Ok(spec) = &found.spec else { continue };
            for device in &spec.devices {
                let stale = agreement(device, &now);
                let stale = stale.map(|why| format!("{why}: run {}", again(&found.path)));
                let mut faults: Vec<_> = stale.into_iter().collect();
                if faults.is_empty() {
                    faults = missing(host, [&device.container_edits, &spec.container_edits]);
                }
                devices.push(CdiDevice {
                    name: format!("{KIND}={}", device.name),
                    spec_path: Some(found.path.display().to_string()),
                    faults,
                });
            }
        }
        for device in &now.devices {
            let name = format!("{KIND}={}", device.name);
            if !devices.iter().any(|d| d.name == name) {
                devices.push(CdiDevice {
                    name,
                    spec_path: None,
                    faults: vec![format!("no file has it: run {}", again(Path::new(OURS)))],
                });
            }
        }
        let text = if self.listing.format() == Some(Form::Name) {
            // A stale device is in a second file; one that no file has cannot be asked for.
            let named = devices.iter().filter(|d| d.spec_path.is_some());
            let names: BTreeSet<_> = named.map(|d| d.name.as_str()).collect();
            lines(names)
        } else if devices.is_empty() {
            "No CDI devices.\n".to_owned()
        } else {
            let rows = devices.iter().map(|d| {
                [
                    d.name.clone(),
                    d.spec_path.clone().unwrap_or_else(|| "-".to_owned()),
                    if d.faults.is_empty() {
                        "ready".to_owned()
                    } else {
                        d.faults.join("; ")
                    },
                ]
            });
            table(["DEVICE", "FILE", "STATE"], rows)
        };
        let members = CdiListMembers {
            cdi_devices: devices,
        };
        Ok(Report::new(members, text)?)
    }

    fn wants_json(&self) -> bool {
        self.listing.is_json()
    }
}

impl Verb for CdiValidate {
    fn attempt(&self) -> String {
        "call the CDI files valid".to_owned()
    }

    fn run(&self, host: &dyn Host) -> Result<Report, Failure> {
        let all = if self.specs.is_empty() {
            files(host)?
        } else {
            let named = self.specs.iter().map(|path| read(host, path));
            named.collect::<Result<Vec<_>, _>>()?
        };
        if all.is_empty() {
            return Err(Problem::NoSpec { kind: KIND }.into());
        }
        let (now, _) = spec(host, &Files::default(), None)?;
        let mut faults = Vec::new();
        let mut faulty = Vec::new();
        let mut valid = Vec::new();
        for found in &all {
            let path = found.path.display();
            let before = faults.len();
            match &found.spec {
                Err(why) => faults.push(format!("{path} {why}")),
                Ok(spec) => {
                    let mut said = cdi::faults(spec);
                    let edits = spec.devices.iter().map(|d| &d.container_edits);
                    said.extend(missing(host, edits.chain([&spec.container_edits])));
                    for device in &spec.devices {
                        if spec.kind == KIND {
                            let stale = agreement(device, &now);
                            said.extend(stale.map(|why| format!("{}: {why}", device.name)));
                        }
                    }
                    faults.extend(said.iter().map(|said| format!("{path}: {said}")));
                    valid.push(ValidSpec {
                        path: path.to_string(),
                        cdi_devices: spec
                            .devices
                            .iter()
                            .map(|d| format!("{}={}", spec.kind, d.name))
                            .collect(),
                    });
                }
            }
            if faults.len() > before {
                faulty.push(found.path.as_path());
            }
        }
        if !faulty.is_empty() {
            let remedy = remedy(&faulty);
            return Err(Problem::BadSpec { faults, remedy }.into());
        }
        let text = valid
            .iter()
            .map(|v| format!("{}: valid ({})\n", v.path, v.cdi_devices.join(" ")))
            .collect();
        Ok(Report::new(ValidateMembers { specs: valid }, text)?)
    }
}

/// The files of our kind where engines look.
fn files(host: &dyn Host) -> Result<Vec<FoundSpec>, Problem> {
    let mut all = Vec::new();
    for folder in cdi::FOLDERS.map(Path::new) {
        let mut names: Vec<_> = fs::read_dir(host.path(folder))
            .into_iter()
            .flatten()
            .filter_map(|entry| Some(entry.ok()?.file_name()))
            .collect();
        names.sort();
        for path in names.iter().map(|name| folder.join(name)) {
            // Other vendors' files are theirs; one of ours that is no CDI file is shown.
            let ours = || fs::read_to_string(host.path(&path)).is_ok_and(|t| t.contains(KIND));
            if path.extension().is_some_and(|e| e == "json") && ours() {
                all.push(read(host, &path)?);
            }
        }
    }
    Ok(all)
}

fn read(host: &dyn Host, path: &Path) -> Result<FoundSpec, Problem> {
    let bytes = fs::read(host.path(path)).map_err(PathError::on("reading", path))?;
    Ok(FoundSpec {
        path: path.to_owned(),
        spec: serde_json::from_slice(&bytes).map_err(|e| format!("is no CDI file in JSON: {e}")),
    })
}

/// Why a device of a file is not what the instance of its name is now.
fn agreement(device: &SpecDevice, now: &Spec) -> Option<&'static str> {
    match now.devices.iter().find(|d| d.name == device.name) {
        None => Some("there is no such instance"),
        Some(current) if *current != *device => Some("the instance has changed since"),
        Some(_) => None,
    }
}

/// The command that writes a file again.
fn again(path: &Path) -> String {
    format!("`cgpuctl cdi generate --to-file {}`", path.display())
}

/// Files that are all as the instances are: one is enough, and two in a folder are too many.
fn remedy(faulty: &[&Path]) -> String {
    let Some((last, others)) = faulty.split_last() else {
        return String::new();
    };
    let more: String = others
        .iter()
        .map(|path| format!(", and remove {}", path.display()))
        .collect();
    format!("write it again with {}{more}", again(last))
}

/// The paths that these edits name and the host lacks.
fn missing<'a>(host: &dyn Host, edits: impl IntoIterator<Item = &'a Edits>) -> Vec<String> {
    let mut paths = BTreeSet::new();
    for edits in edits {
        for node in &edits.device_nodes {
            paths.insert(node.host_path.as_ref().unwrap_or(&node.path));
        }
        paths.extend(edits.mounts.iter().map(|mount| &mount.host_path));
        paths.extend(edits.hooks.iter().map(|hook| &hook.path));
    }
    paths
        .into_iter()
        .filter(|path| !host.path(Path::new(path)).exists())
        .map(|path| format!("there is no {path}"))
        .collect()
}
