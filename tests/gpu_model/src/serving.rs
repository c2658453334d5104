// SPDX-License-Identifier: GPL-2.0
//! Services: requests come at random and do not wait for each other's answers. How long they take
//! beside others, against how long the same requests take where nobody else is.

use std::collections::VecDeque;

use cgpu_km::policy::sched::Terms;

use crate::{driven::Driven, world::Habit, Nanos, MS};

/// A kernel of a request: the service waits for each, as for a token.
pub const TOKEN: Nanos = MS;

/// A service, or a program that always has work.
#[derive(Clone, Copy, Debug)]
pub enum Tenant {
    /// Requests of so much GPU time, in kernels of [`TOKEN`], that want this part of the GPU.
    Service {
        /// GPU time of a request.
        request: Nanos,
        /// Part of the GPU that the requests want.
        load: f64,
    },
    /// A program that always has work.
    Saturated(Habit),
    /// A program whose processor has its part of each step, as in training: so much GPU time, and
    /// then a pause.
    Steps {
        /// How it works.
        habit: Habit,
        /// GPU time of a step.
        step: Nanos,
        /// The pause after it.
        pause: Nanos,
        /// From one launch to the next: its processor may be slower than the GPU.
        pace: Nanos,
    },
    /// A program that always has work for so long, and then sleeps.
    Sleeper {
        /// How it works.
        habit: Habit,
        /// How long it works.
        work: Nanos,
        /// How long it sleeps.
        sleep: Nanos,
        /// Programs of it, in one instance.
        programs: usize,
    },
}

/// A sequence that looks like chance and is the same in every run.
#[derive(Clone, Copy, Debug)]
pub struct Chance(u64);

impl Chance {
    /// One of several sequences.
    pub fn new(number: usize) -> Self {
        Self((number as u64 + 1) << 40)
    }

    /// The pause until the next event of a Poisson process.
    pub fn pause(&mut self, mean: f64) -> Nanos {
        // SplitMix64.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^= bits >> 31;
        let even = ((bits >> 11) as f64 + 0.5) / (1u64 << 53) as f64;
        (-even.ln() * mean) as Nanos
    }
}

/// When requests of a service come in the time until `end`.
pub fn arrivals(number: usize, request: Nanos, load: f64, from: Nanos, end: Nanos) -> Vec<Nanos> {
    let mut chance = Chance::new(number);
    let mut at = from;
    let next = || {
        at += chance.pause(request as f64 / load);
        Some(at)
    };
    std::iter::from_fn(next)
        .take_while(|at| *at < end)
        .collect()
}

/// The results of a tenant.
#[derive(Clone, Debug, Default)]
pub struct Came {
    /// How long each request, or each kernel without requests, took, by length.
    pub took: Vec<Nanos>,
    /// GPU time that its kernels ran, per second.
    pub ran: f64,
    /// The longest time that it had work and not the GPU.
    pub longest_without: Nanos,
}

impl Came {
    /// The time that this part of the requests took, or less.
    pub fn quantile(&self, part: f64) -> f64 {
        let at = (self.took.len() as f64 * part) as usize;
        let at = at.min(self.took.len().saturating_sub(1));
        self.took
            .get(at)
            .map_or(0.0, |took| *took as f64 / MS as f64)
    }
}

struct Running {
    programs: Vec<usize>,
    kernels: u64,
    arrivals: VecDeque<Nanos>,
    asked: Vec<Nanos>,
    /// When a sleeper stops or goes on.
    turns_at: Option<Nanos>,
    sleeps: bool,
    tenant: Tenant,
    had: Nanos,
    had_at: Nanos,
    longest_without: Nanos,
}

/// How long the tenants run before they are measured: what a program is like is learnt.
pub const BEFORE: Nanos = 10_000 * MS;
/// How often it is looked whether somebody is without the GPU.
const LOOK: Nanos = 5 * MS;
/// The same where it matters when a step ends.
const LOOK_AT_STEPS: Nanos = MS / 5;

/// Lets these tenants run for so long.
pub fn serve(driven: &mut Driven, tenants: &[(Tenant, Terms)], length: Nanos) -> Vec<Came> {
    serve_until_others_come(driven, tenants, &[], length, 0)
}

/// Lets tenants run for so long, the late ones from when the others have run for [`BEFORE`].
/// `chance`: which sequence of requests the first one has. Each other one has the next, and those
/// that come late the ones after.
pub fn serve_until_others_come(
    driven: &mut Driven,
    tenants: &[(Tenant, Terms)],
    late: &[(Tenant, Terms)],
    length: Nanos,
    chance: usize,
) -> Vec<Came> {
    let began = driven.world.now();
    let (from, end) = (began + BEFORE, began + BEFORE + length);
    let mut running: Vec<Running> = Vec::new();
    for (number, (tenant, terms)) in (chance..).zip(tenants) {
        running.push(Running::start(driven, number, *tenant, *terms, end));
    }
    let has_steps = |(tenant, _): &(Tenant, Terms)| matches!(tenant, Tenant::Steps { .. });
    let look = if tenants.iter().chain(late).any(has_steps) {
        LOOK_AT_STEPS
    } else {
        LOOK
    };
    let mut before = Vec::new();
    let mut look_at = began;
    while driven.world.now() < end {
        let now = driven.world.now();
        if before.is_empty() && now >= from {
            for (number, (tenant, terms)) in (chance + tenants.len()..).zip(late) {
                running.push(Running::start(driven, number, *tenant, *terms, end));
            }
            before = running.iter().map(|r| r.ran(driven)).collect();
            running.iter_mut().for_each(|r| r.longest_without = 0);
        }
        running.iter_mut().for_each(|r| r.progress(driven, now));
        if now >= look_at {
            look_at = now + look;
        }
        let moments = running
            .iter()
            .flat_map(|r| [r.arrivals.front().copied(), r.turns_at]);
        let next = moments.flatten().chain([look_at, end]).min().expect("some");
        driven.run(next.max(now + 1) - now);
    }
    let seconds = (driven.world.now() - from) as f64 / 1e9;
    let came = running.iter().zip(before).map(|(r, before)| Came {
        took: r.took(driven, from),
        ran: (r.ran(driven) - before) as f64 / 1e9 / seconds,
        longest_without: r.longest_without,
    });
    came.collect()
}

impl Running {
    fn start(driven: &mut Driven, number: usize, tenant: Tenant, terms: Terms, end: Nanos) -> Self {
        let now = driven.world.now();
        let mut running = Self {
            programs: Vec::new(),
            kernels: 0,
            arrivals: VecDeque::new(),
            asked: Vec::new(),
            turns_at: None,
            sleeps: false,
            tenant,
            had: 0,
            had_at: now,
            longest_without: 0,
        };
        let habit = match tenant {
            Tenant::Service { request, load } => {
                running.kernels = request / TOKEN;
                running.arrivals = arrivals(number, request, load, now, end).into();
                Habit {
                    kernel: TOKEN,
                    depth: 1,
                }
            }
            Tenant::Saturated(habit) => habit,
            Tenant::Steps { habit, step, .. } => {
                running.kernels = step / habit.kernel;
                running.arrivals.push_back(now);
                habit
            }
            Tenant::Sleeper { habit, work, .. } => {
                running.turns_at = Some(now + work);
                habit
            }
        };
        let first = driven.add(habit, terms);
        running.programs.push(first);
        if let Tenant::Sleeper { programs, .. } = tenant {
            let more = (1..programs).map(|_| driven.add_beside(habit, first));
            running.programs.extend(more);
        }
        if let Tenant::Steps { pace, .. } = tenant {
            driven.world.programs[first].pace = pace;
        }
        if running.kernels > 0 {
            driven.world.set_stopped(first, true);
            driven.world.programs[first].left = Some(0);
        }
        driven.world.programs[first].ends = Some(Vec::new());
        running
    }

    fn ran(&self, driven: &Driven) -> Nanos {
        self.programs.iter().map(|p| driven.world.ran(*p)).sum()
    }

    /// Requests come, and it is seen whether it has the GPU.
    fn progress(&mut self, driven: &mut Driven, now: Nanos) {
        while self.arrivals.front().is_some_and(|at| *at <= now) {
            self.asked.extend(self.arrivals.pop_front());
            let program = &mut driven.world.programs[self.programs[0]];
            program.left = program.left.map(|left| left + self.kernels);
            driven.world.set_stopped(self.programs[0], false);
        }
        if let (Some(at), Tenant::Sleeper { work, sleep, .. }) = (self.turns_at, self.tenant) {
            if at <= now {
                self.sleeps = !self.sleeps;
                for program in &self.programs {
                    driven.world.set_stopped(*program, self.sleeps);
                }
                self.turns_at = Some(now + if self.sleeps { sleep } else { work });
            }
        }
        if let Tenant::Steps { pause, .. } = self.tenant {
            let ends = driven.world.programs[self.programs[0]].ends.as_ref();
            let ended = ends.map_or(0, Vec::len) as u64;
            if self.arrivals.is_empty() && ended == self.kernels * self.asked.len() as u64 {
                self.arrivals.push_back(now + pause);
            }
        }
        let ran = self.ran(driven);
        let idle = self.kernels > 0 || self.sleeps;
        if ran > self.had || idle {
            (self.had, self.had_at) = (ran, now);
        }
        self.longest_without = self.longest_without.max(now - self.had_at);
    }

    /// How long the requests since then took; the last ones may not have been answered. Without
    /// requests: each kernel, since the one before.
    fn took(&self, driven: &Driven, from: Nanos) -> Vec<Nanos> {
        let Some(ends) = &driven.world.programs[self.programs[0]].ends else {
            return Vec::new();
        };
        if self.kernels == 0 {
            let pairs = ends.windows(2).filter(|pair| pair[0] >= from);
            let mut took: Vec<Nanos> = pairs.map(|pair| pair[1] - pair[0]).collect();
            took.sort_unstable();
            return took;
        }
        let ended = |number: usize| {
            let last = (number as u64 + 1) * self.kernels - 1;
            ends.get(last as usize).copied()
        };
        let asked = self.asked.iter().enumerate().filter(|(_, at)| **at >= from);
        let mut took: Vec<Nanos> = asked
            .map(|(number, at)| ended(number).map_or(driven.world.now() - at, |end| end - at))
            .collect();
        took.sort_unstable();
        took
    }
}

/// The result of a service on a GPU whose changes cost nothing, beside a neighbour that always has
/// work: as much as it asks for while it has lag, and its share without. In steps of 0.1 ms.
pub fn ideal(arrivals: &[Nanos], request: Nanos, share: f64, burst: Nanos, from: Nanos) -> Came {
    const STEP: f64 = 0.1;
    let (mut lag, mut done, mut at) = (0.0_f64, 0.0, 0.0);
    let (request, burst) = (request as f64 / MS as f64, burst as f64 / MS as f64);
    let mut came = Came::default();
    for (number, asked) in arrivals.iter().enumerate() {
        let arrival = *asked as f64 / MS as f64;
        let goal = request * (number + 1) as f64;
        if at < arrival {
            lag = (lag + share * (arrival - at)).min(burst);
            at = arrival;
        }
        while done < goal {
            let rate = if lag > 0.0 { 1.0 } else { share };
            done += rate * STEP;
            at += STEP;
            lag = (lag + (share - rate) * STEP).clamp(0.0, burst);
        }
        if *asked >= from {
            came.took.push(((at - arrival) * MS as f64) as Nanos);
        }
    }
    came.took.sort_unstable();
    came
}
