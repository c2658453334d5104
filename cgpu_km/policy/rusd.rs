// SPDX-License-Identifier: GPL-2.0
//! The tenant's own page of `RM_USER_SHARED_DATA`, made of the driver's.
//!
//! The driver's page is about the whole GPU. The tenant's page has the memory of its share, as in
//! FB_GET_INFO, and a copy of the hardware's state. What all programs do together tells of other
//! tenants, so it is marked as data that the GPU does not have.
//!
//! Both pages are read and written by others at the same time, so both are touched word by word,
//! and a section of the tenant's page is written as the driver writes it: stamp, data, stamp.

use super::share_view::FbView;
use crate::{
    nvidia::rusd::{
        Content,
        Layout,
        Section,
        Stamp,
        PAIR_BEGIN,
        PAIR_END,
        PAIR_WRAP,
        SEQ_START,
        WRITE_IN_PROGRESS, //
    },
    store::{
        Exhausted,
        List, //
    }, //
};

/// How often a section is read that the driver writes meanwhile; as often as NVIDIA's own readers
/// do (`RUSD_READ_DATA`, cl00de.h).
const ATTEMPTS: usize = 10;
/// Words of the largest section.
const MOST_WORDS: usize = 256;

/// A page of shared data, as words of 64 bits. Beyond its end a word is 0, and is not written.
pub trait Words {
    /// Reads a word; what is read later is read after it.
    fn get(&self, index: usize) -> u64;
}

/// A page of shared data that is ours to write.
pub trait WordsMut: Words {
    /// Writes a word; everybody sees it after what was written before.
    fn set(&self, index: usize, word: u64);
}

/// Brings the tenant's page up to date. A section that the driver is writing all the time stays as
/// it is. There is one at a time who does that.
///
/// # Errors
///
/// No memory to read a section into; nothing was written.
pub fn refresh(
    layout: Layout,
    view: FbView,
    theirs: &impl Words,
    ours: &impl WordsMut,
) -> Result<(), Exhausted> {
    // Half of a page: too much for the stack.
    let mut words = List::filled(MOST_WORDS, 0)?;
    for section in layout {
        if section.content == Content::Activity {
            continue;
        }
        let Some(words) = words.get_mut(..section.length / 8) else {
            continue;
        };
        if read(section, theirs, words) {
            rewrite(section.content, view, words);
            publish(section, ours, words);
        }
    }
    Ok(())
}

/// Reads a section whole; false if it has no data, or does not stand still.
fn read(section: &Section, theirs: &impl Words, words: &mut [u64]) -> bool {
    let first = section.at / 8;
    for _ in 0..ATTEMPTS {
        let before = theirs.get(first);
        for (i, word) in words.iter_mut().enumerate() {
            *word = theirs.get(first + i);
        }
        if section.stamp.is_valid(before) && theirs.get(first) == before {
            return true;
        }
    }
    false
}

/// Puts the share's figures in place of the GPU's.
fn rewrite(content: Content, view: FbView, words: &mut [u64]) {
    let bar1 = |word: &mut u64| {
        let (size, free) = (low(*word), low(*word >> 32));
        let size = size.min(view.limit_kib());
        let free = view.free_bar1_kib(free);
        *word = u64::from(size) | u64::from(free) << 32;
    };
    match (content, words) {
        (Content::Bar1, [_, word]) => bar1(word),
        (Content::Memory, [_, total, free]) => memory(view, total, free),
        (Content::Bar1AndMemory, [_, word, total, free]) => {
            bar1(word);
            memory(view, total, free);
        }
        (Content::Bar1InHalves, [first, second]) => {
            let size = low(*first >> 32).min(view.limit_kib());
            let free = view.free_bar1_kib(low(*second));
            *first = u64::from(low(*first)) | u64::from(size) << 32;
            *second = *second >> 32 << 32 | u64::from(free);
        }
        _ => {}
    }
}

/// Never more is free than there is: others may hold what this tenant could still have.
fn memory(view: FbView, total: &mut u64, free: &mut u64) {
    *total = view.limit;
    *free = view.free.min(*free);
}

/// The lower half of a word.
fn low(word: u64) -> u32 {
    u32::try_from(word & u64::from(u32::MAX)).unwrap_or(u32::MAX)
}

/// Writes a section that was read whole, if it is another one than before.
fn publish(section: &Section, ours: &impl WordsMut, words: &[u64]) {
    let Some((&stamp, data)) = words.split_first() else {
        return;
    };
    let first = section.at / 8;
    let old = ours.get(first);
    let same = data
        .iter()
        .enumerate()
        .all(|(i, word)| ours.get(first + 1 + i) == *word);
    let (writing, written) = match section.stamp {
        // A polled section that was polled again is a new one, with the same data too.
        Stamp::Time if old == stamp => return,
        Stamp::Time => (WRITE_IN_PROGRESS, stamp),
        Stamp::Counter if same && old != 0 => return,
        Stamp::Counter => {
            let old = old.max(SEQ_START);
            let next = old.checked_add(2).unwrap_or(SEQ_START + 2);
            (old | 1, next)
        }
        Stamp::Pair if same => return,
        Stamp::Pair => {
            let changes = (old / (PAIR_BEGIN + PAIR_END) + 1) % PAIR_WRAP;
            let next = changes * (PAIR_BEGIN + PAIR_END);
            (old.wrapping_add(PAIR_BEGIN), next)
        }
        // The upper half of the first word are data.
        Stamp::Half if same && old >> 32 == stamp >> 32 => return,
        Stamp::Half => {
            let (count, upper) = (u64::from(low(old)), stamp >> 32 << 32);
            let next = u64::from(low(count + 2));
            ((old >> 32 << 32) | count | 1, upper | next)
        }
    };
    ours.set(first, writing);
    for (i, word) in data.iter().enumerate() {
        ours.set(first + 1 + i, *word);
    }
    ours.set(first, written);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nvidia::{
        rusd::PAGE,
        tables::Tables,
        version::Branch, //
    };
    use std::cell::{
        Cell,
        RefCell, //
    };

    const BRANCHES: [Branch; 5] = [
        Branch::R535,
        Branch::R550,
        Branch::R570,
        Branch::R580,
        Branch::R595,
    ];
    const VIEW: FbView = FbView {
        limit: 8 << 30,
        free: 3 << 30,
        free_bar1: u64::MAX,
    };

    fn layout(branch: Branch) -> Layout {
        Tables::of(branch).expect("made").shared_data
    }

    struct Page(Vec<Cell<u64>>);

    impl Page {
        fn new() -> Self {
            Self(vec![Cell::new(0); PAGE / 8])
        }
    }

    impl Words for Page {
        fn get(&self, index: usize) -> u64 {
            self.0.get(index).map_or(0, Cell::get)
        }
    }

    impl WordsMut for Page {
        fn set(&self, index: usize, word: u64) {
            self.0[index].set(word);
        }
    }

    /// A page of the driver's that was written once, every word another one.
    fn driver(branch: Branch, round: u64) -> Page {
        let page = Page::new();
        for (i, word) in page.0.iter().enumerate() {
            word.set((round << 48) | 0x0001_0000_7f00_0000 | i as u64);
        }
        for section in layout(branch) {
            let at = section.at / 8;
            match section.stamp {
                Stamp::Counter => page.set(at, SEQ_START + 2 * round),
                Stamp::Time => page.set(at, 1_700_000_000_000_000_000 + round),
                Stamp::Pair => page.set(at, round * (PAIR_BEGIN + PAIR_END)),
                Stamp::Half => page.set(at, 0x1000_0000_0000_0000 | (2 * round)),
            }
        }
        page
    }

    /// A section as a program sees it, if it has data.
    fn seen(section: &Section, page: &Page) -> Option<Vec<u64>> {
        let first = section.at / 8;
        let words = (0..section.length / 8).map(|i| page.get(first + i));
        let words: Vec<u64> = words.collect();
        section.stamp.is_valid(words[0]).then_some(words)
    }

    #[test]
    fn the_sections_are_those_of_the_headers() {
        // sizeof(NV00DE_SHARED_DATA) in each branch.
        let sizes = [16, 320, 464, 2600, 3144];
        for (branch, size) in BRANCHES.into_iter().zip(sizes) {
            let mut end = 0;
            for section in layout(branch) {
                assert_eq!(section.at, end, "{branch:?}");
                assert_eq!(section.length % 8, 0);
                assert!(section.length / 8 <= MOST_WORDS);
                end += section.length;
            }
            assert_eq!(end, size, "{branch:?}");
        }
    }

    #[test]
    fn memory_is_that_of_the_share() {
        for branch in BRANCHES {
            let (theirs, ours) = (driver(branch, 1), Page::new());
            refresh(layout(branch), VIEW, &theirs, &ours).unwrap();
            let words = match branch {
                Branch::R535 => {
                    let words = seen(&layout(branch)[0], &ours).unwrap();
                    assert_eq!(words[0] >> 32, 8 << 20, "BAR1, KiB");
                    assert_eq!(words[1] & 0xffff_ffff, 3 << 20, "free of it");
                    continue;
                }
                Branch::R550 => seen(&layout(branch)[0], &ours).unwrap()[2..].to_vec(),
                _ => seen(&layout(branch)[1], &ours).unwrap()[1..].to_vec(),
            };
            assert_eq!(words, [VIEW.limit, VIEW.free], "{branch:?}");
        }
    }

    #[test]
    fn no_more_is_free_than_the_gpu_has() {
        let (theirs, ours) = (driver(Branch::R580, 1), Page::new());
        theirs.set(4, 1 << 20);
        theirs.set(1, 5 | 4 << 32);
        refresh(layout(Branch::R580), VIEW, &theirs, &ours).unwrap();
        assert_eq!([ours.get(3), ours.get(4)], [VIEW.limit, 1 << 20]);
        assert_eq!(ours.get(1), 5 | 4 << 32);
    }

    #[test]
    fn hardware_is_copied_and_activity_is_not() {
        for branch in BRANCHES {
            let (theirs, ours) = (driver(branch, 1), Page::new());
            refresh(layout(branch), VIEW, &theirs, &ours).unwrap();
            for section in layout(branch) {
                match section.content {
                    Content::Hardware => {
                        let (a, b) = (seen(section, &theirs).unwrap(), seen(section, &ours));
                        assert_eq!(a[1..], b.unwrap()[1..], "{branch:?} {section:?}");
                    }
                    Content::Activity => {
                        let first = section.at / 8;
                        let mut words = (0..section.length / 8).map(|i| ours.get(first + i));
                        assert!(words.all(|word| word == 0), "{branch:?} {section:?}");
                    }
                    _ => {}
                }
            }
            // Nothing behind the last section either.
            let last = layout(branch).last().unwrap();
            let end = (last.at + last.length) / 8;
            assert!((end..PAGE / 8).all(|i| ours.get(i) == 0));
        }
    }

    #[test]
    fn samples_without_data_or_half_written_stay() {
        let (theirs, ours) = (driver(Branch::R580, 1), Page::new());
        refresh(layout(Branch::R580), VIEW, &theirs, &ours).unwrap();
        let before = ours.get(10);
        theirs.set(9, WRITE_IN_PROGRESS);
        theirs.set(10, 77);
        theirs.set(2, SEQ_START + 1);
        let changed = FbView {
            limit: 1 << 30,
            free: 0,
            free_bar1: u64::MAX,
        };
        refresh(layout(Branch::R580), changed, &theirs, &ours).unwrap();
        assert_eq!(ours.get(10), before);
        assert_eq!(ours.get(3), VIEW.limit);
        // Never written: no data in ours either.
        let (theirs, ours) = (Page::new(), Page::new());
        refresh(layout(Branch::R580), VIEW, &theirs, &ours).unwrap();
        assert!((0..PAGE / 8).all(|i| ours.get(i) == 0));
    }

    /// Our page as a reader meets it, which may look after each word that is written.
    struct Watched<'a> {
        page: Page,
        layout: Layout,
        /// Sections that were whole before the change, and those that were seen during it.
        seen: &'a RefCell<Vec<(usize, Vec<u64>)>>,
    }

    impl Words for Watched<'_> {
        fn get(&self, index: usize) -> u64 {
            self.page.get(index)
        }
    }

    impl WordsMut for Watched<'_> {
        fn set(&self, index: usize, word: u64) {
            self.page.set(index, word);
            for (i, section) in self.layout.iter().enumerate() {
                if let Some(words) = seen(section, &self.page) {
                    self.seen.borrow_mut().push((i, words));
                }
            }
        }
    }

    #[test]
    fn a_reader_never_takes_half_of_a_change() {
        for branch in BRANCHES {
            let looks = RefCell::new(Vec::new());
            let ours = Watched {
                page: Page::new(),
                layout: layout(branch),
                seen: &looks,
            };
            let mut whole: Vec<Vec<Vec<u64>>> = vec![Vec::new(); layout(branch).len()];
            let note = |whole: &mut Vec<Vec<Vec<u64>>>, page: &Page| {
                for (i, section) in layout(branch).iter().enumerate() {
                    whole[i].extend(seen(section, page));
                }
            };
            note(&mut whole, &ours.page);
            for round in 1..8 {
                let view = FbView {
                    limit: VIEW.limit,
                    free: VIEW.free - round,
                    free_bar1: u64::MAX,
                };
                refresh(layout(branch), view, &driver(branch, round), &ours).unwrap();
                note(&mut whole, &ours.page);
            }
            assert!(!looks.borrow().is_empty());
            for (i, words) in looks.borrow().iter() {
                assert!(whole[*i].contains(words), "{branch:?} section {i}");
            }
        }
    }

    #[test]
    fn every_change_has_a_stamp_of_its_own() {
        for branch in BRANCHES {
            let ours = Page::new();
            let first = &layout(branch)[0];
            let mut stamps = vec![ours.get(0)];
            for round in 1..2000u64 {
                let view = FbView {
                    limit: (1 + round % 2) << 20,
                    free: 1 << 20,
                    free_bar1: u64::MAX,
                };
                refresh(layout(branch), view, &driver(branch, 1), &ours).unwrap();
                assert!(first.stamp.is_valid(ours.get(0)));
                stamps.push(ours.get(0));
                // And none where nothing changed.
                refresh(layout(branch), view, &driver(branch, 1), &ours).unwrap();
                assert_eq!(stamps.last(), Some(&ours.get(0)));
            }
            let count = stamps.len();
            stamps.sort_unstable();
            stamps.dedup();
            assert_eq!(stamps.len(), count, "{branch:?}");
        }
    }

    #[test]
    fn counts_that_are_used_up_begin_anew() {
        let ours = Page::new();
        ours.set(0, u64::MAX - 1);
        refresh(layout(Branch::R580), VIEW, &driver(Branch::R580, 1), &ours).unwrap();
        assert_eq!(ours.get(0), SEQ_START + 2);
        let ours = Page::new();
        ours.set(0, (PAIR_WRAP - 1) * (PAIR_BEGIN + PAIR_END));
        refresh(layout(Branch::R550), VIEW, &driver(Branch::R550, 1), &ours).unwrap();
        assert_eq!(ours.get(0), 0);
        assert!(Stamp::Pair.is_valid(0));
    }
}
