// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The JSON objects that several commands print; those of one command stand in its file. Schema 1,
//! documented in docs/json.md: keys are snake_case with the unit in the name, and are only ever
//! added.

use crate::capabilities::Capabilities;
use cgpu_uapi as uapi;
use serde::Serialize;

/// The text of a field, if there is any.
pub fn known(field: &[u8]) -> Option<String> {
    Some(uapi::text(field).to_owned()).filter(|text| !text.is_empty())
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

/// Which instance.
#[derive(Serialize)]
pub struct InstanceId {
    name: String,
    gpu_minor: u32,
    id: u32,
    device: String,
}

/// Path of the host node of an instance.
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
    capabilities: Capabilities,
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
            capabilities: Capabilities(i.capabilities),
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

/// `instances` of `inst list` and `inst show`.
#[derive(Serialize)]
pub struct Instances {
    instances: Vec<Instance>,
}

impl From<&[uapi::Instance]> for Instances {
    fn from(instances: &[uapi::Instance]) -> Self {
        Self {
            instances: instances.iter().map(Instance::from).collect(),
        }
    }
}
