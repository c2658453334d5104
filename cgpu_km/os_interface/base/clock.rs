// SPDX-License-Identifier: GPL-2.0
//! The time of day, and the time since the machine was started.

use kernel::bindings;

/// Seconds since 1970, as the host's clock has them.
pub fn seconds() -> u64 {
    // SAFETY: Reads the clock; there is no precondition.
    let now = unsafe { bindings::ktime_get_real_seconds() };
    u64::try_from(now).unwrap_or(0)
}

/// Nanoseconds since the machine was started, without those that it slept.
pub fn now() -> u64 {
    // SAFETY: There is no precondition.
    let now = unsafe { bindings::ktime_get() };
    u64::try_from(now).unwrap_or(0)
}
