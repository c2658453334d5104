// SPDX-License-Identifier: GPL-2.0
//! `race`: calls whose parameters other threads change while they are made.
//!
//! Each attack is a field of a call (size, class, command, handles, the pointer to the parameters, the
//! number in an envelope) and a way of changing it behind the caller's back: stores, system calls that
//! write to user memory, io_uring, another page at the same address, a process that shares the memory,
//! another file under the same descriptor.
//! Through an instance the stand-in driver must never read what the module refuses, and what it acts on
//! must be what was charged. It tells what it read (`read_log`) and what its heap holds.
//!
//! The same attacks are made on the driver's own nodes, by a caller that looks at the field and then
//! makes the call, as somebody who checks and forwards plainly would. There they work.

mod fields;
mod methods;
mod stage;

use std::collections::BTreeMap;

use serde::Serialize;

use crate::control::{self, Control};
use crate::guest::rm::{self, Client};
use crate::guest::uvm::{self, Space};
use crate::standin::{self, KernelLog};
use fields::{Field, Files, Judge};
use methods::Attack;
use stage::Stage;

const GPU: u32 = 0;
const LIMIT: u64 = 1 << 30;
/// Calls between two looks at the log, which holds 4,096.
const BATCH: u64 = 900;
/// How long somebody who checks and forwards plainly takes from the one to the other.
const PLAIN_CHECK: std::time::Duration = std::time::Duration::from_micros(50);
/// How often a plain forwarder is tried again with what has not changed a call of his.
const MOST_MORE: u32 = 50;
/// Names of the instances.
const NAMES: [&str; 2] = ["race-one", "race-two"];

/// What became of some attacks.
#[derive(Debug, Default, Clone, Copy, Serialize)]
pub struct Tally {
    /// Calls that were made while others wrote.
    pub calls: u64,
    /// Of them, those on which the driver acted, whatever it answered.
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
pub struct Report {
    /// Through an instance, by field and by method.
    pub instance: BTreeMap<String, Tally>,
    /// The same on the driver's own nodes.
    pub plain: BTreeMap<String, Tally>,
    /// Times that what was charged was compared with the heap.
    pub compared: u64,
    /// What was not as it should be.
    pub wrong: Vec<String>,
    /// Lines of the kernel's log that tell of a fault in the kernel.
    pub kernel_warnings: usize,
}

/// A line of `read_log`.
#[derive(Debug)]
pub(crate) struct Entry(BTreeMap<String, u64>);

impl Entry {
    fn parse(line: &str) -> Self {
        let pairs = line.split(' ').filter_map(|word| word.split_once('='));
        let number = |text: &str| match text.strip_prefix("0x") {
            Some(hex) => u64::from_str_radix(hex, 16).ok(),
            None => text.parse().ok(),
        };
        Self(
            pairs
                .filter_map(|(key, value)| Some((key.to_owned(), number(value)?)))
                .collect(),
        )
    }

    fn get(&self, key: &str) -> u64 {
        self.0.get(key).copied().unwrap_or(0)
    }
}

/// Whose nodes are used, and what there is to name in a call.
pub(crate) struct Scene {
    /// The caller's.
    own: Client,
    /// Another tenant's; without instances, of another file.
    foreign: Client,
    /// The caller's nodes.
    folder: String,
    uvm: Space,
    gpu: [u8; 16],
    /// The caller's instance; `None`: the driver's own nodes.
    control: Option<Control>,
    /// What was charged and what the heap held before the first call.
    idle: (u64, u64),
}

/// Memory of the foreign client that all may duplicate.
const FOREIGN_MEMORY: u32 = 0x5C00_0200;
const SPACE_HANDLE: u32 = 0x5C00_0004;

impl Scene {
    fn new(folders: [&str; 2], control: Option<Control>) -> Result<Self, String> {
        let failed = |what: &'static str| move |e: rm::Failure| format!("{what}: {e}");
        let instance = {
            let control = Control::open().map_err(|e| format!("control device: errno {e}"))?;
            let gpus = control.gpus().map_err(|e| format!("GPUs: errno {e}"))?;
            let gpu = gpus.iter().find(|gpu| gpu.minor == GPU).ok_or("no GPU")?;
            gpu.device_instance
        };
        let own = Client::open(folders[0], GPU, instance).map_err(failed("client"))?;
        let foreign = Client::open(folders[1], GPU, instance).map_err(failed("client"))?;
        foreign
            .memory(FOREIGN_MEMORY, 1 << 20)
            .and_then(|_| rm::share(foreign.ctl, (foreign.handle, FOREIGN_MEMORY), 1))
            .map_err(failed("foreign memory"))?;
        // Under the same handle, so that the client alone tells one from the other.
        own.memory(FOREIGN_MEMORY, 1 << 20)
            .map_err(failed("own memory"))?;
        let gpu = uvm::uuid(GPU)?;
        own.alloc(rm::DEVICE_HANDLE, SPACE_HANDLE, uvm::VA_SPACE, &mut [0; 56])
            .map_err(failed("address space"))?;
        let space = Space::open(folders[0]).map_err(failed("UVM"))?;
        space
            .register(&gpu, own.handle, SPACE_HANDLE)
            .map_err(failed("UVM register"))?;
        let mut scene = Self {
            own,
            foreign,
            folder: folders[0].to_owned(),
            uvm: space,
            gpu,
            control,
            idle: (0, 0),
        };
        scene.idle = scene.charged_and_held()?;
        Ok(scene)
    }

    /// What is charged to the caller's instance and what the heap holds, since the beginning.
    fn charged_and_held(&self) -> Result<(u64, u64), String> {
        let held = standin::heap(GPU)?.used - self.idle.1;
        let Some(control) = &self.control else {
            return Ok((held, held));
        };
        let instance = control.get(NAMES[0], GPU);
        let instance = instance.map_err(|e| format!("get: errno {e}"))?;
        Ok((instance.memory_used_bytes - self.idle.0, held))
    }

    fn close(self) {
        self.uvm.close();
        self.own.close();
        self.foreign.close();
        Files::close_all();
    }
}

/// Where the module's scratch of this process is.
pub fn scratch() -> Result<u64, String> {
    let maps = std::fs::read_to_string("/proc/self/maps").map_err(|e| e.to_string())?;
    let line = maps.lines().find(|line| line.contains("[cgpu-scratch]"));
    let start = line.and_then(|line| line.split('-').next());
    start
        .and_then(|start| u64::from_str_radix(start, 16).ok())
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
    fn cell(&mut self, field: &Field, attack: Attack, count: u64) -> Result<(), String> {
        let mut tally = Tally::default();
        let case = (field.build)(&self.scene, &self.stage);
        self.stage.set(&case);
        let attackers = methods::start(attack, &self.stage, &case, self.scratch)?;
        let mut left = count;
        while left > 0 {
            let batch = left.min(if case.judge == Judge::Accounting {
                8
            } else {
                BATCH
            });
            left -= batch;
            if case.judge == Judge::Log {
                standin::reset("read_log")?;
            }
            for number in 0..batch {
                let number = u32::try_from(number).unwrap_or(0);
                (field.before)(&self.scene, number)?;
                self.stage.reset(&case, attack, number);
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
                    for entry in log(self.scene.own.handle)? {
                        if (field.acted)(&entry) {
                            tally.acted += 1;
                            let tampered = (field.tampered)(&entry, &case);
                            tally.tampered += u64::from(tampered);
                            if tampered && self.scratch.is_some() {
                                eprintln!("race: {} by {attack:?}: {entry:?}", field.name);
                            }
                        }
                    }
                }
                Judge::Accounting => {
                    let (charged, held) = self.scene.charged_and_held()?;
                    tally.acted += batch;
                    self.compared += 1;
                    // A size that is forged where the driver has written its own raises the charge.
                    if charged < held || charged > held && !field.may_raise {
                        tally.tampered += 1;
                        let what = format!("{} by {attack:?}", field.name);
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
            let what = format!("{} by {attack:?}", field.name);
            self.wrong
                .push(format!("{what}: {} calls tampered with", tally.tampered));
        }
        let [field, method] = keys(field, attack);
        for key in [field, method, "all".into()] {
            self.report.entry(key).or_default().add(&tally);
        }
        Ok(())
    }

    /// No call was tampered with by this method, or in this field.
    fn is_safe(&self, field: &Field, attack: Attack) -> bool {
        let mut found = keys(field, attack).into_iter();
        found.any(|key| {
            self.report
                .get(&key)
                .is_none_or(|tally| tally.tampered == 0)
        })
    }
}

/// Under which a field's attack is counted.
fn keys(field: &Field, attack: Attack) -> [String; 2] {
    [
        format!("field: {}", field.name),
        format!("method: {attack:?}"),
    ]
}

/// What the driver read since the last time: of this process, or of a task that calls for it for its
/// client.
fn log(client: u32) -> Result<Vec<Entry>, String> {
    let path = format!("{}/read_log", standin::DEBUGFS);
    let text = std::fs::read_to_string(&path).map_err(|e| format!("{path}: {e}"))?;
    let own = u64::from(std::process::id());
    let entries = text.lines().map(Entry::parse);
    let is_ours =
        |entry: &Entry| entry.get("pid") == own || entry.get("client") == u64::from(client);
    Ok(entries.filter(is_ours).collect())
}

fn all(scene: Scene, count: u64, report: &mut Report) -> Result<(), String> {
    let through_instance = scene.control.is_some();
    let mut race = Race {
        scratch: through_instance.then(scratch).transpose()?,
        scene,
        stage: Stage::new()?,
        report: BTreeMap::new(),
        compared: 0,
        wrong: Vec::new(),
    };
    let fields: Vec<Field> = fields::all()
        .into_iter()
        // Without accounting there is nothing to compare.
        .filter(|field| through_instance || field.judge == Judge::Log)
        .collect();
    let cells: u64 = fields.iter().map(|field| field.ways.len() as u64).sum();
    for field in &fields {
        for &attack in field.ways {
            race.cell(field, attack, count.div_ceil(cells))?;
        }
        eprintln!("race: {}", field.name);
    }
    if through_instance {
        report.instance = race.report;
    } else {
        // Every field could be changed, and every method changes something: on a machine that has other things to
        // do, after a while.
        for field in &fields {
            for &attack in field.ways {
                let mut more = MOST_MORE;
                while more > 0 && race.is_safe(field, attack) {
                    race.cell(field, attack, count.div_ceil(cells))?;
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
pub fn run(count: u64) -> Result<Report, String> {
    control::mount_cgpufs()?;
    methods::survive_refused_stores();
    let mut kernel = KernelLog::from_now();
    let mut report = Report::default();
    let plain = (count / 5).clamp(4000, 20_000);
    all(Scene::new(["/dev", "/dev"], None)?, plain, &mut report)?;
    let control = Control::open().map_err(|e| format!("control device: errno {e}"))?;
    for name in NAMES {
        let made = control.create(name, GPU, LIMIT, 1);
        made.map_err(|e| format!("{name}: errno {e}"))?;
    }
    let folders = NAMES.map(|name| format!("{}/{name}", cgpu_uapi::CGPUFS_MOUNT));
    let folders = [folders[0].as_str(), folders[1].as_str()];
    all(Scene::new(folders, Some(control))?, count, &mut report)?;
    let control = Control::open().map_err(|e| format!("control device: errno {e}"))?;
    for name in NAMES {
        if let Err(e) = control.destroy(name, GPU) {
            report
                .wrong
                .push(format!("{name} cannot be removed: errno {e}"));
        }
    }
    standin::reset("unanswered")?;
    standin::reset("read_log")?;
    let faults = kernel.faults();
    for line in &faults {
        eprintln!("kernel: {line}");
    }
    report.kernel_warnings = faults.len();
    Ok(report)
}
