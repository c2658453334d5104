// SPDX-License-Identifier: GPL-2.0
//! Page tables are charged: as overhead, as far as contexts do not have them already, up to the
//! limit.

use super::*;
use crate::{
    nvidia::status::NvStatus,
    policy::{
        managed::Admission,
        MakingRoom, //
    }, //
};

const MEMORY: ObjectHandle = ObjectHandle(0x5c00_0010);
const MAPPED: ObjectHandle = ObjectHandle(0x5c00_00f0);
const PAGE: u64 = 4096;
const KIB: u64 = 1 << 10;
const BLOCK: u64 = 2 * MIB;
const FAR: u64 = 0x100_0000_0000;
/// Bytes of page tables for 4 KiB that lie far from everything else.
const ALONE: u64 = 16 * KIB;

fn map(base: u64, length: u64) -> Map {
    super::map(GPU, MEMORY, base, length)
}

fn made(accounting: &mut Accounting, base: u64, length: u64) -> Result<(), RefusalCause> {
    let ticket = accounting.begin_map(&map(base, length))?;
    accounting.end_map(ticket, true);
    Ok(())
}

fn unmap(accounting: &mut Accounting, base: u64, length: u64) {
    let span = Span {
        file: UVM,
        gpu: Some(GPU),
        base,
        last: base + length - 1,
    };
    let mapped = accounting.mapped(span, accounting.moment()).unwrap();
    accounting.unmapped(mapped);
}

fn overhead(accounting: &Accounting) -> u64 {
    accounting.share(GPU).unwrap().overhead
}

fn with_memory(limit: u64) -> Accounting {
    let mut accounting = accounting(limit);
    let request = memory_request(CLIENT, DEVICE, MEMORY, BLOCK);
    accounting.alloc(&request).unwrap();
    accounting
}

#[test]
fn page_tables_of_thin_mappings_are_charged() {
    let mut accounting = with_memory(BLOCK + 3 * ALONE);
    // 512 GiB apart they have but the highest table in common.
    let at = |number: u64| FAR + number * (512 << 30);
    assert_eq!(made(&mut accounting, at(0), PAGE), Ok(()));
    assert_eq!(overhead(&accounting), ALONE);
    assert_eq!(made(&mut accounting, at(1), PAGE), Ok(()));
    assert_eq!(overhead(&accounting), 2 * ALONE - 4 * KIB);
    assert_eq!(made(&mut accounting, at(2), PAGE), Ok(()));
    let before = accounting.gpu_share();
    let refused = made(&mut accounting, at(3), PAGE);
    let (wanted, free) = (12 * KIB, 8 * KIB);
    assert_eq!(refused, Err(RefusalCause::NoMemory { wanted, free }));
    assert_eq!(accounting.gpu_share().overhead, before.overhead);
    assert_eq!(accounting.gpu_share().refused, before.refused + 1);
    unmap(&mut accounting, at(1), PAGE);
    assert_eq!(overhead(&accounting), 2 * ALONE - 4 * KIB);
    accounting.close_file(UVM);
    assert_eq!(overhead(&accounting), 0);
}

#[test]
fn neighbours_share_page_tables() {
    let mut accounting = with_memory(64 * MIB);
    made(&mut accounting, FAR, BLOCK).unwrap();
    assert_eq!(overhead(&accounting), 12 * KIB);
    made(&mut accounting, FAR + 2 * BLOCK, BLOCK).unwrap();
    assert_eq!(overhead(&accounting), 12 * KIB);
    made(&mut accounting, FAR + 4 * BLOCK, PAGE).unwrap();
    assert_eq!(overhead(&accounting), 16 * KIB);
    made(&mut accounting, FAR + 4 * BLOCK + PAGE, PAGE).unwrap();
    assert_eq!(overhead(&accounting), 16 * KIB);
    // Of 64 KiB.
    made(&mut accounting, FAR + 6 * BLOCK, 64 * KIB).unwrap();
    assert_eq!(overhead(&accounting), 16 * KIB + 256);
    unmap(&mut accounting, FAR + 4 * BLOCK, PAGE);
    assert_eq!(overhead(&accounting), 16 * KIB + 256);
    unmap(&mut accounting, FAR + 4 * BLOCK + PAGE, PAGE);
    assert_eq!(overhead(&accounting), 12 * KIB + 256);
    accounting.close_file(UVM);
    accounting.close_file(FILE);
    assert!(accounting.is_idle());
}

#[test]
fn small_pages_are_mapped_as_small() {
    for (page, tables) in [
        (PageSize::Small, 24 * KIB),
        (PageSize::Big, 12 * KIB + 3 * 256),
        (PageSize::Huge, 12 * KIB),
    ] {
        let mut accounting = accounting(64 * MIB);
        let request = Alloc {
            page,
            ..memory_request(CLIENT, DEVICE, MEMORY, 3 * BLOCK)
        };
        accounting.alloc(&request).unwrap();
        // Its duplicate is of the same memory.
        let copy = object(0x20);
        accounting
            .dup(CLIENT, DEVICE, copy, CLIENT, MEMORY)
            .unwrap();
        let memory = copy;
        let map = Map {
            memory,
            ..map(FAR, 3 * BLOCK)
        };
        let ticket = accounting.begin_map(&map).unwrap();
        accounting.end_map(ticket, true);
        assert_eq!(overhead(&accounting), tables, "{page:?}");
    }
    // And so is what begins in the middle of one.
    let mut accounting = with_memory(64 * MIB);
    let offset = PAGE;
    let ticket = accounting
        .begin_map(&Map {
            offset,
            ..map(FAR, BLOCK)
        })
        .unwrap();
    accounting.end_map(ticket, true);
    assert_eq!(overhead(&accounting), 16 * KIB);
}

#[test]
fn refused_mapping_leaves_shared_tables() {
    let mut accounting = with_memory(BLOCK + 20 * KIB);
    let whole = FAR..FAR + 4 * BLOCK;
    made(&mut accounting, whole.start, whole.end - whole.start).unwrap();
    assert_eq!(overhead(&accounting), 12 * KIB);
    // 3 tables of small pages; the one that is split counts alone from then on.
    let refused = made(&mut accounting, FAR + PAGE, 2 * BLOCK);
    assert!(matches!(refused, Err(RefusalCause::NoMemory { .. })));
    assert_eq!(overhead(&accounting), 12 * KIB);
    unmap(&mut accounting, whole.start, whole.end - whole.start);
    assert_eq!(overhead(&accounting), 0);
    // With room for them.
    accounting.set_limit(GPU, 64 * MIB).unwrap();
    made(&mut accounting, whole.start, whole.end - whole.start).unwrap();
    made(&mut accounting, FAR + PAGE, 2 * BLOCK).unwrap();
    assert_eq!(overhead(&accounting), 2 * 12 * KIB + 12 * KIB);
    unmap(&mut accounting, FAR + PAGE, 2 * BLOCK);
    // Of what was split it is not known what is left.
    assert_eq!(overhead(&accounting), 12 * KIB);
    accounting.close_file(UVM);
    assert_eq!(overhead(&accounting), 0);
}

#[test]
fn contexts_have_some_already() {
    const FIRST: u64 = 7744 * KIB;
    let mut accounting = with_memory(64 * MIB);
    let group = object(0x30);
    accounting.context(group).unwrap();
    for number in 0..7 {
        made(&mut accounting, FAR + number * (512 << 30), PAGE).unwrap();
    }
    // 96 KiB of them.
    assert_eq!(overhead(&accounting), FIRST);
    made(&mut accounting, FAR + 7 * (512 << 30), PAGE).unwrap();
    assert_eq!(overhead(&accounting), FIRST + 4 * KIB);
    accounting.free(CLIENT, group);
    assert_eq!(overhead(&accounting), 8 * 12 * KIB + 4 * KIB);
}

#[test]
fn tables_of_an_object_go_with_it() {
    let mut accounting = accounting(64 * KIB);
    let space = |number: u32| Alloc {
        tables: 20 * KIB,
        ..request(CLIENT, DEVICE, object(number))
    };
    let ticket = accounting.begin_alloc(&space(1)).unwrap();
    let share = accounting.share(GPU).unwrap();
    assert_eq!((share.overhead, share.reserved), (0, 20 * KIB));
    accounting.end_alloc(ticket, None);
    assert_eq!(accounting.share(GPU).unwrap().reserved, 0);
    for number in 1..=3 {
        assert_eq!(accounting.alloc(&space(number)), Ok(()));
    }
    let refused = accounting.alloc(&space(4)).unwrap_err();
    let (wanted, free) = (20 * KIB, 4 * KIB);
    assert_eq!(refused, RefusalCause::NoMemory { wanted, free });
    assert_eq!((overhead(&accounting), accounting.used(GPU)), (60 * KIB, 0));
    accounting.free(CLIENT, object(2));
    assert_eq!(overhead(&accounting), 40 * KIB);
    accounting.close_file(FILE);
    assert_eq!(overhead(&accounting), 0);
}

#[test]
fn tables_in_a_contexts_price_count_once() {
    const FIRST: u64 = 7744 * KIB;
    let mut accounting = with_memory(BLOCK + FIRST);
    accounting.context(object(0x30)).unwrap();
    assert_eq!(accounting.share(GPU).unwrap().free(), 0);
    // 96 KiB: an address space that is asked for takes of it what a mapping then has not.
    let space = Alloc {
        tables: 64 * KIB,
        ..request(CLIENT, DEVICE, object(1))
    };
    let ticket = accounting.begin_alloc(&space).unwrap();
    made(&mut accounting, FAR, PAGE).unwrap();
    made(&mut accounting, FAR + (512 << 30), PAGE).unwrap();
    let refused = made(&mut accounting, FAR + (1 << 40), PAGE);
    assert!(
        matches!(refused, Err(RefusalCause::NoMemory { .. })),
        "{refused:?}"
    );
    let share = accounting.share(GPU).unwrap();
    assert_eq!((share.free(), share.excess()), (0, 0), "{share:?}");
    accounting.end_alloc(ticket, None);
    assert_eq!(made(&mut accounting, FAR + (1 << 40), PAGE), Ok(()));
}

/// Accounting with managed memory in all that there is room for, on the one GPU of a file.
fn full() -> Accounting {
    let mut accounting = accounting(8 * BLOCK);
    let entered = accounting.enter_managed(UVM, GPU, &[1; 16]);
    assert!(matches!(entered, Ok(Admission::Ready)));
    accounting.map_managed(UVM, FAR, 8 * BLOCK).unwrap();
    let share = accounting.share(GPU).unwrap();
    assert_eq!((share.managed, share.spilled), (7 * BLOCK, BLOCK));
    assert_eq!(share.overhead, 8 * 4352 + 12 * KIB);
    accounting.told_all(FAR, 8 * BLOCK);
    accounting
}

impl Accounting {
    fn gpu_share(&self) -> ShareView {
        self.share(GPU).unwrap()
    }

    fn told_all(&mut self, base: u64, length: u64) {
        while let Some(tell) = self.tell(UVM, base, length) {
            self.told(tell.order, true);
        }
    }

    fn relieved(&mut self) -> u64 {
        let mut blocks = 0;
        while let Some(order) = self.make_good() {
            blocks += order.length / BLOCK;
            self.left(order, true);
        }
        blocks
    }
}

#[test]
fn counted_memory_makes_room_for_spilled_memorys_tables() {
    let mut accounting = full();
    let changes = accounting.over_changes();
    let mut base = FAR + 8 * BLOCK;
    let mut relieved = 0;
    // 2 GiB at a time, with 4.25 MiB of tables.
    for _ in 0..3 {
        accounting.map_managed(UVM, base, 1024 * BLOCK).unwrap();
        accounting.told_all(base, 1024 * BLOCK);
        relieved += accounting.relieved();
        let share = accounting.share(GPU).unwrap();
        assert_eq!(share.excess(), 0, "{share:?}");
        assert!(share.free() < BLOCK);
        base += 1024 * BLOCK;
    }
    assert_eq!(relieved, 6);
    // There is no more to make room with than that, and nothing was over the limit meanwhile.
    let refused = accounting.map_managed(UVM, base, 1024 * BLOCK);
    assert!(matches!(refused, Err(RefusalCause::NoMemory { .. })));
    assert_eq!(accounting.share(GPU).unwrap().managed_refused, 1);
    assert_eq!(accounting.over_changes(), changes);
    accounting.unmap_managed(UVM, FAR, base - FAR);
    assert_eq!(overhead(&accounting), 0);
}

#[test]
fn counted_memory_makes_room_for_mappings_tables() {
    let mut accounting = full();
    let request = memory_request(CLIENT, DEVICE, MEMORY, BLOCK);
    let demand = accounting.begin_demand(GPU, BLOCK);
    while let Some(order) = accounting.make_room(GPU, BLOCK) {
        accounting.left(order, true);
    }
    accounting.alloc(&request).unwrap();
    assert_eq!(demand, MakingRoom::Begun);
    accounting.end_demand();
    let changes = accounting.over_changes();
    let free = accounting.share(GPU).unwrap().free();
    let mut number = 0;
    while accounting.share(GPU).unwrap().excess() == 0 {
        made(&mut accounting, 2 * FAR + number * (512 << 30), PAGE).unwrap();
        number += 1;
        assert!(number * 8 * KIB < free + ALONE);
    }
    assert_eq!(accounting.relieved(), 1);
    assert_eq!(accounting.over_changes(), changes);
}

#[test]
fn semaphore_pools_stay_charged_until_close() {
    let mut accounting = with_gpu(10 * ALONE);
    for number in 0..10 {
        // Twice at each place: the driver has one there at the most.
        for _ in 0..2 {
            assert_eq!(pool(&mut accounting, place(number)), Ok(()));
            assert_eq!(overhead(&accounting), (number + 1) * ALONE);
            fixed_freed(&mut accounting, place(number), Some(PAGE));
        }
    }
    let refused = pool(&mut accounting, place(10)).map_err(RefusalCause::status);
    assert_eq!(refused, Err(NvStatus::NV_ERR_NO_MEMORY));
    let begin = |accounting: &mut Accounting, base, length| {
        let ticket = accounting.begin_fixed(UVM, base, length, FixedKind::SemaphorePool);
        ticket.map(|ticket| accounting.end_fixed(ticket))
    };
    assert!(begin(&mut accounting, u64::MAX, 2).is_err());
    assert!(begin(&mut accounting, FAR, 0).is_err());
    accounting.close_file(UVM);
    assert_eq!(overhead(&accounting), 0);
    // A GPU that comes later has them too.
    pool(&mut accounting, FAR).unwrap();
    assert_eq!(overhead(&accounting), 0);
    let entered = accounting.enter_managed(UVM, GPU, &[1; 16]);
    assert!(matches!(entered, Ok(Admission::Ready)));
    assert_eq!(overhead(&accounting), ALONE);
}

/// A place far from all others.
fn place(number: u64) -> u64 {
    FAR + number * (512 << 30)
}

/// A tenant with a GPU that has an address space in [`UVM`].
fn with_gpu(limit: u64) -> Accounting {
    let mut accounting = accounting(limit);
    let entered = accounting.enter_managed(UVM, GPU, &[1; 16]);
    assert!(matches!(entered, Ok(Admission::Ready)));
    accounting
}

fn fixed(accounting: &mut Accounting, base: u64, kind: FixedKind) -> Result<(), RefusalCause> {
    let ticket = accounting.begin_fixed(UVM, base, PAGE, kind)?;
    accounting.end_fixed(ticket);
    Ok(())
}

fn pool(accounting: &mut Accounting, base: u64) -> Result<(), RefusalCause> {
    fixed(accounting, base, FixedKind::SemaphorePool)
}

fn region(accounting: &mut Accounting, base: u64) -> Result<(), RefusalCause> {
    fixed(accounting, base, FixedKind::ParallelismRegion)
}

fn fixed_freed(accounting: &mut Accounting, base: u64, length: Option<u64>) {
    if let Some(going) = accounting.begin_fixed_free(UVM, base, length) {
        accounting.end_fixed_free(going);
    }
}

#[test]
fn region_is_charged_once_until_freed() {
    let mut accounting = with_gpu(10 * ALONE);
    // From branch 595 on a free without a length names the beginning alone.
    for (number, length) in [Some(PAGE), None].into_iter().cycle().take(100).enumerate() {
        let base = place(u64::try_from(number).unwrap());
        region(&mut accounting, base).unwrap();
        region(&mut accounting, base).unwrap();
        assert_eq!(overhead(&accounting), ALONE);
        for (base, length) in [
            (base, 2 * PAGE),
            (base + 1, PAGE),
            (base, 0),
            (FAR - PAGE, PAGE),
        ] {
            fixed_freed(&mut accounting, base, Some(length));
        }
        assert_eq!(overhead(&accounting), ALONE);
        fixed_freed(&mut accounting, base, length);
        assert_eq!(overhead(&accounting), 0);
        fixed_freed(&mut accounting, base, length);
    }
    // A pool may be there: a program can say that the driver refused the pool, or the region.
    region(&mut accounting, FAR).unwrap();
    pool(&mut accounting, FAR).unwrap();
    fixed_freed(&mut accounting, FAR, Some(PAGE));
    assert_eq!(overhead(&accounting), ALONE);
    // One that is gone is not charged to a GPU that comes later.
    accounting.close_file(UVM);
    region(&mut accounting, FAR).unwrap();
    region(&mut accounting, 2 * FAR).unwrap();
    fixed_freed(&mut accounting, FAR, None);
    let entered = accounting.enter_managed(UVM, GPU, &[1; 16]);
    assert!(matches!(entered, Ok(Admission::Ready)));
    assert_eq!(overhead(&accounting), ALONE);
    accounting.close_file(UVM);
    assert_eq!(overhead(&accounting), 0);
}

#[test]
fn a_region_asked_for_meanwhile_stays_charged() {
    const KIND: FixedKind = FixedKind::ParallelismRegion;
    let mut accounting = with_gpu(10 * ALONE);
    // A call for it is in flight when it is freed, and may come after that.
    let asking = accounting.begin_fixed(UVM, FAR, PAGE, KIND).unwrap();
    fixed_freed(&mut accounting, FAR, Some(PAGE));
    assert_eq!(overhead(&accounting), ALONE);
    accounting.end_fixed(asking);
    // One begins while it is being freed.
    let going = accounting.begin_fixed_free(UVM, FAR, None).unwrap();
    region(&mut accounting, FAR).unwrap();
    accounting.end_fixed_free(going);
    assert_eq!(overhead(&accounting), ALONE);
    // Two free it, and between their ends it is made anew.
    let first = accounting.begin_fixed_free(UVM, FAR, None).unwrap();
    let second = accounting.begin_fixed_free(UVM, FAR, None).unwrap();
    accounting.end_fixed_free(first);
    assert_eq!(overhead(&accounting), 0);
    region(&mut accounting, FAR).unwrap();
    accounting.end_fixed_free(second);
    assert_eq!(overhead(&accounting), ALONE);
    // The file goes meanwhile.
    let going = accounting.begin_fixed_free(UVM, FAR, None).unwrap();
    let asking = accounting.begin_fixed(UVM, FAR, PAGE, KIND).unwrap();
    accounting.close_file(UVM);
    accounting.end_fixed(asking);
    accounting.end_fixed_free(going);
    assert_eq!(overhead(&accounting), 0);
}

#[test]
fn regions_beyond_those_remembered_are_charged_each_time() {
    let mut accounting = with_gpu(2000 * ALONE);
    for number in 0..1024 {
        region(&mut accounting, FAR + number * PAGE).unwrap();
    }
    let more = |accounting: &mut Accounting| {
        let before = overhead(accounting);
        region(accounting, 2 * FAR).unwrap();
        fixed_freed(accounting, 2 * FAR, None);
        overhead(accounting) - before
    };
    assert_eq!(more(&mut accounting), ALONE);
    assert_eq!(more(&mut accounting), ALONE);
    fixed_freed(&mut accounting, FAR, None);
    assert_eq!(more(&mut accounting), 0);
    accounting.close_file(UVM);
    assert_eq!(overhead(&accounting), 0);
}

#[test]
fn a_region_that_finds_no_memory_is_refused() {
    let mut accounting = with_gpu(10 * ALONE);
    let refused = crate::store::failing::after(0, || region(&mut accounting, FAR));
    assert_eq!(refused, (Err(RefusalCause::Exhausted), true));
    assert_eq!(overhead(&accounting), 0);
    region(&mut accounting, FAR).unwrap();
    assert_eq!(overhead(&accounting), ALONE);
}

const RANGE: ObjectHandle = ObjectHandle(0x5c00_0020);
const COPY: ObjectHandle = ObjectHandle(0x5c00_0021);

/// A range of addresses whose page tables come with what is mapped there.
fn lazy_range(accounting: &mut Accounting) {
    let range = Alloc {
        kind: Kind::VirtualMemory,
        ..request(CLIENT, DEVICE, RANGE)
    };
    accounting.alloc(&range).unwrap();
}

/// The same addresses once more.
fn copy_range(accounting: &mut Accounting) {
    let ticket = accounting
        .begin_dup(CLIENT, DEVICE, COPY, CLIENT, RANGE)
        .unwrap();
    accounting.end_alloc(ticket, done(COPY, 0));
}

/// Memory of the program's own, which costs nothing.
fn registered(object: ObjectHandle) -> Alloc {
    Alloc {
        kind: Kind::OsDescriptor,
        size: 1 << 30,
        ..request(CLIENT, DEVICE, object)
    }
}

fn rm_map_of(range: ObjectHandle, memory: ObjectHandle, length: u64) -> RmMap {
    RmMap {
        client: CLIENT,
        device: DEVICE,
        range,
        memory,
        offset: 0,
        length,
        for_kernel: false,
        of_other_kind: false,
    }
}

fn rm_map(
    accounting: &mut Accounting,
    range: ObjectHandle,
    length: u64,
) -> Result<(), RefusalCause> {
    // It may be there already.
    let _ = accounting.alloc(&registered(MAPPED));
    let ticket = accounting.begin_rm_map(&rm_map_of(range, MAPPED, length));
    ticket.map(|ticket| accounting.end_rm_map(ticket, Some(0)))
}

#[test]
fn tables_for_a_mapping_stay_with_its_range() {
    let each = tables_of(PAGE);
    let mut accounting = accounting(3 * each);
    lazy_range(&mut accounting);
    assert_eq!(overhead(&accounting), 0);
    rm_map(&mut accounting, RANGE, PAGE).unwrap();
    assert_eq!(overhead(&accounting), each);
    // A copy of the range is the same addresses.
    copy_range(&mut accounting);
    rm_map(&mut accounting, COPY, PAGE).unwrap();
    rm_map(&mut accounting, RANGE, PAGE).unwrap();
    let refused = rm_map(&mut accounting, COPY, PAGE);
    assert!(matches!(
        refused,
        Err(RefusalCause::NoMemory { free: 0, .. })
    ));
    assert_eq!(overhead(&accounting), 3 * each);
    accounting.free(CLIENT, RANGE);
    assert_eq!(overhead(&accounting), 3 * each);
    accounting.free(CLIENT, COPY);
    assert_eq!(overhead(&accounting), 0);
}

#[test]
fn early_copy_keeps_its_tables_charged() {
    let mut accounting = accounting(1 << 30);
    lazy_range(&mut accounting);
    copy_range(&mut accounting);
    rm_map(&mut accounting, RANGE, BLOCK).unwrap();
    accounting.free(CLIENT, RANGE);
    assert_eq!(overhead(&accounting), tables_of(BLOCK));
    accounting.close_file(FILE);
    assert_eq!(overhead(&accounting), 0);
}

#[test]
fn ranges_that_have_tables_grow_by_nothing() {
    let mut accounting = with_memory(1 << 30);
    let range = Alloc {
        kind: Kind::VirtualMemory,
        tables: ALONE,
        ..request(CLIENT, DEVICE, RANGE)
    };
    accounting.alloc(&range).unwrap();
    rm_map(&mut accounting, RANGE, BLOCK).unwrap();
    for object in [MEMORY, DEVICE] {
        let refused = rm_map(&mut accounting, object, PAGE);
        assert_eq!(refused, Err(RefusalCause::NoAddressSpace));
    }
    assert_eq!(overhead(&accounting), ALONE);
    let unknown = rm_map(&mut accounting, COPY, BLOCK);
    assert_eq!(unknown, Err(RefusalCause::UnknownObject));
}

#[test]
fn range_with_mappings_is_not_replaced() {
    let mut accounting = accounting(1 << 30);
    lazy_range(&mut accounting);
    accounting.alloc(&registered(COPY)).unwrap();
    let ticket = accounting
        .begin_rm_map(&rm_map_of(RANGE, COPY, PAGE))
        .unwrap();
    for object in [RANGE, COPY] {
        accounting.free(CLIENT, object);
        let again = accounting.begin_alloc(&request(CLIENT, DEVICE, object));
        assert!(again.is_err(), "the name was given away");
    }
    accounting.end_rm_map(ticket, Some(0));
    accounting.child(DEVICE, RANGE).unwrap();
}

#[test]
fn only_memory_is_mapped_for_the_gpu() {
    let mut accounting = accounting(1 << 30);
    lazy_range(&mut accounting);
    let (channel, subdevice) = (object(30), object(31));
    let of_channel = channel_request(CLIENT, DEVICE, channel, COMPUTE);
    accounting.alloc(&of_channel).unwrap();
    let below = Alloc {
        kind: Kind::Subdevice,
        ..request(CLIENT, DEVICE, subdevice)
    };
    accounting.alloc(&below).unwrap();
    for (kind, plain, odd, is_memory) in [
        (Kind::OsDescriptor, true, true, true),
        (Kind::SharedData, false, false, false),
        (Kind::Inert, false, false, false),
        (Kind::VirtualMemory, false, false, false),
        (Kind::Engine, false, false, false),
        // A page that is no place in memory, unless by another kind of page.
        (Kind::GraphicsObject, true, false, false),
    ] {
        let parent = match kind {
            Kind::GraphicsObject => channel,
            _ => DEVICE,
        };
        let object = Alloc {
            kind,
            size: PAGE,
            ..request(CLIENT, parent, MEMORY)
        };
        accounting.alloc(&object).unwrap();
        for (of_other_kind, expected) in [(false, plain), (true, odd)] {
            let map = RmMap {
                of_other_kind,
                ..rm_map_of(RANGE, MEMORY, PAGE)
            };
            let begun = accounting.begin_rm_map(&map);
            assert_eq!(begun.is_ok(), expected, "{kind:?} {of_other_kind}");
            if let Ok(ticket) = begun {
                accounting.end_rm_map(ticket, None);
            }
        }
        // A debugger reads, and UVM maps, memory alone.
        let read = accounting.begin_debug_access(CLIENT, DEVICE, MEMORY);
        assert_eq!(read.is_ok(), is_memory, "{kind:?}");
        if let Ok(ticket) = read {
            accounting.end_named_map(ticket);
        }
        let mapped = made(&mut accounting, FAR, PAGE);
        assert_eq!(mapped.is_ok(), is_memory, "{kind:?}");
        accounting.free(CLIENT, MEMORY);
    }
}

#[test]
fn a_doorbell_is_mapped_by_nobody() {
    let mut accounting = accounting(1 << 30);
    lazy_range(&mut accounting);
    let bell = Alloc {
        kind: Kind::UserMode,
        ..request(CLIENT, DEVICE, MEMORY)
    };
    accounting.alloc(&bell).unwrap();
    let refused = accounting.begin_rm_map(&rm_map_of(RANGE, MEMORY, PAGE));
    assert_eq!(refused.unwrap_err(), RefusalCause::Doorbell);
    assert_eq!(
        made(&mut accounting, FAR, PAGE),
        Err(RefusalCause::Doorbell)
    );
    assert_eq!(overhead(&accounting), 0);
}

#[test]
fn a_debugger_reads_no_place_in_the_fabric() {
    let mut accounting = accounting(1 << 30);
    let place = Alloc {
        kind: Kind::FabricMemory,
        ..request(CLIENT, DEVICE, MEMORY)
    };
    accounting.alloc(&place).unwrap();
    let read = accounting.begin_debug_access(CLIENT, DEVICE, MEMORY);
    assert_eq!(read.err(), Some(RefusalCause::NoMemoryOfIts));
}
