// SPDX-License-Identifier: GPL-2.0
//! Hopper's page tables, version 3 (hopper/gh100/dev_mmu.h, `NV_MMU_VER3_*`).
//!
//! A virtual address of 57 bits goes through five tables: bit 56, bits 55:47, 46:38, 37:29 and
//! 28:21. The last of them has entries of 16 bytes with two tables below: pages of 64 KiB and
//! pages of 4 KiB. An entry with bit 0 set is a page itself: 512 MiB in the fourth table, 2 MiB
//! in the fifth.

use crate::{
    memory::Memory,
    place::{Aperture, NoMemory, Place},
};

/// Tables with one entry for each index: lowest bit of the index, and its number of bits.
const LEVELS: [(u32, u32); 4] = [(56, 1), (47, 9), (38, 9), (29, 9)];
/// Lowest bit of the index into the table of paired entries (`NV_MMU_VER3_DUAL_PDE`).
const DUAL: u32 = 21;
/// `NV_MMU_VER3_PTE_KIND` of a page whose accesses are messages, not memory: the doorbell page.
const KIND_SMSKED_MESSAGE: u64 = 0xf;

/// The target of a virtual address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// Memory.
    Memory(Place),
    /// The page of registers that programs may have, at this offset (class c361, `NVC361_*`).
    Usermode(u64),
}

/// A translated address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Translation {
    /// The target.
    pub target: Target,
    /// Bytes from here to the end of the page.
    pub left: u64,
}

/// Why an address leads nowhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MmuFault {
    /// No valid entry; the lowest bit of the index at which the walk ended.
    Unmapped {
        /// The virtual address.
        address: u64,
        /// Lowest bit of the index of the table that lacks the entry.
        level: u32,
    },
    /// The page is another GPU's memory.
    Peer(u64),
    /// A table lies where no memory is.
    Table(NoMemory),
    /// The page leads to where no memory is.
    Page(NoMemory),
}

impl std::fmt::Display for MmuFault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Unmapped { address, level } => {
                write!(
                    f,
                    "nothing is mapped at {address:#x} (entry of bit {level})"
                )
            }
            Self::Peer(address) => write!(f, "{address:#x} is another GPU's memory"),
            Self::Table(no) => write!(f, "a page table: {no}"),
            Self::Page(no) => write!(f, "a page: {no}"),
        }
    }
}

/// The memory that an entry for a table names (`NV_MMU_VER3_PDE_APERTURE`), with its address.
fn table(entry: u64, address_mask: u64) -> Option<Place> {
    let address = entry & address_mask;
    match entry >> 1 & 3 {
        0 => None,
        1 => Some(Place::video(address)),
        _ => Some(Place::system(address)),
    }
}

/// Bits 51:12 and 51:8 of an entry.
const ADDRESS: u64 = 0xf_ffff_ffff_f000;
const ADDRESS_BIG: u64 = 0xf_ffff_ffff_ff00;

/// The translation by an entry for a page (`NV_MMU_VER3_PTE`).
fn page(entry: u64, address: u64, shift: u32) -> Result<Translation, MmuFault> {
    let size = 1 << shift;
    let inside = address & (size - 1);
    let physical = (entry & ADDRESS) + inside;
    let aperture = entry >> 1 & 3;
    let target = if entry >> 8 & 0xf == KIND_SMSKED_MESSAGE && aperture >= 2 {
        Target::Usermode(inside)
    } else {
        match aperture {
            0 => Target::Memory(Place::video(physical)),
            1 => return Err(MmuFault::Peer(address)),
            _ => Target::Memory(Place::system(physical)),
        }
    };
    Ok(Translation {
        target,
        left: size - inside,
    })
}

/// Follows the tables from a root.
pub fn translate(memory: &Memory, root: Place, address: u64) -> Result<Translation, MmuFault> {
    let entry_at = |place: Place| memory.read64(place).map_err(MmuFault::Table);
    let mut here = root;
    for (shift, bits) in LEVELS {
        let index = address >> shift & ((1 << bits) - 1);
        let entry = entry_at(here.plus(index * 8))?;
        if entry & 1 != 0 {
            return page(entry, address, shift);
        }
        here = table(entry, ADDRESS).ok_or(MmuFault::Unmapped {
            address,
            level: shift,
        })?;
    }
    let pair = here.plus((address >> DUAL & 0xff) * 16);
    let (big, small) = (entry_at(pair)?, entry_at(pair.plus(8))?);
    if big & 1 != 0 {
        return page(big, address, DUAL);
    }
    if let Some(pages) = table(small, ADDRESS) {
        let entry = entry_at(pages.plus((address >> 12 & 0x1ff) * 8))?;
        if entry & 1 != 0 {
            return page(entry, address, 12);
        }
    }
    if let Some(pages) = table(big, ADDRESS_BIG) {
        let entry = entry_at(pages.plus((address >> 16 & 0x1f) * 8))?;
        if entry & 1 != 0 {
            return page(entry, address, 16);
        }
    }
    Err(MmuFault::Unmapped { address, level: 12 })
}

/// A virtual address space: a root, and access through it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddressSpace {
    /// The first table.
    pub root: Place,
}

impl AddressSpace {
    /// Calls `each` with every piece of a range that is contiguous in memory, and its offset in
    /// the range.
    fn pieces(
        self,
        memory: &mut Memory,
        address: u64,
        length: u64,
        mut each: impl FnMut(&mut Memory, Place, u64, usize) -> Result<(), NoMemory>,
    ) -> Result<(), MmuFault> {
        let mut done = 0;
        while done < length {
            let at = address.wrapping_add(done);
            let found = translate(memory, self.root, at)?;
            let Target::Memory(place) = found.target else {
                return Err(MmuFault::Unmapped {
                    address: at,
                    level: 12,
                });
            };
            let piece = found.left.min(length - done);
            each(memory, place, done, piece as usize).map_err(MmuFault::Page)?;
            done += piece;
        }
        Ok(())
    }

    /// Reads a range.
    pub fn read(self, memory: &mut Memory, address: u64, bytes: &mut [u8]) -> Result<(), MmuFault> {
        self.pieces(
            memory,
            address,
            bytes.len() as u64,
            |memory, place, done, piece| {
                memory.read(place, &mut bytes[done as usize..done as usize + piece])
            },
        )
    }

    /// Writes a range.
    pub fn write(self, memory: &mut Memory, address: u64, bytes: &[u8]) -> Result<(), MmuFault> {
        self.pieces(
            memory,
            address,
            bytes.len() as u64,
            |memory, place, done, piece| {
                memory.write(place, &bytes[done as usize..done as usize + piece])
            },
        )
    }

    /// Makes a range all zeros.
    pub fn zero(self, memory: &mut Memory, address: u64, length: u64) -> Result<(), MmuFault> {
        self.pieces(memory, address, length, |memory, place, _, piece| {
            memory.zero(place, piece as u64)
        })
    }

    /// The place of an address, if it is memory.
    pub fn place(self, memory: &Memory, address: u64) -> Result<Place, MmuFault> {
        match translate(memory, self.root, address)?.target {
            Target::Memory(place) => Ok(place),
            Target::Usermode(_) => Err(MmuFault::Unmapped { address, level: 12 }),
        }
    }
}

/// The aperture that RM's `ADDR_*` name (arch/nvalloc/common/inc/nvrm ... `ADDR_FBMEM` is 2).
pub fn aperture_of(address_space: u32) -> Aperture {
    if address_space == 2 {
        Aperture::Video
    } else {
        Aperture::System
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Writes page tables as the driver does, from the same description.
    pub(crate) struct Tables {
        /// Next free table in video memory.
        next: u64,
        /// The root.
        pub(crate) root: Place,
    }

    impl Tables {
        /// An empty address space, tables from this address on.
        pub(crate) fn new(base: u64) -> Self {
            Self {
                next: base + 4096,
                root: Place::video(base),
            }
        }

        fn below(&mut self, memory: &mut Memory, entry: Place, big: bool) -> Place {
            let now = memory.read64(entry).expect("is memory");
            let mask = if big { ADDRESS_BIG } else { ADDRESS };
            if let Some(place) = table(now, mask) {
                return place;
            }
            let fresh = self.next;
            self.next += 4096;
            memory
                .write(entry, &(fresh | 1 << 1).to_le_bytes())
                .expect("is memory");
            Place::video(fresh)
        }

        /// Maps one page of 1 << `shift` bytes with an entry of this aperture and kind.
        pub(crate) fn map(&mut self, memory: &mut Memory, va: u64, shift: u32, entry: u64) {
            let mut here = self.root;
            for (bit, bits) in LEVELS {
                let at = here.plus((va >> bit & ((1 << bits) - 1)) * 8);
                if bit == shift {
                    return memory
                        .write(at, &(entry | 1).to_le_bytes())
                        .expect("is memory");
                }
                here = self.below(memory, at, false);
            }
            let pair = here.plus((va >> DUAL & 0xff) * 16);
            let at = match shift {
                21 => pair,
                16 => self.below(memory, pair, true).plus((va >> 16 & 0x1f) * 8),
                12 => self
                    .below(memory, pair.plus(8), false)
                    .plus((va >> 12 & 0x1ff) * 8),
                _ => panic!("no page has {shift} bits"),
            };
            memory
                .write(at, &(entry | 1).to_le_bytes())
                .expect("is memory");
        }
    }

    #[test]
    fn every_page_size_is_found() {
        let mut memory = Memory::new(8 << 30);
        let mut tables = Tables::new(1 << 20);
        for (va, shift, physical) in [
            (0x7f00_0000_1000, 12, 0x5000),
            (0x7f00_0021_0000, 16, 0x3_0000),
            (0x7f00_0040_0000, 21, 0x60_0000),
            (0x7f00_4000_0000, 29, 0x8000_0000),
        ] {
            tables.map(&mut memory, va, shift, physical);
            let found = translate(&memory, tables.root, va + 8).expect("is mapped");
            assert_eq!(found.target, Target::Memory(Place::video(physical + 8)));
            assert_eq!(found.left, (1 << shift) - 8);
        }
    }

    #[test]
    fn small_page_comes_before_big_page() {
        let mut memory = Memory::new(1 << 30);
        let mut tables = Tables::new(1 << 20);
        tables.map(&mut memory, 0, 16, 0x10_0000);
        tables.map(&mut memory, 0x1000, 12, 0x20_0000);
        let space = AddressSpace { root: tables.root };
        assert_eq!(space.place(&memory, 0), Ok(Place::video(0x10_0000)));
        assert_eq!(space.place(&memory, 0x1000), Ok(Place::video(0x20_0000)));
        assert_eq!(space.place(&memory, 0x2000), Ok(Place::video(0x10_2000)));
    }

    #[test]
    fn doorbell_page_is_no_memory() {
        let mut memory = Memory::new(1 << 30);
        let mut tables = Tables::new(1 << 20);
        tables.map(
            &mut memory,
            0x1_0000,
            16,
            0x3_0000 | KIND_SMSKED_MESSAGE << 8 | 2 << 1,
        );
        let found = translate(&memory, tables.root, 0x1_0090).expect("is mapped");
        assert_eq!(found.target, Target::Usermode(0x90));
    }

    #[test]
    fn hole_and_peer_page_are_faults() {
        let mut memory = Memory::new(1 << 30);
        let mut tables = Tables::new(1 << 20);
        tables.map(&mut memory, 0x2000, 12, 0x3000 | 1 << 1);
        let unmapped = |address, level| Err(MmuFault::Unmapped { address, level });
        assert_eq!(
            translate(&memory, tables.root, 0x3000),
            unmapped(0x3000, 12)
        );
        assert_eq!(
            translate(&memory, tables.root, 1 << 40),
            unmapped(1 << 40, 38)
        );
        assert_eq!(
            translate(&memory, tables.root, 0x2000),
            Err(MmuFault::Peer(0x2000))
        );
    }

    #[test]
    fn range_over_scattered_pages_is_one() {
        let mut memory = Memory::new(1 << 30);
        let mut tables = Tables::new(1 << 20);
        tables.map(&mut memory, 0x1000, 12, 0x9000);
        tables.map(&mut memory, 0x2000, 12, 0x5000);
        let space = AddressSpace { root: tables.root };
        let bytes: Vec<u8> = (0..200).collect();
        space
            .write(&mut memory, 0x2000 - 100, &bytes)
            .expect("is mapped");
        let mut back = vec![0; 200];
        space
            .read(&mut memory, 0x2000 - 100, &mut back)
            .expect("is mapped");
        assert_eq!(back, bytes);
        assert_eq!(
            memory.bytes(Place::video(0x5000), 4),
            Ok(vec![100, 101, 102, 103])
        );
    }
}
