// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The JSON objects that several commands print; those of one command stand in its file. Schema 1,
//! documented in docs/json.md: keys are snake_case with the unit in the name, and are only ever
//! added.

use crate::capabilities::Capabilities;
pub use cgpu_client::{container::device_path, metrics::charged, text::known};
use cgpu_uapi as uapi;
use serde::Serialize;

/// Declares a JSON object of the members of a record: `key: type = value`.
macro_rules! object {
    (
        $(#[$about:meta])*
        pub struct $name:ident of $record:ident: &$of:ty {
            $($(#[$note:meta])* $key:ident: $type:ty = $value:expr,)*
        }
    ) => {
        $(#[$about])*
        #[derive(serde::Serialize)]
        pub struct $name {
            $($(#[$note])* $key: $type,)*
        }

        impl From<&$of> for $name {
            fn from($record: &$of) -> Self {
                Self {
                    $($key: $value,)*
                }
            }
        }
    };
}
pub(crate) use object;

object! {
    /// A GPU.
    pub struct Gpu of gpu: &uapi::Gpu {
        minor: u32 = gpu.minor,
        uuid: String = uapi::text(&gpu.uuid).to_owned(),
        pci_address: String = uapi::text(&gpu.pci).to_owned(),
        name: Option<String> = known(&gpu.name),
        gpu_id: u32 = gpu.gpu_id,
        device_instance: u32 = gpu.device_instance,
        memory_bytes: u64 = gpu.memory_bytes,
        memory_allotted_bytes: u64 = gpu.allotted_bytes,
        memory_used_bytes: u64 = gpu.used_bytes,
        instance_count: u32 = gpu.instances,
        max_instances: u32 = gpu.max_instances,
        policy: u32 = gpu.policy,
        policy_name: &'static str = uapi::Policy::name_of(gpu.policy),
        free_weight: u32 = gpu.free_weight,
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

object! {
    /// An instance as it is now.
    pub struct Instance of i: &uapi::Instance {
        #[serde(flatten)]
        id: InstanceId = i.into(),
        weight: u32 = i.weight,
        capabilities: Capabilities = Capabilities(i.capabilities),
        memory_limit_bytes: u64 = i.memory_limit_bytes,
        memory_charged_bytes: u64 = charged(i),
        memory_used_bytes: u64 = i.memory_used_bytes,
        memory_overhead_bytes: u64 = i.memory_overhead_bytes,
        memory_reserved_bytes: u64 = i.memory_reserved_bytes,
        memory_peak_bytes: u64 = i.memory_peak_bytes,
        refused_allocation_count: u64 = i.memory_refused,
        refused_call_count: u64 = i.calls_refused,
        open_file_count: u32 = i.open_files,
        tenant_open_file_count: u32 = i.tenant_open_files,
        process_count: u32 = i.processes,
        managed_mode: &'static str = uapi::ManagedMode::name_of(i.managed_mode),
        memory_managed_bytes: u64 = i.memory_managed_bytes,
        memory_spilled_bytes: u64 = i.memory_spilled_bytes,
        refused_managed_count: u64 = i.managed_refused,
        channel_limit: u32 = i.channel_limit,
        channel_count: u32 = i.channels,
        refused_channel_count: u32 = i.channels_refused,
    }
}

object! {
    /// A limit of an instance, beside those of memory and channels.
    pub struct LimitReport of l: &uapi::InstanceLimit {
        of: &'static str = uapi::Limited::name_of(l.what),
        limit: u64 = l.limit,
        is_default: bool = l.is_set == 0,
        used: u64 = l.used,
        refused_count: u64 = l.refused,
    }
}

/// `instances` of `inst list`.
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
