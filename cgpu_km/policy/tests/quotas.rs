// SPDX-License-Identifier: GPL-2.0
//! Limits of clients, objects, events, BAR1, host memory, files and mappings.

use super::*;

const OBJECT: ObjectHandle = ObjectHandle(0x5c00_0100);

fn used(accounting: &Accounting, gpu: GpuId, what: Limited) -> u64 {
    accounting.limit_of(gpu, what).unwrap().used
}

fn event_request(parent: ObjectHandle, object: ObjectHandle) -> Alloc {
    Alloc {
        kind: Kind::Event,
        ..request(CLIENT, parent, object)
    }
}

fn refused(what: Limited) -> Result<(), RefusalCause> {
    Err(RefusalCause::LimitReached(what))
}

#[test]
fn objects_stop_at_their_limit() {
    let mut accounting = accounting(64 * MIB);
    let set = accounting.set_limit_of(GPU, Limited::Objects, Some(3));
    assert_eq!(set, Ok(()));
    assert_eq!(accounting.memory(OBJECT, MIB), Ok(()));
    assert_eq!(accounting.child(DEVICE, object(1)), Ok(()));
    let fourth = accounting.memory(object(2), MIB);
    assert_eq!(fourth, refused(Limited::Objects));
    // Its reservation was given back.
    assert_eq!(accounting.share(GPU).unwrap().reserved, 0);
    let dup = accounting.dup(CLIENT, DEVICE, object(2), CLIENT, OBJECT);
    assert_eq!(dup, refused(Limited::Objects));
    accounting.free(CLIENT, OBJECT);
    assert_eq!(accounting.memory(object(2), MIB), Ok(()));
    let view = accounting.limit_of(GPU, Limited::Objects).unwrap();
    assert_eq!((view.used, view.limit, view.refused), (3, 3, 2));
}

#[test]
fn an_object_that_is_still_coming_counts() {
    let mut accounting = accounting(64 * MIB);
    let set = accounting.set_limit_of(GPU, Limited::Objects, Some(2));
    assert_eq!(set, Ok(()));
    let first = request(CLIENT, DEVICE, OBJECT);
    let ticket = accounting.begin_alloc(&first).unwrap();
    assert_eq!(
        accounting.child(DEVICE, object(1)),
        refused(Limited::Objects)
    );
    accounting.end_alloc(ticket, None);
    assert_eq!(accounting.child(DEVICE, object(1)), Ok(()));
}

#[test]
fn an_event_is_an_object_as_well() {
    let mut accounting = accounting(64 * MIB);
    let set = accounting.set_limit_of(GPU, Limited::Events, Some(1));
    assert_eq!(set, Ok(()));
    assert_eq!(accounting.alloc(&event_request(DEVICE, OBJECT)), Ok(()));
    let second = accounting.alloc(&event_request(DEVICE, object(1)));
    assert_eq!(second, refused(Limited::Events));
    assert_eq!(used(&accounting, GPU, Limited::Objects), 2);
    accounting.free(CLIENT, DEVICE);
    for what in Limited::ALL {
        let left = u64::from(what == Limited::Clients);
        assert_eq!(used(&accounting, GPU, what), left, "{what:?}");
    }
}

/// The driver makes a client for each.
#[test]
fn debugger_session_is_a_client_as_well() {
    let mut accounting = accounting(64 * MIB);
    let before = used(&accounting, GPU, Limited::Clients);
    let set = accounting.set_limit_of(GPU, Limited::Clients, Some(before + 1));
    assert_eq!(set, Ok(()));
    let session = |object| Alloc {
        kind: Kind::Debugger,
        ..request(CLIENT, DEVICE, object)
    };
    assert_eq!(accounting.alloc(&session(OBJECT)), Ok(()));
    let second = accounting.alloc(&session(object(1)));
    assert_eq!(second, refused(Limited::Clients));
    accounting.free(CLIENT, OBJECT);
    assert_eq!(accounting.alloc(&session(object(1))), Ok(()));
}

#[test]
fn what_is_on_no_gpu_counts_on_each() {
    let mut accounting = accounting(64 * MIB);
    accounting.add_share(OTHER_GPU, 64 * MIB).unwrap();
    let set = accounting.set_limit_of(OTHER_GPU, Limited::Clients, Some(2));
    assert_eq!(set, Ok(()));
    accounting.client(ClientHandle(0xc1d0_0020), FILE, PROCESS);
    let third = accounting.begin_alloc(&client_request(FILE, PROCESS));
    assert_eq!(third.map(drop), refused(Limited::Clients));
    // Below the client itself.
    let root = ObjectHandle(CLIENT.0);
    assert_eq!(accounting.alloc(&event_request(root, OBJECT)), Ok(()));
    let counts = [GPU, OTHER_GPU].map(|gpu| used(&accounting, gpu, Limited::Objects));
    assert_eq!(counts, [2, 1]);
    accounting.close_file(FILE);
    assert!(accounting.is_idle());
}

/// Accounting on a GPU with a small BAR1, and two pieces of memory.
fn with_bar1() -> Accounting {
    let mut accounting = accounting(16 << 30);
    let size = GpuSize {
        max_instances: 16,
        memory: 16 << 30,
        bar1: 256 * MIB,
        host: 16 << 30,
        exports: 1 << 18,
    };
    accounting.set_size(GPU, size).unwrap();
    let set = accounting.set_limit_of(GPU, Limited::Bar1, Some(5 * MIB));
    assert_eq!(set, Ok(()));
    for handle in [OBJECT, object(2)] {
        let memory = Alloc {
            page: PageSize::Huge,
            ..memory_request(CLIENT, DEVICE, handle, 2 * MIB)
        };
        accounting.alloc(&memory).unwrap();
    }
    accounting
}

#[test]
fn mappings_take_bar1_until_their_object_is_gone() {
    let mut accounting = with_bar1();
    let mut map = |memory, file, part| accounting.begin_cpu_map(CLIENT, memory, FileId(file), part);
    assert_eq!(map(OBJECT, 1, (0, 2 * MIB)), Ok(false));
    assert_eq!(map(OBJECT, 2, (0, 2 * MIB)), Ok(false));
    let third = map(OBJECT, 3, (0, 2 * MIB));
    assert_eq!(third.map(|_| ()), refused(Limited::Bar1));
    // The file that is prepared shows no more than before.
    assert_eq!(map(OBJECT, 1, (4096, 4096)), Ok(false));
    // A page of 64 KiB.
    assert_eq!(map(object(2), 4, (4096, 4096)), Ok(false));
    assert_eq!(used(&accounting, GPU, Limited::Bar1), 4 * MIB + (64 << 10));
    // Files and unmappings are no end of it.
    for file in [1, 2, 3, 4] {
        accounting.close_file(FileId(file));
    }
    let ticket = accounting.begin_cpu_unmap(CLIENT, OBJECT).unwrap();
    accounting.end_free(ticket, false);
    assert_eq!(used(&accounting, GPU, Limited::Bar1), 4 * MIB + (64 << 10));
    accounting.free(CLIENT, OBJECT);
    assert_eq!(used(&accounting, GPU, Limited::Bar1), 64 << 10);
    accounting.free(CLIENT, DEVICE);
    assert_eq!(used(&accounting, GPU, Limited::Bar1), 0);
}

#[test]
fn a_copy_takes_bar1_of_its_own() {
    let mut accounting = with_bar1();
    let whole = (0, 2 * MIB);
    let first = accounting.begin_cpu_map(CLIENT, OBJECT, FileId(1), whole);
    assert_eq!(first, Ok(false));
    let copied = accounting.dup(CLIENT, DEVICE, object(3), CLIENT, OBJECT);
    assert_eq!(copied, Ok(()));
    assert_eq!(used(&accounting, GPU, Limited::Bar1), 2 * MIB);
    let second = accounting.begin_cpu_map(CLIENT, object(3), FileId(2), whole);
    assert_eq!(second, Ok(false));
    assert_eq!(used(&accounting, GPU, Limited::Bar1), 4 * MIB);
    accounting.shown_by_clients_of(FILE, &mut 0);
    accounting.end_shown(FileId(1));
    accounting.end_shown(FileId(2));
    accounting.free(CLIENT, object(3));
    assert_eq!(used(&accounting, GPU, Limited::Bar1), 2 * MIB);
}

#[test]
fn mappings_for_the_kernel_take_bar1() {
    let mut accounting = with_bar1();
    let range = Alloc {
        kind: Kind::VirtualMemory,
        ..request(CLIENT, DEVICE, object(3))
    };
    accounting.alloc(&range).unwrap();
    let host = host_request(CLIENT, DEVICE, object(4), 2 * MIB);
    accounting.alloc(&host).unwrap();
    let mut map = |memory, offset, for_kernel| {
        let map = RmMap {
            client: CLIENT,
            device: DEVICE,
            range: object(3),
            memory,
            offset,
            length: 4096,
            for_kernel,
            of_other_kind: false,
        };
        let begun = accounting.begin_rm_map(&map);
        let begun = begun.map(|ticket| accounting.end_rm_map(ticket, None));
        (begun, used(&accounting, GPU, Limited::Bar1))
    };
    let page = 64 << 10;
    assert_eq!(map(OBJECT, 4096, false), (Ok(()), 0));
    assert_eq!(map(object(4), 4096, true), (Ok(()), 0), "host memory");
    for times in 1..=80 {
        assert_eq!(map(OBJECT, 4096, true), (Ok(()), times * page));
    }
    let full = refused(Limited::Bar1);
    assert_eq!(map(OBJECT, 4096, true), (full, 5 * MIB), "the limit");
    assert_eq!(map(OBJECT, 4096, false), (Ok(()), 5 * MIB));
    accounting.free(CLIENT, OBJECT);
    assert_eq!(used(&accounting, GPU, Limited::Bar1), 0);
}

#[test]
fn keys_of_events_count_until_they_are_gone() {
    let mut accounting = accounting(64 * MIB);
    let set = accounting.set_limit_of(GPU, Limited::Files, Some(2));
    assert_eq!(set, Ok(()));
    assert_eq!(accounting.begin_os_event(CLIENT, 5, FILE), Ok(()));
    let again = accounting.begin_os_event(CLIENT, 5, FILE);
    assert_eq!(again, Err(RefusalCause::KeyTaken));
    // Nobody frees what is still coming.
    assert!(!accounting.begin_os_event_free(CLIENT, 5));
    accounting.end_os_event(CLIENT, 5, Some(true));
    assert!(accounting.begin_os_event_free(CLIENT, 5));
    assert!(!accounting.begin_os_event_free(CLIENT, 5));
    accounting.end_os_event_free(CLIENT, 5, true);
    assert!(!accounting.begin_os_event_free(CLIENT, 5));
    assert_eq!(used(&accounting, GPU, Limited::Files), 0);
    // A key that the driver is said to have refused may exist, and may be asked for again.
    assert_eq!(accounting.begin_os_event(CLIENT, 5, FILE), Ok(()));
    accounting.end_os_event(CLIENT, 5, Some(false));
    assert!(!accounting.begin_os_event_free(CLIENT, 5));
    assert_eq!(accounting.begin_os_event(CLIENT, 5, FILE), Ok(()));
    accounting.end_os_event(CLIENT, 5, Some(true));
    assert_eq!(accounting.begin_os_event(CLIENT, 6, UVM), Ok(()));
    accounting.end_os_event(CLIENT, 6, Some(true));
    let third = accounting.begin_os_event(CLIENT, 7, FILE);
    assert_eq!(third, refused(Limited::Files));
    accounting.close_file(UVM);
    assert_eq!(used(&accounting, GPU, Limited::Files), 1);
    assert_eq!(accounting.begin_os_event(CLIENT, 7, FILE), Ok(()));
    // A call that the driver did not get leaves nothing.
    accounting.end_os_event(CLIENT, 7, None);
    accounting.close_file(FILE);
    assert!(accounting.is_idle());
}

#[test]
fn surface_over_host_memory_takes_host_memory() {
    let mut accounting = with_host(5 * MIB);
    let surface = |first, second| Alloc {
        kind: Kind::SemaphoreSurface,
        uses: [Some(object(first)), Some(object(second))],
        ..request(CLIENT, DEVICE, object(20))
    };
    for handle in [7, 8] {
        let page = Alloc {
            size: 4096,
            ..host_request(CLIENT, DEVICE, object(handle), 4096)
        };
        accounting.alloc(&page).unwrap();
    }
    accounting.alloc(&surface(7, 7)).unwrap();
    accounting.free(CLIENT, object(7));
    let held = |accounting: &Accounting| used(accounting, GPU, Limited::HostMemory);
    assert_eq!(held(&accounting), 4096 + 2 * MIB);
    assert_eq!(accounting.used(GPU), 0);
    accounting.free(CLIENT, object(20));
    assert_eq!(held(&accounting), 4096);
    // Each of two counts, and what is video memory as host memory too, beside such.
    accounting.memory(object(7), 4096).unwrap();
    accounting.alloc(&surface(7, 8)).unwrap();
    assert_eq!(held(&accounting), 4096 + 4 * MIB);
    assert_eq!(accounting.used(GPU), 4096);
    let second = Alloc {
        object: object(21),
        ..surface(8, 8)
    };
    let full = refused(Limited::HostMemory);
    assert_eq!(accounting.alloc(&second), full);
}

/// Accounting with room for so much host memory.
fn with_host(bytes: u64) -> Accounting {
    let mut accounting = accounting(64 * MIB);
    let set = accounting.set_limit_of(GPU, Limited::HostMemory, Some(bytes));
    assert_eq!(set, Ok(()));
    accounting
}

fn host(accounting: &mut Accounting, object: ObjectHandle, bytes: u64) -> Result<(), RefusalCause> {
    accounting.alloc(&host_request(CLIENT, DEVICE, object, bytes))
}

#[test]
fn host_memory_stops_at_its_limit() {
    let mut accounting = with_host(5 * MIB);
    assert_eq!(host(&mut accounting, OBJECT, 3 * MIB), Ok(()));
    let second = host(&mut accounting, object(1), 3 * MIB);
    assert_eq!(second, refused(Limited::HostMemory));
    assert_eq!(host(&mut accounting, object(1), 2 * MIB), Ok(()));
    // A copy keeps it.
    let dup = accounting.dup(CLIENT, DEVICE, object(2), CLIENT, OBJECT);
    assert_eq!(dup, Ok(()));
    accounting.free(CLIENT, OBJECT);
    assert_eq!(used(&accounting, GPU, Limited::HostMemory), 5 * MIB);
    accounting.free(CLIENT, object(2));
    assert_eq!(used(&accounting, GPU, Limited::HostMemory), 2 * MIB);
    let view = accounting.limit_of(GPU, Limited::HostMemory).unwrap();
    assert_eq!((view.limit, view.refused), (5 * MIB, 1));
    assert_eq!(accounting.share(GPU).unwrap().used, 0);
    accounting.close_file(FILE);
    assert!(accounting.is_idle());
}

#[test]
fn host_memory_that_a_file_shows_stays_charged() {
    const SHOWS: FileId = FileId(77);
    let mut accounting = with_host(5 * MIB);
    assert_eq!(host(&mut accounting, OBJECT, 3 * MIB), Ok(()));
    let mapped = accounting.begin_cpu_map(CLIENT, OBJECT, SHOWS, (0, MIB));
    assert_eq!(mapped, Ok(false));
    // Once, however often it is asked for.
    let again = accounting.begin_cpu_map(CLIENT, OBJECT, SHOWS, (0, MIB));
    assert_eq!(again, Ok(false));
    let ticket = accounting.begin_free(CLIENT, OBJECT, None).unwrap();
    accounting.end_shown(SHOWS);
    accounting.end_free(ticket, true);
    assert_eq!(used(&accounting, GPU, Limited::HostMemory), 3 * MIB);
    assert!(!accounting.is_idle());
    accounting.close_file(SHOWS);
    assert_eq!(used(&accounting, GPU, Limited::HostMemory), 0);
    accounting.close_file(FILE);
    assert!(accounting.is_idle());
}

#[test]
fn semaphore_pools_count_on_each_gpu_until_close() {
    const UVM: FileId = FileId(78);
    const BASE: u64 = 1 << 40;
    let mut accounting = with_host(5 * MIB);
    accounting.add_share(OTHER_GPU, 64 * MIB).unwrap();
    let mut pool = |number: u64| {
        let base = BASE + number * 16 * MIB;
        let ticket = accounting.begin_fixed(UVM, base, 2 * MIB, FixedKind::SemaphorePool)?;
        accounting.end_fixed(ticket);
        Ok(())
    };
    assert_eq!([pool(0), pool(0), pool(1)], [Ok(()), Ok(()), Ok(())]);
    assert_eq!(pool(2), refused(Limited::HostMemory));
    for gpu in [GPU, OTHER_GPU] {
        assert_eq!(used(&accounting, gpu, Limited::HostMemory), 4 * MIB);
    }
    accounting.close_file(UVM);
    for gpu in [GPU, OTHER_GPU] {
        assert_eq!(used(&accounting, gpu, Limited::HostMemory), 0);
    }
}

#[test]
fn pools_are_small_and_few() {
    const UVM: FileId = FileId(78);
    const BASE: u64 = 1 << 40;
    let mut accounting = accounting(u64::MAX);
    let mut pool = |number: u64, bytes: u64| {
        let base = BASE + number * 64 * MIB;
        let ticket = accounting.begin_fixed(UVM, base, bytes, FixedKind::SemaphorePool);
        ticket.map(|ticket| accounting.end_fixed(ticket)).is_ok()
    };
    assert!(!pool(0, 32 * MIB + 4096));
    assert!((0..32).all(|number| pool(number, 32 * MIB)));
    assert!(pool(0, 32 * MIB) && !pool(33, 4096));
}

#[test]
fn files_of_common_nodes_count_on_each_gpu() {
    let mut accounting = accounting(64 * MIB);
    accounting.add_share(OTHER_GPU, 64 * MIB).unwrap();
    for gpu in [GPU, OTHER_GPU] {
        let set = accounting.set_limit_of(gpu, Limited::Files, Some(2));
        assert_eq!(set, Ok(()));
    }
    assert_eq!(accounting.enter(None, Limited::Files), Ok(()));
    assert_eq!(accounting.enter(Some(GPU), Limited::Files), Ok(()));
    assert_eq!(
        accounting.enter(Some(GPU), Limited::Files),
        Err(RefusalCause::LimitReached(Limited::Files))
    );
    assert_eq!(
        accounting.enter(None, Limited::Files),
        Err(RefusalCause::LimitReached(Limited::Files))
    );
    assert_eq!(accounting.enter(Some(OTHER_GPU), Limited::Files), Ok(()));
    let views = [GPU, OTHER_GPU].map(|gpu| accounting.limit_of(gpu, Limited::Files).unwrap());
    assert_eq!(
        views.map(|view| (view.used, view.refused)),
        [(2, 2), (2, 0)]
    );
    for gpu in [None, Some(GPU), Some(OTHER_GPU)] {
        accounting.leave(gpu, Limited::Files);
    }
    let left = [GPU, OTHER_GPU].map(|gpu| used(&accounting, gpu, Limited::Files));
    assert_eq!(left, [0, 0]);
}

#[test]
fn mappings_outlive_their_share() {
    let mut accounting = accounting(64 * MIB);
    let set = accounting.set_limit_of(GPU, Limited::Mappings, Some(1));
    assert_eq!(set, Ok(()));
    assert_eq!(accounting.enter(Some(GPU), Limited::Mappings), Ok(()));
    assert_eq!(
        accounting.enter(Some(GPU), Limited::Mappings),
        Err(RefusalCause::LimitReached(Limited::Mappings))
    );
    // A fork cannot be refused.
    accounting.enter_always(GPU, Limited::Mappings);
    let view = accounting.limit_of(GPU, Limited::Mappings).unwrap();
    assert_eq!((view.used, view.refused), (2, 1));
    assert_eq!(
        accounting.enter(Some(OTHER_GPU), Limited::Mappings),
        Err(RefusalCause::NoSuchGpu)
    );
    accounting.close_file(FILE);
    accounting.remove_share(GPU);
    accounting.leave(Some(GPU), Limited::Mappings);
    accounting.add_share(GPU, 64 * MIB).unwrap();
    assert_eq!(used(&accounting, GPU, Limited::Mappings), 1);
    accounting.leave(Some(GPU), Limited::Mappings);
    assert!(accounting.is_idle());
}
