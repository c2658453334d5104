// SPDX-License-Identifier: GPL-2.0
//! The view of a tenant's share of a GPU.

use crate::uapi::ManagedMode;

/// The size of a GPU's memory as a tenant is told it, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FbView {
    /// The size that the GPU seems to have.
    pub limit: u64,
    /// Bytes of it that are left.
    pub free: u64,
    /// Bytes of BAR1 that are left; `u64::MAX`: what the driver tells.
    pub free_bar1: u64,
}

impl FbView {
    /// The free part of BAR1 in KiB, of which the driver says that it is `real`. It moves as
    /// neighbours map memory, so it is not told where the tenant has a part of its own.
    pub(super) fn free_bar1_kib(self, real: u32) -> u32 {
        let most = |bytes: u64| u32::try_from(bytes / 1024).unwrap_or(u32::MAX);
        match self.free_bar1 {
            u64::MAX => real.min(most(self.free)),
            free => most(free.min(self.free)),
        }
    }
}

impl FbView {
    /// The same for a program that knows another size, in KiB, and does not ask anew; 0: it knows
    /// none. It is told what is left of the size that it knows, never more than there is.
    pub(super) fn as_told(self, size: u32) -> Self {
        let told = u64::from(size) * 1024;
        if told == 0 || told >= self.limit {
            return self;
        }
        let taken = self.limit.saturating_sub(self.free);
        Self {
            limit: told,
            free: told.saturating_sub(taken),
            ..self
        }
    }

    /// The size in whole KiB, as far as they fit into the driver's fields.
    pub(super) fn limit_kib(&self) -> u32 {
        kib(self.limit)
    }

    /// The free part, likewise.
    pub(super) fn free_kib(&self) -> u32 {
        kib(self.free)
    }
}

fn kib(bytes: u64) -> u32 {
    u32::try_from(bytes / 1024).unwrap_or(u32::MAX)
}

/// The state of a tenant's share of one GPU. Memory is in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ShareView {
    /// The most that may be taken.
    pub limit: u64,
    /// Taken by objects that show a size.
    pub used: u64,
    /// Asked of the driver and not answered yet.
    pub reserved: u64,
    /// Taken invisibly by compute contexts and page tables; counts against the limit as well.
    pub overhead: u64,
    /// The most that `used` ever was.
    pub peak: u64,
    /// The most that `overhead` ever was.
    pub overhead_peak: u64,
    /// How often it came to be over the limit ([`ShareView::over`]).
    pub over_count: u64,
    /// Calls refused because the limit was reached.
    pub refused: u64,
    /// Calls refused for any other reason; those that concern no GPU in particular count on each.
    pub refused_calls: u64,
    /// Live RM objects at or below a device object of this GPU.
    pub objects: u64,
    /// RM clients with a device object of this GPU.
    pub clients: u64,
    /// The fate of managed memory that does not fit.
    pub managed_mode: ManagedMode,
    /// Managed memory that the GPU may hold; counts against the limit, and is not in `used`.
    pub managed: u64,
    /// The most that `managed` ever was.
    pub managed_peak: u64,
    /// Managed memory that the GPU may not hold, because it did not fit: it is in host memory.
    pub spilled: u64,
    /// Mappings of managed memory that were refused.
    pub managed_refused: u64,
    /// The most groups and channels, each, that it may have on a runlist.
    pub channel_limit: u32,
    /// Groups or channels, whichever are more, on the runlist where they are the most.
    pub channels: u32,
    /// Groups and channels that were refused because of that limit.
    pub channels_refused: u64,
}

impl ShareView {
    /// Bytes that may still be taken.
    pub fn free(&self) -> u64 {
        self.limit
            .saturating_sub(self.used)
            .saturating_sub(self.overhead)
            .saturating_sub(self.managed)
            .saturating_sub(self.reserved)
    }

    /// More is taken than the limit allows, because it was lowered.
    pub fn over(&self) -> bool {
        self.excess() > 0
    }

    /// How much more is taken than the limit allows.
    pub fn excess(&self) -> u64 {
        self.used
            .saturating_add(self.overhead)
            .saturating_add(self.managed)
            .saturating_add(self.reserved)
            .saturating_sub(self.limit)
    }
}
