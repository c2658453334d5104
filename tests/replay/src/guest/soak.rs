// SPDX-License-Identifier: GPL-2.0
//! `soak`: everything that the other long tests do, over and over: memory in every way, random
//! calls, opens and kills, submissions at the doorbell.
//!
//! After each cycle nothing of it is left, so the kernel's memory must be what it was: the counts
//! of each slab cache are compared between the first third of the run and the last. Pages that are
//! taken whole (the scratch, page tables) are in no cache, so what programs could still have is
//! compared as well. Each part compares its own counters.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use serde::Serialize;

use crate::{
    guest::{bench::memory::kib, chaos, hammer, storm, suite},
    sys,
};

/// Seconds of each storm in a cycle.
const STORM_S: u64 = 30;
/// Opens of each proxy in a cycle.
const OPENS: u64 = 500;
/// Cases of the suite about compute time, by parts of their names.
const COMPUTE: [&str; 3] = ["doorbell:", "turns:", "compute:"];
/// Fewest cycles of which a third is worth comparing.
const FEWEST: usize = 6;
/// Bytes by which a cache may grow all the same: pages that each processor keeps, and what KASAN
/// has in quarantine.
const TOLERATED_BYTES: u64 = 256 << 10;
/// Memory that may be missing in the end: tests and the kernel's log keep some.
const TOLERATED_KIB: u64 = 4 << 10;

/// Bytes of a cache's objects that are in use, by cache.
type Slabs = BTreeMap<String, u64>;

/// The state after one cycle.
#[derive(Debug, Serialize)]
pub struct Sample {
    /// Seconds since the beginning.
    pub at_s: u64,
    /// Slab memory that cannot be reclaimed, of the whole kernel, in KiB.
    pub slab_kib: u64,
    /// Memory that programs could still have, in KiB: without what the module or the kernel keeps,
    /// in caches or in pages.
    pub available_kib: u64,
}

/// Counts and findings.
#[derive(Debug, Default, Serialize)]
pub struct SoakReport {
    /// One sample for each cycle.
    pub cycles: Vec<Sample>,
    /// Calls in the storms of memory.
    pub calls: u64,
    /// Storms of memory in which memory was granted, refused and taken from somebody killed.
    pub stormy: u64,
    /// Opens of proxies.
    pub opens: u64,
    /// Caches whose least in the last third is above the most in the first: "name: from -> to
    /// bytes".
    pub grown: Vec<String>,
    /// The part that is missing of [`Sample::available_kib`]: by how much the most of the last
    /// third is below the least of the first, KiB.
    pub lost_kib: u64,
    /// Findings that must not be.
    pub wrong: Vec<String>,
    /// Lines of the kernel's log that tell of a fault in the kernel.
    pub kernel_warnings: usize,
}

/// Reads the table of caches (`/proc/slabinfo`, version 2.1: name, objects in use, objects, bytes
/// of each).
fn slabs(text: &str) -> Result<Slabs, String> {
    let mut slabs = Slabs::new();
    for line in text.lines().filter(|line| !line.starts_with('#')).skip(1) {
        let mut words = line.split_whitespace();
        let name = words.next().ok_or("an empty line in slabinfo")?;
        let mut number = || words.next().and_then(|word| word.parse::<u64>().ok());
        let (Some(used), Some(_), Some(bytes)) = (number(), number(), number()) else {
            return Err(format!("slabinfo: {line}"));
        };
        *slabs.entry(name.to_owned()).or_default() += used * bytes;
    }
    if slabs.is_empty() {
        Err("no caches in slabinfo".into())
    } else {
        Ok(slabs)
    }
}

/// The caches that have grown from the first third of the samples to the last.
fn grown(samples: &[Slabs]) -> Vec<String> {
    let third = samples.len() / 3;
    let (first, last) = (&samples[..third], &samples[samples.len() - third..]);
    let of = |slabs: &Slabs, name: &str| slabs.get(name).copied().unwrap_or(0);
    let names = samples.last().into_iter().flat_map(Slabs::keys);
    names
        .filter_map(|name| {
            let most = first.iter().map(|slabs| of(slabs, name)).max()?;
            let least = last.iter().map(|slabs| of(slabs, name)).min()?;
            let allowed = most + most / 50 + TOLERATED_BYTES;
            (least > allowed).then(|| format!("{name}: {most} -> {least} bytes"))
        })
        .collect()
}

/// Memory that is missing in the last third of the samples, KiB.
fn lost_kib(samples: &[Sample]) -> u64 {
    let third = samples.len() / 3;
    let (first, last) = (&samples[..third], &samples[samples.len() - third..]);
    let least = first.iter().map(|sample| sample.available_kib).min();
    let most = last.iter().map(|sample| sample.available_kib).max();
    least.unwrap_or(0).saturating_sub(most.unwrap_or(0))
}

fn read(path: &str) -> Result<String, String> {
    std::fs::read_to_string(path).map_err(|e| format!("{path}: {e}"))
}

fn cycle(report: &mut SoakReport) -> Result<(), String> {
    let stormed = storm::run(storm::StormSettings {
        seconds: STORM_S,
        seed: None,
        fail: false,
    })?;
    report.calls += stormed.calls;
    report.stormy += u64::from(stormed.says_something());
    report.wrong.extend(stormed.wrong);
    report.kernel_warnings += stormed.kernel_warnings;
    if !chaos::run(STORM_S, None, 4)? {
        report.wrong.push("the storm of random calls".into());
    }
    let hammered = hammer::run(OPENS)?;
    report.opens += hammered
        .proxies
        .values()
        .map(|done| done.opens)
        .sum::<u64>();
    let different = hammered.different.into_iter();
    report
        .wrong
        .extend(different.map(|(count, change)| format!("{count}: {change}")));
    report.kernel_warnings += hammered.kernel_warnings;
    for part in COMPUTE {
        if !suite::run(part, false)? {
            report.wrong.push(format!("suite: {part}"));
        }
    }
    Ok(())
}

/// Runs cycles until so many seconds have passed.
pub fn run(seconds: u64) -> Result<SoakReport, String> {
    let began = Instant::now();
    let mut report = SoakReport::default();
    let mut samples = Vec::new();
    while began.elapsed() < Duration::from_secs(seconds) || samples.len() < FEWEST {
        cycle(&mut report)?;
        // Some memory is freed after a grace period, or by work of the kernel.
        sys::sleep_ms(3000);
        samples.push(slabs(&read("/proc/slabinfo")?)?);
        let text = read("/proc/meminfo")?;
        let sample = Sample {
            at_s: began.elapsed().as_secs(),
            slab_kib: kib(&text, "SUnreclaim")?,
            available_kib: kib(&text, "MemAvailable")?,
        };
        eprintln!("soak: {sample:?}, {} wrong", report.wrong.len());
        report.cycles.push(sample);
    }
    // On a slow machine a single one is too short now and then.
    if report.stormy * 2 < u64::try_from(samples.len()).unwrap_or(u64::MAX) {
        report.wrong.push("too little has happened".into());
    }
    report.grown = grown(&samples);
    report.lost_kib = lost_kib(&report.cycles);
    if report.lost_kib > TOLERATED_KIB {
        let lost = report.lost_kib;
        report.wrong.push(format!("{lost} KiB are missing"));
    }
    Ok(report)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "slabinfo - version: 2.1
# name            <active_objs> <num_objs> <objsize> <objperslab> <pagesperslab> : tunables
kmalloc-cg-192      100    210    192   21    1 : tunables    0    0    0 : slabdata     10     10      0
task_struct         170    180   9216    3    8 : tunables    0    0    0 : slabdata     60     60      0
";

    #[test]
    fn objects_in_use_are_counted() {
        let slabs = slabs(TEXT).expect("a table");
        let expected = [("kmalloc-cg-192", 19_200), ("task_struct", 1_566_720)];
        assert_eq!(slabs, expected.map(|(name, n)| (name.to_owned(), n)).into());
        assert!(super::slabs("slabinfo - version: 2.1\nkmalloc-8 x 1 2").is_err());
        assert!(super::slabs("").is_err());
    }

    #[test]
    fn growth_is_told_from_ups_and_downs() {
        let at = |bytes: u64| Slabs::from([("a".to_owned(), bytes), ("b".to_owned(), 1 << 30)]);
        let wave = [0, 4, 1, 5, 0, 4, 2, 5, 0].map(|n| at(n << 20));
        assert!(grown(&wave).is_empty());
        let leak: Vec<Slabs> = (0..9).map(|n| at(n << 20)).collect();
        assert_eq!(grown(&leak), ["a: 2097152 -> 6291456 bytes"]);
    }

    #[test]
    fn leaks_are_told_from_fluctuation() {
        let of = |available: [u64; 9]| {
            let sample = |available_kib| Sample {
                at_s: 0,
                slab_kib: 0,
                available_kib,
            };
            lost_kib(&available.map(sample))
        };
        assert_eq!(of([900, 800, 850, 700, 900, 820, 810, 790, 800]), 0);
        assert_eq!(of([900, 890, 880, 870, 860, 850, 840, 830, 820]), 40);
    }
}
