// SPDX-License-Identifier: GPL-2.0
//! Everything that can happen, in any order and at any moment, against a driver that keeps to what
//! it was told, fails now and then, or knows only a part of the calls.
//!
//! After every step what the scheduler believes is compared with what was done, and what it says
//! with what happened. Then it is left in peace, and must bring everything to where the operator
//! wants it; and then nothing happens any more, and it must come to rest.

use super::*;
use crate::nvidia::handle::{ClientHandle, ObjectHandle};
use proptest::prelude::*;
use proptest::test_runner::{Config, RngSeed};
use world::World;

mod world;

/// Calls that may follow each other at once (`limit.rs`).
const BURST: usize = 64;
/// A call that failed is made again after this, at the latest (`next.rs`: 10 ms, doubled seven
/// times), and by then what was held back by the limit was made, too.
const MENDED: Nanos = 2000 * MS;
/// An instance that is held back has a window within this: in 5 instances a part of one in a
/// hundred is 3 ms of a turn of 256 ms, four of high priority that have all of theirs first and
/// what was had too much is owed for eight parts at most.
const STARVED: Nanos = 4000 * MS;
/// How late the thread is at most, and how long a call takes.
const LATE: Nanos = 50 * MS;
/// Until who stopped is taken to have no work: its silence counts in its own windows only, 1000 ms
/// (twice the longest gap) of which are 100 s where it has one part in a hundred.
const RESTLESS: Nanos = 300_000 * MS;

/// Numbers select among what there is at that moment.
#[derive(Clone, Debug)]
enum Step {
    Add(Terms),
    Remove(usize),
    Terms(usize, Terms),
    Rules(Rules),
    /// A driver is found, which can do so much.
    Adopt(Mechanisms),
    /// It goes, and with it all channels.
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
    /// It is done, but not answered yet.
    Perform,
    /// It is done, unless it fails, and answered.
    Answer(bool),
    /// The thread works for so long.
    Work(Nanos, Work),
}

/// How the thread works, and what programs do meanwhile.
#[derive(Clone, Copy, Debug)]
struct Work {
    /// How long a call takes.
    call: Nanos,
    /// The instances whose programs are busy, one bit each.
    busy: u32,
    /// How long after they were let go they launch.
    pace: Nanos,
    /// One call in so many fails; 0: none.
    fails: u32,
    /// One of them makes and frees a channel as fast as it can.
    churns: bool,
}

/// Everybody launches, nothing fails.
const BUSY: Work = Work {
    call: 300 * US,
    busy: u32::MAX,
    pace: 100 * US,
    fails: 0,
    churns: false,
};
/// Nobody does.
const QUIET: Work = Work { busy: 0, ..BUSY };

fn terms() -> impl Strategy<Value = Terms> {
    let weight = prop_oneof![Just(1), 1..=100u32, Just(20)];
    (weight, prop::bool::weighted(0.2), prop::bool::weighted(0.2)).prop_map(
        |(weight, high_priority, suspended)| Terms {
            weight,
            high_priority,
            suspended,
        },
    )
}

fn rules() -> impl Strategy<Value = Rules> {
    let policy = prop::sample::select(Policy::ALL.to_vec());
    let period = prop::sample::select(vec![Period::Latency, Period::Throughput]);
    (policy, period, 1..=16u32, 1..=99u32).prop_map(
        |(policy, period, max_instances, priority_percent)| Rules {
            policy,
            period,
            max_instances,
            priority_percent,
        },
    )
}

/// The doorbell is always there.
fn means() -> impl Strategy<Value = Mechanisms> {
    let bit = || prop::bool::weighted(0.8);
    (bit(), bit(), bit(), bit()).prop_map(|(timeslice, switch, preempt, samples)| Mechanisms {
        timeslice,
        switch,
        preempt,
        doorbell: true,
        samples,
    })
}

fn lengths() -> impl Strategy<Value = Nanos> {
    prop_oneof![
        Just(0),
        1..100 * US,
        100 * US..10 * MS,
        10 * MS..1000 * MS,
        Just(100_000 * MS),
    ]
}

fn steps() -> impl Strategy<Value = Step> {
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

fn config() -> Config {
    let usual = Config {
        failure_persistence: None,
        ..Config::default()
    };
    let said = |name| std::env::var_os(name).is_some();
    Config {
        cases: if said("PROPTEST_CASES") {
            usual.cases
        } else {
            800
        },
        // The same in every run, so that a failure is one of what was changed.
        rng_seed: if said("PROPTEST_RNG_SEED") {
            usual.rng_seed
        } else {
            RngSeed::Fixed(5)
        },
        max_shrink_iters: 20_000,
        ..usual
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn whatever_happens_it_is_brought_in_order(
        first in (terms(), terms(), rules(), means()),
        steps in prop::collection::vec(steps(), 1..60),
        last in (any::<usize>(), terms(), rules()),
    ) {
        let (a, b, rules, means) = first;
        let mut world = World::new();
        for step in [Step::Add(a), Step::Add(b), Step::Rules(rules), Step::Adopt(means)] {
            world.step(step)?;
        }
        for step in steps {
            world.step(step)?;
        }
        // The operator changes something, and all calls fail for a moment.
        let (at, terms, rules) = last;
        world.step(Step::Terms(at, terms))?;
        world.step(Step::Rules(rules))?;
        world.work(50 * MS, Work { fails: 1, ..BUSY })?;
        // In peace, when nothing wakes the thread but the scheduler's deadlines, and then when all
        // are busy.
        world.step(Step::Tell)?;
        world.work(MENDED, QUIET)?;
        world.is_in_order(0)?;
        world.leave_in_peace();
        world.work(STARVED + 1000 * MS, BUSY)?;
        // Nothing happens any more.
        world.rest()?;
        // And all is as without the scheduler.
        let native = Rules { policy: Policy::Native, ..world.sched.rules() };
        world.step(Step::Rules(native))?;
        world.work(MENDED, QUIET)?;
        world.is_in_order(0)?;
        prop_assert_eq!(world.sched.deadline(), None);
    }
}
