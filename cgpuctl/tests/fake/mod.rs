// SPDX-License-Identifier: GPL-2.0 OR MIT
//! A host in memory: the fake control device, mounts of cgpufs, and a module that can be unloaded.

pub(crate) use cgpu_fake::{errno, Op};

use cgpu_fake::{ControlState, FakeDevice};
use cgpu_uapi::{Instance, CGPUFS_MOUNT};
use cgpuctl::{
    container::Mount,
    control::Control,
    exit::Exit,
    host::{FileStatus, Host, Look, PathError, Watch},
};
use nix::errno::Errno;
use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::OsString,
    ops::{Deref, DerefMut},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

#[derive(Default)]
pub(crate) struct FakeState {
    control: ControlState,
    pub(crate) mounts: Vec<PathBuf>,
    pub(crate) mount_point_exists: bool,
    pub(crate) unloaded: bool,
    /// It prints on a terminal.
    pub(crate) colored: bool,
    /// Texts of files, by path.
    pub(crate) texts: BTreeMap<PathBuf, String>,
    /// The results of `stat(2)`, by path.
    pub(crate) statuses: BTreeMap<PathBuf, FileStatus>,
    /// Device programs of control groups.
    pub(crate) programs: BTreeMap<PathBuf, Vec<Vec<u64>>>,
    /// The folder of the host's files, if it has any.
    root: Option<FakeRoot>,
    /// Programs that ran.
    pub(crate) ran: Vec<StartedProgram>,
    /// Changes while the instances are watched, or in a pause: after the last of them, watching
    /// fails.
    pub(crate) changes: Vec<fn(&Fake)>,
}

/// A program that ran.
pub(crate) struct StartedProgram {
    pub(crate) program: Vec<String>,
    pub(crate) mounts: Vec<Mount>,
    /// The instances that there were then.
    pub(crate) names: Vec<(String, u32)>,
}

/// A folder that goes with the host.
struct FakeRoot(PathBuf);

impl Drop for FakeRoot {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

impl AsMut<ControlState> for FakeState {
    fn as_mut(&mut self) -> &mut ControlState {
        &mut self.control
    }
}

impl Deref for FakeState {
    type Target = ControlState;

    fn deref(&self) -> &ControlState {
        &self.control
    }
}

impl DerefMut for FakeState {
    fn deref_mut(&mut self) -> &mut ControlState {
        &mut self.control
    }
}

/// A host with GPUs.
#[derive(Clone)]
pub(crate) struct Fake(Arc<Mutex<FakeState>>);

impl Fake {
    /// So many H200 with minors 0, 1, …, device instances in the opposite order.
    pub(crate) fn new(gpus: u32) -> Self {
        let state = FakeState {
            control: ControlState::new(gpus),
            ..FakeState::default()
        };
        Self(Arc::new(Mutex::new(state)))
    }

    /// Has `op` fail: the next call of it, or the one after so many others.
    pub(crate) fn fail(self, op: Op, after: usize, errno: Errno) -> Self {
        self.with(|s| s.fail(op, after, errno));
        self
    }

    /// Gives the host a folder of files, if it has none yet.
    pub(crate) fn root(&self) -> PathBuf {
        static NUMBER: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);
        self.with(|s| {
            let make = || {
                let n = NUMBER.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                let root = std::env::temp_dir().join(format!("cgpuctl-{}-{n}", std::process::id()));
                std::fs::create_dir_all(&root).expect("made");
                FakeRoot(root)
            };
            s.root.get_or_insert_with(make).0.clone()
        })
    }

    /// The real path of a path of the host.
    pub(crate) fn path_of(&self, path: &str) -> PathBuf {
        self.path(Path::new(path))
    }

    /// Makes a file of the host; a text that begins with `-> ` makes a link.
    pub(crate) fn file(self, path: &str, text: &str) -> Self {
        let place = self.root().join(path.trim_start_matches('/'));
        std::fs::create_dir_all(place.parent().expect("a folder")).expect("made");
        match text.strip_prefix("-> ") {
            Some(to) => std::os::unix::fs::symlink(to, place).expect("linked"),
            None => std::fs::write(place, text).expect("written"),
        }
        self
    }

    /// Installs the driver's user space as its own installer does, without a loader's cache.
    pub(crate) fn with_driver(self) -> Self {
        let lib = "/usr/lib/x86_64-linux-gnu";
        let mut host = self.file(
            "/proc/driver/nvidia/version",
            "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build\nGCC version: 14\n",
        );
        for name in ["libcuda.so", "libnvidia-ml.so", "libnvidia-encode.so"] {
            host = host
                .file(&format!("{lib}/{name}.580.159.04"), "")
                .file(&format!("{lib}/{name}.1"), &format!("-> {name}.580.159.04"));
        }
        host.file(&format!("{lib}/libnvidia-ml.so.575.1"), "")
            .file("/usr/bin/nvidia-smi", "")
            .file("/lib/firmware/nvidia/580.159.04/gsp_ga10x.bin", "")
            .file("/run/nvidia-persistenced/socket", "")
    }

    /// Runs something on the state.
    pub(crate) fn with<T>(&self, f: impl FnOnce(&mut FakeState) -> T) -> T {
        f(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Names and GPUs of the instances.
    pub(crate) fn names(&self) -> Vec<(String, u32)> {
        let name = |i: &Instance| i.key.name.as_str().expect("valid").to_owned();
        self.with(|s| {
            let each = s.instances.iter().map(|i| (name(i), i.key.gpu_minor));
            each.collect()
        })
    }
}

/// The script whose report is the text of this file.
pub(crate) const PREFLIGHT: &str = "/usr/local/sbin/cgpu-preflight";

/// Runs one change after the other.
struct Changes(Fake);

impl Watch for Changes {
    fn wait(&mut self) -> Result<(), PathError> {
        let next = self.0.with(|s| {
            let any = !s.changes.is_empty();
            any.then(|| s.changes.remove(0))
        });
        let change = next.ok_or(PathError {
            action: "watching",
            path: "/dev".into(),
            errno: Errno::ENOMEM,
        })?;
        change(&self.0);
        Ok(())
    }
}

impl Host for Fake {
    /// A second passes, in which whoever works has its share; nobody has to wait for it.
    fn pause(&self, _length: std::time::Duration) -> std::time::Duration {
        let change = self.with(|state| {
            state.pass();
            let any = !state.changes.is_empty();
            any.then(|| state.changes.remove(0))
        });
        if let Some(change) = change {
            change(self);
        }
        std::time::Duration::ZERO
    }

    fn path(&self, path: &Path) -> PathBuf {
        self.root().join(path.strip_prefix("/").unwrap_or(path))
    }

    fn is_colored(&self) -> bool {
        self.with(|s| s.colored)
    }

    fn hook(&self) -> Option<PathBuf> {
        let hook = Path::new("/usr/local/sbin/cgpu-hook");
        self.path(hook).exists().then(|| hook.to_owned())
    }

    fn preflight(&self) -> Result<String, Errno> {
        Look::read(self, Path::new(PREFLIGHT))
    }

    fn watch(&self) -> Result<Box<dyn Watch>, PathError> {
        Ok(Box::new(Changes(self.clone())))
    }

    fn control(&self) -> Result<Box<dyn Control>, Errno> {
        self.with(|s| {
            if s.unloaded {
                return Err(Errno::ENOENT);
            }
            Ok(())
        })?;
        Ok(Box::new(FakeDevice::open(self.0.clone())?))
    }

    fn cgpufs_mounts(&self) -> Result<Vec<PathBuf>, PathError> {
        Ok(self.with(|s| s.mounts.clone()))
    }

    fn mount_cgpufs(&self) -> Result<bool, PathError> {
        let point = PathBuf::from(CGPUFS_MOUNT);
        self.with(|s| {
            s.check(Op::Mount).map_err(|errno| PathError {
                action: "mounting cgpufs at",
                path: point.clone(),
                errno,
            })?;
            let new = !s.mounts.contains(&point);
            if new {
                s.mounts.push(point);
                s.mount_point_exists = true;
            }
            Ok(new)
        })
    }

    fn run_program(&self, program: &[OsString], mounts: &[Mount]) -> Result<Exit, PathError> {
        let names = self.names();
        let program = program
            .iter()
            .map(|word| word.to_string_lossy().into_owned());
        let program: Vec<_> = program.collect();
        let ran = StartedProgram {
            program,
            mounts: mounts.to_vec(),
            names,
        };
        self.with(|s| {
            s.ran.push(ran);
            s.check(Op::Program).map_err(|errno| PathError {
                action: "starting",
                path: "it".into(),
                errno,
            })
        })?;
        Ok(Exit::Program(7))
    }

    fn unmount_cgpufs(&self, path: &Path) -> Result<(), PathError> {
        self.with(|s| {
            s.check(Op::Unmount).map_err(|errno| PathError {
                action: "unmounting",
                path: path.to_owned(),
                errno,
            })?;
            let n = s.mounts.iter().position(|m| m == path);
            s.mounts
                .remove(n.expect("only what is mounted is unmounted"));
            Ok(())
        })
    }

    fn remove_mount_point(&self) {
        self.with(|s| s.mount_point_exists = !s.mounts.is_empty());
    }

    fn unload_module(&self) -> Result<(), Errno> {
        self.with(|s| {
            s.check(Op::Unload)?;
            if s.open != 0 || !s.mounts.is_empty() {
                return Err(Errno::EAGAIN);
            }
            s.unloaded = true;
            s.instances.clear();
            Ok(())
        })
    }

    fn kernel_log(&self) -> Result<String, Errno> {
        Look::read(self, Path::new("/dev/kmsg"))
    }

    fn look(&self) -> &dyn Look {
        self
    }
}

impl Look for Fake {
    fn device_programs(&self, group: &Path) -> Result<Vec<Vec<u64>>, Errno> {
        Ok(self.with(|s| s.programs.get(group).cloned().unwrap_or_default()))
    }

    fn read(&self, path: &Path) -> Result<String, Errno> {
        self.with(|s| s.texts.get(path).cloned().ok_or(Errno::ENOENT))
    }

    fn names(&self, folder: &Path) -> Result<Vec<OsString>, Errno> {
        let names: BTreeSet<_> = self.with(|s| {
            let paths = s.texts.keys().chain(s.statuses.keys());
            let below = paths.filter_map(|path| path.strip_prefix(folder).ok());
            below
                .filter_map(|path| Some(path.iter().next()?.to_owned()))
                .collect()
        });
        if names.is_empty() {
            return Err(Errno::ENOENT);
        }
        Ok(names.into_iter().collect())
    }

    /// Its text is the target.
    fn link(&self, path: &Path) -> Result<PathBuf, Errno> {
        Look::read(self, path).map(PathBuf::from)
    }

    fn status(&self, path: &Path) -> Result<FileStatus, Errno> {
        self.with(|s| s.statuses.get(path).copied().ok_or(Errno::ENOENT))
    }
}
