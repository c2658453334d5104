// SPDX-License-Identifier: GPL-2.0
//! The doorbells of an instance, as the scheduler knows them.

use super::{
    authority::{
        CallError,
        Position, //
    },
    retry::Retry,
    time::Nanos, //
};

/// A task of the instance at the gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sleeper {
    /// None.
    Nobody,
    /// It sleeps at the shut gate since then.
    Asleep { since: Nanos },
    /// It was let go and has not launched yet. It will, as soon as it gets a processor.
    LetGo,
}

/// The state of an instance's doorbells: where the gate stands and should stand, and its sleeper.
///
/// While the gate is being moved, it counts as moved already: a program that touches it at once
/// must find it so. If the move fails, it stands where it was before.
#[derive(Clone, Copy, Debug)]
pub(super) struct DoorState {
    position: Position,
    wanted: Position,
    /// Its position before the last move.
    before: Position,
    /// A program touched it since that move began.
    touched: bool,
    retry: Retry,
    sleeper: Sleeper,
}

/// The state that a program found when it touched a doorbell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ring {
    /// The gate is shut, and the program sleeps.
    pub(super) blocked: bool,
    /// The program slept before and was let go, so its kernels did not keep it silent.
    pub(super) was_let_go: bool,
}

impl DoorState {
    pub(super) const fn new() -> Self {
        Self {
            position: Position::Open,
            wanted: Position::Open,
            before: Position::Open,
            touched: false,
            retry: Retry::NEVER_FAILED,
            sleeper: Sleeper::Nobody,
        }
    }

    /// The gate's position.
    pub(super) fn position(&self) -> Position {
        self.position
    }

    /// The position that the gate should have.
    pub(super) fn wanted(&self) -> Position {
        self.wanted
    }

    /// Sets the position that the gate should have from now on.
    pub(super) fn want(&mut self, wanted: Position) {
        self.wanted = wanted;
    }

    /// Whether the gate does not stand where it should.
    pub(super) fn is_to_be_moved(&self) -> bool {
        self.position != self.wanted
    }

    /// The moment from which on the gate may be moved.
    pub(super) fn movable_at(&self) -> Nanos {
        self.retry.at()
    }

    /// Since when a task sleeps at the gate, if one does.
    pub(super) fn asleep_since(&self) -> Option<Nanos> {
        match self.sleeper {
            Sleeper::Asleep { since } => Some(since),
            Sleeper::Nobody | Sleeper::LetGo => None,
        }
    }

    /// Whether a task was let go that has not launched yet.
    pub(super) fn has_let_go(&self) -> bool {
        self.sleeper == Sleeper::LetGo
    }

    /// Notes that the gate is being moved to where it should stand.
    pub(super) fn begin_move(&mut self) {
        self.before = core::mem::replace(&mut self.position, self.wanted);
        self.touched = false;
    }

    /// Notes that the gate was moved, or is where it was. Returns how long the task slept that goes
    /// on now; 0 if none does.
    pub(super) fn end_move(&mut self, now: Nanos, result: Result<(), CallError>) -> Nanos {
        if result.is_ok() {
            self.retry.succeeded();
        } else {
            // A program that came meanwhile passed if the gate was armed, and left it open.
            let opened = self.before == Position::Armed && self.touched;
            self.position = if opened { Position::Open } else { self.before };
            self.retry.failed(now);
        }
        let Sleeper::Asleep { since } = self.sleeper else {
            return 0;
        };
        if self.position == Position::Shut {
            return 0;
        }
        // If the gate was not moved, the task did not sleep: it passed.
        self.sleeper = match result {
            Ok(()) => Sleeper::LetGo,
            Err(_) => Sleeper::Nobody,
        };
        now.saturating_sub(since)
    }

    /// Notes that a program touched a doorbell while the gate was not open.
    pub(super) fn ring(&mut self, now: Nanos) -> Ring {
        self.touched = true;
        let was_let_go = self.has_let_go();
        if was_let_go {
            self.sleeper = Sleeper::Nobody;
        }
        let blocked = self.position == Position::Shut;
        if !blocked {
            self.position = Position::Open;
        } else if self.sleeper == Sleeper::Nobody {
            self.sleeper = Sleeper::Asleep { since: now };
        }
        Ring {
            blocked,
            was_let_go,
        }
    }
}
