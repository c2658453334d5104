// SPDX-License-Identifier: GPL-2.0
//! Names of files, processes and GPUs, and of a tenant's share of a GPU.

use crate::uapi::MAX_GPUS;
use core::num::NonZeroU8;

/// Most GPUs that one tenant can have a share of; as many as the control device serves.
pub const MAX_SHARES: usize = MAX_GPUS;

/// One open proxied file. Unique while the module is loaded, never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileId(pub u64);

/// A process: its thread group's id in the initial PID namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessId(pub i32);

/// A GPU by the number that RM calls its device instance: `deviceId` of `NV0080_ALLOC_PARAMETERS`.
/// It is not the minor of the GPU's node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GpuId(pub u32);

/// A tenant's share of one GPU, as the number of its ledger, counted from 1 so that an optional one
/// takes no more room. At most [`MAX_SHARES`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ShareId(NonZeroU8);

impl ShareId {
    /// The share of a place in lists by share.
    pub(super) fn at(index: usize) -> Option<Self> {
        let number = u8::try_from(index).ok()?.checked_add(1)?;
        NonZeroU8::new(number).map(Self)
    }

    /// Its place in lists by share.
    pub(super) fn index(self) -> usize {
        usize::from(self.0.get() - 1)
    }

    /// The set of this share alone: one bit.
    pub(super) fn bit(self) -> u32 {
        1u32.checked_shl(u32::from(self.0.get() - 1)).unwrap_or(0)
    }
}
