// SPDX-License-Identifier: GPL-2.0
//! Counts that are lowered by what raised them before, and sums that change.

use core::ops::Sub;

/// Lowers a count by what it was raised by before.
///
/// A count that is too small is a mistake of ours: builds with debug assertions say so, and the
/// module stays at 0.
pub(super) fn lower<N>(count: &mut N, by: N)
where
    N: Copy + Default + PartialOrd + Sub<Output = N>,
{
    debug_assert!(*count >= by, "a count falls below 0");
    *count = if *count >= by {
        *count - by
    } else {
        N::default()
    };
}

/// A change of a sum, in bytes: more of it and less of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[must_use = "a change must be told to the ledger"]
pub(super) struct Change {
    pub(super) more: u64,
    pub(super) less: u64,
}

impl Change {
    /// Something came.
    pub(super) fn more(more: u64) -> Self {
        Self { more, less: 0 }
    }

    /// Something was so much and is so much now.
    pub(super) fn between(before: u64, after: u64) -> Self {
        Self {
            more: after,
            less: before,
        }
    }

    pub(super) fn and(self, other: Self) -> Self {
        Self {
            more: self.more.saturating_add(other.more),
            less: self.less.saturating_add(other.less),
        }
    }

    /// Changes a sum.
    pub(super) fn apply(self, sum: &mut u64) {
        *sum = sum.saturating_add(self.more);
        lower(sum, self.less);
    }
}
