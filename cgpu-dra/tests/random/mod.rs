// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Random numbers that a seed repeats.

/// A xorshift generator; the seed is not zero.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub(crate) fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next() >> 16).expect("64 bits") % end
    }
}
