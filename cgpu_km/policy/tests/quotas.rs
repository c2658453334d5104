// SPDX-License-Identifier: GPL-2.0
//! Limits of clients, objects and events.

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
    // What it would have cost was given back.
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
