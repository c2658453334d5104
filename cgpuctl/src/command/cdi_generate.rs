// SPDX-License-Identifier: GPL-2.0 OR MIT
//! `cdi generate`: the file by which container engines know the instances.

use super::info::driver;
use super::{inst_list, open};
use crate::cdi::{self, Spec, Surroundings};
use crate::cli::{CdiGenerate, Files};
use crate::client::errno;
use crate::container;
use crate::control::{Host, PathError};
use crate::error::{Failure, Problem};
use crate::installation::find;
use crate::output::Report;
use cgpu_uapi::text;
use nix::errno::Errno;
use serde::Serialize;
use std::fs;
use std::io::{ErrorKind, Write};
use std::path::Path;

#[derive(Serialize)]
struct Body {
    output: Option<String>,
    cdi_devices: Vec<String>,
    spec: Option<Spec>,
    warnings: Vec<String>,
}

pub(super) fn run(host: &dyn Host, args: &CdiGenerate) -> Result<Report, Failure> {
    report(host, args).map_err(|problem| problem.when("make a CDI file"))
}

fn report(host: &dyn Host, args: &CdiGenerate) -> Result<Report, Problem> {
    // Before the first look, so that no change falls between the two.
    let watch = args.watch.then(|| host.watch()).transpose()?;
    let mut made = once(host, args)?;
    if let Some(mut watch) = watch {
        loop {
            watch.wait()?;
            made = match once(host, args) {
                // The module goes away and comes back; so do the instances.
                Err(Problem::NotLoaded | Problem::DriverMissing) => continue,
                made => made?,
            };
            drop(made);
        }
    }
    Ok(made)
}

fn once(host: &dyn Host, args: &CdiGenerate) -> Result<Report, Problem> {
    let (spec, warnings) = spec(host, &args.files, args.library_folder.as_deref())?;
    let names: Vec<_> = spec
        .devices
        .iter()
        .map(|device| format!("{}={}", cdi::KIND, device.name))
        .collect();
    let text = serde_json::to_string_pretty(&spec);
    let text = text.map_err(|_| Problem::Output { errno: Errno::EIO })? + "\n";
    let said = match &args.output {
        None if names.is_empty() => return Err(Problem::NoInstances),
        None => text,
        Some(path) => {
            let path = host.path(path);
            if names.is_empty() {
                // A file without a device is not allowed, and one that is wrong is worse than none.
                remove(&path)?;
                format!("No instances; {} is not there.\n", path.display())
            } else {
                write(&path, &text)?;
                format!("{}: {}\n", path.display(), names.join(" "))
            }
        }
    };
    let body = Body {
        output: args.output.as_ref().map(|p| p.display().to_string()),
        cdi_devices: names,
        spec: args.output.is_none().then_some(spec),
        warnings: warnings.clone(),
    };
    Ok(Report::new(body, said)?.warn(warnings))
}

/// The file's contents for the host as it is now, and what is odd about them.
pub(super) fn spec(
    host: &dyn Host,
    files: &Files,
    library_folder: Option<&str>,
) -> Result<(Spec, Vec<String>), Problem> {
    let control = open(host)?;
    let (version, gpus) = driver(&*control)?;
    let tenants = cdi::tenants(inst_list::all(&*control)?);
    drop(control);
    if !tenants.is_empty() {
        // What is named must exist, also after somebody has unmounted it.
        host.mount_cgpufs()?;
    }
    let mut warnings: Vec<_> = tenants
        .iter()
        .filter_map(|tenant| tenant.name.as_str().filter(|name| !cdi::is_name(name)))
        .map(|name| format!("{name:?} is left out: a CDI name ends in a letter or a digit"))
        .collect();
    let root = files.root();
    let version = text(&version.driver);
    let found = find(&host.path(&root), version, &files.wanted())?;
    let hook = host.hook();
    if found.libraries.is_empty() {
        warnings.push(format!(
            "no library of driver {version} is found below {}: CUDA must be in the image",
            root.display()
        ));
    }
    if hook.is_none() {
        warnings.push(
            "cgpu-hook is not installed beside cgpuctl: containers will see all GPUs in /proc/driver/nvidia"
                .to_owned(),
        );
    }
    let around = Surroundings {
        libraries: container::libraries(&root, library_folder, &found),
        hook: hook.map(|path| path.display().to_string()),
    };
    Ok((cdi::make(&tenants, &gpus, &around), warnings))
}

fn failed(action: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Problem + use<> {
    let path = path.to_owned();
    move |e| {
        Problem::from(PathError {
            action,
            path,
            errno: errno(&e),
        })
    }
}

/// Writes a file that others may read at any time: it appears whole or not at all.
pub(super) fn write(path: &Path, text: &str) -> Result<(), Problem> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).map_err(failed("making the folder", folder))?;
    }
    // Engines read what ends in .json or .yaml, and nothing else.
    let fresh = path.with_extension(format!("{}.new", std::process::id()));
    let written = fs::File::create(&fresh)
        .and_then(|mut file| {
            file.write_all(text.as_bytes())
                .and_then(|()| file.sync_all())
        })
        .and_then(|()| fs::rename(&fresh, path));
    written.map_err(|e| {
        // The failure to report is the other one.
        let _ = fs::remove_file(&fresh);
        failed("writing", path)(e)
    })
}

fn remove(path: &Path) -> Result<(), Problem> {
    match fs::remove_file(path) {
        Err(e) if e.kind() != ErrorKind::NotFound => Err(failed("removing", path)(e)),
        _ => Ok(()),
    }
}
