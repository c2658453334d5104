// SPDX-License-Identifier: GPL-2.0
//! libcuda's own kernels that fill memory (cuMemsetD8 and the like): the only kernels whose
//! effect is emulated. They are known by a hash of their code; the parameters were found by
//! trying.

use crate::{
    memory::Memory,
    mmu::{AddressSpace, MmuFault},
    qmd::Qmd,
};

/// Bytes of code that are hashed.
const CODE: usize = 256;
/// Where a kernel's parameters begin in its first constant buffer, for compute capability 9.0.
const PARAMETERS: u64 = 0x210;
/// Bytes that are written at once.
const PIECE: usize = 64 << 10;

/// Bytes of the value that repeat, whatever the unit.
const PATTERN: usize = 4;

/// Programs of libcuda 550.163.01 by the hash of their code, and the unit in which they count. The
/// one that counts bytes also fills with 16 bits at addresses that are not aligned to 32.
const PROGRAMS: [(u64, u64); 2] = [(0xda63_9fc6_97c4_9165, 4), (0xd010_cf1a_20d3_463a, 1)];

/// FNV-1a.
fn hash(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3)
    })
}

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

/// The hash of a program's beginning; 0 of no program.
pub fn hash_of(memory: &mut Memory, space: AddressSpace, program: u64) -> Result<u64, MmuFault> {
    if program == 0 {
        return Ok(0);
    }
    let mut code = [0; CODE];
    space.read(memory, program, &mut code)?;
    Ok(hash(&code))
}

impl Fill {
    /// The fill that a kernel does whose program has this hash, if it is one of the known ones.
    pub fn of(
        memory: &mut Memory,
        space: AddressSpace,
        qmd: &Qmd,
        program: u64,
    ) -> Result<Option<Self>, MmuFault> {
        let Some((_, unit)) = PROGRAMS.iter().find(|(known, _)| *known == program) else {
            return Ok(None);
        };
        let mut parameters = [0; 32];
        space.read(memory, qmd.constants.0 + PARAMETERS, &mut parameters)?;
        let parameter = |index: usize| {
            let bytes = &parameters[8 * index..8 * index + 8];
            u64::from_le_bytes(bytes.try_into().expect("eight bytes"))
        };
        Ok(Some(Self {
            to: parameter(0),
            value: parameter(1),
            length: parameter(2) * *unit,
            pitch: parameter(3),
            rows: u64::from(qmd.grid[1].max(1)),
        }))
    }

    /// Does it.
    pub fn run(&self, memory: &mut Memory, space: AddressSpace) -> Result<(), MmuFault> {
        let pattern = &self.value.to_le_bytes()[..PATTERN];
        let bytes: Vec<u8> = pattern.iter().copied().cycle().take(PIECE).collect();
        for row in 0..self.rows {
            let (mut at, mut left) = (self.to + row * self.pitch, self.length);
            while left > 0 {
                let piece = left.min(PIECE as u64);
                space.write(memory, at, &bytes[..piece as usize])?;
                at += piece;
                left -= piece;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mmu::tests::Tables;

    #[test]
    fn rows_are_filled_and_nothing_else() {
        let mut memory = Memory::new(1 << 30);
        let mut tables = Tables::new(1 << 20);
        tables.map(&mut memory, 0, 21, 0x1000_0000);
        let space = AddressSpace { root: tables.root };
        let fill = Fill {
            to: 4,
            value: 0x4433_2211,
            length: 8,
            pitch: 12,
            rows: 2,
        };
        fill.run(&mut memory, space).expect("is mapped");
        let mut bytes = [0; 28];
        space.read(&mut memory, 0, &mut bytes).expect("is mapped");
        let row = [0x11, 0x22, 0x33, 0x44, 0x11, 0x22, 0x33, 0x44];
        assert_eq!((&bytes[..4], &bytes[4..12]), (&[0; 4][..], &row[..]));
        assert_eq!((&bytes[12..16], &bytes[16..24]), (&[0; 4][..], &row[..]));
        assert_eq!(bytes[24..], [0; 4]);
    }

    #[test]
    fn unknown_program_fills_nothing() {
        let mut memory = Memory::new(1 << 30);
        let mut tables = Tables::new(1 << 20);
        tables.map(&mut memory, 0, 21, 0x1000_0000);
        let space = AddressSpace { root: tables.root };
        let program = hash_of(&mut memory, space, 0x1000).expect("is mapped");
        assert_eq!(
            Fill::of(&mut memory, space, &Qmd::default(), program),
            Ok(None)
        );
    }
}
