// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Random numbers that a seed repeats, and how many of them a run takes.

/// A number from the environment, or the usual one. Panics if the variable holds anything else.
pub(crate) fn setting(name: &str, usual: usize) -> usize {
    let Some(text) = std::env::var_os(name) else {
        return usual;
    };
    let number = text.to_str().and_then(|text| text.parse().ok());
    number.unwrap_or_else(|| panic!("{name}={text:?} is no whole number, such as {usual}"))
}

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

    /// One of these.
    pub(crate) fn one<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[self.below(of.len())]
    }
}
