// SPDX-License-Identifier: GPL-2.0
//! How long each `ioctl` of a process took, and how much of that the driver had: what the way
//! through the policy costs, without what scatters in the driver.
//!
//! Kept in memory and written when the process ends. The clock is the processor's counter, since
//! the C library's takes longer to be read than some calls' way through the policy.

use core::arch::x86_64::_rdtsc;
use std::{
    cell::Cell,
    ffi::OsString,
    fmt::Write,
    sync::{
        atomic::{AtomicBool, Ordering},
        Mutex,
    },
    time::Instant,
};

use cgpu_km::nvidia::nvos::{self, nvos54, nvos64};

use crate::sys;

/// The environment variable with the beginning of the names of the files; the process's number
/// follows. A line is of one call: kind (`uvm`, or the escape's number), control or class,
/// nanoseconds in all, of them in the driver.
pub const VARIABLE: &str = "CGPU_GPU_TIMES";

/// Calls for which there is room from the start.
const ROOM: usize = 1 << 14;

/// Whether calls are measured.
static ON: AtomicBool = AtomicBool::new(false);

std::thread_local! {
    /// Ticks that the driver had of this thread's call.
    static IN_DRIVER: Cell<u64> = const { Cell::new(0) };
}

/// One call.
#[derive(Clone, Copy, Debug)]
struct Taken {
    /// The number of the escape; `None`: UVM's.
    nr: Option<u8>,
    /// Control, class or request.
    what: u32,
    /// Ticks of all of it, and of the driver's part.
    all: u64,
    driver: u64,
}

/// Times of this process's calls.
#[derive(Debug)]
pub struct Times {
    prefix: OsString,
    /// When it began, by the system's clock and by the counter.
    began: (Instant, u64),
    calls: Mutex<Vec<Taken>>,
}

/// The processor's counter, which goes at one speed on all processors.
fn ticks() -> u64 {
    // SAFETY: Every processor that this is built for has it.
    unsafe { _rdtsc() }
}

/// Makes a call of the driver's.
pub fn in_driver<R>(call: impl FnOnce() -> R) -> R {
    if !ON.load(Ordering::Relaxed) {
        return call();
    }
    let began = ticks();
    let result = call();
    IN_DRIVER.set(IN_DRIVER.get() + (ticks() - began));
    result
}

impl Times {
    /// Those of this process, if the environment asks for them.
    pub fn begin() -> Option<Self> {
        let prefix = std::env::var_os(VARIABLE)?;
        ON.store(true, Ordering::Relaxed);
        Some(Self {
            prefix,
            began: (Instant::now(), ticks()),
            calls: Mutex::new(Vec::with_capacity(ROOM)),
        })
    }

    /// Makes a call and notes it.
    pub fn of(&self, is_uvm: bool, request: u64, argument: u64, call: impl FnOnce() -> i64) -> i64 {
        // CAST: the kernel takes the low 32 bits of a request.
        let request = request as u32;
        let (nr, what) = match (is_uvm, nvos::request_parts(request)) {
            (true, _) => (None, request),
            (false, (nr, size)) => {
                let mut outer = [0; nvos64::SIZE];
                let known = outer
                    .get_mut(..size)
                    .map(|outer| sys::peek(argument, outer));
                let field = match (known, nr) {
                    (Some(Ok(())), 0x2a) => nvos54::CMD.get(&outer),
                    (Some(Ok(())), 0x2b) => nvos64::H_CLASS.get(&outer),
                    _ => None,
                };
                (Some(nr), field.unwrap_or(0))
            }
        };
        IN_DRIVER.set(0);
        let began = ticks();
        let answer = call();
        let all = ticks() - began;
        if let Ok(mut calls) = self.calls.lock() {
            calls.push(Taken {
                nr,
                what,
                all,
                driver: IN_DRIVER.get(),
            });
        }
        answer
    }

    /// In the child of a `fork`: what was noted is its parent's.
    pub fn forked(&self) {
        if let Ok(mut calls) = self.calls.lock() {
            calls.clear();
        }
    }

    /// Writes them down.
    pub fn write(&self) {
        let Ok(calls) = self.calls.lock() else { return };
        let mut text = String::new();
        let (began, first) = self.began;
        // CAST: a double has room for the ticks of weeks, and nanoseconds are whole.
        let length = began.elapsed().as_nanos() as f64 / (ticks() - first) as f64;
        let nanoseconds = |ticks: u64| (ticks as f64 * length).round() as u64;
        for call in calls.iter() {
            let nr = call.nr.map_or("uvm".to_owned(), |nr| format!("{nr:#x}"));
            // Writing to a string does not fail.
            let _ = writeln!(
                text,
                "{nr} {:#x} {} {}",
                call.what,
                nanoseconds(call.all),
                nanoseconds(call.driver)
            );
        }
        // A failure shows when the file is read.
        let mut name = self.prefix.clone();
        name.push(format!(".{}", sys::process()));
        let _ = std::fs::write(name, text);
    }
}
