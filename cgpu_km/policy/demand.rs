// SPDX-License-Identifier: GPL-2.0
//! The demand of an object on a GPU.

use super::channel_limit::TakenIds;

/// The demand of an object on a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Demand {
    /// Bytes that it shows.
    pub(super) bytes: u64,
    /// Bytes of page tables, which it does not show.
    pub(super) tables: u64,
    /// Bytes of pools, which it does not show either.
    pub(super) pools: u64,
    /// Bytes of the host's memory. What takes some takes nothing else.
    pub(super) host: u64,
    /// And ids of groups and channels, which may make a context.
    pub(super) ids: TakenIds,
}

impl Demand {
    /// Nothing.
    pub(super) const NONE: Self = Self {
        bytes: 0,
        tables: 0,
        pools: 0,
        host: 0,
        ids: TakenIds::NONE,
    };
}
