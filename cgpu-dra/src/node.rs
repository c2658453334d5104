// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The node on which this program runs: its control device and its files, as a trait, so that tests
//! have a node in memory; and the paths that a chart may change.

use cgpu_client::{
    cgpufs,
    client::Client,
    container::{libraries, Mount},
    control::Control,
    installation::{find, lists::Capability},
    path_error::PathError,
};
use nix::errno::Errno;
use std::path::{Path, PathBuf};

/// The node, as far as this program needs it.
pub trait Node: Send + Sync {
    /// Opens the control device.
    fn control(&self) -> Result<Box<dyn Control>, Errno>;
    /// Mounts the filesystem of the proxy nodes unless it is mounted.
    fn mount_cgpufs(&self) -> Result<(), PathError>;
    /// The driver's files for containers. They have paths of the node.
    fn libraries(&self, driver: &str) -> Result<Vec<Mount>, PathError>;
}

/// This machine.
#[derive(Clone, Debug)]
pub struct Machine {
    /// The path of the node's root, as this program sees it.
    pub host_root: PathBuf,
    /// The folder on the node that has the NVIDIA driver's user space.
    pub driver_root: PathBuf,
}

impl Node for Machine {
    fn control(&self) -> Result<Box<dyn Control>, Errno> {
        Ok(Box::new(Client::open()?))
    }

    fn mount_cgpufs(&self) -> Result<(), PathError> {
        cgpufs::mount().map(|_| ())
    }

    fn libraries(&self, driver: &str) -> Result<Vec<Mount>, PathError> {
        let inside = |path: &Path| path.strip_prefix("/").unwrap_or(path).to_owned();
        let seen = self.host_root.join(inside(&self.driver_root));
        let found = find(&seen, driver, &[Capability::Compute, Capability::Utility])?;
        Ok(libraries(&self.driver_root, None, &found))
    }
}

/// Paths on the node.
#[derive(Clone, Debug)]
pub struct Places {
    /// The journal and the failures.
    pub state: PathBuf,
    /// CDI files.
    pub cdi: PathBuf,
    /// The kubelet's folder of plugins, in which this driver has one.
    pub plugins: PathBuf,
    /// The kubelet's folder of registrations.
    pub registry: PathBuf,
    /// The kubelet's socket that tells which container has what.
    pub pod_resources: PathBuf,
    /// `cgpu-hook` on the node, if it is installed.
    pub hook: Option<String>,
}
