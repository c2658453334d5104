// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Capabilities of an instance: sets of the driver's calls, by the names that NVIDIA's containers
//! know (`NVIDIA_DRIVER_CAPABILITIES`). A call that no set of an instance allows is refused.

use super::key::InstanceKey;
use zerocopy::{
    FromBytes,
    Immutable,
    IntoBytes,
    KnownLayout, //
};

/// CUDA, OpenCL.
pub const COMPUTE: u32 = 1;
/// nvidia-smi, NVML.
pub const UTILITY: u32 = 1 << 1;
/// Vulkan, OpenGL and EGL without a display.
pub const GRAPHICS: u32 = 1 << 2;
/// Encoders, decoders, JPEG, optical flow.
pub const VIDEO: u32 = 1 << 3;
/// Counters of the whole GPU, which show what neighbours do.
pub const PROFILING: u32 = 1 << 4;
/// Memory for other devices: GPUDirect RDMA, dma-buf.
pub const RDMA: u32 = 1 << 5;
/// All of them.
pub const ALL: u32 = (1 << 6) - 1;
/// Of an instance for which none were named.
pub const DEFAULT: u32 = COMPUTE | UTILITY;
/// Their names.
pub const NAMES: [(u32, &str); 6] = [
    (COMPUTE, "compute"),
    (UTILITY, "utility"),
    (GRAPHICS, "graphics"),
    (VIDEO, "video"),
    (PROFILING, "profiling"),
    (RDMA, "rdma"),
];

/// Changes what an instance is for. Objects that it has stay.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct InstanceSetCapabilities {
    /// Which.
    pub key: InstanceKey,
    /// Bits of the sets above, not 0.
    pub capabilities: u32,
    /// Must be zero.
    pub reserved: [u32; 5],
}
