// SPDX-License-Identifier: GPL-2.0
//! The cases of `make bench-weights` about neighbours of programs that pause for a moment: they
//! keep their shares, whatever the weights and the policy.

use cgpu_km::policy::sched::{Mechanisms, Period, Policy, Rules, Terms};

use crate::{
    cases::{rules, weight, Line, DEEP},
    driven::Driven,
    services::{line, Is},
    serving::{serve, Tenant},
    world::{Habit, LAUNCH},
    Nanos, MS, US,
};

/// How long a case is measured.
const LENGTH: Nanos = 20_000 * MS;
/// The neighbour has at least this part of its share.
const KEPT: f64 = 0.95;

/// A program of short kernels that works for so many milliseconds and pauses for one.
fn pausing(step: Nanos) -> Tenant {
    Tenant::Steps {
        habit: Habit {
            kernel: 100 * US,
            depth: 8,
        },
        step: step * MS,
        pause: MS,
        pace: LAUNCH,
    }
}

/// The time of the last of these tenants, which always has work, beside the others.
fn kept(name: &str, rules: Rules, tenants: &[(Tenant, Terms)], share: f64) -> Line {
    let mut driven = Driven::new(Mechanisms::ALL, rules);
    let came = serve(&mut driven, tenants, LENGTH);
    let got = came.last().map_or(0.0, |last| last.ran);
    line(
        format!("{name}: what its neighbour has"),
        &[(Is::AtLeast, share * KEPT, got)],
        driven.calls_per_second(),
    )
}

/// How long requests of high priority take, 99 %, beside a service that spends what it is owed.
fn before_a_burst(request: Nanos, load: f64) -> Line {
    const MOST_MS: f64 = 3.0;
    let urgent = Tenant::Service {
        request: MS,
        load: 0.02,
    };
    let high = Terms {
        high_priority: true,
        ..weight(1)
    };
    let other = Tenant::Service { request, load };
    let tenants = [
        (urgent, high),
        (other, weight(1)),
        (Tenant::Saturated(DEEP), weight(1)),
    ];
    let mut driven = Driven::new(Mechanisms::ALL, rules(Policy::Weight, Period::Latency));
    let came = serve(&mut driven, &tenants, LENGTH);
    line(
        format!(
            "high priority, 1 ms, beside a service of {} ms at {load}: 99 %, ms",
            request / MS
        ),
        &[(Is::AtMost, MOST_MS, came[0].quantile(0.99))],
        driven.calls_per_second(),
    )
}

/// A program of short requests that launches one kernel without end, and is not heard of again: the
/// time that its neighbour has, three times its weight, once it was found out.
fn hidden_kernel() -> Line {
    const SHARE: f64 = 0.75;
    let mut driven = Driven::new(Mechanisms::ALL, rules(Policy::Weight, Period::Latency));
    let short = Habit {
        kernel: MS,
        depth: 1,
    };
    let program = driven.add(short, weight(1));
    let neighbour = driven.add(DEEP, weight(3));
    for _ in 0..150 {
        driven.world.programs[program].left = Some(17);
        driven.world.set_stopped(program, false);
        driven.run(60 * MS);
    }
    driven.world.programs[program].habit.kernel = 60_000 * MS;
    driven.world.programs[program].left = Some(1);
    driven.world.set_stopped(program, false);
    driven.run(5_000 * MS);
    let before = driven.world.ran(neighbour);
    driven.run(LENGTH);
    let got = (driven.world.ran(neighbour) - before) as f64 / LENGTH as f64;
    line(
        "one kernel without end after short requests: what its neighbour has".to_owned(),
        &[(Is::AtLeast, SHARE * KEPT, got)],
        driven.calls_per_second(),
    )
}

/// All cases about pauses.
pub fn all(mut each: impl FnMut(Line)) {
    let by_weight = rules(Policy::Weight, Period::Latency);
    let deep = Tenant::Saturated(DEEP);
    for weights in [[1, 1], [3, 1], [9, 1], [1, 3]] {
        let [first, last] = weights;
        let share = f64::from(last) / f64::from(first + last);
        for step in [6, 20, 40] {
            let name = format!("steps of {step} ms, weights {first}:{last}");
            let tenants = [(pausing(step), weight(first)), (deep, weight(last))];
            each(kept(&name, by_weight, &tenants, share));
        }
    }
    let high = Terms {
        high_priority: true,
        ..weight(1)
    };
    let tenants = [(pausing(20), high), (deep, weight(1))];
    each(kept(
        "steps of 20 ms, high priority",
        by_weight,
        &tenants,
        0.2,
    ));
    for load in [0.2, 0.4] {
        each(before_a_burst(60 * MS, load));
    }
    let soft = rules(Policy::WeightLazy, Period::Latency);
    for step in [6, 14, 25] {
        let name = format!("steps of {step} ms, policy weight-lazy");
        let tenants = [(pausing(step), weight(1)), (deep, weight(1))];
        each(kept(&name, soft, &tenants, 0.5));
    }
    each(hidden_kernel());
    let three = [
        (pausing(20), weight(1)),
        (deep, weight(1)),
        (deep, weight(1)),
    ];
    each(kept(
        "steps of 20 ms beside two",
        by_weight,
        &three,
        1.0 / 3.0,
    ));
}
