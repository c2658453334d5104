// SPDX-License-Identifier: GPL-2.0
//! The time of day.

use kernel::bindings;

/// Seconds since 1970, as the host's clock has them.
pub fn seconds() -> u64 {
    // SAFETY: Reads the clock; there is no precondition.
    let now = unsafe { bindings::ktime_get_real_seconds() };
    u64::try_from(now).unwrap_or(0)
}
