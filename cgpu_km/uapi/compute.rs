// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Records of the commands about compute time.

use super::{
    key::InstanceKey,
    words::Priority, //
};
#[cfg(doc)]
use super::{
    key::GPU_ANY,
    words::{
        Mode,
        Period,
        Policy, //
    },
    MAX_INSTANCES_PER_GPU, //
};
use core::mem::size_of;
use zerocopy::{
    FromBytes,
    Immutable,
    IntoBytes,
    KnownLayout, //
};

/// Bits of [`GpuSetCompute::set`] and [`InstanceSetCompute::set`]: which fields are meant; the
/// others must be zero.
pub mod set {
    /// [`super::GpuSetCompute::policy`].
    pub const POLICY: u32 = 1;
    /// [`super::GpuSetCompute::period`].
    pub const PERIOD: u32 = 1 << 1;
    /// [`super::GpuSetCompute::max_instances`].
    pub const MAX_INSTANCES: u32 = 1 << 2;
    /// [`super::GpuSetCompute::priority_percent`].
    pub const PRIORITY_PERCENT: u32 = 1 << 3;
    /// [`super::GpuSetCompute::burst_ms`].
    pub const BURST: u32 = 1 << 4;

    /// [`super::InstanceSetCompute::high_priority`].
    pub const HIGH_PRIORITY: u32 = 1;
    /// [`super::InstanceSetCompute::suspended`].
    pub const SUSPENDED: u32 = 1 << 1;
    /// [`super::InstanceSetCompute::burst_ms`].
    pub const INSTANCE_BURST: u32 = 1 << 2;
}

/// The longest burst, milliseconds of GPU time.
pub const BURST_MS_MAX: u32 = 10_000;
/// [`InstanceSetCompute::burst_ms`]: as the GPU has it.
pub const BURST_OF_GPU: u32 = u32::MAX;

/// Changes how the compute time of a GPU is shared: all that is named, or nothing.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct GpuSetCompute {
    /// Which GPU ([`GPU_ANY`] is not allowed).
    pub gpu_minor: u32,
    /// The values to change: bits of [`set`], at least one.
    pub set: u32,
    /// A number of [`Policy`].
    pub policy: u32,
    /// A number of [`Period`].
    pub period: u32,
    /// Instances among which the policy `fixed-equal` divides the GPU, 1 to
    /// [`MAX_INSTANCES_PER_GPU`].
    pub max_instances: u32,
    /// The part that instances of high priority may take before weights count again, percent, 1 to
    /// 99.
    pub priority_percent: u32,
    /// Most service that an instance is owed after it had no work, milliseconds of GPU time: 0 to
    /// [`BURST_MS_MAX`].
    pub burst_ms: u32,
    /// Must be zero.
    pub reserved: [u32; 3],
}

/// Changes the priority or the burst of an instance, suspends or resumes it.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct InstanceSetCompute {
    /// Which.
    pub key: InstanceKey,
    /// The values to change: bits of [`set`], at least one.
    pub set: u32,
    /// A number of [`Priority`].
    pub high_priority: u32,
    /// 1: kept off the GPU; 0: let on again.
    pub suspended: u32,
    /// Its own burst, 0 to [`BURST_MS_MAX`], or [`BURST_OF_GPU`].
    pub burst_ms: u32,
    /// Must be zero.
    pub reserved: [u32; 4],
}

/// How the compute time of a GPU is shared now.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct GpuCompute {
    /// `N` of `/dev/nvidiaN`.
    pub minor: u32,
    /// A number of [`Policy`].
    pub policy: u32,
    /// A number of [`Period`].
    pub period: u32,
    /// A number of [`Mode`].
    pub mode: u32,
    /// Instances among which the policy `fixed-equal` divides it.
    pub max_instances: u32,
    /// The part that instances of high priority may take before weights count again, percent.
    pub priority_percent: u32,
    /// The mechanisms that the scheduler can use on this GPU: bits of [`mechanism`].
    pub mechanisms: u32,
    /// Most service that an instance is owed after it had no work, milliseconds of GPU time.
    pub burst_ms: u32,
    /// Changes from one instance's window or slice to another's.
    pub switches: u64,
    /// Calls into the driver that the scheduler made.
    pub calls: u64,
    /// When this was read: nanoseconds of `CLOCK_MONOTONIC`.
    pub now_ns: u64,
    /// Zero.
    pub reserved: [u64; 4],
}

/// Bits of [`GpuCompute::mechanisms`].
pub mod mechanism {
    /// Time slices of channel groups.
    pub const TIMESLICE: u32 = 1;
    /// Switching channels off and on.
    pub const SWITCH: u32 = 1 << 1;
    /// Preempting.
    pub const PREEMPT: u32 = 1 << 2;
    /// Taking doorbells away.
    pub const DOORBELL: u32 = 1 << 3;
    /// The driver's samples of who uses the GPU.
    pub const SAMPLES: u32 = 1 << 4;
    /// Their names.
    pub const NAMES: [(u32, &str); 5] = [
        (TIMESLICE, "timeslice"),
        (SWITCH, "switch"),
        (PREEMPT, "preempt"),
        (DOORBELL, "doorbell"),
        (SAMPLES, "samples"),
    ];
}

/// Bits of [`InstanceCompute::state`].
pub mod state {
    /// Of high priority.
    pub const HIGH_PRIORITY: u32 = 1;
    /// Kept off the GPU by the operator.
    pub const SUSPENDED: u32 = 1 << 1;
    /// Taken to have work.
    pub const WORKING: u32 = 1 << 2;
    /// Not kept from the GPU at the moment.
    pub const RUNNING: u32 = 1 << 3;
}

/// The GPU time of an instance since it was made.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct InstanceCompute {
    /// Name and GPU.
    pub key: InstanceKey,
    /// Instance number, `N` of `/dev/cgpuN`.
    pub id: u32,
    /// Weight.
    pub weight: u32,
    /// Bits of [`state`].
    pub state: u32,
    /// Tasks that are blocked at its doorbell now.
    pub blocked_tasks: u32,
    /// Time that it had the GPU, nanoseconds; nothing is added under policy 5.
    pub gpu_time_ns: u64,
    /// Windows and slices that it had.
    pub windows: u64,
    /// Times that it was switched off with work.
    pub preemptions: u64,
    /// Time that a task of it was blocked at its doorbell, nanoseconds.
    pub blocked_ns: u64,
    /// GPU time that it is owed now because it left its share to others, nanoseconds.
    pub owed_ns: u64,
    /// Its burst, milliseconds, or [`BURST_OF_GPU`].
    pub burst_ms: u32,
    /// Zero.
    pub reserved0: u32,
    /// Zero.
    pub reserved: [u64; 2],
}

impl Priority {
    /// The priority in the bits of [`state`].
    pub const fn of(bits: u32) -> Self {
        if bits & state::HIGH_PRIORITY == 0 {
            Self::Normal
        } else {
            Self::High
        }
    }
}

const _: () = {
    assert!(size_of::<GpuSetCompute>() == 40);
    assert!(size_of::<InstanceSetCompute>() == 120);
    assert!(size_of::<GpuCompute>() == 88);
    assert!(size_of::<InstanceCompute>() == 168);
};
