// SPDX-License-Identifier: GPL-2.0
//! One caller, and as many at the same time as there are processors: in one instance, in an
//! instance each.

use std::{
    sync::atomic::{AtomicU32, AtomicU64, Ordering},
    time::Instant,
};

use super::figures::{BenchReport, BenchRow, BenchSettings, Beside, ALONE, LIMIT};
use crate::{
    control::{folder, Control},
    guest::{
        process::{gather, spawn},
        rm::Client,
        tools::{sys, GPU},
    },
    sys as os,
};

/// Most callers.
const MOST: usize = 64;

/// The callers' meeting place; shared by processes, zeros at first.
struct Meeting {
    ready: AtomicU32,
    go: AtomicU32,
    nanoseconds: [AtomicU64; MOST],
}

/// Calls of one caller, who waits for the others first.
fn caller(
    meeting: &Meeting,
    place: usize,
    folder: &str,
    device_instance: u32,
    calls: u32,
) -> Option<()> {
    let client = Client::open(folder, GPU, device_instance).ok()?;
    let report = || client.fb_info(&[8]).ok();
    for _ in 0..4 {
        report()?;
    }
    meeting.ready.fetch_add(1, Ordering::AcqRel);
    while meeting.go.load(Ordering::Acquire) == 0 {
        std::thread::yield_now();
    }
    let began = Instant::now();
    for _ in 0..calls {
        report()?;
    }
    let each = began.elapsed().as_nanos() / u128::from(calls.max(1));
    let cell = meeting.nanoseconds.get(place)?;
    cell.store(u64::try_from(each).ok()?, Ordering::Release);
    Some(())
}

/// Nanoseconds for a call, of callers in these folders at the same time.
fn together(folders: &[String], device_instance: u32, calls: u32) -> Result<f64, String> {
    let meeting: &Meeting = os::shared()?;
    let mut pids = Vec::new();
    for (place, folder) in folders.iter().enumerate() {
        let pid =
            spawn(|| i32::from(caller(meeting, place, folder, device_instance, calls).is_none()));
        pids.push(sys("fork", pid)?);
    }
    let all = u32::try_from(folders.len()).unwrap_or(0);
    gather(&meeting.ready, all)?;
    meeting.go.store(1, Ordering::Release);
    for pid in pids {
        if sys("wait", os::wait(pid))? != 0 {
            return Err("a caller failed".to_owned());
        }
    }
    let cells = meeting.nanoseconds.iter().take(folders.len());
    let sum: u64 = cells.map(|cell| cell.load(Ordering::Acquire)).sum();
    // CAST: a figure of nanoseconds, far below what a double tells apart.
    Ok(sum as f64 / f64::from(all.max(1)))
}

/// Measures them.
pub(super) fn measure(
    control: &Control,
    device_instance: u32,
    settings: &BenchSettings,
    report: &mut BenchReport,
) -> Result<(), String> {
    let many = report.processors.min(u32::try_from(MOST).unwrap_or(1));
    let names: Vec<_> = (0..many).map(|n| format!("caller{n}")).collect();
    for name in &names {
        sys(name, control.create(name, GPU, LIMIT / 256, 1))?;
    }
    let one = vec![folder("caller0")];
    let same = vec![folder("caller0"); names.len()];
    let each: Vec<_> = names.iter().map(|name| folder(name)).collect();
    let calls = settings.calls * 4;
    let mut cases = vec![(1, 1, one)];
    if many > 1 {
        cases.extend([(many, 1, same), (many, many, each)]);
    }
    for (callers, in_instances, folders) in cases {
        let nodes = vec!["/dev".to_owned(); folders.len()];
        let (mut direct, mut proxied) = (Vec::new(), Vec::new());
        for _ in 0..settings.rounds {
            direct.push(together(&nodes, device_instance, calls)?);
            proxied.push(together(&folders, device_instance, calls)?);
        }
        let setting = Beside {
            callers,
            in_instances,
            instances: 1 + many,
            objects: 0,
            ..ALONE
        };
        let name = "FB_GET_INFO_V2 at the same time";
        report
            .rows
            .push(BenchRow::new(name, setting, direct, proxied));
    }
    for name in &names {
        sys(name, control.destroy(name, GPU))?;
    }
    Ok(())
}
