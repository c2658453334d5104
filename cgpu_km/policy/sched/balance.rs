// SPDX-License-Identifier: GPL-2.0
//! The balance of an instance: the time that the GPU owes it.

use super::time::{
    signed,
    Nanos, //
};

/// The time that an instance may still have of a turn, in nanoseconds; below 0 if it had too much.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Balance {
    owed: i64,
    /// `owed` when slices began.
    before_slices: i64,
    /// The last turn of which it was given its part.
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

    /// Gives the instance its part of a turn. Beside the part it is owed, or owes, `most` at most.
    pub(super) fn give_part(&mut self, turn: u64, part: i64, most: i64) {
        self.owed = self.owed.saturating_add(part).clamp(-most, most + part);
        self.turn = turn;
    }

    /// Lets the instance have a whole part in this turn again, though it was given one.
    pub(super) fn renew_part(&mut self) {
        self.turn = 0;
    }

    /// Takes GPU time that the instance had off the balance.
    pub(super) fn had(&mut self, time: i64) {
        self.owed = self.owed.saturating_sub(time);
    }

    /// Adds time that the instance is owed.
    pub(super) fn earned(&mut self, time: Nanos) {
        self.owed = self.owed.saturating_add(signed(time));
    }

    /// Drops the time that the instance did not use. It still owes the time that it had too much.
    pub(super) fn forfeit(&mut self) {
        self.owed = self.owed.min(0);
    }

    /// Moves the balance towards 0 by `unsure`, which may be an error of measurement.
    pub(super) fn forget(&mut self, unsure: i64) {
        self.owed = self.owed.saturating_sub(self.owed.clamp(-unsure, unsure));
    }

    /// Notes the balance as slices begin.
    pub(super) fn slices_begin(&mut self) {
        self.before_slices = self.owed;
    }

    /// Puts the balance back to what it was before slices, because nobody knows what the instance
    /// had in them.
    pub(super) fn undo_slices(&mut self) {
        self.owed = self.before_slices;
    }
}
