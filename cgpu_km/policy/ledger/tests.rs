// SPDX-License-Identifier: GPL-2.0
//! The ledger by itself: what is asked, given, and over.

use super::*;
use crate::policy::{
    channel_limit::ChannelUnit,
    ids::MAX_SHARES,
    ledgers::Ledgers, //
};

const MIB: u64 = 1 << 20;
const GPU: GpuId = GpuId(0);

fn asking(bytes: u64, context: bool) -> Demand {
    let engines = Engines::of(0x180, true);
    let ids = if context {
        TakenIds::of(&engines, ChannelUnit::Group, 1)
    } else {
        TakenIds::NONE
    };
    Demand {
        bytes,
        ids,
        ..Demand::NONE
    }
}

#[test]
fn requests_are_granted_exactly_up_to_the_limit() {
    for (bytes, granted) in [(MIB - 1, true), (MIB, true), (MIB + 1, false)] {
        let mut ledger = Ledger::new(ShareId::at(0).unwrap(), GPU, MIB);
        let reservation = ledger.reserve(asking(bytes, false));
        assert_eq!(reservation.is_ok(), granted, "{bytes} of {MIB}");
        match reservation {
            Ok(reservation) => {
                assert_eq!(ledger.view().reserved, bytes);
                assert_eq!(ledger.view().refused, 0);
                ledger.release(reservation);
            }
            Err(lack) => {
                let (wanted, free) = (bytes, MIB);
                assert_eq!(lack, RefusalCause::NoMemory { wanted, free });
                assert_eq!(ledger.view().refused, 1);
            }
        }
        assert_eq!(ledger.view().free(), MIB);
        assert!(ledger.is_clear());
    }
}

/// A ledger on which contexts cost 10 bytes each, and 5 once.
fn with_contexts(limit: u64) -> Ledger {
    let mut ledger = Ledger::new(ShareId::at(0).unwrap(), GPU, limit);
    ledger.cost = ContextCost {
        shared: 5,
        each: 10,
    };
    ledger
}

#[test]
fn forged_size_hides_no_later_charge() {
    let mut ledger = Ledger::new(ShareId::at(0).unwrap(), GPU, 100);
    let mut honest = ledger.reserve(asking(60, false)).expect("room");
    let mut forged = ledger.reserve(asking(40, false)).expect("room");
    ledger.commit(&mut forged, u64::MAX);
    ledger.commit(&mut honest, 60);
    ledger.release(forged);
    assert_eq!(ledger.view().used, 60);
    ledger.release(honest);
    assert_eq!(ledger.view().used, 0);
}

#[test]
fn overhead_counts_against_the_limit_alone() {
    for (bytes, granted) in [(MIB - 16, true), (MIB - 15, true), (MIB - 14, false)] {
        let mut ledger = with_contexts(MIB);
        let reservation = ledger.reserve(asking(bytes, true));
        assert_eq!(reservation.is_ok(), granted, "{bytes} + 15 of {MIB}");
        let Ok(mut taken) = reservation else {
            continue;
        };
        assert_eq!(ledger.view().reserved, bytes + 15);
        assert_eq!(ledger.commit(&mut taken, bytes), Some(bytes));
        assert_eq!(ledger.view().used, bytes);
        assert_eq!(ledger.view().peak, bytes);
        assert_eq!(ledger.view().overhead, 15);
        assert_eq!(ledger.view().free(), MIB - bytes - 15);
        ledger.release(taken);
        assert_eq!(ledger.view().free(), MIB);
        assert_eq!(ledger.view().peak, bytes);
        assert_eq!(ledger.view().overhead_peak, 15);
    }
}

#[test]
fn the_first_cost_stays_until_the_last_context() {
    let mut ledger = with_contexts(35);
    let first = ledger.reserve(asking(0, true)).unwrap();
    let mut second = ledger.reserve(asking(0, true)).unwrap();
    assert_eq!((ledger.view().reserved, ledger.view().overhead), (25, 0));
    ledger.commit(&mut second, 0);
    assert_eq!((ledger.view().reserved, ledger.view().overhead), (10, 15));
    let mut third = ledger.reserve(asking(0, true)).unwrap();
    let lack = ledger.reserve(asking(0, true)).unwrap_err();
    let (wanted, free) = (10, 0);
    assert_eq!(lack, RefusalCause::NoMemory { wanted, free });
    ledger.release(first);
    assert_eq!((ledger.view().reserved, ledger.view().overhead), (10, 15));
    ledger.release(second);
    // The one that is coming may be the first now.
    assert_eq!((ledger.view().reserved, ledger.view().overhead), (15, 0));
    ledger.commit(&mut third, 0);
    assert_eq!((ledger.view().reserved, ledger.view().overhead), (0, 15));
    ledger.release(third);
    assert_eq!(ledger.view().free(), 35);
    assert_eq!(ledger.view().overhead_peak, 15);
    assert!(ledger.is_clear());
}

#[test]
fn the_drivers_size_only_raises_a_charge() {
    let mut ledger = Ledger::new(ShareId::at(0).unwrap(), GPU, MIB);
    let mut low = ledger.reserve(asking(100, false)).unwrap();
    ledger.commit(&mut low, 1);
    assert_eq!(ledger.view().used, 100);
    let mut high = ledger.reserve(asking(100, false)).unwrap();
    ledger.commit(&mut high, 2 * MIB);
    assert_eq!(ledger.view().used, 2 * MIB + 100);
    assert!(ledger.view().over());
    assert_eq!(ledger.view().free(), 0);
    ledger.release(high);
    ledger.release(low);
    assert_eq!(ledger.view().used, 0);
}

#[test]
fn a_second_commit_charges_nothing() {
    let mut ledger = Ledger::new(ShareId::at(0).unwrap(), GPU, MIB);
    let mut taken = ledger.reserve(asking(100, false)).unwrap();
    assert_eq!(ledger.commit(&mut taken, 100), Some(100));
    assert_eq!(ledger.commit(&mut taken, 200), None);
    assert_eq!(ledger.view().used, 100);
    ledger.release(taken);
    assert!(ledger.is_clear());
}

#[test]
fn a_request_that_overflows_a_u64_is_refused() {
    let mut ledger = Ledger::new(ShareId::at(0).unwrap(), GPU, u64::MAX);
    assert!(ledger.reserve(asking(u64::MAX, true)).is_err());
    let mut taken = ledger.reserve(asking(u64::MAX, false)).unwrap();
    assert!(ledger.reserve(asking(1, false)).is_err());
    ledger.commit(&mut taken, u64::MAX);
    assert_eq!(ledger.view().used, u64::MAX);
    ledger.release(taken);
    assert_eq!(ledger.view().used, 0);
}

#[test]
fn removed_share_keeps_its_place_until_clear() {
    let mut ledgers = Ledgers::default();
    ledgers.open(GPU, MIB).unwrap();
    let share = ledgers.of(GPU).unwrap();
    let reservation = ledgers
        .get_mut(share)
        .unwrap()
        .reserve(asking(5, false))
        .unwrap();
    ledgers.close(GPU);
    assert_eq!(ledgers.of(GPU), None);
    let mut gpus = (1..).map(GpuId);
    for gpu in gpus.by_ref().take(MAX_SHARES - 1) {
        ledgers.open(gpu, MIB).unwrap();
        assert_ne!(ledgers.of(gpu), Some(share));
    }
    let next = gpus.next().unwrap();
    assert!(ledgers.open(next, MIB).is_err());
    ledgers.get_mut(share).unwrap().release(reservation);
    ledgers.open(next, MIB).unwrap();
    assert_eq!(ledgers.of(next), Some(share));
}

#[test]
fn places_are_kept_while_there_are_others() {
    let mut ledgers = Ledgers::default();
    ledgers.open(GPU, MIB).unwrap();
    let share = ledgers.of(GPU).unwrap();
    ledgers.close(GPU);
    ledgers.open(GpuId(1), MIB).unwrap();
    assert_ne!(ledgers.of(GpuId(1)), Some(share));
}

#[test]
fn cleared_share_comes_back_without_its_history() {
    let mut ledgers = Ledgers::default();
    ledgers.open(GPU, MIB).unwrap();
    let fresh = ledgers.on(GPU).unwrap().view();
    for keeps in [true, false] {
        let ledger = ledgers.active_mut(GPU).unwrap();
        let mut taken = ledger.reserve(asking(MIB, false)).unwrap();
        ledger.commit(&mut taken, MIB);
        assert!(ledger.reserve(asking(1, false)).is_err());
        let share = taken.share();
        if keeps {
            ledgers.close(GPU);
            ledgers.open(GPU, MIB).unwrap();
            let view = ledgers.on(GPU).unwrap().view();
            assert_eq!((view.used, view.peak, view.refused), (MIB, MIB, 1));
        }
        ledgers.get_mut(share).unwrap().release(taken);
    }
    ledgers.close(GPU);
    ledgers.open(GPU, MIB).unwrap();
    assert_eq!(ledgers.on(GPU).unwrap().view(), fresh);
}
