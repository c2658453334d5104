// SPDX-License-Identifier: GPL-2.0
//! Counts that are lowered by what raised them before.

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
