// SPDX-License-Identifier: GPL-2.0
//! The GPU time that the scheduler reports for each instance (`given_ns` in `cgpuctl status` and
//! `top`), against how long the model says that each one's kernels ran.
//!
//! A program that is alone does not fill the GPU, if it waits for its kernels. So what its kernels
//! ran is taken as a part of what they run alone in the same time.

use cgpu_km::policy::sched::{InstanceId, Mechanisms, Period, Policy, Terms};
use gpu_model::{
    cases::{rules, weight, DEEP, KERNELS, SHORT},
    driven::Driven,
    world::{alone, Habit},
    Nanos, MS, US,
};

/// The length of the comparison.
const LENGTH: Nanos = 4000 * MS;
/// When a window begins and ends is known from calls, whose effects are known to 0.1 ms each
/// (`Costs`: 0.2 of 0.43 to 0.70 ms, 0.2 of 0.26 to 0.32 ms); the shortest window here is 8 ms, and
/// lengths that are off to both sides make up for each other.
const WINDOWS: f64 = 0.01;

fn given(driven: &Driven, program: usize) -> Nanos {
    let id = InstanceId(u32::try_from(program).expect("few"));
    let view = driven.sched.instance_view(driven.world.now(), id);
    view.expect("is there").account.gpu_time
}

/// By how much `given` is off for each program while `during` goes on, as a fraction of what it
/// should be.
fn errors(driven: &mut Driven, habits: &[Habit], during: impl FnOnce(&mut Driven)) -> Vec<f64> {
    let told = |driven: &Driven| {
        let each = |program| (given(driven, program), driven.world.ran(program));
        (0..habits.len()).map(each).collect::<Vec<_>>()
    };
    let before = told(driven);
    during(driven);
    let after = told(driven);
    let error = |(program, habit): (usize, &Habit)| {
        let (before, after) = (before[program], after[program]);
        let ran = (after.1 - before.1) as f64 / (alone(*habit) / 1e9);
        assert!(ran > 0.0);
        ((after.0 - before.0) as f64 / ran - 1.0).abs()
    };
    habits.iter().enumerate().map(error).collect()
}

fn started(policy: Policy, programs: &[(Habit, Terms)]) -> Driven {
    let mut driven = Driven::new(Mechanisms::ALL, rules(policy, Period::Latency));
    for (habit, terms) in programs {
        driven.add(*habit, *terms);
    }
    driven.run(3000 * MS);
    driven
}

fn all_habits() -> impl Iterator<Item = Habit> {
    let depths = |kernel| [1, 8].map(|depth| Habit { kernel, depth });
    KERNELS.into_iter().flat_map(depths)
}

/// All pairs of the bench, by weight: windows, and slices where they are taken.
#[test]
fn given_time_is_time_that_ran() {
    let mut sliced = 0;
    for a in all_habits() {
        for b in all_habits() {
            let programs = [(a, weight(60)), (b, weight(20))];
            let mut driven = started(Policy::Weight, &programs);
            let errors = errors(&mut driven, &[a, b], |driven| driven.run(LENGTH));
            let slices = driven.sched.view().mode.name() == "slices";
            sliced += u32::from(slices);
            // At each change of slices nobody knows for how much of its kernel the instance that is
            // heard of had the GPU already; half a kernel is assumed. A slice is 24 ms or 8 ms.
            let half = a.kernel.max(b.kernel) as f64 / 2.0;
            let bound = |slice: Nanos| {
                if slices {
                    WINDOWS + half / slice as f64
                } else {
                    WINDOWS
                }
            };
            let within = errors[0] <= bound(24 * MS) && errors[1] <= bound(8 * MS);
            assert!(within, "{errors:?} of {programs:?}, slices: {slices}");
        }
    }
    assert!(sliced > 0);
}

/// Caps, and more than two.
#[test]
fn given_time_ran_under_caps_and_with_four() {
    for habit in all_habits() {
        let mut driven = started(Policy::Fixed, &[(habit, weight(30))]);
        let errors = errors(&mut driven, &[habit], |driven| driven.run(LENGTH));
        assert!(errors[0] <= WINDOWS, "{errors:?}: {habit:?}");
    }
    let habits = KERNELS.map(|kernel| Habit { kernel, depth: 1 });
    let programs: Vec<_> = habits.into_iter().zip((1..).map(weight)).collect();
    let mut driven = started(Policy::Weight, &programs);
    let errors = errors(&mut driven, &habits, |driven| driven.run(LENGTH));
    // The shortest window is 3 ms.
    let bound = WINDOWS * 8.0 / 3.0;
    assert!(errors.iter().all(|error| *error <= bound), "{errors:?}");
}

/// An instance that is alone has all the time but that in which it was suspended, had no work or
/// did not have the GPU for another's sake.
#[test]
fn nothing_is_given_while_suspended_or_without_work() {
    let suspended = Terms {
        suspended: true,
        ..weight(1)
    };
    let mut driven = started(Policy::Weight, &[(SHORT, weight(1)), (DEEP, weight(1))]);
    driven.world.set_stopped(1, true);
    driven.run(3000 * MS);
    let errors = errors(&mut driven, &[SHORT], |driven| {
        driven.run(500 * MS);
        driven.set_terms(0, suspended);
        driven.run(2000 * MS);
        driven.set_terms(0, weight(1));
        driven.run(500 * MS);
    });
    // A second of it was given, and the calls for the suspension take 1 ms.
    assert!(errors[0] <= 0.005, "{errors:?}");
    let idle = given(&driven, 1);
    driven.run(LENGTH);
    assert_eq!(given(&driven, 1), idle);
    // Under the driver's own sharing nobody knows what each instance has.
    driven.set_rules(rules(Policy::Native, Period::Latency));
    driven.run(MS);
    let native = given(&driven, 0);
    driven.run(100 * US);
    assert_eq!(given(&driven, 0), native);
}
