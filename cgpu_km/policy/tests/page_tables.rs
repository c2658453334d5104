// SPDX-License-Identifier: GPL-2.0
//! Page tables are charged: as overhead, as far as contexts do not have them already, up to the limit.

use super::*;
use crate::policy::managed::Entry;

const MEMORY: ObjectHandle = ObjectHandle(0x5c00_0010);
const PAGE: u64 = 4096;
const KIB: u64 = 1 << 10;
const BLOCK: u64 = 2 * MIB;
const FAR: u64 = 0x100_0000_0000;
/// What 4 KiB take that lie far from everything else.
const ALONE: u64 = 16 * KIB;

fn map(base: u64, length: u64) -> Map {
    super::map(GPU, MEMORY, base, length)
}

fn made(books: &mut Books, base: u64, length: u64) -> Result<(), RefusalCause> {
    let ticket = books.begin_map(&map(base, length)).map_err(|r| r.cause)?;
    books.end_map(ticket, true);
    Ok(())
}

fn unmap(books: &mut Books, base: u64, length: u64) {
    let span = Span {
        file: UVM,
        gpu: Some(GPU),
        base,
        last: base + length - 1,
    };
    let mapped = books.mapped(span, books.moment()).unwrap();
    books.unmapped(mapped);
}

fn overhead(books: &Books) -> u64 {
    books.share(GPU).unwrap().overhead
}

fn with_memory(limit: u64) -> Books {
    let mut books = books(limit);
    let request = memory_request(CLIENT, DEVICE, MEMORY, BLOCK);
    books.alloc(&request).unwrap();
    books
}

#[test]
fn thin_mappings_are_charged_until_the_limit_and_credited() {
    let mut books = with_memory(BLOCK + 3 * ALONE);
    // 512 GiB apart they have but the highest table in common.
    let at = |number: u64| FAR + number * (512 << 30);
    assert_eq!(made(&mut books, at(0), PAGE), Ok(()));
    assert_eq!(overhead(&books), ALONE);
    assert_eq!(made(&mut books, at(1), PAGE), Ok(()));
    assert_eq!(overhead(&books), 2 * ALONE - 4 * KIB);
    assert_eq!(made(&mut books, at(2), PAGE), Ok(()));
    let before = books.gpu_share();
    let refused = made(&mut books, at(3), PAGE);
    let (wanted, free) = (12 * KIB, 8 * KIB);
    assert_eq!(refused, Err(RefusalCause::NoMemory { wanted, free }));
    assert_eq!(books.gpu_share().overhead, before.overhead);
    assert_eq!(books.gpu_share().refused, before.refused + 1);
    unmap(&mut books, at(1), PAGE);
    assert_eq!(overhead(&books), 2 * ALONE - 4 * KIB);
    books.close_file(UVM);
    assert_eq!(overhead(&books), 0);
}

#[test]
fn neighbours_share_tables_and_large_pages_need_none_of_their_own() {
    let mut books = with_memory(64 * MIB);
    made(&mut books, FAR, BLOCK).unwrap();
    assert_eq!(overhead(&books), 12 * KIB);
    made(&mut books, FAR + 2 * BLOCK, BLOCK).unwrap();
    assert_eq!(overhead(&books), 12 * KIB);
    made(&mut books, FAR + 4 * BLOCK, PAGE).unwrap();
    assert_eq!(overhead(&books), 16 * KIB);
    made(&mut books, FAR + 4 * BLOCK + PAGE, PAGE).unwrap();
    assert_eq!(overhead(&books), 16 * KIB);
    // Of 64 KiB.
    made(&mut books, FAR + 6 * BLOCK, 64 * KIB).unwrap();
    assert_eq!(overhead(&books), 16 * KIB + 256);
    unmap(&mut books, FAR + 4 * BLOCK, PAGE);
    assert_eq!(overhead(&books), 16 * KIB + 256);
    unmap(&mut books, FAR + 4 * BLOCK + PAGE, PAGE);
    assert_eq!(overhead(&books), 12 * KIB + 256);
    books.close_file(UVM);
    books.close_file(FILE);
    assert!(books.is_idle());
}

#[test]
fn memory_of_small_pages_is_mapped_by_small_pages() {
    for (page, tables) in [
        (PageSize::Small, 24 * KIB),
        (PageSize::Big, 12 * KIB + 3 * 256),
        (PageSize::Huge, 12 * KIB),
    ] {
        let mut books = books(64 * MIB);
        let request = Alloc {
            page,
            ..memory_request(CLIENT, DEVICE, MEMORY, 3 * BLOCK)
        };
        books.alloc(&request).unwrap();
        // Its duplicate is of the same memory.
        let copy = object(0x20);
        books.dup(CLIENT, DEVICE, copy, CLIENT, MEMORY).unwrap();
        let memory = copy;
        let map = Map {
            memory,
            ..map(FAR, 3 * BLOCK)
        };
        let ticket = books.begin_map(&map).unwrap();
        books.end_map(ticket, true);
        assert_eq!(overhead(&books), tables, "{page:?}");
    }
    // And so is what begins in the middle of one.
    let mut books = with_memory(64 * MIB);
    let offset = PAGE;
    let ticket = books
        .begin_map(&Map {
            offset,
            ..map(FAR, BLOCK)
        })
        .unwrap();
    books.end_map(ticket, true);
    assert_eq!(overhead(&books), 16 * KIB);
}

#[test]
fn a_mapping_that_is_refused_leaves_what_it_would_have_taken_parts_of_as_it_was() {
    let mut books = with_memory(BLOCK + 20 * KIB);
    let whole = FAR..FAR + 4 * BLOCK;
    made(&mut books, whole.start, whole.end - whole.start).unwrap();
    assert_eq!(overhead(&books), 12 * KIB);
    // 3 tables of small pages; the one that is split counts alone from then on.
    let refused = made(&mut books, FAR + PAGE, 2 * BLOCK);
    assert!(matches!(refused, Err(RefusalCause::NoMemory { .. })));
    assert_eq!(overhead(&books), 12 * KIB);
    unmap(&mut books, whole.start, whole.end - whole.start);
    assert_eq!(overhead(&books), 0);
    // With room for them.
    books.set_limit(GPU, 64 * MIB);
    made(&mut books, whole.start, whole.end - whole.start).unwrap();
    made(&mut books, FAR + PAGE, 2 * BLOCK).unwrap();
    assert_eq!(overhead(&books), 2 * 12 * KIB + 12 * KIB);
    unmap(&mut books, FAR + PAGE, 2 * BLOCK);
    // Of what was split it is not known what is left.
    assert_eq!(overhead(&books), 12 * KIB);
    books.close_file(UVM);
    assert_eq!(overhead(&books), 0);
}

#[test]
fn contexts_have_some_already() {
    const FIRST: u64 = 9024 * KIB;
    let mut books = with_memory(64 * MIB);
    let group = object(0x30);
    books
        .alloc(&context_request(CLIENT, DEVICE, group))
        .unwrap();
    for number in 0..7 {
        made(&mut books, FAR + number * (512 << 30), PAGE).unwrap();
    }
    // 96 KiB of them.
    assert_eq!(overhead(&books), FIRST);
    made(&mut books, FAR + 7 * (512 << 30), PAGE).unwrap();
    assert_eq!(overhead(&books), FIRST + 4 * KIB);
    books.free(CLIENT, group);
    assert_eq!(overhead(&books), 8 * 12 * KIB + 4 * KIB);
}

#[test]
fn tables_that_come_with_an_object_are_asked_for_and_go_with_it() {
    let mut books = books(64 * KIB);
    let space = |number: u32| Alloc {
        tables: 20 * KIB,
        ..request(CLIENT, DEVICE, object(number))
    };
    let ticket = books.begin_alloc(&space(1)).unwrap();
    let share = books.share(GPU).unwrap();
    assert_eq!((share.overhead, share.reserved), (0, 20 * KIB));
    books.end_alloc(ticket, None);
    assert_eq!(books.share(GPU).unwrap().reserved, 0);
    for number in 1..=3 {
        assert_eq!(books.alloc(&space(number)), Ok(()));
    }
    let refused = books.alloc(&space(4)).unwrap_err().cause;
    let (wanted, free) = (20 * KIB, 4 * KIB);
    assert_eq!(refused, RefusalCause::NoMemory { wanted, free });
    assert_eq!((overhead(&books), books.used(GPU)), (60 * KIB, 0));
    books.free(CLIENT, object(2));
    assert_eq!(overhead(&books), 40 * KIB);
    books.close_file(FILE);
    assert_eq!(overhead(&books), 0);
}

#[test]
fn what_a_context_has_in_its_price_is_given_once() {
    const FIRST: u64 = 9024 * KIB;
    let mut books = with_memory(BLOCK + FIRST);
    books
        .alloc(&context_request(CLIENT, DEVICE, object(0x30)))
        .unwrap();
    assert_eq!(books.share(GPU).unwrap().free(), 0);
    // 96 KiB: an address space that is asked for takes of it what a mapping then has not.
    let space = Alloc {
        tables: 64 * KIB,
        ..request(CLIENT, DEVICE, object(1))
    };
    let ticket = books.begin_alloc(&space).unwrap();
    made(&mut books, FAR, PAGE).unwrap();
    made(&mut books, FAR + (512 << 30), PAGE).unwrap();
    let refused = made(&mut books, FAR + (1 << 40), PAGE);
    assert!(
        matches!(refused, Err(RefusalCause::NoMemory { .. })),
        "{refused:?}"
    );
    let share = books.share(GPU).unwrap();
    assert_eq!((share.free(), share.excess()), (0, 0), "{share:?}");
    books.end_alloc(ticket, None);
    assert_eq!(made(&mut books, FAR + (1 << 40), PAGE), Ok(()));
}

/// Books with managed memory in all that there is room for, on the one GPU of a file.
fn full() -> Books {
    let mut books = books(8 * BLOCK);
    let entered = books.enter_managed(UVM, GPU, &[1; 16]);
    assert!(matches!(entered, Ok(Entry::Ready)));
    books.map_managed(UVM, FAR, 8 * BLOCK).unwrap();
    let share = books.share(GPU).unwrap();
    assert_eq!((share.managed, share.spilled), (7 * BLOCK, BLOCK));
    assert_eq!(share.overhead, 8 * 4352 + 12 * KIB);
    books.told_all(FAR, 8 * BLOCK);
    books
}

impl Books {
    fn gpu_share(&self) -> ShareView {
        self.share(GPU).unwrap()
    }

    fn told_all(&mut self, base: u64, length: u64) {
        while let Some(tell) = self.tell(UVM, base, length, false) {
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
fn what_counts_makes_room_for_the_tables_of_what_is_spilled() {
    let mut books = full();
    let changes = books.over_changes();
    let mut base = FAR + 8 * BLOCK;
    let mut relieved = 0;
    // 2 GiB at a time, with 4.25 MiB of tables.
    for _ in 0..3 {
        books.map_managed(UVM, base, 1024 * BLOCK).unwrap();
        books.told_all(base, 1024 * BLOCK);
        relieved += books.relieved();
        let share = books.share(GPU).unwrap();
        assert_eq!(share.excess(), 0, "{share:?}");
        assert!(share.free() < BLOCK);
        base += 1024 * BLOCK;
    }
    assert_eq!(relieved, 6);
    // There is no more to make room with than that, and nothing was over the limit meanwhile.
    let refused = books.map_managed(UVM, base, 1024 * BLOCK);
    assert!(matches!(
        refused,
        Err(Refusal {
            cause: RefusalCause::NoMemory { .. },
            ..
        })
    ));
    assert_eq!(books.share(GPU).unwrap().managed_refused, 1);
    assert_eq!(books.over_changes(), changes);
    books.unmap_managed(UVM, FAR, base - FAR);
    assert_eq!(overhead(&books), 0);
}

#[test]
fn what_counts_makes_room_for_the_tables_of_mappings() {
    let mut books = full();
    let request = memory_request(CLIENT, DEVICE, MEMORY, BLOCK);
    let demand = books.begin_demand(GPU, BLOCK);
    while let Some(order) = books.make_room(GPU, BLOCK) {
        books.left(order, true);
    }
    books.alloc(&request).unwrap();
    assert!(demand);
    books.end_demand();
    let changes = books.over_changes();
    let free = books.share(GPU).unwrap().free();
    let mut number = 0;
    while books.share(GPU).unwrap().excess() == 0 {
        made(&mut books, 2 * FAR + number * (512 << 30), PAGE).unwrap();
        number += 1;
        assert!(number * 8 * KIB < free + ALONE);
    }
    assert_eq!(books.relieved(), 1);
    assert_eq!(books.over_changes(), changes);
}

#[test]
fn what_the_driver_maps_itself_stays_charged_until_the_file_is_closed() {
    let mut books = books(10 * ALONE);
    let entered = books.enter_managed(UVM, GPU, &[1; 16]);
    assert!(matches!(entered, Ok(Entry::Ready)));
    for number in 1..=10 {
        assert_eq!(books.begin_fixed(UVM, FAR, PAGE), Ok(()));
        assert_eq!(overhead(&books), number * ALONE);
    }
    let refused = books.begin_fixed(UVM, FAR, PAGE).map_err(|r| r.status.0);
    assert_eq!(refused, Err(0x51));
    assert!(books.begin_fixed(UVM, u64::MAX, 2).is_err());
    assert!(books.begin_fixed(UVM, FAR, 0).is_err());
    books.close_file(UVM);
    assert_eq!(overhead(&books), 0);
    // A GPU that comes later has them too.
    books.begin_fixed(UVM, FAR, PAGE).unwrap();
    assert_eq!(overhead(&books), 0);
    let entered = books.enter_managed(UVM, GPU, &[1; 16]);
    assert!(matches!(entered, Ok(Entry::Ready)));
    assert_eq!(overhead(&books), ALONE);
}

const RANGE: ObjectHandle = ObjectHandle(0x5c00_0020);
const COPY: ObjectHandle = ObjectHandle(0x5c00_0021);

/// A range of addresses whose page tables come with what is mapped there.
fn lazy_range(books: &mut Books) {
    let range = Alloc {
        kind: Kind::VirtualMemory,
        ..request(CLIENT, DEVICE, RANGE)
    };
    books.alloc(&range).unwrap();
}

/// The same addresses once more.
fn copy_range(books: &mut Books) {
    let ticket = books
        .begin_dup(CLIENT, DEVICE, COPY, CLIENT, RANGE)
        .unwrap();
    let done = AllocDone {
        object: COPY,
        bytes: 0,
    };
    books.end_alloc(ticket, Some(done));
}

fn rm_map(books: &mut Books, range: ObjectHandle, length: u64) -> Result<(), RefusalCause> {
    let ticket = books.begin_rm_map(CLIENT, range, DEVICE, length);
    ticket
        .map(|ticket| books.end_rm_map(ticket))
        .map_err(|refusal| refusal.cause)
}

#[test]
fn tables_that_rm_makes_for_a_mapping_are_charged_until_the_range_is_gone() {
    let each = tables_of(PAGE);
    let mut books = books(3 * each);
    lazy_range(&mut books);
    assert_eq!(overhead(&books), 0);
    rm_map(&mut books, RANGE, PAGE).unwrap();
    assert_eq!(overhead(&books), each);
    // A copy of the range is the same addresses.
    copy_range(&mut books);
    rm_map(&mut books, COPY, PAGE).unwrap();
    rm_map(&mut books, RANGE, PAGE).unwrap();
    let refused = rm_map(&mut books, COPY, PAGE);
    assert!(matches!(
        refused,
        Err(RefusalCause::NoMemory { free: 0, .. })
    ));
    assert_eq!(overhead(&books), 3 * each);
    books.free(CLIENT, RANGE);
    assert_eq!(overhead(&books), 3 * each);
    books.free(CLIENT, COPY);
    assert_eq!(overhead(&books), 0);
}

#[test]
fn a_copy_made_before_the_first_mapping_keeps_its_tables_charged() {
    let mut books = books(1 << 30);
    lazy_range(&mut books);
    copy_range(&mut books);
    rm_map(&mut books, RANGE, BLOCK).unwrap();
    books.free(CLIENT, RANGE);
    assert_eq!(overhead(&books), tables_of(BLOCK));
    books.close_file(FILE);
    assert_eq!(overhead(&books), 0);
}

#[test]
fn ranges_with_tables_and_what_is_no_range_grow_by_nothing() {
    let mut books = with_memory(1 << 30);
    let range = Alloc {
        kind: Kind::VirtualMemory,
        tables: ALONE,
        ..request(CLIENT, DEVICE, RANGE)
    };
    books.alloc(&range).unwrap();
    for object in [RANGE, MEMORY, DEVICE] {
        rm_map(&mut books, object, BLOCK).unwrap();
    }
    assert_eq!(overhead(&books), ALONE);
    let unknown = rm_map(&mut books, COPY, BLOCK);
    assert_eq!(unknown, Err(RefusalCause::UnknownObject));
}

#[test]
fn a_range_is_not_replaced_while_something_is_mapped_into_it() {
    let mut books = books(1 << 30);
    lazy_range(&mut books);
    books.alloc(&request(CLIENT, DEVICE, COPY)).unwrap();
    let ticket = books.begin_rm_map(CLIENT, RANGE, COPY, PAGE).unwrap();
    for object in [RANGE, COPY] {
        books.free(CLIENT, object);
        let again = books.begin_alloc(&request(CLIENT, DEVICE, object));
        assert!(again.is_err(), "the name was given away");
    }
    books.end_rm_map(ticket);
    books.alloc(&request(CLIENT, DEVICE, RANGE)).unwrap();
}

#[test]
fn a_doorbell_is_mapped_by_nobody() {
    let mut books = books(1 << 30);
    lazy_range(&mut books);
    let bell = Alloc {
        kind: Kind::UserMode,
        ..request(CLIENT, DEVICE, MEMORY)
    };
    books.alloc(&bell).unwrap();
    let refused = books.begin_rm_map(CLIENT, RANGE, MEMORY, PAGE);
    assert_eq!(refused.unwrap_err().cause, RefusalCause::Doorbell);
    assert_eq!(made(&mut books, FAR, PAGE), Err(RefusalCause::Doorbell));
    assert_eq!(overhead(&books), 0);
}
