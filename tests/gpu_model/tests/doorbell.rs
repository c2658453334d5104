// SPDX-License-Identifier: GPL-2.0
//! The scheduler on the model with nothing but doorbells: shares of programs that keep their queues full, what it makes of
//! those that do not, and how many page faults it takes.

use cgpu_km::nvidia::handle::{ClientHandle, ObjectHandle};
use cgpu_km::policy::sched::{
    Capabilities, Engine, Event, InstanceId, Period, Policy, RmName, Terms,
};
use cgpu_km::policy::ProcessId;
use gpu_model::cases::{
    by_weight, cap, lump, pair, queued, rules, run_from, weight, DEEP, DOORBELL, LEARNABLE, LEARNT,
    SHORT, TIMES, TURN,
};
use gpu_model::driven::{Driven, Waiting};
use gpu_model::world::{alone, Habit};
use gpu_model::{Nanos, MS, US};
use proptest::prelude::*;

const LONG: Habit = Habit {
    kernel: 16 * MS,
    depth: 1,
};
/// Page faults in any second of programs whose kernels are alike, and where others' work runs on in their windows.
const FAULTS: usize = 600;
const FAULTS_LISTENING: usize = 1000;

fn started(policy: Policy, programs: &[(Habit, Terms)]) -> Driven {
    let rules = rules(policy, Period::Latency);
    let mut driven = Driven::new(Capabilities::DOORBELL, rules);
    for (habit, terms) in programs {
        driven.add(*habit, *terms);
    }
    driven
}

/// How long each program's kernels have run.
fn ran(driven: &Driven, programs: usize) -> Vec<Nanos> {
    (0..programs).map(|i| driven.world.ran(i)).collect()
}

/// What each program gets while `run` lets time pass, as a fraction of the GPU's time.
fn measured(driven: &mut Driven, programs: usize, run: impl FnOnce(&mut Driven)) -> Vec<f64> {
    let (began, before) = (driven.world.now(), ran(driven, programs));
    run(driven);
    let length = (driven.world.now() - began) as f64;
    let after = ran(driven, programs);
    let pairs = before.iter().zip(after);
    pairs.map(|(b, a)| (a - b) as f64 / length).collect()
}

/// The most page faults in any second so far.
fn most_faults(driven: &Driven) -> usize {
    let rings = &driven.rings;
    let within = |(i, began): (usize, &Nanos)| {
        let later = rings[i..].iter();
        later.take_while(|at| **at < began + 1000 * MS).count()
    };
    rings.iter().enumerate().map(within).max().unwrap_or(0)
}

#[test]
fn what_is_queued_runs_in_its_own_window() {
    for weights in [[75, 25], [50, 50]] {
        for (a, b) in [
            (SHORT, SHORT),
            (SHORT, DEEP),
            (DEEP, SHORT),
            (DEEP, DEEP),
            (LONG, DEEP),
        ] {
            for line in pair(DOORBELL, weights, a, b) {
                assert!(line.error <= 0.02, "{line:?}");
            }
        }
    }
    for habit in [SHORT, DEEP, LONG] {
        for line in cap(DOORBELL, habit) {
            assert!(line.error <= 1.0 / 30.0, "{line:?}");
        }
    }
}

/// A launch takes 10 us: in the time that it takes to fill a queue launches say nothing of kernels.
#[test]
fn who_launches_slowly_is_understood() {
    let kernel = 200 * US;
    let deep = Habit { kernel, depth: 8 };
    for terms in [[75, 25], [25, 75]] {
        let programs = [(deep, weight(terms[0])), (DEEP, weight(terms[1]))];
        let mut driven = started(Policy::Weight, &programs);
        for program in &mut driven.world.programs {
            program.pace = 10 * US;
        }
        driven.run(1000 * MS);
        let got = measured(&mut driven, 2, |driven| driven.run(2000 * MS));
        let (share, wanted) = (got[0] / (got[0] + got[1]), f64::from(terms[0]) / 100.0);
        assert!((share - wanted).abs() <= 0.02 * wanted, "{got:?}");
    }
}

/// Kernels of no length twice, eight of them queued: nothing is known of when they end, but their neighbour's tell what ran
/// beside them. Without that it has 0.21 of the GPU.
#[test]
fn a_neighbour_of_irregular_kernels_has_most_of_its_share() {
    let programs = [(DEEP, weight(1)), (SHORT, weight(1))];
    let mut driven = started(Policy::Weight, &programs);
    let mut chance = 0x9E37_79B9_7F4A_7C15u64;
    let mut irregular = |driven: &mut Driven, length: Nanos| {
        let end = driven.world.now() + length;
        while driven.world.now() < end {
            chance ^= chance << 13;
            chance ^= chance >> 7;
            chance ^= chance << 17;
            let kernel = 100 * US + (chance >> 11) % (1900 * US);
            driven.world.programs[0].habit.kernel = kernel;
            driven.run(300 * US);
        }
    };
    irregular(&mut driven, 1000 * MS);
    for _ in 0..5 {
        let got = measured(&mut driven, 2, |driven| irregular(driven, 2000 * MS));
        let short = got[1] * 1e9 / alone(SHORT);
        assert!(got[0] > 0.4 && short > 0.4, "{got:?} {short}");
    }
    let most = most_faults(&driven);
    assert!(most <= FAULTS_LISTENING, "{most}");
}

/// It launches every 10 ms and is idle in between, which looks like kernels of 10 ms. Its neighbour loses nothing by that.
#[test]
fn a_neighbour_of_one_that_launches_by_the_clock_has_its_share() {
    let ahead = Habit {
        kernel: MS,
        depth: 8,
    };
    let mut driven = started(Policy::Weight, &[(ahead, weight(1)), (DEEP, weight(1))]);
    driven.world.programs[0].pace = 10 * MS;
    driven.run(1000 * MS);
    let got = measured(&mut driven, 2, |driven| driven.run(2000 * MS));
    assert!(got[0] > 0.04 && got[1] > 0.48, "{got:?}");
}

#[test]
fn faults_are_few() {
    let mut most = 0;
    for a in [SHORT, DEEP, LONG, Habit { depth: 8, ..SHORT }] {
        for b in [SHORT, DEEP, LONG, Habit { depth: 8, ..SHORT }] {
            let mut driven = started(Policy::Weight, &[(a, weight(3)), (b, weight(1))]);
            driven.run(5000 * MS);
            most = most.max(most_faults(&driven));
        }
    }
    assert!(most <= FAULTS, "{most}");
    // Alone and under no cap there are none.
    let mut driven = started(Policy::Weight, &[(DEEP, weight(1))]);
    driven.run(100 * MS);
    let before = driven.rings.len();
    driven.run(2000 * MS);
    assert_eq!(driven.rings.len(), before);
    assert_eq!(driven.sched.deadline(), None);
}

/// 128 ms of work.
const LONG_DEEP: Habit = Habit {
    kernel: 16 * MS,
    depth: 8,
};

/// How far the shares of equal programs are from equal parts in 2 s, as a fraction of these.
fn unevenness(driven: &mut Driven, programs: usize) -> f64 {
    let got = measured(driven, programs, |driven| driven.run(2000 * MS));
    let mean = got.iter().sum::<f64>() / programs as f64;
    let off = got.iter().map(|got| (got - mean).abs() / mean);
    off.fold(0.0, f64::max)
}

/// The hardware goes round them when they are known, and it is listened whether each has its part.
#[test]
fn equal_parts_of_full_queues_are_the_hardwares_round() {
    for (habit, programs) in [(DEEP, 16), (LONG, 16), (LONG_DEEP, 2)] {
        let all = vec![(habit, weight(1)); programs];
        let mut driven = started(Policy::Weight, &all);
        driven.run(7000 * MS);
        driven.rings.clear();
        for _ in 0..3 {
            assert_eq!(driven.sched.view().mode.name(), "slices");
            let off = unevenness(&mut driven, programs);
            assert!(off <= 0.03, "{off}: {habit:?}");
        }
        assert!(driven.calls.is_empty());
        let most = most_faults(&driven);
        assert!(most <= FAULTS, "{most}");
    }
}

/// Who waits for each of its short kernels from now on would have a hundredth of the round.
#[test]
fn the_round_is_left_when_a_queue_is_not_full() {
    let mut driven = started(Policy::Weight, &[(LONG_DEEP, weight(1)); 2]);
    driven.run(7000 * MS);
    assert_eq!(driven.sched.view().mode.name(), "slices");
    driven.world.programs[0].habit = SHORT;
    driven.run(4000 * MS);
    assert_eq!(driven.sched.view().mode.name(), "windows");
    let got = measured(&mut driven, 2, |driven| driven.run(4000 * MS));
    let short = got[0] * 1e9 / alone(SHORT);
    assert!((short - 0.5).abs() < 0.05, "{got:?} {short}");
    // Nor would who has stopped be waited for.
    driven.world.set_stopped(0, true);
    driven.run(2000 * MS);
    let got = measured(&mut driven, 2, |driven| driven.run(1000 * MS));
    assert!(got[1] > 0.99, "{got:?}");
    assert_eq!(driven.sched.view().mode.name(), "free");
}

/// The hardware goes round channel groups, so who has two of them would have two parts.
#[test]
fn there_is_no_round_for_one_with_two_channel_groups() {
    let mut driven = started(Policy::Weight, &[(LONG_DEEP, weight(1)); 2]);
    let name = |object| RmName {
        client: ClientHandle(100),
        object: ObjectHandle(object),
    };
    let second = Event::Channel {
        instance: InstanceId(0),
        group: name(1),
        channel: name(2),
        engine: Engine::Compute,
        process: ProcessId(100),
    };
    driven.sched.event(0, second).expect("room");
    for _ in 0..100 {
        driven.run(100 * MS);
        assert_ne!(driven.sched.view().mode.name(), "slices");
    }
}

/// The bound that docs/compute.md tells, on programs of all lengths that are chosen by chance, the same each time.
#[test]
fn what_is_queued_is_learnt() {
    let lengths = [15, 300, 800, 2000, 5000, 10_000, 16_000, 25_000, 32_000];
    let mut chance = 0x9E37_79B9_7F4A_7C15u64;
    let mut below = |most: u64| {
        chance ^= chance << 13;
        chance ^= chance >> 7;
        chance ^= chance << 17;
        (chance >> 11) % most
    };
    let mut tried = 0;
    while tried < 24 {
        let weights = 1 + below(4) as u32;
        let mut program = || {
            let habit = Habit {
                kernel: lengths[below(9) as usize] * US,
                depth: 1 + below(8) as u32,
            };
            (habit, weight(1 + below(u64::from(weights)) as u32))
        };
        let programs: Vec<_> = (0..2 + tried % 3).map(|_| program()).collect();
        let all: f64 = programs.iter().map(|(habit, _)| queued(*habit)).sum();
        if all > LEARNABLE as f64 {
            continue;
        }
        tried += 1;
        let weights: Vec<u32> = programs.iter().map(|(_, terms)| terms.weight).collect();
        let wanted = by_weight(&weights);
        let habits = programs.iter().map(|(habit, _)| *habit);
        let shares: Vec<_> = wanted.iter().copied().zip(habits).collect();
        let bound = 0.02 + lump(TURN, &shares);
        let rules = rules(Policy::Weight, Period::Latency);
        let outcomes = run_from(0, LEARNT + TIMES, Capabilities::DOORBELL, rules, &programs);
        for outcome in &outcomes[LEARNT..] {
            let error = outcome.worst(&wanted);
            assert!(error <= bound, "{error} over {bound}: {programs:?}");
        }
    }
}

fn habits() -> impl Strategy<Value = Habit> {
    let kernel = prop::sample::select(vec![15 * US, 800 * US, 16 * MS]);
    (kernel, 1..=8u32).prop_map(|(kernel, depth)| Habit { kernel, depth })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    /// Programs stop and go on as they like, some of equal weight and some not. Whoever has work all the time has the GPU
    /// again and again, doorbells are touched only so often, and when all have stopped nothing is done any more.
    #[test]
    fn nobody_starves_while_programs_come_and_go(
        programs in prop::collection::vec((habits(), 1..=2u32), 2..=5),
        changes in prop::collection::vec((0..5usize, any::<bool>(), 1..400u64), 0..40),
    ) {
        let programs: Vec<_> = programs.into_iter().map(|(h, w)| (h, weight(w))).collect();
        let mut driven = started(Policy::Weight, &programs);
        let mut waiting = Waiting::default();
        for (program, stop, wait) in changes {
            // Program 0 has work all the time.
            let program = program % programs.len();
            if program > 0 {
                driven.world.set_stopped(program, stop);
            }
            driven.run(wait * MS);
            let waits = waiting.look(&driven, 0);
            prop_assert!(waits < 4000 * MS, "starved for {waits} ns: {programs:?}");
        }
        let most = most_faults(&driven);
        prop_assert!(most <= FAULTS_LISTENING, "{most}: {programs:?}");
        for i in 0..programs.len() {
            driven.world.set_stopped(i, true);
        }
        driven.run(8000 * MS);
        let rings = driven.rings.len();
        prop_assert_eq!(driven.sched.deadline(), None);
        driven.run(1000 * MS);
        prop_assert_eq!(driven.rings.len(), rings);
        prop_assert!(driven.calls.is_empty());
    }
}
