// SPDX-License-Identifier: GPL-2.0
//! The ledger by itself: what is asked, given, and over.

use super::*;

const MIB: u64 = 1 << 20;
const GPU: GpuId = GpuId(0);

fn asking(bytes: u64, context: bool) -> Demand {
    Demand {
        bytes,
        context,
        ..Demand::default()
    }
}

#[test]
fn a_request_is_granted_up_to_the_limit_and_not_one_byte_beyond() {
    for (bytes, granted) in [(MIB - 1, true), (MIB, true), (MIB + 1, false)] {
        let mut ledger = Ledger::new(GPU, MIB);
        let reservation = ledger.reserve(asking(bytes, false));
        assert_eq!(reservation.is_ok(), granted, "{bytes} of {MIB}");
        match reservation {
            Ok(reservation) => {
                assert_eq!(ledger.view().reserved, bytes);
                assert_eq!(ledger.view().refused, 0);
                ledger.abandon(reservation);
            }
            Err(short) => {
                assert_eq!((short.wanted, short.free), (bytes, MIB));
                assert_eq!(ledger.view().refused, 1);
            }
        }
        assert_eq!(ledger.view().free(), MIB);
        assert!(ledger.is_clear());
    }
}

/// A ledger on which contexts cost 10 bytes each, and 5 once.
fn with_contexts(limit: u64) -> Ledger {
    let mut ledger = Ledger::new(GPU, limit);
    ledger.cost = ContextCost {
        shared: 5,
        each: 10,
    };
    ledger
}

#[test]
fn a_forged_size_hides_nothing_that_comes_after_it() {
    let mut ledger = Ledger::new(GPU, 100);
    let (honest, forged) = (
        ledger.reserve(asking(60, false)),
        ledger.reserve(asking(40, false)),
    );
    let forged = ledger.commit(forged.expect("room"), u64::MAX);
    let honest = ledger.commit(honest.expect("room"), 60);
    ledger.credit(forged);
    assert_eq!(ledger.view().used, 60);
    ledger.credit(honest);
    assert_eq!(ledger.view().used, 0);
}

#[test]
fn overhead_counts_against_the_limit_and_shows_in_neither_used_nor_peak() {
    for (bytes, granted) in [(MIB - 16, true), (MIB - 15, true), (MIB - 14, false)] {
        let mut ledger = with_contexts(MIB);
        let reservation = ledger.reserve(asking(bytes, true));
        assert_eq!(reservation.is_ok(), granted, "{bytes} + 15 of {MIB}");
        let Ok(reservation) = reservation else {
            continue;
        };
        assert_eq!(ledger.view().reserved, bytes + 15);
        let charge = ledger.commit(reservation, bytes);
        assert_eq!(ledger.view().used, bytes);
        assert_eq!(ledger.view().peak, bytes);
        assert_eq!(ledger.view().overhead, 15);
        assert_eq!(ledger.view().free(), MIB - bytes - 15);
        ledger.credit(charge);
        assert_eq!(ledger.view().free(), MIB);
        assert_eq!(ledger.view().peak, bytes);
        assert_eq!(ledger.view().overhead_peak, 15);
    }
}

#[test]
fn what_is_taken_once_is_charged_as_long_as_there_is_any_context() {
    let mut ledger = with_contexts(35);
    let first = ledger.reserve(asking(0, true)).unwrap();
    let second = ledger.reserve(asking(0, true)).unwrap();
    assert_eq!((ledger.view().reserved, ledger.view().overhead), (25, 0));
    let second = ledger.commit(second, 0);
    assert_eq!((ledger.view().reserved, ledger.view().overhead), (10, 15));
    let third = ledger.reserve(asking(0, true)).unwrap();
    let short = ledger.reserve(asking(0, true)).unwrap_err();
    assert_eq!((short.wanted, short.free), (10, 0));
    ledger.abandon(first);
    assert_eq!((ledger.view().reserved, ledger.view().overhead), (10, 15));
    ledger.credit(second);
    // The one that is coming may be the first now.
    assert_eq!((ledger.view().reserved, ledger.view().overhead), (15, 0));
    let third = ledger.commit(third, 0);
    assert_eq!((ledger.view().reserved, ledger.view().overhead), (0, 15));
    ledger.credit(third);
    assert_eq!(ledger.view().free(), 35);
    assert_eq!(ledger.view().overhead_peak, 15);
    assert!(ledger.is_clear());
}

#[test]
fn what_the_driver_says_can_raise_a_charge_and_never_lower_it() {
    let mut ledger = Ledger::new(GPU, MIB);
    let reservation = ledger.reserve(asking(100, false)).unwrap();
    let low = ledger.commit(reservation, 1);
    assert_eq!(ledger.view().used, 100);
    let reservation = ledger.reserve(asking(100, false)).unwrap();
    let high = ledger.commit(reservation, 2 * MIB);
    assert_eq!(ledger.view().used, 2 * MIB + 100);
    assert!(ledger.view().over());
    assert_eq!(ledger.view().free(), 0);
    ledger.credit(high);
    ledger.credit(low);
    assert_eq!(ledger.view().used, 0);
}

#[test]
fn a_request_that_overflows_a_u64_is_refused() {
    let mut ledger = Ledger::new(GPU, u64::MAX);
    assert!(ledger.reserve(asking(u64::MAX, true)).is_err());
    let reservation = ledger.reserve(asking(u64::MAX, false)).unwrap();
    assert!(ledger.reserve(asking(1, false)).is_err());
    let charge = ledger.commit(reservation, u64::MAX);
    assert_eq!(ledger.view().used, u64::MAX);
    ledger.credit(charge);
    assert_eq!(ledger.view().used, 0);
}

#[test]
fn a_share_that_was_taken_away_keeps_its_place_until_it_is_clear() {
    let mut ledgers = Ledgers::new();
    ledgers.open(GPU, MIB).unwrap();
    let share = ledgers.of(GPU).unwrap();
    let reservation = ledgers
        .get_mut(share)
        .unwrap()
        .reserve(asking(5, false))
        .unwrap();
    ledgers.close(GPU);
    assert_eq!(ledgers.of(GPU), None);
    ledgers.open(GpuId(1), MIB).unwrap();
    assert_ne!(ledgers.of(GpuId(1)), Some(share));
    ledgers.get_mut(share).unwrap().abandon(reservation);
    ledgers.open(GpuId(2), MIB).unwrap();
    assert_eq!(ledgers.of(GpuId(2)), Some(share));
}
