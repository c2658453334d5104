// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The node on which this program runs: its control device and its files, as a trait, so that tests
//! have a node in memory; and the paths that a chart may change.

use cgpu_client::{
    cgpufs,
    client::Client,
    container::{libraries, Mount},
    control::Control,
    files,
    installation::{find, lists::Capability},
    path_error::PathError,
    pods,
};
use cgpu_uapi::text;
use nix::errno::Errno;
use std::{
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

/// The node, as far as this program needs it.
pub trait Node: Send + Sync {
    /// Opens the control device.
    fn control(&self) -> Result<Box<dyn Control>, Errno>;
    /// Whether the module has found the NVIDIA driver. That asks no tenant. One in the midst of a
    /// call that gets no processor holds up what asks each tenant, and is no reason to give up a
    /// GPU. It waits as well while the module waits for the driver.
    fn has_driver(&self) -> Result<bool, Errno> {
        let version = self.control()?.version()?;
        Ok(!text(&version.driver).is_empty())
    }
    /// A number that another load of the NVIDIA driver does not have, if it is loaded. The driver
    /// itself is not asked.
    fn driver_load(&self) -> Option<u64>;
    /// Closes the folder of the proxy nodes, which a kubelet makes, to everybody but root.
    fn close_folder(&self) -> Result<(), PathError>;
    /// Mounts the filesystem of the proxy nodes unless it is mounted.
    fn mount_cgpufs(&self) -> Result<(), PathError>;
    /// The driver's files for containers. They have paths of the node.
    fn libraries(&self, driver: &str) -> Result<Vec<Mount>, PathError>;
    /// The path of `cgpu-hook` on the node, if it is installed.
    fn hook(&self) -> Option<String>;
}

/// `cgpu-hook`, where the package and `install.sh` put it.
const HOOKS: [&str; 2] = ["/usr/sbin/cgpu-hook", "/usr/local/sbin/cgpu-hook"];

/// This machine.
#[derive(Clone, Debug)]
pub struct Machine {
    /// The path of the node's root, as this program sees it.
    pub host_root: PathBuf,
    /// The folder on the node that has the NVIDIA driver's user space.
    pub driver_root: PathBuf,
    /// The path of `cgpu-hook` on the node, if it is not where it is looked for.
    pub hook: Option<String>,
}

impl Machine {
    /// A path of the node, as this program sees it.
    fn seen(&self, path: &Path) -> PathBuf {
        self.host_root.join(path.strip_prefix("/").unwrap_or(path))
    }
}

impl Node for Machine {
    fn control(&self) -> Result<Box<dyn Control>, Errno> {
        Ok(Box::new(Client::open()?))
    }

    fn driver_load(&self) -> Option<u64> {
        // The kernel counts up the numbers of sysfs (fs/kernfs/dir.c, `__kernfs_new_node`).
        let folder = fs::metadata("/sys/module/nvidia").ok()?;
        Some(folder.ino())
    }

    fn close_folder(&self) -> Result<(), PathError> {
        cgpufs::close_guard_folder()
    }

    fn mount_cgpufs(&self) -> Result<(), PathError> {
        cgpufs::mount().map(|_| ())
    }

    fn libraries(&self, driver: &str) -> Result<Vec<Mount>, PathError> {
        let seen = self.seen(&self.driver_root);
        let found = find(&seen, driver, &[Capability::Compute, Capability::Utility])?;
        Ok(libraries(&self.driver_root, None, &found))
    }

    fn hook(&self) -> Option<String> {
        let is_there = |path: &&str| self.seen(Path::new(path)).is_file();
        let found = || HOOKS.into_iter().find(is_there).map(str::to_owned);
        self.hook.clone().or_else(found)
    }
}

/// The folder of failures in that of the state.
pub const FAILED: &str = "failed";

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
}

impl Places {
    /// Removes what an earlier process of this program was writing when it was stopped. In the
    /// folder of CDI files others write too.
    pub fn remove_unfinished(&self) -> Result<(), PathError> {
        for folder in [pods::CLAIMS, FAILED, ""] {
            files::remove_unfinished(&self.state.join(folder), "")?;
        }
        for begin in ["cgpu.io-claim-", "cgpu.io-slot."] {
            files::remove_unfinished(&self.cdi, begin)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_installed_hook_is_found() {
        let root = std::env::temp_dir().join(format!("cgpu-node-{}", std::process::id()));
        let mut machine = Machine {
            host_root: root.clone(),
            driver_root: "/".into(),
            hook: None,
        };
        assert_eq!(machine.hook(), None);
        for path in HOOKS.iter().rev() {
            let seen = machine.seen(Path::new(path));
            fs::create_dir_all(seen.parent().expect("a folder")).expect("made");
            fs::write(&seen, "").expect("written");
            assert_eq!(machine.hook().as_deref(), Some(*path));
        }
        machine.hook = Some("/opt/cgpu-hook".to_owned());
        assert_eq!(machine.hook().as_deref(), Some("/opt/cgpu-hook"));
        fs::remove_dir_all(root).expect("removed");
    }
}
