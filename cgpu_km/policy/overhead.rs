// SPDX-License-Identifier: GPL-2.0
//! The cost of compute contexts: page tables, instance memory and context buffers, which no
//! allocation shows.
//!
//! The driver and the GPU's firmware take them when a program makes its first channel group for
//! compute (or a channel without a group, which gets one), and no call tells how much. It was
//! measured: by how much the free memory of FB_GET_INFO fell, less the sum of the objects of class
//! 0x40.
//!
//! | architecture | first context of a GPU | each further one | source |
//! |---|---|---|---|
//! | Hopper | 9,024 KiB | 5,696 KiB | H200 and H100, driver 580.159.04 (docs/measurements) |
//! | any other | as Hopper | as Hopper | not measured: the largest figures that are known |
//!
//! The recordings are `cuda-driver-api` (one context), and `ipc-a` with `ipc-b` (two: 14,720 KiB).
//!
//! The first context takes more than the further ones. The difference is the GPU's and is taken
//! once. A tenant must not learn whether another one made the first context, so each tenant is
//! charged the difference once, as long as it has a context.
//!
//! Page tables are charged as well, as far as they are more than what those figures have in them
//! ([`STARTUP_TABLES`]): see [`super::paging`].

/// The cost of contexts on a GPU, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContextCost {
    /// Once, as long as there is any context.
    pub shared: u64,
    /// Each context.
    pub each: u64,
}

/// Bytes of page tables that each context is charged for already, because its program had them when
/// it was measured. The recordings map 28 to 56 KiB of tables between their start and their first
/// allocation, and make one address space whose own take 20 KiB.
pub(super) const STARTUP_TABLES: u64 = 96 << 10;

/// GH100, as `NV2080_CTRL_CMD_MC_GET_ARCH_INFO` names it
/// (`NV2080_CTRL_MC_ARCH_INFO_ARCHITECTURE_GH100`, ctrl2080mc.h).
const HOPPER: u32 = 0x180;

/// Measured costs, by architecture.
const MEASURED: [(u32, ContextCost); 1] = [(
    HOPPER,
    ContextCost {
        shared: (9024 - 5696) << 10,
        each: 5696 << 10,
    },
)];

impl ContextCost {
    /// On a GPU of this architecture; 0: it is not known.
    pub fn of(architecture: u32) -> Self {
        let known = MEASURED.iter().find(|(known, _)| *known == architecture);
        known.map_or(Self::LARGEST, |(_, cost)| *cost)
    }

    /// If nothing is known: each figure is the largest of those that were measured.
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

    /// Of so many contexts together.
    pub(super) fn all(&self, contexts: u64) -> u64 {
        match contexts {
            0 => 0,
            some => self.each.saturating_mul(some).saturating_add(self.shared),
        }
    }

    /// Of so many contexts and of page tables, in bytes, together.
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
        // Measured on the H200: KiB that no object shows, with one and with two contexts.
        let cost = ContextCost::of(0x180);
        assert_eq!([0, 1, 2].map(|n| cost.all(n) >> 10), [0, 9024, 14720]);
    }

    #[test]
    fn what_was_not_measured_costs_as_the_most_expensive_that_was() {
        for architecture in [0, 0x160, 0x170, 0x190, 0x1a0, 0x1b0] {
            let cost = ContextCost::of(architecture);
            for (_, known) in MEASURED {
                assert!(cost.shared >= known.shared && cost.each >= known.each);
            }
        }
    }
}
