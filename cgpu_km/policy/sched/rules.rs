// SPDX-License-Identifier: GPL-2.0
//! The shares that instances are entitled to: the rules of a GPU, the terms of an instance, and the
//! shares that follow.

use super::time::{
    Nanos,
    MS, //
};
use crate::uapi::{
    Period,
    Policy,
    BURST_MS_MAX,
    MAX_INSTANCES_PER_GPU, //
};

/// The burst of a GPU for which the operator set none.
pub const BURST_DEFAULT: Nanos = 200 * MS;

/// Shares are counted in parts of this.
pub const WHOLE: u64 = 1_000_000;

/// The operator's rules for a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// The policy.
    pub policy: Policy,
    /// The base period.
    pub period: Period,
    /// Instances among which [`Policy::FixedEqual`] divides the GPU, 1 to
    /// [`MAX_INSTANCES_PER_GPU`].
    pub max_instances: u32,
    /// The part that instances of high priority may take before weights count again, percent, 1 to
    /// 99.
    pub priority_percent: u32,
    /// The most service that an instance is owed after it had no work, as GPU time, up to
    /// [`BURST_MS_MAX`]; 0: nothing.
    pub burst: Nanos,
}

/// The operator's terms for an instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// 1 to 100: parts, or percent for [`Policy::Fixed`].
    pub weight: u32,
    /// The instance is served before those of normal priority.
    pub high_priority: bool,
    /// Kept off the GPU until it is resumed.
    pub suspended: bool,
    /// The most service that it is owed, if that is not the GPU's [`Rules::burst`].
    pub burst: Option<Nanos>,
}

/// Why a change of rules was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Misfit {
    /// The weights would add up to more than 100 percent, which [`Policy::Fixed`] cannot give.
    Weights,
    /// There would be more instances than [`Policy::FixedEqual`] has parts for.
    Instances,
    /// A number of the rules is out of its range.
    OutOfRange,
}

impl Rules {
    /// The rules of a GPU for which the operator has set none. cGPU has the same numbers.
    pub const DEFAULT: Self = Self {
        policy: Policy::Native,
        period: Period::Latency,
        max_instances: 16,
        priority_percent: 80,
        burst: BURST_DEFAULT,
    };

    /// Whether these are rules at all, and instances of these weights can have what the policy
    /// promises.
    ///
    /// # Errors
    ///
    /// A number is out of its range, or the instances do not fit the policy.
    pub fn admit(&self, weights: impl Iterator<Item = u32>) -> Result<(), Misfit> {
        let most = u32::try_from(MAX_INSTANCES_PER_GPU).unwrap_or(u32::MAX);
        let fits = (1..=most).contains(&self.max_instances)
            && (1..=99).contains(&self.priority_percent)
            && self.burst <= u64::from(BURST_MS_MAX) * MS;
        if !fits {
            return Err(Misfit::OutOfRange);
        }
        let (count, sum) = weights.fold((0u32, 0u32), |(count, sum), weight| {
            (count.saturating_add(1), sum.saturating_add(weight))
        });
        match self.policy {
            Policy::Fixed if sum > 100 => Err(Misfit::Weights),
            Policy::FixedEqual if count > self.max_instances => Err(Misfit::Instances),
            _ => Ok(()),
        }
    }

    /// Weight of an instance among those that compete.
    pub(super) fn parts(&self, weight: u32) -> u64 {
        match self.policy {
            Policy::FixedEqual | Policy::Equal | Policy::Native => 1,
            Policy::Weight | Policy::Fixed | Policy::WeightLazy => u64::from(weight.max(1)),
        }
    }

    /// The share of the GPU that an instance may never exceed, in parts of [`WHOLE`].
    pub(super) fn cap(&self, weight: u32) -> Option<u64> {
        let share = match self.policy {
            Policy::FixedEqual => WHOLE / u64::from(self.max_instances.max(1)),
            Policy::Fixed => (u64::from(weight) * WHOLE / 100).min(WHOLE),
            _ => return None,
        };
        (share < WHOLE).then_some(share)
    }

    /// Whether the next instance's channels are switched on before those of the last one are
    /// switched off: the GPU does not wait for a call, and both have it for a moment.
    pub(super) fn overlaps(&self) -> bool {
        self.period == Period::Interactive
    }

    /// The length of a turn of all, while windows or slices share the GPU.
    pub(super) fn turn(&self) -> Nanos {
        match (self.policy, self.period) {
            (_, Period::Throughput) => 100 * MS,
            // A window on a GPU that is idle otherwise loses 1 to 1.5 ms to its beginning (measured
            // on an H200): caps want long ones, which cost nobody anything.
            (Policy::FixedEqual | Policy::Fixed, Period::Latency | Period::Interactive) => 64 * MS,
            (_, Period::Interactive) => 6 * MS,
            (Policy::WeightLazy, Period::Latency) => 60 * MS,
            (_, Period::Latency) => 32 * MS,
        }
    }
}
