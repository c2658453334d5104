// SPDX-License-Identifier: GPL-2.0
//! The calls that are measured.

use std::time::{Duration, Instant};

use super::{
    marks::marked,
    side::{BenchSide, PIECE, SMALL},
};
use crate::{
    guest::{
        rm::{self, Failure},
        tools::{open_node, GPU},
    },
    standin, sys,
};

/// Makes so many calls of a kind, and tells what one took: a name and nanoseconds for each thing
/// that was timed.
pub(super) type MeasuredCall = fn(&BenchSide, u32) -> Result<Vec<(&'static str, f64)>, String>;

/// All.
pub(super) const ALL: &[MeasuredCall] = &[
    unknown_control,
    answered_control,
    control,
    memory_report,
    memory,
    nodes,
    doorbell,
    uvm_map,
];

/// A number of `NV2080_CTRL_CMD_MC_*` that no branch gives a control.
const UNKNOWN_CONTROL: u32 = 0x2080_17ff;
/// `NV2080_CTRL_CMD_PERF_BOOST`.
const PERF_BOOST: u32 = 0x2080_200a;
/// `NV2080_CTRL_CMD_MC_GET_ARCH_INFO`.
const MC_GET_ARCH_INFO: u32 = 0x2080_1701;
/// Handles of what a call makes and frees.
const MADE: u32 = 0x7000_0000;
/// The address of UVM's first mapping.
const BASE: u64 = 0x20_0000_0000;
/// Most calls of a round that each map a file.
const MOST_FILES: u32 = 16;
/// Most calls of a round of the longest kind: in so many the module uses up the pages that it has
/// for them (`CELLS`, os_interface/scratch.rs), and no tick comes.
const MOST_MAPS: u32 = 6;
const DOORBELL: u64 = 0x1_0000;

/// Nanoseconds for each of `count` runs of `body`, the last of which is marked. As many are made
/// before them and do not count: the module does some of its work for several calls at once, and
/// what calls of other kinds have left of that is not theirs.
pub(super) fn timed(
    count: u32,
    mut body: impl FnMut(u32) -> Result<(), String>,
) -> Result<f64, String> {
    let count = count.max(1);
    for number in 0..count {
        body(number)?;
    }
    await_tick();
    let began = Instant::now();
    let last = runs(count) - 1;
    for number in count..last {
        body(number)?;
    }
    marked(|| body(last))?;
    Ok(began.elapsed().as_secs_f64() * 1e9 / f64::from(count))
}

/// How many runs [`timed`] makes.
fn runs(count: u32) -> u32 {
    2 * count.max(1)
}

/// Waits for a timer's tick, for which a clock that counts instructions jumps: the next calls have
/// none. Another clock does not, and nobody waits long.
fn await_tick() {
    const JUMP: Duration = Duration::from_micros(200);
    const LONGEST: Duration = Duration::from_millis(10);
    let began = Instant::now();
    let mut before = began;
    while before - began < LONGEST {
        let now = Instant::now();
        if now - before > JUMP {
            break;
        }
        before = now;
    }
}

fn failed<'a>(what: &'a str, side: &'a BenchSide) -> impl Fn(Failure) -> String + 'a {
    move |e| format!("{what} on {}: {e}", side.folder)
}

/// A control to the subdevice.
fn controls(
    side: &BenchSide,
    count: u32,
    name: &'static str,
    cmd: u32,
    size: usize,
    expected: fn(&Result<(), Failure>) -> bool,
) -> Result<Vec<(&'static str, f64)>, String> {
    let mut params = vec![0; size];
    let client = &side.client;
    let each = timed(count, |_| {
        let done = client.control(rm::SUBDEVICE_HANDLE, cmd, &mut params);
        if expected(&done) {
            Ok(())
        } else {
            Err(format!("{name} on {}: {done:?}", side.folder))
        }
    })?;
    Ok(vec![(name, each)])
}

/// One that is not on the allowlist: the whole way to a decision, and no further.
fn unknown_control(side: &BenchSide, count: u32) -> Result<Vec<(&'static str, f64)>, String> {
    let refused = |done: &Result<(), Failure>| matches!(done, Err(Failure::Status(_)));
    controls(
        side,
        count,
        "RM_CONTROL that is refused",
        UNKNOWN_CONTROL,
        4,
        refused,
    )
}

/// PERF_BOOST, which the module answers. (The stand-in driver, which has no answer, refuses it.)
fn answered_control(side: &BenchSide, count: u32) -> Result<Vec<(&'static str, f64)>, String> {
    let reached = |done: &Result<(), Failure>| !matches!(done, Err(Failure::Errno(_)));
    controls(
        side,
        count,
        "RM_CONTROL that is answered",
        PERF_BOOST,
        8,
        reached,
    )
}

/// MC_GET_ARCH_INFO: 16 bytes that the driver has at hand.
fn control(side: &BenchSide, count: u32) -> Result<Vec<(&'static str, f64)>, String> {
    controls(
        side,
        count,
        "RM_CONTROL, the cheapest",
        MC_GET_ARCH_INFO,
        16,
        Result::is_ok,
    )
}

fn memory_report(side: &BenchSide, count: u32) -> Result<Vec<(&'static str, f64)>, String> {
    let each = timed(count, |_| {
        let told = side.client.fb_info(&[rm::TOTAL_RAM_SIZE, rm::HEAP_FREE]);
        told.map(drop).map_err(failed("FB_GET_INFO_V2", side))
    })?;
    Ok(vec![("FB_GET_INFO_V2", each)])
}

fn memory(side: &BenchSide, count: u32) -> Result<Vec<(&'static str, f64)>, String> {
    let made = timed(count, |number| {
        let made = side.client.memory(MADE + number, SMALL);
        made.map(drop).map_err(failed("RM_ALLOC", side))
    })?;
    let freed = timed(count, |number| {
        let freed = side.client.free(MADE + number);
        freed.map_err(failed("RM_FREE", side))
    })?;
    Ok(vec![
        ("RM_ALLOC of memory", made),
        ("RM_FREE of memory", freed),
    ])
}

fn close(fd: i32) -> Result<(), String> {
    sys::close(fd).map_err(|e| format!("close: errno {e}"))
}

fn nodes(side: &BenchSide, count: u32) -> Result<Vec<(&'static str, f64)>, String> {
    let opened = |node: &str| timed(count, |_| close(open_node(&side.folder, node)?));
    Ok(vec![
        ("open and close of nvidiactl", opened("nvidiactl")?),
        (
            "open and close of nvidia0",
            opened(&format!("nvidia{GPU}"))?,
        ),
        ("open and close of nvidia-uvm", opened("nvidia-uvm")?),
    ])
}

/// The entry of a list for the run of this number; the list was made for all runs.
fn nth<T: Copy>(list: &[T], number: u32, what: &str) -> Result<T, String> {
    let found = list.get(number as usize).copied();
    found.ok_or_else(|| format!("there is no {what} for run {number}, only {}", list.len()))
}

/// A doorbell, mapped as CUDA does it. Nothing is submitted: the stand-in's page takes any number.
fn doorbell(side: &BenchSide, count: u32) -> Result<Vec<(&'static str, f64)>, String> {
    let count = count.min(MOST_FILES);
    let client = &side.client;
    let made = client.alloc(rm::SUBDEVICE_HANDLE, MADE, rm::USERMODE, &mut []);
    made.map_err(failed("a doorbell", side))?;
    let mut files = Vec::new();
    for _ in 0..runs(count) {
        files.push(open_node(&side.folder, &format!("nvidia{GPU}"))?);
    }
    let file = |number: u32| nth(&files, number, "open file");
    let names = (client.handle, rm::SUBDEVICE_HANDLE, MADE);
    let prepared = timed(count, |number| {
        let mapped = rm::map(
            client.ctl,
            names,
            DOORBELL,
            rm::MAP_OF_DOORBELL,
            file(number)?,
        );
        mapped.map(drop).map_err(failed("RM_MAP_MEMORY", side))
    })?;
    let mut places = Vec::new();
    let prot = libc::PROT_READ | libc::PROT_WRITE;
    let mapped = timed(count, |number| {
        let place = sys::mmap(0, DOORBELL, prot, libc::MAP_SHARED, file(number)?, 0);
        places.push(place.map_err(|e| format!("mmap on {}: errno {e}", side.folder))?);
        Ok(())
    })?;
    let ring = |number: u32| {
        let place = nth(&places, number, "mapping")?;
        // SAFETY: the page of the doorbell's mapping that was just made.
        unsafe { ((place + rm::BELL) as *mut u32).write_volatile(0) };
        Ok(())
    };
    let first = timed(count, ring)?;
    let later = timed(count, ring)?;
    // The driver takes its pages out of all mappings, as before the GPU sleeps: each has a fault
    // then, through the instance one that its gate lets pass.
    let path = format!("{}/revoke", standin::DEBUGFS);
    std::fs::write(&path, GPU.to_string()).map_err(|e| format!("{path}: {e}"))?;
    let faulted = timed(count, ring)?;
    let unmapped = timed(count, |number| {
        let place = nth(&places, number, "mapping")?;
        // SAFETY: nothing of the program lies in a range that the driver gave.
        let gone = unsafe { sys::munmap(place, DOORBELL) };
        gone.map_err(|e| format!("munmap: errno {e}"))
    })?;
    for fd in files {
        close(fd)?;
    }
    client.free(MADE).map_err(failed("RM_FREE", side))?;
    Ok(vec![
        ("RM_MAP_MEMORY", prepared),
        ("mmap of the doorbell", mapped),
        ("first store to the doorbell", first),
        ("store to the doorbell", later),
        ("store that faults", faulted),
        ("munmap of the doorbell", unmapped),
    ])
}

fn uvm_map(side: &BenchSide, count: u32) -> Result<Vec<(&'static str, f64)>, String> {
    let made = side.client.memory(MADE, PIECE);
    made.map_err(failed("RM_ALLOC", side))?;
    let at = |number: u32| (BASE + u64::from(number) * PIECE, PIECE);
    let ranges = timed(count, |number| {
        let (base, length) = at(number);
        let made = side.space.create_range(base, length);
        made.map_err(failed("UVM_CREATE_EXTERNAL_RANGE", side))
    })?;
    let map = |number| {
        let memory = (side.client.handle, MADE);
        let mapped = side.space.map(at(number), &side.gpu, memory);
        mapped.map_err(failed("UVM_MAP_EXTERNAL_ALLOCATION", side))
    };
    let few = count.min(MOST_MAPS);
    let mapped = timed(few, map)?;
    (runs(few)..runs(count)).try_for_each(map)?;
    let freed = timed(count, |number| {
        let (base, length) = at(number);
        let freed = side.space.free_range(base, length);
        freed.map_err(failed("UVM_FREE", side))
    })?;
    side.client.free(MADE).map_err(failed("RM_FREE", side))?;
    Ok(vec![
        ("UVM_CREATE_EXTERNAL_RANGE", ranges),
        ("UVM_MAP_EXTERNAL_ALLOCATION", mapped),
        ("UVM_FREE", freed),
    ])
}
