// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Capabilities of an instance: sets of calls, by the names that NVIDIA's containers know them by
//! (`NVIDIA_DRIVER_CAPABILITIES`), and as gVisor's nvproxy divides the driver's calls among them.
//!
//! Each entry of the tables says which of the sets allow it, any of them. The lists in `tests/abi`
//! say what belongs where.

use crate::uapi::capability;
use core::fmt;

/// Some of the sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct Capabilities(u32);

/// CUDA, OpenCL.
pub const COMPUTE: Capabilities = Capabilities(capability::COMPUTE);
/// nvidia-smi and NVML.
pub const UTILITY: Capabilities = Capabilities(capability::UTILITY);
/// Vulkan, OpenGL and EGL without a display.
pub const GRAPHICS: Capabilities = Capabilities(capability::GRAPHICS);
/// Encoders, decoders, JPEG, optical flow.
pub const VIDEO: Capabilities = Capabilities(capability::VIDEO);
/// Counters of the whole GPU; they show what neighbours do.
pub const PROFILING: Capabilities = Capabilities(capability::PROFILING);
/// Memory for other devices: GPUDirect RDMA, dma-buf.
pub const RDMA: Capabilities = Capabilities(capability::RDMA);
/// The calls that every set allows: clients, devices, questions about the GPU.
pub const BASE: Capabilities = Capabilities(capability::ALL);
/// The calls that every set but [`UTILITY`] allows: memory, channels, UVM, all that has the GPU do
/// something.
pub const WORK: Capabilities = Capabilities(capability::ALL & !capability::UTILITY);

impl Capabilities {
    /// None of them.
    pub const NONE: Self = Self(0);
    /// The capabilities of an instance for which none were named.
    pub const DEFAULT: Self = Self(capability::DEFAULT);

    /// The sets with these bits; `None` where there is no bit, or one that is no set.
    pub const fn from_bits(bits: u32) -> Option<Self> {
        if bits != 0 && bits & !capability::ALL == 0 {
            Some(Self(bits))
        } else {
            None
        }
    }

    /// Their bits.
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// The sets that are in either.
    pub const fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether a set is in both.
    pub const fn meets(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }
}

/// Their names, with commas between them.
impl fmt::Display for Capabilities {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut comma = "";
        for (bit, name) in capability::NAMES {
            if self.0 & bit != 0 {
                write!(f, "{comma}{name}")?;
                comma = ",";
            }
        }
        Ok(())
    }
}
