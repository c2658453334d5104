// SPDX-License-Identifier: GPL-2.0
//! Other instances of the attacks' GPU, whose programs work all the time: clients, groups and
//! channels are made and freed, memory is mapped, written and read back. So attacks are made on a
//! GPU that is in use, and each neighbour says whether it was harmed.

use std::{convert::Infallible, sync::atomic::Ordering};

use super::{
    rest::{self, Crew, NAMED},
    scene::{furnish, Place, GPU},
    seen::State,
    stale::Program,
};
use crate::{
    control::Control,
    guest::{
        process::spawn,
        tools::{control, sys},
    },
    sys,
};

/// Bytes of memory that each may have.
const LIMIT: u64 = 256 << 20;
/// Between two rounds of a neighbour, milliseconds: the attacks need the processors too. A round is
/// 35 ms of an emulated one.
const PAUSE_MS: u64 = 500;
/// Between a round's beginning and its end, milliseconds.
const WORK_MS: u64 = 20;

/// Neighbours at work. They end with this.
pub(super) struct Neighbours {
    control: Control,
    crew: &'static Crew,
    processes: Vec<i32>,
}

impl Neighbours {
    /// So many, each in an instance of its own.
    pub(super) fn new(count: u32) -> Result<Self, String> {
        let crew = rest::crew(count)?;
        let mut all = Self {
            control: control()?,
            crew,
            processes: Vec::new(),
        };
        for number in 0..count {
            let name = format!("{NAMED}{number}");
            sys(&name, all.control.create(&name, GPU, LIMIT, 1))?;
            let pid = spawn(|| {
                let Err(harm) = work(crew, &name, number);
                println!("{name}: {harm}");
                crew.harmed.fetch_add(1, Ordering::AcqRel);
                1
            });
            all.processes.push(sys("fork", pid)?);
        }
        Ok(all)
    }

    /// Ends them: the number of their rounds, or how many had ended before.
    pub(super) fn end(mut self) -> Result<u32, String> {
        let count = self.processes.len();
        let killed = self.stop();
        match (count - killed, self.crew.rounds.load(Ordering::Acquire)) {
            (0, 0) => Err("they did nothing".to_owned()),
            (0, rounds) => Ok(rounds),
            (harmed, _) => Err(format!("{harmed} of {count} were harmed")),
        }
    }

    /// Ends them, and says how many were there to be killed.
    fn stop(&mut self) -> usize {
        let mut killed = 0;
        for (pid, number) in self.processes.drain(..).zip(0..) {
            let _ = sys::kill(pid, libc::SIGKILL);
            killed += usize::from(sys::wait(pid) == Ok(libc::SIGKILL));
            let _ = self.control.destroy(&format!("{NAMED}{number}"), GPU);
        }
        killed
    }
}

impl Drop for Neighbours {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Goes on until it is killed or harmed: how.
fn work(crew: &Crew, name: &str, number: u32) -> Result<Infallible, String> {
    loop {
        crew.pause(PAUSE_MS);
        round(name, number << 16)?;
        crew.rounds.fetch_add(1, Ordering::AcqRel);
    }
}

/// A program's life: it makes everything, waits, and looks whether all is as it was.
fn round(name: &str, value: u32) -> Result<(), String> {
    let program = Program::new(Place::Instance, name, value)?;
    furnish(program.client()).map_err(|e| format!("its objects: {e}"))?;
    let before = State::through(program.client());
    sys::sleep_ms(WORK_MS);
    let after = State::through(program.client());
    if before != after {
        return Err(before.difference(&after));
    }
    if let Some((piece, seen)) = program.changed(value) {
        return Err(format!("piece {piece} of its memory has {seen:#x}"));
    }
    program.close();
    Ok(())
}
