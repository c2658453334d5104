// SPDX-License-Identifier: GPL-2.0 OR MIT
//! A node in memory: the fake control device, and folders below a temporary one.

use cgpu_client::{container::Mount, control::Control, path_error::PathError};
use cgpu_dra::node::{Node, Places};
use cgpu_fake::{ControlState, FakeDevice};
use nix::errno::Errno;
use std::{
    path::{Path, PathBuf},
    sync::{
        atomic::{AtomicBool, AtomicUsize, Ordering},
        Arc, Mutex, PoisonError,
    },
    time::{Duration, Instant},
};

/// The node. Its folder goes with it.
pub(crate) struct FakeNode {
    pub(crate) root: PathBuf,
    pub(crate) state: Arc<Mutex<ControlState>>,
    /// The driver answers nothing.
    pub(crate) driver_gone: AtomicBool,
    /// The driver keeps callers waiting.
    pub(crate) stuck: AtomicBool,
    /// How many callers wait for it.
    pub(crate) waiting: AtomicUsize,
    /// The folder of the proxy nodes is closed.
    pub(crate) closed: AtomicBool,
    /// The proxy nodes are mounted.
    pub(crate) mounted: AtomicBool,
    /// `cgpu-hook` is not installed.
    pub(crate) hook_missing: AtomicBool,
}

impl FakeNode {
    pub(crate) fn new(gpus: u32) -> Arc<Self> {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let n = NUMBER.fetch_add(1, Ordering::Relaxed);
        let root = std::env::temp_dir().join(format!("cgpu-dra-{}-{n}", std::process::id()));
        std::fs::create_dir_all(&root).expect("made");
        Arc::new(Self {
            root,
            state: Arc::new(Mutex::new(ControlState::new(gpus))),
            driver_gone: AtomicBool::new(false),
            stuck: AtomicBool::new(false),
            waiting: AtomicUsize::new(0),
            closed: AtomicBool::new(false),
            mounted: AtomicBool::new(false),
            hook_missing: AtomicBool::new(false),
        })
    }

    pub(crate) fn with<T>(&self, f: impl FnOnce(&mut ControlState) -> T) -> T {
        f(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn places(&self) -> Places {
        Places {
            state: self.root.join("run"),
            cdi: self.root.join("cdi"),
            plugins: self.root.join("plugins"),
            registry: self.root.join("registry"),
            pod_resources: self.root.join("pod-resources.sock"),
        }
    }

    /// Names and limits of the instances.
    pub(crate) fn limits(&self) -> Vec<(String, u32, u64)> {
        let of = |i: &cgpu_uapi::Instance| {
            let name = i.key.name.as_str().expect("valid").to_owned();
            (name, i.key.gpu_minor, i.memory_limit_bytes)
        };
        self.with(|s| s.instances.iter().map(of).collect())
    }

    pub(crate) fn cdi_files(&self) -> Vec<PathBuf> {
        files(&self.root.join("cdi"))
    }

    /// Plans and marks of claims.
    pub(crate) fn journal(&self) -> Vec<PathBuf> {
        files(&self.root.join("run/claims"))
    }
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).collect()
}

impl Drop for FakeNode {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.root);
    }
}

impl Node for FakeNode {
    fn control(&self) -> Result<Box<dyn Control>, Errno> {
        let began = Instant::now();
        self.waiting.fetch_add(1, Ordering::Relaxed);
        while self.stuck.load(Ordering::Relaxed) {
            // A test that is stuck itself ends.
            if began.elapsed() > Duration::from_secs(60) {
                return Err(Errno::ETIMEDOUT);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        if self.driver_gone.load(Ordering::Relaxed) {
            return Err(Errno::ENODEV);
        }
        Ok(Box::new(FakeDevice::open(self.state.clone())?))
    }

    fn driver_load(&self) -> Option<u64> {
        (!self.driver_gone.load(Ordering::Relaxed)).then_some(1)
    }

    fn close_folder(&self) -> Result<(), PathError> {
        self.closed.store(true, Ordering::Relaxed);
        Ok(())
    }

    fn mount_cgpufs(&self) -> Result<(), PathError> {
        self.mounted.store(true, Ordering::Relaxed);
        Ok(())
    }

    fn libraries(&self, driver: &str) -> Result<Vec<Mount>, PathError> {
        let library = format!("/usr/lib/libcuda.so.{driver}");
        Ok(vec![Mount {
            source: library.clone(),
            destination: library,
        }])
    }

    fn hook(&self) -> Option<String> {
        let missing = self.hook_missing.load(Ordering::Relaxed);
        (!missing).then(|| "/usr/local/sbin/cgpu-hook".to_owned())
    }
}
