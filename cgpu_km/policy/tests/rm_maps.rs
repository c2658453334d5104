// SPDX-License-Identifier: GPL-2.0
//! RM's mappings into ranges count as long as the driver has records of it.

use super::*;
use crate::store::failing;
use proptest::prelude::*;

const PAGE: u64 = 4096;
const RANGE: ObjectHandle = ObjectHandle(0x40);
const MEMORY: ObjectHandle = ObjectHandle(0x41);
const SUBDEVICE: ObjectHandle = ObjectHandle(0x42);

/// A range and memory, and two ways to map the one into the other.
fn with_range() -> Accounting {
    let mut accounting = accounting(1 << 40);
    for (object, kind) in [
        (RANGE, Kind::VirtualMemory),
        (MEMORY, Kind::OsDescriptor),
        (SUBDEVICE, Kind::Subdevice),
    ] {
        let alloc = Alloc {
            kind,
            size: 1 << 30,
            ..request(CLIENT, DEVICE, object)
        };
        accounting.alloc(&alloc).unwrap();
    }
    accounting
}

fn objects(accounting: &Accounting) -> u64 {
    accounting.limit_of(GPU, Limited::Objects).unwrap().used
}

fn mapped(length: u64) -> RmMap {
    RmMap {
        client: CLIENT,
        device: DEVICE,
        range: RANGE,
        memory: MEMORY,
        offset: 0,
        length,
        for_kernel: false,
        of_other_kind: false,
    }
}

fn unmapped(base: u64, length: u64) -> RmUnmap {
    RmUnmap {
        client: CLIENT,
        device: DEVICE,
        range: RANGE,
        base,
        length,
    }
}

fn map(accounting: &mut Accounting, base: u64, length: u64) {
    let ticket = accounting.begin_rm_map(&mapped(length)).unwrap();
    accounting.end_rm_map(ticket, Some(base));
}

fn unmap(accounting: &mut Accounting, base: u64, length: u64) {
    let ticket = accounting.begin_rm_unmap(&unmapped(base, length)).unwrap();
    accounting.end_rm_unmap(ticket, true);
}

/// A range that names no address space is in that of its device, and the driver looks in that of
/// the device that a call names.
#[test]
fn ranges_are_mapped_by_their_own_device() {
    const SECOND: ObjectHandle = ObjectHandle(0x43);
    let mut accounting = with_range();
    accounting.device(CLIENT, SECOND, GPU).unwrap();
    let other_gpu = Some(RefusalCause::OtherGpu);
    let by_second = RmMap {
        device: SECOND,
        ..mapped(PAGE)
    };
    assert_eq!(accounting.begin_rm_map(&by_second).err(), other_gpu);
    for device in [DEVICE, SUBDEVICE] {
        let by_own = RmMap {
            device,
            ..mapped(PAGE)
        };
        let ticket = accounting.begin_rm_map(&by_own).unwrap();
        accounting.end_rm_map(ticket, None);
    }
    let by_second = RmUnmap {
        device: SECOND,
        ..unmapped(0, 0)
    };
    assert_eq!(accounting.begin_rm_unmap(&by_second).err(), other_gpu);
}

/// The driver's list of the mappings of a range: the first address, the one behind the last one,
/// and which device (`serverInterUnmapInternal()`, rs_server.c).
#[derive(Debug, Default)]
struct DriverList(Vec<(u64, u64, bool)>);

impl DriverList {
    /// It maps nothing over what is mapped.
    fn map(&mut self, base: u64, end: u64, by: bool) -> bool {
        let is_free = self
            .0
            .iter()
            .all(|&(from, to, _)| to <= base || from >= end);
        if is_free {
            self.0.push((base, end, by));
        }
        is_free
    }

    fn unmap(&mut self, base: u64, by: bool) -> bool {
        let mut all = self.0.iter();
        let found = all.position(|&(from, _, of)| from == base && of == by);
        found.map(|found| self.0.remove(found)).is_some()
    }

    /// It stops at the mapping of number `stop`. Whether it did not.
    fn unmap_part(&mut self, base: u64, end: u64, by: bool, stop: usize) -> bool {
        let is_met = |&(from, to, of): &(u64, u64, bool)| of == by && to > base && from < end;
        let met: Vec<_> = self.0.iter().copied().filter(is_met).collect();
        for (number, one) in met.iter().enumerate() {
            if number == stop {
                return false;
            }
            self.0.retain(|other| other != one);
            let left = (one.0, base.min(one.1), by);
            let right = (end.max(one.0), one.1, by);
            let rest = [left, right].into_iter().filter(|rest| rest.0 < rest.1);
            self.0.extend(rest);
        }
        true
    }
}

#[derive(Clone, Debug)]
enum Act {
    Map,
    Unmap,
    Part,
    /// The driver stops in the midst of a part.
    Stopped(usize),
    /// The memory of a mapping is freed.
    Freed(usize),
}

fn steps_of(certain: bool) -> impl Strategy<Value = Vec<(Act, u64, u64, bool)>> {
    let uncertain = u32::from(!certain);
    let step = prop_oneof![
        8 => Just(Act::Map),
        2 => Just(Act::Unmap),
        4 => Just(Act::Part),
        uncertain => (0..3_usize).prop_map(Act::Stopped),
        uncertain => (0..9_usize).prop_map(Act::Freed),
    ];
    prop::collection::vec((step, 0..40_u64, 1..12_u64, any::<bool>()), 1..120)
}

fn run(steps: Vec<(Act, u64, u64, bool)>, certain: bool) -> Result<(), TestCaseError> {
    let mut accounting = with_range();
    let before = objects(&accounting);
    let mut driver = DriverList::default();
    for (step, base, length, by) in steps {
        let (base, length) = (base * PAGE, length * PAGE);
        let end = base + length;
        let device = if by { DEVICE } else { SUBDEVICE };
        let unmap = |length| RmUnmap {
            device,
            ..unmapped(base, length)
        };
        match step {
            Act::Map => {
                let map = RmMap {
                    device,
                    ..mapped(length)
                };
                let ticket = accounting.begin_rm_map(&map).unwrap();
                let made = driver.map(base, end, by);
                accounting.end_rm_map(ticket, made.then_some(base));
            }
            Act::Unmap => {
                let ticket = accounting.begin_rm_unmap(&unmap(0)).unwrap();
                let done = driver.unmap(base, by);
                accounting.end_rm_unmap(ticket, done);
            }
            Act::Part => {
                let ticket = accounting.begin_rm_unmap(&unmap(length)).unwrap();
                let done = driver.unmap_part(base, end, by, usize::MAX);
                accounting.end_rm_unmap(ticket, done);
            }
            Act::Stopped(stop) => {
                let ticket = accounting.begin_rm_unmap(&unmap(length)).unwrap();
                let done = driver.unmap_part(base, end, by, stop);
                accounting.end_rm_unmap(ticket, done);
            }
            Act::Freed(number) => {
                if number < driver.0.len() {
                    driver.0.remove(number);
                }
            }
        }
        let (counted, there) = (objects(&accounting) - before, driver.0.len() as u64);
        prop_assert!(counted >= there, "{counted} of {driver:?}");
        prop_assert!(!certain || counted == there, "{counted} of {driver:?}");
    }
    accounting.free(CLIENT, RANGE);
    prop_assert_eq!(objects(&accounting), before - 1);
    accounting.close_file(FILE);
    prop_assert!(accounting.is_idle());
    Ok(())
}

proptest! {
    #![proptest_config(cases(300))]

    #[test]
    fn mappings_count_as_the_driver_has_them(steps in steps_of(true)) {
        run(steps, true)?;
    }

    #[test]
    fn never_fewer_mappings_count_than_there_are(steps in steps_of(false)) {
        run(steps, false)?;
    }
}

#[test]
fn sparse_binding_leaves_the_count_where_it_was() {
    let mut accounting = with_range();
    let before = objects(&accounting);
    // As Vulkan does in a sparse range.
    for _ in 0..1000 {
        unmap(&mut accounting, PAGE, 16 * PAGE);
        map(&mut accounting, PAGE, 16 * PAGE);
        assert_eq!(objects(&accounting), before + 1);
        unmap(&mut accounting, PAGE, 16 * PAGE);
        assert_eq!(objects(&accounting), before);
    }
}

#[test]
fn cut_needs_room_for_one_more() {
    let mut accounting = with_range();
    map(&mut accounting, 0, 16 * PAGE);
    let full = objects(&accounting);
    let set = accounting.set_limit_of(GPU, Limited::Objects, Some(full));
    assert_eq!(set, Ok(()));
    let refused = accounting.begin_rm_unmap(&unmapped(PAGE, PAGE)).err();
    let objects_full = RefusalCause::LimitReached(Limited::Objects);
    assert_eq!(refused, Some(objects_full));
    // One is left.
    unmap(&mut accounting, 0, PAGE);
    unmap(&mut accounting, 15 * PAGE, PAGE);
    assert_eq!(objects(&accounting), full);
    assert!(accounting.begin_rm_map(&mapped(PAGE)).is_err());
    unmap(&mut accounting, 0, 16 * PAGE);
    assert_eq!(objects(&accounting), full - 1);
}

#[test]
fn longest_of_those_at_an_address_stays() {
    // The first two are not there in the driver: their memory was freed.
    for order in [[1, 9, 4], [9, 4, 1], [4, 1, 9]] {
        let mut accounting = with_range();
        let before = objects(&accounting);
        for pages in order {
            map(&mut accounting, 0, pages * PAGE);
        }
        unmap(&mut accounting, 0, 0);
        unmap(&mut accounting, 0, 0);
        assert_eq!(objects(&accounting), before + 1);
        unmap(&mut accounting, 7 * PAGE, PAGE);
        assert_eq!(objects(&accounting), before + 2, "{order:?}");
    }
}

#[test]
fn unmapping_ends_what_was_there_before_it() {
    let mut accounting = with_range();
    let before = objects(&accounting);
    map(&mut accounting, 0, PAGE);
    let unmap = accounting.begin_rm_unmap(&unmapped(0, 0)).unwrap();
    // The driver has given the address to another mapping, of which it has told first.
    let later = accounting.begin_rm_map(&mapped(2 * PAGE)).unwrap();
    accounting.end_rm_map(later, Some(0));
    accounting.end_rm_unmap(unmap, true);
    assert_eq!(objects(&accounting), before + 1);
    // The other way round: it was not there when the call began.
    let unmap = accounting.begin_rm_unmap(&unmapped(9 * PAGE, 0)).unwrap();
    map(&mut accounting, 9 * PAGE, PAGE);
    accounting.end_rm_unmap(unmap, true);
    assert_eq!(objects(&accounting), before + 2);
}

#[test]
fn part_is_unmapped_beside_nothing_else() {
    let mut accounting = with_range();
    let busy = Some(RefusalCause::MappingInFlight);
    let part = accounting.begin_rm_unmap(&unmapped(0, PAGE)).unwrap();
    assert_eq!(accounting.begin_rm_map(&mapped(PAGE)).err(), busy);
    assert_eq!(accounting.begin_rm_unmap(&unmapped(0, 0)).err(), busy);
    let other = accounting.begin_rm_unmap(&unmapped(PAGE, PAGE)).unwrap();
    accounting.end_rm_unmap(part, true);
    assert_eq!(accounting.begin_rm_map(&mapped(PAGE)).err(), busy);
    accounting.end_rm_unmap(other, false);
    let first = accounting.begin_rm_map(&mapped(PAGE)).unwrap();
    assert_eq!(accounting.begin_rm_unmap(&unmapped(0, PAGE)).err(), busy);
    let second = accounting.begin_rm_unmap(&unmapped(0, 0)).unwrap();
    accounting.end_rm_map(first, None);
    assert_eq!(accounting.begin_rm_unmap(&unmapped(0, PAGE)).err(), busy);
    accounting.end_rm_unmap(second, false);
    unmap(&mut accounting, 0, PAGE);
}

#[test]
fn range_that_is_gone_has_no_mappings() {
    let mut accounting = with_range();
    let before = objects(&accounting);
    map(&mut accounting, 0, 9 * PAGE);
    let coming = accounting.begin_rm_map(&mapped(PAGE)).unwrap();
    accounting.free(CLIENT, RANGE);
    assert_eq!(objects(&accounting), before - 1);
    accounting.end_rm_map(coming, Some(PAGE));
    assert_eq!(objects(&accounting), before - 1);
    accounting.close_file(FILE);
    assert!(accounting.is_idle());
    for done in [true, false] {
        let mut accounting = with_range();
        map(&mut accounting, 0, 9 * PAGE);
        let part = accounting.begin_rm_unmap(&unmapped(PAGE, PAGE)).unwrap();
        accounting.close_file(FILE);
        accounting.end_rm_unmap(part, done);
        assert!(accounting.is_idle());
    }
}

#[test]
fn call_without_memory_changes_nothing() {
    let mut accounting = with_range();
    let mut refused = 0;
    for number in 0..200 {
        let before = objects(&accounting);
        for granted in 0.. {
            let (begun, failed) =
                failing::after(granted, || accounting.begin_rm_map(&mapped(9 * PAGE)));
            let Ok(ticket) = begun else {
                assert_eq!(objects(&accounting), before);
                refused += 1;
                continue;
            };
            let ((), late) = failing::after(0, || {
                accounting.end_rm_map(ticket, (!failed).then_some(number * 9 * PAGE));
            });
            assert!(!late);
            if !failed {
                break;
            }
        }
        let part = unmapped((number * 9 + 4) * PAGE, PAGE);
        for granted in 0.. {
            let (begun, failed) = failing::after(granted, || accounting.begin_rm_unmap(&part));
            let Ok(ticket) = begun else {
                assert_eq!(objects(&accounting), before + 1);
                refused += 1;
                continue;
            };
            let ((), late) = failing::after(0, || accounting.end_rm_unmap(ticket, !failed));
            assert!(!late);
            if !failed {
                break;
            }
        }
        assert_eq!(objects(&accounting), before + 2);
    }
    assert!(refused > 200, "only {refused} refusals were seen");
}

#[test]
fn refused_mapping_takes_no_bar1() {
    let mut accounting = with_range();
    let size = GpuSize {
        max_instances: 1,
        memory: 1 << 40,
        bar1: 1 << 40,
        host: 1 << 40,
        exports: 1024,
    };
    accounting.set_size(GPU, size).unwrap();
    accounting.memory(object(7), MIB).unwrap();
    let bar1 = |accounting: &Accounting| accounting.limit_of(GPU, Limited::Bar1).unwrap().used;
    let for_kernel = RmMap {
        memory: object(7),
        for_kernel: true,
        ..mapped(PAGE)
    };
    let ticket = accounting.begin_rm_map(&for_kernel).unwrap();
    accounting.end_rm_map(ticket, Some(0));
    let taken = bar1(&accounting);
    assert!(taken > 0);
    // No room for the tables, then none for the record.
    accounting.set_limit(GPU, 0).unwrap();
    let refused = accounting.begin_rm_map(&for_kernel).err();
    assert!(matches!(refused, Some(RefusalCause::NoMemory { .. })));
    assert_eq!(bar1(&accounting), taken);
    let full = objects(&accounting);
    let set = accounting.set_limit_of(GPU, Limited::Objects, Some(full));
    assert_eq!(set, Ok(()));
    let objects_full = RefusalCause::LimitReached(Limited::Objects);
    assert_eq!(
        accounting.begin_rm_map(&for_kernel).err(),
        Some(objects_full)
    );
    assert_eq!(bar1(&accounting), taken);
    accounting.free(CLIENT, object(7));
    assert_eq!(bar1(&accounting), 0);
}

#[test]
fn memory_from_a_descriptor_has_its_size() {
    const COPY: ObjectHandle = ObjectHandle(0x50);
    const PLACE: ObjectHandle = ObjectHandle(0x51);
    let holder = FileId(90);
    let mut accounting = with_range();
    accounting.memory(object(7), 2 * MIB).unwrap();
    let of = [object(7)];
    let places = DescriptorPlaces {
        file: holder,
        first: 0,
        client: CLIENT,
        objects: &of,
        made: 1,
    };
    let ticket = accounting.begin_export(&places).unwrap();
    accounting.end_export(ticket, true);
    let places = DescriptorPlaces {
        objects: &[COPY],
        ..places
    };
    let ticket = accounting.begin_import(&places, DEVICE).unwrap();
    accounting.end_import(ticket, |_| true);
    let place = Alloc {
        class: ClassId(0xf8),
        kind: Kind::FabricMemory,
        ..request(CLIENT, DEVICE, PLACE)
    };
    let ticket = accounting.begin_fabric(&place, COPY).unwrap();
    accounting.end_alloc(ticket, done(PLACE, 0));
    for memory in [object(7), COPY, PLACE] {
        for (offset, length, expected) in [
            (0, 2 * MIB, None),
            (0, 2 * MIB + 1, Some(RefusalCause::NoSuchPart)),
            (MIB, 2 * MIB, Some(RefusalCause::NoSuchPart)),
        ] {
            let map = RmMap {
                memory,
                offset,
                ..mapped(length)
            };
            let begun = accounting.begin_rm_map(&map);
            assert_eq!(begun.as_ref().err(), expected.as_ref(), "{memory:?}");
            if let Ok(ticket) = begun {
                accounting.end_rm_map(ticket, None);
            }
        }
    }
    // Memory of which no size was told is not mapped, into a range of whatever length.
    let unknown = Alloc {
        kind: Kind::OsDescriptor,
        ..request(CLIENT, DEVICE, object(9))
    };
    accounting.alloc(&unknown).unwrap();
    let map = RmMap {
        memory: object(9),
        ..mapped(PAGE)
    };
    let refused = accounting.begin_rm_map(&map).err();
    assert_eq!(refused, Some(RefusalCause::NoSuchPart));
}

#[test]
fn calls_take_few_steps_among_10_000_mappings() {
    const MAPPINGS: u64 = 10_000;
    let mut accounting = with_range();
    let ((), steps) = steps::of(|| {
        for number in 0..MAPPINGS {
            // In no order.
            map(&mut accounting, number * 7919 % MAPPINGS * PAGE, PAGE);
        }
    });
    assert!(steps < 200 * MAPPINGS, "{steps} steps to map");
    let ((), steps) = steps::of(|| {
        for number in 0..MAPPINGS / 2 {
            unmap(&mut accounting, number * PAGE, PAGE);
        }
    });
    assert!(steps < 100 * MAPPINGS, "{steps} steps to unmap");
    let ((), steps) = steps::of(|| accounting.free(CLIENT, RANGE));
    assert!(steps < 50 * MAPPINGS, "{steps} steps to free the range");
    accounting.close_file(FILE);
    assert!(accounting.is_idle());
}
