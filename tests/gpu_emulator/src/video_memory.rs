// SPDX-License-Identifier: GPL-2.0
//! The GPU's memory. Only what was written to is kept; the rest reads as zeros.

use crate::place::{NoMemory, Place};
use std::collections::HashMap;

/// Size of the pieces that are kept, in bytes.
const PIECE: u64 = 64 << 10;
/// One piece that nobody has written to.
static ZEROS: [u8; PIECE as usize] = [0; PIECE as usize];

/// Sparse memory of a fixed size.
#[derive(Debug)]
pub struct VideoMemory {
    size: u64,
    pieces: HashMap<u64, Box<[u8]>>,
}

impl VideoMemory {
    /// Memory of this size in bytes, all zeros.
    pub fn new(size: u64) -> Self {
        Self {
            size,
            pieces: HashMap::new(),
        }
    }

    /// Size in bytes.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Bytes that are really kept.
    pub fn kept(&self) -> u64 {
        self.pieces.len() as u64 * PIECE
    }

    /// Makes it all zeros.
    pub fn clear(&mut self) {
        self.pieces.clear();
    }

    fn check(&self, address: u64, length: usize) -> Result<(), NoMemory> {
        match address.checked_add(length as u64) {
            Some(end) if end <= self.size => Ok(()),
            _ => Err(NoMemory(Place::video(address))),
        }
    }

    /// Reads bytes.
    pub fn read(&self, address: u64, bytes: &mut [u8]) -> Result<(), NoMemory> {
        self.check(address, bytes.len())?;
        let mut done = 0;
        while done < bytes.len() {
            let at = address + done as u64;
            let (inside, length) = part(at, bytes.len() - done);
            let to = &mut bytes[done..done + length];
            match self.pieces.get(&(at / PIECE)) {
                Some(piece) => to.copy_from_slice(&piece[inside..inside + length]),
                None => to.fill(0),
            }
            done += length;
        }
        Ok(())
    }

    /// Writes bytes. Zeros into a piece that is not kept stay unwritten.
    pub fn write(&mut self, address: u64, bytes: &[u8]) -> Result<(), NoMemory> {
        self.check(address, bytes.len())?;
        let mut done = 0;
        while done < bytes.len() {
            let at = address + done as u64;
            let (inside, length) = part(at, bytes.len() - done);
            let from = &bytes[done..done + length];
            done += length;
            if !self.pieces.contains_key(&(at / PIECE)) && *from == ZEROS[..length] {
                continue;
            }
            let fresh = || vec![0; PIECE as usize].into_boxed_slice();
            let piece = self.pieces.entry(at / PIECE).or_insert_with(fresh);
            piece[inside..inside + length].copy_from_slice(from);
        }
        Ok(())
    }

    /// Makes a range all zeros. Whole pieces of it are kept no more.
    pub fn zero(&mut self, address: u64, length: u64) -> Result<(), NoMemory> {
        self.check(address, length as usize)?;
        let mut done = 0;
        while done < length {
            let at = address + done;
            let (inside, length) = part(at, (length - done) as usize);
            done += length as u64;
            if length == ZEROS.len() {
                self.pieces.remove(&(at / PIECE));
            } else if let Some(piece) = self.pieces.get_mut(&(at / PIECE)) {
                piece[inside..inside + length].fill(0);
            }
        }
        Ok(())
    }
}

/// The offset of an address in its piece, and how many of so many bytes lie in it.
fn part(address: u64, length: usize) -> (usize, usize) {
    let inside = (address % PIECE) as usize;
    (inside, length.min(PIECE as usize - inside))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_back_across_pieces() {
        let mut memory = VideoMemory::new(1 << 40);
        let bytes: Vec<u8> = (0..=255).cycle().take(200_000).collect();
        memory.write((1 << 39) - 1000, &bytes).expect("is inside");
        let mut back = vec![0; bytes.len()];
        memory.read((1 << 39) - 1000, &mut back).expect("is inside");
        assert_eq!(back, bytes);
        assert_eq!(memory.kept(), 5 * PIECE);
        memory.clear();
        memory.read((1 << 39) - 1000, &mut back).expect("is inside");
        assert_eq!(back, vec![0; bytes.len()]);
    }

    #[test]
    fn unwritten_memory_reads_as_zeros() {
        let mut memory = VideoMemory::new(1 << 30);
        memory.write(5 * PIECE, &[0; 4096]).expect("is inside");
        let mut back = [1; 16];
        memory.read(PIECE - 8, &mut back).expect("is inside");
        assert_eq!(back, [0; 16]);
        assert_eq!(memory.kept(), 0);
    }

    #[test]
    fn zeroed_range_is_kept_no_more() {
        let mut memory = VideoMemory::new(1 << 30);
        memory
            .write(0, &[7; 4 * PIECE as usize])
            .expect("is inside");
        memory.zero(10, 3 * PIECE).expect("is inside");
        let mut back = vec![0; 4 * PIECE as usize];
        memory.read(0, &mut back).expect("is inside");
        let zeros = 10..10 + 3 * PIECE as usize;
        for (at, byte) in back.iter().enumerate() {
            assert_eq!(*byte == 0, zeros.contains(&at), "{at}");
        }
        assert_eq!(memory.kept(), 2 * PIECE);
        assert!(memory.zero(1 << 30, 1).is_err());
    }

    #[test]
    fn end_of_memory_is_the_last_byte() {
        let mut memory = VideoMemory::new(1 << 20);
        assert!(memory.write((1 << 20) - 4, &[1; 4]).is_ok());
        assert!(memory.write((1 << 20) - 3, &[1; 4]).is_err());
        assert!(memory.read(u64::MAX - 1, &mut [0; 4]).is_err());
    }
}
