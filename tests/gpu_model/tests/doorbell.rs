// SPDX-License-Identifier: GPL-2.0
//! The scheduler on the model with nothing but doorbells: shares of programs that keep their queues full, what it makes of
//! those that do not, and how many page faults it takes.

use cgpu_km::policy::sched::{Capabilities, Period, Policy, Terms};
use gpu_model::cases::{
    by_weight, cap, learnt, lump, pair, rules, run_from, weight, DEEP, DOORBELL, SHORT, TURN,
};
use gpu_model::driven::{Driven, Waiting};
use gpu_model::world::{alone, Habit};
use gpu_model::{Nanos, MS, US};
use proptest::prelude::*;

const LONG: Habit = Habit {
    kernel: 16 * MS,
    depth: 1,
};
/// Page faults in any second of two programs whose kernels are alike, and of any that come and go: one for each 400 us, and 32 at
/// the beginning of a window, or 128 while nothing is known.
const FAULTS: usize = 1500;
const FAULTS_LEARNING: usize = 3000;

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
            let line = pair(DOORBELL, weights, a, b);
            assert!(line.error <= 0.02, "{line:?}");
        }
    }
    for habit in [SHORT, DEEP, LONG] {
        let line = cap(DOORBELL, habit);
        assert!(line.error <= 1.0 / 30.0, "{line:?}");
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
    assert!(most <= FAULTS_LEARNING, "{most}");
}

/// It looks like one of short kernels, whose doorbell is open, and launches a long one now and then. What that takes of its neighbour's
/// windows is made up for.
#[test]
fn who_hides_long_kernels_among_short_ones_gains_little() {
    let mut driven = started(Policy::Weight, &[(SHORT, weight(1)), (DEEP, weight(1))]);
    driven.run(1000 * MS);
    let got = measured(&mut driven, 2, |driven| {
        for time in 0..60 {
            driven.run((27 + time % 13) * MS);
            driven.world.programs[0].habit.kernel = 12 * MS;
            driven.run(300 * US);
            driven.world.programs[0].habit.kernel = SHORT.kernel;
        }
    });
    assert!(got[1] > 0.4, "{got:?}");
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

/// Who was alone launched as it liked: what it has queued is counted when somebody else comes.
#[test]
fn who_comes_later_has_its_share() {
    let habit = |kernel, depth| Habit { kernel, depth };
    let long = habit(81 * MS, 8);
    for first in [SHORT, DEEP, LONG, LONG_DEEP, habit(200 * US, 8), long] {
        for second in [SHORT, DEEP, LONG_DEEP, long] {
            for weights in [[3, 1], [1, 1], [1, 3]] {
                let mut driven = started(Policy::Weight, &[(first, weight(weights[0]))]);
                driven.run(500 * MS);
                driven.add(second, weight(weights[1]));
                // To count it takes three times as long as to learn it.
                driven.run(learnt([first, first, first, second].into_iter()));
                let got = measured(&mut driven, 2, |driven| driven.run(2000 * MS));
                let of_alone = [got[0] / alone(first), got[1] / alone(second)];
                let share = of_alone[0] / (of_alone[0] + of_alone[1]);
                let wanted = by_weight(&weights);
                let bound = 0.02 + lump(TURN, &[(wanted[0], first), (wanted[1], second)]);
                let least = wanted[0].min(wanted[1]);
                let error = (share - wanted[0]).abs() / least;
                assert!(error <= bound, "{error}: {first:?} {second:?} {weights:?}");
            }
        }
    }
}

/// So is what all have queued when the operator says that they share.
#[test]
fn shares_hold_after_the_policy_was_set() {
    for a in [SHORT, DEEP, LONG, LONG_DEEP] {
        for b in [SHORT, DEEP, LONG, LONG_DEEP] {
            for weights in [[3, 1], [1, 1]] {
                let programs = [(a, weight(weights[0])), (b, weight(weights[1]))];
                let mut driven = started(Policy::Native, &programs);
                driven.run(500 * MS);
                driven.set_rules(rules(Policy::Weight, Period::Latency));
                driven.run(learnt([a, a, a, b, b, b].into_iter()));
                let got = measured(&mut driven, 2, |driven| driven.run(2000 * MS));
                let of_alone = [got[0] / alone(a), got[1] / alone(b)];
                let share = of_alone[0] / (of_alone[0] + of_alone[1]);
                let wanted = by_weight(&weights);
                let bound = 0.02 + lump(TURN, &[(wanted[0], a), (wanted[1], b)]);
                let error = (share - wanted[0]).abs() / wanted[1];
                assert!(error <= bound, "{error}: {a:?} {b:?} {weights:?}");
            }
        }
    }
}

/// Where launches cannot be made for a program its doorbell is opened, as if it were armed, and its windows end when its task stops.
#[test]
fn who_cannot_be_metered_has_its_share_if_it_does_not_launch_ahead() {
    for weights in [[75, 25], [50, 50]] {
        for (a, b) in [(SHORT, SHORT), (SHORT, LONG), (LONG, SHORT), (LONG, LONG)] {
            let programs = [(a, weight(weights[0])), (b, weight(weights[1]))];
            let mut driven = started(Policy::Weight, &programs);
            driven.world.unmetered = true;
            driven.run(1000 * MS);
            let got = measured(&mut driven, 2, |driven| driven.run(2000 * MS));
            let of_alone = [got[0] / alone(a), got[1] / alone(b)];
            let share = of_alone[0] / (of_alone[0] + of_alone[1]);
            let wanted = f64::from(weights[0]) / 100.0;
            let error = (share - wanted).abs() / (1.0 - wanted);
            assert!(error <= 0.05, "{share}: {a:?} {b:?}");
        }
    }
}

/// Its kernels become others while it runs. What is longer is noticed by its neighbour, and what its windows cannot hold is
/// measured anew after twelve seconds.
#[test]
fn kernels_that_become_others_are_learnt_anew() {
    let habit = |kernel, depth| Habit { kernel, depth };
    for (before, after, latest) in [
        (SHORT, DEEP, 2000 * MS),
        (SHORT, LONG, 2000 * MS),
        (DEEP, SHORT, 2000 * MS),
        (DEEP, LONG_DEEP, 4000 * MS),
        (SHORT, LONG_DEEP, 4000 * MS),
        (LONG, SHORT, 2000 * MS),
        (LONG_DEEP, habit(81 * MS, 8), 15_000 * MS),
        (LONG_DEEP, DEEP, 15_000 * MS),
    ] {
        let mut driven = started(Policy::Weight, &[(before, weight(1)), (SHORT, weight(1))]);
        driven.run(3000 * MS);
        driven.world.programs[0].habit = after;
        driven.run(latest);
        let got = measured(&mut driven, 2, |driven| driven.run(2000 * MS));
        let of_alone = [got[0] / alone(after), got[1] / alone(SHORT)];
        let share = of_alone[0] / (of_alone[0] + of_alone[1]);
        assert!((share - 0.5).abs() < 0.05, "{share}: {before:?} {after:?}");
    }
}

/// Numbers below others, that look like chance and are the same each time.
fn chance() -> impl FnMut(u64) -> u64 {
    let mut chance = 0x9E37_79B9_7F4A_7C15u64;
    move |most| {
        chance ^= chance << 13;
        chance ^= chance >> 7;
        chance ^= chance << 17;
        (chance >> 11) % most
    }
}

/// The bound that docs/compute.md tells, on programs of all lengths that are chosen by chance, the same each time.
#[test]
fn what_is_queued_is_learnt() {
    let lengths = [15, 300, 800, 2000, 5000, 10_000, 16_000, 25_000, 32_000];
    let mut below = chance();
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
        tried += 1;
        let weights: Vec<u32> = programs.iter().map(|(_, terms)| terms.weight).collect();
        let wanted = by_weight(&weights);
        let habits = programs.iter().map(|(habit, _)| *habit);
        let shares: Vec<_> = wanted.iter().copied().zip(habits).collect();
        let bound = 0.02 + lump(TURN, &shares);
        let rules = rules(Policy::Weight, Period::Latency);
        let since = learnt(programs.iter().map(|(habit, _)| *habit));
        for outcome in run_from(0, since, Capabilities::DOORBELL, rules, &programs) {
            let error = outcome.worst(&wanted);
            assert!(error <= bound, "{error} over {bound}: {programs:?}");
        }
    }
}

/// Whatever came and went before: of those that stay each has its share when all were learnt again. (Eight of 3,000 sets like these, which
/// are the same each time, had not: docs/compute.md.)
#[test]
fn shares_hold_after_programs_came_and_went() {
    let lengths = [15, 800, 16_000];
    let mut below = chance();
    for set in 0..100 {
        let mut program = || {
            let kernel = lengths[below(3) as usize] * US;
            let depth = 1 + below(8) as u32;
            (Habit { kernel, depth }, 1 + below(2) as u32)
        };
        let programs: Vec<_> = (0..2 + set % 3).map(|_| program()).collect();
        let terms: Vec<_> = programs.iter().map(|(h, w)| (*h, weight(*w))).collect();
        let mut driven = started(Policy::Weight, &terms);
        for _ in 0..below(20) {
            let program = below(programs.len() as u64) as usize;
            driven.world.set_stopped(program, below(2) == 0);
            driven.run((1 + below(400)) * MS);
        }
        for program in 0..programs.len() {
            driven.world.set_stopped(program, false);
        }
        let all: Vec<Habit> = programs.iter().map(|(habit, _)| *habit).collect();
        driven.run(3 * learnt(all.iter().copied()));
        let got = measured(&mut driven, all.len(), |driven| driven.run(2000 * MS));
        let of_alone: Vec<f64> = got.iter().zip(&all).map(|(g, h)| g / alone(*h)).collect();
        let sum: f64 = of_alone.iter().sum();
        let weights: Vec<u32> = programs.iter().map(|(_, weight)| *weight).collect();
        let wanted = by_weight(&weights);
        let shares: Vec<_> = wanted.iter().copied().zip(all).collect();
        let bound = 0.025 + lump(TURN, &shares);
        let errors = of_alone.iter().zip(&wanted);
        let error = errors
            .map(|(g, w)| (g / sum - w).abs() / w)
            .fold(0.0, f64::max);
        assert!(error <= bound, "{error} over {bound}: {programs:?}");
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
        prop_assert!(most <= FAULTS_LEARNING, "{most}: {programs:?}");
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
