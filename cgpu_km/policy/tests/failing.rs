// SPDX-License-Identifier: GPL-2.0
//! The accounting when the kernel has no memory for them.

use super::*;
use crate::{
    nvidia::status::NvStatus,
    store::failing, //
};

/// Runs `event` with its first allocation failing, then its second and so on, until none fails.
/// Says how many it took.
fn with_each_allocation_failing<R>(mut event: impl FnMut() -> R) -> u32 {
    for granted in 0..100 {
        let (_, failed) = failing::after(granted, &mut event);
        if !failed {
            return granted;
        }
    }
    panic!("an event makes less than a hundred allocations");
}

#[test]
fn event_without_memory_changes_nothing() {
    // Larger and larger accounting, so that every list comes to the point where it has to grow.
    let mut accounting = Accounting::new(0);
    accounting.add_share(GPU, u64::MAX).unwrap();
    let mut refused = 0;
    for number in 1..200 {
        let client = ClientHandle(0xc1d0_0000 + number);
        let done = |object, bytes| Some(AllocDone { object, bytes });
        let (file, process) = (FileId(u64::from(number)), ProcessId(1000));
        let process = ProcessId(process.0 + i32::try_from(number).unwrap());
        let requests = [
            (client_request(file, process), object(client.0)),
            (device_request(client, DEVICE, GPU), DEVICE),
            (memory_request(client, DEVICE, object(7), 1), object(7)),
            (memory_request(client, DEVICE, object(0), 1), object(0)),
            (context_request(client, DEVICE, object(9)), object(9)),
        ];
        for (request, handle) in requests {
            with_each_allocation_failing(|| {
                let before = format!("{:?}", accounting.share(GPU));
                match accounting.begin_alloc(&request) {
                    Ok(ticket) => accounting.end_alloc(ticket, done(handle, request.bytes)),
                    Err(refusal) => {
                        assert_eq!(refusal.status(), NvStatus::NV_ERR_NO_MEMORY);
                        assert_eq!(refusal, RefusalCause::Exhausted);
                        assert_eq!(before, format!("{:?}", accounting.share(GPU)));
                        refused += 1;
                    }
                }
            });
        }
        with_each_allocation_failing(|| {
            match accounting.begin_dup(client, DEVICE, object(10), client, object(7)) {
                Ok(ticket) => accounting.end_dup(ticket, Some(object(10))),
                Err(refusal) => {
                    assert_eq!(refusal, RefusalCause::Exhausted);
                    refused += 1;
                }
            }
        });
        let objects = [object(7), object(7)];
        let places = DescriptorPlaces {
            file: FileId(1000 + u64::from(number)),
            first: 1,
            client,
            objects: &objects,
            made: 4,
        };
        with_each_allocation_failing(|| match accounting.begin_export(&places) {
            // So that the next try finds the places as this one did.
            Ok(ticket) => accounting.end_export(ticket, false),
            Err(refusal) => {
                assert_eq!(refusal, RefusalCause::Exhausted);
                refused += 1;
            }
        });
        let ticket = accounting.begin_export(&places).unwrap();
        accounting.end_export(ticket, true);
        let objects = [object(0), object(0)];
        let places = DescriptorPlaces {
            objects: &objects,
            ..places
        };
        with_each_allocation_failing(|| match accounting.begin_import(&places, DEVICE) {
            Ok(ticket) => accounting.end_import(ticket, |_| true),
            Err(refusal) => {
                assert_eq!(refusal, RefusalCause::Exhausted);
                refused += 1;
            }
        });
        assert_eq!(accounting.used(GPU), 2 * u64::from(number));
        assert_eq!(accounting.share(GPU).unwrap().reserved, 0);
    }
    assert!(refused > 30, "only {refused} refusals were seen");
    for number in 1..200 {
        accounting.close_file(FileId(number));
        assert!(!accounting.is_idle());
        accounting.close_file(FileId(1000 + number));
    }
    assert!(accounting.is_idle());
}

#[test]
fn refused_event_leaves_empty_accounting_empty() {
    let mut accounting = Accounting::new(0);
    let allocations = with_each_allocation_failing(|| {
        accounting = Accounting::new(0);
        if accounting.add_share(GPU, 1).is_err() {
            return;
        }
        match accounting.begin_alloc(&client_request(FILE, PROCESS)) {
            Ok(ticket) => accounting.end_alloc(ticket, None),
            Err(refusal) => assert_eq!(refusal, RefusalCause::Exhausted),
        }
        assert!(accounting.is_idle());
    });
    // Ledger, object, client, handle, room for when it is gone, file, process and its number.
    assert_eq!(allocations, 8);
}

#[test]
fn nothing_after_the_drivers_answer_allocates() {
    let mut accounting = accounting(u64::MAX);
    let mut tickets = Vec::new();
    for _ in 0..1000 {
        let request = memory_request(CLIENT, DEVICE, object(0), 1);
        tickets.push(accounting.begin_alloc(&request).unwrap());
    }
    let ((), failed) = failing::after(0, || {
        for ticket in tickets.drain(..) {
            let object = ticket.handle();
            accounting.end_alloc(ticket, Some(AllocDone { object, bytes: 2 }));
        }
    });
    assert!(!failed);
    assert_eq!(accounting.used(GPU), 2000);
    let ((), failed) = failing::after(0, || accounting.close_file(FILE));
    assert!(!failed);
    assert!(accounting.is_idle());
}

#[test]
fn share_without_memory_is_not_added() {
    let mut accounting = Accounting::new(0);
    let (result, failed) = failing::after(0, || accounting.add_share(GPU, 1));
    assert!(failed && result.is_err());
    assert_eq!(accounting.share(GPU), None);
}
