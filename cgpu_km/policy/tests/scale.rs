// SPDX-License-Identifier: GPL-2.0
//! How work grows with the number of objects, counted in steps instead of time.

use super::{
    super::{
        charge::Accounts,
        object::Object,
        records::Named, //
    },
    *, //
};

#[test]
fn records_of_an_object_stay_small() {
    // With an entry of the table, 16 bytes of which at least three eighths are taken, and what
    // lists have in reserve: less than 200 bytes for each of very many.
    assert_eq!(Named::<Object>::BYTES, 64);
    assert_eq!(Accounts::BYTES, 28 + 16);
}

const OBJECTS: u32 = 100_000;

#[test]
fn events_take_few_steps_among_100_000_objects() {
    let mut accounting = accounting(u64::MAX);
    let ((), steps) = steps::of(|| {
        for number in 0..OBJECTS {
            let handle = object(0x6000_0000 + number);
            accounting.memory(handle, 1).unwrap();
        }
    });
    assert_eq!(accounting.used(GPU), u64::from(OBJECTS));
    // Looking up client, parent and new handle, entering it, and the tables' growth.
    assert!(steps < 30 * u64::from(OBJECTS), "{steps} steps to allocate");

    let ((), steps) = steps::of(|| {
        for number in 0..OBJECTS {
            let handle = object(0x6000_0000 + number);
            assert_eq!(accounting.gpu_of(CLIENT, handle), Some(GPU));
        }
    });
    assert!(steps < 4 * u64::from(OBJECTS), "{steps} steps to look up");

    // One object in the midst of the others.
    let ((), steps) = steps::of(|| accounting.free(CLIENT, object(0x6000_0000 + OBJECTS / 2)));
    assert!(steps < 100, "{steps} steps to free one");

    let other = ClientHandle(0xc1d0_0020);
    accounting.client(other, FileId(12), PROCESS);
    accounting.device(other, DEVICE, GPU).unwrap();
    accounting
        .dup(other, DEVICE, object(7), CLIENT, object(0x6000_0000))
        .unwrap();
    let ((), steps) = steps::of(|| accounting.free(CLIENT, DEVICE));
    assert!(steps < 20 * u64::from(OBJECTS), "{steps} steps to free all");
    assert_eq!(accounting.used(GPU), 1);
    let ((), steps) = steps::of(|| accounting.close_file(FileId(12)));
    assert!(steps < 100, "{steps} steps to close a file of two objects");
    accounting.close_file(FILE);
    assert!(accounting.is_idle());
}

#[test]
fn chain_of_100_000_is_freed_without_recursion() {
    // The driver's depth ends at 6; the accounting needs no such bound.
    let mut accounting = accounting(u64::MAX);
    let mut parent = DEVICE;
    for number in 0..OBJECTS {
        let handle = object(0x6000_0000 + number);
        accounting.child(parent, handle).unwrap();
        parent = handle;
    }
    let ((), steps) = steps::of(|| accounting.free(CLIENT, DEVICE));
    assert!(steps < 20 * u64::from(OBJECTS), "{steps} steps");
    assert_eq!(accounting.kind_of(CLIENT, parent), None);
    accounting.close_file(FILE);
    assert!(accounting.is_idle());
}

#[test]
fn file_of_10_000_mappings_is_released_linearly() {
    const FILES: u32 = 10_000;
    let mut accounting = accounting(u64::MAX);
    for number in 0..FILES {
        let handle = object(0x6000_0000 + number);
        accounting.memory(handle, 1).unwrap();
        let file = FileId(1000 + u64::from(number));
        accounting
            .begin_cpu_map(CLIENT, handle, file, (0, 1))
            .unwrap();
    }
    let (ended, steps) = steps::of(|| {
        let (mut at, mut ended) = (0, 0);
        while let Some(file) = accounting.shown_by_clients_of(FILE, &mut at) {
            accounting.end_shown(file);
            ended += 1;
        }
        ended
    });
    assert_eq!(ended, FILES);
    assert!(steps < 100 * u64::from(FILES), "{steps} steps");
    accounting.close_file(FILE);
    assert!(accounting.is_idle());
}

#[test]
fn a_thousand_processes_come_and_go() {
    let mut accounting = Accounting::new(0);
    accounting.add_share(GPU, u64::MAX).unwrap();
    for number in 0..1000 {
        let client = ClientHandle(0xc1d0_0000 + number);
        let process = ProcessId(i32::try_from(number).unwrap());
        accounting.client(client, FileId(u64::from(number)), process);
        accounting.device(client, DEVICE, GPU).unwrap();
        let bytes = u64::from(number) + 1;
        accounting
            .alloc(&memory_request(client, DEVICE, object(7), bytes))
            .unwrap();
    }
    let held = accounting.held(GPU);
    assert_eq!(held.len(), 1000);
    assert_eq!(held.iter().map(|(_, bytes)| bytes).sum::<u64>(), 500_500);
    let ((), steps) = steps::of(|| {
        for number in 0..1000 {
            accounting.close_file(FileId(number));
        }
    });
    assert!(steps < 50_000, "{steps} steps");
    assert!(accounting.is_idle());
}
