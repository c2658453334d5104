// SPDX-License-Identifier: GPL-2.0
//! Who is entitled to how much: the policies, their numbers and names, and the shares that follow.

use super::authority::{Nanos, MS};

/// Shares are counted in parts of this.
pub const WHOLE: u64 = 1_000_000;

/// A compute policy. Numbers and names are those that users of cGPU know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Policy {
    /// Every instance has one part in `max_inst`, and never more.
    Fair = 0,
    /// Those that have work have equal parts.
    Preemptive = 1,
    /// Those that have work share by weight.
    Weight = 2,
    /// Every instance has its weight in percent, and never more.
    Fixed = 3,
    /// As [`Policy::Weight`] in longer turns; what an instance left unused a moment ago it may take later.
    Soft = 4,
    /// Nothing is done: the driver shares the GPU as it likes.
    Native = 5,
}

impl Policy {
    /// All of them, by number.
    pub const ALL: [Self; 6] = [
        Self::Fair,
        Self::Preemptive,
        Self::Weight,
        Self::Fixed,
        Self::Soft,
        Self::Native,
    ];

    /// The policy of a number.
    pub fn from_number(number: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|p| p.number() == number)
    }

    /// Its number.
    pub const fn number(self) -> u32 {
        // CAST: the discriminant of a repr(u32) enum.
        self as u32
    }

    /// Its name, as `cgpuctl` takes and prints it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Fair => "fair",
            Self::Preemptive => "preemptive",
            Self::Weight => "weight",
            Self::Fixed => "fixed",
            Self::Soft => "soft",
            Self::Native => "native",
        }
    }

    /// Whether an instance is held to its share when the GPU is free otherwise.
    pub const fn is_hard(self) -> bool {
        matches!(self, Self::Fair | Self::Fixed)
    }
}

/// How long a turn of all competing instances is: short turns wait less, long ones switch less.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Period {
    /// The default.
    Latency = 0,
    /// Turns of 100 ms.
    Throughput = 1,
}

impl Period {
    /// The period of a number.
    pub fn from_number(number: u32) -> Option<Self> {
        [Self::Latency, Self::Throughput]
            .into_iter()
            .find(|p| p.number() == number)
    }

    /// Its number.
    pub const fn number(self) -> u32 {
        // CAST: the discriminant of a repr(u32) enum.
        self as u32
    }

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Latency => "latency",
            Self::Throughput => "throughput",
        }
    }
}

/// What the operator says of a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// The policy.
    pub policy: Policy,
    /// The base period.
    pub period: Period,
    /// Instances among which [`Policy::Fair`] divides the GPU, at least 1.
    pub max_instances: u32,
    /// What instances of high priority may take together before weights count again, percent, 1 to 99.
    pub priority_percent: u32,
}

/// What the operator says of an instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// 1 to 100: parts, or percent for [`Policy::Fixed`].
    pub weight: u32,
    /// Served before those without.
    pub high_priority: bool,
    /// Kept off the GPU until it is resumed.
    pub suspended: bool,
}

/// Why a change of rules was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Misfit {
    /// The weights would add up to more than 100 percent, which [`Policy::Fixed`] cannot give.
    Weights,
    /// There would be more instances than [`Policy::Fair`] has parts for.
    Instances,
}

impl Rules {
    /// Whether instances of these weights can have what the policy promises.
    pub fn admit(&self, weights: impl Iterator<Item = u32>) -> Result<(), Misfit> {
        let (count, sum) = weights.fold((0u32, 0u32), |(count, sum), weight| {
            (count.saturating_add(1), sum.saturating_add(weight))
        });
        match self.policy {
            Policy::Fixed if sum > 100 => Err(Misfit::Weights),
            Policy::Fair if count > self.max_instances => Err(Misfit::Instances),
            _ => Ok(()),
        }
    }

    /// Weight of an instance among those that compete.
    pub(super) fn parts(&self, weight: u32) -> u64 {
        match self.policy {
            Policy::Fair | Policy::Preemptive | Policy::Native => 1,
            Policy::Weight | Policy::Fixed | Policy::Soft => u64::from(weight.max(1)),
        }
    }

    /// What an instance may have of the GPU and never more, in parts of [`WHOLE`].
    pub(super) fn cap(&self, weight: u32) -> Option<u64> {
        let share = match self.policy {
            Policy::Fair => WHOLE / u64::from(self.max_instances.max(1)),
            Policy::Fixed => (u64::from(weight) * WHOLE / 100).min(WHOLE),
            _ => return None,
        };
        (share < WHOLE).then_some(share)
    }

    /// The length of a turn of all, while windows or slices share the GPU.
    pub(super) fn turn(&self) -> Nanos {
        match (self.policy, self.period) {
            (_, Period::Throughput) => 100 * MS,
            // A window on a GPU that is idle otherwise loses 1 to 1.5 ms to its beginning (measured on an
            // H200): caps want long ones, which cost nobody anything.
            (Policy::Fair | Policy::Fixed, Period::Latency) => 64 * MS,
            (Policy::Soft, Period::Latency) => 60 * MS,
            (_, Period::Latency) => 32 * MS,
        }
    }
}
