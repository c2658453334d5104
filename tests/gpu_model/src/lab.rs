// SPDX-License-Identifier: GPL-2.0
//! The experiments that were made by hand on a real GPU, on the model: two programs, and somebody
//! who sends commands to a process of each. The figures that came out there are in
//! `tests/tables.rs`.

use cgpu_km::policy::sched::Position;

use crate::{
    gpu::DriverCall,
    world::{alone, Habit, World},
    Nanos, MS, US,
};

/// A command's way to the process that carries it out and back, beside the driver's call.
const MESSAGE: Nanos = 100 * US;
/// How much later a sleep ends than it should.
const OVERSLEPT: Nanos = 60 * US;
/// Channel groups of a CUDA context; the first one computes.
const GROUPS: u32 = 4;
/// The time slice that the driver gives a group by default.
pub const DEFAULT_SLICE: Nanos = 2048 * US;

/// The calls that were made over and over, with their times: slices of A and B, turns of A and B,
/// or on and off.
#[derive(Clone, Copy, Debug)]
pub enum Drill {
    /// No calls, only the programs' time slices.
    Slices(Nanos, Nanos),
    /// In turns, the doorbell of the other program is taken away.
    DoorbellTurns(Nanos, Nanos),
    /// In turns, the compute channels of the other program are switched off.
    Windows(Nanos, Nanos),
    /// B's channels are switched off, then on.
    Exclusive(Nanos, Nanos),
    /// B's time slice is set to 0, then to the default.
    ExclusiveBySlice(Nanos, Nanos),
    /// A's doorbell is put there, then taken away.
    DoorbellCap(Nanos, Nanos),
    /// A's channels are switched on, then off.
    ChannelCap(Nanos, Nanos),
}

/// The rates of the programs, as fractions of what each does alone.
pub fn measure(drill: Drill, habits: &[Habit], length: Nanos) -> Vec<f64> {
    let mut lab = Lab {
        world: World::new(),
    };
    for habit in habits {
        lab.world.add(*habit, DEFAULT_SLICE);
    }
    if let Drill::Slices(a, b) = drill {
        for program in 0..habits.len() {
            let group = lab.world.programs[program].group;
            lab.world
                .gpu
                .set_timeslice(group, if program == 0 { a } else { b });
        }
    }
    lab.until(300 * MS);
    let began = lab.world.now();
    let before: Vec<Nanos> = (0..habits.len()).map(|i| lab.world.ran(i)).collect();
    while lab.world.now() < began + length {
        lab.round(drill);
    }
    let took = (lab.world.now() - began) as f64;
    let shares = habits.iter().enumerate().map(|(i, habit)| {
        let ran = (lab.world.ran(i) - before[i]) as f64;
        ran * 1e9 / took / alone(*habit)
    });
    shares.collect()
}

struct Lab {
    world: World,
}

impl Lab {
    fn until(&mut self, to: Nanos) {
        while self.world.run(to).is_some() {}
    }

    fn sleep(&mut self, length: Nanos) {
        let to = self.world.now() + length + OVERSLEPT;
        self.until(to);
    }

    fn round(&mut self, drill: Drill) {
        match drill {
            Drill::Slices(..) => self.sleep(100 * MS),
            Drill::DoorbellTurns(a, b) => {
                self.gate(1, Position::Shut);
                self.gate(0, Position::Open);
                self.sleep(a);
                self.gate(0, Position::Shut);
                self.gate(1, Position::Open);
                self.sleep(b);
            }
            Drill::Windows(a, b) => {
                self.switch_off(1);
                self.switch_on(0);
                self.sleep(a);
                self.switch_off(0);
                self.switch_on(1);
                self.sleep(b);
            }
            Drill::Exclusive(on, off) => {
                self.switch_off(1);
                self.sleep(on);
                self.switch_on(1);
                self.sleep(off);
            }
            Drill::ExclusiveBySlice(on, off) => {
                self.slice(1, 0);
                self.sleep(on);
                self.slice(1, DEFAULT_SLICE);
                self.sleep(off);
            }
            Drill::DoorbellCap(on, off) => {
                self.gate(0, Position::Open);
                self.sleep(on);
                self.gate(0, Position::Shut);
                self.sleep(off);
            }
            Drill::ChannelCap(on, off) => {
                self.switch_on(0);
                self.sleep(on);
                self.switch_off(0);
                self.sleep(off);
            }
        }
    }

    /// Makes a call, which takes its time and has its effect within that.
    fn call(&mut self, what: DriverCall, effect: impl FnOnce(&mut World)) {
        let call = self.world.gpu.call(what);
        let began = self.world.now();
        self.until(began + call.effect);
        effect(&mut self.world);
        self.until(began + call.length);
    }

    fn message(&mut self) {
        let to = self.world.now() + MESSAGE;
        self.until(to);
    }

    fn gate(&mut self, program: usize, gate: Position) {
        self.world.set_gate(program, gate);
        self.message();
    }

    fn switch_off(&mut self, program: usize) {
        self.switch(program, true);
    }

    fn switch_on(&mut self, program: usize) {
        self.switch(program, false);
    }

    fn switch(&mut self, program: usize, off: bool) {
        let channel = self.world.programs[program].channel;
        let what = if off {
            DriverCall::Disable
        } else {
            DriverCall::Enable
        };
        self.call(what, |world| world.gpu.switch(channel, off));
        self.message();
    }

    /// Sets the slices of all groups of a context, one call each. Only the first group computes, so
    /// the other calls just take their time.
    fn slice(&mut self, program: usize, slice: Nanos) {
        let group = self.world.programs[program].group;
        self.call(DriverCall::Timeslice, |world| {
            world.gpu.set_timeslice(group, slice)
        });
        for _ in 1..GROUPS {
            self.call(DriverCall::Timeslice, |_| {});
        }
        self.message();
    }
}
