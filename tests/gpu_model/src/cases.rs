// SPDX-License-Identifier: GPL-2.0
//! The cases of `make bench-weights`: the share that was wanted, the share that each program got,
//! and how far that is off.

use cgpu_km::policy::sched::{Mechanisms, Period, Policy, Rules, Terms};
use serde::Serialize;

use crate::{
    driven::Driven,
    world::{alone, Habit},
    Nanos, MS, US,
};

/// The lengths of kernels that the cases use.
pub const KERNELS: [Nanos; 4] = [15 * US, 800 * US, 16 * MS, 81 * MS];
/// Kernels that are longer than any silence that the scheduler waits for.
const LONGER: [Nanos; 3] = [400 * MS, 800 * MS, 2000 * MS];
/// Waits for each of its short kernels.
pub const SHORT: Habit = Habit {
    kernel: 15 * US,
    depth: 1,
};
/// Keeps its queue full.
pub const DEEP: Habit = Habit {
    kernel: 800 * US,
    depth: 8,
};
/// How long a case runs before it is measured, and how long it is each time.
const BEFORE: Nanos = 1000 * MS;
const MEASURED: Nanos = 2000 * MS;
/// How often it is measured, one time after the other.
const TIMES: usize = 5;

/// Rules with the defaults of a new GPU.
pub const fn rules(policy: Policy, period: Period) -> Rules {
    Rules {
        policy,
        period,
        ..Rules::DEFAULT
    }
}

/// Terms of ordinary priority.
pub const fn weight(weight: u32) -> Terms {
    Terms {
        weight,
        high_priority: false,
        suspended: false,
        burst: None,
    }
}

/// The outcome of one measurement of a case.
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

/// Runs programs of these habits in instances of these terms. Returns the outcome of each
/// measurement.
pub fn run(mechanisms: Mechanisms, rules: Rules, programs: &[(Habit, Terms)]) -> Vec<Outcome> {
    run_from(0, BEFORE, mechanisms, rules, programs)
}

/// Runs them on a GPU of this age, and measures after they have run for `before`.
pub fn run_from(
    age: Nanos,
    before: Nanos,
    mechanisms: Mechanisms,
    rules: Rules,
    programs: &[(Habit, Terms)],
) -> Vec<Outcome> {
    let mut driven = Driven::new(mechanisms, rules);
    driven.run(age);
    for (habit, terms) in programs {
        driven.add(*habit, *terms);
    }
    driven.run(before);
    let rates: Vec<f64> = programs.iter().map(|(habit, _)| alone(*habit)).collect();
    let measure = |_| {
        let count = 0..programs.len();
        let before: Vec<Nanos> = count.map(|i| driven.world.ran(i)).collect();
        let (began, calls) = (driven.world.now(), driven.calls.len());
        driven.run(MEASURED);
        let seconds = (driven.world.now() - began) as f64 / 1e9;
        let of_alone = rates.iter().enumerate().map(|(i, rate)| {
            let ran = (driven.world.ran(i) - before[i]) as f64;
            ran / seconds / rate
        });
        Outcome {
            of_alone: of_alone.collect(),
            calls: (driven.calls.len() - calls) as f64 / seconds,
            mode: driven.sched.view().mode.name(),
        }
    };
    (0..TIMES).map(measure).collect()
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
    /// `rmapi`: all that the driver's kernel RMAPI offers, and the doorbell. `rmapi-no-samples`:
    /// without its samples.
    pub backend: &'static str,
    /// The case.
    pub case: String,
    /// The shares, or the figure, that were wanted.
    pub wanted: Vec<f64>,
    /// The shares, or the figure, that one measurement found.
    pub got: Vec<f64>,
    /// The worst error, as a fraction of the share that was wanted.
    pub error: f64,
    /// The most that the error may be; none if only the figure is reported.
    pub bound: Option<f64>,
    /// The rate of all programs together, as a fraction of one alone: the least of the
    /// measurements.
    pub throughput: Option<f64>,
    /// Calls into the driver per second: the most of the measurements.
    pub calls_per_second: Option<f64>,
    /// How the GPU was shared at the end.
    pub mode: Option<&'static str>,
}

/// A figure as it is printed: four digits after the point.
pub(crate) fn rounded(figure: f64) -> f64 {
    (figure * 1e4).round() / 1e4
}

impl Line {
    /// `got` picks what of an outcome is to be as `wanted`.
    fn new(
        backend: Backend,
        case: String,
        outcomes: &[Outcome],
        wanted: &[f64],
        got: impl Fn(&Outcome) -> Vec<f64>,
        bound: f64,
    ) -> Self {
        let error = |got: &[f64]| {
            let errors = got.iter().zip(wanted).map(|(g, w)| (g - w).abs() / w);
            errors.fold(0.0, f64::max)
        };
        let all = outcomes.iter().map(got);
        let got = all.max_by(|a, b| error(a).total_cmp(&error(b)));
        let got = got.expect("measured");
        let figures = |of: fn(&Outcome) -> f64| outcomes.iter().map(of);
        Self {
            backend: backend.name,
            case,
            wanted: wanted.iter().copied().map(rounded).collect(),
            error: rounded(error(&got)),
            got: got.into_iter().map(rounded).collect(),
            bound: Some(rounded(bound)),
            throughput: Some(rounded(
                figures(Outcome::throughput).fold(f64::MAX, f64::min),
            )),
            calls_per_second: Some(rounded(figures(|o| o.calls).fold(0.0, f64::max))),
            mode: outcomes.last().map(|outcome| outcome.mode),
        }
    }
}

/// A set of mechanisms and its name.
#[derive(Clone, Copy, Debug)]
pub struct Backend {
    pub(crate) name: &'static str,
    means: Mechanisms,
}

/// All that the driver's kernel interface offers.
pub const RMAPI: Backend = Backend {
    name: "rmapi",
    means: Mechanisms::ALL,
};
/// The same without samples: on a GPU that is divided by MIG the driver has none.
pub const NO_SAMPLES: Backend = Backend {
    name: "rmapi-no-samples",
    means: Mechanisms {
        samples: false,
        ..Mechanisms::ALL
    },
};

fn length(kernel: Nanos) -> String {
    if kernel >= MS {
        format!("{} ms", kernel as f64 / MS as f64)
    } else {
        format!("{} us", kernel / US)
    }
}

pub(crate) fn told(habit: Habit) -> String {
    format!("{} depth {}", length(habit.kernel), habit.depth)
}

/// Programs, by weight.
fn shared(backend: Backend, case: String, programs: &[(u32, Habit)], most: f64) -> Line {
    let terms: Vec<_> = programs.iter().map(|(w, h)| (*h, weight(*w))).collect();
    let weights: Vec<u32> = programs.iter().map(|(weight, _)| *weight).collect();
    let rules = rules(Policy::Weight, Period::Latency);
    let outcomes = run(backend.means, rules, &terms);
    let wanted = by_weight(&weights);
    Line::new(backend, case, &outcomes, &wanted, Outcome::shares, most)
}

/// Two programs, by weight.
pub fn pair(backend: Backend, weights: [u32; 2], a: Habit, b: Habit) -> Line {
    let case = format!("{}:{}, {} : {}", weights[0], weights[1], told(a), told(b));
    shared(backend, case, &[(weights[0], a), (weights[1], b)], 0.02)
}

/// Four programs of weights 1 to 4.
pub fn four(habits: [Habit; 4]) -> Line {
    let case = format!("4 instances [1, 2, 3, 4], {}", habits.map(told).join(" : "));
    let programs: Vec<_> = (1..).zip(habits).collect();
    shared(RMAPI, case, &programs, 0.02)
}

/// Four programs, each with kernels of another length: each length with each weight and each depth,
/// in all orders.
pub fn mixed() -> impl Iterator<Item = [Habit; 4]> {
    let orders = (0..256).map(|n| [n / 64, n / 16 % 4, n / 4 % 4, n % 4]);
    let orders = orders.filter(|order| (0..4).all(|length| order.contains(&length)));
    orders.flat_map(|order| {
        (0..16).map(move |deep: u32| {
            [0, 1, 2, 3].map(|at| Habit {
                kernel: KERNELS[order[at]],
                depth: if deep & (1 << at) == 0 { 1 } else { 8 },
            })
        })
    })
}

/// Several programs of the same habit, by weight.
fn several(weights: &[u32], habit: Habit, most: f64) -> Line {
    let case = format!("{} instances {weights:?}, {}", weights.len(), told(habit));
    let programs: Vec<_> = weights.iter().map(|w| (*w, habit)).collect();
    shared(RMAPI, case, &programs, most)
}

/// One program alone under a cap of 30 percent.
pub fn cap(backend: Backend, habit: Habit) -> Line {
    let case = format!("cap of 30 % alone, {}", told(habit));
    let rules = rules(Policy::Fixed, Period::Latency);
    let outcomes = run(backend.means, rules, &[(habit, weight(30))]);
    let got = |outcome: &Outcome| outcome.of_alone.clone();
    Line::new(backend, case, &outcomes, &[0.3], got, 1.0 / 30.0)
}

/// Two busy programs together, against one alone.
fn throughput(period: Period, habit: Habit, wanted: f64) -> Line {
    let programs = [(habit, weight(50)), (habit, weight(50))];
    let outcomes = run(RMAPI.means, rules(Policy::Weight, period), &programs);
    let case = format!(
        "throughput of two, {} period, {}",
        period.name(),
        told(habit)
    );
    let got = |outcome: &Outcome| vec![outcome.throughput()];
    let mut line = Line::new(RMAPI, case, &outcomes, &[wanted], got, 0.0);
    // A rate above the wanted one is no error.
    let least = line.throughput.expect("measured");
    line.got = vec![least];
    line.error = rounded((1.0 - least / wanted).max(0.0));
    line
}

/// The longest that an instance of high priority waits for the GPU while two programs like this
/// share it: from the launch of the first kernel of a request, of which there is one every 50 ms or
/// so, until it runs.
pub fn longest_wait(beside: Habit) -> Nanos {
    let high = Terms {
        high_priority: true,
        ..weight(1)
    };
    let request = Habit {
        kernel: 500 * US,
        depth: 1,
    };
    let mut driven = Driven::new(RMAPI.means, rules(Policy::Weight, Period::Latency));
    driven.add(beside, weight(1));
    driven.add(beside, weight(1));
    let program = driven.add(request, high);
    driven.world.set_stopped(program, true);
    driven.run(2 * BEFORE);
    let mut longest = 0;
    for number in 0..60u64 {
        driven.world.programs[program].left = Some(8);
        driven.world.set_stopped(program, false);
        let (asked, ran) = (driven.world.now(), driven.world.ran(program));
        while driven.world.ran(program) == ran {
            driven.run(10 * US);
        }
        // The first request counts too, when nothing is known of its kernels.
        longest = longest.max(driven.world.now() - asked);
        driven.run((45 + number % 13) * MS);
    }
    longest
}

/// The same in milliseconds. A wait that is shorter than wanted is no error.
fn priority(beside: Habit) -> Line {
    let (wanted, got) = (2.0, longest_wait(beside) as f64 / MS as f64);
    Line {
        backend: RMAPI.name,
        case: format!(
            "longest wait of high priority, ms, beside two of {}",
            told(beside)
        ),
        wanted: vec![wanted],
        got: vec![rounded(got)],
        error: rounded((got / wanted - 1.0).max(0.0)),
        bound: Some(0.0),
        throughput: None,
        calls_per_second: None,
        mode: None,
    }
}

/// All cases of the bench.
pub fn all(mut each: impl FnMut(Line)) {
    for weights in [[75, 25], [90, 10], [50, 50]] {
        for a in KERNELS {
            for b in KERNELS {
                for depths in [[1, 1], [1, 8], [8, 1], [8, 8]] {
                    let [a, b] = [(a, depths[0]), (b, depths[1])]
                        .map(|(kernel, depth)| Habit { kernel, depth });
                    each(pair(RMAPI, weights, a, b));
                }
            }
        }
    }
    let habits = || {
        KERNELS
            .into_iter()
            .flat_map(|kernel| [1, 8].map(|depth| Habit { kernel, depth }))
    };
    for habit in habits() {
        each(several(&[1, 2, 3, 4], habit, 0.02));
        each(several(&[1; 16], habit, 0.03));
        let mixed: Vec<u32> = (0..16).map(|i| i % 4 + 1).collect();
        each(several(&mixed, habit, 0.03));
        each(cap(RMAPI, habit));
    }
    // All four lengths at once.
    for habits in mixed() {
        each(four(habits));
    }
    // Kernels that are longer than any silence that the scheduler waits for are what the driver's
    // samples are for.
    for backend in [RMAPI, NO_SAMPLES] {
        let mut told = |mut line: Line| {
            line.bound = line.bound.filter(|_| backend.means.samples);
            each(line);
        };
        for kernel in LONGER {
            for depth in [1, 8] {
                let long = Habit { kernel, depth };
                for (weights, other) in [([25, 75], SHORT), ([75, 25], SHORT), ([75, 25], DEEP)] {
                    told(pair(backend, weights, long, other));
                }
                told(cap(backend, long));
            }
        }
    }
    for habit in habits() {
        each(throughput(Period::Throughput, habit, 0.97));
        each(throughput(Period::Latency, habit, 0.92));
        // A program that waits for each short kernel loses the time in which both have their
        // channels on.
        let short = habit == SHORT;
        each(throughput(
            Period::Interactive,
            habit,
            if short { 0.85 } else { 0.9 },
        ));
        each(priority(habit));
    }
}
