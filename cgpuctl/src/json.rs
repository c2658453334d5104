// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The objects that `--json` prints. Schema 1, documented in `docs/json.md`: keys are snake_case with
//! the unit in the name, and are only ever added.

mod compute;

pub use compute::*;

use crate::capabilities::Capabilities;
use crate::error::Failure;
use cgpu_uapi as uapi;
use serde::Serialize;

/// Number of the schema; it changes only if a key changes its meaning or goes away.
pub const SCHEMA: u32 = 1;

/// An answer: the schema's number and what the command has to say.
#[derive(Serialize)]
pub struct Document<T> {
    schema: u32,
    #[serde(flatten)]
    body: T,
}

impl<T> Document<T> {
    /// Puts the number before the body.
    pub fn new(body: T) -> Self {
        Self {
            schema: SCHEMA,
            body,
        }
    }
}

/// A failed command.
#[derive(Serialize)]
pub struct Error {
    error: ErrorBody,
}

#[derive(Serialize)]
struct ErrorBody {
    cause: &'static str,
    exit_code: u8,
    message: String,
}

impl From<&Failure> for Error {
    fn from(failure: &Failure) -> Self {
        Self {
            error: ErrorBody {
                cause: failure.problem.slug(),
                exit_code: failure.problem.exit().code(),
                message: failure.to_string(),
            },
        }
    }
}

/// A GPU.
#[derive(Serialize)]
pub struct Gpu {
    minor: u32,
    uuid: String,
    pci_address: String,
    name: Option<String>,
    gpu_id: u32,
    device_instance: u32,
    memory_bytes: u64,
    memory_allotted_bytes: u64,
    memory_used_bytes: u64,
    instance_count: u32,
    max_instances: u32,
    policy: u32,
    policy_name: &'static str,
    free_weight: u32,
}

/// The text of a field, if there is any.
pub fn known(field: &[u8]) -> Option<String> {
    Some(uapi::text(field).to_owned()).filter(|text| !text.is_empty())
}

impl From<&uapi::Gpu> for Gpu {
    fn from(gpu: &uapi::Gpu) -> Self {
        Self {
            minor: gpu.minor,
            uuid: uapi::text(&gpu.uuid).to_owned(),
            pci_address: uapi::text(&gpu.pci).to_owned(),
            name: known(&gpu.name),
            gpu_id: gpu.gpu_id,
            device_instance: gpu.device_instance,
            memory_bytes: gpu.memory_bytes,
            memory_allotted_bytes: gpu.allotted_bytes,
            memory_used_bytes: gpu.used_bytes,
            instance_count: gpu.instances,
            max_instances: gpu.max_instances,
            policy: gpu.policy,
            policy_name: uapi::Policy::name_of(gpu.policy),
            free_weight: gpu.free_weight,
        }
    }
}

/// `gpu list`.
#[derive(Serialize)]
pub struct Gpus {
    /// By minor.
    pub gpus: Vec<Gpu>,
}

/// Which instance.
#[derive(Serialize)]
pub struct InstanceId {
    name: String,
    gpu_minor: u32,
    id: u32,
    device: String,
}

/// Path of the honest node of an instance.
pub fn device_path(id: u32) -> String {
    format!("/dev/cgpu{id}")
}

impl InstanceId {
    /// The instance of this key and number.
    pub fn new(key: &uapi::InstanceKey, id: u32) -> Self {
        Self {
            name: key.name.as_str().unwrap_or_default().to_owned(),
            gpu_minor: key.gpu_minor,
            id,
            device: device_path(id),
        }
    }
}

impl InstanceId {
    /// Name, GPU and number.
    pub fn parts(&self) -> (&str, u32, u32) {
        (&self.name, self.gpu_minor, self.id)
    }
}

impl From<&uapi::Instance> for InstanceId {
    fn from(instance: &uapi::Instance) -> Self {
        Self::new(&instance.key, instance.id)
    }
}

/// An instance as it is now.
#[derive(Serialize)]
pub struct Instance {
    #[serde(flatten)]
    id: InstanceId,
    weight: u32,
    capabilities: Vec<&'static str>,
    memory_limit_bytes: u64,
    memory_used_bytes: u64,
    memory_overhead_bytes: u64,
    memory_reserved_bytes: u64,
    memory_peak_bytes: u64,
    refused_allocation_count: u64,
    refused_call_count: u64,
    open_file_count: u32,
    tenant_open_file_count: u32,
    process_count: u32,
    managed_mode: &'static str,
    memory_managed_bytes: u64,
    memory_spilled_bytes: u64,
    refused_managed_count: u64,
}

impl From<&uapi::Instance> for Instance {
    fn from(i: &uapi::Instance) -> Self {
        Self {
            id: i.into(),
            weight: i.weight,
            capabilities: Capabilities(i.capabilities).names(),
            memory_limit_bytes: i.memory_limit_bytes,
            memory_used_bytes: i.memory_used_bytes,
            memory_overhead_bytes: i.memory_overhead_bytes,
            memory_reserved_bytes: i.memory_reserved_bytes,
            memory_peak_bytes: i.memory_peak_bytes,
            refused_allocation_count: i.memory_refused,
            refused_call_count: i.calls_refused,
            open_file_count: i.open_files,
            tenant_open_file_count: i.tenant_open_files,
            process_count: i.processes,
            managed_mode: uapi::ManagedMode::name_of(i.managed_mode),
            memory_managed_bytes: i.memory_managed_bytes,
            memory_spilled_bytes: i.memory_spilled_bytes,
            refused_managed_count: i.managed_refused,
        }
    }
}

/// `inst list`, `inst show`.
#[derive(Serialize)]
pub struct Instances {
    /// By name and GPU.
    pub instances: Vec<Instance>,
}

/// `inst create`.
#[derive(Serialize)]
pub struct Created {
    /// In the order of the command line.
    pub instances: Vec<CreatedInstance>,
    /// Sentences that were printed on stderr too.
    pub warnings: Vec<String>,
}

/// An instance that was made.
#[derive(Serialize)]
pub struct CreatedInstance {
    /// Which.
    #[serde(flatten)]
    pub id: InstanceId,
    /// Its weight.
    pub weight: u32,
    /// Its limit.
    pub memory_limit_bytes: u64,
    /// What becomes of managed memory.
    pub managed_mode: &'static str,
}

/// `inst set-mem`.
#[derive(Serialize)]
pub struct MemorySet {
    /// In the order of the command line.
    pub instances: Vec<MemorySetInstance>,
    /// Sentences that were printed on stderr too.
    pub warnings: Vec<String>,
}

/// An instance whose limit was changed.
#[derive(Serialize)]
pub struct MemorySetInstance {
    /// Which.
    #[serde(flatten)]
    pub id: InstanceId,
    /// The limit now.
    pub memory_limit_bytes: u64,
    /// The limit before.
    pub previous_memory_limit_bytes: u64,
}

/// `inst set-weight`.
#[derive(Serialize)]
pub struct WeightSet {
    /// In the order of the command line.
    pub instances: Vec<WeightSetInstance>,
}

/// An instance whose weight was changed.
#[derive(Serialize)]
pub struct WeightSetInstance {
    /// Which.
    #[serde(flatten)]
    pub id: InstanceId,
    /// The weight now.
    pub weight: u32,
    /// The weight before.
    pub previous_weight: u32,
}

/// `inst set-managed`.
#[derive(Serialize)]
pub struct ManagedSet {
    /// In the order of the command line.
    pub instances: Vec<ManagedSetInstance>,
}

/// An instance whose mode was changed.
#[derive(Serialize)]
pub struct ManagedSetInstance {
    /// Which.
    #[serde(flatten)]
    pub id: InstanceId,
    /// The mode now.
    pub managed_mode: &'static str,
    /// The mode before.
    pub previous_managed_mode: &'static str,
}

/// `inst destroy`.
#[derive(Serialize)]
pub struct Destroyed {
    /// In the order of the command line.
    pub destroyed: Vec<InstanceId>,
}

/// `status`.
#[derive(Serialize)]
pub struct Status {
    /// The module.
    pub module: Module,
    /// The NVIDIA driver.
    pub driver: Driver,
    /// The filesystem of the twins.
    pub cgpufs: Cgpufs,
    /// As `gpu list` has them.
    pub gpus: Vec<Gpu>,
    /// As `inst list` has them.
    pub instances: Vec<Instance>,
    /// How compute time is shared.
    pub compute: Compute,
}

/// The module.
#[derive(Serialize)]
pub struct Module {
    /// Its version.
    pub version: String,
    /// Version of its control device's ABI.
    pub abi_version: u32,
}

/// The NVIDIA driver.
#[derive(Serialize)]
pub struct Driver {
    /// Whether it is there and answers.
    pub loaded: bool,
    /// Its version, if the module knows it.
    pub version: Option<String>,
    /// The branch whose tables are in use, if any is.
    pub branch: Option<u32>,
    /// The driver is of another branch, which is not known, and taken for this one.
    pub branch_assumed: bool,
}

/// Where the twins are.
#[derive(Serialize)]
pub struct Cgpufs {
    /// Where the filesystem belongs.
    pub mount_point: &'static str,
    /// Whether it is mounted there.
    pub mounted: bool,
}

/// `unload`.
#[derive(Serialize)]
pub struct Unloaded {
    /// Instances, all of them idle, that went with the module.
    pub destroyed: Vec<InstanceId>,
    /// Where cgpufs was unmounted.
    pub unmounted: Vec<String>,
}

/// `completions`.
#[derive(Serialize)]
pub struct Completions {
    /// For which shell.
    pub shell: String,
    /// The script.
    pub script: String,
}

/// `doctor`.
#[derive(Serialize)]
pub struct Doctor {
    /// Nothing has failed.
    pub sound: bool,
    /// In the order in which they are checked.
    pub findings: Vec<crate::doctor::Finding>,
}

/// `inst set-caps`.
#[derive(Serialize)]
pub struct CapabilitiesSet {
    /// In the order of the command line.
    pub instances: Vec<CapabilitiesSetInstance>,
}

/// An instance whose capabilities were changed.
#[derive(Serialize)]
pub struct CapabilitiesSetInstance {
    /// Which.
    #[serde(flatten)]
    pub id: InstanceId,
    /// What it is for now.
    pub capabilities: Vec<&'static str>,
    /// What it was for before.
    pub previous_capabilities: Vec<&'static str>,
}

/// `inst show --refused`.
#[derive(Serialize)]
pub struct Refused {
    /// By name and GPU.
    pub instances: Vec<RefusedOf>,
}

/// The refused calls of an instance.
#[derive(Serialize)]
pub struct RefusedOf {
    /// Which.
    #[serde(flatten)]
    pub id: InstanceId,
    /// The most frequent first.
    pub refusals: Vec<Refusal>,
    /// Calls of further kinds, for which there was no record left.
    pub other_refusal_count: u64,
    /// What the instance would have to be for so that none of those that can be allowed were refused.
    pub wanted_capabilities: Vec<&'static str>,
}

/// One kind of refused calls.
#[derive(Serialize)]
pub struct Refusal {
    /// What `number` is one of.
    pub call: &'static str,
    /// Its number.
    pub number: u32,
    /// NVIDIA's name for it.
    pub call_name: Option<String>,
    /// Why.
    pub reason: &'static str,
    /// The sets of which one would allow it.
    pub allowed_by: Vec<&'static str>,
    /// How often.
    pub count: u64,
    /// When the last time was, in seconds since 1970.
    pub last_time_s: u64,
    /// Who made the last one.
    pub last_pid: u32,
}
