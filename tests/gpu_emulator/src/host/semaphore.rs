// SPDX-License-Identifier: GPL-2.0
//! The host's semaphores (class c86f, `NVC86F_SEM_*`), and what engines do with theirs.

use crate::{
    memory::Memory,
    mmu::{AddressSpace, MmuFault},
};

/// The result of the value in memory and the payload (`NVC86F_SEM_EXECUTE_REDUCTION_*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reduction {
    /// The operation, 0 to 7.
    pub operation: u32,
    /// The numbers have a sign.
    pub signed: bool,
}

impl Reduction {
    /// The operation by the number that reports and QMDs have for it (class cbc0, `RED_*`).
    pub fn of_report(operation: u32, signed: bool) -> Self {
        // Add, minimum, maximum, increment, decrement, and, or, exclusive or.
        let operation = [5, 0, 1, 6, 7, 3, 4, 2][operation as usize & 7];
        Self { operation, signed }
    }

    /// The new value, for numbers of this many bytes.
    fn apply(self, now: u64, payload: u64, bytes: usize) -> u64 {
        let unused = 64 - 8 * bytes as u32;
        let key = |value: u64| {
            let value = value << unused;
            // The sign bit turned over puts signed numbers in the order of unsigned ones.
            if self.signed {
                value ^ 1 << 63
            } else {
                value
            }
        };
        let larger = key(now) > key(payload);
        match self.operation & 7 {
            0 => {
                if larger {
                    payload
                } else {
                    now
                }
            }
            1 => {
                if larger {
                    now
                } else {
                    payload
                }
            }
            2 => now ^ payload,
            3 => now & payload,
            4 => now | payload,
            5 => now.wrapping_add(payload),
            6 => {
                if now >= payload {
                    0
                } else {
                    now + 1
                }
            }
            _ => {
                if now == 0 || now > payload {
                    payload
                } else {
                    now - 1
                }
            }
        }
    }
}

/// An act that follows a kernel in its channel, and waits for its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deferred {
    /// A semaphore that it releases.
    Semaphore(Semaphore),
    /// The interrupt that does not stop the engine.
    Interrupt,
}

/// An act on a semaphore.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SemaphoreAction {
    /// Waits until the value fits.
    Acquire(Condition),
    /// Writes the payload, and a time stamp 8 bytes further on if it is wanted.
    Release {
        /// The time is written too; the semaphore then has 16 bytes.
        timestamp: bool,
    },
    /// Computes a new value.
    Reduce(Reduction),
}

/// When an acquire is over (`NVC86F_SEM_EXECUTE_OPERATION_*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    /// The value is the payload.
    Equal,
    /// The value is not less.
    NotLess,
    /// The value is not behind the payload on a circle.
    CircularNotLess,
    /// They have a bit in common.
    And,
    /// A bit is in neither.
    Nor,
}

impl Condition {
    fn holds(self, now: u64, payload: u64, bytes: usize) -> bool {
        let mask = u64::MAX >> (64 - 8 * bytes as u32);
        match self {
            Self::Equal => now == payload,
            Self::NotLess => now >= payload,
            Self::CircularNotLess => now.wrapping_sub(payload) & mask <= mask >> 1,
            Self::And => now & payload != 0,
            Self::Nor => !(now | payload) & mask != 0,
        }
    }
}

/// A semaphore, and what is done to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Semaphore {
    /// Its virtual address.
    pub address: u64,
    /// The payload.
    pub payload: u64,
    /// Its size: 4 or 8 bytes.
    pub bytes: usize,
    /// The act.
    pub action: SemaphoreAction,
}

/// Whether a channel goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// It does.
    Done,
    /// It waits for a semaphore.
    Blocked,
}

impl Semaphore {
    /// Whether it changes memory, and waits for nothing.
    pub fn releases(&self) -> bool {
        !matches!(self.action, SemaphoreAction::Acquire(_))
    }

    /// The host's semaphore, from the values of its methods: address low and high, payload low
    /// and high, `SEM_EXECUTE`.
    pub fn of_host(address: [u32; 2], payload: [u32; 2], execute: u32) -> Option<Self> {
        let wide = execute >> 24 & 1 != 0;
        let condition = match execute & 7 {
            0 => Some(Condition::Equal),
            2 => Some(Condition::NotLess),
            3 => Some(Condition::CircularNotLess),
            4 => Some(Condition::And),
            5 => Some(Condition::Nor),
            _ => None,
        };
        let action = match (condition, execute & 7) {
            (Some(condition), _) => SemaphoreAction::Acquire(condition),
            (None, 1) => SemaphoreAction::Release {
                timestamp: execute >> 25 & 1 != 0,
            },
            (None, 6) => SemaphoreAction::Reduce(Reduction {
                operation: execute >> 27 & 0xf,
                signed: execute >> 31 == 0,
            }),
            (None, _) => return None,
        };
        Some(Self {
            address: u64::from(address[1]) << 32 | u64::from(address[0] & !3),
            payload: u64::from(payload[0]) | if wide { u64::from(payload[1]) << 32 } else { 0 },
            bytes: if wide { 8 } else { 4 },
            action,
        })
    }

    /// Does it; the time is in nanoseconds.
    pub fn execute(
        &self,
        memory: &mut Memory,
        space: AddressSpace,
        now: u64,
    ) -> Result<Progress, MmuFault> {
        let value = |memory: &mut Memory| {
            let mut wide = [0; 8];
            space.read(memory, self.address, &mut wide[..self.bytes])?;
            Ok(u64::from_le_bytes(wide))
        };
        match self.action {
            SemaphoreAction::Acquire(condition) => {
                if !condition.holds(value(memory)?, self.payload, self.bytes) {
                    return Ok(Progress::Blocked);
                }
            }
            SemaphoreAction::Release { timestamp: true } => {
                // The time is there before the payload is: who sees the payload reads the time.
                space.write(memory, self.address + 8, &now.to_le_bytes())?;
                space.write(memory, self.address, &self.payload.to_le_bytes())?;
            }
            SemaphoreAction::Release { timestamp: false } => {
                let bytes = &self.payload.to_le_bytes()[..self.bytes];
                space.write(memory, self.address, bytes)?;
            }
            SemaphoreAction::Reduce(reduction) => {
                let new = reduction.apply(value(memory)?, self.payload, self.bytes);
                space.write(memory, self.address, &new.to_le_bytes()[..self.bytes])?;
            }
        }
        Ok(Progress::Done)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mmu::tests::Tables;

    fn bench() -> (Memory, AddressSpace) {
        let mut memory = Memory::new(1 << 30);
        let mut tables = Tables::new(1 << 20);
        tables.map(&mut memory, 0x1000, 12, 0x9000);
        (memory, AddressSpace { root: tables.root })
    }

    fn value(memory: &mut Memory, space: AddressSpace, at: u64) -> u64 {
        let mut wide = [0; 8];
        space.read(memory, at, &mut wide).expect("is mapped");
        u64::from_le_bytes(wide)
    }

    #[test]
    fn acquire_waits_for_the_release() {
        let (mut memory, space) = bench();
        let host =
            |execute| Semaphore::of_host([0x1010, 0], [5, 0], execute).expect("is an operation");
        let acquire = host(0).execute(&mut memory, space, 0);
        assert_eq!(acquire, Ok(Progress::Blocked));
        host(1).execute(&mut memory, space, 0).expect("is mapped");
        for condition in [0, 2, 3, 4, 5] {
            let acquire = host(condition).execute(&mut memory, space, 0);
            assert_eq!(acquire, Ok(Progress::Done), "condition {condition}");
        }
    }

    #[test]
    fn release_can_carry_the_time() {
        let (mut memory, space) = bench();
        let execute = 1 | 1 << 24 | 1 << 25;
        let release = Semaphore::of_host([0x1020, 0], [7, 1], execute).expect("is an operation");
        release
            .execute(&mut memory, space, 1234)
            .expect("is mapped");
        assert_eq!(value(&mut memory, space, 0x1020), 1 << 32 | 7);
        assert_eq!(value(&mut memory, space, 0x1028), 1234);
    }

    #[test]
    fn circle_of_32_bits_turns_over() {
        assert!(Condition::CircularNotLess.holds(3, 0xffff_fff0, 4));
        assert!(!Condition::CircularNotLess.holds(0xffff_fff0, 3, 4));
    }

    #[test]
    fn reductions_know_the_sign() {
        let reduce = |operation, signed, now, payload| {
            Reduction { operation, signed }.apply(now, payload, 4)
        };
        assert_eq!(reduce(0, true, 0xffff_ffff, 1), 0xffff_ffff);
        assert_eq!(reduce(0, false, 0xffff_ffff, 1), 1);
        assert_eq!(reduce(5, false, 2, 3), 5);
        assert_eq!((reduce(6, false, 3, 3), reduce(6, false, 2, 3)), (0, 3));
        assert_eq!((reduce(7, false, 0, 3), reduce(7, false, 2, 3)), (3, 1));
    }

    #[test]
    fn hole_is_a_fault() {
        let (mut memory, space) = bench();
        let release = Semaphore::of_host([0x5000, 0], [7, 0], 1).expect("is an operation");
        assert!(release.execute(&mut memory, space, 0).is_err());
    }
}
