// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The parts of the installation that containers and the next kernel need. None of it holds a
//! limit; without it something does not start.

use super::scene::{Finding, Scene};
use crate::{
    cdi::{self, tenants},
    installation::{find, lists::Capability},
};
use cgpu_uapi::text;
use nix::errno::Errno;
use std::path::{Path, PathBuf};

/// The folders in which podman and CRI-O look for hooks.
const HOOKS: [&str; 2] = [
    "/usr/share/containers/oci/hooks.d",
    "/etc/containers/oci/hooks.d",
];
const RELEASE: &str = "/proc/sys/kernel/osrelease";

/// The hook is beside the tool, and the engines' files for it name a program that is there.
pub(super) fn hook(scene: &Scene<'_>) -> Vec<Finding> {
    let wanted = "installed, and known to the engines";
    let finding = |subject: &str, found: &str| Finding::ok("hook", subject, found, wanted);
    let mut findings = Vec::new();
    match scene.host.hook() {
        None => findings.push(finding("cgpu-hook", "not beside cgpuctl").warning(
            "install cgpu again (install.sh, or the package cgpu): containers see all GPUs in /proc/driver/nvidia without it, and none gets an instance by its environment",
        )),
        Some(program) => {
            let named = program.display().to_string();
            let texts: Vec<_> = ["cgpu-create.json", "cgpu-remove.json"]
                .map(|name| {
                    HOOKS
                        .iter()
                        .find_map(|folder| scene.files().read(&Path::new(folder).join(name)).ok())
                })
                .into_iter()
                .flatten()
                .collect();
            let path = serde_json::to_string(&named).unwrap_or_default();
            findings.push(if texts.is_empty() {
                finding(&named, "installed; no engine calls it (no cgpu-create.json in hooks.d)")
            } else if texts.len() == 2 && texts.iter().all(|text| text.contains(&path)) {
                finding(&named, "installed; podman and CRI-O call it for every container")
            } else {
                finding(&named, "the files in hooks.d name another program, or one is missing")
                    .warning(format!(
                        "{}: an engine whose hook is missing makes no container",
                        remedy(&program)
                    ))
            });
        }
    }
    findings
}

/// How a damaged installation is fixed: install.sh puts its programs below `/usr/local`,
/// where no package does.
fn remedy(program: &Path) -> &'static str {
    if program.starts_with("/usr/local") {
        "run uninstall.sh and install.sh again"
    } else {
        "reinstall the package cgpu"
    }
}

/// The driver's libraries are where containers can get them.
pub(super) fn libraries(scene: &Scene<'_>) -> Vec<Finding> {
    let wanted = "libcuda and libnvidia-ml of the running driver";
    let finding = |found: String| Finding::ok("libraries", "CUDA", found, wanted);
    let Ok(version) = &scene.version else {
        return vec![finding("not looked for".to_owned()).unknown("load the module first")];
    };
    let driver = text(&version.driver);
    let root = scene.host.path(Path::new("/"));
    vec![
        match find(&root, driver, &[Capability::Compute, Capability::Utility]) {
            Err(error) => finding(error.errno.desc().to_owned()).unknown("run ldconfig"),
            Ok(found) if found.libraries.is_empty() => {
                finding(format!("none of version {driver} in the loader's cache")).warning(
                    "install the driver's user space and run ldconfig, or bring CUDA in the images",
                )
            }
            Ok(found) => finding(format!("{} of version {driver}", found.libraries.len())),
        },
    ]
}

/// The CDI file has each instance, with its numbers of now.
pub(super) fn cdi_file(scene: &Scene<'_>) -> Vec<Finding> {
    let finding = |subject: &str, found: &str| {
        Finding::ok("cdi", subject, found, "each instance, with its numbers")
    };
    // Engines take a device from the last folder that has it, and from none if a folder has it
    // twice (CDI's library, resolveConflict in pkg/cdi/cache.go).
    let mut last = None;
    for folder in cdi::FOLDERS {
        let mut ours = cdi_files(scene, Path::new(folder));
        if let [_, _, ..] = ours.as_slice() {
            let paths: Vec<_> = ours.iter().map(|(p, _)| p.display().to_string()).collect();
            let kept = ours
                .iter()
                .position(|(path, _)| path.ends_with("cgpu.json"));
            let mut surplus = paths.clone();
            surplus.remove(kept.unwrap_or(0));
            return vec![finding(
                &paths.join(", "),
                "several in one folder, whose devices engines refuse",
            )
            .warning(format!("rm {}", surplus.join(" ")))];
        }
        last = ours.pop().or(last);
    }
    let Some((path, text)) = last else {
        if scene.instances.is_empty() {
            return vec![finding("file", "none, no instances")];
        }
        return vec![finding("file", "none").warning(
            "run `cgpuctl cdi generate --to-file /run/cdi/cgpu.json`; the installed udev rule does so at each change",
        )];
    };
    let now = tenants(scene.instances.clone());
    let subject = path.display().to_string();
    let numbers = |spec: &cdi::Spec| {
        now.iter()
            .filter(|t| t.name.as_str().is_some_and(cdi::is_name))
            .all(|tenant| {
                let name = tenant.name.as_str().unwrap_or_default();
                let device = spec.devices.iter().find(|d| d.name == name);
                device.is_some_and(|device| {
                    tenant.instances.iter().all(|i| {
                        let nodes = &device.container_edits.device_nodes;
                        nodes
                            .iter()
                            .any(|n| n.minor == Some(i.node_minor) && n.major == Some(i.major))
                    })
                })
            })
    };
    vec![match serde_json::from_str::<cdi::Spec>(&text) {
        Ok(spec) if cdi::faults(&spec).is_empty() && numbers(&spec) => {
            finding(&subject, "as the instances are")
        }
        _ => finding(&subject, "not as the instances are").warning(format!(
            "`cgpuctl cdi validate {subject}` says what is wrong, \
             `cgpuctl cdi generate --to-file {subject}` fixes it"
        )),
    }]
}

/// The files of a folder that engines read and that have devices of ours, and their texts.
fn cdi_files(scene: &Scene<'_>, folder: &Path) -> Vec<(PathBuf, String)> {
    let mut names = scene.files().names(folder).unwrap_or_default();
    names.sort();
    let paths = names.into_iter().map(|name| folder.join(name));
    paths
        .filter(|path| path.extension().is_some_and(|e| e == "json" || e == "yaml"))
        .filter_map(|path| {
            let text = scene.files().read(&path).ok()?;
            text.contains(cdi::KIND).then_some((path, text))
        })
        .collect()
}

/// The headers of the running kernel are there, which the next build of the module needs.
pub(super) fn headers(scene: &Scene<'_>) -> Vec<Finding> {
    let wanted = "headers of this kernel";
    let Ok(release) = scene.files().read(Path::new(RELEASE)) else {
        return vec![
            Finding::ok("headers", RELEASE, "cannot be read", wanted).unknown("mount /proc")
        ];
    };
    let folder = format!("/lib/modules/{}/build", release.trim());
    let finding = |found: &str| Finding::ok("headers", folder.clone(), found, wanted);
    vec![match scene.files().names(Path::new(&folder)) {
        Ok(names) if names.iter().any(|name| name == "Makefile") => finding("installed"),
        Ok(_) | Err(Errno::ENOENT) => finding("none").warning(
            "install the kernel's headers: the module cannot be built for this kernel without them",
        ),
        Err(errno) => finding(errno.desc()).unknown("run it as the host's root"),
    }]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_package_is_fixed_by_its_package() {
        for (program, how) in [
            ("/usr/local/sbin/cgpu-hook", "install.sh"),
            ("/usr/sbin/cgpu-hook", "the package cgpu"),
        ] {
            let said = remedy(Path::new(program));
            assert!(said.contains(how), "{program}: {said}");
        }
    }
}
