// SPDX-License-Identifier: GPL-2.0
//! The balance of an instance: the time that the GPU owes it.

use super::time::{signed, Nanos};

/// The time that an instance may still have of a turn, in nanoseconds; below 0 if it had too much.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Balance {
    owed: i64,
    /// The same when slices began.
    before_slices: i64,
    /// The turn of which it was last given its part.
    turn: u64,
}

impl Balance {
    /// The time that it is owed.
    pub(super) fn owed(&self) -> i64 {
        self.owed
    }

    /// Whether it was given its part of this turn.
    pub(super) fn has_part_of(&self, turn: u64) -> bool {
        self.turn == turn
    }

    /// Gives it its part of a turn. Beside that it is owed `most`, or owes so much, at most.
    pub(super) fn give_part(&mut self, turn: u64, part: i64, most: i64) {
        self.owed = self.owed.saturating_add(part).clamp(-most, most + part);
        self.turn = turn;
    }

    /// It may have a whole part in this turn, though it was given one.
    pub(super) fn renew_part(&mut self) {
        self.turn = 0;
    }

    /// It had so much of the GPU.
    pub(super) fn had(&mut self, time: i64) {
        self.owed = self.owed.saturating_sub(time);
    }

    /// It is owed so much more.
    pub(super) fn earned(&mut self, time: Nanos) {
        self.owed = self.owed.saturating_add(signed(time));
    }

    /// It loses the time that it did not use. Time that it had too much it still owes.
    pub(super) fn forfeit(&mut self) {
        self.owed = self.owed.min(0);
    }

    /// So much of what it is owed, or owes, may be an error of measurement.
    pub(super) fn forget(&mut self, unsure: i64) {
        self.owed = self.owed.saturating_sub(self.owed.clamp(-unsure, unsure));
    }

    /// Slices begin.
    pub(super) fn slices_begin(&mut self) {
        self.before_slices = self.owed;
    }

    /// Nobody knows what it had in slices: as before them.
    pub(super) fn undo_slices(&mut self) {
        self.owed = self.before_slices;
    }
}
