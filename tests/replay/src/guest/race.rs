// SPDX-License-Identifier: GPL-2.0
//! `race`: calls whose parameters other threads change while they are made.
//!
//! Each attack is a field of a call (size, class, command, handles, the pointer to the parameters,
//! the number in an envelope) and a way of changing it behind the caller's back: stores, system
//! calls that write to user memory, io_uring, another page at the same address, a process that
//! shares the memory, another file under the same descriptor. Through an instance the stand-in
//! driver must never read what the module refuses, and what it acts on must be what was charged. It
//! tells what it read (`read_log`) and what its heap holds. Of each field and by each method it
//! must have acted on some calls: what is never let through cannot be raced.
//!
//! The same attacks are made on the driver's own nodes, by a caller that looks at the field and
//! then makes the call, as somebody who checks and forwards plainly would. There they work.

mod case;
mod fields;
mod methods;
mod read_log;
mod scene;
mod stage;

use std::collections::BTreeMap;

use case::{Judge, Method};
use fields::RacedField;
use read_log::read_log;
use scene::{Scene, GPU, NAMES};
use serde::Serialize;
use stage::Stage;

use crate::{
    control,
    guest::tools::{self, RefusalsAllowed},
    standin::{self, KernelLog},
};

const LIMIT: u64 = 1 << 30;
/// Calls between two looks at the log, which holds 4,096.
const BATCH: u64 = 900;
/// How long somebody who checks and forwards plainly takes from the one to the other.
const PLAIN_CHECK: std::time::Duration = std::time::Duration::from_micros(50);
/// How often a plain forwarder is tried again with a way that has not changed its call.
const MOST_MORE: u32 = 50;

/// The outcome of some attacks.
#[derive(Debug, Default, Clone, Copy, Serialize)]
pub struct Tally {
    /// Calls that were made while others wrote.
    pub calls: u64,
    /// Of them, those on which the driver acted, whatever it answered; of those whose charge is
    /// looked at, those that it granted.
    pub acted: u64,
    /// Of them, those on which it acted with what was not checked.
    pub tampered: u64,
    /// Writes of the attackers'.
    pub writes: u64,
    /// Of them, into the module's scratch, and not refused.
    pub into_scratch: u64,
}

impl Tally {
    fn add(&mut self, other: &Self) {
        self.calls += other.calls;
        self.acted += other.acted;
        self.tampered += other.tampered;
        self.writes += other.writes;
        self.into_scratch += other.into_scratch;
    }
}

/// The result.
#[derive(Debug, Default, Serialize)]
pub struct RaceReport {
    /// Through an instance, by field and by method.
    pub instance: BTreeMap<String, Tally>,
    /// The same on the driver's own nodes.
    pub plain: BTreeMap<String, Tally>,
    /// Times that what was charged was compared with the heap.
    pub compared: u64,
    /// Findings that must not be.
    pub wrong: Vec<String>,
    /// Lines of the kernel's log that tell of a fault in the kernel.
    pub kernel_warnings: usize,
}

/// The address of this process's scratch in the module.
pub fn scratch() -> Result<u64, String> {
    scratch_range().map(|(start, _)| start)
}

/// The same, and how many bytes it has.
pub fn scratch_range() -> Result<(u64, u64), String> {
    let maps = std::fs::read_to_string("/proc/self/maps").map_err(|e| e.to_string())?;
    let line = maps.lines().find(|line| line.contains("[cgpu-scratch]"));
    let range = line.and_then(|line| line.split(' ').next()?.split_once('-'));
    let number = |text| u64::from_str_radix(text, 16).ok();
    range
        .and_then(|(start, end)| Some((number(start)?, number(end)?)))
        .map(|(start, end)| (start, end.saturating_sub(start)))
        .ok_or_else(|| "the process has no scratch".into())
}

struct Race {
    scene: Scene,
    stage: Stage,
    scratch: Option<u64>,
    report: BTreeMap<String, Tally>,
    compared: u64,
    wrong: Vec<String>,
}

impl Race {
    /// Calls with one field under one attack.
    fn cell(&mut self, field: &RacedField, method: Method, count: u64) -> Result<(), String> {
        let mut tally = Tally::default();
        let case = (field.build)(&self.scene, &self.stage);
        self.stage.set(&case);
        let attackers = methods::start(method, &self.stage, &case, self.scratch)?;
        let mut left = count;
        while left > 0 {
            let batch = left.min(if case.judge == Judge::Accounting {
                8
            } else {
                BATCH
            });
            left -= batch;
            standin::reset("read_log")?;
            for number in 0..batch {
                let number = u32::try_from(number).unwrap_or(0);
                (field.before)(&self.scene, number)?;
                self.stage.reset(&case, method, number);
                if self.scratch.is_none() {
                    // A plain forwarder looks, is content or not, and needs a moment to go on.
                    if !self.stage.looks_good(&case) {
                        continue;
                    }
                    std::thread::sleep(PLAIN_CHECK);
                }
                self.stage.call(&case, &self.scene);
                tally.calls += 1;
                if case.judge == Judge::Log {
                    (field.after)(&self.scene, number);
                }
            }
            match case.judge {
                Judge::Log => {
                    for entry in read_log(self.scene.own.handle)? {
                        if (field.acted)(&entry) {
                            tally.acted += 1;
                            let tampered = (field.tampered)(&entry, &case);
                            tally.tampered += u64::from(tampered);
                            if tampered && self.scratch.is_some() {
                                eprintln!("race: {} by {method:?}: {entry:?}", field.name);
                            }
                        }
                    }
                }
                Judge::Accounting => {
                    let (charged, held) = self.scene.charged_and_held()?;
                    let read = read_log(self.scene.own.handle)?;
                    tally.acted += read.iter().filter(|entry| (field.acted)(entry)).count() as u64;
                    self.compared += 1;
                    // A size that is forged where the driver has written its own raises the charge.
                    if charged < held || charged > held && !field.may_raise {
                        tally.tampered += 1;
                        let what = format!("{} by {method:?}", field.name);
                        self.wrong
                            .push(format!("{what}: charged {charged}, held {held}"));
                    }
                    for number in 0..batch {
                        (field.after)(&self.scene, u32::try_from(number).unwrap_or(0));
                    }
                }
            }
        }
        (tally.writes, tally.into_scratch) = attackers.stop();
        if tally.tampered > 0 && self.scratch.is_some() {
            let what = format!("{} by {method:?}", field.name);
            self.wrong
                .push(format!("{what}: {} calls tampered with", tally.tampered));
        }
        let [field, method] = keys(field, method);
        for key in [field, method, "all".into()] {
            self.report.entry(key).or_default().add(&tally);
        }
        Ok(())
    }

    /// No call was tampered with by this method, or in this field.
    fn is_safe(&self, field: &RacedField, method: Method) -> bool {
        let mut found = keys(field, method).into_iter();
        found.any(|key| {
            self.report
                .get(&key)
                .is_none_or(|tally| tally.tampered == 0)
        })
    }
}

/// Under which a field's attack is counted.
fn keys(field: &RacedField, method: Method) -> [String; 2] {
    [
        format!("field: {}", field.name),
        format!("method: {method:?}"),
    ]
}

fn all(scene: Scene, count: u64, report: &mut RaceReport) -> Result<(), String> {
    let through_instance = scene.control.is_some();
    let mut race = Race {
        scratch: through_instance.then(scratch).transpose()?,
        scene,
        stage: Stage::new()?,
        report: BTreeMap::new(),
        compared: 0,
        wrong: Vec::new(),
    };
    let fields: Vec<RacedField> = fields::all()
        // Without accounting there is nothing to compare.
        .filter(|field| through_instance || field.judge == Judge::Log)
        .collect();
    let cells: u64 = fields.iter().map(|field| field.ways.len() as u64).sum();
    for field in &fields {
        for &method in field.ways {
            race.cell(field, method, count.div_ceil(cells))?;
        }
        eprintln!("race: {}", field.name);
    }
    if through_instance {
        // A module that refused every call would keep every field safe.
        for (key, tally) in &race.report {
            if tally.acted == 0 {
                let what = "the driver acted on no call through the instance";
                race.wrong.push(format!("{key}: {what}"));
            }
        }
        report.instance = race.report;
    } else {
        // Every field could be changed, and every method changes something: on a machine that has
        // other things to do, after a while.
        for field in &fields {
            for &method in field.ways {
                let mut more = MOST_MORE;
                while more > 0 && race.is_safe(field, method) {
                    race.cell(field, method, count.div_ceil(cells))?;
                    more -= 1;
                }
            }
        }
        for (key, tally) in &race.report {
            if tally.tampered == 0 {
                race.wrong.push(format!("plainly forwarded, {key} is safe"));
            }
        }
        report.plain = race.report;
    }
    report.compared += race.compared;
    report.wrong.extend(race.wrong);
    race.stage.close();
    race.scene.close();
    Ok(())
}

/// Makes `count` calls through an instance, and some on the driver's own nodes.
pub fn run(count: u64) -> Result<RaceReport, String> {
    control::mount_cgpufs()?;
    let _rate = RefusalsAllowed::set(0)?;
    methods::survive_refused_stores();
    let mut kernel = KernelLog::from_now();
    let mut report = RaceReport::default();
    let plain = (count / 5).clamp(4000, 20_000);
    all(Scene::new(["/dev", "/dev"], None)?, plain, &mut report)?;
    let control = tools::control()?;
    for name in NAMES {
        let made = control.create(name, GPU, LIMIT, 1);
        made.map_err(|e| format!("{name}: errno {e}"))?;
    }
    let folders = NAMES.map(control::folder);
    let folders = [folders[0].as_str(), folders[1].as_str()];
    all(Scene::new(folders, Some(control))?, count, &mut report)?;
    let control = tools::control()?;
    for name in NAMES {
        if let Err(e) = control.destroy(name, GPU) {
            report
                .wrong
                .push(format!("{name} cannot be removed: errno {e}"));
        }
    }
    standin::reset("unanswered")?;
    standin::reset("read_log")?;
    report.kernel_warnings = kernel.tell_faults();
    Ok(report)
}
