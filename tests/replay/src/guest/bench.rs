// SPDX-License-Identifier: GPL-2.0
//! `bench`: what calls cost on the driver's own nodes and through an instance, in one run, by turns; and how
//! that grows with instances, objects and processes.
//!
//! Under `run.sh --count-instructions` the machine's clock counts instructions: a nanosecond is one. Figures
//! are medians over the rounds, with the quartiles.

mod calls;
mod crowd;
mod marks;
pub(in crate::guest) mod memory;
mod side;
mod storm;

use cgpu_uapi as uapi;
use serde::Serialize;

use crate::control::{self, Control};
use calls::Call;
pub use memory::Memory;
use side::{Crowd, Side};

const GPU: u32 = 0;
const LIMIT: u64 = 64 << 30;
/// Objects that each side has when nothing else is said.
const FEW: u32 = 10;

/// How much is measured.
#[derive(Debug, Clone, Copy)]
pub struct Settings {
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
    /// The least of them. Where the clock counts instructions this is the count: what is above it is a
    /// timer's tick, for which that clock jumps.
    pub least: f64,
    /// A quarter of the rounds were below this.
    pub low: f64,
    /// Half of them.
    pub median: f64,
    /// Three quarters.
    pub high: f64,
}

impl Spread {
    fn of(mut rounds: Vec<f64>) -> Self {
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

/// What there was beside the call that was measured.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Setting {
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
    /// What others do meanwhile, as many as there are processors; empty: there are none.
    pub beside: &'static str,
}

const ALONE: Setting = Setting {
    instances: 1,
    objects: FEW,
    processes: 0,
    callers: 1,
    in_instances: 1,
    beside: "",
};

/// A kind of call in one setting.
#[derive(Debug, Serialize)]
pub struct Row {
    /// What is called.
    pub call: &'static str,
    /// Beside what.
    #[serde(flatten)]
    pub setting: Setting,
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

impl Row {
    fn new(call: &'static str, setting: Setting, direct: Vec<f64>, proxied: Vec<f64>) -> Self {
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
pub struct Report {
    /// Processors of the machine.
    pub processors: u32,
    /// Rounds of each side.
    pub rounds: u32,
    /// What calls cost.
    pub rows: Vec<Row>,
    /// What the module keeps.
    pub memory: Memory,
}

fn errno<T>(what: &str, result: Result<T, i32>) -> Result<T, String> {
    result.map_err(|e| format!("{what}: errno {e}"))
}

struct Bench {
    settings: Settings,
    control: Control,
    device_instance: u32,
    /// Another GPU, if there is one: minor number and number for RM.
    other: Option<(u32, u32)>,
    report: Report,
}

impl Bench {
    /// Both sides by turns, so that what changes in the machine meanwhile changes both.
    fn measure(
        &mut self,
        call: &Call,
        setting: Setting,
        direct: &Side,
        proxied: &Side,
    ) -> Result<(), String> {
        let mut figures: Vec<(&'static str, Vec<f64>, Vec<f64>)> = Vec::new();
        for round in 0..=self.settings.rounds {
            let first = call(direct, self.settings.calls)?;
            let second = call(proxied, self.settings.calls)?;
            if self.settings.marked {
                for (side, told) in [("direct", &first), ("proxied", &second)] {
                    for (name, _) in told {
                        println!("mark {side} {name}");
                    }
                }
            }
            if round == 0 {
                // Pages are allocated, caches filled.
                figures = first.iter().map(|f| (f.0, vec![], vec![])).collect();
                continue;
            }
            for (place, (first, second)) in figures.iter_mut().zip(first.iter().zip(&second)) {
                place.1.push(first.1);
                place.2.push(second.1);
            }
        }
        let rows = figures
            .into_iter()
            .map(|(name, first, second)| Row::new(name, setting, first, second));
        self.report.rows.extend(rows);
        Ok(())
    }

    fn measure_all(
        &mut self,
        calls: &[Call],
        setting: Setting,
        (direct, proxied): (&Side, &Side),
    ) -> Result<(), String> {
        for call in calls {
            self.measure(call, setting, direct, proxied)?;
        }
        eprintln!("bench: {setting:?}");
        Ok(())
    }

    fn run(&mut self) -> Result<(), String> {
        let name = "bench";
        errno(name, self.control.create(name, GPU, LIMIT, 1))?;
        let mut direct = Side::open("/dev", self.device_instance)?;
        let mut proxied = Side::open(&side::folder(name), self.device_instance)?;
        direct.grow(FEW)?;
        proxied.grow(FEW)?;
        self.measure_all(calls::ALL, ALONE, (&direct, &proxied))?;
        if self.settings.marked {
            direct.close();
            proxied.close();
            return errno("destroy", self.control.destroy(name, GPU));
        }

        for instances in [16, 64] {
            let others = Crowd::instances(&self.control, self.device_instance, instances - 1)?;
            let setting = Setting { instances, ..ALONE };
            self.measure_all(calls::ALL, setting, (&direct, &proxied))?;
            if instances == 64 {
                self.report.memory.instance_bytes = others.each_instance;
            }
            others.end(&self.control)?;
        }

        let processes = self.settings.processes;
        let others = Crowd::processes(name, self.device_instance, processes)?;
        let setting = Setting { processes, ..ALONE };
        self.measure_all(calls::ALL, setting, (&direct, &proxied))?;
        others.end(&self.control)?;

        for objects in [self.settings.objects / 10, self.settings.objects] {
            let (first, second) = (direct.grow(objects)?, proxied.grow(objects)?);
            let setting = Setting { objects, ..ALONE };
            self.measure_all(calls::ALL, setting, (&direct, &proxied))?;
            self.report.memory.object_bytes = second - first;
        }
        direct.close();
        proxied.close();

        self.report.memory.client_bytes = memory::client(name, self.device_instance)?;
        crowd::measure(
            &self.control,
            self.device_instance,
            &self.settings,
            &mut self.report,
        )?;
        // On one processor nothing happens at the same time.
        if self.report.processors > 1 {
            storm::measure(
                &self.control,
                ((GPU, self.device_instance), self.other),
                &self.settings,
                &mut self.report,
            )?;
        }
        errno("destroy", self.control.destroy(name, GPU))
    }
}

/// Measures everything.
pub fn run(settings: Settings) -> Result<Report, String> {
    control::mount_cgpufs()?;
    let control = errno("control device", Control::open())?;
    let gpus = errno("GPUs", control.gpus())?;
    let gpu = gpus.iter().find(|gpu| gpu.minor == GPU).ok_or("no GPU")?;
    let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let mut bench = Bench {
        settings,
        device_instance: gpu.device_instance,
        other: gpus
            .iter()
            .find(|gpu| gpu.minor != GPU)
            .map(|gpu| (gpu.minor, gpu.device_instance)),
        control,
        report: Report {
            processors: u32::try_from(processors).unwrap_or(1),
            rounds: settings.rounds,
            ..Report::default()
        },
    };
    if bench.settings.rounds == 0 || uapi::MAX_INSTANCES_PER_GPU < 64 {
        return Err("nothing can be measured".to_owned());
    }
    bench.run()?;
    Ok(bench.report)
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
        let row = Row::new("x", ALONE, vec![100.0], vec![150.0]);
        assert_eq!((row.added, row.ratio), (50.0, 1.5));
    }
}
