// SPDX-License-Identifier: GPL-2.0
//! The scheduler on the model with nothing but doorbells: shares of programs that keep their queues full, what it makes of
//! those that do not, and how many page faults it takes.

use cgpu_km::policy::sched::{Capabilities, Period, Policy, Terms};
use gpu_model::cases::{cap, pair, rules, weight, DEEP, DOORBELL, SHORT};
use gpu_model::driven::Driven;
use gpu_model::world::{alone, Habit};
use gpu_model::{Nanos, MS, US};

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
