// SPDX-License-Identifier: GPL-2.0
//! The accesses at a shut gate of which the scheduler is told.
//!
//! Each one told of wakes the GPU's thread, which runs before all others and is charged to nobody.
//! A program can make as many accesses as it likes: by system calls, say, which do not sleep. One
//! tells all that the scheduler needs to know until the gate is moved.

use super::time::{
    Nanos,
    MS, //
};

/// How long a further access tells nothing new while the gate stays as it is.
const TOLD_AGAIN: Nanos = MS;

/// The moves of a gate, and the last access at it of which the scheduler was told.
#[derive(Clone, Copy, Debug)]
pub struct Knocks {
    moves: u64,
    /// The moment of that access, and how often the gate had been moved by then.
    told: Option<(Nanos, u64)>,
}

impl Knocks {
    /// Those of a gate that was never moved.
    pub const NONE: Self = Self {
        moves: 0,
        told: None,
    };

    /// Notes that the gate was moved, or put again to where it stood.
    pub fn moved(&mut self) {
        self.moves = self.moves.wrapping_add(1);
    }

    /// How often the gate was moved. The number begins anew after 2^64 moves.
    pub fn moves(&self) -> u64 {
        self.moves
    }

    /// Whether the scheduler is to be told of an access at the shut gate now. Then the caller tells
    /// it, and this counts as told.
    pub fn is_news(&mut self, now: Nanos) -> bool {
        let is_old =
            |(moment, moves)| moves == self.moves && now.saturating_sub(moment) < TOLD_AGAIN;
        if self.told.is_some_and(is_old) {
            return false;
        }
        self.told = Some((now, self.moves));
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Nanos = 5 * MS;

    #[test]
    fn first_knock_is_news() {
        for at in [0, START] {
            let mut knocks = Knocks::NONE;
            knocks.moved();
            assert!(knocks.is_news(at));
        }
    }

    #[test]
    fn knocks_are_news_once_a_millisecond() {
        let mut knocks = Knocks::NONE;
        knocks.moved();
        let at_each = (0..10 * MS).step_by(1_000);
        let told = at_each.filter(|at| knocks.is_news(START + at)).count();
        assert_eq!(told, 10);
    }

    #[test]
    fn old_knock_does_not_delay_the_next() {
        let mut knocks = Knocks::NONE;
        assert!(knocks.is_news(START));
        // An access that is not told of does not put the next one off.
        assert!(!knocks.is_news(START + TOLD_AGAIN - 1));
        assert!(knocks.is_news(START + TOLD_AGAIN));
    }

    #[test]
    fn knock_after_a_move_is_news() {
        let mut knocks = Knocks::NONE;
        for _ in 0..3 {
            knocks.moved();
            assert!(knocks.is_news(START));
            assert!(!knocks.is_news(START));
        }
        assert_eq!(knocks.moves(), 3);
    }

    /// Two tasks may read the clock in one order, and come to the gate in the other.
    #[test]
    fn earlier_clock_tells_nothing_new() {
        let mut knocks = Knocks::NONE;
        assert!(knocks.is_news(START));
        assert!(!knocks.is_news(START - 1));
    }
}
