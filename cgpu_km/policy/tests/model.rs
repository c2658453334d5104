// SPDX-License-Identifier: GPL-2.0
//! The accounting against a model that is too simple to be wrong: objects and costs in plain lists, every
//! sum computed anew.
//!
//! A step is a whole event or, to have calls in flight, its beginning or its end. After each the two
//! are compared in every answer that the accounting can give.

use super::*;
use proptest::prelude::*;
use world::World;

mod world;

const GPUS: [GpuId; 2] = [GpuId(0), GpuId(5)];
const FOREIGN: GpuId = GpuId(9);
const FILES: u64 = 5;
const PROCESSES: i32 = 4;
const HANDLES: u32 = 14;
const LIMIT: u64 = 64 * MIB;

/// What the driver is to answer.
#[derive(Clone, Copy, Debug)]
enum Answer {
    Granted,
    /// More than was asked for.
    Raised,
    /// As if less had been taken.
    Lowered,
    Refused,
}

#[derive(Clone, Copy, Debug)]
enum Class {
    Device(GpuId),
    Memory(u64),
    Context,
    Other,
}

/// Numbers select among what there is at that moment.
#[derive(Clone, Debug)]
enum Step {
    Client {
        file: u64,
        process: i32,
        /// 0: the driver chooses.
        chosen: u32,
        later: bool,
    },
    Alloc {
        client: usize,
        parent: usize,
        handle: u32,
        class: Class,
        answer: Answer,
        later: bool,
    },
    Dup {
        client: usize,
        parent: usize,
        handle: u32,
        source_client: usize,
        source: usize,
        answer: Answer,
        later: bool,
    },
    End(usize),
    Free {
        client: usize,
        object: usize,
    },
    FreeClient(usize),
    Close(u64),
    Limit(usize, u64),
}

fn answer() -> impl Strategy<Value = Answer> {
    prop_oneof![
        8 => Just(Answer::Granted),
        1 => Just(Answer::Raised),
        1 => Just(Answer::Lowered),
        2 => Just(Answer::Refused),
    ]
}

fn class() -> impl Strategy<Value = Class> {
    let mib = |range: core::ops::Range<u64>| range.prop_map(|mib| Class::Memory(mib * MIB));
    prop_oneof![
        4 => (0..2usize).prop_map(|gpu| Class::Device(GPUS[gpu])),
        1 => Just(Class::Device(FOREIGN)),
        8 => mib(1..12),
        1 => mib(30..80),
        1 => (1..100u64).prop_map(Class::Memory),
        2 => Just(Class::Context),
        3 => Just(Class::Other),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let later = prop::bool::weighted(0.25);
    prop_oneof![
        3 => (0..FILES, 0..PROCESSES, 0..4u32, later).prop_map(
            |(file, process, chosen, later)| Step::Client { file, process, chosen, later }
        ),
        20 => (any::<usize>(), any::<usize>(), 0..HANDLES, class(), answer(), later).prop_map(
            |(client, parent, handle, class, answer, later)| {
                Step::Alloc { client, parent, handle, class, answer, later }
            }
        ),
        8 => (
            (any::<usize>(), any::<usize>(), 0..HANDLES),
            (any::<usize>(), any::<usize>(), answer(), later),
        ).prop_map(|((client, parent, handle), (source_client, source, answer, later))| {
            Step::Dup { client, parent, handle, source_client, source, answer, later }
        }),
        7 => any::<usize>().prop_map(Step::End),
        7 => (any::<usize>(), any::<usize>())
            .prop_map(|(client, object)| Step::Free { client, object }),
        1 => any::<usize>().prop_map(Step::FreeClient),
        1 => (0..FILES).prop_map(Step::Close),
        1 => (0..2usize, 0..LIMIT).prop_map(|(gpu, limit)| Step::Limit(gpu, limit)),
        1 => (0..2usize).prop_map(|gpu| Step::Limit(gpu, LIMIT)),
    ]
}

const STEPS: usize = 1000;

proptest! {
    // Times STEPS: more than 200,000 steps.
    #![proptest_config(cases(208))]

    #[test]
    fn the_accounting_agree_with_a_naive_model_after_every_step(
        steps in proptest::collection::vec(step(), STEPS)
    ) {
        let mut world = World::new();
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
