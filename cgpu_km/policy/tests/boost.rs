// SPDX-License-Identifier: GPL-2.0
//! Wishes for the highest clock, and the driver's calls that follow from them.

use super::*;
use crate::{
    policy::sched::InstanceId,
    store::failing,
    uapi::MAX_INSTANCES_PER_GPU, //
};

const SUBDEVICE: ObjectHandle = ObjectHandle(0x5c00_0003);
const ONE: InstanceId = InstanceId(1);
const TWO: InstanceId = InstanceId(2);
const SECOND: u64 = 1_000_000_000;

fn subdevice_request(client: ClientHandle, device: ObjectHandle) -> Alloc {
    Alloc {
        class: ClassId(0x2080),
        kind: Kind::Subdevice,
        ..request(client, device, SUBDEVICE)
    }
}

/// Accounting with so many clients, each with a device and a subdevice and on a file of its own.
fn with_clients(count: u32) -> Accounting {
    let mut accounting = Accounting::new(0);
    accounting.add_share(GPU, MIB).unwrap();
    for n in 0..count {
        accounting.client(client(n), FileId(u64::from(n)), PROCESS);
        let device = device_request(client(n), DEVICE, GPU);
        accounting.alloc(&device).unwrap();
        accounting
            .alloc(&subdevice_request(client(n), DEVICE))
            .unwrap();
    }
    accounting
}

fn client(n: u32) -> ClientHandle {
    ClientHandle(CLIENT.0 + n)
}

fn set(accounting: &mut Accounting, n: u32, boost: Boost) -> Boost {
    accounting.set_boost(client(n), SUBDEVICE, boost).unwrap();
    accounting.boost(GPU)
}

#[test]
fn the_longest_of_all_counts() {
    let mut accounting = with_clients(3);
    assert_eq!(set(&mut accounting, 0, Boost::until(20)), Boost::until(20));
    assert_eq!(set(&mut accounting, 1, Boost::until(10)), Boost::until(20));
    assert_eq!(set(&mut accounting, 2, Boost::ENDLESS), Boost::ENDLESS);
    assert_eq!(set(&mut accounting, 2, Boost::ENDLESS), Boost::ENDLESS);
    assert_eq!(set(&mut accounting, 2, Boost::OFF), Boost::until(20));
    assert_eq!(set(&mut accounting, 0, Boost::OFF), Boost::until(20));
    assert_eq!(set(&mut accounting, 1, Boost::OFF), Boost::OFF);
    assert_eq!(accounting.boost(OTHER_GPU), Boost::OFF);
}

#[test]
fn a_boost_goes_with_whatever_it_hangs_from() {
    type End = fn(&mut Accounting);
    let ends: [End; 4] = [
        |accounting| accounting.free(CLIENT, SUBDEVICE),
        |accounting| accounting.free(CLIENT, DEVICE),
        |accounting| accounting.free(CLIENT, ObjectHandle(CLIENT.0)),
        |accounting| accounting.close_file(FileId(0)),
    ];
    for end in ends {
        for boost in [Boost::ENDLESS, Boost::until(5)] {
            let mut accounting = with_clients(2);
            assert_eq!(set(&mut accounting, 0, boost), boost);
            let changes = accounting.boost_changes();
            end(&mut accounting);
            assert_eq!(accounting.boost(GPU), Boost::OFF);
            assert_eq!(accounting.boost_changes(), changes + 1);
        }
    }
}

#[test]
fn changes_are_told_once() {
    let mut accounting = with_clients(2);
    set(&mut accounting, 0, Boost::ENDLESS);
    let changes = accounting.boost_changes();
    set(&mut accounting, 0, Boost::ENDLESS);
    set(&mut accounting, 1, Boost::ENDLESS);
    accounting.close_file(FileId(0));
    assert_eq!(accounting.boost_changes(), changes);
    accounting.close_file(FileId(1));
    assert_eq!(accounting.boost_changes(), changes + 1);
}

#[test]
fn only_a_subdevice_of_the_tenant_has_one() {
    let mut accounting = with_clients(1);
    for (client, object) in [(client(0), DEVICE), (client(7), SUBDEVICE)] {
        assert!(accounting
            .set_boost(client, object, Boost::ENDLESS)
            .is_err());
    }
    assert_eq!(accounting.boost(GPU), Boost::OFF);
}

/// The boosts of a GPU with two instances, whose driver can be asked.
fn boosts() -> Boosts {
    let mut boosts = Boosts::default();
    boosts.add(ONE).unwrap();
    boosts.add(TWO).unwrap();
    boosts.attach();
    boosts
}

/// All that the driver is asked for at a moment.
fn calls(boosts: &mut Boosts, now: u64) -> Vec<BoostCall> {
    let calls = core::iter::from_fn(|| boosts.next(now)).take(10);
    calls.collect()
}

#[test]
fn boost_is_asked_once_until_the_last() {
    let mut boosts = boosts();
    assert_eq!(calls(&mut boosts, SECOND), []);
    boosts.want(ONE, Boost::ENDLESS);
    boosts.want(TWO, Boost::ENDLESS);
    assert_eq!(calls(&mut boosts, SECOND), [BoostCall::Endless]);
    assert!(boosts.is_on(SECOND));
    boosts.want(ONE, Boost::OFF);
    assert_eq!(calls(&mut boosts, 100 * SECOND), []);
    assert_eq!(boosts.deadline(100 * SECOND), None);
    boosts.remove(TWO);
    assert_eq!(calls(&mut boosts, 100 * SECOND), [BoostCall::Clear]);
    assert!(!boosts.is_on(100 * SECOND));
    assert_eq!(calls(&mut boosts, 200 * SECOND), []);
}

#[test]
fn short_programs_cost_one_call() {
    let mut boosts = boosts();
    let began = 7 * SECOND;
    let mut asked = Vec::new();
    for n in 0..1000 {
        boosts.want(ONE, [Boost::ENDLESS, Boost::OFF][n % 2]);
        asked.extend(calls(&mut boosts, began + BOOST_STAYS / 2));
    }
    assert_eq!(asked, [BoostCall::Endless]);
    let deadline = boosts.deadline(began + BOOST_STAYS / 2).unwrap();
    assert_eq!(calls(&mut boosts, deadline - 1), []);
    assert_eq!(calls(&mut boosts, deadline), [BoostCall::Clear]);
    assert_eq!(boosts.deadline(deadline), None);
}

#[test]
fn timed_boost_ends_by_itself() {
    let mut boosts = boosts();
    boosts.want(ONE, Boost::until(12));
    assert_eq!(calls(&mut boosts, 10 * SECOND + 1), [BoostCall::For(2)]);
    // A shorter one of another changes nothing, a longer one does.
    boosts.want(TWO, Boost::until(11));
    assert_eq!(calls(&mut boosts, 10 * SECOND + 2), []);
    boosts.want(TWO, Boost::until(15));
    assert_eq!(calls(&mut boosts, 11 * SECOND + 1), [BoostCall::For(4)]);
    assert_eq!(boosts.deadline(12 * SECOND), None);
    // Its time has come: nothing is to be cleared.
    assert_eq!(calls(&mut boosts, 15 * SECOND), []);
    assert!(!boosts.is_on(15 * SECOND));
}

/// A call can take the GPU's thread many milliseconds.
#[test]
fn growing_boosts_are_asked_seldom() {
    let mut boosts = boosts();
    let mut asked = 0;
    for n in 0..3000 {
        let now = 10 * SECOND + n * SECOND / 1000;
        boosts.want(ONE, Boost::until(100 + n));
        asked += calls(&mut boosts, now).len();
        assert!(boosts.deadline(now).is_none_or(|later| later > now));
    }
    assert_eq!(asked, 3);
}

#[test]
fn rest_of_timed_boost_follows_endless_one() {
    let mut boosts = boosts();
    boosts.want(ONE, Boost::ENDLESS);
    boosts.want(TWO, Boost::until(100));
    assert_eq!(calls(&mut boosts, 10 * SECOND), [BoostCall::Endless]);
    boosts.want(ONE, Boost::OFF);
    let after = [BoostCall::Clear, BoostCall::For(60)];
    assert_eq!(calls(&mut boosts, 40 * SECOND), after);
}

#[test]
fn returned_driver_is_asked_anew() {
    let mut boosts = Boosts::default();
    boosts.add(ONE).unwrap();
    boosts.want(ONE, Boost::ENDLESS);
    assert_eq!(calls(&mut boosts, SECOND), []);
    assert_eq!(boosts.deadline(SECOND), None);
    boosts.attach();
    assert_eq!(calls(&mut boosts, SECOND), [BoostCall::Endless]);
    boosts.detach();
    assert!(!boosts.is_on(SECOND));
    boosts.want(ONE, Boost::OFF);
    assert_eq!(calls(&mut boosts, 9 * SECOND), []);
    boosts.want(ONE, Boost::ENDLESS);
    boosts.attach();
    assert_eq!(calls(&mut boosts, 9 * SECOND), [BoostCall::Endless]);
}

#[test]
fn boosting_instances_are_added_without_memory() {
    let mut boosts = Boosts::default();
    boosts.make_room().unwrap();
    let ids = (0..MAX_INSTANCES_PER_GPU).map(|id| InstanceId(u32::try_from(id).unwrap()));
    let mut add = |id| boosts.add(id);
    let (added, failed) = failing::after(0, || ids.map(&mut add).all(|added| added.is_ok()));
    assert!(added && !failed);
}
