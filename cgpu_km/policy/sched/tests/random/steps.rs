// SPDX-License-Identifier: GPL-2.0
//! The steps that can happen, and how a run chooses them.

use super::super::*;
use proptest::prelude::*;

/// Calls that may follow each other at once (`limit.rs`).
pub(super) const BURST: usize = 64;
/// A call that failed is made again after this, at the latest (`retry.rs`: 10 ms, doubled seven
/// times), and by then what was held back by the limit was made, too.
pub(super) const RETRIED: Nanos = 2000 * MS;
/// An instance that is held back has a window within this: in 5 instances a part of one in a
/// hundred is 3 ms of a turn of 256 ms, four of high priority that have all of theirs first and
/// what was had too much is owed for eight parts at most.
pub(super) const STARVED: Nanos = 4000 * MS;
/// How late the thread is at most, and how long a call takes.
pub(super) const LATE: Nanos = 50 * MS;
/// The time until an instance that stopped is taken to have no work. Its silence counts in its own
/// windows only: 1000 ms of them (twice the longest gap) are 100 s if it has one part in a hundred.
pub(super) const RESTLESS: Nanos = 300_000 * MS;

/// Numbers select among what there is at that moment.
#[derive(Clone, Debug)]
pub(super) enum Step {
    Add(Terms),
    Remove(usize),
    Terms(usize, Terms),
    Rules(Rules),
    /// A driver with these mechanisms is found.
    Adopt(Mechanisms),
    /// The driver goes, and all channels go with it.
    Release,
    Channel {
        owner: usize,
        client: u32,
        /// 0: none.
        group: u32,
        object: u32,
        engine: Engine,
        process: i32,
    },
    /// The scheduler hears of it at once, or later.
    FreeChannel(usize, bool),
    FreeGroup(usize, bool),
    FreeClient(usize),
    /// The object of the call under way is freed and made anew.
    Remake,
    /// The scheduler hears of all that was freed.
    Tell,
    Ring(usize),
    /// Processes that the driver saw at work, the latest first.
    Samples(Vec<i32>),
    Tick,
    Pass(Nanos),
    /// The scheduler is asked what to do.
    Ask,
    /// The action is done, but not answered yet.
    Perform,
    /// The action is done, unless it fails, and answered.
    Answer(bool),
    /// The thread works for so long.
    Work(Nanos, Work),
}

/// How the thread works, and what programs do meanwhile.
#[derive(Clone, Copy, Debug)]
pub(super) struct Work {
    /// How long a call takes.
    pub(super) call: Nanos,
    /// The instances whose programs are busy, one bit each.
    pub(super) busy: u32,
    /// How long after they were let go they launch.
    pub(super) pace: Nanos,
    /// One call in so many fails; 0: none.
    pub(super) fails: u32,
    /// One of them makes and frees a channel as fast as it can.
    pub(super) churns: bool,
}

/// Every instance launches, and no call fails.
pub(super) const BUSY: Work = Work {
    call: 300 * US,
    busy: u32::MAX,
    pace: 100 * US,
    fails: 0,
    churns: false,
};
/// No instance launches.
pub(super) const QUIET: Work = Work { busy: 0, ..BUSY };

pub(super) fn terms() -> impl Strategy<Value = Terms> {
    let weight = prop_oneof![Just(1), 1..=100u32, Just(20)];
    let seldom = || prop::bool::weighted(0.2);
    let burst = prop::option::weighted(0.3, bursts());
    (weight, seldom(), seldom(), burst).prop_map(|(weight, high_priority, suspended, burst)| {
        Terms {
            weight,
            high_priority,
            suspended,
            burst,
        }
    })
}

/// None at all, the default, and lengths up to the longest that an operator can set.
pub(super) fn bursts() -> impl Strategy<Value = Nanos> {
    prop_oneof![Just(0), Just(BURST_DEFAULT), 1..10_000 * MS]
}

pub(super) fn rules() -> impl Strategy<Value = Rules> {
    let policy = prop::sample::select(Policy::ALL.to_vec());
    let period = prop::sample::select(Period::ALL.to_vec());
    (policy, period, 1..=16u32, 1..=99u32, bursts()).prop_map(
        |(policy, period, max_instances, priority_percent, burst)| Rules {
            policy,
            period,
            max_instances,
            priority_percent,
            burst,
        },
    )
}

/// The doorbell is always there.
pub(super) fn means() -> impl Strategy<Value = Mechanisms> {
    let bit = || prop::bool::weighted(0.8);
    (bit(), bit(), bit(), bit()).prop_map(|(timeslice, switch, preempt, samples)| Mechanisms {
        timeslice,
        switch,
        preempt,
        doorbell: true,
        samples,
    })
}

pub(super) fn lengths() -> impl Strategy<Value = Nanos> {
    prop_oneof![
        Just(0),
        1..100 * US,
        100 * US..10 * MS,
        10 * MS..1000 * MS,
        Just(100_000 * MS),
    ]
}

pub(super) fn steps() -> impl Strategy<Value = Step> {
    let any = || any::<usize>();
    let engine = prop::sample::select(vec![Engine::Compute, Engine::Compute, Engine::Other]);
    let channel = (any(), 0..2u32, 0..3u32, 0..5u32, engine, 0..4i32).prop_map(
        |(owner, client, group, object, engine, process)| Step::Channel {
            owner,
            client,
            group,
            object,
            engine,
            process,
        },
    );
    let length = prop_oneof![Just(MS), 5 * MS..60 * MS, 100 * MS..1500 * MS];
    let work = (
        prop::sample::select(vec![0, 300 * US, 300 * US, 5 * MS]),
        0..32u32,
        prop::sample::select(vec![20 * US, 100 * US, 900 * US, 20 * MS]),
        prop::sample::select(vec![0, 0, 2, 10]),
        prop::bool::weighted(0.2),
    )
        .prop_map(|(call, busy, pace, fails, churns)| Work {
            call,
            busy,
            pace,
            fails,
            churns,
        });
    let work = (length, work).prop_map(|(length, work)| Step::Work(length, work));
    prop_oneof![
        2 => terms().prop_map(Step::Add),
        1 => any().prop_map(Step::Remove),
        3 => (any(), terms()).prop_map(|(at, terms)| Step::Terms(at, terms)),
        3 => rules().prop_map(Step::Rules),
        1 => means().prop_map(Step::Adopt),
        1 => Just(Step::Release),
        6 => channel,
        2 => (any(), prop::bool::ANY).prop_map(|(at, told)| Step::FreeChannel(at, told)),
        1 => (any(), prop::bool::ANY).prop_map(|(at, told)| Step::FreeGroup(at, told)),
        1 => any().prop_map(Step::FreeClient),
        2 => Just(Step::Remake),
        1 => Just(Step::Tell),
        6 => any().prop_map(Step::Ring),
        1 => prop::collection::vec(0..4i32, 1..6).prop_map(Step::Samples),
        1 => Just(Step::Tick),
        4 => lengths().prop_map(Step::Pass),
        6 => Just(Step::Ask),
        2 => Just(Step::Perform),
        6 => prop::bool::weighted(0.8).prop_map(Step::Answer),
        4 => work,
    ]
}
