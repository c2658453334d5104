// SPDX-License-Identifier: GPL-2.0
//! The scheduler on the model: shares hold while programs come and go, no instance starves, calls
//! are few, and a change by the operator takes effect without losing work.

use cgpu_km::policy::sched::{
    Mechanisms, Period, Policy, Rules, Terms, BURST_DEFAULT, CALLS_PER_SECOND,
};
use gpu_model::{
    cases::{
        by_weight, cap, longest_wait, pair, rules, run_from, weight, DEEP, KERNELS, RMAPI, SHORT,
    },
    driven::{Driven, Waiting},
    world::{alone, Habit},
    Nanos, MS, US,
};
use proptest::prelude::*;

fn started(policy: Policy, programs: &[(Habit, Terms)]) -> Driven {
    let mut driven = Driven::new(Mechanisms::ALL, rules(policy, Period::Latency));
    for (habit, terms) in programs {
        driven.add(*habit, *terms);
    }
    driven
}

/// The rate of each program in the next `length`, as a fraction of what it does alone.
fn measured(driven: &mut Driven, habits: &[Habit], length: Nanos) -> Vec<f64> {
    let before: Vec<Nanos> = (0..habits.len()).map(|i| driven.world.ran(i)).collect();
    driven.run(length);
    let rates = habits.iter().enumerate().map(|(i, habit)| {
        let ran = (driven.world.ran(i) - before[i]) as f64;
        ran * 1e9 / length as f64 / alone(*habit)
    });
    rates.collect()
}

const LONG: Habit = Habit {
    kernel: 81 * MS,
    depth: 8,
};

/// The worst pairs of the bench, so that `cargo test` shows them too.
#[test]
fn waiting_program_has_its_share() {
    for weights in [[75, 25], [50, 50]] {
        for (a, b) in [(SHORT, LONG), (LONG, SHORT)] {
            let line = pair(RMAPI, weights, a, b);
            assert!(line.error <= 0.02, "{line:?}");
        }
    }
}

/// On a busy host the thread that moves a gate may wait for a processor first. What a program
/// launches meanwhile is not heard of, and one that launches all the time touches the gate before
/// the thread hears that it was moved.
#[test]
fn late_gates_cost_no_share() {
    let busy = Habit {
        kernel: 15 * US,
        depth: 8,
    };
    let long = Habit {
        kernel: 16 * MS,
        depth: 8,
    };
    for late in [500 * US, 2 * MS] {
        for (a, b) in [(SHORT, LONG), (SHORT, busy), (long, busy), (DEEP, busy)] {
            let weights = [weight(75), weight(25)];
            let mut driven = started(Policy::Weight, &[(a, weights[0]), (b, weights[1])]);
            driven.gate_waits = late;
            driven.run(1000 * MS);
            let got = measured(&mut driven, &[a, b], 10_000 * MS);
            let share = got[0] / (got[0] + got[1]);
            let off = (share - 0.75).abs() / 0.75;
            assert!(off <= 0.02, "{late} ns late, {a:?} beside {b:?}: {got:?}");
        }
    }
}

/// The gate is armed 4 ms after a launch: of kernels that are a little longer only what is beyond
/// that is seen.
#[test]
fn kernels_longer_than_gates_are_no_silence() {
    let deep = Habit {
        kernel: 800 * US,
        depth: 8,
    };
    for kernel in [4200 * US, 4500 * US, 5 * MS, 6 * MS, 7100 * US] {
        for depth in [1, 4] {
            let habit = Habit { kernel, depth };
            let lines = [cap(RMAPI, habit), pair(RMAPI, [75, 25], habit, deep)];
            for line in lines {
                assert!(line.error <= 0.02, "{line:?}");
            }
        }
    }
}

#[test]
fn alone_and_uncapped_costs_nothing() {
    let mut driven = started(Policy::Weight, &[(SHORT, weight(1))]);
    driven.run(100 * MS);
    let calls = driven.calls.len();
    let got = measured(&mut driven, &[SHORT], 2000 * MS);
    assert!(got[0] > 0.999, "{got:?}");
    assert_eq!(driven.calls.len(), calls);
    assert!(driven.is_open(0));
    assert_eq!(driven.sched.deadline(), None);
}

#[test]
fn high_priority_has_the_gpu_within_two_milliseconds() {
    for beside in [LONG, DEEP] {
        let longest = longest_wait(beside);
        assert!(longest <= 2 * MS, "{longest} ns beside {beside:?}");
    }
}

#[test]
fn suspended_instance_stops_and_loses_no_work() {
    let middle = Habit {
        kernel: 16 * MS,
        depth: 4,
    };
    let mut driven = started(Policy::Weight, &[(middle, weight(1)), (SHORT, weight(1))]);
    driven.run(500 * MS);
    let suspended = Terms {
        suspended: true,
        ..weight(1)
    };
    driven.set_terms(0, suspended);
    driven.run(2 * MS);
    let stopped = measured(&mut driven, &[middle, SHORT], 1000 * MS);
    assert_eq!(stopped[0], 0.0);
    assert!(stopped[1] > 0.99, "{stopped:?}");
    let launched = driven.world.programs[0].finished;
    driven.set_terms(0, weight(1));
    driven.run(100 * MS);
    let back = measured(&mut driven, &[middle, SHORT], 1000 * MS);
    assert!(back[0] > 0.45, "{back:?}");
    assert!(driven.world.programs[0].finished > launched + 20);
}

#[test]
fn a_change_takes_effect_within_a_turn() {
    let habits = [SHORT, LONG];
    let mut driven = started(Policy::Weight, &[(SHORT, weight(1)), (LONG, weight(1))]);
    driven.run(1000 * MS);
    driven.set_terms(0, weight(3));
    driven.run(MS);
    let got = measured(&mut driven, &habits, 1000 * MS);
    let share = got[0] / (got[0] + got[1]);
    assert!((share - 0.75).abs() < 0.02, "{got:?}");
    let high = Terms {
        high_priority: true,
        ..weight(3)
    };
    driven.set_terms(1, high);
    driven.run(MS);
    let got = measured(&mut driven, &habits, 1000 * MS);
    let share = got[1] / (got[0] + got[1]);
    assert!((share - 0.8).abs() < 0.02, "of high priority: {got:?}");
    driven.set_terms(1, weight(1));
    driven.set_rules(rules(Policy::Native, Period::Latency));
    driven.run(MS);
    let got = measured(&mut driven, &habits, 1000 * MS);
    assert!(got[0] < 0.02, "the driver's own sharing: {got:?}");
    driven.set_rules(rules(Policy::Equal, Period::Latency));
    driven.run(MS);
    let got = measured(&mut driven, &habits, 1000 * MS);
    let share = got[0] / (got[0] + got[1]);
    assert!((share - 0.5).abs() < 0.02, "{got:?}");
}

/// An instance that thinks has the GPU when it wakes, by what it is owed. Without a burst it waits
/// for the next turn, except under the policy `soft`, which gives it a whole part at once.
#[test]
fn a_returning_instance_gets_what_it_is_owed() {
    let request = Habit {
        kernel: 500 * US,
        depth: 1,
    };
    let ran = |policy, burst| {
        let rules = Rules {
            burst,
            ..rules(policy, Period::Throughput)
        };
        let mut driven = Driven::new(Mechanisms::ALL, rules);
        driven.add(LONG, weight(1));
        driven.add(request, weight(1));
        let mut before = 0;
        for number in 0..200 {
            if number == 50 {
                before = driven.world.ran(1);
            }
            driven.world.programs[1].left = Some(8);
            driven.world.set_stopped(1, false);
            driven.run(20 * MS);
        }
        driven.world.ran(1) - before
    };
    let asked = 150 * 8 * 500 * US;
    for policy in [Policy::Weight, Policy::WeightLazy] {
        assert_eq!(ran(policy, BURST_DEFAULT), asked);
    }
    let (weight, soft) = (ran(Policy::Weight, 0), ran(Policy::WeightLazy, 0));
    assert!(soft > weight / 2 * 3, "{soft} {weight}");
}

/// A burst may be shorter than the window that an instance waits for when it has used it up, or
/// become so while it waits: it gets its share as with any other.
#[test]
fn a_short_burst_keeps_nobody_waiting() {
    let habits = [LONG, SHORT];
    let programs = habits.map(|habit| (habit, weight(25)));
    for (policy, before, after) in [
        (Policy::Weight, 5 * MS, 5 * MS),
        (Policy::Weight, BURST_DEFAULT, 0),
        (Policy::Fixed, 5 * MS, 5 * MS),
        (Policy::Fixed, BURST_DEFAULT, 0),
    ] {
        let rules = |burst| Rules {
            burst,
            ..rules(policy, Period::Throughput)
        };
        let mut driven = Driven::new(Mechanisms::ALL, rules(before));
        for (habit, terms) in programs {
            driven.add(habit, terms);
        }
        driven.run(1000 * MS);
        driven.world.set_stopped(1, true);
        driven.run(3000 * MS);
        driven.world.set_stopped(1, false);
        // By then it has used up what it was owed.
        driven.run(500 * MS);
        driven.set_rules(rules(after));
        driven.run(1500 * MS);
        let got = measured(&mut driven, &habits, 4000 * MS);
        let wanted = if policy == Policy::Fixed { 0.25 } else { 0.5 };
        assert!(
            (got[1] - wanted).abs() < 0.05 * wanted,
            "{policy:?} {before} {after}: {got:?}"
        );
    }
}

/// The others have the time that one instance leaves unused. Under a hard policy no instance has
/// it.
#[test]
fn hard_policies_leave_idle_time_unused() {
    let habits = [SHORT, LONG];
    let programs = [(SHORT, weight(20)), (LONG, weight(30))];
    let mut driven = started(Policy::Fixed, &programs);
    driven.run(1000 * MS);
    let got = measured(&mut driven, &habits, 2000 * MS);
    assert!((got[0] - 0.2).abs() < 0.01, "{got:?}");
    assert!((got[1] - 0.3).abs() < 0.01, "{got:?}");
    driven.set_rules(rules(Policy::WeightLazy, Period::Latency));
    driven.world.set_stopped(0, true);
    driven.run(1000 * MS);
    let got = measured(&mut driven, &habits, 1000 * MS);
    assert!(got[1] > 0.99, "{got:?}");
}

/// A program of short kernels whose kernels become long. The gaps that were learnt of it are wrong
/// then, and there are no samples to help.
#[test]
fn kernels_that_become_long_are_no_silence() {
    let without = Mechanisms {
        samples: false,
        ..Mechanisms::ALL
    };
    let mut driven = Driven::new(without, rules(Policy::Weight, Period::Latency));
    let short = Habit { depth: 8, ..SHORT };
    driven.add(short, weight(1));
    driven.add(SHORT, weight(1));
    driven.run(1000 * MS);
    driven.world.programs[0].habit = LONG;
    driven.run(1500 * MS);
    let got = measured(&mut driven, &[LONG, SHORT], 2000 * MS);
    let share = got[0] / (got[0] + got[1]);
    assert!((share - 0.5).abs() < 0.02, "{got:?}");
}

/// A program that thinks for 30 ms between short bursts: its silence is believed, so that the other
/// one has what it leaves.
#[test]
fn thinking_program_leaves_the_gpu() {
    let burst = Habit {
        kernel: 500 * US,
        depth: 1,
    };
    let mut driven = started(Policy::Weight, &[(LONG, weight(1)), (burst, weight(1))]);
    let mut before = 0;
    for number in 0..60 {
        if number == 30 {
            before = driven.world.ran(0);
        }
        driven.world.programs[1].left = Some(4);
        driven.world.set_stopped(1, false);
        driven.run(33 * MS);
    }
    let got = (driven.world.ran(0) - before) as f64 / (30 * 33 * MS) as f64;
    // 2 ms of every 33 are the other one's, and 2 ms and some calls go by until it is believed.
    assert!(got > 0.75, "{got}");
    assert!(
        driven.world.programs[1].finished >= 200,
        "{}",
        driven.world.programs[1].finished
    );
}

/// A share can be off by what one window is of its time in 2 s, so the moment at which one
/// looks matters.
#[test]
fn sixteen_unequal_instances_have_their_shares() {
    let habit = Habit {
        kernel: 16 * MS,
        depth: 8,
    };
    let programs: Vec<_> = (0..16).map(|i| (habit, weight(i % 4 + 1))).collect();
    let all: u32 = programs.iter().map(|(_, terms)| terms.weight).sum();
    let mut driven = started(Policy::Weight, &programs);
    driven.run(1000 * MS);
    let mut looks = Vec::new();
    for _ in 0..300 {
        looks.push((0..16).map(|i| driven.world.ran(i)).collect::<Vec<_>>());
        driven.run(10 * MS);
    }
    for (before, after) in looks.iter().zip(&looks[200..]) {
        let got: Vec<f64> = before
            .iter()
            .zip(after)
            .map(|(b, a)| (a - b) as f64)
            .collect();
        let sum: f64 = got.iter().sum();
        for (got, (_, terms)) in got.iter().zip(&programs) {
            let wanted = f64::from(terms.weight) / f64::from(all);
            let error = (got / sum - wanted).abs() / wanted;
            assert!(error <= 0.03, "{error}");
        }
    }
}

/// In a kernel of a second a program is as silent as one that has stopped. The driver's samples
/// tell them apart, at whatever moments they are taken; without them a neighbour loses what it
/// should have, and a cap does not hold.
#[test]
fn long_kernels_have_shares_by_samples() {
    let error = |mechanisms, age, programs: &[(Habit, Terms)]| {
        let rules = rules(Policy::Weight, Period::Latency);
        let outcomes = run_from(age, 1000 * MS, mechanisms, rules, programs);
        let weights: Vec<_> = programs.iter().map(|(_, terms)| terms.weight).collect();
        let wanted = by_weight(&weights);
        let worst = outcomes.iter().map(|outcome| outcome.worst(&wanted));
        worst.collect::<Vec<_>>()
    };
    let other = Habit {
        kernel: 800 * US,
        depth: 8,
    };
    let mut errors = Vec::new();
    for kernel in [400 * MS, 800 * MS, 2000 * MS] {
        let long = Habit { kernel, depth: 1 };
        // Between two samples.
        for age in (0..8).map(|part| part * 21 * MS) {
            for weights in [[25, 75], [75, 25]] {
                let programs = [(long, weight(weights[0])), (other, weight(weights[1]))];
                errors.extend(error(Mechanisms::ALL, age, &programs));
            }
        }
        let line = cap(RMAPI, long);
        assert!(line.error <= 0.03, "{line:?}");
    }
    // Now and then no sample falls into the windows of one that is doubted, which then shares as
    // the driver likes.
    let mean = errors.iter().sum::<f64>() / errors.len() as f64;
    let worst = errors.iter().copied().fold(0.0, f64::max);
    assert!(mean < 0.04 && worst < 0.45, "{mean} {worst}: {errors:?}");
    let long = Habit {
        kernel: 2000 * MS,
        depth: 1,
    };
    let programs = [(long, weight(25)), (SHORT, weight(75))];
    let without = Mechanisms {
        samples: false,
        ..Mechanisms::ALL
    };
    let errors = error(without, 0, &programs);
    assert!(errors[0] > 0.5, "samples make no difference: {errors:?}");
}

/// How the GPU is shared.
fn mode(driven: &Driven) -> &'static str {
    driven.sched.view().mode.name()
}

/// The first program's share in the next two seconds.
fn share(driven: &mut Driven, habits: &[Habit; 2]) -> f64 {
    let got = measured(driven, habits, 2000 * MS);
    got[0] / (got[0] + got[1])
}

/// Queues that are full are shared by the hardware's own time slices, without a call; a program
/// that waits for its kernels from now on is not left with what these would give it.
#[test]
fn full_queues_share_by_slices() {
    let habits = [SHORT, DEEP].map(|habit| Habit { depth: 8, ..habit });
    let programs = habits.map(|habit| (habit, weight(1)));
    let mut driven = started(Policy::Weight, &programs);
    driven.set_terms(0, weight(3));
    driven.run(3000 * MS);
    assert_eq!(mode(&driven), "slices");
    let calls = driven.calls.len();
    let got = measured(&mut driven, &habits, 2000 * MS);
    let all = got[0] + got[1];
    assert!((got[0] / all - 0.75).abs() < 0.015, "{got:?}");
    assert!(all > 0.985, "{got:?}");
    assert_eq!(driven.calls.len(), calls);
    // It waits for each kernel.
    driven.world.programs[0].habit = SHORT;
    let alone = [SHORT, DEEP];
    let share_of_first = share(&mut driven, &alone);
    assert!((share_of_first - 0.75).abs() < 0.02, "{share_of_first}");
    assert_eq!(mode(&driven), "windows");
    // It does not wait any more, and slices come again later.
    driven.world.programs[0].habit = habits[0];
    driven.run(5000 * MS);
    assert_eq!(mode(&driven), "slices");
    // The other one stops, and comes back.
    driven.world.set_stopped(1, true);
    driven.run(700 * MS);
    let got = measured(&mut driven, &habits, 1000 * MS);
    assert!(got[0] > 0.99, "{got:?}");
    // It has what it is owed first.
    driven.world.set_stopped(1, false);
    driven.run(500 * MS);
    let share_of_first = share(&mut driven, &habits);
    assert!((share_of_first - 0.75).abs() < 0.02, "{share_of_first}");
}

/// While the first one's channels are being switched on nobody has the GPU, however long that
/// takes: it is not charged to the first one, whose slice may be shorter.
#[test]
fn slices_begin_though_calls_are_slow() {
    let full = Habit { depth: 8, ..SHORT };
    let programs = [1, 2, 3, 4].map(|parts| (full, weight(parts)));
    let mut driven = started(Policy::Weight, &programs);
    driven.lock = MS;
    driven.run(3000 * MS);
    assert_eq!(mode(&driven), "slices");
    let got = measured(&mut driven, &[full; 4], 2000 * MS);
    let all: f64 = got.iter().sum();
    for (got, parts) in got.iter().zip(1..) {
        let wanted = f64::from(parts) / 10.0;
        assert!(
            (got / all - wanted).abs() < 0.02 * wanted,
            "{got}: {wanted}"
        );
    }
}

/// A change while there are slices takes effect at once, as in windows.
#[test]
fn slices_end_at_once_when_something_changes() {
    let mut driven = started(Policy::Weight, &[(DEEP, weight(1)), (DEEP, weight(1))]);
    let habits = [DEEP, DEEP, SHORT];
    let change = |driven: &mut Driven, change: &dyn Fn(&mut Driven), wanted: &[f64]| {
        driven.run(3000 * MS);
        assert_eq!(mode(driven), "slices");
        change(driven);
        driven.run(MS);
        let got = measured(driven, &habits[..wanted.len()], 1000 * MS);
        let all: f64 = got.iter().sum();
        for (got, wanted) in got.iter().zip(wanted) {
            assert!((got / all - wanted).abs() < 0.02, "{got}: {wanted}");
        }
    };
    let weights = |driven: &mut Driven| driven.set_terms(0, weight(3));
    change(&mut driven, &weights, &[0.75, 0.25]);
    let policy = |driven: &mut Driven| driven.set_rules(rules(Policy::Equal, Period::Latency));
    change(&mut driven, &policy, &[0.5, 0.5]);
    let capped = |driven: &mut Driven| driven.set_rules(rules(Policy::FixedEqual, Period::Latency));
    driven.run(3000 * MS);
    capped(&mut driven);
    driven.run(100 * MS);
    let got = measured(&mut driven, &habits[..2], 1000 * MS);
    assert!(
        got.iter().all(|got| (got - 0.0625).abs() < 0.003),
        "{got:?}"
    );
    driven.set_rules(rules(Policy::Weight, Period::Latency));
    // A program that waits for each kernel comes.
    let arrival = |driven: &mut Driven| {
        driven.add(SHORT, weight(4));
    };
    change(&mut driven, &arrival, &[0.375, 0.125, 0.5]);
}

/// If slices cannot be set, there are windows.
#[test]
fn full_queues_share_by_windows_without_slices() {
    let without = Mechanisms {
        timeslice: false,
        ..Mechanisms::ALL
    };
    let mut driven = Driven::new(without, rules(Policy::Weight, Period::Latency));
    driven.add(DEEP, weight(3));
    driven.add(DEEP, weight(1));
    driven.run(3000 * MS);
    assert_eq!(mode(&driven), "windows");
    let share = share(&mut driven, &[DEEP; 2]);
    assert!((share - 0.75).abs() < 0.015, "{share}");
}

/// A program launches a kernel of 100 us every 150 us, up to 12 ahead. The moments at which its
/// doorbell is touched say nothing of which instance has the GPU. Slices are tried, and left before
/// that costs it much.
#[test]
fn program_launching_ahead_keeps_its_windows() {
    let ahead = Habit {
        kernel: 100 * US,
        depth: 12,
    };
    let habits = [ahead, Habit { depth: 8, ..SHORT }];
    let mut driven = started(Policy::Weight, &habits.map(|habit| (habit, weight(1))));
    driven.world.programs[0].pace = 150 * US;
    driven.run(1000 * MS);
    let mut got = Vec::new();
    for _ in 0..5 {
        got.push(measured(&mut driven, &habits, 2000 * MS)[0]);
        assert_eq!(mode(&driven), "windows");
    }
    // Windows alone give it 0.354.
    assert!(got.iter().all(|got| *got > 0.345), "{got:?}");
}

/// A program stops with a queue that keeps the GPU for 405 ms of its time. Then it is silent, and
/// the last sample saw it at work, so it has its windows until four samples found nobody at work.
#[test]
fn program_stopped_after_long_kernels_is_idle() {
    let long = |depth| Habit { depth, ..LONG };
    let programs = [
        (SHORT, 1),
        (SHORT, 3),
        (long(1), 1),
        (long(1), 4),
        (long(6), 3),
    ];
    let programs = programs.map(|(habit, parts)| (habit, weight(parts)));
    let habits = programs.map(|(habit, _)| habit);
    let mut driven = started(Policy::Weight, &programs);
    driven.run(165 * MS);
    driven.world.set_stopped(4, true);
    let mut all = || measured(&mut driven, &habits, 500 * MS).iter().sum::<f64>();
    let halves: Vec<f64> = (0..16).map(|_| all()).collect();
    // At most its part is lost, which is a quarter, and only for a while.
    assert!(halves.iter().all(|all| *all > 0.8 * 0.75), "{halves:?}");
    assert!(halves[12..].iter().all(|all| *all > 0.9), "{halves:?}");
}

fn habits() -> impl Strategy<Value = Habit> {
    let kernel = prop::sample::select(KERNELS.to_vec());
    (kernel, 1..=8u32).prop_map(|(kernel, depth)| Habit { kernel, depth })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    /// Programs stop and go on as they like for 3 s. An instance that has work all the time is
    /// never without the GPU for long, and 2.5 s after the last change the shares are those of the
    /// weights.
    #[test]
    fn shares_hold_while_programs_come_and_go(
        programs in prop::collection::vec((habits(), 1..=4u32), 2..=6),
        changes in prop::collection::vec((0..6usize, any::<bool>(), 1..200u64), 0..40),
    ) {
        let programs: Vec<_> = programs.into_iter().map(|(h, w)| (h, weight(w))).collect();
        let habits: Vec<_> = programs.iter().map(|(habit, _)| *habit).collect();
        let mut driven = started(Policy::Weight, &programs);
        let mut runs = vec![true; programs.len()];
        let mut waiting = Waiting::default();
        for (program, stop, wait) in changes {
            // Program 0 has work all the time.
            let program = program % programs.len();
            if program > 0 {
                driven.world.set_stopped(program, stop);
                runs[program] = !stop;
            }
            let end = driven.world.now() + wait * MS;
            while driven.world.now() < end {
                driven.run((10 * MS).min(end - driven.world.now()));
                // In a turn, at most one window of each other that is taken for busy, and the
                // bursts of those that woke, in two turns.
                let waits = waiting.look(&driven, 0);
                let most = 190 * MS + 2 * BURST_DEFAULT;
                prop_assert!(waits < most, "starved for {waits} ns: {programs:?}");
            }
        }
        // An instance that stopped ends what it has queued, and is then asked about, all in its own
        // windows.
        driven.run(2500 * MS);
        // Twenty turns and more: one that is cut in two by the beginning or the end is 5 %.
        let got = measured(&mut driven, &habits, 4000 * MS);
        let busy = || runs.iter().enumerate().filter(|(_, runs)| **runs).map(|(i, _)| i);
        let weights: u32 = busy().map(|i| programs[i].1.weight).sum();
        let shares: f64 = busy().map(|i| got[i]).sum();
        for i in busy() {
            let wanted = f64::from(programs[i].1.weight) / f64::from(weights);
            let error = (got[i] / shares - wanted).abs() / wanted;
            prop_assert!(error < 0.06, "{i}: {got:?} of {programs:?}, {runs:?}");
        }
        // Up to six with windows of a few milliseconds. One that stopped loses at most the part
        // that it had: until the driver's samples say that it has no work, it has its windows.
        let all: f64 = got.iter().sum();
        let weights_of_all: u32 = programs.iter().map(|(_, terms)| terms.weight).sum();
        let left = f64::from(weights) / f64::from(weights_of_all);
        prop_assert!(all > 0.8 * left, "{got:?} of {programs:?}, {runs:?}");
        // The limit holds in any second.
        for (i, began) in driven.calls.iter().enumerate() {
            let within = driven.calls[i..].iter().take_while(|at| **at < began + 1000 * MS);
            prop_assert!(within.count() as u64 <= CALLS_PER_SECOND + 64);
        }
        // Everybody stops: after a while nothing runs any more.
        for i in 0..programs.len() {
            driven.world.set_stopped(i, true);
        }
        driven.run(8000 * MS);
        let calls = driven.calls.len();
        prop_assert_eq!(driven.sched.deadline(), None);
        driven.run(1000 * MS);
        prop_assert_eq!(driven.calls.len(), calls);
    }
}

/// A program that thinks for 20 to 60 ms between kernels of 15 us has no work for nearly all of the
/// time: its neighbour, which has, keeps nearly three quarters of the GPU. (Each time it asks, it
/// may be silent for a moment before that is believed.)
#[test]
fn a_thinker_leaves_the_gpu_to_others() {
    let request = Habit {
        kernel: 15 * US,
        depth: 1,
    };
    for beside in [SHORT, LONG] {
        let mut driven = started(Policy::Weight, &[(beside, weight(1)), (request, weight(1))]);
        driven.world.set_stopped(1, true);
        driven.run(100 * MS);
        let (began, before) = (driven.world.now(), driven.world.ran(0));
        for number in 0..120u64 {
            driven.world.programs[1].left = Some(1);
            driven.world.set_stopped(1, false);
            driven.run((20 + number * 17 % 40) * MS);
        }
        let kept = (driven.world.ran(0) - before) as f64 / (driven.world.now() - began) as f64;
        assert!(kept > 0.65 * alone(beside) / 1e9, "{beside:?}: {kept}");
    }
}

/// A kernel of 2 s takes 8 s at a share of a quarter, and its program is silent in them. Its weight
/// holds from the moment at which the driver's samples find it for the first time, whenever they
/// are taken.
#[test]
fn kernels_longer_than_silences_keep_weights() {
    for phase in 0..6 {
        for kernel in [800 * MS, 2000 * MS] {
            let long = Habit { kernel, depth: 1 };
            let mut driven = started(Policy::Weight, &[]);
            driven.run(phase * 27 * MS + MS);
            driven.add(long, weight(1));
            driven.add(SHORT, weight(3));
            // The first kernel.
            driven.run(9000 * MS);
            // A kernel that the samples miss counts as a pause, and what was owed then is served
            // later: of 40 s a burst is 0.5 %.
            let shares = measured(&mut driven, &[long, SHORT], 40_000 * MS);
            assert!(
                shares[0] > 0.235 && shares[0] < 0.255,
                "{kernel}, {phase}: {shares:?}"
            );
        }
    }
}
