// SPDX-License-Identifier: GPL-2.0
//! The memory that page tables take of a GPU.
//!
//! A mapping takes more than what is mapped: the GPU finds it by tables in its own memory, which no
//! object shows. A dense one takes next to nothing, but 4 KiB mapped far from everything else take
//! three tables of as much each. So they are charged, as overhead.
//!
//! The levels are those of the GPU's MMU since Pascal (`uvm_pascal_mmu.c`, `uvm_hopper_mmu.c`), and
//! were measured on an H100 (docs/measurements/2026-11-22-page-tables.md):
//!
//! | a table takes | for each | of |
//! |---|---|---|
//! | 4 KiB | 2 MiB that are touched | pages of 4 KiB |
//! | 256 bytes | 2 MiB that are touched | pages of 64 KiB |
//! | 4 KiB | 512 MiB, 256 GiB, 128 TiB that are touched | all |
//!
//! The root is part of the address space. UVM takes memory for tables 2 MiB at a time and shares
//! that between programs, so that the GPU can miss up to as much more, once.

use crate::{
    nvidia::memory::PageSize,
    policy::steps::step, //
};

const KIB: u64 = 1 << 10;

/// By how much addresses are shifted for the number of their last table.
const LEAF: u32 = 21;
/// The same for the tables above it.
const ABOVE: [u32; 3] = [29, 38, 47];
/// Bytes of a table, but for those of pages of 64 KiB and more.
const TABLE: u64 = 4 * KIB;

/// Bytes of the table of so large pages.
const fn leaf(page: PageSize) -> u64 {
    match page {
        PageSize::Small => TABLE,
        PageSize::Big => 256,
        PageSize::Huge => 0,
    }
}

/// Bytes that each 2 MiB take where pages of 4 and of 64 KiB are mixed.
pub(super) const MIXED: u64 = leaf(PageSize::Small) + leaf(PageSize::Big);

/// Addresses that are mapped, and by which pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Extent {
    pub(super) base: u64,
    /// The last byte.
    pub(super) last: u64,
    pub(super) page: PageSize,
}

impl Extent {
    /// Bytes of the tables that it takes alone.
    pub(super) fn tables(&self) -> u64 {
        let count = |shift: u32| (self.last >> shift) - (self.base >> shift) + 1;
        let above = ABOVE.map(|shift| count(shift) * TABLE);
        count(LEAF) * leaf(self.page) + above.iter().sum::<u64>()
    }

    /// Bytes of the tables that it has together with the next one, which begins behind its end.
    /// Between those two may lie none: so the sum over all of them, less what neighbours share, is
    /// what there is. (Tables of pages of one size on both sides of pages of another one count
    /// twice.)
    pub(super) fn shared(&self, next: &Self) -> u64 {
        let meet = |shift: u32| self.last >> shift == next.base >> shift;
        let above = ABOVE.into_iter().filter(|&shift| meet(shift));
        // CAST: at most three.
        let above = above.count() as u64 * TABLE;
        if self.page == next.page && meet(LEAF) {
            return above + leaf(self.page);
        }
        above
    }
}

/// Bytes of the tables of so many bytes, wherever they lie. The driver makes those of 4 KiB pages
/// whatever size is asked for (131,584 KiB for 64 GiB, measured on an H200).
pub fn tables_of(length: u64) -> u64 {
    // It can begin in the middle of a table's addresses.
    let count = |shift: u32| (length >> shift) + 2;
    let above = ABOVE.map(|shift| count(shift) * TABLE);
    count(LEAF) * TABLE + above.iter().sum::<u64>()
}

/// Bytes of the tables above those of blocks of 2 MiB, for spans in order of their addresses;
/// `from` gives the first one that ends at or behind an address.
pub(super) fn directories(base: u64, last: u64, from: impl Fn(u64) -> Option<(u64, u64)>) -> u64 {
    let mut tables = 0;
    for shift in ABOVE {
        let (mut next, end) = (base >> shift, last >> shift);
        while let Some((first, behind)) = from(next << shift) {
            step();
            let (first, behind) = ((first >> shift).max(next), (behind >> shift).min(end));
            if first > end {
                break;
            }
            tables += (behind - first + 1) * TABLE;
            next = behind + 1;
            if next > end {
                break;
            }
        }
    }
    tables
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    const MIB: u64 = 1 << 20;

    fn extent(base: u64, length: u64, page: PageSize) -> Extent {
        Extent {
            base,
            last: base + length - 1,
            page,
        }
    }

    #[test]
    fn page_tables_are_as_measured() {
        // KiB each, on an H100: 4 KiB every 2 MiB, 4 KiB every 512 MiB, 2 MiB every 512 MiB. The
        // tables above are shared by thousands.
        let each = |stride: u64, length: u64, page| {
            let at = |n: u64| extent(0x100_0000_0000 + n * stride, length, page);
            let all = (0..4096).map(|n| at(n).tables()).sum::<u64>();
            let shared = (1..4096).map(|n| at(n - 1).shared(&at(n))).sum::<u64>();
            (all - shared) / 4096 / KIB
        };
        assert_eq!(each(2 * MIB, 4 * KIB, PageSize::Small), 4);
        assert_eq!(each(512 * MIB, 4 * KIB, PageSize::Small), 8);
        assert_eq!(each(512 * MIB, 2 * MIB, PageSize::Huge), 4);
        // 64 MiB, 128 times, on multiples of 2 MiB, 64 KiB beside them, 4 KiB beside them.
        assert_eq!(
            extent(64 * MIB, 64 * MIB, PageSize::Huge).tables(),
            12 * KIB
        );
        assert_eq!(
            extent(64 * MIB + 64 * KIB, 64 * MIB, PageSize::Big).tables(),
            33 * 256 + 12 * KIB
        );
        assert_eq!(
            extent(64 * MIB + 4 * KIB, 64 * MIB, PageSize::Small).tables(),
            33 * 4 * KIB + 12 * KIB
        );
    }

    #[test]
    fn no_length_overflows() {
        assert_eq!(tables_of(0), 8 * TABLE);
        assert_eq!(tables_of(64 << 30) >> 10, 131_584 + 4 * 8);
        assert!(tables_of(u64::MAX) > u64::MAX / 512);
        let all = Extent {
            base: 0,
            last: u64::MAX,
            page: PageSize::Small,
        };
        assert!(all.tables() > u64::MAX / 512 && all.tables() <= tables_of(u64::MAX));
    }

    /// The tables that there are, as a set of level and number.
    fn naive(extents: &[Extent]) -> u64 {
        let mut tables = BTreeSet::new();
        for extent in extents {
            let mut touch = |shift: u32, kind: u8| {
                tables.extend(
                    (extent.base >> shift..=extent.last >> shift).map(|n| (shift, kind, n)),
                );
            };
            touch(LEAF, extent.page as u8);
            ABOVE.into_iter().for_each(|shift| touch(shift, 9));
        }
        let bytes = |&(shift, kind, _): &(u32, u8, u64)| match (shift, kind) {
            (LEAF, 1) => 256,
            (LEAF, 2) => 0,
            _ => TABLE,
        };
        tables.iter().map(bytes).sum()
    }

    fn extents() -> impl Strategy<Value = Vec<Extent>> {
        let page = prop_oneof![
            Just(PageSize::Small),
            Just(PageSize::Big),
            Just(PageSize::Huge)
        ];
        let gap = prop_oneof![0..8u64, 0..512u64, 0..300_000u64, 0..200_000_000u64];
        let one = (gap, prop_oneof![1..4u64, 1..2000u64], page);
        proptest::collection::vec(one, 1..20).prop_map(|all| {
            let mut at = 0;
            let each = all.into_iter().map(|(gap, pages, page)| {
                let base = at + gap * page.bytes();
                let base = base.next_multiple_of(page.bytes());
                at = base + pages * page.bytes();
                extent(base, pages * page.bytes(), page)
            });
            each.collect()
        })
    }

    proptest! {
        #[test]
        fn neighbours_alone_say_what_is_shared(extents in extents()) {
            let all: u64 = extents.iter().map(Extent::tables).sum();
            let shared: u64 = extents.windows(2).map(|two| two[0].shared(&two[1])).sum();
            let there = naive(&extents);
            prop_assert!(all - shared >= there);
            if extents.windows(2).all(|two| two[0].page == two[1].page) {
                prop_assert_eq!(all - shared, there);
            }
            let ends = extents.iter().map(|one| one.last - one.base + 1).map(tables_of);
            prop_assert!(ends.sum::<u64>() >= there);
        }

        #[test]
        fn directories_are_counted_once(extents in extents()) {
            let from = |at: u64| {
                let one = extents.iter().find(|one| one.last >= at);
                one.map(|one| (one.base, one.last))
            };
            let leaves = extents.iter().flat_map(|one| one.base >> LEAF..=one.last >> LEAF);
            let leaves: BTreeSet<u64> = leaves.collect();
            let block = |&n: &u64| extent(n << LEAF, 1 << LEAF, PageSize::Huge);
            let blocks: Vec<Extent> = leaves.iter().map(block).collect();
            prop_assert_eq!(directories(0, u64::MAX, from), naive(&blocks));
        }
    }
}
