// SPDX-License-Identifier: GPL-2.0
//! Host memory that UVM takes at a program's word: for managed memory of a file without a GPU, and
//! for structures of its own.

use super::*;
use crate::policy::{
    file_costs::SPACE_STRUCT,
    range_groups::GROUP_STRUCT,
    splits::SPLIT_STRUCT,
    Admission, //
};

const UVM: FileId = FileId(20);
const BLOCK: u64 = 2 * MIB;
const BASE: u64 = 0x7f00_0000_0000;
const PAGE: u64 = 4096;

/// A limit of so many blocks and their page tables.
fn limit(blocks: u64) -> u64 {
    blocks * BLOCK + MIB
}

fn enter(accounting: &mut Accounting, file: FileId, gpu: GpuId) {
    assert!(matches!(
        accounting.enter_managed(file, gpu, &[1; 16]),
        Ok(Admission::Ready)
    ));
}

fn spilling(blocks: u64) -> Accounting {
    let mut accounting = accounting(limit(blocks));
    enter(&mut accounting, UVM, GPU);
    accounting
}

fn host(accounting: &Accounting, gpu: GpuId) -> u64 {
    accounting.limit_of(gpu, Limited::HostMemory).unwrap().used
}

#[test]
fn memory_without_gpu_counts_as_host_memory() {
    let mut accounting = accounting(limit(4));
    accounting.add_share(OTHER_GPU, limit(4)).unwrap();
    let most = Some(3 * BLOCK);
    accounting
        .set_limit_of(OTHER_GPU, Limited::HostMemory, most)
        .unwrap();
    // `false`: it is charged on no GPU.
    assert_eq!(accounting.map_managed(UVM, BASE, 2 * BLOCK), Ok(false));
    assert_eq!(host(&accounting, GPU), 2 * BLOCK);
    let refused = accounting.map_managed(UVM, BASE + 4 * BLOCK, 2 * BLOCK);
    let wanted = RefusalCause::LimitReached(Limited::HostMemory);
    assert_eq!(refused, Err(wanted));
    // Mapped in its place.
    assert_eq!(accounting.map_managed(UVM, BASE, 3 * BLOCK), Ok(false));
    accounting.unmap_managed(UVM, BASE, BLOCK);
    assert_eq!(host(&accounting, OTHER_GPU), 2 * BLOCK);
    // With a GPU it counts there.
    enter(&mut accounting, UVM, GPU);
    assert_eq!(host(&accounting, GPU), 0);
    assert_eq!(accounting.share(GPU).unwrap().managed, 2 * BLOCK);
    accounting.unmap_managed(UVM, BASE, 3 * BLOCK);
    let other = FileId(UVM.0 + 1);
    assert_eq!(accounting.map_managed(other, BASE, BLOCK), Ok(false));
    accounting.close_file(other);
    accounting.close_file(UVM);
    assert_eq!(host(&accounting, GPU), 0);
    accounting.close_file(FILE);
    assert!(accounting.is_idle());
}

fn split(accounting: &mut Accounting, base: u64, length: u64) -> Result<(), RefusalCause> {
    let ticket = accounting.begin_split(UVM, base, length)?.unwrap();
    accounting.end_split(ticket);
    Ok(())
}

#[test]
fn cuts_of_managed_ranges_count_until_unmapped() {
    let mut accounting = spilling(8);
    accounting.map_managed(UVM, BASE, 4 * BLOCK).unwrap();
    assert!(accounting
        .begin_split(UVM, BASE, 5 * BLOCK)
        .unwrap()
        .is_none());
    split(&mut accounting, BASE, 4 * BLOCK).unwrap();
    assert_eq!(host(&accounting, GPU), 0);
    // The second time nothing new is cut.
    for _ in 0..2 {
        split(&mut accounting, BASE + PAGE, PAGE).unwrap();
        assert_eq!(host(&accounting, GPU), 2 * SPLIT_STRUCT);
    }
    split(&mut accounting, BASE, 2 * PAGE).unwrap();
    split(&mut accounting, BASE, 3 * PAGE).unwrap();
    assert_eq!(host(&accounting, GPU), 3 * SPLIT_STRUCT);
    let most = Some(4 * SPLIT_STRUCT);
    accounting
        .set_limit_of(GPU, Limited::HostMemory, most)
        .unwrap();
    let refused = split(&mut accounting, BASE + BLOCK, PAGE);
    let wanted = RefusalCause::LimitReached(Limited::HostMemory);
    assert_eq!(refused, Err(wanted));
    // While a call is in flight, it could cut what comes there next.
    let ticket = accounting.begin_split(UVM, BASE, BLOCK).unwrap().unwrap();
    accounting.unmap_managed(UVM, BASE, 2 * PAGE);
    assert_eq!(host(&accounting, GPU), 4 * SPLIT_STRUCT);
    accounting.end_split(ticket);
    // The later part still begins at the cut, so that one counts on.
    accounting.unmap_managed(UVM, BASE, 2 * PAGE);
    assert_eq!(host(&accounting, GPU), 3 * SPLIT_STRUCT);
    accounting.close_file(UVM);
    assert_eq!(host(&accounting, GPU), 0);
}

#[test]
fn range_groups_count_until_certainly_gone() {
    let mut accounting = spilling(1);
    let most = Some(3 * GROUP_STRUCT);
    accounting
        .set_limit_of(GPU, Limited::HostMemory, most)
        .unwrap();
    for _ in 0..3 {
        accounting.begin_group(UVM).unwrap();
        accounting.end_group(UVM, true);
    }
    let wanted = RefusalCause::LimitReached(Limited::HostMemory);
    assert_eq!(accounting.begin_group(UVM), Err(wanted));
    // There is no fourth one yet.
    assert!(!accounting.goes_group(UVM, 4));
    // One that has gone, and one that never was, change nothing.
    for number in [2, 2, 9] {
        accounting.group_gone(UVM, number);
        assert_eq!(host(&accounting, GPU), 2 * GROUP_STRUCT);
    }
    accounting.begin_group(UVM).unwrap();
    assert!(accounting.goes_group(UVM, 3) && !accounting.goes_group(UVM, 4));
    accounting.end_group(UVM, false);
    // Nobody knows the numbers any more.
    assert!(!accounting.goes_group(UVM, 3));
    accounting.close_file(UVM);
    assert_eq!(host(&accounting, GPU), 0);
}

#[test]
fn address_space_counts_until_its_file_closes() {
    let mut accounting = accounting(limit(1));
    accounting.add_share(OTHER_GPU, limit(1)).unwrap();
    let (what, most) = (Limited::HostMemory, 2 * SPACE_STRUCT - 1);
    accounting
        .set_limit_of(OTHER_GPU, what, Some(most))
        .unwrap();
    // The driver makes one for a file.
    assert_eq!(accounting.begin_space(UVM), Ok(()));
    assert_eq!(accounting.begin_space(UVM), Ok(()));
    assert_eq!(host(&accounting, GPU), SPACE_STRUCT);
    let other = FileId(UVM.0 + 1);
    let refused = Err(RefusalCause::LimitReached(what));
    assert_eq!(accounting.begin_space(other), refused);
    accounting.close_file(UVM);
    assert_eq!(host(&accounting, GPU), 0);
    assert_eq!(accounting.begin_space(other), Ok(()));
    accounting.close_file(other);
    accounting.close_file(FILE);
    assert!(accounting.is_idle());
}
