// SPDX-License-Identifier: GPL-2.0
//! Devices that have the addresses of another client.

use super::*;

/// The client that is shared with, and its device.
const SHARED: ClientHandle = ClientHandle(0xc1d0_0020);
const THIRD: ClientHandle = ClientHandle(0xc1d0_0021);
const OTHER_FILE: FileId = FileId(12);
const USER: ObjectHandle = ObjectHandle(0x5c00_0030);

/// A device of a client that has another one's addresses.
fn user(client: ClientHandle, shared: ClientHandle) -> Alloc {
    Alloc {
        addresses_of: Some(shared),
        ..device_request(client, USER, GPU)
    }
}

/// Accounting with three clients, each with a device.
fn clients() -> Accounting {
    let mut accounting = accounting(MIB);
    for client in [SHARED, THIRD] {
        accounting.client(client, FILE, PROCESS);
        accounting.device(client, DEVICE, GPU).unwrap();
    }
    accounting
}

/// A free of a client from beginning to end, as the driver grants it.
fn free_client(accounting: &mut Accounting, client: ClientHandle) -> Result<(), RefusalCause> {
    let ticket = accounting.begin_free(client, client.root(), None)?;
    accounting.end_free(ticket, true);
    Ok(())
}

#[test]
fn addresses_are_shared_in_one_step() {
    let refused = Err(RefusalCause::NotShareable);
    let mut accounting = clients();
    accounting.alloc(&user(CLIENT, SHARED)).unwrap();
    // In a circle, in a row from either end.
    assert_eq!(accounting.alloc(&user(SHARED, CLIENT)), refused);
    assert_eq!(accounting.alloc(&user(SHARED, THIRD)), refused);
    assert_eq!(accounting.alloc(&user(THIRD, CLIENT)), refused);
    // Many may share with one.
    accounting.alloc(&user(THIRD, SHARED)).unwrap();
    // A device that is on its way counts, and none that is gone or was refused.
    accounting.free(CLIENT, USER);
    accounting.free(THIRD, USER);
    let ticket = accounting.begin_alloc(&user(SHARED, CLIENT)).unwrap();
    assert_eq!(accounting.alloc(&user(CLIENT, SHARED)), refused);
    accounting.end_alloc(ticket, None);
    let missing = Alloc {
        object: DEVICE,
        ..user(SHARED, CLIENT)
    };
    assert_eq!(accounting.alloc(&missing), Err(RefusalCause::HandleInUse));
    accounting.alloc(&user(CLIENT, SHARED)).unwrap();
    accounting.close_file(FILE);
    assert!(accounting.is_idle());
}

#[test]
fn client_stays_while_its_addresses_are_used() {
    let mut accounting = clients();
    let in_use = Err(RefusalCause::SpaceInUse);
    let ticket = accounting.begin_alloc(&user(CLIENT, SHARED)).unwrap();
    assert_eq!(free_client(&mut accounting, SHARED), in_use);
    accounting.end_alloc(ticket, done(USER, 0));
    assert_eq!(free_client(&mut accounting, SHARED), in_use);
    // The objects below it may go.
    accounting.free(SHARED, DEVICE);
    // It goes behind the device, or the client of that.
    accounting.free(CLIENT, USER);
    accounting.alloc(&user(CLIENT, SHARED)).unwrap();
    free_client(&mut accounting, CLIENT).unwrap();
    // While it is being freed nobody comes to use it.
    let ticket = accounting
        .begin_free(SHARED, SHARED.root(), None)
        .expect("nobody uses it");
    let refused = Err(RefusalCause::NotShareable);
    assert_eq!(accounting.alloc(&user(THIRD, SHARED)), refused);
    accounting.end_free(ticket, true);
    let foreign = Err(RefusalCause::ForeignClient);
    assert_eq!(accounting.alloc(&user(THIRD, SHARED)), foreign);
    accounting.close_file(FILE);
    assert!(accounting.is_idle());
}

#[test]
fn addresses_are_shared_within_a_file() {
    let mut accounting = accounting(MIB);
    accounting.client(SHARED, OTHER_FILE, PROCESS);
    let refused = Err(RefusalCause::NotShareable);
    assert_eq!(accounting.alloc(&user(CLIENT, SHARED)), refused);
    // Both go with their file, in whatever order: here the one that is shared with comes first.
    accounting.client(THIRD, FILE, PROCESS);
    accounting.alloc(&user(CLIENT, THIRD)).unwrap();
    accounting.close_file(OTHER_FILE);
    accounting.close_file(FILE);
    assert!(accounting.is_idle());
}
