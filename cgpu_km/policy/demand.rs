// SPDX-License-Identifier: GPL-2.0
//! What an object takes of a GPU, and what there may not be enough of.

use super::channel_limit::{NoIds, TakenIds};

/// What an object takes of a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Demand {
    /// Bytes that it shows.
    pub(super) bytes: u64,
    /// Bytes of page tables, which it does not show.
    pub(super) tables: u64,
    /// Bytes of pools, which it does not show either.
    pub(super) pools: u64,
    /// And ids of groups and channels, which may make a context.
    pub(super) ids: TakenIds,
}

impl Demand {
    /// Nothing.
    pub(super) const NONE: Self = Self {
        bytes: 0,
        tables: 0,
        pools: 0,
        ids: TakenIds::NONE,
    };
}

/// What there is not enough of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lack {
    Memory(Shortage),
    Ids(NoIds),
}

/// More was asked for than there is, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shortage {
    /// Bytes that were asked for, the invisible part included.
    pub(super) wanted: u64,
    /// Bytes that are left.
    pub(super) free: u64,
}
