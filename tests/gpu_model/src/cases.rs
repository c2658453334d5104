// SPDX-License-Identifier: GPL-2.0
//! The cases of `make bench-weights`: what was wanted, what a program got, and how far that is off.

use crate::driven::Driven;
use crate::world::{alone, Habit};
use crate::{Nanos, MS, US};
use cgpu_km::policy::sched::{Capabilities, Period, Policy, Rules, Terms};
use serde::Serialize;

/// The lengths of kernels that the cases use.
pub const KERNELS: [Nanos; 4] = [15 * US, 800 * US, 16 * MS, 81 * MS];
/// Kernels that are longer than any silence that is allowed.
const LONGER: [Nanos; 3] = [400 * MS, 800 * MS, 2000 * MS];
const SHORT: Habit = Habit {
    kernel: 15 * US,
    depth: 1,
};
const DEEP: Habit = Habit {
    kernel: 800 * US,
    depth: 8,
};
/// How long a case runs before it is measured, and how long it is.
const BEFORE: Nanos = 1000 * MS;
const MEASURED: Nanos = 2000 * MS;

/// Rules with the defaults of a new GPU.
pub const fn rules(policy: Policy, period: Period) -> Rules {
    Rules {
        policy,
        period,
        max_instances: 16,
        priority_percent: 80,
    }
}

/// Terms of ordinary priority.
pub const fn weight(weight: u32) -> Terms {
    Terms {
        weight,
        high_priority: false,
        suspended: false,
    }
}

/// What came out.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The programs' rates, as fractions of what each does alone.
    pub of_alone: Vec<f64>,
    /// Calls into the driver per second.
    pub calls: f64,
    /// How the GPU was shared at the end.
    pub mode: &'static str,
}

impl Outcome {
    /// The share of each program.
    pub fn shares(&self) -> Vec<f64> {
        let all: f64 = self.of_alone.iter().sum();
        self.of_alone.iter().map(|got| got / all).collect()
    }

    /// All programs together, as a fraction of one alone.
    pub fn throughput(&self) -> f64 {
        self.of_alone.iter().sum()
    }

    /// The worst of the errors, each as a fraction of the share that was wanted.
    pub fn worst(&self, wanted: &[f64]) -> f64 {
        let got = self.shares();
        let errors = got.iter().zip(wanted).map(|(g, w)| (g - w).abs() / w);
        errors.fold(0.0, f64::max)
    }
}

/// Programs of these habits in instances of these terms.
pub fn run(capabilities: Capabilities, rules: Rules, programs: &[(Habit, Terms)]) -> Outcome {
    run_from(0, capabilities, rules, programs)
}

/// The same, on a GPU that is as old as this.
pub fn run_from(
    age: Nanos,
    capabilities: Capabilities,
    rules: Rules,
    programs: &[(Habit, Terms)],
) -> Outcome {
    let mut driven = Driven::new(capabilities, rules);
    driven.run(age);
    for (habit, terms) in programs {
        driven.add(*habit, *terms);
    }
    driven.run(BEFORE);
    let count = 0..programs.len();
    let before: Vec<Nanos> = count.map(|i| driven.world.ran(i)).collect();
    let (began, calls) = (driven.world.now(), driven.calls.len());
    driven.run(MEASURED);
    let seconds = (driven.world.now() - began) as f64 / 1e9;
    let of_alone = programs.iter().enumerate().map(|(i, (habit, _))| {
        let ran = (driven.world.ran(i) - before[i]) as f64;
        ran / seconds / alone(*habit)
    });
    Outcome {
        of_alone: of_alone.collect(),
        calls: (driven.calls.len() - calls) as f64 / seconds,
        mode: driven.sched.view().mode.name(),
    }
}

/// The shares that follow from weights.
pub fn by_weight(weights: &[u32]) -> Vec<f64> {
    let all: u32 = weights.iter().sum();
    let share = |w: &u32| f64::from(*w) / f64::from(all);
    weights.iter().map(share).collect()
}

/// One line of `make bench-weights`.
#[derive(Clone, Debug, Serialize)]
pub struct Line {
    /// `rmapi`: all that the driver's kernel RMAPI offers, and the doorbell. `rmapi-no-samples`: without its samples.
    /// `doorbell`: that alone.
    pub backend: &'static str,
    /// What was done.
    pub case: String,
    /// The shares, or the figure, that were wanted.
    pub wanted: Vec<f64>,
    /// What came out.
    pub got: Vec<f64>,
    /// The worst error, as a fraction of the share that was wanted.
    pub error: f64,
    /// The most that it may be; none where only the figure is told.
    pub bound: Option<f64>,
    /// All programs together, as a fraction of one alone.
    pub throughput: f64,
    /// Calls into the driver per second.
    pub calls_per_second: f64,
    /// How the GPU was shared.
    pub mode: &'static str,
}

/// A figure as it is printed: four digits after the point.
fn rounded(figure: f64) -> f64 {
    (figure * 1e4).round() / 1e4
}

impl Line {
    fn new(
        backend: Backend,
        case: String,
        outcome: &Outcome,
        wanted: &[f64],
        got: Vec<f64>,
        bound: Option<f64>,
    ) -> Self {
        let errors = got.iter().zip(wanted).map(|(g, w)| (g - w).abs() / w);
        Self {
            backend: backend.name,
            case,
            wanted: wanted.iter().copied().map(rounded).collect(),
            error: rounded(errors.fold(0.0, f64::max)),
            got: got.into_iter().map(rounded).collect(),
            bound,
            throughput: rounded(outcome.throughput()),
            calls_per_second: rounded(outcome.calls),
            mode: outcome.mode,
        }
    }
}

/// A set of means, and what it is called.
#[derive(Clone, Copy, Debug)]
pub struct Backend {
    name: &'static str,
    means: Capabilities,
}

/// Both.
pub const RMAPI: Backend = Backend {
    name: "rmapi",
    means: Capabilities::ALL,
};
/// Both, where the driver tells no samples (a GPU that is divided by MIG).
pub const NO_SAMPLES: Backend = Backend {
    name: "rmapi-no-samples",
    means: Capabilities {
        samples: false,
        ..Capabilities::ALL
    },
};
/// The doorbell alone.
pub const DOORBELL: Backend = Backend {
    name: "doorbell",
    means: Capabilities::DOORBELL,
};

fn length(kernel: Nanos) -> String {
    if kernel >= MS {
        format!("{} ms", kernel as f64 / MS as f64)
    } else {
        format!("{} us", kernel / US)
    }
}

fn told(habit: Habit) -> String {
    format!("{} depth {}", length(habit.kernel), habit.depth)
}

/// What a program has queued at most, which runs on when its doorbell is taken away.
fn queued(habit: Habit) -> f64 {
    (habit.kernel * Nanos::from(habit.depth)) as f64
}

/// The windows of all instances together, in the period `latency`.
fn window_of_all() -> f64 {
    32.0 * MS as f64
}

/// Two programs, by weight.
pub fn pair(backend: Backend, weights: [u32; 2], a: Habit, b: Habit) -> Line {
    let programs = [(a, weight(weights[0])), (b, weight(weights[1]))];
    let outcome = run(
        backend.means,
        rules(Policy::Weight, Period::Latency),
        &programs,
    );
    let case = format!("{}:{}, {} : {}", weights[0], weights[1], told(a), told(b));
    let least = *weights.iter().min().expect("two") as f64 / 100.0;
    let beyond = (queued(a) + queued(b)) / (least * window_of_all());
    let bound = if backend.means.switch {
        0.02
    } else {
        0.02 + beyond
    };
    let bound = (bound <= 1.0).then_some(rounded(bound));
    let got = outcome.shares();
    Line::new(backend, case, &outcome, &by_weight(&weights), got, bound)
}

/// Several programs of the same habit, by weight.
fn several(backend: Backend, weights: &[u32], habit: Habit, bound: Option<f64>) -> Line {
    let programs: Vec<_> = weights.iter().map(|w| (habit, weight(*w))).collect();
    let outcome = run(
        backend.means,
        rules(Policy::Weight, Period::Latency),
        &programs,
    );
    let case = format!("{} instances {weights:?}, {}", weights.len(), told(habit));
    let got = outcome.shares();
    Line::new(backend, case, &outcome, &by_weight(weights), got, bound)
}

/// One program alone under a cap of 30 percent.
pub fn cap(backend: Backend, habit: Habit) -> Line {
    let programs = [(habit, weight(30))];
    let outcome = run(
        backend.means,
        rules(Policy::Fixed, Period::Latency),
        &programs,
    );
    let beyond = if backend.means.switch {
        0.0
    } else {
        queued(habit) / (0.3 * window_of_all())
    };
    let bound = 1.0 / 30.0 + beyond;
    let bound = (bound <= 1.0).then_some(rounded(bound));
    let case = format!("cap of 30 % alone, {}", told(habit));
    let got = outcome.of_alone.clone();
    Line::new(backend, case, &outcome, &[0.3], got, bound)
}

/// Two busy programs together, against one alone.
fn throughput(period: Period, habit: Habit, wanted: f64) -> Line {
    let programs = [(habit, weight(50)), (habit, weight(50))];
    let outcome = run(RMAPI.means, rules(Policy::Weight, period), &programs);
    let case = format!(
        "throughput of two, {} period, {}",
        period.name(),
        told(habit)
    );
    let got = outcome.throughput();
    let mut line = Line::new(RMAPI, case, &outcome, &[wanted], vec![got], Some(0.0));
    // More than wanted is no error.
    line.error = rounded((1.0 - got / wanted).max(0.0));
    line
}

/// All cases of the bench.
pub fn all(mut each: impl FnMut(Line)) {
    for backend in [RMAPI, DOORBELL] {
        for weights in [[75, 25], [90, 10], [50, 50]] {
            for a in KERNELS {
                for b in KERNELS {
                    for (da, db) in [(1, 1), (1, 8), (8, 1), (8, 8)] {
                        let a = Habit {
                            kernel: a,
                            depth: da,
                        };
                        let b = Habit {
                            kernel: b,
                            depth: db,
                        };
                        each(pair(backend, weights, a, b));
                    }
                }
            }
        }
        let must = |bound| backend.means.switch.then_some(bound);
        for kernel in KERNELS {
            for depth in [1, 8] {
                let habit = Habit { kernel, depth };
                each(several(backend, &[1, 2, 3, 4], habit, must(0.02)));
                each(several(backend, &[1; 16], habit, must(0.03)));
                let mixed: Vec<u32> = (0..16).map(|i| i % 4 + 1).collect();
                each(several(backend, &mixed, habit, must(0.03)));
                each(cap(backend, habit));
            }
        }
    }
    // Longer than any silence that is allowed: what the driver's samples are for.
    for backend in [RMAPI, NO_SAMPLES] {
        for kernel in LONGER {
            for depth in [1, 8] {
                let long = Habit { kernel, depth };
                for (weights, other) in [([25, 75], SHORT), ([75, 25], SHORT), ([75, 25], DEEP)] {
                    let mut line = pair(backend, weights, long, other);
                    line.bound = line.bound.filter(|_| backend.means.samples);
                    each(line);
                }
                let mut line = cap(backend, long);
                line.bound = line.bound.filter(|_| backend.means.samples);
                each(line);
            }
        }
    }
    for kernel in KERNELS {
        for depth in [1, 8] {
            let habit = Habit { kernel, depth };
            each(throughput(Period::Throughput, habit, 0.97));
            each(throughput(Period::Latency, habit, 0.92));
        }
    }
}
