// SPDX-License-Identifier: GPL-2.0
//! Steps that can happen, in any order and at any moment. The driver does what it is told, fails
//! now and then, or knows only a part of the calls.
//!
//! After every step the scheduler's state is compared with what was done, and its reports with what
//! happened. Then calls no longer fail, and the scheduler must bring everything to where the
//! operator wants it. At last nothing happens any more, and it must come to rest.

use super::*;
use proptest::{
    prelude::*,
    test_runner::{
        Config,
        RngSeed, //
    }, //
};
use steps::{
    means,
    rules,
    steps,
    terms,
    Step,
    Work,
    BUSY,
    QUIET,
    RETRIED, //
};
use world::SchedWorld;

mod steps;
mod world;

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
        // The seed is the same in every run, so that a failure comes from a change of the code.
        rng_seed: if said("PROPTEST_RNG_SEED") {
            usual.rng_seed
        } else {
            RngSeed::Fixed(1)
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
        let mut world = SchedWorld::new();
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
        world.work(RETRIED, QUIET)?;
        world.is_in_order(0)?;
        world.leave_in_peace();
        world.work(world.starved() + 1000 * MS, BUSY)?;
        // Nothing happens any more.
        world.rest()?;
        // Everything is as without the scheduler.
        let native = Rules { policy: Policy::Native, ..world.sched.rules() };
        world.step(Step::Rules(native))?;
        world.work(RETRIED, QUIET)?;
        world.is_in_order(0)?;
        prop_assert_eq!(world.sched.deadline(), None);
    }
}
