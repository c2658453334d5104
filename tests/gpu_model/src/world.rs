// SPDX-License-Identifier: GPL-2.0
//! Programs on the model: each keeps up to `depth` kernels launched, and launches the next when one
//! ends.

use crate::{gpu::Gpu, Nanos, US};
use cgpu_km::policy::sched::Position;

/// The time from a kernel's end to the launch of the next one by a program that waited for it. It
/// follows from the rate of such a program beside long kernels: 0.8 % of its rate alone, once in a
/// round of 2.42 ms.
const REACTION: Nanos = 4_400;
/// The time from one launch to the next, by a program that does nothing else.
pub const LAUNCH: Nanos = 2_200;
/// The time from the opening of the gate to the launch by a task that slept at its doorbell.
const WAKE: Nanos = 20 * US;

/// The habit of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Habit {
    /// Length of each kernel.
    pub kernel: Nanos,
    /// Kernels launched and not yet ended, at most.
    pub depth: u32,
}

/// A program.
#[derive(Debug)]
pub struct Program {
    /// Its habit.
    pub habit: Habit,
    /// Its channel group, with one channel.
    pub group: u32,
    /// The channel.
    pub channel: u32,
    /// Its doorbell.
    gate: Position,
    /// It sleeps at its doorbell.
    is_blocked: bool,
    /// It launches nothing more for the time being.
    stopped: bool,
    outstanding: u32,
    /// When it will launch next.
    launch_at: Option<Nanos>,
    /// The time from one launch to the next, while there is room in the queue.
    pub pace: Nanos,
    /// Kernels that ended.
    pub finished: u64,
    /// Kernels to launch until it stops by itself.
    pub left: Option<u64>,
    /// When it last launched, and when the first kernel launched since it was idle ended.
    pub launched_at: Nanos,
    /// When its last kernel ended.
    pub finished_at: Nanos,
    /// When each of its kernels ended, if that is to be noted.
    pub ends: Option<Vec<Nanos>>,
}

impl Program {
    /// When it launches its first kernel.
    pub fn begin_at(&mut self, at: Nanos) {
        self.launch_at = Some(at);
    }
}

/// The GPU and the programs on it.
#[derive(Debug, Default)]
pub struct World {
    /// The GPU.
    pub gpu: Gpu,
    /// The programs, by number.
    pub programs: Vec<Program>,
}

impl World {
    /// An idle GPU without programs.
    pub fn new() -> Self {
        Self::default()
    }

    /// Now.
    pub fn now(&self) -> Nanos {
        self.gpu.now()
    }

    /// Adds a program that begins now, with this time slice.
    pub fn add(&mut self, habit: Habit, slice: Nanos) -> usize {
        let group = self.gpu.add_group(slice);
        let channel = self.gpu.add_channel(group);
        self.programs.push(Program {
            habit,
            group,
            channel,
            gate: Position::Open,
            is_blocked: false,
            stopped: false,
            outstanding: 0,
            launch_at: Some(self.now()),
            pace: LAUNCH,
            finished: 0,
            left: None,
            launched_at: 0,
            finished_at: 0,
            ends: None,
        });
        self.programs.len() - 1
    }

    /// How long a program's kernels have run.
    pub fn ran(&self, program: usize) -> Nanos {
        self.gpu.ran(self.programs[program].group)
    }

    /// Sets a program's doorbell. A task that slept at it goes on, if it may.
    pub fn set_gate(&mut self, program: usize, gate: Position) {
        let now = self.now();
        let program = &mut self.programs[program];
        program.gate = gate;
        if gate != Position::Shut && program.is_blocked {
            program.is_blocked = false;
            program.launch_at = Some(now + WAKE);
        }
    }

    /// The position of a program's doorbell.
    pub fn gate(&self, program: usize) -> Position {
        self.programs[program].gate
    }

    /// Stops a program after what it has launched, or lets it go on.
    pub fn set_stopped(&mut self, program: usize, stopped: bool) {
        let now = self.now();
        let program = &mut self.programs[program];
        program.stopped = stopped;
        if stopped {
            program.launch_at = None;
            program.is_blocked = false;
        } else if program.launch_at.is_none() && program.outstanding < program.habit.depth {
            program.launch_at = Some(now);
        }
    }

    /// Whether a program has kernels that have not ended.
    pub fn is_busy(&self, program: usize) -> bool {
        self.programs[program].outstanding > 0
    }

    /// Lets time pass up to `to`. Stops where a program touches a doorbell that is not open, and
    /// returns that program.
    pub fn run(&mut self, to: Nanos) -> Option<usize> {
        while self.now() < to {
            let launches = self.programs.iter().enumerate();
            let next = launches
                .filter_map(|(i, p)| p.launch_at.map(|at| (at, i)))
                .min();
            let until = next.map_or(to, |(at, _)| at.min(to));
            if let Some(channel) = self.gpu.advance(until) {
                self.ended(channel);
                continue;
            }
            let due = next.filter(|(at, _)| *at <= self.now() && *at <= to);
            if let Some((_, program)) = due {
                if self.launch(program) {
                    return Some(program);
                }
            }
        }
        None
    }

    fn ended(&mut self, channel: u32) {
        let now = self.now();
        let found = self.programs.iter_mut().find(|p| p.channel == channel);
        let program = found.expect("a program's");
        program.outstanding -= 1;
        program.finished += 1;
        program.finished_at = now;
        if let Some(ends) = &mut program.ends {
            ends.push(now);
        }
        let room = program.outstanding < program.habit.depth;
        if room && program.launch_at.is_none() && !program.is_blocked && !program.stopped {
            let paced = program.launched_at + program.pace;
            program.launch_at = Some(paced.max(now + REACTION));
        }
    }

    /// Lets a program launch, or stop at its doorbell. Returns whether it touched one that is not
    /// open.
    fn launch(&mut self, index: usize) -> bool {
        let program = &mut self.programs[index];
        program.launch_at = None;
        if program.left == Some(0) {
            program.stopped = true;
            return false;
        }
        match program.gate {
            Position::Shut => {
                program.is_blocked = true;
                true
            }
            Position::Armed => {
                program.gate = Position::Open;
                self.submit(index);
                true
            }
            Position::Open => {
                self.submit(index);
                false
            }
        }
    }

    fn submit(&mut self, index: usize) {
        let now = self.now();
        let program = &mut self.programs[index];
        program.outstanding += 1;
        program.launched_at = now;
        program.left = program.left.map(|left| left - 1);
        if program.outstanding < program.habit.depth {
            program.launch_at = Some(now + program.pace);
        }
        let (channel, kernel) = (program.channel, program.habit.kernel);
        assert!(self.gpu.submit(channel, kernel), "the queue is deep enough");
    }
}

/// The GPU time that a program uses which is alone on the GPU, in nanoseconds per second.
pub fn alone(habit: Habit) -> f64 {
    let mut world = World::new();
    world.add(habit, 2048 * US);
    // Whole kernels, so that the figure does not depend on where the last one was.
    let end = 2_000_000_000;
    world.run(end / 4);
    let (began, before) = (world.now(), world.ran(0));
    world.run(end);
    let after = world.ran(0);
    (after - before) as f64 * 1e9 / (world.now() - began) as f64
}
