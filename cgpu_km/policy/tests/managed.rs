// SPDX-License-Identifier: GPL-2.0
//! Managed memory: what counts, what is spilled, what comes back.

use super::*;
use crate::policy::{
    managed_space::MOST_OF_PROGRAM,
    Admission,
    LimitView,
    Location,
    MakingRoom,
    ManagedOrder,
    ManagedWish,
    MAX_SHARES, //
};
use proptest::prelude::*;
use std::collections::BTreeMap;

const UVM: FileId = FileId(20);
const OTHER_UVM: FileId = FileId(21);
const BLOCK: u64 = 2 * MIB;
const BASE: u64 = 0x7f00_0000_0000;
const PAGE: u64 = 4096;
const HOST: Location = Location {
    uuid: [7; 16],
    node: -1,
};

/// Room for page tables, with which there is not room for a block more.
const TABLES: u64 = MIB;

/// A limit of so many blocks and their page tables.
fn limit(blocks: u64) -> u64 {
    blocks * BLOCK + TABLES
}

/// Accounting with a share of so many blocks, and a UVM file with an address space on it.
fn spilling(blocks: u64) -> Accounting {
    let mut accounting = accounting(limit(blocks));
    enter(&mut accounting, UVM, GPU);
    accounting
}

fn enter(accounting: &mut Accounting, file: FileId, gpu: GpuId) {
    assert!(matches!(
        accounting.enter_managed(file, gpu, &[1; 16]),
        Ok(Admission::Ready)
    ));
}

/// Maps, and has the driver told of what does not fit.
fn map(
    accounting: &mut Accounting,
    file: FileId,
    base: u64,
    length: u64,
) -> Result<(), RefusalCause> {
    let spills = accounting.map_managed(file, base, length)?;
    let mut told = false;
    while let Some(tell) = accounting.tell(file, base, length) {
        accounting.told(tell.order, true);
        told = true;
    }
    assert_eq!(told, spills);
    Ok(())
}

fn managed(accounting: &Accounting, gpu: GpuId) -> (u64, u64) {
    let share = accounting.share(gpu).unwrap();
    assert!(!share.over() || share.limit < share.managed, "{share:?}");
    (share.managed / BLOCK, share.spilled)
}

/// Everything that comes back now: address and blocks.
fn come_back(accounting: &mut Accounting) -> Vec<(u64, u64)> {
    let mut back = Vec::new();
    while let Some(order) = accounting.give_back() {
        back.push((order.base, order.length));
        accounting.returned(order);
    }
    back
}

fn counts(
    accounting: &mut Accounting,
    file: FileId,
    base: u64,
    length: u64,
) -> Vec<(u64, u64, bool)> {
    let touch = accounting.begin_touch(file, base, length).unwrap().unwrap();
    let runs = touch.runs.iter();
    let runs = runs.map(|run| (run.base, run.length, run.counts)).collect();
    accounting.end_touch(touch);
    runs
}

#[test]
fn a_range_counts_as_far_as_it_fits() {
    let mut accounting = spilling(10);
    assert_eq!(map(&mut accounting, UVM, BASE, 6 * BLOCK), Ok(()));
    assert_eq!(managed(&accounting, GPU), (6, 0));
    let next = BASE + 6 * BLOCK;
    assert_eq!(map(&mut accounting, UVM, next, 6 * BLOCK), Ok(()));
    assert_eq!(managed(&accounting, GPU), (10, 2 * BLOCK));
    assert_eq!(
        counts(&mut accounting, UVM, BASE, 12 * BLOCK),
        [
            (BASE, 10 * BLOCK, true),
            (BASE + 10 * BLOCK, 2 * BLOCK, false)
        ]
    );
    // Free is what no memory counts; a memory object gets nothing of it.
    assert!(accounting.share(GPU).unwrap().free() < BLOCK);
    accounting.unmap_managed(UVM, BASE, 12 * BLOCK);
    assert_eq!(managed(&accounting, GPU), (0, 0));
}

#[test]
fn share_is_in_use_while_uvm_has_it() {
    let mut accounting = Accounting::new(0);
    accounting.add_share(GPU, limit(4)).unwrap();
    assert!(accounting.is_share_idle(GPU));
    enter(&mut accounting, UVM, GPU);
    assert!(!accounting.is_share_idle(GPU));
    // Twice the same.
    enter(&mut accounting, UVM, GPU);
    accounting.close_file(UVM);
    assert!(accounting.is_share_idle(GPU));
}

#[test]
fn taken_share_counts_for_no_other_gpu() {
    let mut accounting = Accounting::new(0);
    accounting.add_share(GPU, limit(4)).unwrap();
    enter(&mut accounting, UVM, GPU);
    accounting.remove_share(GPU);
    let others = 100..;
    for other in others.clone().take(MAX_SHARES - 1).map(GpuId) {
        accounting.add_share(other, limit(4)).unwrap();
    }
    // The place of the share that was taken away is not free.
    assert!(accounting.add_share(GpuId(99), limit(4)).is_err());
    // The driver could still put it onto that GPU. Other files go on.
    assert!(map(&mut accounting, UVM, BASE, BLOCK).is_err());
    let other = GpuId(100);
    enter(&mut accounting, OTHER_UVM, other);
    assert_eq!(map(&mut accounting, OTHER_UVM, BASE, BLOCK), Ok(()));
    assert_eq!(managed(&accounting, other), (1, 0));
    accounting.close_file(UVM);
    accounting.add_share(GpuId(99), limit(4)).unwrap();
    let denied = accounting.enter_managed(OTHER_UVM, GPU, &[1; 16]);
    assert!(matches!(denied, Ok(Admission::Refused)));
}

#[test]
fn blocks_count_whole_and_once() {
    let mut accounting = spilling(10);
    // Two mappings in one block, one of them with a page in the next.
    assert_eq!(map(&mut accounting, UVM, BASE, PAGE), Ok(()));
    assert_eq!(managed(&accounting, GPU), (1, 0));
    assert_eq!(map(&mut accounting, UVM, BASE + PAGE, BLOCK), Ok(()));
    assert_eq!(managed(&accounting, GPU), (2, 0));
    accounting.unmap_managed(UVM, BASE + PAGE, BLOCK);
    assert_eq!(managed(&accounting, GPU), (1, 0));
    accounting.unmap_managed(UVM, BASE, PAGE);
    assert_eq!(managed(&accounting, GPU), (0, 0));
    // A neighbour has paid for the block.
    let mut accounting = spilling(1);
    assert_eq!(map(&mut accounting, UVM, BASE, PAGE), Ok(()));
    assert_eq!(map(&mut accounting, UVM, BASE + PAGE, PAGE), Ok(()));
    assert_eq!(managed(&accounting, GPU), (1, 0));
}

#[test]
fn spilled_memory_returns_with_the_programs_wishes() {
    let mut accounting = spilling(4);
    map(&mut accounting, UVM, BASE, 4 * BLOCK).unwrap();
    let second = BASE + 100 * BLOCK;
    map(&mut accounting, UVM, second, 3 * BLOCK).unwrap();
    assert_eq!(managed(&accounting, GPU), (4, 3 * BLOCK));
    accounting.wish(UVM, second + BLOCK, BLOCK, |wish| {
        wish.preferred = Some(HOST);
        wish.duplicated = true;
    });
    assert!(come_back(&mut accounting).is_empty());
    // Half of the first goes: two blocks come back, one of them with its own wish.
    accounting.unmap_managed(UVM, BASE, 2 * BLOCK);
    let first = accounting.give_back().unwrap();
    assert_eq!(
        (first.base, first.length, first.wish),
        (second, BLOCK, ManagedWish::default())
    );
    accounting.returned(first);
    let next = accounting.give_back().unwrap();
    assert_eq!((next.base, next.length), (second + BLOCK, BLOCK));
    assert_eq!(next.wish.preferred, Some(HOST));
    assert!(next.wish.duplicated);
    accounting.returned(next);
    assert_eq!(managed(&accounting, GPU), (4, BLOCK));
    // A higher limit brings the rest.
    accounting.set_limit(GPU, limit(20)).unwrap();
    assert_eq!(come_back(&mut accounting), [(second + 2 * BLOCK, BLOCK)]);
    assert_eq!(managed(&accounting, GPU), (5, 0));
}

#[test]
fn managed_memory_makes_room_for_memory_objects() {
    let mut accounting = spilling(10);
    map(&mut accounting, UVM, BASE, 10 * BLOCK).unwrap();
    let bytes = 4 * BLOCK;
    assert_eq!(accounting.begin_demand(GPU, bytes), MakingRoom::Begun);
    let order = accounting.make_room(GPU, bytes).unwrap();
    assert_eq!((order.base, order.length), (BASE + 6 * BLOCK, bytes));
    // It counts until the driver has moved it.
    assert_eq!(managed(&accounting, GPU), (10, 0));
    accounting.left(order, true);
    assert_eq!(managed(&accounting, GPU), (6, bytes));
    assert!(accounting.make_room(GPU, bytes).is_none());
    // Nothing takes the room before the memory object does.
    assert!(accounting.give_back().is_none());
    accounting.memory(object(9), bytes).unwrap();
    accounting.end_demand();
    assert!(accounting.give_back().is_none());
    assert_eq!(managed(&accounting, GPU), (6, bytes));
    accounting.free(CLIENT, object(9));
    assert_eq!(come_back(&mut accounting), [(BASE + 6 * BLOCK, bytes)]);
}

#[test]
fn memory_moves_only_if_that_makes_enough_room() {
    let mut accounting = spilling(10);
    accounting.memory(object(9), 4 * BLOCK).unwrap();
    map(&mut accounting, UVM, BASE, 6 * BLOCK).unwrap();
    // More than all of it.
    let demand = accounting.begin_demand(GPU, 7 * BLOCK);
    assert_eq!(demand, MakingRoom::Vain);
    let demand = accounting.begin_demand(GPU, 0);
    assert_eq!(demand, MakingRoom::Needless);
    assert_eq!(accounting.begin_demand(GPU, 6 * BLOCK), MakingRoom::Begun);
    let order = accounting.make_room(GPU, 6 * BLOCK).unwrap();
    accounting.left(order, false);
    accounting.end_demand();
    assert_eq!(managed(&accounting, GPU), (6, 0));
    // Memory that a call in flight can bring onto a GPU is not moved.
    let touch = accounting.begin_touch(UVM, BASE, BLOCK).unwrap().unwrap();
    assert!(accounting.make_room(GPU, 6 * BLOCK).is_none());
    accounting.end_touch(touch);
    assert!(accounting.make_room(GPU, 6 * BLOCK).is_some());
}

#[test]
fn lowered_limit_spills_in_mode_spill_alone() {
    let mut accounting = spilling(10);
    map(&mut accounting, UVM, BASE, 10 * BLOCK).unwrap();
    accounting.set_limit(GPU, limit(7) + PAGE).unwrap();
    let order = accounting.make_good().unwrap();
    assert_eq!((order.base, order.length), (BASE + 7 * BLOCK, 3 * BLOCK));
    accounting.left(order, true);
    assert!(accounting.make_good().is_none());
    assert_eq!(managed(&accounting, GPU), (7, 3 * BLOCK));
    for mode in [ManagedMode::Charge, ManagedMode::Deny] {
        accounting.set_managed_mode(GPU, mode).unwrap();
        accounting.set_limit(GPU, limit(1)).unwrap();
        assert!(accounting.share(GPU).unwrap().over());
        assert!(accounting.make_good().is_none());
    }
}

#[test]
fn mode_charge_maps_all_or_nothing() {
    let mut accounting = spilling(10);
    accounting
        .set_managed_mode(GPU, ManagedMode::Charge)
        .unwrap();
    assert_eq!(map(&mut accounting, UVM, BASE, 10 * BLOCK), Ok(()));
    let refused = map(&mut accounting, UVM, BASE + 20 * BLOCK, PAGE);
    let cause = RefusalCause::NoMemory {
        wanted: PAGE,
        free: 0,
    };
    assert_eq!(refused, Err(cause));
    assert_eq!(managed(&accounting, GPU), (10, 0));
    assert_eq!(accounting.share(GPU).unwrap().managed_refused, 1);
    accounting.unmap_managed(UVM, BASE + BLOCK, BLOCK);
    assert_eq!(map(&mut accounting, UVM, BASE + 20 * BLOCK, BLOCK), Ok(()));
    // It does not make room for memory objects, either.
    assert_eq!(accounting.begin_demand(GPU, BLOCK), MakingRoom::Vain);
}

#[test]
fn mode_deny_maps_nothing_and_overrules_others() {
    let mut accounting = spilling(10);
    accounting.add_share(OTHER_GPU, 10 * BLOCK).unwrap();
    enter(&mut accounting, UVM, OTHER_GPU);
    accounting
        .set_managed_mode(OTHER_GPU, ManagedMode::Deny)
        .unwrap();
    let refused = map(&mut accounting, UVM, BASE, PAGE);
    assert_eq!(refused, Err(RefusalCause::ManagedDenied));
    // A file without an address space on that GPU.
    enter(&mut accounting, OTHER_UVM, GPU);
    assert_eq!(map(&mut accounting, OTHER_UVM, BASE, PAGE), Ok(()));
    // One without any can get one on each.
    let refused = map(&mut accounting, FileId(99), BASE, PAGE);
    assert_eq!(refused, Err(RefusalCause::ManagedDenied));
}

#[test]
fn memory_counts_on_each_registered_gpu() {
    let mut accounting = spilling(10);
    accounting.add_share(OTHER_GPU, limit(4)).unwrap();
    map(&mut accounting, UVM, BASE, 6 * BLOCK).unwrap();
    assert_eq!(managed(&accounting, OTHER_GPU), (0, 0));
    // The second GPU has no room for all of it.
    let Ok(Admission::Crowded(order)) = accounting.enter_managed(UVM, OTHER_GPU, &[2; 16]) else {
        panic!("it fits");
    };
    assert_eq!((order.base, order.length), (BASE + 4 * BLOCK, 2 * BLOCK));
    accounting.left(order, true);
    enter(&mut accounting, UVM, OTHER_GPU);
    assert_eq!(managed(&accounting, GPU), (4, 2 * BLOCK));
    assert_eq!(managed(&accounting, OTHER_GPU), (4, 2 * BLOCK));
    // Memory that is mapped later counts on both, as far as it fits both.
    map(&mut accounting, UVM, BASE + 20 * BLOCK, 2 * BLOCK).unwrap();
    assert_eq!(managed(&accounting, GPU), (4, 4 * BLOCK));
    accounting.close_file(UVM);
    assert_eq!(managed(&accounting, GPU), (0, 0));
    assert_eq!(managed(&accounting, OTHER_GPU), (0, 0));
}

#[test]
fn full_gpu_gets_no_address_space_unless_spilling() {
    let mut accounting = spilling(10);
    accounting.add_share(OTHER_GPU, limit(4)).unwrap();
    map(&mut accounting, UVM, BASE, 6 * BLOCK).unwrap();
    for mode in [ManagedMode::Charge, ManagedMode::Deny] {
        accounting.set_managed_mode(OTHER_GPU, mode).unwrap();
        let entry = accounting.enter_managed(UVM, OTHER_GPU, &[2; 16]);
        assert!(matches!(entry, Ok(Admission::Refused)), "{mode:?}");
    }
}

#[test]
fn memory_replacing_returning_memory_must_count() {
    let mut accounting = spilling(4);
    map(&mut accounting, UVM, BASE, 4 * BLOCK).unwrap();
    let touch = accounting
        .begin_touch(UVM, BASE, 4 * BLOCK)
        .unwrap()
        .unwrap();
    accounting.unmap_managed(UVM, BASE, 4 * BLOCK);
    let refused = map(&mut accounting, UVM, BASE, 5 * BLOCK);
    assert!(matches!(refused, Err(RefusalCause::NoMemory { .. })));
    assert_eq!(map(&mut accounting, UVM, BASE, 4 * BLOCK), Ok(()));
    accounting.end_touch(touch);
    accounting.unmap_managed(UVM, BASE, 4 * BLOCK);
    assert_eq!(map(&mut accounting, UVM, BASE, 5 * BLOCK), Ok(()));
}

#[test]
fn memory_replacing_leaving_memory_must_count() {
    const BEHIND: u64 = 1 << 30;
    for done in [false, true] {
        let mut accounting = spilling(4);
        map(&mut accounting, UVM, BASE, 4 * BLOCK).unwrap();
        let order = accounting.make_room(GPU, 2 * BLOCK).unwrap();
        assert_eq!((order.base, order.length), (BASE + 2 * BLOCK, 2 * BLOCK));
        // Another thread unmaps it and takes the room. The driver may be told to move what is at
        // these addresses, or that a GPU may hold it.
        let (base, length) = (order.base, order.length);
        accounting.unmap_managed(UVM, base, length);
        map(&mut accounting, UVM, BASE + BEHIND, 2 * BLOCK).unwrap();
        let refused = accounting.map_managed(UVM, base, length);
        assert!(matches!(refused, Err(RefusalCause::NoMemory { .. })));
        map(&mut accounting, UVM, base + BEHIND, length).unwrap();
        accounting.left(order, done);
        assert_eq!(map(&mut accounting, UVM, base, length), Ok(()));
        assert_eq!(managed(&accounting, GPU), (4, 4 * BLOCK));
    }
}

#[test]
fn memory_without_order_is_new_until_unmapped() {
    let mut accounting = spilling(1);
    assert_eq!(
        accounting.map_managed(UVM, BASE, 3 * BLOCK).ok(),
        Some(true)
    );
    let tell = accounting.tell(UVM, BASE, 3 * BLOCK).unwrap();
    assert_eq!(
        (tell.order.base, tell.order.length),
        (BASE + BLOCK, 2 * BLOCK)
    );
    // It does not count, so no call of the program's touches it, and it does not come back.
    assert_eq!(
        counts(&mut accounting, UVM, BASE, 3 * BLOCK),
        [(BASE, BLOCK, true), (BASE + BLOCK, 2 * BLOCK, false)]
    );
    accounting.set_limit(GPU, limit(10)).unwrap();
    assert!(accounting.give_back().is_none());
    accounting.told(tell.order, false);
    assert!(accounting.give_back().is_none());
    accounting.unmap_managed(UVM, BASE + BLOCK, 2 * BLOCK);
    assert_eq!(managed(&accounting, GPU), (1, 0));
}

#[test]
fn order_about_freed_memory_changes_nothing() {
    let mut accounting = spilling(2);
    map(&mut accounting, UVM, BASE, 2 * BLOCK).unwrap();
    let order = accounting.make_room(GPU, BLOCK).unwrap();
    accounting.unmap_managed(UVM, BASE, 2 * BLOCK);
    map(&mut accounting, UVM, BASE, 2 * BLOCK).unwrap();
    accounting.left(order, true);
    assert_eq!(managed(&accounting, GPU), (2, 0));
}

#[test]
fn frequently_mapped_memory_is_always_migrated() {
    let mut accounting = spilling(1);
    let mut tell = |number: u64| {
        let base = BASE + number * 4 * BLOCK;
        accounting.map_managed(UVM, base, 2 * BLOCK).unwrap();
        let tell = accounting.tell(UVM, base, 2 * BLOCK).unwrap();
        accounting.told(tell.order, true);
        tell.bring
    };
    let brought: Vec<bool> = (0..20).map(&mut tell).collect();
    assert!(brought[..16].iter().all(|bring| !*bring));
    assert!(brought[16..].iter().all(|bring| *bring));
}

/// As many pieces as a program can have in a file, and none that a GPU could fill without being
/// counted.
#[test]
fn driver_is_told_of_the_last_piece() {
    let mut accounting = spilling(8);
    let piece = |number: usize| BASE + number as u64 * 2 * PAGE;
    let mapped = (0..).take_while(|&number| map(&mut accounting, UVM, piece(number), PAGE).is_ok());
    let mapped = mapped.count();
    assert_eq!(mapped, MOST_OF_PROGRAM);
    // A part of what counts can be moved all the same.
    accounting.unmap_managed(UVM, BASE, piece(mapped) - BASE);
    map(&mut accounting, UVM, piece(mapped), 8 * BLOCK).unwrap();
    let more = |number| map(&mut accounting, UVM, piece(number), PAGE).is_err();
    assert_eq!((0..).position(more), Some(MOST_OF_PROGRAM - 1));
    accounting.set_limit(GPU, limit(4)).unwrap();
    assert!(accounting.make_good().is_some());
    // Ends of whole pieces are always noted.
    accounting.unmap_managed(UVM, BASE, piece(mapped) + 8 * BLOCK - BASE);
    assert!(!accounting.has_managed());
}

#[test]
fn finding_a_piece_among_many_takes_few_steps() {
    let mut accounting = spilling(100_000);
    for number in 0..20_000 {
        map(&mut accounting, UVM, BASE + number * 4 * BLOCK, BLOCK).unwrap();
    }
    let (runs, steps) = steps::of(|| counts(&mut accounting, UVM, BASE + 40_000 * BLOCK, BLOCK));
    assert_eq!(runs.len(), 1);
    assert!(steps < 10, "{steps} steps");
    let (_, steps) = steps::of(|| accounting.unmap_managed(UVM, BASE + 40_000 * BLOCK, BLOCK));
    assert!(steps < 10, "{steps} steps");
}

fn limit_of_host(accounting: &Accounting) -> LimitView {
    accounting.limit_of(GPU, Limited::HostMemory).unwrap()
}

#[test]
fn spilled_memory_stops_at_the_hosts_limit() {
    let mut accounting = spilling(2);
    let set = accounting.set_limit_of(GPU, Limited::HostMemory, Some(3 * BLOCK));
    assert_eq!(set, Ok(()));
    assert_eq!(map(&mut accounting, UVM, BASE, 4 * BLOCK), Ok(()));
    assert_eq!(managed(&accounting, GPU), (2, 2 * BLOCK));
    let next = BASE + 8 * BLOCK;
    let refused = Err(RefusalCause::LimitReached(Limited::HostMemory));
    assert_eq!(map(&mut accounting, UVM, next, 2 * BLOCK), refused);
    assert_eq!(limit_of_host(&accounting).refused, 1);
    assert_eq!(accounting.share(GPU).unwrap().managed_refused, 1);
    assert_eq!(map(&mut accounting, UVM, next, BLOCK), Ok(()));
    // There is no room on the host for what counts.
    assert_eq!(accounting.begin_demand(GPU, BLOCK), MakingRoom::Vain);
    assert!(accounting.make_room(GPU, BLOCK).is_none());
    accounting.unmap_managed(UVM, next, BLOCK);
    assert_eq!(accounting.begin_demand(GPU, BLOCK), MakingRoom::Begun);
    let order = accounting.make_room(GPU, 2 * BLOCK).unwrap();
    assert_eq!((order.base, order.length), (BASE + BLOCK, BLOCK));
    // It stands against both limits until the driver has moved it, and nothing else fits.
    assert_eq!(managed(&accounting, GPU), (2, 2 * BLOCK));
    assert_eq!(limit_of_host(&accounting).used, 3 * BLOCK);
    assert_eq!(map(&mut accounting, UVM, next, BLOCK), refused);
    accounting.left(order, true);
    accounting.end_demand();
    assert_eq!(managed(&accounting, GPU), (1, 3 * BLOCK));
    accounting.close_file(UVM);
    assert_eq!(limit_of_host(&accounting).used, 0);
}

#[test]
fn gpu_without_spill_room_gets_no_address_space() {
    let mut accounting = spilling(2);
    assert_eq!(map(&mut accounting, UVM, BASE, 4 * BLOCK), Ok(()));
    accounting.add_share(OTHER_GPU, limit(8)).unwrap();
    let mut admit = |blocks| {
        let limit = Some(blocks * BLOCK);
        let set = accounting.set_limit_of(OTHER_GPU, Limited::HostMemory, limit);
        assert_eq!(set, Ok(()));
        accounting.enter_managed(UVM, OTHER_GPU, &[2; 16])
    };
    assert!(matches!(admit(1), Ok(Admission::Refused)));
    assert!(matches!(admit(2), Ok(Admission::Ready)));
    let other = accounting.limit_of(OTHER_GPU, Limited::HostMemory);
    assert_eq!(other.unwrap().used, 2 * BLOCK);
}

/// The property's unit of addresses, and how many of them a block has.
const PART: u64 = 64 << 10;
const PARTS: u64 = BLOCK / PART;

/// A step of a random run; numbers are taken modulo what there is.
#[derive(Clone, Debug)]
enum ManagedStep {
    Map(u64, u64),
    Unmap(u64, u64),
    Alloc(u32, u64),
    Free(u32),
    Limit(u64),
    Mode(u8),
    Host(u64),
    Wish(u64, u64),
    Settle,
}

fn step() -> impl Strategy<Value = ManagedStep> {
    // Addresses in parts, of a space of 24 blocks.
    let at = 0..24 * PARTS;
    let len = prop_oneof![1..4u64, 1..6 * PARTS, Just(PARTS), Just(2 * PARTS)];
    prop_oneof![
        4 => (at.clone(), len.clone()).prop_map(|(at, len)| ManagedStep::Map(at, len)),
        3 => (at.clone(), len.clone()).prop_map(|(at, len)| ManagedStep::Unmap(at, len)),
        2 => (0..6u32, 1..8u64).prop_map(|(n, blocks)| ManagedStep::Alloc(n, blocks)),
        1 => (0..6u32).prop_map(ManagedStep::Free),
        1 => (0..24u64).prop_map(ManagedStep::Limit),
        1 => (0..3u8).prop_map(ManagedStep::Mode),
        1 => (0..24u64).prop_map(ManagedStep::Host),
        1 => (at, len).prop_map(|(at, len)| ManagedStep::Wish(at, len)),
        1 => Just(ManagedStep::Settle),
    ]
}

/// The driver's state of each part: whether a GPU may hold it.
#[derive(Default)]
struct ManagedDriver(BTreeMap<u64, bool>);

impl ManagedDriver {
    fn pages(base: u64, length: u64) -> impl Iterator<Item = u64> {
        (base / PART)..((base + length) / PART)
    }

    fn set(&mut self, order: &ManagedOrder, gpu: bool) {
        for page in Self::pages(order.base, order.length) {
            if let Some(place) = self.0.get_mut(&page) {
                *place = gpu;
            }
        }
    }

    /// Blocks that a GPU may hold some page of.
    fn blocks(&self) -> u64 {
        let mut blocks: Vec<u64> = self
            .0
            .iter()
            .filter(|(_, gpu)| **gpu)
            .map(|(page, _)| page / PARTS)
            .collect();
        blocks.dedup();
        blocks.len() as u64
    }

    fn settle(&mut self, accounting: &mut Accounting) {
        while let Some(order) = accounting.make_good() {
            self.set(&order, false);
            accounting.left(order, true);
        }
        while let Some(order) = accounting.give_back() {
            self.set(&order, true);
            accounting.returned(order);
        }
    }
}

proptest! {
    #![proptest_config(cases(300))]

    /// A GPU never holds more than counts, and what counts fits the limit (unless that was
    /// lowered), for any sequence of a program's calls and an operator's changes. In the end
    /// nothing counts.
    #[test]
    fn gpu_holds_counted_memory_alone(steps in proptest::collection::vec(step(), 1..60)) {
        let mut accounting = spilling(12);
        let mut driver = ManagedDriver::default();
        // The host has memory for all of it, and always had.
        let mut is_roomy = true;
        for step in steps {
            let before = limit_of_host(&accounting).used;
            match step {
                ManagedStep::Map(at, len) => {
                    let free = (at..at + len).all(|n| !driver.0.contains_key(&(BASE / PART + n)));
                    if free {
                        let (base, length) = (BASE + at * PART, len * PART);
                        if accounting.map_managed(UVM, base, length).is_ok() {
                            for page in ManagedDriver::pages(base, length) {
                                driver.0.insert(page, true);
                            }
                            while let Some(tell) = accounting.tell(UVM, base, length) {
                                driver.set(&tell.order, false);
                                accounting.told(tell.order, true);
                            }
                        }
                    }
                }
                ManagedStep::Unmap(at, len) => {
                    let (base, length) = (BASE + at * PART, len * PART);
                    let gone = base / PART..(base + length) / PART;
                    driver.0.retain(|page, _| !gone.contains(page));
                    accounting.unmap_managed(UVM, base, length);
                }
                ManagedStep::Alloc(number, blocks) => {
                    let (object, bytes) = (object(0x100 + number), blocks * BLOCK);
                    let request = memory_request(CLIENT, DEVICE, object, bytes);
                    let demand = accounting.begin_demand(GPU, bytes) == MakingRoom::Begun;
                    while let Some(order) = demand
                        .then(|| accounting.make_room(GPU, bytes))
                        .flatten()
                    {
                        driver.set(&order, false);
                        accounting.left(order, true);
                    }
                    let done = accounting.alloc(&request);
                    if demand {
                        accounting.end_demand();
                        let refused = done.err();
                        let in_use = matches!(refused, None | Some(RefusalCause::HandleInUse));
                        prop_assert!(in_use, "{refused:?}");
                    }
                }
                ManagedStep::Free(number) => {
                    accounting.free(CLIENT, object(0x100 + number));
                    driver.settle(&mut accounting);
                }
                ManagedStep::Limit(blocks) => {
                    accounting.set_limit(GPU, limit(blocks)).unwrap();
                    driver.settle(&mut accounting);
                }
                ManagedStep::Mode(mode) => {
                    let modes = [ManagedMode::Spill, ManagedMode::Charge, ManagedMode::Deny];
                    accounting.set_managed_mode(GPU, modes[usize::from(mode)]).unwrap();
                }
                ManagedStep::Host(blocks) => {
                    is_roomy = false;
                    let limit = Some(blocks * BLOCK);
                    accounting.set_limit_of(GPU, Limited::HostMemory, limit).unwrap();
                }
                ManagedStep::Wish(at, len) => {
                    let (base, length) = (BASE + at * PART, len * PART);
                    if let Some(touch) = accounting.begin_touch(UVM, base, length).unwrap() {
                        for run in touch.runs.iter() {
                            for page in ManagedDriver::pages(run.base, run.length) {
                                prop_assert_eq!(driver.0.get(&page), Some(&run.counts));
                            }
                        }
                        accounting.end_touch(touch);
                        accounting.wish(UVM, base, length, |wish| wish.duplicated = true);
                    }
                }
                ManagedStep::Settle => driver.settle(&mut accounting),
            }
            let share = accounting.share(GPU).unwrap();
            prop_assert_eq!(share.managed, driver.blocks() * BLOCK);
            let spilled = driver.0.values().filter(|gpu| !**gpu).count() as u64;
            prop_assert_eq!(share.spilled, spilled * PART);
            let host = limit_of_host(&accounting);
            prop_assert_eq!(host.used, spilled * PART);
            prop_assert!(host.used <= host.limit.max(before), "{host:?}, before: {before}");
            if is_roomy && share.managed_mode == ManagedMode::Spill {
                driver.settle(&mut accounting);
                let share = accounting.share(GPU).unwrap();
                prop_assert!(share.managed == 0 || !share.over(), "{share:?}");
            }
        }
        accounting.close_file(UVM);
        accounting.close_file(FILE);
        prop_assert!(accounting.is_idle());
    }
}
