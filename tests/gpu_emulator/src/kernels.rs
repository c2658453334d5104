// SPDX-License-Identifier: GPL-2.0
//! libcuda's own kernels that fill and copy memory (cuMemsetD8, cuMemcpyDtoD and the like): the
//! only kernels whose effect is emulated. They are known by a hash of their code; the parameters
//! were found by trying.

use crate::{
    memory::Memory,
    mmu::{AddressSpace, MmuFault},
    qmd::Qmd,
};

/// Bytes of code that are hashed.
const CODE: usize = 256;
/// Offset of a kernel's parameters in its first constant buffer, for compute capability 9.0.
const PARAMETERS: u64 = 0x210;
/// Words of parameters that are read.
const WORDS: usize = 8;
/// Bytes that are moved at once.
const PIECE: u64 = 64 << 10;

/// Bytes of the value that repeat, whatever the unit.
const PATTERN: usize = 4;

/// A kernel's first parameters, as words of 64 bits.
pub type Parameters = [u64; WORDS];

/// FNV-1a.
fn hash(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3)
    })
}

/// The hash of a program's beginning; 0 of no program.
pub fn hash_of(memory: &mut Memory, space: AddressSpace, program: u64) -> Result<u64, MmuFault> {
    if program == 0 {
        return Ok(0);
    }
    let mut code = [0; CODE];
    space.read(memory, program, &mut code)?;
    Ok(hash(&code))
}

/// The parameters of a launch; zeros where its first constant buffer ends before.
pub fn parameters(
    memory: &mut Memory,
    space: AddressSpace,
    qmd: &Qmd,
) -> Result<Parameters, MmuFault> {
    let mut bytes = [0; 8 * WORDS];
    let (buffer, size) = qmd.constants;
    let there = size.saturating_sub(PARAMETERS).min(8 * WORDS as u64);
    space.read(memory, buffer + PARAMETERS, &mut bytes[..there as usize])?;
    let mut words = [0; WORDS];
    for (word, bytes) in words.iter_mut().zip(bytes.chunks_exact(8)) {
        *word = u64::from_le_bytes(bytes.try_into().expect("eight bytes"));
    }
    Ok(words)
}

/// The work of a known kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// Fills rows with a value.
    Fill(Fill),
    /// Copies bytes.
    Copy(Copied),
}

impl Work {
    /// The work of a kernel whose program has this hash, if it is one of the known ones.
    pub fn of(program: u64, parameters: &Parameters, qmd: &Qmd) -> Option<Self> {
        let fill = Fill::of(program, parameters, qmd).map(Self::Fill);
        fill.or_else(|| Copied::of(program, parameters, qmd).map(Self::Copy))
    }

    /// Does it.
    pub fn run(&self, memory: &mut Memory, space: AddressSpace) -> Result<(), MmuFault> {
        match self {
            Self::Fill(fill) => fill.run(memory, space),
            Self::Copy(copied) => copied.run(memory, space),
        }
    }
}

/// Programs that fill, by the hash of their code, and the unit in which they count. The one that
/// counts bytes also fills with 16 bits at addresses that are not aligned to 32. The first two are
/// those of libcuda 550.163.01, the others of 535.261.03.
const FILLS: [(u64, u64); 3] = [
    (0xda63_9fc6_97c4_9165, 4),
    (0xd010_cf1a_20d3_463a, 1),
    (0x8ec6_7645_f011_6eee, 4),
];

/// A fill of rows with a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fill {
    /// Virtual address of the first row.
    to: u64,
    /// The value: its low bytes repeat.
    value: u64,
    /// Bytes of a row.
    length: u64,
    /// Bytes from a row to the next.
    pitch: u64,
    rows: u64,
}

impl Fill {
    fn of(program: u64, parameters: &Parameters, qmd: &Qmd) -> Option<Self> {
        let (_, unit) = FILLS.iter().find(|(known, _)| *known == program)?;
        let [to, value, count, pitch, ..] = *parameters;
        Some(Self {
            to,
            value,
            length: count * unit,
            pitch,
            rows: u64::from(qmd.grid[1].max(1)),
        })
    }

    fn run(&self, memory: &mut Memory, space: AddressSpace) -> Result<(), MmuFault> {
        let pattern = &self.value.to_le_bytes()[..PATTERN];
        let bytes: Vec<u8> = pattern
            .iter()
            .copied()
            .cycle()
            .take(PIECE as usize)
            .collect();
        for row in 0..self.rows {
            let (mut at, mut left) = (self.to + row * self.pitch, self.length);
            while left > 0 {
                let piece = left.min(PIECE);
                space.write(memory, at, &bytes[..piece as usize])?;
                at += piece;
                left -= piece;
            }
        }
        Ok(())
    }
}

/// A program of both that copies words of 32 bits, as many as it is told.
const COPY_WORDS: u64 = 0x0008_69ac_91f8_0ba1;
/// Programs of 550 and of 535 that copy 16 bytes in each of their threads. `COPY_WORDS` copies the
/// rest.
const COPY_PIECES: [u64; 2] = [0x2bd4_e714_2a45_7689, 0xee86_3a54_0682_0ec7];

/// A copy of bytes from one virtual address to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Copied {
    to: u64,
    from: u64,
    length: u64,
}

impl Copied {
    fn of(program: u64, parameters: &Parameters, qmd: &Qmd) -> Option<Self> {
        let [to, from, count, ..] = *parameters;
        let length = match program {
            COPY_WORDS => 4 * count,
            _ if COPY_PIECES.contains(&program) => {
                16 * u64::from(qmd.grid[0]) * u64::from(qmd.block[0])
            }
            _ => return None,
        };
        Some(Self { to, from, length })
    }

    fn run(&self, memory: &mut Memory, space: AddressSpace) -> Result<(), MmuFault> {
        let mut bytes = vec![0; self.length.min(PIECE) as usize];
        let mut done = 0;
        while done < self.length {
            let piece = &mut bytes[..(self.length - done).min(PIECE) as usize];
            space.read(memory, self.from + done, piece)?;
            space.write(memory, self.to + done, piece)?;
            done += piece.len() as u64;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mmu::tests::Tables;

    fn bench() -> (Memory, AddressSpace) {
        let mut memory = Memory::new(1 << 30);
        let mut tables = Tables::new(1 << 20);
        tables.map(&mut memory, 0, 21, 0x1000_0000);
        (memory, AddressSpace { root: tables.root })
    }

    #[test]
    fn rows_are_filled_and_nothing_else() {
        let (mut memory, space) = bench();
        let qmd = Qmd {
            grid: [1, 2, 1],
            ..Qmd::default()
        };
        let parameters = [4, 0x4433_2211, 2, 12, 0, 0, 0, 0];
        let work = Work::of(FILLS[0].0, &parameters, &qmd).expect("is known");
        work.run(&mut memory, space).expect("is mapped");
        let mut bytes = [0; 28];
        space.read(&mut memory, 0, &mut bytes).expect("is mapped");
        let row = [0x11, 0x22, 0x33, 0x44, 0x11, 0x22, 0x33, 0x44];
        assert_eq!((&bytes[..4], &bytes[4..12]), (&[0; 4][..], &row[..]));
        assert_eq!((&bytes[12..16], &bytes[16..24]), (&[0; 4][..], &row[..]));
        assert_eq!(bytes[24..], [0; 4]);
    }

    #[test]
    fn words_and_pieces_are_copied() {
        let (mut memory, space) = bench();
        space
            .write(&mut memory, 64, b"12345678")
            .expect("is mapped");
        let qmd = Qmd {
            grid: [2, 1, 1],
            block: [3, 1, 1],
            ..Qmd::default()
        };
        let [newer, older] = COPY_PIECES;
        for (program, length) in [(COPY_WORDS, 4), (newer, 96), (older, 96)] {
            let work = Work::of(program, &[256, 64, 1, 0, 0, 0, 0, 0], &qmd).expect("is known");
            assert_eq!(
                work,
                Work::Copy(Copied {
                    to: 256,
                    from: 64,
                    length
                })
            );
            work.run(&mut memory, space).expect("is mapped");
        }
        let mut bytes = [0; 8];
        space.read(&mut memory, 256, &mut bytes).expect("is mapped");
        assert_eq!(&bytes, b"12345678");
    }

    #[test]
    fn unknown_program_does_nothing() {
        let (mut memory, space) = bench();
        let program = hash_of(&mut memory, space, 0x1000).expect("is mapped");
        assert_eq!(Work::of(program, &[0; WORDS], &Qmd::default()), None);
    }
}
