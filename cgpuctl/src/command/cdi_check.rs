// SPDX-License-Identifier: GPL-2.0 OR MIT
//! `cdi list` and `cdi validate`: what the CDI files of this host say, and whether it is so.

use super::cdi_generate::spec;
use crate::cdi::{self, Edits, Spec, SpecDevice, KIND};
use crate::cli::{CdiValidate, Files};
use crate::client::errno;
use crate::control::{Host, PathError};
use crate::error::{Failure, Problem};
use crate::output::{table, Report};
use serde::Serialize;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

#[derive(Serialize)]
struct Listed {
    cdi_devices: Vec<Device>,
}

#[derive(Serialize)]
struct Device {
    name: String,
    spec_path: Option<String>,
    faults: Vec<String>,
}

/// A file that may be one of ours.
struct Found {
    path: PathBuf,
    spec: Result<Spec, String>,
}

pub(super) fn list(host: &dyn Host) -> Result<Report, Failure> {
    list_report(host).map_err(|problem| problem.when("list the CDI devices"))
}

fn list_report(host: &dyn Host) -> Result<Report, Problem> {
    let (now, _) = spec(host, &Files::default(), None)?;
    let mut devices = Vec::new();
    for found in files(host)? {
        let Ok(spec) = &found.spec else { continue };
        for device in &spec.devices {
            let mut faults: Vec<_> = agreement(device, &now).into_iter().collect();
            if faults.is_empty() {
                faults = missing(host, [&device.container_edits, &spec.container_edits]);
            }
            devices.push(Device {
                name: format!("{KIND}={}", device.name),
                spec_path: Some(found.path.display().to_string()),
                faults,
            });
        }
    }
    for device in &now.devices {
        let name = format!("{KIND}={}", device.name);
        if !devices.iter().any(|d| d.name == name) {
            devices.push(Device {
                name,
                spec_path: None,
                faults: vec!["no file has it: run `cgpuctl cdi generate`".to_owned()],
            });
        }
    }
    let text = if devices.is_empty() {
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
    Report::new(
        Listed {
            cdi_devices: devices,
        },
        text,
    )
}

#[derive(Serialize)]
struct Validated {
    specs: Vec<Valid>,
}

#[derive(Serialize)]
struct Valid {
    path: String,
    cdi_devices: Vec<String>,
}

pub(super) fn validate(host: &dyn Host, args: &CdiValidate) -> Result<Report, Failure> {
    validate_report(host, args).map_err(|problem| problem.when("call the CDI files valid"))
}

fn validate_report(host: &dyn Host, args: &CdiValidate) -> Result<Report, Problem> {
    let all = if args.specs.is_empty() {
        files(host)?
    } else {
        let named = args.specs.iter().map(|path| read(host, path));
        named.collect::<Result<Vec<_>, _>>()?
    };
    if all.is_empty() {
        return Err(Problem::NoSpec);
    }
    let (now, _) = spec(host, &Files::default(), None)?;
    let mut faults = Vec::new();
    let mut valid = Vec::new();
    for found in &all {
        let path = found.path.display();
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
                valid.push(Valid {
                    path: path.to_string(),
                    cdi_devices: spec
                        .devices
                        .iter()
                        .map(|d| format!("{}={}", spec.kind, d.name))
                        .collect(),
                });
            }
        }
    }
    if !faults.is_empty() {
        return Err(Problem::BadSpec { faults });
    }
    let text = valid
        .iter()
        .map(|v| format!("{}: valid ({})\n", v.path, v.cdi_devices.join(" ")))
        .collect();
    Report::new(Validated { specs: valid }, text)
}

/// The files of our kind where engines look.
fn files(host: &dyn Host) -> Result<Vec<Found>, Problem> {
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

fn read(host: &dyn Host, path: &Path) -> Result<Found, Problem> {
    let bytes = fs::read(host.path(path)).map_err(|e| PathError {
        action: "reading",
        path: path.to_owned(),
        errno: errno(&e),
    })?;
    Ok(Found {
        path: path.to_owned(),
        spec: serde_json::from_slice(&bytes).map_err(|e| format!("is no CDI file in JSON: {e}")),
    })
}

/// Why a device of a file is not what the instance of its name is now.
fn agreement(device: &SpecDevice, now: &Spec) -> Option<String> {
    match now.devices.iter().find(|d| d.name == device.name) {
        None => Some("there is no such instance".to_owned()),
        Some(current) if *current != *device => {
            Some("the instance has changed since: run `cgpuctl cdi generate`".to_owned())
        }
        Some(_) => None,
    }
}

/// What these edits name and the host does not have.
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
