// SPDX-License-Identifier: GPL-2.0
//! What is behind a descriptor stays charged until its file is closed, and comes out once at a time.

use super::*;

const MEMORY: ObjectHandle = ObjectHandle(0x5c00_0010);
const COPY: ObjectHandle = ObjectHandle(0x5c00_0020);
/// The file that objects are put into.
const HOLDER: FileId = FileId(31);
const READER: ClientHandle = ClientHandle(0xc1d0_0020);
const READER_FILE: FileId = FileId(12);
const READER_PROCESS: ProcessId = ProcessId(2000);

fn places(client: ClientHandle, first: u16, objects: &[ObjectHandle]) -> Places<'_> {
    Places {
        file: HOLDER,
        first,
        client,
        objects,
    }
}

impl Books {
    fn export(&mut self, first: u16, objects: &[ObjectHandle]) -> Result<(), Refusal> {
        let ticket = self.begin_export(&places(CLIENT, first, objects))?;
        self.end_export(ticket, true);
        Ok(())
    }

    fn import(&mut self, first: u16, objects: &[ObjectHandle]) -> Result<usize, Refusal> {
        let ticket = self.begin_import(&places(READER, first, objects), DEVICE)?;
        let count = (0..objects.len()).filter(|&n| ticket.handle(n).is_some());
        let count = count.count();
        self.end_import(ticket, |_| true);
        Ok(count)
    }
}

/// Books with 4 MiB of memory and a second process's client.
fn shared() -> Books {
    let mut books = books(64 * MIB);
    let request = memory_request(CLIENT, DEVICE, MEMORY, 4 * MIB);
    books.alloc(&request).unwrap();
    books.client(READER, READER_FILE, READER_PROCESS);
    books.alloc(&device_request(READER, DEVICE, GPU)).unwrap();
    books
}

#[test]
fn the_charge_goes_with_the_last_of_object_copy_and_file_in_any_order() {
    for order in 0..6 {
        let mut books = shared();
        books.export(0, &[MEMORY]).unwrap();
        assert_eq!(books.import(0, &[COPY]), Ok(1));
        assert_eq!(books.used(GPU), 4 * MIB, "charged once");
        let mut left = vec![0, 1, 2];
        let first = left.remove(order % 3);
        let second = left.remove(order / 3);
        for what in [first, second, left[0]] {
            assert_eq!(books.used(GPU), 4 * MIB, "order {order}");
            match what {
                0 => books.free(CLIENT, MEMORY),
                1 => books.free(READER, COPY),
                _ => books.close_file(HOLDER),
            }
        }
        assert_eq!(books.used(GPU), 0, "order {order}");
        books.close_file(FILE);
        books.close_file(READER_FILE);
        assert!(books.is_idle());
    }
}

#[test]
fn the_end_of_the_exporting_process_leaves_what_its_file_holds() {
    let mut books = shared();
    books.export(0, &[MEMORY]).unwrap();
    books.close_file(FILE);
    assert_eq!(books.used(GPU), 4 * MIB);
    // It counts for the process that had it, then for the one that takes it out.
    assert_eq!(books.held(GPU), [(PROCESS.0, 4 * MIB)]);
    assert_eq!(books.import(0, &[COPY]), Ok(1));
    books.close_file(HOLDER);
    assert_eq!(books.held(GPU), [(READER_PROCESS.0, 4 * MIB)]);
    books.close_file(READER_FILE);
    assert!(books.is_idle());
}

#[test]
fn a_file_can_hold_what_the_clients_made_on_it_have() {
    let mut books = shared();
    let own = Places {
        file: FILE,
        ..places(CLIENT, 0, &[MEMORY])
    };
    let ticket = books.begin_export(&own).unwrap();
    books.end_export(ticket, true);
    books.close_file(FILE);
    books.close_file(READER_FILE);
    assert!(books.is_idle());
}

#[test]
fn an_export_counts_while_the_driver_is_asked_and_no_longer_where_it_was_not() {
    for asked in [true, false] {
        let mut books = shared();
        let ticket = books.begin_export(&places(CLIENT, 0, &[MEMORY])).unwrap();
        books.free(CLIENT, MEMORY);
        assert_eq!(books.used(GPU), 4 * MIB);
        books.end_export(ticket, asked);
        assert_eq!(books.used(GPU), if asked { 4 * MIB } else { 0 });
        books.close_file(HOLDER);
        assert_eq!(books.used(GPU), 0);
    }
}

#[test]
fn the_name_of_what_is_exported_cannot_change_during_the_call() {
    let mut books = shared();
    let ticket = books.begin_export(&places(CLIENT, 0, &[MEMORY])).unwrap();
    books.free(CLIENT, MEMORY);
    let again = memory_request(CLIENT, DEVICE, MEMORY, MIB);
    let refused = books.alloc(&again).unwrap_err();
    assert_eq!(refused.cause, RefusalCause::HandleInUse);
    books.end_export(ticket, true);
    books.alloc(&again).unwrap();
    assert_eq!(books.used(GPU), 5 * MIB);
}

#[test]
fn a_place_is_used_once() {
    let mut books = shared();
    books.export(3, &[MEMORY]).unwrap();
    let refused = books.export(2, &[MEMORY, MEMORY]).unwrap_err();
    assert_eq!(refused.cause, RefusalCause::PlaceTaken);
    // The refused call has put nothing anywhere.
    assert_eq!(books.import(2, &[object(0)]), Ok(0));
    books.export(2, &[MEMORY, object(0)]).unwrap();
    let refused = books.export(u16::MAX, &[object(0), MEMORY]).unwrap_err();
    assert_eq!(refused.cause, RefusalCause::NoPlace);
    books.export(u16::MAX, &[MEMORY]).unwrap();
    books.free(CLIENT, MEMORY);
    assert_eq!(books.used(GPU), 4 * MIB);
    books.close_file(HOLDER);
    assert_eq!(books.used(GPU), 0);
}

#[test]
fn nothing_is_put_into_a_file_while_an_import_from_it_is_in_flight() {
    let mut books = shared();
    let ticket = books.begin_import(&places(READER, 0, &[COPY]), DEVICE);
    let ticket = ticket.unwrap();
    assert_eq!(ticket.handle(0), None);
    let refused = books.export(0, &[MEMORY]).unwrap_err();
    assert_eq!(refused.cause, RefusalCause::FileInFlight);
    books.end_import(ticket, |_| true);
    books.export(0, &[MEMORY]).unwrap();
    assert_eq!(books.import(0, &[COPY]), Ok(1));
}

#[test]
fn what_comes_out_is_in_flight_like_any_other_object() {
    let mut books = shared();
    books.export(0, &[MEMORY]).unwrap();
    let ticket = books.begin_import(&places(READER, 0, &[COPY]), DEVICE);
    let ticket = ticket.unwrap();
    books.free(CLIENT, MEMORY);
    books.close_file(READER_FILE);
    // Only the file has it now.
    books.end_import(ticket, |_| true);
    assert_eq!(books.used(GPU), 4 * MIB);
    books.close_file(HOLDER);
    books.close_file(FILE);
    assert!(books.is_idle());
}

#[test]
fn of_a_refused_list_nothing_stays() {
    let mut books = shared();
    let request = memory_request(CLIENT, DEVICE, object(7), MIB);
    books.alloc(&request).unwrap();
    books.export(0, &[MEMORY, object(7)]).unwrap();
    // The second handle is taken by the first.
    let refused = books.import(0, &[COPY, COPY]).unwrap_err();
    assert_eq!(refused.cause, RefusalCause::HandleInUse);
    let refused = books.begin_import(&places(READER, 0, &[COPY]), object(0x77));
    assert_eq!(refused.unwrap_err().cause, RefusalCause::UnknownParent);
    assert_eq!(books.import(0, &[COPY, object(0)]), Ok(2));
    books.close_file(HOLDER);
    books.close_file(FILE);
    assert_eq!(books.used(GPU), 5 * MIB);
    books.close_file(READER_FILE);
    assert!(books.is_idle());
}

#[test]
fn what_is_not_the_clients_or_cannot_be_copied_is_not_exported() {
    let mut books = shared();
    for (client, object, cause) in [
        (READER, MEMORY, RefusalCause::UnknownObject),
        (CLIENT, DEVICE, RefusalCause::NotCopyable),
        (CLIENT, ObjectHandle(CLIENT.0), RefusalCause::NotCopyable),
        (ClientHandle(5), MEMORY, RefusalCause::ForeignClient),
    ] {
        let refused = books.begin_export(&places(client, 0, &[object]));
        assert_eq!(refused.unwrap_err().cause, cause);
    }
    books.free(CLIENT, MEMORY);
    assert_eq!(books.used(GPU), 0);
}

#[test]
fn an_exported_channel_group_keeps_its_context_charged() {
    let mut books = shared();
    let group = object(9);
    books
        .alloc(&context_request(CLIENT, DEVICE, group))
        .unwrap();
    let overhead = books.share(GPU).unwrap().overhead;
    assert!(overhead > 0);
    books.export(0, &[group]).unwrap();
    books.free(CLIENT, group);
    assert_eq!(books.share(GPU).unwrap().overhead, overhead);
    books.close_file(HOLDER);
    assert_eq!(books.share(GPU).unwrap().overhead, 0);
}
