// SPDX-License-Identifier: GPL-2.0
//! The lag of an instance: the service that it is owed because it left its share to others.

use super::time::{
    signed,
    Nanos, //
};

/// The use that an instance makes of its lag.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum LagUse {
    /// It has no work, or turns serve it.
    #[default]
    Kept,
    /// It woke then, and has windows outside of turns as long as it is owed something.
    BeingSpent { woke: Nanos },
    /// It woke then and has used its lag up. It has its next window when it is owed enough again.
    Waits { woke: Nanos },
}

/// The lag of an instance, and what it does with it.
///
/// It grows with the instance's share of what the GPU gives, while it has no work and others have,
/// and while it is spent. Below 0 it had more than it was owed.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Lag {
    owed: i64,
    used_as: LagUse,
    /// When its last window outside of turns ended, if it had one.
    had_until: Option<Nanos>,
}

impl Lag {
    /// The GPU time that it is owed.
    pub(super) fn owed(&self) -> Nanos {
        u64::try_from(self.owed).unwrap_or(0)
    }

    /// Whether its lag decides when it has a window, and not its turn.
    pub(super) fn rules(&self) -> bool {
        self.used_as != LagUse::Kept
    }

    /// Whether it woke and has not used up its lag since.
    pub(super) fn is_being_spent(&self) -> bool {
        matches!(self.used_as, LagUse::BeingSpent { .. })
    }

    /// Grows the lag by service that it was entitled to and has not had, to `burst` at most.
    pub(super) fn grow(&mut self, entitled: Nanos, burst: Nanos) {
        self.owed = self
            .owed
            .saturating_add(signed(entitled))
            .min(signed(burst));
    }

    /// Limits the lag to `burst`.
    pub(super) fn limit(&mut self, burst: Nanos) {
        self.owed = self.owed.min(signed(burst));
    }

    /// It woke, and has windows outside of turns from now on. It may interrupt another's window, or
    /// has the next one.
    pub(super) fn wake(&mut self, now: Nanos, interrupts: bool) {
        self.used_as = if interrupts {
            LagUse::BeingSpent { woke: now }
        } else {
            LagUse::Waits { woke: now }
        };
    }

    /// It has used up its lag for the time being. One that has not stopped for `most` is served by
    /// turns from now on.
    pub(super) fn use_up(&mut self, now: Nanos, most: Nanos) {
        if let LagUse::BeingSpent { woke } | LagUse::Waits { woke } = self.used_as {
            self.used_as = if now < woke.saturating_add(most) {
                LagUse::Waits { woke }
            } else {
                LagUse::Kept
            };
        }
    }

    /// Lets it spend its lag again, because it is owed enough for a window.
    pub(super) fn go_on(&mut self) {
        if let LagUse::Waits { woke } = self.used_as {
            self.used_as = LagUse::BeingSpent { woke };
        }
    }

    /// Ends its windows outside of turns: it has no work any more, or turns serve it.
    pub(super) fn keep(&mut self) {
        self.used_as = LagUse::Kept;
    }

    /// Takes GPU time that it had off the lag.
    pub(super) fn spend(&mut self, time: Nanos) {
        self.owed = self.owed.saturating_sub(signed(time));
    }

    /// It had `time` before the others had theirs. It is never ahead of them by more than `most`.
    pub(super) fn get_ahead(&mut self, time: Nanos, most: Nanos) {
        let owed = self.owed.saturating_sub(signed(time));
        self.owed = owed.max(self.owed.min(-signed(most)));
    }

    /// Notes that its window outside of turns is over.
    pub(super) fn end_window(&mut self, now: Nanos) {
        self.had_until = Some(now);
    }

    /// Whether it had no window outside of turns for so long.
    pub(super) fn has_rested(&self, now: Nanos, long: Nanos) -> bool {
        self.had_until
            .is_none_or(|until| now >= until.saturating_add(long))
    }

    /// Sets the lag to 0, because it had work all along.
    pub(super) fn forget(&mut self) {
        self.owed = 0;
    }
}
