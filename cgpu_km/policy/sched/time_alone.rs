// SPDX-License-Identifier: GPL-2.0
//! The time in which one instance had the GPU to itself. Its gate was open, so its launches were
//! not heard. The driver's samples of that time tell whether it paused.

use super::{
    authority::InstanceId,
    time::{
        Nanos,
        MS, //
    }, //
};

/// A shorter time has fewer samples than [`ENOUGH_TO_LEARN`], at six a second.
const LEAST_LENGTH: Nanos = 2000 * MS;
/// The last part of it, in which the samples count. A program that began to work all the time three
/// seconds ago does not pause, however long it was idle before.
const LAST_PART: Nanos = 4000 * MS;
/// So many samples tell how much of the time an instance was at work.
const ENOUGH_TO_LEARN: usize = 12;
/// An answer that comes so long after it tells nothing.
const READ_WITHIN: Nanos = 1000 * MS;

/// The last time that an instance was the only one with work, in
/// [`Mode::Free`](crate::uapi::Mode).
#[derive(Clone, Copy, Debug)]
pub(super) struct TimeAlone {
    of: InstanceId,
    since: Nanos,
    phase: Phase,
}

/// The phases of a time alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// It goes on.
    Lasts,
    /// It ended then. The samples are to be read.
    Ended { at: Nanos },
    /// It ended then. The samples are being read.
    Asked { ended_at: Nanos },
}

impl TimeAlone {
    /// It begins for this instance.
    pub(super) fn new(of: InstanceId, now: Nanos) -> Self {
        Self {
            of,
            since: now,
            phase: Phase::Lasts,
        }
    }

    /// The instance.
    pub(super) fn of(&self) -> InstanceId {
        self.of
    }

    /// Whether it goes on.
    pub(super) fn lasts(&self) -> bool {
        self.phase == Phase::Lasts
    }

    /// It ends, because another instance has work too. `None`: it has too few samples.
    pub(super) fn ended(self, now: Nanos) -> Option<Self> {
        let phase = Phase::Ended { at: now };
        let worth = now >= self.since.saturating_add(LEAST_LENGTH);
        worth.then_some(Self { phase, ..self })
    }

    /// Whether its samples are to be read.
    pub(super) fn wants_samples(&self) -> bool {
        matches!(self.phase, Phase::Ended { .. })
    }

    /// Samples are being read. If that fails, it is not tried again.
    pub(super) fn samples_asked(&mut self) {
        if let Phase::Ended { at } = self.phase {
            self.phase = Phase::Asked { ended_at: at };
        }
    }

    /// Whether a moment lies in it.
    pub(super) fn contains(&self, at: Nanos) -> bool {
        let ended = match self.phase {
            Phase::Lasts => false,
            Phase::Ended { at: end } | Phase::Asked { ended_at: end } => at >= end,
        };
        at >= self.since && !ended
    }

    /// Whether the instance paused for at least a quarter of the last part of it; `None`: too few
    /// samples tell. `seen` are the moments of samples that are read now, and whom each saw. A
    /// sample of somebody else's work says nothing of the instance, which may have waited for that.
    pub(super) fn paused(
        &self,
        now: Nanos,
        seen: impl Iterator<Item = (Nanos, SeenAtWork)>,
    ) -> Option<bool> {
        let Phase::Asked { ended_at } = self.phase else {
            return None;
        };
        if now > ended_at.saturating_add(READ_WITHIN) {
            return None;
        }
        let last = ended_at.saturating_sub(LAST_PART).max(self.since)..ended_at;
        let [mut at_work, mut idle] = [0usize; 2];
        for (_, who) in seen.filter(|(at, _)| last.contains(at)) {
            match who {
                SeenAtWork::Instance(id) if id == self.of => at_work += 1,
                SeenAtWork::Nobody => idle += 1,
                SeenAtWork::Instance(_) | SeenAtWork::Stranger => {}
            }
        }
        let all = at_work.saturating_add(idle);
        (all >= ENOUGH_TO_LEARN).then_some(idle.saturating_mul(4) >= all)
    }
}

/// The program that a sample of the driver's saw on the compute engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SeenAtWork {
    /// A program of this instance.
    Instance(InstanceId),
    /// A program that no instance has, or several have.
    Stranger,
    /// The engine was idle.
    Nobody,
}
