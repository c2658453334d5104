// SPDX-License-Identifier: GPL-2.0
//! `bench`: what calls cost on the driver's own nodes and through an instance, in one run, by
//! turns; and how that grows with instances, objects and processes.
//!
//! Under `run.sh --count-instructions` the machine's clock counts instructions: a nanosecond is
//! one. Figures are medians over the rounds, with the quartiles.

mod calls;
mod crowd;
mod figures;
mod marks;
pub(in crate::guest) mod memory;
mod side;
mod storm;
pub mod unmap;

use std::time::Duration;

use calls::MeasuredCall;
use cgpu_uapi as uapi;

use crate::{
    control::{self, Control},
    guest::tools::{control, sys, GPU},
};
pub use figures::{BenchReport, BenchRow, BenchSettings, Beside, Spread};
use figures::{ALONE, FEW, LIMIT};
pub use memory::KernelMemory;
use side::{BenchSide, Crowd};

struct Bench {
    settings: BenchSettings,
    control: Control,
    device_instance: u32,
    /// Another GPU, if there is one: minor number and number for RM.
    other: Option<(u32, u32)>,
    report: BenchReport,
}

impl Bench {
    /// Both sides by turns, so that what changes in the machine meanwhile changes both.
    fn measure(
        &mut self,
        call: &MeasuredCall,
        setting: Beside,
        direct: &BenchSide,
        proxied: &BenchSide,
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
            .map(|(name, first, second)| BenchRow::new(name, setting, first, second));
        self.report.rows.extend(rows);
        Ok(())
    }

    fn measure_all(
        &mut self,
        calls: &[MeasuredCall],
        setting: Beside,
        (direct, proxied): (&BenchSide, &BenchSide),
    ) -> Result<(), String> {
        for call in calls {
            self.measure(call, setting, direct, proxied)?;
        }
        eprintln!("bench: {setting:?}");
        Ok(())
    }

    fn run(&mut self) -> Result<(), String> {
        let name = "bench";
        sys(name, self.control.create(name, GPU, LIMIT, 1))?;
        let mut direct = BenchSide::open("/dev", self.device_instance)?;
        let mut proxied = BenchSide::open(&control::folder(name), self.device_instance)?;
        direct.grow(FEW)?;
        proxied.grow(FEW)?;
        self.measure_all(calls::ALL, ALONE, (&direct, &proxied))?;
        if self.settings.marked {
            direct.close();
            proxied.close();
            return sys("destroy", self.control.destroy(name, GPU));
        }

        for instances in [16, 64] {
            let others = Crowd::instances(&self.control, self.device_instance, instances - 1)?;
            let setting = Beside { instances, ..ALONE };
            self.measure_all(calls::ALL, setting, (&direct, &proxied))?;
            if instances == 64 {
                self.report.memory.instance_bytes = others.each_instance;
            }
            others.end(&self.control)?;
        }

        let processes = self.settings.processes;
        let others = Crowd::processes(name, self.device_instance, processes)?;
        let setting = Beside { processes, ..ALONE };
        self.measure_all(calls::ALL, setting, (&direct, &proxied))?;
        others.end(&self.control)?;

        for objects in [self.settings.objects / 10, self.settings.objects] {
            let (first, second) = (direct.grow(objects)?, proxied.grow(objects)?);
            let setting = Beside { objects, ..ALONE };
            self.measure_all(calls::ALL, setting, (&direct, &proxied))?;
            self.report.memory.object_bytes = second - first;
        }
        direct.close();
        proxied.close();

        self.report.memory.client_bytes = memory::client(name, self.device_instance)?;
        // On one processor nothing happens at the same time.
        if self.report.processors > 1 {
            crowd::measure(
                &self.control,
                self.device_instance,
                &self.settings,
                &mut self.report,
            )?;
            storm::measure(
                &self.control,
                ((GPU, self.device_instance), self.other),
                &self.settings,
                &mut self.report,
            )?;
        }
        sys("destroy", self.control.destroy(name, GPU))
    }
}

/// For so long the kernel may still test its ciphers after it has booted (`cryptomgr_test`), which
/// would share the processor with the first calls. A clock that counts instructions skips it.
const SETTLE: Duration = Duration::from_secs(5);

/// Measures everything.
pub fn run(settings: BenchSettings) -> Result<BenchReport, String> {
    std::thread::sleep(SETTLE);
    control::mount_cgpufs()?;
    let control = control()?;
    let gpus = sys("GPUs", control.gpus())?;
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
        report: BenchReport {
            processors: u32::try_from(processors).unwrap_or(1),
            rounds: settings.rounds,
            ..BenchReport::default()
        },
    };
    if bench.settings.rounds == 0 || uapi::MAX_INSTANCES_PER_GPU < 64 {
        return Err("nothing can be measured".to_owned());
    }
    bench.run()?;
    Ok(bench.report)
}
