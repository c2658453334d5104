// SPDX-License-Identifier: GPL-2.0
//! Programs that keep a GPU at work, each in an instance of its own.

use std::{
    io::{Read, Write},
    os::unix::net::UnixStream,
};

use cgpu_uapi::Cause;

use crate::{
    guest::{
        instance::Instance,
        process::spawn,
        suite::doorbell::{put, wait_for},
        tools::{at, sys, GIB, GPU},
        work::{now, Account, Work},
    },
    sys as os,
};

/// A microsecond, in nanoseconds.
pub(super) const US: u64 = 1_000;
/// A millisecond, in nanoseconds.
pub(super) const MS: u64 = 1_000_000;
/// The instances of two programs that share a GPU.
pub(super) const NAMES: [&str; 2] = ["weighta", "weightb"];

/// A program's habit: its kernels' length and number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Habit {
    /// Length of each kernel, nanoseconds.
    pub(super) kernel: u64,
    /// Kernels launched and not yet ended, at most.
    pub(super) depth: u32,
}

impl Habit {
    pub(super) fn name(self) -> String {
        let length = match self.kernel {
            long if long >= MS => format!("{} ms", long / MS),
            short => format!("{} us", short / US),
        };
        format!("{length} depth {}", self.depth)
    }
}

/// A program in an instance of its own.
pub(super) struct GpuProgram {
    pub(super) child: i32,
    /// Its client's handle.
    pub(super) client: u32,
    pub(super) habit: Habit,
    pub(super) instance: Instance,
}

impl GpuProgram {
    /// It launches without end.
    pub(super) fn start(name: &'static str, weight: u32, habit: Habit) -> Result<Self, String> {
        let launch = |work: &Work, _: &mut UnixStream| {
            while work.launch(habit.kernel, 1, habit.depth).is_ok() {}
        };
        Self::spawn(name, weight, habit, launch).map(|(program, _)| program)
    }

    /// Its process has a client of its own, by which the driver knows it, and does this without
    /// end; its end of the socket, and ours.
    pub(super) fn spawn(
        name: &'static str,
        weight: u32,
        habit: Habit,
        body: impl FnOnce(&Work, &mut UnixStream),
    ) -> Result<(Self, UnixStream), String> {
        let instance = Instance::new(name, GIB)?;
        put(&format!("{name}/weight"), &weight.to_string())?;
        let (mut ours, mut theirs) = at("pair", UnixStream::pair())?;
        let child = spawn(|| {
            let Ok(work) = Work::new(&instance) else {
                return 1;
            };
            if theirs.write_all(&work.client.handle.to_ne_bytes()).is_ok() {
                body(&work, &mut theirs);
            }
            1
        });
        drop(theirs);
        let mut client = [0; 4];
        at("client", ours.read_exact(&mut client))?;
        let program = Self {
            child: sys("fork", child)?,
            client: u32::from_ne_bytes(client),
            habit,
            instance,
        };
        Ok((program, ours))
    }

    /// How long its kernels have run, nanoseconds.
    pub(super) fn ran(&self) -> Result<u64, String> {
        Account::of(self.client).map(|account| account.ran)
    }

    /// It launches nothing more; its client stays.
    pub(super) fn halt(&self) -> Result<(), String> {
        sys("stop", os::kill(self.child, libc::SIGSTOP))
    }

    /// Ends it, and its instance; an error if it had ended by itself.
    pub(super) fn end(mut self) -> Result<(), String> {
        let child = std::mem::take(&mut self.child);
        sys("kill", os::kill(child, libc::SIGKILL))?;
        let status = sys("wait", os::wait(child))?;
        if status != libc::SIGKILL {
            return Err(format!(
                "{}: ended by itself, status {status:#x}",
                self.habit.name()
            ));
        }
        let Instance { control, name, .. } = &self.instance;
        // Its files may be closed a moment later.
        wait_for("closed", || match control.destroy(name, GPU) {
            Err(errno) if errno == Cause::Busy.errno() => Ok(false),
            destroyed => sys("destroy", destroyed).map(|()| true),
        })
    }
}

impl Drop for GpuProgram {
    /// After a case that failed the next one has the GPU to itself.
    fn drop(&mut self) {
        if self.child != 0 {
            let _ = os::kill(self.child, libc::SIGKILL);
            let _ = os::wait(self.child);
        }
    }
}

/// The parts of the GPU's time in which kernels of each program ran.
pub(super) fn measure(
    programs: &[GpuProgram],
    before: u64,
    measured: u64,
) -> Result<Vec<f64>, String> {
    let ran = || {
        programs
            .iter()
            .map(GpuProgram::ran)
            .collect::<Result<Vec<_>, _>>()
    };
    os::sleep_ms(before);
    let (began, first) = (now()?, ran()?);
    os::sleep_ms(measured);
    let (ended, last) = (now()?, ran()?);
    let took = (ended - began) as f64;
    Ok(first
        .iter()
        .zip(last)
        .map(|(a, b)| (b - a) as f64 / took)
        .collect())
}
