// SPDX-License-Identifier: GPL-2.0
//! Memory behind a descriptor stays charged until its file is closed, and comes out once at a time.

use super::*;

const MEMORY: ObjectHandle = ObjectHandle(0x5c00_0010);
const COPY: ObjectHandle = ObjectHandle(0x5c00_0020);
/// The file that objects are put into.
const HOLDER: FileId = FileId(31);
const READER: ClientHandle = ClientHandle(0xc1d0_0020);
const READER_FILE: FileId = FileId(12);
const READER_PROCESS: ProcessId = ProcessId(2000);

fn places(client: ClientHandle, first: u16, objects: &[ObjectHandle]) -> DescriptorPlaces<'_> {
    DescriptorPlaces {
        file: HOLDER,
        first,
        client,
        objects,
        made: 0,
    }
}

impl Accounting {
    fn export(&mut self, first: u16, objects: &[ObjectHandle]) -> Result<(), RefusalCause> {
        let ticket = self.begin_export(&places(CLIENT, first, objects))?;
        self.end_export(ticket, true);
        Ok(())
    }

    fn import(&mut self, first: u16, objects: &[ObjectHandle]) -> Result<usize, RefusalCause> {
        let ticket = self.begin_import(&places(READER, first, objects), DEVICE)?;
        let count = (0..objects.len()).filter(|&n| ticket.handle(n).is_some());
        let count = count.count();
        self.end_import(ticket, |_| true);
        Ok(count)
    }
}

/// Accounting with 4 MiB of memory and a second process's client.
fn shared() -> Accounting {
    let mut accounting = accounting(64 * MIB);
    let request = memory_request(CLIENT, DEVICE, MEMORY, 4 * MIB);
    accounting.alloc(&request).unwrap();
    accounting.client(READER, READER_FILE, READER_PROCESS);
    accounting.device(READER, DEVICE, GPU).unwrap();
    accounting
}

#[test]
fn charge_ends_with_the_last_reference() {
    for order in 0..6 {
        let mut accounting = shared();
        accounting.export(0, &[MEMORY]).unwrap();
        assert_eq!(accounting.import(0, &[COPY]), Ok(1));
        assert_eq!(accounting.used(GPU), 4 * MIB, "charged once");
        let mut left = vec![0, 1, 2];
        let first = left.remove(order % 3);
        let second = left.remove(order / 3);
        for what in [first, second, left[0]] {
            assert_eq!(accounting.used(GPU), 4 * MIB, "order {order}");
            match what {
                0 => accounting.free(CLIENT, MEMORY),
                1 => accounting.free(READER, COPY),
                _ => accounting.close_file(HOLDER),
            }
        }
        assert_eq!(accounting.used(GPU), 0, "order {order}");
        accounting.close_file(FILE);
        accounting.close_file(READER_FILE);
        assert!(accounting.is_idle());
    }
}

#[test]
fn exported_memory_outlives_its_process() {
    let mut accounting = shared();
    accounting.export(0, &[MEMORY]).unwrap();
    accounting.close_file(FILE);
    assert_eq!(accounting.used(GPU), 4 * MIB);
    // It counts for the process that had it, then for the one that takes it out.
    assert_eq!(accounting.held(GPU), [(PROCESS.0, 4 * MIB)]);
    assert_eq!(accounting.import(0, &[COPY]), Ok(1));
    accounting.close_file(HOLDER);
    assert_eq!(accounting.held(GPU), [(READER_PROCESS.0, 4 * MIB)]);
    accounting.close_file(READER_FILE);
    assert!(accounting.is_idle());
}

#[test]
fn share_is_in_use_while_files_have_objects() {
    let costless = object(9);
    for asked in [true, false] {
        let mut accounting = shared();
        accounting.free(CLIENT, MEMORY);
        let space = Alloc {
            class: ClassId(0x90f1),
            kind: Kind::VaSpace,
            ..request(CLIENT, DEVICE, costless)
        };
        accounting.alloc(&space).unwrap();
        let ticket = accounting.begin_export(&places(CLIENT, 0, &[costless]));
        accounting.end_export(ticket.unwrap(), asked);
        accounting.close_file(FILE);
        accounting.close_file(READER_FILE);
        assert_eq!(accounting.is_share_idle(GPU), !asked);
        accounting.close_file(HOLDER);
        assert!(accounting.is_share_idle(GPU));
        assert!(accounting.is_idle());
    }
}

#[test]
fn file_holds_objects_of_its_own_clients() {
    let mut accounting = shared();
    let own = DescriptorPlaces {
        file: FILE,
        ..places(CLIENT, 0, &[MEMORY])
    };
    let ticket = accounting.begin_export(&own).unwrap();
    accounting.end_export(ticket, true);
    accounting.close_file(FILE);
    accounting.close_file(READER_FILE);
    assert!(accounting.is_idle());
}

#[test]
fn export_counts_from_its_call_on() {
    for asked in [true, false] {
        let mut accounting = shared();
        let ticket = accounting
            .begin_export(&places(CLIENT, 0, &[MEMORY]))
            .unwrap();
        accounting.free(CLIENT, MEMORY);
        assert_eq!(accounting.used(GPU), 4 * MIB);
        accounting.end_export(ticket, asked);
        assert_eq!(accounting.used(GPU), if asked { 4 * MIB } else { 0 });
        accounting.close_file(HOLDER);
        assert_eq!(accounting.used(GPU), 0);
    }
}

#[test]
fn exported_name_keeps_its_meaning_in_flight() {
    let mut accounting = shared();
    let ticket = accounting
        .begin_export(&places(CLIENT, 0, &[MEMORY]))
        .unwrap();
    accounting.free(CLIENT, MEMORY);
    let again = memory_request(CLIENT, DEVICE, MEMORY, MIB);
    let refused = accounting.alloc(&again).unwrap_err();
    assert_eq!(refused, RefusalCause::HandleInUse);
    accounting.end_export(ticket, true);
    accounting.alloc(&again).unwrap();
    assert_eq!(accounting.used(GPU), 5 * MIB);
}

#[test]
fn a_place_is_used_once() {
    let mut accounting = shared();
    accounting.export(3, &[MEMORY]).unwrap();
    let refused = accounting.export(2, &[MEMORY, MEMORY]).unwrap_err();
    assert_eq!(refused, RefusalCause::PlaceTaken);
    // The refused call has put nothing anywhere.
    assert_eq!(accounting.import(2, &[object(0)]), Ok(0));
    accounting.export(2, &[MEMORY, object(0)]).unwrap();
    let refused = accounting
        .export(u16::MAX, &[object(0), MEMORY])
        .unwrap_err();
    assert_eq!(refused, RefusalCause::NoPlace);
    accounting.export(u16::MAX, &[MEMORY]).unwrap();
    accounting.free(CLIENT, MEMORY);
    assert_eq!(accounting.used(GPU), 4 * MIB);
    accounting.close_file(HOLDER);
    assert_eq!(accounting.used(GPU), 0);
}

#[test]
fn export_during_import_of_its_file_is_refused() {
    let mut accounting = shared();
    let ticket = accounting.begin_import(&places(READER, 0, &[COPY]), DEVICE);
    let ticket = ticket.unwrap();
    assert_eq!(ticket.handle(0), None);
    let refused = accounting.export(0, &[MEMORY]).unwrap_err();
    assert_eq!(refused, RefusalCause::FileInFlight);
    accounting.end_import(ticket, |_| true);
    accounting.export(0, &[MEMORY]).unwrap();
    assert_eq!(accounting.import(0, &[COPY]), Ok(1));
}

#[test]
fn an_imported_object_is_in_flight_first() {
    let mut accounting = shared();
    accounting.export(0, &[MEMORY]).unwrap();
    let ticket = accounting.begin_import(&places(READER, 0, &[COPY]), DEVICE);
    let ticket = ticket.unwrap();
    accounting.free(CLIENT, MEMORY);
    accounting.close_file(READER_FILE);
    // The original and the importer's file are gone: only the holder has the memory now.
    accounting.end_import(ticket, |_| true);
    assert_eq!(accounting.used(GPU), 4 * MIB);
    accounting.close_file(HOLDER);
    accounting.close_file(FILE);
    assert!(accounting.is_idle());
}

#[test]
fn refused_list_leaves_nothing() {
    let mut accounting = shared();
    let request = memory_request(CLIENT, DEVICE, object(7), MIB);
    accounting.alloc(&request).unwrap();
    accounting.export(0, &[MEMORY, object(7)]).unwrap();
    // The second handle is taken by the first.
    let refused = accounting.import(0, &[COPY, COPY]).unwrap_err();
    assert_eq!(refused, RefusalCause::HandleInUse);
    let refused = accounting.begin_import(&places(READER, 0, &[COPY]), object(0x77));
    assert_eq!(refused.unwrap_err(), RefusalCause::UnknownObject);
    assert_eq!(accounting.import(0, &[COPY, object(0)]), Ok(2));
    accounting.close_file(HOLDER);
    accounting.close_file(FILE);
    assert_eq!(accounting.used(GPU), 5 * MIB);
    accounting.close_file(READER_FILE);
    assert!(accounting.is_idle());
}

#[test]
fn foreign_and_uncopyable_objects_are_not_exported() {
    let mut accounting = shared();
    for (client, object, cause) in [
        (READER, MEMORY, RefusalCause::UnknownObject),
        (CLIENT, DEVICE, RefusalCause::NotCopyable),
        (CLIENT, ObjectHandle(CLIENT.0), RefusalCause::NotCopyable),
        (ClientHandle(5), MEMORY, RefusalCause::ForeignClient),
    ] {
        let refused = accounting.begin_export(&places(client, 0, &[object]));
        assert_eq!(refused.unwrap_err(), cause);
    }
    accounting.free(CLIENT, MEMORY);
    assert_eq!(accounting.used(GPU), 0);
}

fn counted(accounting: &Accounting, gpu: GpuId, what: Limited) -> u64 {
    accounting.limit_of(gpu, what).unwrap().used
}

#[test]
fn exports_stop_at_both_limits() {
    for what in [Limited::Objects, Limited::Exports] {
        let mut accounting = shared();
        let before = counted(&accounting, GPU, what);
        let most = Some(before + 2);
        accounting.set_limit_of(GPU, what, most).unwrap();
        let refused = Err(RefusalCause::LimitReached(what));
        // One object again and again. Of a list that is too long none counts.
        assert_eq!(accounting.export(0, &[MEMORY; 3]), refused);
        assert_eq!(counted(&accounting, GPU, what), before);
        accounting.export(0, &[MEMORY; 2]).unwrap();
        assert_eq!(accounting.export(2, &[MEMORY]), refused);
        assert_eq!(accounting.limit_of(GPU, what).unwrap().refused, 2);
        // An export that did not reach the driver is none.
        accounting.close_file(HOLDER);
        let ticket = accounting.begin_export(&places(CLIENT, 0, &[MEMORY; 2]));
        accounting.end_export(ticket.unwrap(), false);
        for other in [Limited::Objects, Limited::Exports] {
            accounting.set_limit_of(GPU, other, None).unwrap();
        }
        assert_eq!(counted(&accounting, GPU, what), before);
        accounting.close_file(FILE);
        accounting.close_file(READER_FILE);
        assert!(accounting.is_idle());
    }
}

#[test]
fn export_outlives_its_object_in_the_count() {
    let mut accounting = shared();
    accounting.export(0, &[MEMORY]).unwrap();
    accounting.free(CLIENT, MEMORY);
    assert_eq!(counted(&accounting, GPU, Limited::Exports), 1);
    accounting.close_file(HOLDER);
    assert_eq!(counted(&accounting, GPU, Limited::Exports), 0);
}

#[test]
fn places_count_as_host_memory_until_close() {
    let mut accounting = shared();
    accounting.add_share(OTHER_GPU, MIB).unwrap();
    let make = |accounting: &mut Accounting, file, made| {
        let none = DescriptorPlaces {
            file,
            made,
            ..places(CLIENT, 0, &[])
        };
        let ticket = accounting.begin_export(&none)?;
        accounting.end_export(ticket, true);
        Ok::<(), RefusalCause>(())
    };
    let host = |accounting: &Accounting| {
        [GPU, OTHER_GPU].map(|gpu| counted(accounting, gpu, Limited::HostMemory))
    };
    // The largest array that the driver can have made.
    for (made, bytes) in [(1, 4), (16, 64), (17, 128), (3, 128), (u16::MAX, 256 << 10)] {
        make(&mut accounting, HOLDER, made).unwrap();
        assert_eq!(host(&accounting), [bytes; 2], "{made}");
    }
    let other = FileId(HOLDER.0 + 1);
    let (what, most) = (Limited::HostMemory, (256 << 10) + 64);
    accounting
        .set_limit_of(OTHER_GPU, what, Some(most))
        .unwrap();
    let refused = Err(RefusalCause::LimitReached(what));
    assert_eq!(make(&mut accounting, other, 17), refused);
    assert_eq!(make(&mut accounting, other, 16), Ok(()));
    assert_eq!(host(&accounting), [most; 2]);
    accounting.close_file(HOLDER);
    assert_eq!(host(&accounting), [64; 2]);
    accounting.close_file(other);
    accounting.close_file(FILE);
    accounting.close_file(READER_FILE);
    assert!(accounting.is_idle());
}
