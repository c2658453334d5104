// SPDX-License-Identifier: GPL-2.0 OR MIT
//! A control device in memory, for tests: it keeps instances by the rules of the ABI and answers
//! with its causes.
//!
//! Like the module, it checks reserved fields and keys before anything else, so that a command
//! which fills a record wrongly is found out. A test can have any operation fail with an errno of
//! its choice.

use cgpu_client::control::Control;
use cgpu_uapi::{
    capability, set, state, Cause, Clean, Gpu, GpuCompute, GpuSetCompute, Instance,
    InstanceCompute, InstanceCreate, InstanceGet, InstanceKey, InstanceLimit,
    InstanceSetCapabilities, InstanceSetChannels, InstanceSetCompute, InstanceSetLimit,
    InstanceSetManaged, InstanceSetMemory, InstanceSetWeight, Limited, Name, Policy, Refusal,
    Version, ABI_VERSION, BURST_OF_GPU, CHANNELS_MAX, FLAG_OVERCOMMIT, GPU_ANY, LIMIT_DEFAULT,
    MAX_INSTANCES_PER_GPU, WEIGHT_MAX,
};
use nix::errno::Errno;
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};
use zerocopy::FromZeros;

/// Memory of an H200 as FB_GET_INFO index 0x08 tells it.
pub const H200: u64 = 147_221_504 << 10;

/// The acts that can be made to fail: the control device's commands, and what a host does besides.
#[expect(missing_docs, reason = "each is named like the operation")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Op {
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
    SetLimit,
    SetCapabilities,
    SetCompute,
    Compute,
    Mount,
    Unmount,
    Unload,
    Program,
}

/// The state of the control device.
pub struct ControlState {
    /// The GPUs, by minor.
    pub gpus: Vec<Gpu>,
    /// All instances, in the order in which they were made.
    pub instances: Vec<Instance>,
    /// Beside the GPUs, by minor.
    pub gpu_compute: BTreeMap<u32, GpuCompute>,
    /// Beside the instances, by number.
    pub compute: BTreeMap<u32, InstanceCompute>,
    /// Beside the instances, by number: their limits.
    pub limits: BTreeMap<u32, Vec<InstanceLimit>>,
    /// The driver's branch is not known.
    pub assumed: bool,
    /// The module has looked for the GPUs, which makes it ask for the driver's version.
    pub attached: bool,
    /// How often the module would have asked the driver for its GPUs: whenever somebody wants to
    /// know them and there is no instance.
    pub probes: usize,
    /// Refused calls, of every instance, and how many more there were.
    pub refusals: (Vec<Refusal>, u64),
    /// Open control devices, which would keep the module.
    pub open: usize,
    /// A tenant is in the midst of a call and gets no processor: what asks each tenant waits, for a
    /// minute at most.
    pub held_up: bool,
    /// Tenants that are in the midst of a call, for a minute at most: a new limit waits for it.
    pub busy: Vec<Name>,
    /// If there is a list, limits that are above a GPU's memory are noted in it, and not refused as
    /// the module does: then a sum of limits shows what was asked for.
    pub above: Option<Vec<String>>,
    /// Operations that fail, the given number of calls from now (0: the next one).
    failures: BTreeMap<Op, Vec<(usize, Errno)>>,
    next_id: u32,
}

impl Default for ControlState {
    fn default() -> Self {
        Self::new(0)
    }
}

impl AsMut<Self> for ControlState {
    fn as_mut(&mut self) -> &mut Self {
        self
    }
}

impl ControlState {
    /// So many H200 with minors 0, 1, …, device instances in the opposite order.
    pub fn new(gpus: u32) -> Self {
        let mut state = Self {
            gpus: vec![],
            instances: vec![],
            gpu_compute: BTreeMap::new(),
            compute: BTreeMap::new(),
            limits: BTreeMap::new(),
            assumed: false,
            attached: true,
            probes: 0,
            refusals: (vec![], 0),
            open: 0,
            held_up: false,
            busy: vec![],
            above: None,
            failures: BTreeMap::new(),
            next_id: 3,
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
            compute.burst_ms = 200;
            compute.mechanisms = 0x1f;
            state.gpu_compute.insert(minor, compute);
        }
        state
    }

    /// A second passes, in which whoever works has its share.
    pub fn pass(&mut self) {
        for gpu in self.gpu_compute.values_mut() {
            gpu.now_ns += 1_000_000_000;
            gpu.switches += 60;
            gpu.calls += 120;
        }
        for compute in self.compute.values_mut() {
            if compute.state & state::WORKING != 0 {
                compute.gpu_time_ns += 9_000_000 * u64::from(compute.weight);
                compute.windows += 30;
            }
        }
    }

    /// Has `op` fail: the next call of it, or the one after so many others.
    pub fn fail(&mut self, op: Op, after: usize, errno: Errno) {
        self.failures.entry(op).or_default().push((after, errno));
    }

    /// Counts a call of `op`, which fails if it is its turn.
    pub fn check(&mut self, op: Op) -> Result<(), Errno> {
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
        let (whole, sum) = (gpu.memory_bytes, gpu.allotted_bytes - own + limit);
        let cause = if limit > whole {
            Cause::LimitAboveGpu
        } else if flags == 0 && sum > whole {
            Cause::LimitsAboveGpu
        } else {
            return Ok(());
        };
        let Some(above) = &mut self.above else {
            return Err(errno(cause));
        };
        above.push(format!(
            "{limit} bytes more make {sum} of {whole} on GPU {minor}"
        ));
        Ok(())
    }

    /// The state, for a request whose reserved fields are zero.
    fn asked(&mut self, op: Op, request: &impl Clean) -> Result<&mut Self, Errno> {
        self.check(op)?;
        if !request.is_clean() {
            return Err(errno(Cause::Malformed));
        }
        Ok(self)
    }
}

/// The limit of a new instance, on a GPU for 16 of them.
fn default_limit(what: Limited) -> InstanceLimit {
    let mut limit = InstanceLimit::new_zeroed();
    limit.what = what.number();
    limit.limit = match what {
        Limited::Clients => 128,
        Limited::Objects => 16_384,
        Limited::Events => 1024,
        Limited::Bar1 => 240 << 20,
        Limited::HostMemory => 32 << 30,
        Limited::Files => 20_480,
        Limited::Mappings => 4096,
        Limited::Exports => 5120,
    };
    limit
}

fn default_limits() -> Vec<InstanceLimit> {
    Limited::ALL.map(default_limit).to_vec()
}

/// The errno of a cause.
pub fn errno(cause: Cause) -> Errno {
    Errno::from_raw(cause.errno())
}

fn put(field: &mut [u8], text: &str) {
    field[..text.len()].copy_from_slice(text.as_bytes());
}

/// The control device, open, over a state of which the control device's is a part.
pub struct FakeDevice<S: AsMut<ControlState>>(Arc<Mutex<S>>);

impl<S: AsMut<ControlState>> FakeDevice<S> {
    /// Opens it.
    pub fn open(state: Arc<Mutex<S>>) -> Result<Self, Errno> {
        let device = Self(state);
        let opened = {
            let mut held = device.held();
            let state = held.as_mut();
            state.open += 1;
            state.check(Op::Open)
        };
        opened.map(|()| device)
    }

    /// As [`Self::held`], once no tenant holds up what asks each of them.
    fn of_all_tenants(&self) -> MutexGuard<'_, S> {
        self.held_unless(|state| state.held_up)
    }

    fn held_unless(&self, waits: impl Fn(&ControlState) -> bool) -> MutexGuard<'_, S> {
        let began = Instant::now();
        loop {
            let mut held = self.held();
            if !waits(held.as_mut()) || began.elapsed() > Duration::from_secs(60) {
                return held;
            }
            drop(held);
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// A test that panicked does not make the others fail.
    fn held(&self) -> MutexGuard<'_, S> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<S: AsMut<ControlState>> Drop for FakeDevice<S> {
    fn drop(&mut self) {
        self.held().as_mut().open -= 1;
    }
}

impl<S: AsMut<ControlState>> Control for FakeDevice<S> {
    fn version(&self) -> Result<Version, Errno> {
        let mut held = self.held();
        let state = held.as_mut();
        state.check(Op::Version)?;
        let mut version = Version::new_zeroed();
        version.abi = ABI_VERSION;
        put(&mut version.module, "0.1.0");
        if state.attached && !state.gpus.is_empty() {
            version.branch = 580;
            version.branch_assumed = u32::from(state.assumed);
            put(&mut version.driver, "580.159.04");
        }
        Ok(version)
    }

    fn gpus(&self) -> Result<Vec<Gpu>, Errno> {
        let mut held = self.of_all_tenants();
        let state = held.as_mut();
        state.check(Op::Gpus)?;
        state.attached = true;
        state.probes += usize::from(state.instances.is_empty());
        Ok(state.gpus.clone())
    }

    fn instances(&self) -> Result<Vec<Instance>, Errno> {
        let mut held = self.of_all_tenants();
        let state = held.as_mut();
        state.check(Op::Instances)?;
        Ok(state.instances.clone())
    }

    fn create(&self, request: &mut InstanceCreate) -> Result<(), Errno> {
        let mut held = self.held();
        let state = held.as_mut();
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
        compute.burst_ms = BURST_OF_GPU;
        state.compute.insert(id, compute);
        state.limits.insert(id, default_limits());
        Ok(())
    }

    fn destroy(&self, key: &InstanceKey) -> Result<(), Errno> {
        let mut held = self.held();
        let state = held.as_mut();
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
        let mut held = self.held();
        let state = held.as_mut();
        let n = state.find(&request.key)?;
        request.instance = state.instances[n];
        Ok(())
    }

    fn set_memory(&self, request: &InstanceSetMemory) -> Result<(), Errno> {
        let mut held = self.held_unless(|state| state.busy.contains(&request.key.name));
        let state = held.as_mut().asked(Op::SetMemory, request)?;
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
        let mut held = self.held();
        let state = held.as_mut().asked(Op::SetWeight, request)?;
        let n = state.find(&request.key)?;
        if !(1..=WEIGHT_MAX).contains(&request.weight) {
            return Err(errno(Cause::WeightOutOfRange));
        }
        state.instances[n].weight = request.weight;
        Ok(())
    }

    fn set_managed(&self, request: &InstanceSetManaged) -> Result<(), Errno> {
        let mut held = self.held();
        let state = held.as_mut().asked(Op::SetManaged, request)?;
        let n = state.find(&request.key)?;
        state.instances[n].managed_mode = request.managed_mode;
        Ok(())
    }

    fn set_channels(&self, request: &InstanceSetChannels) -> Result<(), Errno> {
        let mut held = self.held();
        let state = held.as_mut().asked(Op::SetChannels, request)?;
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

    fn set_limit(&self, request: &InstanceSetLimit) -> Result<(), Errno> {
        let mut held = self.held();
        let state = held.as_mut().asked(Op::SetLimit, request)?;
        let n = state.find(&request.key)?;
        if request.limit == 0 {
            return Err(errno(Cause::LimitZero));
        }
        let id = state.instances[n].id;
        let limits = state.limits.get_mut(&id).expect("beside the instance");
        let mut named = limits.iter_mut().filter(|l| l.what == request.what);
        let limit = named.next().expect("each has one");
        let is_set = request.limit != LIMIT_DEFAULT;
        limit.is_set = u32::from(is_set);
        limit.limit = match Limited::from_number(limit.what) {
            Some(what) if !is_set => default_limit(what).limit,
            _ => request.limit,
        };
        Ok(())
    }

    fn limits(&self, key: &InstanceKey) -> Result<Vec<InstanceLimit>, Errno> {
        let mut held = self.held();
        let state = held.as_mut();
        let n = state.find(key)?;
        // One that a test put there by itself has those of a new one.
        let limits = state.limits.get(&state.instances[n].id);
        Ok(limits.cloned().unwrap_or_else(default_limits))
    }

    fn set_capabilities(&self, request: &InstanceSetCapabilities) -> Result<(), Errno> {
        let mut held = self.held();
        let state = held.as_mut().asked(Op::SetCapabilities, request)?;
        let n = state.find(&request.key)?;
        if request.capabilities == 0 || request.capabilities & !capability::ALL != 0 {
            return Err(errno(Cause::UnknownCapability));
        }
        state.instances[n].capabilities = request.capabilities;
        Ok(())
    }

    fn refusals(&self, key: &InstanceKey) -> Result<(Vec<Refusal>, u64), Errno> {
        let mut held = self.held();
        let state = held.as_mut();
        state.find(key)?;
        Ok(state.refusals.clone())
    }

    fn set_gpu_compute(&self, request: &GpuSetCompute) -> Result<(), Errno> {
        let mut held = self.held();
        let state = held.as_mut().asked(Op::SetCompute, request)?;
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
        put(set::BURST, &mut gpu.burst_ms, request.burst_ms);
        Ok(())
    }

    fn set_instance_compute(&self, request: &InstanceSetCompute) -> Result<(), Errno> {
        let mut held = self.held();
        let state = held.as_mut().asked(Op::SetCompute, request)?;
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
        if request.set & set::INSTANCE_BURST != 0 {
            compute.burst_ms = request.burst_ms;
        }
        Ok(())
    }

    fn gpu_compute(&self) -> Result<Vec<GpuCompute>, Errno> {
        let mut held = self.held();
        let state = held.as_mut();
        state.check(Op::Compute)?;
        Ok(state.gpu_compute.values().copied().collect())
    }

    fn instance_compute(&self) -> Result<Vec<InstanceCompute>, Errno> {
        let mut held = self.held();
        let state = held.as_mut();
        Ok(state.compute.values().copied().collect())
    }
}
