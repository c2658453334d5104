// SPDX-License-Identifier: GPL-2.0 OR MIT
//! A host in memory: a control device that keeps instances by the rules of the ABI and answers with
//! its causes, mounts of cgpufs, and a module that can be unloaded.
//!
//! Like the module, it checks reserved fields and keys before anything else, so that a command
//! which fills a record wrongly is found out. A test can have any operation fail with an errno of
//! its choice.

use cgpu_uapi::{
    capability, set, state, Cause, Clean, Gpu, GpuCompute, GpuSetCompute, Instance,
    InstanceCompute, InstanceCreate, InstanceGet, InstanceKey, InstanceSetCapabilities,
    InstanceSetChannels, InstanceSetCompute, InstanceSetManaged, InstanceSetMemory,
    InstanceSetWeight, Policy, Refusal, Version, ABI_VERSION, CGPUFS_MOUNT, CHANNELS_MAX,
    FLAG_OVERCOMMIT, GPU_ANY, MAX_INSTANCES_PER_GPU, WEIGHT_MAX,
};
use cgpuctl::{
    control::Control,
    host::{FileStatus, Host, Look, PathError, Watch},
};
use nix::errno::Errno;
use std::{
    cell::{RefCell, RefMut},
    collections::{BTreeMap, BTreeSet},
    ffi::OsString,
    path::{Path, PathBuf},
    rc::Rc,
};
use zerocopy::FromZeros;

/// Memory of an H200 as FB_GET_INFO index 0x08 tells it.
pub(crate) const H200: u64 = 147_221_504 << 10;

/// What can be made to fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Op {
    Open,
    Version,
    Gpus,
    Instances,
    Create,
    Destroy,
    SetMemory,
    SetWeight,
    SetManaged,
    SetChannels,
    SetCapabilities,
    SetCompute,
    Compute,
    Mount,
    Unmount,
    Unload,
}

#[derive(Default)]
pub(crate) struct FakeState {
    pub(crate) gpus: Vec<Gpu>,
    pub(crate) instances: Vec<Instance>,
    /// Beside the GPUs, by minor, and the instances, by number.
    pub(crate) gpu_compute: BTreeMap<u32, GpuCompute>,
    pub(crate) compute: BTreeMap<u32, InstanceCompute>,
    pub(crate) mounts: Vec<PathBuf>,
    pub(crate) mount_point_exists: bool,
    pub(crate) unloaded: bool,
    /// The driver's branch is not known.
    pub(crate) assumed: bool,
    /// Refused calls, of every instance, and how many more there were.
    pub(crate) refusals: (Vec<Refusal>, u64),
    /// Texts of files, by path.
    pub(crate) texts: BTreeMap<PathBuf, String>,
    /// What `stat(2)` tells, by path.
    pub(crate) statuses: BTreeMap<PathBuf, FileStatus>,
    /// Device programs of control groups.
    pub(crate) programs: BTreeMap<PathBuf, Vec<Vec<u64>>>,
    /// Open control devices, which would keep the module.
    pub(crate) open: usize,
    /// Operations that fail, the given number of calls from now (0: the next one).
    failures: BTreeMap<Op, Vec<(usize, Errno)>>,
    next_id: u32,
    /// Where the host's files are, if it has any.
    root: Option<FakeRoot>,
    /// What happens while the instances are watched: after the last of them, watching fails.
    pub(crate) changes: Vec<fn(&Fake)>,
}

/// A folder that goes with the host.
struct FakeRoot(PathBuf);

impl Drop for FakeRoot {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

impl FakeState {
    fn check(&mut self, op: Op) -> Result<(), Errno> {
        let Some(failures) = self.failures.get_mut(&op) else {
            return Ok(());
        };
        let now = failures.iter().find(|(after, _)| *after == 0).map(|f| f.1);
        failures.retain(|(after, _)| *after != 0);
        for (after, _) in failures {
            *after -= 1;
        }
        now.map_or(Ok(()), Err)
    }

    fn gpu(&mut self, minor: u32) -> Result<&mut Gpu, Errno> {
        let gpu = self.gpus.iter_mut().find(|g| g.minor == minor);
        gpu.ok_or(errno(Cause::NoSuchGpu))
    }

    fn find(&mut self, key: &InstanceKey) -> Result<usize, Errno> {
        if !key.is_clean() {
            return Err(errno(Cause::Malformed));
        }
        if key.name.as_str().is_none() {
            return Err(errno(Cause::BadName));
        }
        let named = |i: &Instance| i.key.name == key.name;
        let on = |i: &Instance| key.gpu_minor == GPU_ANY || i.key.gpu_minor == key.gpu_minor;
        let mut found = (0..self.instances.len())
            .filter(|&n| named(&self.instances[n]) && on(&self.instances[n]));
        match (found.next(), found.next()) {
            (None, _) => Err(errno(Cause::NoSuchInstance)),
            (Some(_), Some(_)) => Err(errno(Cause::Ambiguous)),
            (Some(n), None) => Ok(n),
        }
    }

    /// Checks a limit against the GPU, the instance's own old limit not counted.
    fn fits(&mut self, minor: u32, own: u64, limit: u64, flags: u32) -> Result<(), Errno> {
        let gpu = self.gpu(minor)?;
        if limit == 0 {
            return Err(errno(Cause::LimitZero));
        }
        if limit > gpu.memory_bytes {
            return Err(errno(Cause::LimitAboveGpu));
        }
        if flags == 0 && gpu.allotted_bytes - own + limit > gpu.memory_bytes {
            return Err(errno(Cause::LimitsAboveGpu));
        }
        Ok(())
    }
}

/// A host with GPUs.
#[derive(Clone)]
pub(crate) struct Fake(Rc<RefCell<FakeState>>);

/// The control device, open.
struct Device(Rc<RefCell<FakeState>>);

impl Drop for Device {
    fn drop(&mut self) {
        self.0.borrow_mut().open -= 1;
    }
}

/// The errno of a cause.
pub(crate) fn errno(cause: Cause) -> Errno {
    Errno::from_raw(cause.errno())
}

fn put(field: &mut [u8], text: &str) {
    field[..text.len()].copy_from_slice(text.as_bytes());
}

impl Fake {
    /// So many H200 with minors 0, 1, …, device instances in the opposite order.
    pub(crate) fn new(gpus: u32) -> Self {
        let mut state = FakeState {
            next_id: 3,
            ..FakeState::default()
        };
        for minor in 0..gpus {
            let mut gpu = Gpu::new_zeroed();
            gpu.minor = minor;
            gpu.gpu_id = 0x2900 + 0x100 * minor;
            gpu.device_instance = gpus - 1 - minor;
            gpu.max_instances = 16;
            gpu.policy = 2;
            gpu.free_weight = WEIGHT_MAX;
            gpu.memory_bytes = H200;
            put(
                &mut gpu.uuid,
                &format!("GPU-{minor:08x}-0f7d-4b1e-9c2d-1234567890ab"),
            );
            put(&mut gpu.pci, &format!("0000:{:02x}:00.0", 0x29 + minor));
            put(&mut gpu.name, "NVIDIA H200");
            gpu.architecture = 0x180;
            gpu.mig_mode = cgpu_uapi::mig::DISABLED;
            state.gpus.push(gpu);
            let mut compute = GpuCompute::new_zeroed();
            compute.minor = minor;
            compute.policy = 2;
            compute.mode = 1;
            compute.max_instances = 16;
            compute.priority_percent = 80;
            compute.mechanisms = 0x1f;
            state.gpu_compute.insert(minor, compute);
        }
        Self(Rc::new(RefCell::new(state)))
    }

    /// Has `op` fail: the next call of it, or the one after so many others.
    pub(crate) fn fail(self, op: Op, after: usize, errno: Errno) -> Self {
        let mut state = self.0.borrow_mut();
        state.failures.entry(op).or_default().push((after, errno));
        drop(state);
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

    /// Where a path of the host is.
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
        f(&mut self.0.borrow_mut())
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

impl Device {
    /// The state, for a request whose reserved fields are zero.
    fn asked(&self, op: Op, request: &impl Clean) -> Result<RefMut<'_, FakeState>, Errno> {
        let mut state = self.0.borrow_mut();
        state.check(op)?;
        if !request.is_clean() {
            return Err(errno(Cause::Malformed));
        }
        Ok(state)
    }
}

impl Control for Device {
    fn version(&self) -> Result<Version, Errno> {
        let mut state = self.0.borrow_mut();
        state.check(Op::Version)?;
        let mut version = Version::new_zeroed();
        version.abi = ABI_VERSION;
        put(&mut version.module, "0.1.0");
        if !state.gpus.is_empty() {
            version.branch = 580;
            version.branch_assumed = u32::from(state.assumed);
            put(&mut version.driver, "580.159.04");
        }
        Ok(version)
    }

    fn gpus(&self) -> Result<Vec<Gpu>, Errno> {
        let mut state = self.0.borrow_mut();
        state.check(Op::Gpus)?;
        Ok(state.gpus.clone())
    }

    fn instances(&self) -> Result<Vec<Instance>, Errno> {
        let mut state = self.0.borrow_mut();
        state.check(Op::Instances)?;
        Ok(state.instances.clone())
    }

    fn create(&self, request: &mut InstanceCreate) -> Result<(), Errno> {
        let mut state = self.0.borrow_mut();
        state.check(Op::Create)?;
        let key = request.key;
        if !request.is_clean() || request.id != 0 {
            return Err(errno(Cause::Malformed));
        }
        if state.find(&key).is_ok() {
            return Err(errno(Cause::NameTaken));
        }
        if !(1..=WEIGHT_MAX).contains(&request.weight) {
            return Err(errno(Cause::WeightOutOfRange));
        }
        state.fits(key.gpu_minor, 0, request.memory_limit_bytes, request.flags)?;
        let (id, tenant) = (state.next_id, 200);
        let gpu = state.gpu(key.gpu_minor)?;
        if gpu.instances as usize == MAX_INSTANCES_PER_GPU {
            return Err(errno(Cause::TooMany));
        }
        gpu.instances += 1;
        gpu.allotted_bytes += request.memory_limit_bytes;
        gpu.free_weight = gpu.free_weight.saturating_sub(request.weight);
        state.next_id += 1;
        request.id = id;
        let mut instance = Instance::new_zeroed();
        instance.key = key;
        instance.id = id;
        instance.weight = request.weight;
        instance.capabilities = match request.capabilities {
            0 => capability::DEFAULT,
            bits if bits & !capability::ALL != 0 => return Err(errno(Cause::UnknownCapability)),
            bits => bits,
        };
        instance.memory_limit_bytes = request.memory_limit_bytes;
        instance.managed_mode = request.managed_mode;
        instance.channel_limit = CHANNELS_MAX / 16;
        instance.major = 511;
        instance.node_minor = id;
        instance.control_node_minor = tenant;
        instance.uvm_node_minor = tenant + 1;
        state.instances.push(instance);
        let mut compute = InstanceCompute::new_zeroed();
        compute.key = key;
        compute.id = id;
        compute.weight = request.weight;
        compute.state = state::RUNNING;
        state.compute.insert(id, compute);
        Ok(())
    }

    fn destroy(&self, key: &InstanceKey) -> Result<(), Errno> {
        let mut state = self.0.borrow_mut();
        state.check(Op::Destroy)?;
        let n = state.find(key)?;
        if state.instances[n].open_files != 0 {
            return Err(errno(Cause::Busy));
        }
        let instance = state.instances.remove(n);
        let gpu = state.gpu(instance.key.gpu_minor)?;
        gpu.instances -= 1;
        gpu.allotted_bytes -= instance.memory_limit_bytes;
        Ok(())
    }

    fn get(&self, request: &mut InstanceGet) -> Result<(), Errno> {
        let mut state = self.0.borrow_mut();
        let n = state.find(&request.key)?;
        request.instance = state.instances[n];
        Ok(())
    }

    fn set_memory(&self, request: &InstanceSetMemory) -> Result<(), Errno> {
        let mut state = self.asked(Op::SetMemory, request)?;
        let n = state.find(&request.key)?;
        let minor = state.instances[n].key.gpu_minor;
        let own = state.instances[n].memory_limit_bytes;
        state.fits(minor, own, request.memory_limit_bytes, request.flags)?;
        let gpu = state.gpu(minor)?;
        gpu.allotted_bytes = gpu.allotted_bytes - own + request.memory_limit_bytes;
        state.instances[n].memory_limit_bytes = request.memory_limit_bytes;
        Ok(())
    }

    fn set_weight(&self, request: &InstanceSetWeight) -> Result<(), Errno> {
        let mut state = self.asked(Op::SetWeight, request)?;
        let n = state.find(&request.key)?;
        if !(1..=WEIGHT_MAX).contains(&request.weight) {
            return Err(errno(Cause::WeightOutOfRange));
        }
        state.instances[n].weight = request.weight;
        Ok(())
    }

    fn set_managed(&self, request: &InstanceSetManaged) -> Result<(), Errno> {
        let mut state = self.asked(Op::SetManaged, request)?;
        let n = state.find(&request.key)?;
        state.instances[n].managed_mode = request.managed_mode;
        Ok(())
    }

    fn set_channels(&self, request: &InstanceSetChannels) -> Result<(), Errno> {
        let mut state = self.asked(Op::SetChannels, request)?;
        let n = state.find(&request.key)?;
        let limit = request.channel_limit;
        if !(1..=CHANNELS_MAX).contains(&limit) {
            return Err(errno(Cause::ChannelsOutOfRange));
        }
        let minor = state.instances[n].key.gpu_minor;
        let on_gpu = state.instances.iter().filter(|i| i.key.gpu_minor == minor);
        let all: u32 = on_gpu.map(|i| i.channel_limit).sum();
        let own = state.instances[n].channel_limit;
        let fits = all - own + limit <= CHANNELS_MAX || limit <= own;
        if !fits && request.flags & FLAG_OVERCOMMIT == 0 {
            return Err(errno(Cause::ChannelsAboveRunlist));
        }
        state.instances[n].channel_limit = limit;
        Ok(())
    }

    fn set_capabilities(&self, request: &InstanceSetCapabilities) -> Result<(), Errno> {
        let mut state = self.asked(Op::SetCapabilities, request)?;
        let n = state.find(&request.key)?;
        if request.capabilities == 0 || request.capabilities & !capability::ALL != 0 {
            return Err(errno(Cause::UnknownCapability));
        }
        state.instances[n].capabilities = request.capabilities;
        Ok(())
    }

    fn refusals(&self, key: &InstanceKey) -> Result<(Vec<Refusal>, u64), Errno> {
        let mut state = self.0.borrow_mut();
        state.find(key)?;
        Ok(state.refusals.clone())
    }

    fn set_gpu_compute(&self, request: &GpuSetCompute) -> Result<(), Errno> {
        let mut state = self.asked(Op::SetCompute, request)?;
        state.gpu(request.gpu_minor)?;
        let on = |i: &&Instance| i.key.gpu_minor == request.gpu_minor;
        let weights: u32 = state.instances.iter().filter(on).map(|i| i.weight).sum();
        let means = |bit| request.set & bit != 0;
        let policy = Policy::from_number(request.policy);
        if policy.is_none() {
            return Err(errno(Cause::UnknownPolicy));
        }
        if means(set::POLICY) && policy == Some(Policy::Fixed) && weights > 100 {
            return Err(errno(Cause::WeightsAboveWhole));
        }
        let gpu = state.gpu_compute.get_mut(&request.gpu_minor);
        let gpu = gpu.expect("beside the GPU");
        let put = |bit, field: &mut u32, value| {
            if means(bit) {
                *field = value;
            }
        };
        put(set::POLICY, &mut gpu.policy, request.policy);
        put(set::PERIOD, &mut gpu.period, request.period);
        put(
            set::MAX_INSTANCES,
            &mut gpu.max_instances,
            request.max_instances,
        );
        put(
            set::PRIORITY_PERCENT,
            &mut gpu.priority_percent,
            request.priority_percent,
        );
        Ok(())
    }

    fn set_instance_compute(&self, request: &InstanceSetCompute) -> Result<(), Errno> {
        let mut state = self.asked(Op::SetCompute, request)?;
        let n = state.find(&request.key)?;
        let id = state.instances[n].id;
        let compute = state.compute.get_mut(&id).expect("beside the instance");
        let mut put = |bit: u32, flag: u32, value: u32| {
            if request.set & bit != 0 {
                compute.state = (compute.state & !flag) | (flag * value);
            }
        };
        put(
            set::HIGH_PRIORITY,
            state::HIGH_PRIORITY,
            request.high_priority,
        );
        put(set::SUSPENDED, state::SUSPENDED, request.suspended);
        Ok(())
    }

    fn gpu_compute(&self) -> Result<Vec<GpuCompute>, Errno> {
        let mut state = self.0.borrow_mut();
        state.check(Op::Compute)?;
        Ok(state.gpu_compute.values().copied().collect())
    }

    fn instance_compute(&self) -> Result<Vec<InstanceCompute>, Errno> {
        let state = self.0.borrow();
        Ok(state.compute.values().copied().collect())
    }
}

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
        let mut state = self.0.borrow_mut();
        for gpu in state.gpu_compute.values_mut() {
            gpu.now_ns += 1_000_000_000;
            gpu.switches += 60;
            gpu.calls += 120;
        }
        for compute in state.compute.values_mut() {
            if compute.state & state::WORKING != 0 {
                compute.gpu_time_ns += 9_000_000 * u64::from(compute.weight);
                compute.windows += 30;
            }
        }
        std::time::Duration::ZERO
    }

    fn path(&self, path: &Path) -> PathBuf {
        self.root().join(path.strip_prefix("/").unwrap_or(path))
    }

    fn hook(&self) -> Option<PathBuf> {
        let hook = Path::new("/usr/local/sbin/cgpu-hook");
        self.path(hook).exists().then(|| hook.to_owned())
    }

    fn watch(&self) -> Result<Box<dyn Watch>, PathError> {
        Ok(Box::new(Changes(self.clone())))
    }

    fn control(&self) -> Result<Box<dyn Control>, Errno> {
        self.with(|s| {
            s.check(Op::Open)?;
            if s.unloaded {
                return Err(Errno::ENOENT);
            }
            s.open += 1;
            Ok(())
        })?;
        Ok(Box::new(Device(self.0.clone())))
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

    fn status(&self, path: &Path) -> Result<FileStatus, Errno> {
        self.with(|s| s.statuses.get(path).copied().ok_or(Errno::ENOENT))
    }
}
