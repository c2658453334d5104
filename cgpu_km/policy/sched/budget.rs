// SPDX-License-Identifier: GPL-2.0
//! The cost that wake-ups may have for the GPU: no pattern of them takes more than a part of its
//! time.

use super::time::Nanos;

/// Wake-ups that interrupt others may cost one part in so many of the GPU's time.
const BUDGET_PARTS: u64 = 20;
/// Wake-ups that may follow each other at once after a quiet time.
const BUDGET_DEPTH: u64 = 32;

/// The cost that wake-ups may have for the GPU.
#[derive(Debug)]
pub(super) struct WakeBudget {
    /// The moment at which all wake-ups so far would be paid for.
    due: Nanos,
}

impl WakeBudget {
    pub(super) const fn new() -> Self {
        Self { due: 0 }
    }

    /// Pays for a wake-up that costs so much, if that can be afforded.
    pub(super) fn pay(&mut self, now: Nanos, cost: Nanos) -> bool {
        let each = cost.saturating_mul(BUDGET_PARTS);
        let ahead = self.due.saturating_sub(now);
        if ahead > each.saturating_mul(BUDGET_DEPTH - 1) {
            return false;
        }
        self.due = self.due.max(now).saturating_add(each);
        true
    }

    /// Charges the time for which an instance that woke kept the GPU after it stopped.
    pub(super) fn waste(&mut self, now: Nanos, length: Nanos) {
        let all = length.saturating_mul(BUDGET_PARTS);
        self.due = self.due.max(now).saturating_add(all);
    }
}
