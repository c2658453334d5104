// SPDX-License-Identifier: GPL-2.0
//! Figures of a ledger that only grow.

/// The most that each sum ever was, in bytes.
#[derive(Debug, Default)]
pub(super) struct Peaks {
    pub(super) used: u64,
    pub(super) overhead: u64,
    pub(super) managed: u64,
}

/// Refusals since the share was opened.
#[derive(Debug, Default)]
pub(in crate::policy) struct Refusals {
    /// Calls, because the limit was reached.
    pub(super) limit: u64,
    /// Calls, for any other reason.
    pub(in crate::policy) calls: u64,
    /// Mappings of managed memory.
    pub(in crate::policy) managed: u64,
}
