// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The nodes and files that a container gets of a tenant, by any engine.
//!
//! Two things are needed. The device cgroup must allow the tenant's own numbers, which is what
//! `--device` of a host node does (the node itself comes along and is of no use to CUDA). And the
//! proxy nodes, which show the numbers that CUDA insists on, must appear under NVIDIA's names; they
//! can only be bind-mounted, since a tool that copies a node by number would copy the real GPU's.

use crate::installation::{under, Installation};
use cgpu_uapi::{Instance, CGPUFS_MOUNT};
use serde::Serialize;
use std::path::Path;

/// A host node, whose number the device cgroup must allow.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct HostNode {
    /// On the host.
    pub path: String,
    /// Its number.
    pub major: u32,
    /// Its number.
    pub minor: u32,
}

/// A file of the host and its place in the container.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Mount {
    /// On the host.
    pub source: String,
    /// In the container.
    pub destination: String,
}

/// Path of the host node of an instance.
pub fn device_path(id: u32) -> String {
    format!("/dev/cgpu{id}")
}

/// The host nodes of a tenant.
pub fn host_nodes(name: &str, instances: &[Instance]) -> Vec<HostNode> {
    let own = instances.iter().map(|i| HostNode {
        path: device_path(i.id),
        major: i.major,
        minor: i.node_minor,
    });
    // The tenant's two are the same for each of its instances.
    let shared = instances.first().into_iter().flat_map(|i| {
        [("ctl", i.control_node_minor), ("uvm", i.uvm_node_minor)].map(|(which, minor)| HostNode {
            path: format!("/dev/cgpu-{name}-{which}"),
            major: i.major,
            minor,
        })
    });
    own.chain(shared).collect()
}

/// The proxy nodes of a tenant.
pub fn proxy_nodes(name: &str, instances: &[Instance]) -> Vec<Mount> {
    instances
        .iter()
        .map(|i| format!("nvidia{}", i.key.gpu_minor))
        .chain(["nvidiactl".to_owned(), "nvidia-uvm".to_owned()])
        .map(|file| Mount {
            source: format!("{CGPUFS_MOUNT}/{name}/{file}"),
            destination: format!("/dev/{file}"),
        })
        .collect()
}

/// The driver's libraries and programs, at the places that they have on the host: the file, and
/// again at each link that leads to it, so that no link has to be made in the container.
///
/// `root` is where the driver is installed on the host; `folder`, if named, takes the libraries
/// instead, for images whose loader looks elsewhere.
pub fn libraries(root: &Path, folder: Option<&str>, found: &Installation) -> Vec<Mount> {
    let mut mounts = Vec::new();
    let mut add = |source: &Path, destination: String| {
        let mount = Mount {
            source: under(root, source).display().to_string(),
            destination,
        };
        if !mounts.contains(&mount) {
            mounts.push(mount);
        }
    };
    let name = |path: &Path| {
        path.file_name()
            .map(|n| n.to_string_lossy().into_owned())
            .unwrap_or_default()
    };
    for library in &found.libraries {
        for place in std::iter::once(&library.path).chain(&library.links) {
            let destination = match folder {
                Some(folder) => format!("{}/{}", folder.trim_end_matches('/'), name(place)),
                None => place.display().to_string(),
            };
            add(&library.path, destination);
        }
    }
    for program in &found.programs {
        for place in std::iter::once(&program.path).chain(&program.links) {
            add(&program.path, place.display().to_string());
        }
    }
    mounts
}
