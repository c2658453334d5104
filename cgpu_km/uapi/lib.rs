// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The ABI of the control device `/dev/cgpuctl`: request codes, records and error causes.
//!
//! One definition for both sides: the kernel module includes this file as a module, `cgpuctl` links
//! it as a crate. The rules are those of the kernel's "botching up ioctls" document: fixed-width
//! fields with natural alignment, no implicit padding, reserved fields that must be zero, pointers
//! as `u64`, an unknown command gives `ENOTTY`, and a change of meaning gets a new command number.
//!
//! All sizes of memory are in bytes. Text fields are UTF-8, padded with NUL bytes.

pub mod capability;
mod cause;
mod clean;
mod compute;
mod key;
mod limits;
mod refusals;
pub mod request;
mod words;

pub use capability::InstanceSetCapabilities;
pub use cause::Cause;
pub use clean::Clean;
pub use compute::*;
pub use key::{
    InstanceKey,
    Name,
    RecordList,
    GPU_ANY,
    NAME_LEN,
    NAME_RULE, //
};
pub use limits::{
    InstanceLimit,
    InstanceLimits,
    InstanceSetLimit,
    LIMIT_DEFAULT, //
};
pub use refusals::{
    InstanceRefusals,
    Refusal,
    TITLE_LEN, //
};
pub use words::{
    CallKind,
    Limited,
    ManagedMode,
    Mode,
    Period,
    Policy,
    Priority,
    RefusalReason, //
};

use core::mem::size_of;
use zerocopy::{
    FromBytes,
    Immutable,
    IntoBytes,
    KnownLayout, //
};

/// Version of this ABI: it grows when a command is added; nothing is ever changed or removed.
pub const ABI_VERSION: u32 = 4;
/// Path of the control device.
pub const CONTROL_PATH: &str = "/dev/cgpuctl";
/// The path at which the tool mounts the filesystem of the proxy nodes.
pub const CGPUFS_MOUNT: &str = "/run/cgpu/dev";
/// Type name of that filesystem, for `mount -t`.
pub const CGPUFS_TYPE: &str = "cgpufs";

/// Names that an instance cannot have, since the folder of a GPU in `/proc/cgpu_km` has, or may
/// get, files of these names; [`Cause::BadName`].
pub const RESERVED_NAMES: [&str; 7] = [
    "burst_ms",
    "policy",
    "max_inst",
    "free_weight",
    "prio_ratio",
    "status",
    "version",
];
/// Most GPUs that are served.
pub const MAX_GPUS: usize = 16;
/// Most instances on one GPU.
pub const MAX_INSTANCES_PER_GPU: usize = 64;
/// Groups and channels, each, that a runlist of a GPU has for programs.
pub const CHANNELS_MAX: u32 = 2044;
/// Weights run from 1 to this.
pub const WEIGHT_MAX: u32 = 100;
/// Weight of an instance for which none was named.
pub const WEIGHT_DEFAULT: u32 = 1;
/// [`InstanceCreate::flags`], [`InstanceSetMemory::flags`]: let the limits of a GPU's instances add
/// up to more than its memory.
pub const FLAG_OVERCOMMIT: u32 = 1;

/// The text of a NUL-padded text field, up to its first NUL or its first byte that is not UTF-8.
pub fn text(field: &[u8]) -> &str {
    let len = field.iter().position(|&b| b == 0).unwrap_or(field.len());
    let bytes = field.get(..len).unwrap_or_default();
    match core::str::from_utf8(bytes) {
        Ok(text) => text,
        Err(e) => core::str::from_utf8(bytes.get(..e.valid_up_to()).unwrap_or_default())
            .unwrap_or_default(),
    }
}

/// Puts a text into a field of NUL bytes, and a NUL at its end: the opposite of [`text`]. What does
/// not fit is cut off.
pub fn put_text(field: &mut [u8], text: &str) {
    let room = field.len().saturating_sub(1);
    for (to, from) in field.iter_mut().take(room).zip(text.bytes()) {
        *to = from;
    }
}

/// Versions.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Version {
    /// [`ABI_VERSION`] of the module.
    pub abi: u32,
    /// Major number of the driver branch whose tables are in use (580), 0 while none is attached.
    pub branch: u32,
    /// The module's own version, text.
    pub module: [u8; 32],
    /// The running NVIDIA driver's version, text; empty while no GPU was attached.
    pub driver: [u8; 64],
    /// 1: the driver is of another branch, without tables, and taken for `branch` because the
    /// module was loaded with `unsafe_assume_branch`.
    pub branch_assumed: u32,
    /// Zero.
    pub reserved: [u32; 7],
}

/// A GPU of this host.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Gpu {
    /// `N` of `/dev/nvidiaN`.
    pub minor: u32,
    /// RM's GPU id (NVIDIA's `gpuId`).
    pub gpu_id: u32,
    /// RM's device instance (what `NV01_DEVICE_0` is allocated by).
    pub device_instance: u32,
    /// Number of instances on it.
    pub instances: u32,
    /// Instances among which the policy `fixed-equal` divides the GPU.
    pub max_instances: u32,
    /// A number of [`Policy`].
    pub policy: u32,
    /// The part of [`WEIGHT_MAX`] that the weights of its instances leave.
    pub free_weight: u32,
    /// Zero.
    pub reserved0: u32,
    /// Memory (FB_GET_INFO index 0x08), bytes.
    pub memory_bytes: u64,
    /// Sum of the limits of its instances, bytes.
    pub allotted_bytes: u64,
    /// Charged to its instances now, bytes.
    pub used_bytes: u64,
    /// `GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx`, text.
    pub uuid: [u8; 48],
    /// `dddd:bb:dd.f`, text.
    pub pci: [u8; 16],
    /// Product name, text; empty where the driver tells none.
    pub name: [u8; 64],
    /// Family of the chip as RM tells it (`NV2080_CTRL_MC_ARCH_INFO_ARCHITECTURE_*`: 0x180 is
    /// Hopper); 0 where it does not.
    pub architecture: u32,
    /// Chip within the family (`NV2080_CTRL_MC_ARCH_INFO_IMPLEMENTATION_*`).
    pub implementation: u32,
    /// MIG mode when the GPU was attached, plus one, of RM's [`mig`]; 0 where RM does not tell.
    pub mig_mode: u32,
    /// Zero.
    pub reserved: [u32; 5],
}

/// [`Gpu::mig_mode`]: `NV2080_CTRL_GPU_INFO_GPU_SMC_MODE_*` plus one.
pub mod mig {
    /// RM did not tell.
    pub const UNKNOWN: u32 = 0;
    /// The GPU has no MIG.
    pub const UNSUPPORTED: u32 = 1;
    /// It is on.
    pub const ENABLED: u32 = 2;
    /// It is off.
    pub const DISABLED: u32 = 3;
    /// It will be on after a reset.
    pub const ENABLE_PENDING: u32 = 4;
    /// It will be off after a reset.
    pub const DISABLE_PENDING: u32 = 5;
}

/// Makes an instance of `key.name` on `key.gpu_minor` ([`GPU_ANY`] is not allowed).
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct InstanceCreate {
    /// Name and GPU.
    pub key: InstanceKey,
    /// Memory limit, bytes, not zero.
    pub memory_limit_bytes: u64,
    /// 1 to [`WEIGHT_MAX`].
    pub weight: u32,
    /// [`FLAG_OVERCOMMIT`].
    pub flags: u32,
    /// Out: instance number, `N` of `/dev/cgpuN`.
    pub id: u32,
    /// The mode of managed memory: a number of [`ManagedMode`].
    pub managed_mode: u32,
    /// The sets of calls that it may make: bits of [`capability`]; 0: [`capability::DEFAULT`].
    pub capabilities: u32,
    /// Must be zero.
    pub reserved: [u32; 7],
}

/// One instance, as it is now.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Instance {
    /// Name and GPU.
    pub key: InstanceKey,
    /// Instance number, `N` of `/dev/cgpuN`.
    pub id: u32,
    /// Weight.
    pub weight: u32,
    /// Memory limit, bytes.
    pub memory_limit_bytes: u64,
    /// Charged for objects, bytes (overhead not included).
    pub memory_used_bytes: u64,
    /// Charged for contexts (what the driver takes for one without an allocation), bytes.
    pub memory_overhead_bytes: u64,
    /// Reserved by allocations in flight, bytes.
    pub memory_reserved_bytes: u64,
    /// Highest `memory_used_bytes` so far.
    pub memory_peak_bytes: u64,
    /// Allocations refused for want of memory.
    pub memory_refused: u64,
    /// Calls refused because no table allows them.
    pub calls_refused: u64,
    /// Open files of the instance's own node.
    pub open_files: u32,
    /// Open files of the tenant's control and UVM nodes.
    pub tenant_open_files: u32,
    /// Processes that hold memory.
    pub processes: u32,
    /// Major number of the host nodes (`/dev/cgpuN` and the tenant's two).
    pub major: u32,
    /// Minor number of `/dev/cgpuN`.
    pub node_minor: u32,
    /// Minor number of `/dev/cgpu-NAME-ctl`.
    pub control_node_minor: u32,
    /// Minor number of `/dev/cgpu-NAME-uvm`.
    pub uvm_node_minor: u32,
    /// The mode of managed memory: a number of [`ManagedMode`].
    pub managed_mode: u32,
    /// Managed memory that the GPU may hold, bytes. Counts against the limit, beside
    /// `memory_used_bytes`.
    pub memory_managed_bytes: u64,
    /// Managed memory that did not fit and is in host memory, bytes.
    pub memory_spilled_bytes: u64,
    /// Mappings of managed memory that were refused.
    pub managed_refused: u64,
    /// The sets of calls that it may make: bits of [`capability`].
    pub capabilities: u32,
    /// The most groups and channels, each, that it may have on a runlist of the GPU.
    pub channel_limit: u32,
    /// Groups or channels, whichever are more, on the runlist where it has the most.
    pub channels: u32,
    /// Groups and channels refused because of that limit; no more than fit here are counted.
    pub channels_refused: u32,
    /// Zero.
    pub reserved: [u32; 2],
}

/// Asks for one instance.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct InstanceGet {
    /// In: which.
    pub key: InstanceKey,
    /// Out.
    pub instance: Instance,
}

/// Changes a memory limit.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct InstanceSetMemory {
    /// Which.
    pub key: InstanceKey,
    /// New limit, bytes, not zero. Below what is used, new allocations fail until enough is freed.
    pub memory_limit_bytes: u64,
    /// [`FLAG_OVERCOMMIT`].
    pub flags: u32,
    /// Must be zero.
    pub reserved: [u32; 5],
}

/// Changes a weight.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct InstanceSetWeight {
    /// Which.
    pub key: InstanceKey,
    /// 1 to [`WEIGHT_MAX`].
    pub weight: u32,
    /// Must be zero.
    pub reserved: [u32; 5],
}

/// Changes what becomes of managed memory.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct InstanceSetManaged {
    /// Which.
    pub key: InstanceKey,
    /// A number of [`ManagedMode`], for what is mapped from now on.
    pub managed_mode: u32,
    /// Must be zero.
    pub reserved: [u32; 5],
}

/// Changes how many channels an instance may have.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct InstanceSetChannels {
    /// Which.
    pub key: InstanceKey,
    /// The most groups and channels, each, on a runlist of the GPU: 1 to [`CHANNELS_MAX`]. Below
    /// what there is, no more are made until enough are gone.
    pub channel_limit: u32,
    /// [`FLAG_OVERCOMMIT`]: the limits on the GPU may add up to more than [`CHANNELS_MAX`].
    pub flags: u32,
    /// Must be zero.
    pub reserved: [u32; 4],
}

const _: () = {
    assert!(size_of::<Version>() == 136);
    assert!(size_of::<RecordList>() == 40);
    assert!(size_of::<Gpu>() == 216);
    assert!(size_of::<InstanceKey>() == 88);
    assert!(size_of::<InstanceCreate>() == 144);
    assert!(size_of::<Instance>() == 232);
    assert!(size_of::<InstanceGet>() == 320);
    assert!(size_of::<InstanceSetMemory>() == 120);
    assert!(size_of::<InstanceSetWeight>() == 112);
    assert!(size_of::<InstanceSetManaged>() == 112);
    assert!(size_of::<InstanceSetChannels>() == 112);
    assert!(size_of::<InstanceSetCapabilities>() == 112);
    assert!(size_of::<InstanceLimits>() == 144);
    assert!(size_of::<InstanceLimit>() == 48);
    assert!(size_of::<InstanceSetLimit>() == 120);
    assert!(size_of::<InstanceRefusals>() == 160);
    assert!(size_of::<Refusal>() == 152);
};

#[cfg(test)]
mod tests;
