// SPDX-License-Identifier: GPL-2.0
//! Ranges of addresses that UVM maps memory to: the end of one is believed where all are known, and
//! never where the driver can still have something mapped.

use super::*;
use crate::{
    policy::ranges::RANGE_STRUCT,
    uapi::Limited, //
};
use proptest::prelude::*;
use std::collections::BTreeMap;

const PAGE: u64 = 4096;
const MEMORY: ObjectHandle = ObjectHandle(0x5c00_0010);

fn with_range(base: u64, length: u64) -> Accounting {
    let mut accounting = accounting(u64::MAX);
    let request = memory_request(CLIENT, DEVICE, MEMORY, MIB);
    accounting.alloc(&request).unwrap();
    let ticket = accounting.begin_range(UVM, base, length).unwrap();
    accounting.end_range(ticket, true);
    accounting
}

#[test]
fn no_two_ranges_of_a_file_overlap() {
    let mut accounting = with_range(4 * MIB, 4 * MIB);
    for (base, length) in [(4, 4), (0, 0), (3, 2), (7, 9), (5, 1), (2, 8)] {
        let (base, length) = (base * MIB, length * MIB);
        let refused = accounting.begin_range(UVM, base, length).err();
        let wanted = match length {
            0 => RefusalCause::NoRange,
            _ => RefusalCause::AddressInUse,
        };
        assert_eq!(refused, Some(wanted), "{base:#x} {length:#x}");
    }
    for (base, length) in [(2 * MIB, 2 * MIB), (8 * MIB, PAGE)] {
        let ticket = accounting.begin_range(UVM, base, length).unwrap();
        accounting.end_range(ticket, true);
    }
    // Another file is another address space.
    let other = FileId(UVM.0 + 1);
    let ticket = accounting.begin_range(other, 4 * MIB, 4 * MIB).unwrap();
    accounting.end_range(ticket, true);
    accounting.close_file(UVM);
    let ticket = accounting.begin_range(UVM, 4 * MIB, 4 * MIB).unwrap();
    accounting.end_range(ticket, true);
    accounting.close_file(UVM);
    accounting.close_file(other);
    accounting.close_file(FILE);
    assert!(accounting.is_idle());
}

#[test]
fn bad_addresses_make_no_range() {
    let mut accounting = accounting(u64::MAX);
    for (base, length) in [
        (0, PAGE),
        (PAGE, 0),
        (PAGE + 1, PAGE),
        (PAGE, PAGE + 1),
        (u64::MAX - PAGE + 1, 2 * PAGE),
    ] {
        let refused = accounting.begin_range(UVM, base, length).err();
        assert_eq!(
            refused,
            Some(RefusalCause::NoRange),
            "{base:#x} {length:#x}"
        );
    }
}

#[test]
fn call_on_a_range_in_flight_is_refused() {
    let mut accounting = with_range(4 * MIB, 4 * MIB);
    let coming = accounting.begin_range(UVM, 8 * MIB, 4 * MIB).unwrap();
    let free =
        |accounting: &mut Accounting, base| accounting.begin_range_free(UVM, base, Some(4 * MIB));
    assert_eq!(
        free(&mut accounting, 8 * MIB).err(),
        Some(RefusalCause::NoRange)
    );
    accounting.end_range(coming, true);
    let Ok(RangeEnd::Certain(going)) = free(&mut accounting, 4 * MIB) else {
        panic!("a range that is there");
    };
    assert_eq!(
        free(&mut accounting, 4 * MIB).err(),
        Some(RefusalCause::NoRange)
    );
    let again = accounting.begin_range(UVM, 4 * MIB, PAGE).err();
    assert_eq!(again, Some(RefusalCause::AddressInUse));
    accounting.end_range_free(going, true);
    assert!(matches!(
        free(&mut accounting, 4 * MIB),
        Ok(RangeEnd::Nothing)
    ));
    let ticket = accounting.begin_range(UVM, 4 * MIB, PAGE).unwrap();
    accounting.end_range(ticket, true);
}

#[test]
fn range_goes_with_all_its_mappings() {
    let mut accounting = with_range(4 * MIB, 4 * MIB);
    for base in [4, 5, 7] {
        let ticket = accounting
            .begin_map(&map(GPU, MEMORY, base * MIB, MIB))
            .unwrap();
        accounting.end_map(ticket, true);
    }
    accounting.free(CLIENT, MEMORY);
    assert_eq!(accounting.used(GPU), MIB);
    // Of another length there is none, so the driver frees none.
    let other = accounting.begin_range_free(UVM, 4 * MIB, Some(MIB));
    assert!(matches!(other, Ok(RangeEnd::Nothing)));
    let Ok(RangeEnd::Certain(going)) = accounting.begin_range_free(UVM, 4 * MIB, None) else {
        panic!("a range that is there");
    };
    accounting.end_range_free(going, true);
    assert_eq!(accounting.used(GPU), 0);
}

#[test]
fn range_without_memory_for_its_record_fails() {
    let mut accounting = accounting(u64::MAX);
    let (failed, _) =
        crate::store::failing::after(0, || accounting.begin_range(UVM, MIB, MIB).err());
    assert_eq!(failed, Some(RefusalCause::Exhausted));
    assert!(matches!(
        accounting.begin_range_free(UVM, MIB, None),
        Ok(RangeEnd::Nothing)
    ));
}

/// Bytes of host memory that count.
fn host(accounting: &Accounting) -> u64 {
    accounting.limit_of(GPU, Limited::HostMemory).unwrap().used
}

#[test]
fn range_counts_as_host_memory() {
    let mut accounting = with_range(4 * MIB, MIB);
    assert_eq!(host(&accounting), RANGE_STRUCT);
    let limit = Some(2 * RANGE_STRUCT);
    accounting
        .set_limit_of(GPU, Limited::HostMemory, limit)
        .unwrap();
    let ticket = accounting.begin_range(UVM, 8 * MIB, MIB).unwrap();
    accounting.end_range(ticket, true);
    let refused = accounting.begin_range(UVM, 12 * MIB, MIB).err();
    let wanted = RefusalCause::LimitReached(Limited::HostMemory);
    assert_eq!(refused, Some(wanted));
    let Ok(RangeEnd::Certain(going)) = accounting.begin_range_free(UVM, 8 * MIB, None) else {
        panic!("a range that is there");
    };
    accounting.end_range_free(going, true);
    assert_eq!(host(&accounting), RANGE_STRUCT);
    let ticket = accounting.begin_range(UVM, 12 * MIB, MIB).unwrap();
    accounting.end_range(ticket, true);
    accounting.close_file(UVM);
    assert_eq!(host(&accounting), 0);
}

#[test]
fn ranges_of_a_lost_file_count_until_close() {
    let mut accounting = with_range(4 * MIB, MIB);
    let ticket = accounting.begin_range(UVM, 8 * MIB, MIB).unwrap();
    accounting.end_range(ticket, false);
    let limit = Some(4 * RANGE_STRUCT);
    accounting
        .set_limit_of(GPU, Limited::HostMemory, limit)
        .unwrap();
    // The driver has one range at an address, however often the program asks for it.
    for base in [16, 4, 16, 24, 16] {
        let ticket = accounting.begin_range(UVM, base * MIB, MIB).unwrap();
        accounting.end_range(ticket, base == 16);
        let freed = accounting.begin_range_free(UVM, base * MIB, None);
        assert!(matches!(freed, Ok(RangeEnd::Lost)));
    }
    assert_eq!(host(&accounting), 4 * RANGE_STRUCT);
    let refused = accounting.begin_range(UVM, 32 * MIB, MIB).err();
    let wanted = RefusalCause::LimitReached(Limited::HostMemory);
    assert_eq!(refused, Some(wanted));
    accounting.close_file(UVM);
    assert_eq!(host(&accounting), 0);
}

/// A call in flight: it is asked of the driver, or was.
enum RangeFlight {
    Create(u64, u64, RangeTicket),
    Map(u64, u64, u64, MapTicket),
    Free(u64, u64, RangeEnd),
}

#[derive(Clone, Copy, Debug)]
enum RangeRequest {
    Create,
    Map,
    Free,
}

#[derive(Clone, Copy, Debug)]
enum RangeStep {
    /// A range of another kind than external comes there, or goes.
    Other(u64, u64),
    /// A call begins. With the last field it ends at once; the value inside is the status that the
    /// program forges, if it does.
    Begin(RangeRequest, u64, u64, Option<Option<bool>>),
    /// The driver does what a call in flight asks for.
    Execute(usize),
    /// The call ends, and the program lets its status say what it likes, or not.
    End(usize, Option<bool>),
}

fn steps() -> impl Strategy<Value = Vec<RangeStep>> {
    let place = || (1..6u64, 1..4u64);
    let lie = || prop_oneof![3 => Just(None), 1 => any::<bool>().prop_map(Some)];
    let request = prop_oneof![
        Just(RangeRequest::Create),
        Just(RangeRequest::Map),
        Just(RangeRequest::Free)
    ];
    let step = prop_oneof![
        1 => place().prop_map(|(base, length)| RangeStep::Other(base, length)),
        9 => (request, place(), prop::option::weighted(0.7, lie()))
            .prop_map(|(request, (base, length), lie)| {
                RangeStep::Begin(request, base, length, lie)
            }),
        3 => (0..3usize).prop_map(RangeStep::Execute),
        2 => (0..3usize, lie()).prop_map(|(which, lie)| RangeStep::End(which, lie)),
    ];
    proptest::collection::vec(step, 300)
}

/// The driver's ranges, in pages.
#[derive(Default)]
struct RangeDriver {
    /// Length, and whether it is an external range.
    ranges: BTreeMap<u64, (u64, bool)>,
    /// The memory that each page is mapped to.
    pages: BTreeMap<u64, u64>,
}

impl RangeDriver {
    fn create(&mut self, base: u64, length: u64, external: bool) -> bool {
        let meets = |(at, (len, _)): (&u64, &(u64, bool))| *at < base + length && base < at + len;
        if self.ranges.iter().any(meets) {
            return false;
        }
        self.ranges.insert(base, (length, external));
        true
    }

    fn map(&mut self, base: u64, length: u64, memory: u64) -> bool {
        let holds = |(at, (len, external)): (&u64, &(u64, bool))| {
            *external && *at <= base && base + length <= at + len
        };
        if !self.ranges.iter().any(holds) {
            return false;
        }
        self.pages
            .extend((base..base + length).map(|page| (page, memory)));
        true
    }

    fn free(&mut self, base: u64, length: u64) -> bool {
        if self.ranges.get(&base) != Some(&(length, true)) {
            return false;
        }
        self.ranges.remove(&base);
        self.unmap(base, length);
        true
    }

    fn unmap(&mut self, base: u64, length: u64) {
        self.pages
            .retain(|page, _| !(base..base + length).contains(page));
    }
}

fn whole(base: u64, length: u64) -> Span {
    Span {
        file: UVM,
        gpu: None,
        base: base * PAGE,
        last: (base + length) * PAGE - 1,
    }
}

/// Memory of a mapping.
const BYTES: u64 = 1 << 20;

/// A tenant whose threads call at once, and its driver.
struct Trial {
    accounting: Accounting,
    driver: RangeDriver,
    /// Calls in flight, and the driver's answers to them.
    flights: Vec<(RangeFlight, Option<bool>)>,
    /// The number of the last memory.
    memory: u64,
}

impl Trial {
    /// Unmaps one by one, as the proxy does.
    fn clear(&mut self, span: Span) {
        let moment = self.accounting.moment();
        while let Some(mapped) = self.accounting.mapped(span, moment) {
            self.driver.unmap(mapped.base / PAGE, mapped.length / PAGE);
            self.accounting.unmapped(mapped);
        }
    }

    /// Whether the call goes to the driver.
    fn begin(&mut self, request: RangeRequest, base: u64, length: u64) -> bool {
        let (at, bytes) = (base * PAGE, length * PAGE);
        let flight = match request {
            RangeRequest::Create => {
                let ticket = self.accounting.begin_range(UVM, at, bytes).ok();
                ticket.map(|ticket| RangeFlight::Create(base, length, ticket))
            }
            RangeRequest::Map => {
                self.memory += 1;
                let handle = object(100 + u32::try_from(self.memory).unwrap());
                let request = memory_request(CLIENT, DEVICE, handle, BYTES);
                self.accounting.alloc(&request).unwrap();
                self.clear(whole(base, length));
                let ticket = self.accounting.begin_map(&map(GPU, handle, at, bytes)).ok();
                self.accounting.free(CLIENT, handle);
                ticket.map(|ticket| RangeFlight::Map(base, length, self.memory, ticket))
            }
            RangeRequest::Free => {
                let end = self.accounting.begin_range_free(UVM, at, Some(bytes)).ok();
                end.map(|end| RangeFlight::Free(base, length, end))
            }
        };
        let begun = flight.is_some();
        self.flights.extend(flight.map(|flight| (flight, None)));
        begun
    }

    fn execute(&mut self, which: usize) {
        let driver = &mut self.driver;
        let Some((flight, said @ None)) = self.flights.get_mut(which) else {
            return;
        };
        *said = Some(match *flight {
            RangeFlight::Create(base, length, _) => driver.create(base, length, true),
            RangeFlight::Map(base, length, memory, _) => driver.map(base, length, memory),
            RangeFlight::Free(base, length, _) => driver.free(base, length),
        });
    }

    fn end(&mut self, which: usize, lie: Option<bool>) {
        let Some((_, Some(said))) = self.flights.get(which) else {
            return;
        };
        let said = lie.unwrap_or(*said);
        match self.flights.remove(which).0 {
            RangeFlight::Create(_, _, ticket) => self.accounting.end_range(ticket, said),
            RangeFlight::Map(base, length, _, ticket) => {
                if !said {
                    self.driver.unmap(base, length);
                }
                self.accounting.end_map(ticket, said);
            }
            RangeFlight::Free(_, _, RangeEnd::Certain(going)) => {
                self.accounting.end_range_free(going, true)
            }
            RangeFlight::Free(base, length, RangeEnd::Lost) if said => {
                self.clear(whole(base, length))
            }
            RangeFlight::Free(..) => {}
        }
    }

    /// Bytes of the host's memory that the driver holds for external ranges.
    fn structs(&self) -> u64 {
        let external = self.driver.ranges.values().filter(|range| range.1);
        u64::try_from(external.count()).unwrap() * RANGE_STRUCT
    }

    /// Bytes that the driver holds for mappings.
    fn held(&self) -> u64 {
        let mut held: Vec<u64> = self.driver.pages.values().copied().collect();
        held.sort_unstable();
        held.dedup();
        u64::try_from(held.len()).unwrap() * BYTES
    }
}

proptest! {
    #![proptest_config(cases(500))]

    /// Calls of several threads of a program that lies about what the driver said: what the driver
    /// has mapped is charged after every step, its ranges as well, and nothing when all is over.
    #[test]
    fn mapped_memory_is_charged_despite_forged_results(steps in steps()) {
        let mut trial = Trial {
            accounting: accounting(u64::MAX),
            driver: RangeDriver::default(),
            flights: Vec::new(),
            memory: 0,
        };
        for step in steps {
            match step {
                RangeStep::Other(base, length) => {
                    let ranges = &mut trial.driver.ranges;
                    if ranges.get(&base).is_some_and(|(_, external)| !external) {
                        ranges.remove(&base);
                    } else {
                        trial.driver.create(base, length, false);
                    }
                }
                RangeStep::Begin(request, base, length, ends) => {
                    if let (true, Some(lie)) = (trial.begin(request, base, length), ends) {
                        let last = trial.flights.len() - 1;
                        trial.execute(last);
                        trial.end(last, lie);
                    }
                }
                RangeStep::Execute(which) => trial.execute(which),
                RangeStep::End(which, lie) => trial.end(which, lie),
            }
            let (charged, held) = (trial.accounting.used(GPU), trial.held());
            prop_assert!(charged >= held, "{charged} charged, {held} held after {step:?}");
            let (charged, held) = (host(&trial.accounting), trial.structs());
            prop_assert!(charged >= held, "{charged} of host, {held} held after {step:?}");
        }
        for which in (0..trial.flights.len()).rev() {
            trial.execute(which);
            trial.end(which, None);
        }
        let mut accounting = trial.accounting;
        accounting.close_file(UVM);
        accounting.close_file(FILE);
        prop_assert_eq!(accounting.used(GPU), 0);
        prop_assert!(accounting.is_idle());
    }
}
