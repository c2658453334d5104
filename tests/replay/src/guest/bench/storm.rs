// SPDX-License-Identifier: GPL-2.0
//! A program's calls beside others that make calls without a pause, in another instance of the same
//! GPU or of another one; and beside as many that compute only, which take as much of the
//! processors. What a storm costs others beyond that is the difference.

use std::{
    sync::atomic::{AtomicU32, Ordering},
    time::Instant,
};

use super::figures::{BenchReport, BenchRow, BenchSettings, Beside, ALONE, LIMIT};
use crate::{
    control::{folder, Control},
    guest::{
        process::{gather, spawn},
        rm::{Client, Failure},
        tools::sys,
    },
    sys as os,
};

/// The others' work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Noise {
    /// Compute.
    None,
    /// Ask for the memory of the GPU.
    Calls,
    /// Make clients and free them.
    Clients,
}

/// A caller's place.
#[derive(Clone, Copy, Debug)]
struct CallerPlace<'a> {
    /// The folder of the nodes.
    folder: &'a str,
    /// The GPU's minor number.
    gpu: u32,
    /// Its number for RM.
    device_instance: u32,
}

impl CallerPlace<'_> {
    fn open(&self) -> Result<Client, Failure> {
        Client::open(self.folder, self.gpu, self.device_instance)
    }
}

impl Noise {
    /// Storms, and whether they are on another GPU.
    const ALL: [(Self, bool); 5] = [
        (Self::None, false),
        (Self::Calls, false),
        (Self::Clients, false),
        (Self::Calls, true),
        (Self::Clients, true),
    ];

    const fn name(self, elsewhere: bool) -> &'static str {
        match (self, elsewhere) {
            (Self::None, _) => "computing",
            (Self::Calls, false) => "calling",
            (Self::Calls, true) => "calling another GPU",
            (Self::Clients, false) => "making clients",
            (Self::Clients, true) => "making clients of another GPU",
        }
    }

    /// Goes on until it is killed, or a call fails.
    fn rage(self, ready: &AtomicU32, place: CallerPlace<'_>) -> Result<(), Failure> {
        let client = place.open()?;
        ready.fetch_add(1, Ordering::AcqRel);
        loop {
            match self {
                Self::None => std::hint::spin_loop(),
                Self::Calls => drop(client.fb_info(&[8])?),
                Self::Clients => place.open()?.close(),
            }
        }
    }
}

/// Processes that make a noise. They end with this.
struct Others(Vec<i32>);

impl Others {
    fn new(noise: Noise, count: u32, place: CallerPlace<'_>) -> Result<Self, String> {
        let ready: &AtomicU32 = os::shared()?;
        let mut others = Self(Vec::new());
        for _ in 0..count {
            let pid = spawn(|| i32::from(noise.rage(ready, place).is_err()));
            others.0.push(sys("fork", pid)?);
        }
        gather(ready, count)?;
        Ok(others)
    }

    /// Ends them; an error if one had ended by itself.
    fn end(mut self) -> Result<(), String> {
        for pid in self.0.drain(..) {
            sys("kill", os::kill(pid, libc::SIGKILL))?;
            let status = sys("wait", os::wait(pid))?;
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
            let _ = os::kill(pid, libc::SIGKILL);
            let _ = os::wait(pid);
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

/// A report, and a client made and freed, of a program in one place beside a storm in another one.
fn beside(
    noise: Noise,
    count: u32,
    (ours, theirs): (CallerPlace<'_>, CallerPlace<'_>),
    calls: u32,
) -> Result<[f64; 2], String> {
    let open = || ours.open();
    let client = open().map_err(|e| format!("a program on {}: {e}", ours.folder))?;
    let others = Others::new(noise, count, theirs)?;
    let report = each(calls, || client.fb_info(&[8]).map(drop))?;
    let made = each(calls / 4, || open().map(Client::close))?;
    others.end()?;
    client.close();
    Ok([report, made])
}

/// Measures them. `gpus`: minor number and number for RM of this GPU, and of another one if there
/// is one.
pub(super) fn measure(
    control: &Control,
    gpus: ((u32, u32), Option<(u32, u32)>),
    settings: &BenchSettings,
    report: &mut BenchReport,
) -> Result<(), String> {
    let place = |folder, (gpu, device_instance)| CallerPlace {
        folder,
        gpu,
        device_instance,
    };
    let (here, there) = gpus;
    let mut names = vec![("calm", here), ("storm", here)];
    names.extend(there.map(|there| ("distant", there)));
    for (name, (gpu, _)) in &names {
        sys(name, control.create(name, *gpu, LIMIT / 16, 1))?;
    }
    let [calm, stormy, distant] = ["calm", "storm", "distant"].map(folder);
    for (noise, elsewhere) in Noise::ALL {
        let (theirs, nodes) = match (elsewhere, there) {
            (false, _) => (place(&stormy, here), place("/dev", here)),
            (true, Some(there)) => (place(&distant, there), place("/dev", there)),
            (true, None) => continue,
        };
        let mut figures = [const { (Vec::new(), Vec::new()) }; 2];
        for _ in 0..settings.rounds {
            let told = |places| beside(noise, report.processors, places, settings.calls);
            let direct = told((place("/dev", here), nodes))?;
            let proxied = told((place(&calm, here), theirs))?;
            for (place, (first, second)) in figures.iter_mut().zip(direct.into_iter().zip(proxied))
            {
                place.0.push(first);
                place.1.push(second);
            }
        }
        let setting = Beside {
            instances: 2,
            objects: 0,
            beside: noise.name(elsewhere),
            ..ALONE
        };
        let calls = [
            "FB_GET_INFO_V2 beside others",
            "a client made beside others",
        ];
        for (call, (direct, proxied)) in calls.into_iter().zip(figures) {
            report
                .rows
                .push(BenchRow::new(call, setting, direct, proxied));
        }
    }
    for (name, (gpu, _)) in &names {
        sys(name, control.destroy(name, *gpu))?;
    }
    Ok(())
}
