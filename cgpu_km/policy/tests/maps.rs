// SPDX-License-Identifier: GPL-2.0
//! Mappings keep memory charged, and nothing but their certain end credits it.

use super::*;
use crate::policy::cuts::CUT_STRUCT;
use proptest::prelude::*;
use std::collections::BTreeMap;

const MEMORY: ObjectHandle = ObjectHandle(0x5c00_0010);

fn span(gpu: Option<GpuId>, base: u64, length: u64) -> Span {
    Span {
        file: UVM,
        gpu,
        base,
        last: base + (length - 1),
    }
}

fn with_memory(bytes: u64) -> Accounting {
    let mut accounting = accounting(u64::MAX);
    let request = memory_request(CLIENT, DEVICE, MEMORY, bytes);
    accounting.alloc(&request).unwrap();
    accounting
}

impl Accounting {
    fn map(&mut self, map: &Map) -> Result<(), RefusalCause> {
        let ticket = self.begin_map(map)?;
        self.end_map(ticket, true);
        Ok(())
    }

    /// Takes out the mappings of a span that the driver has unmapped. Returns their number.
    fn unmap(&mut self, span: Span) -> usize {
        let moment = self.moment();
        let mut count = 0;
        while let Some(mapped) = self.mapped(span, moment) {
            self.unmapped(mapped);
            count += 1;
        }
        count
    }
}

#[test]
fn mapping_keeps_freed_memory_charged() {
    let mut accounting = with_memory(4 * MIB);
    accounting.map(&map(GPU, MEMORY, MIB, 4 * MIB)).unwrap();
    assert_eq!(accounting.used(GPU), 4 * MIB);
    accounting.free(CLIENT, MEMORY);
    assert_eq!(accounting.used(GPU), 4 * MIB);
    accounting.free(CLIENT, ObjectHandle(CLIENT.0));
    assert_eq!(accounting.used(GPU), 4 * MIB);
    assert!(!accounting.is_idle());
    assert_eq!(accounting.unmap(span(Some(GPU), MIB, 4 * MIB)), 1);
    assert_eq!(accounting.used(GPU), 0);
    assert!(accounting.is_idle());
}

#[test]
fn in_the_other_order_the_object_keeps_it() {
    let mut accounting = with_memory(4 * MIB);
    accounting.map(&map(GPU, MEMORY, MIB, 4 * MIB)).unwrap();
    assert_eq!(accounting.unmap(span(Some(GPU), 0, 64 * MIB)), 1);
    assert_eq!(accounting.used(GPU), 4 * MIB);
    accounting.free(CLIENT, MEMORY);
    assert_eq!(accounting.used(GPU), 0);
}

#[test]
fn mapping_is_charged_from_its_call_on() {
    let mut accounting = with_memory(4 * MIB);
    let ticket = accounting
        .begin_map(&map(GPU, MEMORY, MIB, 4 * MIB))
        .unwrap();
    accounting.free(CLIENT, MEMORY);
    assert_eq!(accounting.used(GPU), 4 * MIB);
    // It is not there yet, so an unmapping that began before is none of it.
    assert_eq!(accounting.unmap(span(None, 0, 64 * MIB)), 0);
    accounting.end_map(ticket, false);
    assert_eq!(accounting.used(GPU), 0);
}

#[test]
fn mapping_ends_with_its_own_file() {
    let mut accounting = with_memory(4 * MIB);
    accounting.map(&map(GPU, MEMORY, MIB, 4 * MIB)).unwrap();
    let other = Map {
        file: FileId(UVM.0 + 1),
        ..map(GPU, MEMORY, MIB, 4 * MIB)
    };
    accounting.map(&other).unwrap();
    accounting.close_file(FILE);
    assert_eq!(accounting.used(GPU), 4 * MIB);
    accounting.close_file(UVM);
    assert_eq!(accounting.used(GPU), 4 * MIB);
    accounting.close_file(other.file);
    assert_eq!(accounting.used(GPU), 0);
    assert!(accounting.is_idle());
}

#[test]
fn each_gpu_has_a_mapping_of_its_own() {
    let mut accounting = with_memory(4 * MIB);
    accounting.map(&map(GPU, MEMORY, MIB, 4 * MIB)).unwrap();
    accounting
        .map(&map(OTHER_GPU, MEMORY, MIB, 4 * MIB))
        .unwrap();
    accounting.free(CLIENT, MEMORY);
    assert_eq!(accounting.unmap(span(Some(GPU), MIB, 4 * MIB)), 1);
    assert_eq!(accounting.used(GPU), 4 * MIB);
    assert_eq!(accounting.unmap(span(None, MIB, 4 * MIB)), 1);
    assert_eq!(accounting.used(GPU), 0);
}

#[test]
fn partial_unmapping_credits_nothing() {
    let mut accounting = with_memory(4 * MIB);
    accounting.map(&map(GPU, MEMORY, 4 * MIB, 4 * MIB)).unwrap();
    accounting.free(CLIENT, MEMORY);
    assert_eq!(accounting.unmap(span(Some(GPU), 4 * MIB, 2 * MIB)), 0);
    assert_eq!(accounting.unmap(span(Some(GPU), 5 * MIB, 64 * MIB)), 0);
    let request = memory_request(CLIENT, DEVICE, MEMORY, 2 * MIB);
    accounting.alloc(&request).unwrap();
    accounting.map(&map(GPU, MEMORY, 6 * MIB, 4 * MIB)).unwrap();
    // The rest of the first one is unknown: it ends with its file.
    assert_eq!(accounting.unmap(span(None, 0, 64 * MIB)), 1);
    accounting.free(CLIENT, MEMORY);
    assert_eq!(accounting.used(GPU), 4 * MIB);
    accounting.close_file(UVM);
    assert_eq!(accounting.used(GPU), 0);
}

#[test]
fn earlier_unmapping_leaves_a_later_mapping() {
    let mut accounting = with_memory(4 * MIB);
    accounting.map(&map(GPU, MEMORY, MIB, 4 * MIB)).unwrap();
    let moment = accounting.moment();
    let first = accounting.mapped(span(None, MIB, 4 * MIB), moment).unwrap();
    assert_eq!(accounting.unmap(span(None, MIB, 4 * MIB)), 1);
    accounting.map(&map(GPU, MEMORY, MIB, 4 * MIB)).unwrap();
    accounting.free(CLIENT, MEMORY);
    accounting.unmapped(first);
    assert_eq!(accounting.mapped(span(None, MIB, 4 * MIB), moment), None);
    assert_eq!(accounting.used(GPU), 4 * MIB);
}

#[test]
fn a_mapping_split_during_its_unmapping_stays_charged() {
    let mut accounting = with_memory(4 * MIB);
    accounting.map(&map(GPU, MEMORY, 4 * MIB, 4 * MIB)).unwrap();
    let moment = accounting.moment();
    let first = accounting.mapped(span(None, 0, 64 * MIB), moment).unwrap();
    let ticket = accounting
        .begin_map(&map(GPU, MEMORY, 2 * MIB, 4 * MIB))
        .unwrap();
    accounting.unmapped(first);
    accounting.free(CLIENT, MEMORY);
    accounting.end_map(ticket, false);
    assert_eq!(accounting.used(GPU), 4 * MIB);
    accounting.close_file(UVM);
    assert_eq!(accounting.used(GPU), 0);
}

#[test]
fn a_refused_mapping_changes_nothing() {
    let mut accounting = with_memory(4 * MIB);
    let cause = |accounting: &mut Accounting, map: &Map| accounting.map(map).unwrap_err();
    let unknown = map(GPU, ObjectHandle(1), MIB, MIB);
    assert_eq!(
        cause(&mut accounting, &unknown),
        RefusalCause::UnknownObject
    );
    let foreign = Map {
        client: ClientHandle(1),
        ..map(GPU, MEMORY, MIB, MIB)
    };
    assert_eq!(
        cause(&mut accounting, &foreign),
        RefusalCause::ForeignClient
    );
    let empty = map(GPU, MEMORY, MIB, 0);
    assert_eq!(cause(&mut accounting, &empty), RefusalCause::NoRange);
    let beyond = map(GPU, MEMORY, u64::MAX - 5, 7);
    assert_eq!(cause(&mut accounting, &beyond), RefusalCause::NoRange);
    let ticket = accounting
        .begin_map(&map(GPU, MEMORY, MIB, 4 * MIB))
        .unwrap();
    for base in [0, MIB, 3 * MIB] {
        let over = map(GPU, MEMORY, base, 2 * MIB);
        assert_eq!(cause(&mut accounting, &over), RefusalCause::MappingInFlight);
    }
    accounting.end_map(ticket, false);
    accounting.free(CLIENT, MEMORY);
    assert_eq!(accounting.used(GPU), 0);
}

fn host(accounting: &Accounting) -> u64 {
    accounting.limit_of(GPU, Limited::HostMemory).unwrap().used
}

/// Unmaps a part, of which nothing is credited.
fn cut(accounting: &mut Accounting, base: u64, length: u64) -> Result<(), RefusalCause> {
    let ticket = accounting.begin_unmap(span(Some(GPU), base, length))?;
    accounting.end_unmap(ticket);
    Ok(())
}

#[test]
fn cuts_of_mappings_count_until_the_file_closes() {
    let mut accounting = with_memory(8 * MIB);
    let (base, length) = (8 * MIB, 8 * MIB);
    accounting.map(&map(GPU, MEMORY, base, length)).unwrap();
    // Nothing goes across the ends of the whole, or of more.
    cut(&mut accounting, base, length).unwrap();
    cut(&mut accounting, 0, 64 * MIB).unwrap();
    assert_eq!(host(&accounting), 0);
    // Its first page, its last page, and one in the midst, each time anew: nobody knows whether the
    // driver has cut.
    cut(&mut accounting, base, 4096).unwrap();
    assert_eq!(host(&accounting), CUT_STRUCT);
    cut(&mut accounting, base + length - 4096, 4096).unwrap();
    assert_eq!(host(&accounting), 2 * CUT_STRUCT);
    for count in [4, 6] {
        cut(&mut accounting, base + MIB, 4096).unwrap();
        assert_eq!(host(&accounting), count * CUT_STRUCT);
    }
    // On another GPU, or in another file, there is nothing to cut.
    let other = Span {
        file: FileId(UVM.0 + 1),
        ..span(Some(GPU), base + MIB, 4096)
    };
    for span in [span(Some(OTHER_GPU), base + MIB, 4096), other] {
        let ticket = accounting.begin_unmap(span).unwrap();
        accounting.end_unmap(ticket);
    }
    assert_eq!(host(&accounting), 6 * CUT_STRUCT);
    let most = Some(7 * CUT_STRUCT);
    accounting
        .set_limit_of(GPU, Limited::HostMemory, most)
        .unwrap();
    let wanted = Err(RefusalCause::LimitReached(Limited::HostMemory));
    assert_eq!(cut(&mut accounting, base + MIB, 4096), wanted);
    accounting.close_file(UVM);
    assert_eq!(host(&accounting), 0);
}

#[test]
fn mappings_over_parts_of_others_cut_them() {
    let mut accounting = with_memory(8 * MIB);
    accounting.map(&map(GPU, MEMORY, 8 * MIB, 8 * MIB)).unwrap();
    // One that is refused has cut nothing.
    let unknown = map(GPU, ObjectHandle(1), 10 * MIB, MIB);
    assert!(accounting.map(&unknown).is_err());
    assert_eq!(host(&accounting), 0);
    accounting.map(&map(GPU, MEMORY, 10 * MIB, MIB)).unwrap();
    assert_eq!(host(&accounting), 2 * CUT_STRUCT);
    // Two parts of the first one are left somewhere. The second one's ends are known.
    cut(&mut accounting, 10 * MIB, MIB).unwrap();
    cut(&mut accounting, 8 * MIB, 2 * MIB).unwrap();
    assert_eq!(host(&accounting), 2 * CUT_STRUCT);
    cut(&mut accounting, 12 * MIB, MIB).unwrap();
    assert_eq!(host(&accounting), 4 * CUT_STRUCT);
    accounting
        .map(&map(GPU, MEMORY, 14 * MIB, 2 * MIB))
        .unwrap();
    assert_eq!(host(&accounting), 5 * CUT_STRUCT);
    cut(&mut accounting, 8 * MIB, 8 * MIB).unwrap();
    assert_eq!(host(&accounting), 5 * CUT_STRUCT);
    accounting.close_file(UVM);
    assert_eq!(host(&accounting), 0);
}

#[test]
fn nothing_is_mapped_during_an_unmapping() {
    let mut accounting = with_memory(8 * MIB);
    let whole = map(GPU, MEMORY, 8 * MIB, 8 * MIB);
    let part = span(Some(GPU), 10 * MIB, 4096);
    // The driver may get to it after it has made the mapping, and cut that.
    let ticket = accounting.begin_unmap(part).unwrap();
    assert_eq!(
        accounting.map(&whole).unwrap_err(),
        RefusalCause::MappingInFlight
    );
    accounting
        .map(&map(GPU, MEMORY, 16 * MIB, 8 * MIB))
        .unwrap();
    accounting
        .map(&map(OTHER_GPU, MEMORY, 8 * MIB, 8 * MIB))
        .unwrap();
    accounting.end_unmap(ticket);
    accounting.map(&whole).unwrap();
    // Nor where the module unmaps one by itself.
    let moment = accounting.moment();
    let found = accounting.begin_clear(span(Some(GPU), 0, 64 * MIB), moment);
    let (found, ticket) = found.unwrap().unwrap();
    assert_eq!((found.base, found.length), (8 * MIB, 8 * MIB));
    accounting.unmapped(found);
    assert_eq!(
        accounting.map(&whole).unwrap_err(),
        RefusalCause::MappingInFlight
    );
    accounting.end_unmap(ticket);
    accounting.map(&whole).unwrap();
    assert_eq!(host(&accounting), 0);
}

#[derive(Clone, Debug)]
enum MapStep {
    Map(usize, u64, u64, usize),
    Unmap(Option<usize>, u64, u64),
    Free(usize),
    Close,
}

fn steps() -> impl Strategy<Value = Vec<MapStep>> {
    let step = prop_oneof![
        6 => (0..2usize, 0..24u64, 1..9u64, 0..4usize)
            .prop_map(|(gpu, base, length, memory)| MapStep::Map(gpu, base, length, memory)),
        4 => (prop::option::of(0..2usize), 0..24u64, 1..16u64)
            .prop_map(|(gpu, base, length)| MapStep::Unmap(gpu, base, length)),
        2 => (0..4usize).prop_map(MapStep::Free),
        1 => Just(MapStep::Close),
    ];
    proptest::collection::vec(step, 300)
}

proptest! {
    #![proptest_config(cases(200))]

    /// The driver as it is, page by page: which memory each GPU's page is mapped to. What it holds
    /// must be charged after every step, and nothing is charged when all is over.
    #[test]
    fn held_memory_is_charged_after_every_step(steps in steps()) {
        let gpus = [GPU, OTHER_GPU];
        let mut accounting = accounting(u64::MAX);
        // By GPU and page: the memory, by a number that is never used again.
        let mut pages: BTreeMap<(usize, u64), u64> = BTreeMap::new();
        let mut live: [Option<u64>; 4] = [None; 4];
        let mut next = 0;
        for step in steps {
            match step {
                MapStep::Map(gpu, base, length, memory) => {
                    let handle = object(100 + u32::try_from(memory).unwrap());
                    let number = *live[memory].get_or_insert_with(|| {
                        next += 1;
                        accounting.memory(handle, 1).unwrap();
                        next
                    });
                    accounting.unmap(span(Some(gpus[gpu]), base, length));
                    accounting.map(&map(gpus[gpu], handle, base, length)).unwrap();
                    for page in base..base + length {
                        pages.insert((gpu, page), number);
                    }
                }
                MapStep::Unmap(gpu, base, length) => {
                    accounting.unmap(span(gpu.map(|gpu| gpus[gpu]), base, length));
                    pages.retain(|&(on, page), _| {
                        gpu.is_some_and(|gpu| gpu != on) || !(base..base + length).contains(&page)
                    });
                }
                MapStep::Free(memory) => {
                    if live[memory].take().is_some() {
                        accounting.free(CLIENT, object(100 + u32::try_from(memory).unwrap()));
                    }
                }
                MapStep::Close => {
                    accounting.close_file(UVM);
                    pages.clear();
                }
            }
            let held = pages.values().copied();
            let mut held: Vec<u64> = held.chain(live.into_iter().flatten()).collect();
            held.sort_unstable();
            held.dedup();
            let held = u64::try_from(held.len()).unwrap();
            let charged = accounting.used(GPU);
            prop_assert!(charged >= held, "{charged} charged, {held} held");
            if pages.is_empty() && matches!(step, MapStep::Close) {
                prop_assert_eq!(accounting.used(GPU), held);
            }
        }
        accounting.close_file(FILE);
        accounting.close_file(UVM);
        prop_assert_eq!(accounting.used(GPU), 0);
        prop_assert!(accounting.is_idle());
    }
}

#[test]
fn finding_a_mapping_among_many_takes_few_steps() {
    let mut accounting = with_memory(MIB);
    const COUNT: u64 = 20_000;
    for number in 0..COUNT {
        accounting
            .map(&map(GPU, MEMORY, number * MIB, MIB))
            .unwrap();
    }
    let count = 1000;
    let ((), taken) = steps::of(|| {
        for number in 0..count {
            assert_eq!(accounting.unmap(span(Some(GPU), number * 17 * MIB, MIB)), 1);
        }
    });
    let each = taken / count;
    assert!(each < 400, "{each} steps for one of {COUNT}");
    accounting.close_file(UVM);
    accounting.close_file(FILE);
    assert!(accounting.is_idle());
}
