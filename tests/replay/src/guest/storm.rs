// SPDX-License-Identifier: GPL-2.0
//! `storm-memory`: processes of two tenants with several threads each take and give memory in every
//! way at once, some are killed in the middle of it, limits rise and fall.
//!
//! Seen from outside the whole time: no tenant is charged more than its limit allows, and the
//! stand-in driver's heap holds no more than all limits together. When the threads stand still,
//! what is charged is what the heap holds, byte for byte; it may be more where threads free under
//! each other's hands (in wild rounds) or where the module's own allocations are made to fail. At
//! the end nothing is left.

mod board;
mod inject;
mod worker;

use std::{ops::RangeInclusive, sync::atomic::Ordering::Relaxed};

use board::{Board, PROCESSES, SEATS, TENANTS, THREADS};
use cgpu_uapi as uapi;
use inject::Injection;
use serde::Serialize;

use crate::{
    control::{self, Control},
    guest::{
        process::spawn,
        tools::{control, RefusalsAllowed, GPU, MIB},
        uvm,
    },
    random::Random,
    standin::{self, Heap, KernelLog},
    sys,
};

/// The cost of each context of a tenant beside its objects and channels: 4,416 KiB.
const CONTEXT: u64 = 4416 << 10;
/// And what it costs to have any: with it the first one costs 7,744 KiB.
const ANY_CONTEXT: u64 = 3328 << 10;
/// How long threads go on before they stand still.
const ROUND_MS: u64 = 1500;

/// The length and kind of a storm.
#[derive(Debug, Clone, Copy)]
pub struct StormSettings {
    /// How long.
    pub seconds: u64,
    /// The seed of the random numbers; `None`: any.
    pub seed: Option<u64>,
    /// Let allocations in the module fail (a kernel with fault injection).
    pub fail: bool,
}

/// Counts and findings.
#[derive(Debug, Default, Serialize)]
pub struct StormReport {
    /// The seed of the random numbers.
    pub seed: u64,
    /// Times that all threads stood still.
    pub rounds: u64,
    /// Of them, how often charge and heap had to be equal, and were.
    pub equal: u64,
    /// Processes killed while they called.
    pub kills: u64,
    /// Changes of a limit.
    pub limits: u64,
    /// Calls for memory that were granted.
    pub granted: u64,
    /// Calls for memory that were refused.
    pub refused: u64,
    /// All calls.
    pub calls: u64,
    /// The most that was charged when all stood still, bytes.
    pub most_charged: u64,
    /// Allocations and copies of the module's that were made to fail.
    pub injected: u64,
    /// Findings that must not be.
    pub wrong: Vec<String>,
    /// Lines of the kernel's log that tell of a fault in the kernel.
    pub kernel_warnings: usize,
}

impl StormReport {
    /// Whether enough has happened for it to say something.
    pub fn says_something(&self) -> bool {
        self.granted > 0 && self.refused > 0 && self.kills > 0
    }
}

/// One tenant, as it is seen from outside.
struct Tenant {
    name: &'static str,
    folder: String,
    limit: u64,
    /// The limit, or what was charged when it was lowered, as long as that is more.
    allowance: u64,
}

struct Storm {
    control: Control,
    board: &'static Board,
    tenants: Vec<Tenant>,
    pids: [i32; SEATS],
    random: Random,
    settings: StormSettings,
    /// The heap before.
    idle: Heap,
    idle_contexts: u64,
    setting: worker::Setting,
    report: StormReport,
}

fn contexts() -> Result<u64, String> {
    let values = standin::read("heap")?;
    Ok(standin::number(&values, &format!("gpu{GPU}_contexts")))
}

fn total(instance: &uapi::Instance) -> u64 {
    instance.memory_used_bytes + instance.memory_overhead_bytes + instance.memory_reserved_bytes
}

impl Storm {
    /// One instance; where allocations fail, the question may fail, too.
    fn get(&self, tenant: usize) -> Result<uapi::Instance, String> {
        let name = self.tenants[tenant].name;
        self.patiently(&format!("get {name}"), || self.control.get(name, GPU))
    }

    /// The range of the charge for contexts and page tables together: of the tables, each context
    /// has some in its own price, as far as its tenant has so many.
    fn invisible(&self, heap: &Heap, shared: u64) -> Result<RangeInclusive<u64>, String> {
        const IN_CONTEXT: u64 = 96 << 10;
        let contexts = contexts()? - self.idle_contexts;
        let idle = self.idle.tables + self.idle.ranges;
        let tables = heap.tables + heap.ranges - idle;
        let least = contexts * CONTEXT + heap.pools - self.idle.pools + shared;
        let beyond = tables.saturating_sub(contexts * IN_CONTEXT);
        Ok(least + beyond..=least + tables)
    }

    fn patiently<T>(&self, what: &str, ask: impl Fn() -> Result<T, i32>) -> Result<T, String> {
        let mut answer = ask();
        for _ in 0..1000 {
            match answer {
                Err(libc::ENOMEM | libc::EFAULT) if self.settings.fail => answer = ask(),
                _ => break,
            }
        }
        answer.map_err(|e| format!("{what}: errno {e}"))
    }

    fn wrong(&mut self, what: String) {
        eprintln!("storm: {what}");
        if self.report.wrong.len() < 20 {
            self.report.wrong.push(what);
        }
    }

    /// Puts a process where there is none.
    fn seat(&mut self, seat: usize) -> Result<(), String> {
        let tenant = &self.tenants[seat / PROCESSES];
        let (board, seed, setting) = (self.board, self.random.next(), self.setting);
        board.seats[seat].still.store(0, Relaxed);
        for memory in &board.seats[seat].memory {
            memory.store(0, Relaxed);
        }
        let pid = spawn(|| worker::run(board, seat, &tenant.folder, seed, setting));
        self.pids[seat] = pid.map_err(|e| format!("fork: errno {e}"))?;
        Ok(())
    }

    fn kill(&mut self, seat: usize) -> Result<(), String> {
        sys::kill(self.pids[seat], libc::SIGKILL).map_err(|e| format!("kill: errno {e}"))?;
        let status = sys::wait(self.pids[seat]).map_err(|e| format!("wait: errno {e}"))?;
        if status != libc::SIGKILL {
            self.wrong(format!("a process had ended with status {status:#x}"));
        }
        Ok(())
    }

    fn set_limit(&mut self, tenant: usize) -> Result<(), String> {
        let usual = TENANTS[tenant].1;
        let limit = match self.random.below(3) {
            0 => usual,
            1 => usual / 4,
            _ => (self.random.below(usual / MIB) + 1) * MIB,
        };
        let name = self.tenants[tenant].name;
        self.patiently("set-mem", || self.control.set_memory(name, GPU, limit))?;
        // The present charge was granted under the former limit at the latest.
        let charged = total(&self.get(tenant)?);
        let tenant = &mut self.tenants[tenant];
        tenant.limit = limit;
        tenant.allowance = limit.max(charged);
        self.report.limits += 1;
        Ok(())
    }

    /// Nobody has more than it may.
    fn watch(&mut self) -> Result<(), String> {
        let heap = standin::heap(GPU)?;
        let all: u64 = self.tenants.iter().map(|tenant| tenant.allowance).sum();
        let held = heap.used - self.idle.used;
        if held > all {
            self.wrong(format!("the heap holds {held} bytes, all may have {all}"));
        }
        for number in 0..self.tenants.len() {
            let instance = self.get(number)?;
            let charged = total(&instance);
            let tenant = &mut self.tenants[number];
            let (name, allowance) = (tenant.name, tenant.allowance);
            tenant.allowance = tenant.limit.max(charged.min(allowance));
            if charged > allowance {
                self.wrong(format!("{name} is charged {charged}, may have {allowance}"));
            }
        }
        Ok(())
    }

    /// Lets all threads stand still, and compares.
    fn compare(&mut self, exact: bool) -> Result<(), String> {
        self.board.pause.store(1, Relaxed);
        let mut patience = 6000;
        while self
            .board
            .seats
            .iter()
            .any(|s| s.still.load(Relaxed) < THREADS)
        {
            patience -= 1;
            if patience == 0 {
                return Err("a thread does not come to a standstill".into());
            }
            sys::sleep_ms(10);
        }
        // Files of processes that were killed are put away by the kernel a moment later.
        let mut seen = (0, 0, 0);
        let mut invisible = 0..=0;
        for turn in 0..3000 {
            let heap = standin::heap(GPU)?;
            let mut charged = (0, 0, 0);
            // The cost of having any context is charged to each tenant that has one.
            let mut shared = 0;
            for tenant in 0..self.tenants.len() {
                let instance = self.get(tenant)?;
                charged.0 += instance.memory_used_bytes;
                charged.1 += instance.memory_overhead_bytes;
                charged.2 += instance.memory_reserved_bytes;
                // Page tables alone are far from as much.
                shared += u64::from(instance.memory_overhead_bytes >= CONTEXT) * ANY_CONTEXT;
            }
            let held = heap.used - self.idle.used;
            self.report.most_charged = self.report.most_charged.max(charged.0);
            seen = charged;
            invisible = self.invisible(&heap, shared)?;
            let enough = charged.0 >= held && charged.1 >= *invisible.start() && charged.2 == 0;
            let same = charged.0 == held && invisible.contains(&charged.1) && charged.2 == 0;
            if same || !exact && enough && turn > 100 {
                break;
            }
            sys::sleep_ms(20);
        }
        let held = standin::heap(GPU)?.used - self.idle.used;
        let what = format!("charged {seen:?}, held {held} and invisibly {invisible:?}");
        if seen.0 < held || seen.1 < *invisible.start() || seen.2 != 0 {
            self.wrong(format!("less than there is: {what}"));
        } else if exact && (seen.0 != held || !invisible.contains(&seen.1)) {
            self.wrong(format!("not equal: {what}"));
        } else if exact {
            self.report.equal += 1;
        }
        self.report.rounds += 1;
        self.board.pause.store(0, Relaxed);
        Ok(())
    }

    fn round(&mut self, number: u64) -> Result<(), String> {
        let wild = number % 3 == 2;
        self.board.wild.store(u32::from(wild), Relaxed);
        let until = std::time::Instant::now() + std::time::Duration::from_millis(ROUND_MS);
        while std::time::Instant::now() < until {
            sys::sleep_ms(5 + self.random.below(25));
            match self.random.below(8) {
                0..=2 => {
                    let seat = self.random.index(SEATS);
                    self.kill(seat)?;
                    self.report.kills += 1;
                    self.seat(seat)?;
                }
                3 => self.set_limit(self.random.clone().index(TENANTS.len()))?,
                _ => self.watch()?,
            }
        }
        self.compare(!wild && !self.settings.fail)?;
        if wild {
            // Memory that was freed under others' hands stays charged until its client goes.
            for seat in 0..SEATS {
                self.kill(seat)?;
                self.seat(seat)?;
            }
        }
        Ok(())
    }

    fn blow(&mut self) -> Result<(), String> {
        for seat in 0..SEATS {
            self.seat(seat)?;
        }
        let began = std::time::Instant::now();
        let mut number = 0;
        while began.elapsed().as_secs() < self.settings.seconds || number < 3 {
            self.round(number)?;
            number += 1;
        }
        Ok(())
    }

    /// Every process ends: nothing is left.
    fn end(&mut self) -> Result<(), String> {
        for seat in 0..SEATS {
            if self.pids[seat] != 0 {
                self.kill(seat)?;
            }
        }
        let mut left = String::new();
        for _ in 0..3000 {
            left.clear();
            for tenant in 0..self.tenants.len() {
                let i = self.get(tenant)?;
                if total(&i) + u64::from(i.processes + i.open_files + i.tenant_open_files) > 0 {
                    left += &format!(
                        "{} has {} bytes, {} of contexts, {} reserved, {} processes; ",
                        self.tenants[tenant].name,
                        i.memory_used_bytes,
                        i.memory_overhead_bytes,
                        i.memory_reserved_bytes,
                        i.processes
                    );
                }
            }
            let heap = standin::heap(GPU)?;
            let same = (heap.used, heap.overhead) == (self.idle.used, self.idle.overhead);
            if !same {
                left += &format!("the heap is {heap:?}, was {:?}", self.idle);
            }
            if left.is_empty() {
                return Ok(());
            }
            sys::sleep_ms(20);
        }
        self.wrong(format!("left at the end: {left}"));
        Ok(())
    }
}

/// Runs the storm.
pub fn run(settings: StormSettings) -> Result<StormReport, String> {
    control::mount_cgpufs()?;
    let _rate = RefusalsAllowed::set(0)?;
    let mut log = KernelLog::from_now();
    let control = control()?;
    let gpus = control.gpus().map_err(|e| format!("GPUs: errno {e}"))?;
    let gpu = gpus.iter().find(|gpu| gpu.minor == GPU).ok_or("no GPU")?;
    let setting = worker::Setting {
        minor: GPU,
        device_instance: gpu.device_instance,
        uuid: uvm::uuid(GPU)?,
    };
    let seed = settings.seed.unwrap_or_else(Random::seed);
    eprintln!("storm: seed {seed:#x}");
    let mut tenants = Vec::new();
    for (name, limit) in TENANTS {
        let made = control.create(name, GPU, limit, 1);
        made.map_err(|e| format!("{name}: errno {e}"))?;
        tenants.push(Tenant {
            name,
            folder: control::folder(name),
            limit,
            allowance: limit,
        });
    }
    let mut storm = Storm {
        control,
        board: sys::shared()?,
        tenants,
        pids: [0; SEATS],
        random: Random(seed),
        settings,
        idle: standin::heap(GPU)?,
        idle_contexts: contexts()?,
        setting,
        report: StormReport {
            seed,
            ..StormReport::default()
        },
    };
    let injection = settings.fail.then(Injection::start).transpose()?;
    let blown = storm.blow();
    if let Some(injection) = injection {
        storm.report.injected = injection.stop()?;
        if storm.report.injected == 0 {
            storm.wrong("no allocation of the module was made to fail".into());
        }
    }
    storm.settings.fail = false;
    storm.end()?;
    blown?;
    for (name, _) in TENANTS {
        if let Err(e) = storm.control.destroy(name, GPU) {
            storm.wrong(format!("{name} cannot be removed: errno {e}"));
        }
    }
    let wrong = storm.board.wrong.load(Relaxed);
    if wrong != 0 {
        storm.wrong(format!("a worker saw what must not be: {wrong}"));
    }
    standin::reset("unanswered")?;
    let mut report = storm.report;
    report.calls = storm.board.calls.load(Relaxed);
    report.granted = storm.board.granted.load(Relaxed);
    report.refused = storm.board.refused.load(Relaxed);
    report.kernel_warnings = log.tell_faults();
    Ok(report)
}
