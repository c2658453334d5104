// SPDX-License-Identifier: GPL-2.0
//! UVM's side of the driver: external ranges and what is mapped in them, piece by piece.
//!
//! A mapping holds its memory as long as a piece of it is left (uvm_map_external.c).

/// Memory, by number.
pub type Memory = u64;

/// A piece of a mapping: no two pieces of one file and GPU overlap.
#[derive(Debug, Clone)]
struct Piece {
    file: u64,
    gpu: [u8; 16],
    base: u64,
    last: u64,
    memory: Memory,
}

/// An external range.
#[derive(Debug)]
struct Range {
    file: u64,
    base: u64,
    last: u64,
}

/// The address spaces of all UVM files.
#[derive(Debug, Default)]
pub struct Spaces {
    ranges: Vec<Range>,
    pieces: Vec<Piece>,
}

/// Memory, and by how much more or less often it is held.
pub type Cuts = Vec<(Memory, i32)>;

impl Spaces {
    /// Whether nothing is mapped and no range exists.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty() && self.pieces.is_empty()
    }

    /// `UVM_CREATE_EXTERNAL_RANGE`: whether it was made.
    pub fn create(&mut self, file: u64, base: u64, length: u64) -> bool {
        let Some(last) = last_of(base, length) else {
            return false;
        };
        let meets = |range: &Range| range.file == file && range.base <= last && range.last >= base;
        let free = !self.ranges.iter().any(meets);
        if free {
            self.ranges.push(Range { file, base, last });
        }
        free
    }

    /// `UVM_MAP_EXTERNAL_ALLOCATION` for one GPU: what it took the place of, or `None` where there
    /// is no range for it. The memory is held once more by the new mapping.
    pub fn map(
        &mut self,
        file: u64,
        gpu: [u8; 16],
        base: u64,
        length: u64,
        memory: Memory,
    ) -> Option<Cuts> {
        let last = last_of(base, length)?;
        let holds = |range: &Range| range.file == file && range.base <= base && last <= range.last;
        self.ranges.iter().find(|range| holds(range))?;
        let cuts = self.cut(file, Some(&gpu), base, last);
        self.pieces.push(Piece {
            file,
            gpu,
            base,
            last,
            memory,
        });
        Some(cuts)
    }

    /// `UVM_UNMAP_EXTERNAL`.
    pub fn unmap(&mut self, file: u64, gpu: &[u8; 16], base: u64, length: u64) -> Cuts {
        last_of(base, length).map_or(Vec::new(), |last| self.cut(file, Some(gpu), base, last))
    }

    /// `UVM_FREE` of the range that begins there (and has that length, where one is given); `None`:
    /// there is none.
    pub fn free(&mut self, file: u64, base: u64, length: Option<u64>) -> Option<Cuts> {
        let found = self.ranges.iter().position(|range| {
            let long = length.is_none_or(|length| last_of(base, length) == Some(range.last));
            range.file == file && range.base == base && long
        })?;
        let range = self.ranges.swap_remove(found);
        Some(self.cut(file, None, range.base, range.last))
    }

    /// A GPU leaves an address space.
    pub fn forget_gpu(&mut self, file: u64, gpu: &[u8; 16]) -> Cuts {
        self.cut(file, Some(gpu), 0, u64::MAX)
    }

    /// A file is closed: the memory of each piece that goes.
    pub fn close(&mut self, file: u64) -> Vec<Memory> {
        self.ranges.retain(|range| range.file != file);
        let (gone, left) = self.pieces.drain(..).partition(|piece| piece.file == file);
        self.pieces = left;
        let gone: Vec<Piece> = gone;
        gone.into_iter().map(|piece| piece.memory).collect()
    }

    /// Takes addresses away from all mappings that have them.
    fn cut(&mut self, file: u64, gpu: Option<&[u8; 16]>, base: u64, last: u64) -> Cuts {
        let mut cuts = Vec::new();
        let mut left = Vec::new();
        for piece in self.pieces.drain(..) {
            let here = piece.file == file && gpu.is_none_or(|gpu| *gpu == piece.gpu);
            if !here || piece.base > last || piece.last < base {
                left.push(piece);
                continue;
            }
            let mut by = -1;
            if piece.base < base {
                left.push(Piece {
                    last: base - 1,
                    ..piece.clone()
                });
                by += 1;
            }
            if piece.last > last {
                left.push(Piece {
                    base: last + 1,
                    ..piece.clone()
                });
                by += 1;
            }
            cuts.push((piece.memory, by));
        }
        self.pieces = left;
        cuts
    }
}

fn last_of(base: u64, length: u64) -> Option<u64> {
    base.checked_add(length.checked_sub(1)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GPU: [u8; 16] = [1; 16];

    #[test]
    fn mapping_is_held_until_its_last_piece() {
        let mut spaces = Spaces::default();
        assert!(spaces.map(1, GPU, 0x1000, 0x1000, 7).is_none(), "no range");
        assert!(spaces.create(1, 0, 0x10000));
        assert!(!spaces.create(1, 0xffff, 1), "overlaps");
        assert_eq!(spaces.map(1, GPU, 0x1000, 0x3000, 7), Some(vec![]));
        assert_eq!(
            spaces.map(1, GPU, 0x2000, 0x1000, 8),
            Some(vec![(7, 1)]),
            "two pieces"
        );
        assert_eq!(spaces.unmap(1, &GPU, 0x1000, 0x1000), [(7, -1)]);
        assert!(
            spaces.unmap(2, &GPU, 0, u64::MAX).is_empty(),
            "another file"
        );
        assert_eq!(spaces.free(1, 0, Some(1)), None, "another length");
        let mut gone = spaces.free(1, 0, None).expect("exists");
        gone.sort_unstable();
        assert_eq!(gone, [(7, -1), (8, -1)]);
        assert!(spaces.is_empty());
    }

    #[test]
    fn a_file_takes_its_own_with_it() {
        let mut spaces = Spaces::default();
        for file in [1, 2] {
            assert!(spaces.create(file, 0, 0x1000));
            assert_eq!(spaces.map(file, GPU, 0, 0x1000, file), Some(vec![]));
        }
        assert_eq!(spaces.close(1), [1]);
        assert_eq!(spaces.forget_gpu(2, &GPU), [(2, -1)]);
        assert!(!spaces.is_empty());
        assert!(spaces.close(2).is_empty());
        assert!(spaces.is_empty());
    }
}
