// SPDX-License-Identifier: GPL-2.0
//! QMDs ("queue meta data"): what a kernel is, in versions 3 and 4, which Hopper takes
//! (open-gpu-doc, classes/compute/clcbc0qmd.h, `NVCBC0_QMDV03_00_*` and `NVCBC0_QMDV04_00_*`).

use crate::host::semaphore::{Reduction, Semaphore, SemaphoreAction};

/// Size of the larger one in bytes.
pub const QMD_BYTES: usize = 384;
/// The bits that have the number of both versions (`QMD_MAJOR_VERSION`).
const MAJOR_VERSION: Bits = Bits(583, 580);

/// Highest and lowest bit of a field.
#[derive(Clone, Copy)]
struct Bits(usize, usize);

impl Bits {
    /// The field so many bits further on.
    const fn plus(self, bits: usize) -> Self {
        Self(self.0 + bits, self.1 + bits)
    }
}

/// The description of a kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Qmd {
    /// The version: 3 or 4; of others nothing is known.
    pub version: u8,
    /// Blocks of threads in each direction.
    pub grid: [u32; 3],
    /// Threads of a block in each direction.
    pub block: [u32; 3],
    /// Virtual address of the program.
    pub program: u64,
    /// Virtual address and size of the first constant buffer, which has the kernel's parameters.
    pub constants: (u64, u64),
    /// Semaphores to release at the end.
    pub releases: Vec<Semaphore>,
}

/// The bits of a version's fields.
struct QmdLayout {
    grid: [Bits; 3],
    block: [Bits; 3],
    program: [Bits; 2],
    constants: [Bits; 2],
    constants_shift: u32,
    constants_size: Bits,
    releases: [ReleaseLayout; 3],
}

/// The bits of a release's fields.
struct ReleaseLayout {
    enable: Bits,
    structure: Bits,
    reduction: Bits,
    operation: Bits,
    format: Bits,
    wide: Bits,
    address: [Bits; 2],
    payload: [Bits; 2],
}

const fn release_3(first: usize) -> ReleaseLayout {
    ReleaseLayout {
        enable: Bits(55, 55).plus(first),
        structure: Bits(63, 62).plus(first),
        reduction: Bits(58, 58).plus(first),
        operation: Bits(54, 52).plus(first),
        format: Bits(57, 56).plus(first),
        wide: Bits(61, 61).plus(first),
        address: [Bits(31, 0).plus(first), Bits(39, 32).plus(first)],
        payload: [Bits(95, 64).plus(first), Bits(127, 96).plus(first)],
    }
}

const VERSION_3: QmdLayout = QmdLayout {
    grid: [Bits(415, 384), Bits(431, 416), Bits(463, 448)],
    block: [Bits(607, 592), Bits(623, 608), Bits(639, 624)],
    program: [Bits(1567, 1536), Bits(1584, 1568)],
    constants: [Bits(1055, 1024), Bits(1072, 1056)],
    constants_shift: 0,
    constants_size: Bits(1087, 1075),
    releases: [release_3(768), release_3(896), release_3(1664)],
};

const fn release_4(index: usize) -> ReleaseLayout {
    let (flags, words) = (320 + 16 * index, 640 + 128 * index);
    ReleaseLayout {
        enable: Bits(0, 0).plus(flags),
        structure: Bits(2, 1).plus(flags),
        reduction: Bits(4, 4).plus(flags),
        operation: Bits(7, 5).plus(flags),
        format: Bits(9, 8).plus(flags),
        wide: Bits(12, 12).plus(flags),
        address: [Bits(31, 0).plus(words), Bits(56, 32).plus(words)],
        payload: [Bits(95, 64).plus(words), Bits(127, 96).plus(words)],
    }
}

const VERSION_4: QmdLayout = QmdLayout {
    grid: [Bits(1055, 1024), Bits(1071, 1056), Bits(1103, 1088)],
    block: [Bits(1167, 1152), Bits(1183, 1168), Bits(1199, 1184)],
    program: [Bits(1247, 1216), Bits(1272, 1248)],
    constants: [Bits(1567, 1536), Bits(1586, 1568)],
    constants_shift: 6,
    constants_size: Bits(1599, 1587),
    releases: [release_4(0), release_4(1), release_4(2)],
};

/// The words of a QMD.
struct Words<'a>(&'a [u8]);

impl Words<'_> {
    fn get(&self, Bits(high, low): Bits) -> u64 {
        (low..=high).enumerate().fold(0, |value, (to, bit)| {
            let set = self
                .0
                .get(bit / 8)
                .map_or(0, |byte| u64::from(byte >> (bit % 8) & 1));
            value | set << to
        })
    }

    fn wide(&self, [low, high]: [Bits; 2]) -> u64 {
        self.get(high) << 32 | self.get(low)
    }

    fn release(&self, at: &ReleaseLayout) -> Option<Semaphore> {
        if self.get(at.enable) == 0 {
            return None;
        }
        let wide = self.get(at.wide) != 0;
        let [lower, upper] = at.payload;
        let upper = if wide { self.get(upper) } else { 0 };
        let action = if self.get(at.reduction) != 0 {
            let operation = self.get(at.operation) as u32;
            SemaphoreAction::Reduce(Reduction::of_report(operation, self.get(at.format) != 0))
        } else {
            SemaphoreAction::Release {
                timestamp: self.get(at.structure) == 0,
            }
        };
        Some(Semaphore {
            address: self.wide(at.address),
            payload: upper << 32 | self.get(lower),
            bytes: if wide { 8 } else { 4 },
            action,
        })
    }
}

impl Qmd {
    /// Takes a QMD apart. One of an unknown version has nothing but the version.
    pub fn of(bytes: &[u8]) -> Self {
        let words = Words(bytes);
        let version = words.get(MAJOR_VERSION) as u8;
        let at = match version {
            3 => &VERSION_3,
            4 => &VERSION_4,
            _ => {
                return Self {
                    version,
                    ..Self::default()
                }
            }
        };
        let three = |bits: &[Bits; 3]| bits.map(|bits| words.get(bits) as u32);
        Self {
            version,
            grid: three(&at.grid),
            block: three(&at.block),
            program: words.wide(at.program),
            constants: (
                words.wide(at.constants) << at.constants_shift,
                words.get(at.constants_size) << 4,
            ),
            releases: at
                .releases
                .iter()
                .filter_map(|release| words.release(release))
                .collect(),
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    fn set(bytes: &mut [u8], Bits(high, low): Bits, value: u64) {
        for (from, bit) in (low..=high).enumerate() {
            bytes[bit / 8] |= ((value >> from & 1) as u8) << (bit % 8);
        }
    }

    /// A QMD of version 4 that releases one word, and has parameters for a kernel at 0x8000.
    pub(crate) fn version_4(semaphore: u64, payload: u64) -> Vec<u8> {
        let mut bytes = vec![0; QMD_BYTES];
        set(&mut bytes, MAJOR_VERSION, 4);
        let at = release_4(1);
        set(&mut bytes, at.enable, 1);
        set(&mut bytes, at.structure, 1);
        set(&mut bytes, at.address[0], semaphore);
        set(&mut bytes, at.payload[0], payload);
        set(&mut bytes, VERSION_4.grid[0], 132);
        set(&mut bytes, VERSION_4.constants[0], 0x8000 >> 6);
        set(&mut bytes, VERSION_4.constants_size, 0x400 >> 4);
        bytes
    }

    #[test]
    fn version_4_is_taken_apart() {
        let qmd = Qmd::of(&version_4(0x1234_5670, 9));
        assert_eq!(
            (qmd.version, qmd.grid[0], qmd.constants.0),
            (4, 132, 0x8000)
        );
        let [release] = qmd.releases.as_slice() else {
            panic!("one release: {qmd:?}")
        };
        assert_eq!((release.address, release.payload), (0x1234_5670, 9));
        assert_eq!(
            release.action,
            SemaphoreAction::Release { timestamp: false }
        );
    }

    #[test]
    fn version_3_is_taken_apart() {
        let mut bytes = vec![0; 256];
        set(&mut bytes, MAJOR_VERSION, 3);
        set(&mut bytes, VERSION_3.block[2], 4);
        let at = release_3(1664);
        set(&mut bytes, at.enable, 1);
        set(&mut bytes, at.wide, 1);
        set(&mut bytes, at.payload[1], 1);
        let qmd = Qmd::of(&bytes);
        assert_eq!((qmd.version, qmd.block[2], qmd.releases.len()), (3, 4, 1));
        assert_eq!(
            (qmd.releases[0].payload, qmd.releases[0].bytes),
            (1 << 32, 8)
        );
    }

    #[test]
    fn unknown_version_has_no_releases() {
        assert_eq!(Qmd::of(&[0xff; QMD_BYTES]).releases, []);
    }
}
