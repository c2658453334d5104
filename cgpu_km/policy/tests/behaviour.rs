// SPDX-License-Identifier: GPL-2.0
//! The accounting's behaviour, one sentence at a time.

use super::*;
use crate::nvidia::status::NvStatus;

const OK: NvStatus = NvStatus::NV_OK;
const INSERT_DUPLICATE_NAME: NvStatus = NvStatus::NV_ERR_INSERT_DUPLICATE_NAME;
const INSUFFICIENT_PERMISSIONS: NvStatus = NvStatus::NV_ERR_INSUFFICIENT_PERMISSIONS;
const INVALID_ARGUMENT: NvStatus = NvStatus::NV_ERR_INVALID_ARGUMENT;
const INVALID_OBJECT_HANDLE: NvStatus = NvStatus::NV_ERR_INVALID_OBJECT_HANDLE;
const INVALID_OBJECT_PARENT: NvStatus = NvStatus::NV_ERR_INVALID_OBJECT_PARENT;
const NO_MEMORY: NvStatus = NvStatus::NV_ERR_NO_MEMORY;
const OBJECT_NOT_FOUND: NvStatus = NvStatus::NV_ERR_OBJECT_NOT_FOUND;

fn status(result: Result<(), RefusalCause>) -> NvStatus {
    result.map_or_else(RefusalCause::status, |()| NvStatus::NV_OK)
}

#[test]
fn memory_beyond_the_limit_is_refused_with_0x51() {
    for (bytes, expected) in [(MIB - 1, OK), (MIB, OK), (MIB + 1, NO_MEMORY)] {
        let mut accounting = accounting(MIB);
        let result = accounting.memory(object(7), bytes);
        assert_eq!(status(result), expected, "{bytes} of {MIB}");
        let share = accounting.share(GPU).unwrap();
        let granted = if expected == OK { bytes } else { 0 };
        assert_eq!((share.used, share.reserved), (granted, 0));
        assert_eq!(share.refused, u64::from(expected != OK));
        assert_eq!(accounting.fb_view(GPU).unwrap().free, MIB - granted);
    }
}

#[test]
fn refusal_tells_wanted_and_free_bytes() {
    let mut accounting = accounting(10);
    accounting.memory(object(7), 4).unwrap();
    let refusal = accounting
        .begin_alloc(&memory_request(CLIENT, DEVICE, object(8), 7))
        .unwrap_err();
    assert_eq!(refusal.status(), NvStatus::NV_ERR_NO_MEMORY);
    let expected = RefusalCause::NoMemory { wanted: 7, free: 6 };
    assert_eq!(refusal, expected);
}

#[test]
fn context_is_charged_its_overhead_beside_objects() {
    const FIRST: u64 = 7744 << 10;
    const FURTHER: u64 = 4416 << 10;
    for (limit, expected) in [
        (FIRST - 1, NO_MEMORY),
        (FIRST, OK),
        (FIRST + FURTHER - 1, OK),
    ] {
        let mut accounting = accounting(limit);
        let result = accounting.context(object(7));
        assert_eq!(status(result), expected);
        if expected == OK {
            let share = accounting.share(GPU).unwrap();
            assert_eq!((share.used, share.peak), (0, 0));
            assert_eq!(share.overhead, FIRST);
            assert_eq!(accounting.fb_view(GPU).unwrap().free, limit - FIRST);
            let further = accounting.context(object(8));
            assert_eq!(status(further), NO_MEMORY);
            accounting.set_limit(GPU, FIRST + FURTHER).unwrap();
            let further = accounting.context(object(8));
            assert_eq!(status(further), OK);
            assert_eq!(accounting.share(GPU).unwrap().overhead, FIRST + FURTHER);
            // Whichever goes first, what is taken once stays.
            accounting.free(CLIENT, object(7));
            assert_eq!(accounting.share(GPU).unwrap().overhead, FIRST);
            accounting.free(CLIENT, object(8));
            assert_eq!(accounting.share(GPU).unwrap().overhead, 0);
            let peak = accounting.share(GPU).unwrap().overhead_peak;
            assert_eq!(peak, FIRST + FURTHER);
        }
    }
}

#[test]
fn memory_in_flight_cannot_be_had_twice() {
    let mut accounting = accounting(MIB);
    let first = memory_request(CLIENT, DEVICE, object(7), MIB);
    let second = memory_request(CLIENT, DEVICE, object(8), 1);
    let ticket = accounting.begin_alloc(&first).unwrap();
    assert_eq!(accounting.share(GPU).unwrap().reserved, MIB);
    assert_eq!(status(accounting.alloc(&second)), NO_MEMORY);
    accounting.end_alloc(ticket, None);
    assert_eq!(accounting.share(GPU).unwrap().reserved, 0);
    assert_eq!(accounting.kind_of(CLIENT, object(7)), None);
    accounting.alloc(&second).unwrap();
    assert_eq!(accounting.used(GPU), 1);
}

#[test]
fn returned_size_never_lowers_a_charge() {
    let mut accounting = accounting(MIB);
    for (told, charged) in [(0, 100), (99, 100), (100, 100), (101, 101)] {
        let ticket = accounting
            .begin_alloc(&memory_request(CLIENT, DEVICE, object(7), 100))
            .unwrap();
        accounting.end_alloc(ticket, done(object(7), told));
        assert_eq!(accounting.used(GPU), charged);
        accounting.free(CLIENT, object(7));
        assert_eq!(accounting.used(GPU), 0);
    }
    assert_eq!(accounting.share(GPU).unwrap().peak, 101);
}

#[test]
fn memory_without_size_is_charged_as_returned() {
    let mut accounting = accounting(MIB);
    let ticket = accounting
        .begin_alloc(&memory_request(CLIENT, DEVICE, object(7), 0))
        .unwrap();
    accounting.end_alloc(ticket, done(object(7), 2 * MIB));
    assert_eq!(accounting.used(GPU), 2 * MIB);
    let more = memory_request(CLIENT, DEVICE, object(8), 1);
    assert_eq!(status(accounting.alloc(&more)), NO_MEMORY);
    accounting.free(CLIENT, object(7));
    assert_eq!(accounting.used(GPU), 0);
}

#[test]
fn an_object_goes_with_any_of_its_ancestors() {
    let (subdevice, group, channel) = (object(3), object(4), object(5));
    for gone in [channel, group, subdevice, DEVICE, object(CLIENT.0)] {
        let mut accounting = accounting(MIB);
        accounting.child(DEVICE, subdevice).unwrap();
        accounting.child(subdevice, group).unwrap();
        accounting
            .alloc(&memory_request(CLIENT, group, channel, 100))
            .unwrap();
        accounting.memory(object(9), 1).unwrap();
        assert_eq!(accounting.gpu_of(CLIENT, channel), Some(GPU));
        accounting.free(CLIENT, gone);
        assert_eq!(accounting.kind_of(CLIENT, channel), None);
        let left = u64::from(gone != DEVICE && gone.0 != CLIENT.0);
        assert_eq!(accounting.used(GPU), left);
        assert_eq!(accounting.owns_client(CLIENT), gone.0 != CLIENT.0);
        accounting.close_file(FILE);
        assert!(accounting.is_idle());
    }
}

#[test]
fn closed_file_ends_its_own_clients_alone() {
    let mut accounting = accounting(MIB);
    let other = ClientHandle(0xc1d0_0020);
    accounting.client(other, FileId(12), PROCESS);
    accounting.client(ClientHandle(0xc1d0_0021), FILE, PROCESS);
    accounting.device(other, DEVICE, GPU).unwrap();
    for client in [CLIENT, other] {
        accounting
            .alloc(&memory_request(client, DEVICE, object(7), 100))
            .unwrap();
    }
    assert_eq!(accounting.share(GPU).unwrap().clients, 2);
    accounting.close_file(FILE);
    assert_eq!(accounting.used(GPU), 100);
    assert!(!accounting.owns_client(CLIENT));
    assert!(!accounting.owns_client(ClientHandle(0xc1d0_0021)));
    assert_eq!(accounting.client_file(other), Some(FileId(12)));
    assert_eq!(accounting.share(GPU).unwrap().clients, 1);
    accounting.close_file(FileId(12));
    assert!(accounting.is_idle());
    accounting.close_file(FileId(13));
}

#[test]
fn duplicates_are_charged_once_until_the_last() {
    let other = ClientHandle(0xc1d0_0020);
    for (first, second) in [(CLIENT, other), (other, CLIENT)] {
        let mut accounting = accounting(MIB);
        accounting.client(other, FileId(12), ProcessId(2000));
        accounting.device(other, DEVICE, GPU).unwrap();
        accounting.memory(object(7), 100).unwrap();
        accounting
            .dup(other, DEVICE, object(8), CLIENT, object(7))
            .unwrap();
        accounting
            .dup(CLIENT, DEVICE, object(9), other, object(8))
            .unwrap();
        assert_eq!(accounting.used(GPU), 100);
        assert_eq!(accounting.held(GPU), [(1000, 100)]);
        assert_eq!(
            accounting.kind_of(other, object(8)),
            Some(Kind::VideoMemory)
        );
        accounting.free(first, object(first.0));
        assert_eq!(accounting.used(GPU), 100);
        let holder = if second == CLIENT { 1000 } else { 2000 };
        assert_eq!(accounting.held(GPU), [(holder, 100)]);
        accounting.free(second, object(second.0));
        assert!(accounting.is_idle());
    }
}

#[test]
fn memory_in_the_fabric_stays_charged() {
    let fabric = |object| Alloc {
        class: ClassId(0xf8),
        kind: Kind::FabricMemory,
        ..request(CLIENT, DEVICE, object)
    };
    let mut accounting = accounting(MIB);
    accounting.memory(object(7), 100).unwrap();
    let refused = |accounting: &mut Accounting, memory| {
        let begun = accounting.begin_fabric(&fabric(object(20)), memory);
        begun.unwrap_err()
    };
    assert_eq!(
        refused(&mut accounting, object(5)),
        RefusalCause::UnknownObject
    );
    assert_eq!(refused(&mut accounting, DEVICE), RefusalCause::WrongClass);
    // One that the driver refuses leaves nothing.
    let ticket = accounting
        .begin_fabric(&fabric(object(8)), object(7))
        .unwrap();
    assert_eq!(refused(&mut accounting, object(7)), RefusalCause::InFabric);
    accounting.end_alloc(ticket, None);
    let ticket = accounting
        .begin_fabric(&fabric(object(8)), object(7))
        .unwrap();
    accounting.end_alloc(ticket, done(object(8), 0));
    // Under whatever name: a copy of the memory, or of its place.
    accounting
        .dup(CLIENT, DEVICE, object(9), CLIENT, object(7))
        .unwrap();
    accounting
        .dup(CLIENT, DEVICE, object(10), CLIENT, object(8))
        .unwrap();
    assert_eq!(refused(&mut accounting, object(9)), RefusalCause::InFabric);
    assert_eq!(
        refused(&mut accounting, object(8)),
        RefusalCause::WrongClass
    );
    accounting.free(CLIENT, object(8));
    assert_eq!(refused(&mut accounting, object(7)), RefusalCause::InFabric);
    accounting.free(CLIENT, object(10));
    let ticket = accounting
        .begin_fabric(&fabric(object(8)), object(9))
        .unwrap();
    accounting.end_alloc(ticket, done(object(8), 0));
    accounting.free(CLIENT, object(7));
    accounting.free(CLIENT, object(9));
    assert_eq!(accounting.used(GPU), 100);
    accounting.free(CLIENT, object(8));
    assert_eq!(accounting.used(GPU), 0);
}

#[test]
fn refused_duplicate_leaves_the_charge() {
    let mut accounting = accounting(MIB);
    accounting.memory(object(7), 100).unwrap();
    let ticket = accounting
        .begin_dup(CLIENT, DEVICE, object(8), CLIENT, object(7))
        .unwrap();
    accounting.end_dup(ticket, None);
    assert_eq!(accounting.used(GPU), 100);
    accounting.free(CLIENT, object(7));
    assert_eq!(accounting.used(GPU), 0);
}

#[test]
fn memory_freed_during_duplication_stays_charged() {
    let mut accounting = accounting(MIB);
    accounting.memory(object(7), 100).unwrap();
    let ticket = accounting
        .begin_dup(CLIENT, DEVICE, object(8), CLIENT, object(7))
        .unwrap();
    accounting.free(CLIENT, object(7));
    // Its handle cannot come to mean other memory while the call is on its way.
    let again = memory_request(CLIENT, DEVICE, object(7), 5);
    assert_eq!(status(accounting.alloc(&again)), INSERT_DUPLICATE_NAME);
    assert_eq!(accounting.kind_of(CLIENT, object(7)), None);
    accounting.end_dup(ticket, Some(object(8)));
    assert_eq!(accounting.used(GPU), 100);
    accounting.alloc(&again).unwrap();
    accounting.free(CLIENT, object(8));
    assert_eq!(accounting.used(GPU), 5);
}

#[test]
fn refusals_are_those_of_the_driver() {
    let mut accounting = accounting(MIB);
    accounting.child(DEVICE, object(3)).unwrap();
    let memory = memory_request(CLIENT, DEVICE, object(5), 1);
    accounting.alloc(&memory).unwrap();
    let stranger = ClientHandle(0xc1d0_0001);
    let cases = [
        (request(stranger, DEVICE, object(4)), INVALID_OBJECT_HANDLE),
        (request(CLIENT, object(99), object(4)), OBJECT_NOT_FOUND),
        (request(CLIENT, DEVICE, object(3)), INSERT_DUPLICATE_NAME),
        (request(CLIENT, DEVICE, DEVICE), INSERT_DUPLICATE_NAME),
        (
            request(CLIENT, DEVICE, object(CLIENT.0)),
            INVALID_OBJECT_PARENT,
        ),
        (
            device_request(CLIENT, object(4), OTHER_GPU),
            INSUFFICIENT_PERMISSIONS,
        ),
        (
            memory_request(CLIENT, object(CLIENT.0), object(4), 1),
            INVALID_OBJECT_PARENT,
        ),
    ];
    for (alloc, expected) in cases {
        assert_eq!(status(accounting.alloc(&alloc)), expected, "{alloc:?}");
    }
    let client = Alloc {
        object: object(CLIENT.0),
        ..client_request(FILE, PROCESS)
    };
    assert_eq!(status(accounting.alloc(&client)), INSERT_DUPLICATE_NAME);
    let dups = [
        ((stranger, DEVICE, CLIENT, object(5)), INVALID_OBJECT_HANDLE),
        ((CLIENT, DEVICE, stranger, object(5)), INVALID_OBJECT_HANDLE),
        ((CLIENT, object(99), CLIENT, object(5)), OBJECT_NOT_FOUND),
        ((CLIENT, DEVICE, CLIENT, object(99)), OBJECT_NOT_FOUND),
        ((CLIENT, DEVICE, CLIENT, object(CLIENT.0)), INVALID_ARGUMENT),
        ((CLIENT, DEVICE, CLIENT, DEVICE), INVALID_ARGUMENT),
        ((CLIENT, DEVICE, CLIENT, object(3)), INVALID_ARGUMENT),
    ];
    for ((client, parent, source_client, source), expected) in dups {
        let result = accounting.dup(client, parent, object(4), source_client, source);
        assert_eq!(status(result), expected);
    }
    let refused = accounting.begin_free(stranger, DEVICE, None).unwrap_err();
    assert_eq!(refused.status(), NvStatus::NV_ERR_INVALID_OBJECT_HANDLE);
    accounting.free(CLIENT, object(CLIENT.0));
    assert!(accounting.is_idle());
}

#[test]
fn a_handle_in_flight_is_taken() {
    let mut accounting = accounting(MIB);
    let ticket = accounting
        .begin_alloc(&request(CLIENT, DEVICE, object(7)))
        .unwrap();
    let again = accounting.child(DEVICE, object(7));
    assert_eq!(status(again), INSERT_DUPLICATE_NAME);
    assert_eq!(accounting.kind_of(CLIENT, object(7)), None);
    let below = accounting.child(object(7), object(8));
    assert_eq!(status(below), OBJECT_NOT_FOUND);
    accounting.end_alloc(ticket, None);
    accounting.child(DEVICE, object(7)).unwrap();
}

/// The driver's own objects in a client are behind no name of the program's: it makes none in
/// their place, and neither frees them nor ends their mappings.
#[test]
fn handles_of_the_driver_are_no_programs() {
    let mut accounting = accounting(MIB);
    let memory = memory_request(CLIENT, DEVICE, object(7), 100);
    accounting.alloc(&memory).unwrap();
    for handle in [0xcaf0_0000, 0xcaf0_0001, 0xcaf7_ffff].map(object) {
        let of_driver = Some(RefusalCause::HandleOfDriver);
        let made = memory_request(CLIENT, DEVICE, handle, 100);
        assert_eq!(accounting.begin_alloc(&made).err(), of_driver);
        let copied = accounting.begin_dup(CLIENT, DEVICE, handle, CLIENT, object(7));
        assert_eq!(copied.err(), of_driver);
        assert_eq!(accounting.begin_free(CLIENT, handle, None).err(), of_driver);
        assert_eq!(accounting.begin_cpu_unmap(CLIENT, handle).err(), of_driver);
    }
    for handle in [0xcaef_ffff, 0xcaf8_0000].map(object) {
        let free = accounting.begin_free(CLIENT, handle, None).unwrap();
        accounting.end_free(free, true);
        accounting.child(DEVICE, handle).unwrap();
        accounting.free(CLIENT, handle);
    }
}

#[test]
fn the_accounting_chooses_handles_as_the_driver_would() {
    let mut accounting = accounting(MIB);
    let any = memory_request(CLIENT, DEVICE, object(0), 100);
    let first = accounting.begin_alloc(&any).unwrap();
    let second = accounting.begin_alloc(&any).unwrap();
    assert_eq!(first.handle(), object(0xcaf8_0000));
    assert_eq!(second.handle(), object(0xcaf8_0001));
    let made = second.handle();
    accounting.end_alloc(second, done(made, 100));
    accounting.end_alloc(first, None);
    assert_eq!(accounting.gpu_of(CLIENT, object(0xcaf8_0001)), Some(GPU));
    let taken = memory_request(CLIENT, DEVICE, object(0xcaf8_0002), 1);
    accounting.alloc(&taken).unwrap();
    let ticket = accounting
        .begin_dup(CLIENT, DEVICE, object(0), CLIENT, object(0xcaf8_0001))
        .unwrap();
    assert_eq!(ticket.handle(), object(0xcaf8_0003));
    accounting.end_dup(ticket, Some(object(0xcaf8_0003)));
    accounting.free(CLIENT, object(0xcaf8_0001));
    assert_eq!(accounting.used(GPU), 101);
    accounting.free(CLIENT, object(0xcaf8_0003));
    assert_eq!(accounting.used(GPU), 1);
    // A client's handle is the driver's choice: it must be unique on the whole machine.
    let ticket = accounting
        .begin_alloc(&client_request(FILE, PROCESS))
        .unwrap();
    assert_eq!(ticket.handle(), object(0));
    accounting.end_alloc(ticket, None);
}

#[test]
fn object_orphaned_in_flight_goes_with_client() {
    let mut accounting = accounting(MIB);
    accounting.child(DEVICE, object(3)).unwrap();
    let ticket = accounting
        .begin_alloc(&memory_request(CLIENT, object(3), object(7), 100))
        .unwrap();
    accounting.free(CLIENT, DEVICE);
    assert_eq!(accounting.share(GPU).unwrap().reserved, 100);
    accounting.end_alloc(ticket, done(object(7), 100));
    assert_eq!(accounting.used(GPU), 100);
    assert_eq!(
        accounting.kind_of(CLIENT, object(7)),
        Some(Kind::VideoMemory)
    );
    accounting.free(CLIENT, object(CLIENT.0));
    assert!(accounting.is_idle());
}

#[test]
fn object_of_client_freed_in_flight_is_credited() {
    for close in [false, true] {
        for chosen in [0, 7] {
            let mut accounting = accounting(MIB);
            let ticket = accounting
                .begin_alloc(&memory_request(CLIENT, DEVICE, object(chosen), 100))
                .unwrap();
            let handle = ticket.handle();
            if close {
                accounting.close_file(FILE);
            } else {
                accounting.free(CLIENT, object(CLIENT.0));
            }
            assert_eq!(accounting.share(GPU).unwrap().reserved, 100);
            assert!(!accounting.is_idle());
            accounting.end_alloc(ticket, done(handle, 100));
            assert_eq!(accounting.share(GPU).unwrap().peak, 100);
            assert!(accounting.is_idle());
        }
    }
}

#[test]
fn name_used_in_flight_keeps_its_meaning() {
    let mut accounting = accounting(MIB);
    let parent = object(3);
    accounting.child(DEVICE, parent).unwrap();
    let child = memory_request(CLIENT, parent, object(7), 100);
    let ticket = accounting.begin_alloc(&child).unwrap();
    accounting.free(CLIENT, parent);
    let again = request(CLIENT, DEVICE, parent);
    assert_eq!(status(accounting.alloc(&again)), INSERT_DUPLICATE_NAME);
    accounting.free(CLIENT, object(CLIENT.0));
    let client = Alloc {
        object: object(CLIENT.0),
        ..client_request(FILE, PROCESS)
    };
    assert_eq!(status(accounting.alloc(&client)), INSERT_DUPLICATE_NAME);
    assert!(!accounting.owns_client(CLIENT));
    accounting.end_alloc(ticket, None);
    assert!(accounting.is_idle());
    accounting.alloc(&client).unwrap();
}

#[test]
fn name_is_held_until_its_free_ends() {
    let mut accounting = accounting(MIB);
    let memory = memory_request(CLIENT, DEVICE, object(7), 100);
    accounting.alloc(&memory).unwrap();
    let first = accounting.begin_free(CLIENT, object(7), None).unwrap();
    let second = accounting.begin_free(CLIENT, object(7), None).unwrap();
    accounting.end_free(first, true);
    assert_eq!(accounting.used(GPU), 0);
    assert_eq!(status(accounting.alloc(&memory)), INSERT_DUPLICATE_NAME);
    accounting.end_free(second, true);
    accounting.alloc(&memory).unwrap();
    assert_eq!(accounting.used(GPU), 100);
}

#[test]
fn new_client_cannot_take_anothers_name() {
    let mut accounting = accounting(MIB);
    accounting.memory(object(7), 100).unwrap();
    // The handle of a new client is an output, which the program can overwrite.
    accounting.client(CLIENT, FileId(12), PROCESS);
    assert_eq!(accounting.used(GPU), 100);
    assert_eq!(accounting.client_file(CLIENT), Some(FILE));
    accounting.close_file(FileId(12));
    assert_eq!(accounting.used(GPU), 100);
    accounting.close_file(FILE);
    assert!(accounting.is_idle());
}

#[test]
fn a_free_that_the_driver_refused_frees_nothing() {
    let mut accounting = accounting(MIB);
    accounting.memory(object(7), 100).unwrap();
    let ticket = accounting.begin_free(CLIENT, DEVICE, None).unwrap();
    accounting.end_free(ticket, false);
    assert_eq!(accounting.used(GPU), 100);
    let unknown = accounting.begin_free(CLIENT, object(8), None).unwrap();
    accounting.end_free(unknown, true);
    assert_eq!(accounting.used(GPU), 100);
}

#[test]
fn limit_below_use_refuses_and_credits_frees() {
    let mut accounting = accounting(MIB);
    for (number, bytes) in [(7, 100), (8, 50)] {
        accounting.memory(object(number), bytes).unwrap();
    }
    accounting.set_limit(GPU, 149).unwrap();
    assert!(accounting.share(GPU).unwrap().over());
    assert_eq!(accounting.fb_view(GPU).unwrap().free, 0);
    let one = memory_request(CLIENT, DEVICE, object(9), 1);
    assert_eq!(status(accounting.alloc(&one)), NO_MEMORY);
    accounting.free(CLIENT, object(8));
    assert!(!accounting.share(GPU).unwrap().over());
    assert_eq!(accounting.fb_view(GPU).unwrap().free, 49);
    accounting.alloc(&one).unwrap();
    accounting.set_limit(GPU, 101).unwrap();
    assert!(!accounting.share(GPU).unwrap().over());
    assert_eq!(accounting.set_limit(OTHER_GPU, 1), Err(NoSuchShare));
}

#[test]
fn coming_over_the_limit_and_back_is_counted() {
    let mut accounting = accounting(8 * MIB);
    let memory = |handle| memory_request(CLIENT, DEVICE, object(handle), 4 * MIB);
    accounting.alloc(&memory(7)).unwrap();
    accounting.alloc(&memory(8)).unwrap();
    let seen = |accounting: &Accounting| {
        let share = accounting.share(GPU).unwrap();
        (share.over(), share.over_count, accounting.over_changes())
    };
    assert_eq!(seen(&accounting), (false, 0, 0));
    accounting.set_limit(GPU, 8 * MIB - 1).unwrap();
    assert_eq!(seen(&accounting), (true, 1, 1));
    // Lower still, and refused: over it is.
    accounting.set_limit(GPU, MIB).unwrap();
    assert!(accounting.alloc(&memory(9)).is_err());
    accounting.free(CLIENT, object(7));
    assert_eq!(seen(&accounting), (true, 1, 1));
    accounting.free(CLIENT, object(8));
    assert_eq!(seen(&accounting), (false, 1, 2));
    accounting.alloc(&memory(7)).unwrap_err();
    accounting.set_limit(GPU, 4 * MIB).unwrap();
    accounting.alloc(&memory(7)).unwrap();
    accounting.set_limit(GPU, MIB).unwrap();
    accounting.set_limit(GPU, 4 * MIB).unwrap();
    assert_eq!(seen(&accounting), (false, 2, 4));
}

#[test]
fn objects_count_on_their_devices_gpu() {
    let mut accounting = accounting(100);
    accounting.add_share(OTHER_GPU, 200).unwrap();
    let other = object(4);
    accounting.device(CLIENT, other, OTHER_GPU).unwrap();
    let cases = [(DEVICE, 100), (other, 200)];
    for (device, limit) in cases {
        let much = memory_request(CLIENT, device, object(7), limit + 1);
        assert_eq!(status(accounting.alloc(&much)), NO_MEMORY);
        let all = memory_request(CLIENT, device, object(device.0 + 1), limit);
        accounting.alloc(&all).unwrap();
    }
    assert_eq!(
        (accounting.used(GPU), accounting.used(OTHER_GPU)),
        (100, 200)
    );
    assert_eq!(accounting.gpu_of(CLIENT, other), Some(OTHER_GPU));
    assert_eq!(accounting.gpu_of(CLIENT, object(CLIENT.0)), None);
    accounting.free(CLIENT, DEVICE);
    assert_eq!((accounting.used(GPU), accounting.used(OTHER_GPU)), (0, 200));
    accounting.free(CLIENT, other);
    assert_eq!((accounting.used(GPU), accounting.used(OTHER_GPU)), (0, 0));
}

#[test]
fn what_is_used_together_is_of_one_gpu() {
    let mut accounting = accounting(1 << 30);
    accounting.add_share(OTHER_GPU, 1 << 30).unwrap();
    let [there, here_memory, there_memory, copy] = [object(4), object(5), object(6), object(7)];
    accounting.device(CLIENT, there, OTHER_GPU).unwrap();
    for (device, memory) in [(DEVICE, here_memory), (there, there_memory)] {
        let memory = memory_request(CLIENT, device, memory, 4096);
        accounting.alloc(&memory).unwrap();
    }
    for (device, memory, expected) in [
        (DEVICE, here_memory, Ok(())),
        (there, there_memory, Ok(())),
        (there, here_memory, Err(RefusalCause::OtherGpu)),
        (DEVICE, there_memory, Err(RefusalCause::OtherGpu)),
        (object(CLIENT.0), here_memory, Err(RefusalCause::OtherGpu)),
        (object(9), here_memory, Err(RefusalCause::UnknownObject)),
    ] {
        let begun = accounting.begin_named_map(CLIENT, device, memory);
        assert_eq!(
            begun.map(|ticket| accounting.end_named_map(ticket)),
            expected
        );
        // For a channel, its control page and its address space.
        for place in 0..2 {
            let mut channel = channel_request(CLIENT, device, object(20), 1);
            channel.uses[place] = Some(memory);
            let made = accounting.alloc(&channel);
            assert_eq!(made.is_ok(), expected.is_ok(), "{device:?} {memory:?}");
            accounting.free(CLIENT, object(20));
        }
        // A copy is of its original's GPU.
        let copied = accounting.dup(CLIENT, device, copy, CLIENT, memory);
        assert_eq!(copied, expected);
        accounting.free(CLIENT, copy);
    }
    // Host memory is mapped for each GPU, and is a channel's control page on its own alone.
    let host = Alloc {
        kind: Kind::SystemMemory,
        host: 4096,
        size: 4096,
        ..request(CLIENT, DEVICE, object(8))
    };
    accounting.alloc(&host).unwrap();
    let begun = accounting
        .begin_named_map(CLIENT, there, object(8))
        .unwrap();
    accounting.end_named_map(begun);
    let mut channel = channel_request(CLIENT, there, object(20), 1);
    channel.uses[0] = Some(object(8));
    assert_eq!(accounting.alloc(&channel), Err(RefusalCause::OtherGpu));
    // While a call names them, the names stay theirs.
    let ticket = accounting
        .begin_named_map(CLIENT, DEVICE, here_memory)
        .unwrap();
    accounting.free(CLIENT, here_memory);
    let again = memory_request(CLIENT, there, here_memory, 10);
    assert_eq!(accounting.alloc(&again), Err(RefusalCause::HandleInUse));
    accounting.end_named_map(ticket);
    accounting.alloc(&again).unwrap();
}

#[test]
fn control_page_lies_in_its_memory() {
    let mut accounting = accounting(1 << 30);
    accounting.memory(object(7), 8192).unwrap();
    accounting
        .dup(CLIENT, DEVICE, object(8), CLIENT, object(7))
        .unwrap();
    accounting.child(DEVICE, object(9)).unwrap();
    let beyond = Err(RefusalCause::BeyondMemory);
    for (memory, offset, expected) in [
        (7, 0, Ok(())),
        (7, 8192 - 512, Ok(())),
        (7, 8192 - 511, beyond),
        (7, 1 << 40, beyond),
        (7, u64::MAX, beyond),
        (8, 4096, Ok(())),
        (8, 8192, beyond),
        // It is no memory.
        (9, 0, Err(RefusalCause::NoMemoryOfIts)),
    ] {
        let mut channel = channel_request(CLIENT, DEVICE, object(20), 1);
        (channel.uses[0], channel.control_page) = (Some(object(memory)), offset);
        let made = accounting.alloc(&channel);
        assert_eq!(made, expected, "{memory} {offset:#x}");
        accounting.free(CLIENT, object(20));
    }
    // The size is the one asked for, and not what it may take at most.
    let aligned = Alloc {
        bytes: 1 << 20,
        ..memory_request(CLIENT, DEVICE, object(11), 4096)
    };
    accounting.alloc(&aligned).unwrap();
    let mut channel = channel_request(CLIENT, DEVICE, object(20), 1);
    (channel.uses[0], channel.control_page) = (Some(object(11)), 4096);
    assert_eq!(accounting.alloc(&channel), beyond);
    // Nor what the driver says of it, or another thread in its place.
    let ticket = accounting.begin_alloc(&memory_request(CLIENT, DEVICE, object(10), 4096));
    let told = AllocDone {
        object: object(10),
        bytes: 1 << 20,
    };
    accounting.end_alloc(ticket.unwrap(), Some(told));
    let mut channel = channel_request(CLIENT, DEVICE, object(20), 1);
    (channel.uses[0], channel.control_page) = (Some(object(10)), 4096);
    assert_eq!(accounting.alloc(&channel), beyond);
}

#[test]
fn surface_is_charged_for_what_it_keeps() {
    let mut accounting = accounting(1 << 30);
    accounting.memory(object(7), 4096).unwrap();
    accounting.memory(object(8), 4 << 20).unwrap();
    let mut surface = Alloc {
        kind: Kind::SemaphoreSurface,
        uses: [Some(object(7)), Some(object(7))],
        ..request(CLIENT, DEVICE, object(20))
    };
    accounting.alloc(&surface).unwrap();
    accounting.free(CLIENT, object(7));
    accounting.free(CLIENT, object(8));
    assert_eq!(accounting.used(GPU), 2 << 20);
    accounting.free(CLIENT, object(20));
    assert_eq!(accounting.used(GPU), 0);
    accounting.memory(object(8), 4 << 20).unwrap();
    for (memory, refusal) in [
        (8, RefusalCause::BeyondMemory),
        (9, RefusalCause::UnknownObject),
        (u32::MAX, RefusalCause::UnknownObject),
        (DEVICE.0, RefusalCause::WrongClass),
    ] {
        surface.uses = [Some(ObjectHandle(memory)), None];
        if memory < 20 {
            surface.uses[0] = Some(object(memory));
        }
        assert_eq!(accounting.alloc(&surface), Err(refusal), "{memory:#x}");
    }
}

#[test]
fn removed_share_grants_nothing_and_is_credited() {
    let mut accounting = accounting(100);
    accounting.memory(object(7), 40).unwrap();
    accounting.remove_share(GPU);
    assert_eq!(accounting.share(GPU), None);
    assert_eq!(accounting.fb_view(GPU), None);
    assert_eq!(accounting.gpu_of(CLIENT, DEVICE), None);
    let more = memory_request(CLIENT, DEVICE, object(8), 1);
    assert_eq!(status(accounting.alloc(&more)), INSUFFICIENT_PERMISSIONS);
    let device = device_request(CLIENT, object(9), GPU);
    assert_eq!(status(accounting.alloc(&device)), INSUFFICIENT_PERMISSIONS);
    accounting.add_share(GPU, 50).unwrap();
    assert_eq!(accounting.fb_view(GPU).unwrap().free, 10);
    accounting.remove_share(GPU);
    accounting.close_file(FILE);
    assert!(accounting.is_idle());
}

#[test]
fn shares_stop_at_the_control_devices_number() {
    let mut accounting = Accounting::new(0);
    let mut gpus = 0..;
    for gpu in gpus.by_ref().take(MAX_SHARES) {
        accounting.add_share(GpuId(gpu), 1).unwrap();
    }
    let next = GpuId(gpus.next().unwrap());
    assert!(accounting.add_share(next, 1).is_err());
    accounting.add_share(GpuId(0), 2).unwrap();
    assert_eq!(accounting.share(GpuId(0)).unwrap().limit, 2);
    accounting.remove_share(GpuId(1));
    accounting.add_share(next, 1).unwrap();
}

#[test]
fn refusals_count_on_their_gpu_or_all() {
    let mut accounting = accounting(1);
    accounting.add_share(OTHER_GPU, 1).unwrap();
    let call = Audited {
        kind: CallKind::Escape,
        number: 0x39,
        reason: Reason::Forbidden,
    };
    accounting.note_call(&call, Some(GPU), PROCESS, 0);
    accounting.note_call(&call, None, PROCESS, 0);
    let passed = Audited {
        reason: Reason::PassedUnseen,
        ..call
    };
    accounting.note_call(&passed, None, PROCESS, 0);
    assert_eq!(accounting.share(GPU).unwrap().refused_calls, 2);
    assert_eq!(accounting.share(OTHER_GPU).unwrap().refused_calls, 1);
    assert_eq!(accounting.share(GPU).unwrap().refused, 0);
}

#[test]
fn objects_and_clients_of_a_gpu_are_counted() {
    let mut accounting = accounting(MIB);
    let counts = |accounting: &Accounting| {
        let share = accounting.share(GPU).unwrap();
        (share.objects, share.clients)
    };
    assert_eq!(counts(&accounting), (1, 1));
    accounting.device(CLIENT, object(4), GPU).unwrap();
    assert_eq!(counts(&accounting), (2, 1));
    let below_root = request(CLIENT, object(CLIENT.0), object(5));
    accounting.alloc(&below_root).unwrap();
    assert_eq!(counts(&accounting), (2, 1));
    accounting.free(CLIENT, object(4));
    assert_eq!(counts(&accounting), (1, 1));
    accounting.free(CLIENT, DEVICE);
    assert_eq!(counts(&accounting), (0, 0));
}

#[test]
fn a_device_without_parameters_is_the_first_one() {
    let mut accounting = accounting(MIB);
    let device = Alloc {
        device_instance: None,
        ..device_request(CLIENT, object(4), GPU)
    };
    assert_eq!(status(accounting.alloc(&device)), INSUFFICIENT_PERMISSIONS);
    accounting.add_share(GpuId(0), MIB).unwrap();
    accounting.alloc(&device).unwrap();
    assert_eq!(accounting.gpu_of(CLIENT, object(4)), Some(GpuId(0)));
}

#[test]
fn client_made_during_close_is_gone() {
    let mut accounting = Accounting::new(0);
    let ticket = accounting
        .begin_alloc(&client_request(FILE, PROCESS))
        .unwrap();
    accounting.close_file(FILE);
    accounting.end_alloc(ticket, done(object(CLIENT.0), 0));
    assert!(!accounting.owns_client(CLIENT));
    assert!(accounting.is_idle());
}
