// SPDX-License-Identifier: GPL-2.0
//! How large the world of the storm is, and its random numbers.

pub(super) const TENANTS: usize = 2;
pub(super) const GPUS: usize = 2;

/// splitmix64.
#[derive(Clone, Debug)]
pub(super) struct Rng(pub(super) u64);

impl Rng {
    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }

    pub(super) fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    pub(super) fn index(&mut self, len: usize) -> usize {
        usize::try_from(self.below(u64::try_from(len).expect("64 bit"))).expect("64 bit")
    }

    pub(super) fn pick<'a, T>(&mut self, from: &'a [T]) -> Option<&'a T> {
        match from.len() {
            0 => None,
            len => from.get(self.index(len)),
        }
    }
}
