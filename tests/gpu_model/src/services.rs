// SPDX-License-Identifier: GPL-2.0
//! The cases of `make bench-weights` about bursts: services beside programs that always have work,
//! and programs that sleep to gain by it.

use cgpu_km::policy::sched::{Mechanisms, Period, Policy, Rules, Terms, BURST_DEFAULT};

use crate::{
    cases::{rounded, rules, told, weight, Line, DEEP, KERNELS, RMAPI, SHORT},
    driven::Driven,
    serving::{arrivals, ideal, serve, serve_until_others_come, Came, Tenant, BEFORE, TOKEN},
    world::{alone, Habit, LAUNCH},
    Nanos, MS, US,
};

/// How long a case is measured.
const LENGTH: Nanos = 60_000 * MS;
/// The same for programs that sleep to gain by it.
const GAME: Nanos = 10_000 * MS;
/// A request may take this much longer than where nobody else is.
const LONGER: f64 = 1.25;
/// Sequences of requests that a case is tried with where chance matters.
const SEQUENCES: usize = 32;
/// The cost of a wake-up for the GPU, in milliseconds.
const WAKE_COST: f64 = 0.8;
/// The 99th percentile of a token of [`TOKEN`] under the period `interactive`, in milliseconds.
const TOKEN_MS: f64 = 6.0;
/// A neighbour that always has work has at least this of what a service leaves.
const LEFT: f64 = 0.93;

/// Steps of training, in milliseconds of GPU time, and the pauses after them.
const STEPS: [(Nanos, Nanos); 6] = [(2, 1), (6, 4), (10, 7), (13, 9), (20, 5), (100, 50)];

/// Training whose processor is slower than the GPU: how long its kernels are and from which one to
/// the next, in microseconds, how many a step has, and the pause after it in milliseconds.
const TRAINING: [(Nanos, Nanos, u64, Nanos); 4] = [
    (300, 500, 12, 1),
    (300, 500, 42, 2),
    (200, 400, 60, 1),
    (480, 500, 42, 1),
];

/// A program whose steps are of short kernels.
fn steps(step: Nanos, pause: Nanos) -> Tenant {
    Tenant::Steps {
        habit: Habit {
            kernel: 100 * US,
            depth: 8,
        },
        step: step * MS,
        pause: pause * MS,
        pace: LAUNCH,
    }
}

/// Such training.
fn training((kernel, pace, kernels, pause): (Nanos, Nanos, u64, Nanos)) -> Tenant {
    let kernel = kernel * US;
    Tenant::Steps {
        habit: Habit { kernel, depth: 16 },
        step: kernel * kernels,
        pause: pause * MS,
        pace: pace * US,
    }
}

/// The name of a neighbour.
fn paused(tenant: Tenant) -> String {
    match tenant {
        Tenant::Steps {
            habit,
            step,
            pause,
            pace,
        } => format!(
            "steps of {} ms and pauses of {} ms, {}{}",
            step / MS,
            pause / MS,
            told(habit),
            if pace == LAUNCH {
                String::new()
            } else {
                format!(", each {} us", pace / US)
            }
        ),
        Tenant::Saturated(habit) | Tenant::Sleeper { habit, .. } => told(habit),
        Tenant::Service { request, load } => format!("{} ms at {load}", request / MS),
    }
}

fn by_weight(burst: Nanos) -> Rules {
    Rules {
        burst,
        ..rules(Policy::Weight, Period::Latency)
    }
}

fn run(rules: Rules, tenants: &[(Tenant, Terms)], length: Nanos) -> (Vec<Came>, f64) {
    let mut driven = Driven::new(Mechanisms::ALL, rules);
    let came = serve(&mut driven, tenants, length);
    (came, driven.calls_per_second())
}

/// The bound of a figure.
#[derive(Clone, Copy)]
pub(crate) enum Is {
    AtMost,
    AtLeast,
    /// It is told only.
    Told,
}

/// A line whose figures are to be at most, or at least, what is wanted.
pub(crate) fn line(case: String, figures: &[(Is, f64, f64)], calls: f64) -> Line {
    let beyond = figures.iter().map(|(is, wanted, got)| match is {
        Is::AtMost => got / wanted - 1.0,
        Is::AtLeast => wanted / got - 1.0,
        Is::Told => 0.0,
    });
    Line {
        backend: RMAPI.name,
        case,
        error: rounded(beyond.fold(0.0, f64::max)),
        wanted: figures
            .iter()
            .map(|(_, wanted, _)| rounded(*wanted))
            .collect(),
        got: figures.iter().map(|(_, _, got)| rounded(*got)).collect(),
        bound: Some(0.0),
        throughput: None,
        calls_per_second: Some(rounded(calls)),
        mode: None,
    }
}

/// How much longer requests take, median and 99 %.
fn longer(got: &Came, than: &Came) -> [f64; 2] {
    [0.5, 0.99].map(|part| got.quantile(part) / than.quantile(part))
}

/// One service beside another program, at equal weight.
fn one(request: Nanos, load: f64, beside: Tenant, burst: Nanos) -> Line {
    let rules = by_weight(burst);
    let service = Tenant::Service { request, load };
    let (solo, _) = run(rules, &[(service, weight(1))], LENGTH);
    let (beside_solo, name) = match beside {
        Tenant::Saturated(habit) => (alone(habit) / 1e9, told(habit)),
        _ => {
            let (solo, _) = run(rules, &[(beside, weight(1))], GAME);
            (solo[0].ran, paused(beside))
        }
    };
    let (came, calls) = run(rules, &[(service, weight(1)), (beside, weight(1))], LENGTH);
    let [median, worst] = longer(&came[0], &solo[0]);
    let left = came[1].ran / beside_solo / (1.0 - came[0].ran);
    // Requests in a row can ask for more than the share and the burst. Nothing that keeps to both
    // serves them sooner than the ideal does, which is told then. Its share is of what wake-ups
    // leave.
    let wakes = load * (1.0 - load) / (request as f64 / MS as f64);
    let all = arrivals(0, request, load, 0, BEFORE + LENGTH);
    let share = 0.5 * (1.0 - wakes * WAKE_COST);
    let ideal = longer(&ideal(&all, request, share, burst, BEFORE), &solo[0]);
    let figure = |least: f64, got: f64| {
        if least <= 1.02 {
            (Is::AtMost, LONGER, got)
        } else {
            (Is::Told, least, got)
        }
    };
    // One that wakes fifty times a second costs its neighbour 0.8 ms each time.
    let kept = LEFT.min(1.0 - 1.15 * wakes * WAKE_COST / (1.0 - load));
    line(
        format!(
            "service, {} ms at {load}, burst {} ms, beside {}: median, p99 of alone; what is left",
            request / MS,
            burst / MS,
            name
        ),
        &[
            figure(ideal[0], median),
            figure(ideal[1], worst),
            (Is::AtLeast, kept, left),
        ],
        calls,
    )
}

/// A service that was alone on the GPU, and a neighbour of equal weight that comes: how much longer
/// the requests of the ten seconds after that take, median and 99 %, than the same ones without it;
/// and calls a second. `chance`: which sequence of requests.
fn longer_than_alone(service: Tenant, beside: Tenant, chance: usize) -> ([f64; 2], f64) {
    let requests = |late: &[(Tenant, Terms)]| {
        let mut driven = Driven::new(Mechanisms::ALL, by_weight(BURST_DEFAULT));
        let tenants = [(service, weight(1))];
        let mut came = serve_until_others_come(&mut driven, &tenants, late, GAME, chance);
        (came.swap_remove(0), driven.calls_per_second())
    };
    let (solo, _) = requests(&[]);
    let (came, calls) = requests(&[(beside, weight(1))]);
    (longer(&came, &solo), calls)
}

/// One service that was alone on the GPU, and a neighbour of equal weight that comes: the requests
/// of the ten seconds after that, against the same ones without it.
fn late_neighbour(load: f64, beside: Tenant) -> Line {
    let request = 17 * MS;
    let ([median, worst], calls) = longer_than_alone(Tenant::Service { request, load }, beside, 0);
    line(
        format!(
            "service, 17 ms at {load}, was alone, {} comes: median, p99 of alone",
            paused(beside)
        ),
        &[(Is::AtMost, LONGER, median), (Is::AtMost, LONGER, worst)],
        calls,
    )
}

/// A service that was alone on the GPU, and training that comes, with several sequences of
/// requests: the ten seconds after that, against the same ones without it.
///
/// In some sequences the requests of a few seconds want more than the share and the burst, which
/// nothing serves sooner. So the bounds are for most of them.
fn late_training(way: (Nanos, Nanos, u64, Nanos)) -> Line {
    let service = Tenant::Service {
        request: 21 * MS,
        load: 0.4,
    };
    let [mut medians, mut worst] = [Vec::new(), Vec::new()];
    let mut most_calls = 0.0f64;
    for chance in 0..SEQUENCES {
        let (ratios, calls) = longer_than_alone(service, training(way), chance);
        medians.push(ratios[0]);
        worst.push(ratios[1]);
        most_calls = most_calls.max(calls);
    }
    let sorted = |mut ratios: Vec<f64>| {
        ratios.sort_by(f64::total_cmp);
        ratios
    };
    let (medians, worst) = (sorted(medians), sorted(worst));
    line(
        format!(
            "service, 21 ms at 0.4, was alone, {} comes, {SEQUENCES} sequences: median of nine in \
             ten, p99 of five in eight, of three in four, of alone",
            paused(training(way))
        ),
        &[
            (Is::AtMost, LONGER, medians[SEQUENCES * 9 / 10]),
            (Is::AtMost, LONGER, worst[SEQUENCES * 5 / 8]),
            (Is::Told, LONGER, worst[SEQUENCES * 3 / 4]),
        ],
        most_calls,
    )
}

/// Several services and several programs that always have work, all of equal weight: the services
/// against the same ones without the programs, these against themselves without the services.
fn several(services: usize, load: f64, saturated: usize, most: [f64; 2]) -> Line {
    let rules = by_weight(BURST_DEFAULT);
    let request = 17 * MS;
    let service = (Tenant::Service { request, load }, weight(1));
    let busy = (Tenant::Saturated(DEEP), weight(1));
    let (solo, _) = run(rules, &vec![service; services], LENGTH);
    let (others, _) = run(rules, &vec![busy; saturated], GAME);
    let mut tenants = vec![service; services];
    tenants.extend(vec![busy; saturated]);
    let (came, calls) = run(rules, &tenants, LENGTH);
    let ratios = |part| {
        let pairs = came.iter().zip(&solo);
        pairs
            .map(|(came, solo)| came.quantile(part) / solo.quantile(part))
            .fold(0.0, f64::max)
    };
    let sum = |came: &[Came]| came.iter().map(|c| c.ran).sum::<f64>();
    let left = sum(&came[services..]) / (1.0 - sum(&came[..services])) / sum(&others);
    line(
        format!(
            "{services} services, 17 ms at {load}, beside {saturated} of {}: median, 90 % of without; \
             what is left",
            told(DEEP)
        ),
        &[
            (Is::AtMost, most[0], ratios(0.5)),
            (Is::AtMost, most[1], ratios(0.9)),
            (Is::AtLeast, LEFT, left),
        ],
        calls,
    )
}

/// A service that asks for more than its share has its share.
fn greedy(load: f64, weights: [u32; 2]) -> Line {
    let service = Tenant::Service {
        request: 17 * MS,
        load,
    };
    let tenants = [
        (service, weight(weights[0])),
        (Tenant::Saturated(DEEP), weight(weights[1])),
    ];
    let (came, calls) = run(by_weight(BURST_DEFAULT), &tenants, GAME);
    let share = f64::from(weights[0]) / f64::from(weights[0] + weights[1]);
    let habit = Habit {
        kernel: TOKEN,
        depth: 1,
    };
    let got = [
        came[0].ran * 1e9 / alone(habit),
        came[1].ran * 1e9 / alone(DEEP),
    ];
    let got = got[0] / (got[0] + got[1]);
    let mut line = line(
        format!("service that asks for {load}, weights {weights:?}: its share"),
        &[(Is::Told, share, got)],
        calls,
    );
    line.error = rounded((got / share - 1.0).abs());
    line.bound = Some(0.02);
    line
}

/// A program that works and sleeps in turns, in several processes, beside one that always has work
/// of equal weight: it has no more than its share and what its burst is of the time; and the other
/// one waits no longer for the GPU than for a burst and a turn, twice.
fn game(habit: Habit, work: Nanos, sleep: Nanos, programs: usize, others: usize) -> Line {
    let sleeper = Tenant::Sleeper {
        habit,
        work,
        sleep,
        programs,
    };
    let mut tenants = vec![(sleeper, weight(1)); others];
    tenants.push((Tenant::Saturated(DEEP), weight(1)));
    let (came, calls) = run(by_weight(BURST_DEFAULT), &tenants, GAME);
    let got: f64 = came[..others].iter().map(|c| c.ran).sum();
    let without = came[others].longest_without;
    let share = others as f64 / (others + 1) as f64;
    let most = share + others as f64 * BURST_DEFAULT as f64 / GAME as f64;
    // Kernels that are still queued when a program is taken to have stopped run beside the other
    // one, as the driver shares. That is no effect of a burst, so it is printed and not judged.
    let is = if habit.depth > 1 {
        Is::Told
    } else {
        Is::AtMost
    };
    let turn = 32.0 + 4.0 * others as f64;
    let longest = 2.0 * (BURST_DEFAULT as f64 / MS as f64 + turn);
    line(
        format!(
            "{others} that work {} ms and sleep {} ms in {programs} processes, {}: part of the GPU, \
             and the longest that the other one is without, ms",
            work / MS,
            sleep / MS,
            told(habit)
        ),
        &[
            (is, most.min(1.0), got / (got + came[others].ran)),
            (Is::AtMost, longest, without as f64 / MS as f64),
        ],
        calls,
    )
}

/// A program that waits for each kernel, as one does that answers token by token, beside another
/// one of equal weight: how long its tokens take, and what part of the time each has the GPU.
fn decoding(period: Period, beside: Tenant, most_ms: Option<f64>) -> Line {
    let tokens = Tenant::Saturated(Habit {
        kernel: TOKEN,
        depth: 1,
    });
    let rules = rules(Policy::Weight, period);
    let (came, calls) = run(rules, &[(tokens, weight(1)), (beside, weight(1))], GAME);
    let is = most_ms.map_or(Is::Told, |_| Is::AtMost);
    line(
        format!(
            "decoding, {} period, beside {}: a token's median, 99 %, ms; parts of the GPU",
            period.name(),
            paused(beside),
        ),
        &[
            (Is::Told, TOKEN as f64 / MS as f64, came[0].quantile(0.5)),
            (is, most_ms.unwrap_or_default(), came[0].quantile(0.99)),
            (Is::Told, 0.5, came[0].ran),
            (Is::Told, 0.5, came[1].ran),
        ],
        calls,
    )
}

/// A program that wakes every so often: what the GPU does for all, against the same with a burst
/// of 0, in which no wake-up interrupts another's window.
fn waking(every: Nanos, kernel: Nanos) -> Line {
    let habit = Habit { kernel, depth: 1 };
    let sleeper = Tenant::Sleeper {
        habit,
        work: kernel,
        sleep: every,
        programs: 1,
    };
    let tenants = [(sleeper, weight(1)), (Tenant::Saturated(DEEP), weight(1))];
    let all = |burst| {
        let (came, calls) = run(by_weight(burst), &tenants, GAME);
        (came.iter().map(|c| c.ran).sum::<f64>(), calls)
    };
    let (without, _) = all(0);
    let (with, calls) = all(BURST_DEFAULT);
    line(
        format!(
            "wakes every {} us for {} us: what wake-ups cost the GPU",
            every / US,
            kernel / US
        ),
        &[(Is::AtMost, 0.075, (without - with).max(0.0))],
        calls,
    )
}

/// All cases about bursts.
pub fn all(mut each: impl FnMut(Line)) {
    let besides = KERNELS.map(|kernel| Habit { kernel, depth: 8 });
    for request in [5 * MS, 17 * MS, 60 * MS] {
        for load in [0.2, 0.4, 0.45] {
            for beside in besides.into_iter().chain([SHORT]) {
                each(one(request, load, Tenant::Saturated(beside), BURST_DEFAULT));
            }
        }
    }
    for load in [0.4, 0.45] {
        each(one(60 * MS, load, Tenant::Saturated(DEEP), 1000 * MS));
    }
    for load in [0.2, 0.4] {
        for (step, pause) in STEPS {
            each(one(17 * MS, load, steps(step, pause), BURST_DEFAULT));
        }
    }
    for load in [0.2, 0.4] {
        for way in TRAINING {
            each(one(17 * MS, load, training(way), BURST_DEFAULT));
        }
    }
    for load in [0.2, 0.4] {
        each(late_neighbour(load, Tenant::Saturated(DEEP)));
        for (step, pause) in STEPS {
            each(late_neighbour(load, steps(step, pause)));
        }
    }
    for way in TRAINING {
        each(late_training(way));
    }
    each(several(3, 0.2, 1, [1.6, 2.5]));
    each(several(8, 0.03, 8, [LONGER, 1.5]));
    for load in [0.6, 0.8, 2.0] {
        each(greedy(load, [1, 1]));
        each(greedy(load, [1, 3]));
    }
    let token = Habit {
        kernel: TOKEN,
        depth: 1,
    };
    for (work, sleep) in [
        (4, 4),
        (16, 4),
        (20, 20),
        (100, 100),
        (200, 200),
        (400, 400),
        (100, 400),
    ] {
        for (habit, programs) in [(token, 1), (DEEP, 1), (token, 2)] {
            each(game(habit, work * MS, sleep * MS, programs, 1));
        }
    }
    each(game(token, 800 * MS, 800 * MS, 1, 3));
    each(game(token, 400 * MS, 2400 * MS, 1, 15));
    for (period, most_ms) in [
        (Period::Interactive, Some(TOKEN_MS)),
        (Period::Latency, None),
        (Period::Throughput, None),
    ] {
        each(decoding(period, Tenant::Saturated(DEEP), most_ms));
        for (step, pause) in STEPS {
            each(decoding(period, steps(step, pause), most_ms));
        }
    }
    for every in [MS, 3 * MS, 10 * MS, 20 * MS, 50 * MS] {
        for kernel in [15 * US, 500 * US] {
            each(waking(every, kernel));
        }
    }
}
