// SPDX-License-Identifier: GPL-2.0
//! The costs of calls into the driver.

use super::time::{
    Nanos,
    MS,
    US, //
};

/// The costs of calls, and when they take effect. The figures were measured on one H200 with driver
/// 580.159.04, under load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Costs {
    /// From the beginning of a call that switches channels off to the moment they are off the GPU.
    pub disabled_after: Nanos,
    /// From that moment to the end of the call, at most.
    pub disabled_rest: Nanos,
    /// From the beginning of a call that switches channels on to the moment they may run.
    pub enabled_after: Nanos,
    /// From that moment to the end of the call, at most.
    pub enabled_rest: Nanos,
    /// A whole call that switches channels on.
    pub enabled_call: Nanos,
    /// A change of the running channel group.
    pub switch: Nanos,
    /// The same after the channels of the group that ran were switched off, which saves its
    /// context. In windows of 3.4 to 29 ms programs did as much as in the time from the call that
    /// switches them on to the one that switches them off, less 0.03 to 0.09 ms
    /// (docs/measurements/2026-11-22-weights.md).
    pub switch_saved: Nanos,
    /// GPU time that is lost when an instance that wakes takes the GPU, and when it is given back:
    /// two changes of the running channel group, the call that switches on the instance that had to
    /// wait, and the silence that shows that the woken one stopped.
    pub wake_up: Nanos,
    /// The shortest window that is worth its calls (0.43 to 0.70 ms to switch off, 0.26 to 0.32 ms
    /// on).
    pub shortest_window: Nanos,
    /// The shortest window that is begun; a part that is smaller waits for a later turn.
    pub least_window: Nanos,
}

impl Costs {
    /// The costs as measured.
    pub const MEASURED: Self = Self {
        disabled_after: 200 * US,
        disabled_rest: 500 * US,
        enabled_after: 200 * US,
        enabled_rest: 240 * US,
        enabled_call: 290 * US,
        switch: 180 * US,
        switch_saved: 60 * US,
        wake_up: 800 * US,
        shortest_window: 3 * MS,
        least_window: 1200 * US,
    };
}
