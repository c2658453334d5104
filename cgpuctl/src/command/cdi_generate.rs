// SPDX-License-Identifier: GPL-2.0 OR MIT
//! `cdi generate`: the file by which container engines know the instances.

use super::{info::driver, inst_list, target};
use crate::{
    args::Files,
    cdi::{self, Spec, Surroundings},
    container,
    error::{Failure, Problem},
    exit::Exit,
    files::{self, FileTurn},
    host::{Host, PathError},
    installation::find,
    output::{warn, Report},
    verb::Verb,
};
use cgpu_uapi::text;
use clap::Args;
use nix::errno::Errno;
use serde::Serialize;
use std::{
    fs,
    io::Write,
    path::{Path, PathBuf},
};

/// Write a CDI file with a device for each instance (those of one name on several GPUs are one).
#[derive(Args)]
#[command(after_help = "Examples:\n  cgpuctl cdi generate --to-file /run/cdi/cgpu.json")]
pub(crate) struct CdiGenerate {
    /// Write this file instead of stdout, whole or not at all; without instances, remove it.
    #[arg(long = "to-file", alias = "output", value_name = "FILE")]
    output: Option<PathBuf>,
    /// Keep running, and write it again whenever an instance comes or goes.
    #[arg(long, requires = "output")]
    watch: bool,
    /// Folder in the containers for the libraries; the same folders as on the host if left out.
    #[arg(long, value_name = "FOLDER")]
    library_folder: Option<String>,
    #[command(flatten)]
    files: Files,
}

#[derive(Serialize)]
struct CdiMembers {
    output: Option<String>,
    cdi_devices: Vec<String>,
    spec: Option<Spec>,
    warnings: Vec<String>,
}

impl Verb for CdiGenerate {
    fn attempt(&self) -> String {
        "make a CDI file".to_owned()
    }

    fn run(&self, host: &dyn Host) -> Result<Report, Failure> {
        Ok(once(host, self)?)
    }

    fn stay(&self, host: &dyn Host, _: bool, err: &mut dyn Write) -> Option<Result<Exit, Failure>> {
        self.watch
            .then(|| keep(host, self, err).map(|()| Exit::Done))
    }
}

/// Writes the file at each change, and says what is odd about it when that is new.
fn keep(host: &dyn Host, args: &CdiGenerate, err: &mut dyn Write) -> Result<(), Failure> {
    // Before the first look, so that no change falls between the two.
    let mut watch = host.watch()?;
    let mut warnings = Vec::new();
    let mut made = Ok(once(host, args)?);
    loop {
        match made {
            Ok(Report { warnings: now, .. }) => {
                for warning in now.iter().filter(|warning| !warnings.contains(*warning)) {
                    warn(err, warning);
                }
                warnings = now;
            }
            // The module comes back, without its instances.
            Err(Problem::NotLoaded) => remove(host, args)?,
            Err(Problem::DriverMissing) => {}
            Err(problem) => return Err(problem.into()),
        }
        watch.wait()?;
        made = once(host, args);
    }
}

fn remove(host: &dyn Host, args: &CdiGenerate) -> Result<(), PathError> {
    let Some(path) = &args.output else {
        return Ok(());
    };
    let path = host.path(path);
    let _turn = turn(&path)?;
    files::remove(&path)
}

fn once(host: &dyn Host, args: &CdiGenerate) -> Result<Report, Problem> {
    // Before the instances are read: udev runs this command for several devices at once, and the
    // last to write would otherwise not have to be the last that has read.
    let _turn = args
        .output
        .as_ref()
        .map(|path| turn(&host.path(path)))
        .transpose()?;
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
                files::remove(&path)?;
                format!("There is no instance, so there is no {}.\n", path.display())
            } else {
                write(&path, &text)?;
                format!("{}: {}\n", path.display(), names.join(" "))
            }
        }
    };
    let members = CdiMembers {
        output: args.output.as_ref().map(|p| p.display().to_string()),
        cdi_devices: names,
        spec: args.output.is_none().then_some(spec),
        warnings: warnings.clone(),
    };
    Ok(Report::new(members, said)?.warn(warnings))
}

/// The file's contents for the host as it is now, and what is odd about them.
pub(crate) fn spec(
    host: &dyn Host,
    files: &Files,
    library_folder: Option<&str>,
) -> Result<(Spec, Vec<String>), Problem> {
    let control = target::open(host)?;
    let tenants = cdi::tenants(inst_list::all(&*control)?);
    if tenants.is_empty() {
        // To look for GPUs takes a while, in which the open control device keeps the module.
        return Ok((cdi::make(&[], &[], &Surroundings::default()), vec![]));
    }
    let (version, gpus) = driver(&*control)?;
    drop(control);
    // The paths in the file must exist, also after somebody has unmounted it.
    host.mount_cgpufs()?;
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
            "cgpu-hook is not installed beside cgpuctl: containers will see all GPUs in \
             /proc/driver/nvidia"
                .to_owned(),
        );
    }
    let around = Surroundings {
        libraries: container::libraries(&root, library_folder, &found),
        hook: hook.map(|path| path.display().to_string()),
    };
    Ok((cdi::make(&tenants, &gpus, &around), warnings))
}

/// Makes a file's folder and waits for its turn at the file.
fn turn(path: &Path) -> Result<FileTurn, PathError> {
    make_folder_of(path)?;
    FileTurn::wait(path)
}

fn make_folder_of(path: &Path) -> Result<(), PathError> {
    let Some(folder) = path.parent() else {
        return Ok(());
    };
    fs::create_dir_all(folder).map_err(PathError::on("making the folder", folder))
}

/// Writes a file whole or not at all, and makes its folder.
pub(crate) fn write(path: &Path, text: &str) -> Result<(), PathError> {
    make_folder_of(path)?;
    files::write_whole(path, text.as_bytes())
}
