// SPDX-License-Identifier: GPL-2.0
//! Settings of a measurement, and its figures.

use serde::Serialize;

use super::memory::KernelMemory;

pub(super) const LIMIT: u64 = 64 << 30;
/// Objects that each side has when nothing else is said.
pub(super) const FEW: u32 = 10;

/// How much is measured.
#[derive(Debug, Clone, Copy)]
pub struct BenchSettings {
    /// Rounds of each side, of which the median is taken.
    pub rounds: u32,
    /// Calls of a round.
    pub calls: u32,
    /// Most objects of one client.
    pub objects: u32,
    /// Most processes with a client.
    pub processes: u32,
    /// Each kind of call alone, and which was marked, for `tests/vm/profile.py`.
    pub marked: bool,
}

/// Median and quartiles of some rounds, nanoseconds for a call.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Spread {
    /// The least of them. Where the clock counts instructions this is the count: what is above it
    /// is a timer's tick, for which that clock jumps.
    pub least: f64,
    /// A quarter of the rounds were below this.
    pub low: f64,
    /// Half of them.
    pub median: f64,
    /// Three quarters.
    pub high: f64,
}

impl Spread {
    pub(super) fn of(mut rounds: Vec<f64>) -> Self {
        rounds.sort_by(f64::total_cmp);
        let at = |part: usize| {
            let last = rounds.len().saturating_sub(1);
            rounds.get(last * part / 4).copied().unwrap_or_default()
        };
        Self {
            least: at(0),
            low: at(1),
            median: at(2),
            high: at(3),
        }
    }
}

/// The surroundings of the measured call.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Beside {
    /// Instances of the GPU.
    pub instances: u32,
    /// Objects of the calling client.
    pub objects: u32,
    /// Other processes with a client in the instance.
    pub processes: u32,
    /// Processes that call at the same time.
    pub callers: u32,
    /// Instances that these are in.
    pub in_instances: u32,
    /// The others' work meanwhile, as many as there are processors; empty: there are none.
    pub beside: &'static str,
}

pub(super) const ALONE: Beside = Beside {
    instances: 1,
    objects: FEW,
    processes: 0,
    callers: 1,
    in_instances: 1,
    beside: "",
};

/// A kind of call in one setting.
#[derive(Debug, Serialize)]
pub struct BenchRow {
    /// The call.
    pub call: &'static str,
    /// Beside what.
    #[serde(flatten)]
    pub setting: Beside,
    /// On the driver's own nodes.
    pub direct: Spread,
    /// Through an instance.
    pub proxied: Spread,
    /// The second median less the first.
    pub added: f64,
    /// The second median over the first.
    pub ratio: f64,
    /// The second least over the first.
    pub least_ratio: f64,
    /// The second least less the first.
    pub least_added: f64,
}

impl BenchRow {
    pub(super) fn new(
        call: &'static str,
        setting: Beside,
        direct: Vec<f64>,
        proxied: Vec<f64>,
    ) -> Self {
        let (direct, proxied) = (Spread::of(direct), Spread::of(proxied));
        Self {
            call,
            setting,
            direct,
            proxied,
            added: proxied.median - direct.median,
            ratio: proxied.median / direct.median,
            least_ratio: proxied.least / direct.least,
            least_added: proxied.least - direct.least,
        }
    }
}

/// All that was measured.
#[derive(Debug, Default, Serialize)]
pub struct BenchReport {
    /// Processors of the machine.
    pub processors: u32,
    /// Rounds of each side.
    pub rounds: u32,
    /// The cost of calls.
    pub rows: Vec<BenchRow>,
    /// The memory that the module keeps.
    pub memory: KernelMemory,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quartiles() {
        let spread = Spread::of((1..=9).rev().map(f64::from).collect());
        assert_eq!((spread.low, spread.median, spread.high), (3.0, 5.0, 7.0));
        assert_eq!(spread.least, 1.0);
        assert_eq!(Spread::of(vec![4.0]).median, 4.0);
    }

    #[test]
    fn a_row_compares() {
        let row = BenchRow::new("x", ALONE, vec![100.0], vec![150.0]);
        assert_eq!((row.added, row.ratio), (50.0, 1.5));
    }
}
