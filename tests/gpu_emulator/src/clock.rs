// SPDX-License-Identifier: GPL-2.0
//! The GPU's clock.

use std::time::{SystemTime, UNIX_EPOCH};

/// Nanoseconds of the GPU's clock.
pub fn now() -> u64 {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    since.as_nanos() as u64
}
