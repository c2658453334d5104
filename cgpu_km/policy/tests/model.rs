// SPDX-License-Identifier: GPL-2.0
//! The accounting against a model that is too simple to be wrong.
//!
//! * `reference.rs` says what the accounting must do. It can be read alone.
//! * `step.rs` says what a step can be, and `choice.rs` makes an event of it.
//! * `world.rs` drives the accounting, and compares it with the reference after each step.
//!
//! A step is a whole call or, to have calls in flight, its beginning or its end.

use super::*;
use proptest::prelude::*;
use step::step;
use world::ModelWorld;

mod choice;
mod reference;
mod step;
mod world;

const STEPS: usize = 1000;

proptest! {
    // Times STEPS: more than 200,000 steps.
    #![proptest_config(cases(208))]

    #[test]
    fn accounting_agrees_with_the_reference(
        steps in proptest::collection::vec(step(), STEPS)
    ) {
        let mut world = ModelWorld::new();
        for (number, step) in steps.iter().enumerate() {
            world.take(step);
            world.compare();
            if number % 16 == 0 {
                world.compare_objects();
            }
        }
        world.finish();
    }
}
