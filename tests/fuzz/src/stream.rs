// SPDX-License-Identifier: GPL-2.0
//! An input as a stream of bytes that decisions are taken from, one after the other. After its end
//! come zeros, so that every input is a whole one and a mutation in the middle changes what follows
//! and nothing before.

/// The rest of an input.
#[derive(Debug)]
pub struct Stream<'a> {
    rest: &'a [u8],
}

impl<'a> Stream<'a> {
    /// All of an input.
    pub fn new(input: &'a [u8]) -> Self {
        Self { rest: input }
    }

    /// Whether nothing but zeros is left.
    pub fn is_over(&self) -> bool {
        self.rest.is_empty()
    }

    /// The next bytes.
    pub fn fill(&mut self, into: &mut [u8]) {
        let there = into.len().min(self.rest.len());
        into[..there].copy_from_slice(&self.rest[..there]);
        into[there..].fill(0);
        self.rest = &self.rest[there..];
    }

    /// The next byte.
    pub fn byte(&mut self) -> u8 {
        let mut byte = [0];
        self.fill(&mut byte);
        byte[0]
    }

    /// The next 16-bit number.
    pub fn short(&mut self) -> u16 {
        let mut bytes = [0; 2];
        self.fill(&mut bytes);
        u16::from_le_bytes(bytes)
    }

    /// The next 32-bit number.
    pub fn word(&mut self) -> u32 {
        let mut bytes = [0; 4];
        self.fill(&mut bytes);
        u32::from_le_bytes(bytes)
    }
}

/// Writes an input: the other direction of [`Stream`].
#[derive(Debug, Default)]
pub struct Input(pub Vec<u8>);

impl Input {
    /// Appends bytes.
    pub fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        self.0.extend_from_slice(bytes);
        self
    }

    /// Appends a byte.
    pub fn byte(&mut self, byte: u8) -> &mut Self {
        self.bytes(&[byte])
    }

    /// Appends a 32-bit number.
    pub fn word(&mut self, word: u32) -> &mut Self {
        self.bytes(&word.to_le_bytes())
    }
}

/// The 32-bit number at an offset; 0 where there is none.
pub fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let word = bytes.get(at..at + 4).and_then(|word| word.try_into().ok());
    word.map_or(0, u32::from_le_bytes)
}

/// The 64-bit number at an offset; 0 where there is none.
pub fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let word = bytes.get(at..at + 8).and_then(|word| word.try_into().ok());
    word.map_or(0, u64::from_le_bytes)
}

/// Writes a 32-bit number at an offset, where there is room.
pub fn put_u32(bytes: &mut [u8], at: usize, value: u32) {
    if let Some(place) = bytes.get_mut(at..at + 4) {
        place.copy_from_slice(&value.to_le_bytes());
    }
}

/// Writes a 64-bit number at an offset, where there is room.
pub fn put_u64(bytes: &mut [u8], at: usize, value: u64) {
    if let Some(place) = bytes.get_mut(at..at + 8) {
        place.copy_from_slice(&value.to_le_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_the_end_come_zeros() {
        let mut stream = Stream::new(&[1, 2, 3]);
        assert_eq!(stream.short(), 0x201);
        assert!(!stream.is_over());
        assert_eq!(stream.word(), 3);
        assert!(stream.is_over());
        assert_eq!(stream.word(), 0);
    }

    #[test]
    fn written_numbers_are_read_back() {
        let mut input = Input::default();
        input.byte(7).word(0x1234_5678).bytes(&[9]);
        let mut stream = Stream::new(&input.0);
        assert_eq!(
            (stream.byte(), stream.word(), stream.byte()),
            (7, 0x1234_5678, 9)
        );
    }
}
