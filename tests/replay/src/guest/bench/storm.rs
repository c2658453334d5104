// SPDX-License-Identifier: GPL-2.0
//! A program's calls beside others that make calls without a pause, in another instance of the same GPU; and beside as many
//! that compute only, which take as much of the processors. What a storm costs others beyond that is the difference.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

use super::crowd::gather;
use super::side::folder;
use super::{errno, Report, Row, Setting, Settings, ALONE, GPU, LIMIT};
use crate::control::Control;
use crate::guest::process::spawn;
use crate::guest::rm::{Client, Failure};
use crate::sys;

/// What the others do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Storm {
    /// Compute.
    None,
    /// Ask for the memory of the GPU.
    Calls,
    /// Make clients and free them.
    Clients,
}

impl Storm {
    const ALL: [Self; 3] = [Self::None, Self::Calls, Self::Clients];

    const fn name(self) -> &'static str {
        match self {
            Self::None => "computing",
            Self::Calls => "calling",
            Self::Clients => "making clients",
        }
    }

    /// Goes on until it is killed, or a call fails.
    fn rage(self, ready: &AtomicU32, folder: &str, device_instance: u32) -> Result<(), Failure> {
        let client = Client::open(folder, GPU, device_instance)?;
        ready.fetch_add(1, Ordering::AcqRel);
        loop {
            match self {
                Self::None => std::hint::spin_loop(),
                Self::Calls => drop(client.fb_info(&[8])?),
                Self::Clients => Client::open(folder, GPU, device_instance)?.close(),
            }
        }
    }
}

/// Processes that make a storm. They end with this.
struct Others(Vec<i32>);

impl Others {
    fn new(storm: Storm, count: u32, folder: &str, device_instance: u32) -> Result<Self, String> {
        let ready: &AtomicU32 = sys::shared()?;
        let mut others = Self(Vec::new());
        for _ in 0..count {
            let pid = spawn(|| i32::from(storm.rage(ready, folder, device_instance).is_err()));
            others.0.push(errno("fork", pid)?);
        }
        gather(ready, count)?;
        Ok(others)
    }

    /// Ends them; an error if one had ended by itself.
    fn end(mut self) -> Result<(), String> {
        for pid in self.0.drain(..) {
            errno("kill", sys::kill(pid, libc::SIGKILL))?;
            let status = errno("wait", sys::wait(pid))?;
            if status != libc::SIGKILL {
                return Err(format!("a storm ended by itself, status {status:#x}"));
            }
        }
        Ok(())
    }
}

impl Drop for Others {
    fn drop(&mut self) {
        for pid in self.0.drain(..) {
            let _ = sys::kill(pid, libc::SIGKILL);
            let _ = sys::wait(pid);
        }
    }
}

/// Nanoseconds for each of `count` runs of `body`.
fn each(count: u32, mut body: impl FnMut() -> Result<(), Failure>) -> Result<f64, String> {
    let began = Instant::now();
    for _ in 0..count {
        body().map_err(|e| format!("beside a storm: {e}"))?;
    }
    Ok(began.elapsed().as_secs_f64() * 1e9 / f64::from(count.max(1)))
}

/// A report, and a client made and freed, of a program in one folder beside a storm in another one.
fn beside(
    storm: Storm,
    count: u32,
    (ours, theirs): (&str, &str),
    device_instance: u32,
    calls: u32,
) -> Result<[f64; 2], String> {
    let open = || Client::open(ours, GPU, device_instance);
    let client = open().map_err(|e| format!("a program on {ours}: {e}"))?;
    let others = Others::new(storm, count, theirs, device_instance)?;
    let report = each(calls, || client.fb_info(&[8]).map(drop))?;
    let made = each(calls / 4, || open().map(Client::close))?;
    others.end()?;
    client.close();
    Ok([report, made])
}

/// Measures them.
pub(super) fn measure(
    control: &Control,
    device_instance: u32,
    settings: &Settings,
    report: &mut Report,
) -> Result<(), String> {
    let names = ["calm", "storm"];
    for name in names {
        errno(name, control.create(name, GPU, LIMIT / 16, 1))?;
    }
    let [calm, stormy] = names.map(folder);
    for storm in Storm::ALL {
        let mut figures = [const { (Vec::new(), Vec::new()) }; 2];
        for _ in 0..settings.rounds {
            let told = |folders| {
                beside(
                    storm,
                    report.processors,
                    folders,
                    device_instance,
                    settings.calls,
                )
            };
            let direct = told(("/dev", "/dev"))?;
            let proxied = told((&calm, &stormy))?;
            for (place, (first, second)) in figures.iter_mut().zip(direct.into_iter().zip(proxied))
            {
                place.0.push(first);
                place.1.push(second);
            }
        }
        let setting = Setting {
            instances: 2,
            objects: 0,
            beside: storm.name(),
            ..ALONE
        };
        let calls = [
            "FB_GET_INFO_V2 beside others",
            "a client made beside others",
        ];
        for (call, (direct, proxied)) in calls.into_iter().zip(figures) {
            report.rows.push(Row::new(call, setting, direct, proxied));
        }
    }
    for name in names {
        errno(name, control.destroy(name, GPU))?;
    }
    Ok(())
}
