// SPDX-License-Identifier: GPL-2.0
//! The cost of compute contexts and of channels: page tables, instance memory and context buffers,
//! which no allocation shows.
//!
//! The driver and the GPU's firmware take them when a program makes a channel group for compute (or
//! a channel without a group, which gets one) and with each channel, and no call tells how much. It
//! was measured: by how much the free memory of FB_GET_INFO fell, less the sum of the objects of
//! class 0x40.
//!
//! | architecture | first context of a GPU | each further one | each channel |
//! |---|---|---|---|
//! | Hopper | 7,744 KiB | 4,416 KiB | 64 KiB |
//! | any other: the largest figures that are known | as Hopper | as Hopper | as Hopper |
//!
//! With the 20 channels that CUDA makes this is 9,024 KiB for the first program and 5,696 KiB for
//! each further one, as the recordings have it: `cuda-driver-api` (one context), and `ipc-a` with
//! `ipc-b` (two: 14,720 KiB). The parts are from groups and channels alone
//! (docs/measurements/2026-11-23-channels.md). A group has pools of its own
//! (`kchangrpapiConstruct_IMPL()`), and the instance block of each channel takes a chunk of 64 KiB
//! there, since it must be in one piece (`poolAllocateContig()`, poolalloc.c). The chunks stay in
//! the pool until the group is gone, whatever becomes of the channel (`rmMemPoolFree()` trims no
//! pool of buffers). So a group is charged for as many channels as it ever had at once.
//!
//! The first context takes more than the further ones. The difference is the GPU's and is taken
//! once. A tenant must not learn whether another one made the first context, so each tenant is
//! charged the difference once, as long as it has a context.
//!
//! Page tables are charged as well, as far as they are more than what those figures have in them
//! ([`STARTUP_TABLES`]): see [`super::paging`].

use crate::nvidia::architecture::HOPPER;

/// The cost of contexts on a GPU, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContextCost {
    /// Charged to a tenant once, as long as it has any context.
    pub shared: u64,
    /// Charged for each context, without its channels.
    pub each: u64,
}

/// Bytes of page tables that each context is charged for already, because its program had them when
/// it was measured. The recordings map 28 to 56 KiB of tables between their start and their first
/// allocation, and make one address space whose own take 20 KiB.
pub(super) const STARTUP_TABLES: u64 = 96 << 10;

/// Bytes that each channel takes in the pool of its group.
pub(super) const CHANNEL: u64 = 64 << 10;

/// Bytes that a group takes for its engine's own state, if the engine neither computes nor copies:
/// a chunk (`ctxBufferSize` in `kchangrpapiConstruct_IMPL()`, kernel_channel_group_api.c). This was
/// not measured. A group for copies takes nothing.
pub(super) const OTHER_GROUP: u64 = 64 << 10;

/// Measured costs, by architecture.
const MEASURED: [(u32, ContextCost); 1] = [(
    HOPPER,
    ContextCost {
        shared: (9024 - 5696) << 10,
        each: 4416 << 10,
    },
)];

impl ContextCost {
    /// The cost on a GPU of this architecture; 0: the architecture is not known.
    pub fn of(architecture: u32) -> Self {
        let known = MEASURED.iter().find(|(known, _)| *known == architecture);
        known.map_or(Self::LARGEST, |(_, cost)| *cost)
    }

    /// The cost on a GPU of which nothing is known: the largest of each figure that was measured.
    pub const LARGEST: Self = {
        let mut largest = Self { shared: 0, each: 0 };
        let mut rest: &[(u32, Self)] = &MEASURED;
        while let [(_, cost), others @ ..] = rest {
            if cost.shared > largest.shared {
                largest.shared = cost.shared;
            }
            if cost.each > largest.each {
                largest.each = cost.each;
            }
            rest = others;
        }
        largest
    };

    /// The cost of so many contexts together.
    pub(super) fn all(&self, contexts: u64) -> u64 {
        match contexts {
            0 => 0,
            some => self.each.saturating_mul(some).saturating_add(self.shared),
        }
    }

    /// The cost of so many contexts and of page tables, in bytes, together.
    pub(super) fn with_tables(&self, contexts: u64, tables: u64) -> u64 {
        let charged = tables.saturating_sub(contexts.saturating_mul(STARTUP_TABLES));
        self.all(contexts).saturating_add(charged)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_recordings_figures_come_out() {
        // Measured on the H200: KiB that no object shows, with one and with two contexts of 20
        // channels each.
        let cost = ContextCost::of(0x180);
        let with_channels = [0, 1, 2].map(|n| cost.all(n) + 20 * n * CHANNEL);
        assert_eq!(with_channels.map(|bytes| bytes >> 10), [0, 9024, 14720]);
        // And groups and channels alone: 21 groups for compute with 2,044 channels, and one more
        // that was refused; 2,044 groups for copies with one channel each.
        let groups = 21 * cost.each + 2045 * CHANNEL;
        assert_eq!([groups >> 10, (2044 * CHANNEL) >> 10], [223_616, 130_816]);
    }

    #[test]
    fn an_unmeasured_gpu_costs_the_most_measured() {
        for architecture in [0, 0x160, 0x170, 0x190, 0x1a0, 0x1b0] {
            let cost = ContextCost::of(architecture);
            for (_, known) in MEASURED {
                assert!(cost.shared >= known.shared && cost.each >= known.each);
            }
        }
    }
}
