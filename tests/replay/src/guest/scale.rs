// SPDX-License-Identifier: GPL-2.0
//! `scale`: very many objects in one client, all instances that a GPU can have, very many
//! processes.
//!
//! The charge must be right all the time, and nothing may be left. How long things take is
//! told as ratios of one run, and is no matter of passing: the stand-in driver has its own ways of
//! being slow.

use std::time::Instant;

use serde::Serialize;

use crate::{
    control::{self, folder, Control},
    guest::{
        process::spawn,
        rm::{Client, DEVICE_HANDLE},
        tools::{control, sys},
    },
    standin::{self, KernelLog},
    sys as os,
};

const GPU: u32 = 0;
const NAME: &str = "scale";
const FIRST: u32 = 0x6000_0000;
/// The memory of the smallest object.
const SMALL: u64 = 64 << 10;
const LIMIT: u64 = 64 << 30;

/// Counts and findings.
#[derive(Debug, Default, Serialize)]
pub struct ScaleReport {
    /// Objects of one client.
    pub objects: u32,
    /// Microseconds for each of the first tenth of them, and of the last.
    pub made_us: (f64, f64),
    /// The second over the first.
    pub made_ratio: f64,
    /// Microseconds for each object that was freed with its parent.
    pub freed_us: f64,
    /// Instances at the same time.
    pub instances: u32,
    /// Processes at the same time.
    pub processes: u32,
    /// Findings that must not be.
    pub wrong: Vec<String>,
    /// Lines of the kernel's log that tell of a fault in the kernel.
    pub kernel_warnings: usize,
}

struct Scale {
    control: Control,
    device_instance: u32,
    report: ScaleReport,
}

impl Scale {
    fn open(&self, name: &str) -> Result<Client, String> {
        let client = Client::open(&folder(name), GPU, self.device_instance);
        client.map_err(|e| format!("client of {name}: {e}"))
    }

    fn expect(&mut self, name: &str, what: &str, used: u64) -> Result<(), String> {
        let seen = sys("get", self.control.get(name, GPU))?;
        if (seen.memory_used_bytes, seen.memory_reserved_bytes) != (used, 0) {
            let seen = seen.memory_used_bytes;
            self.report
                .wrong
                .push(format!("{what}: {name} is charged {seen}, not {used}"));
        }
        Ok(())
    }

    fn objects(&mut self, count: u32) -> Result<(), String> {
        let heap = standin::heap(GPU)?.used;
        sys("instance", self.control.create(NAME, GPU, LIMIT, 1))?;
        let client = self.open(NAME)?;
        let tenth = (count / 10).max(1);
        let mut times = (0.0, 0.0);
        for start in (0..count).step_by(usize::try_from(tenth).unwrap_or(1)) {
            let end = count.min(start + tenth);
            let began = Instant::now();
            for number in start..end {
                let made = client.memory(FIRST + number, SMALL);
                made.map_err(|e| format!("object {number}: {e}"))?;
            }
            let each = began.elapsed().as_secs_f64() * 1e6 / f64::from(end - start);
            times = (if start == 0 { each } else { times.0 }, each);
        }
        let used = u64::from(count) * SMALL;
        self.expect(NAME, "all objects", used)?;
        // One in the midst of them.
        let freed = client.free(FIRST + count / 2);
        freed.map_err(|e| format!("free of one: {e}"))?;
        self.expect(NAME, "all but one", used - SMALL)?;
        let began = Instant::now();
        let freed = client.free(DEVICE_HANDLE);
        freed.map_err(|e| format!("free of all: {e}"))?;
        self.report.freed_us = began.elapsed().as_secs_f64() * 1e6 / f64::from(count);
        self.expect(NAME, "after the parent's free", 0)?;
        client.close();
        sys("destroy", self.control.destroy(NAME, GPU))?;
        if standin::heap(GPU)?.used != heap {
            self.report.wrong.push("the heap is not what it was".into());
        }
        self.report.objects = count;
        self.report.made_us = times;
        self.report.made_ratio = times.1 / times.0;
        Ok(())
    }

    fn instances(&mut self) -> Result<(), String> {
        let most = u32::try_from(cgpu_uapi::MAX_INSTANCES_PER_GPU).unwrap_or(0);
        let names: Vec<String> = (0..most).map(|n| format!("{NAME}{n}")).collect();
        for name in &names {
            sys(name, self.control.create(name, GPU, LIMIT / 64, 1))?;
        }
        let one_more = self.control.create("one-more", GPU, LIMIT / 64, 1);
        if one_more.is_ok() {
            self.report
                .wrong
                .push("there is room for one more instance".into());
            sys("destroy", self.control.destroy("one-more", GPU))?;
        }
        let mut clients = Vec::new();
        for (name, size) in names.iter().zip(1..) {
            let client = self.open(name)?;
            let made = client.memory(FIRST, size * SMALL);
            made.map_err(|e| format!("memory of {name}: {e}"))?;
            clients.push(client);
        }
        for (name, size) in names.iter().zip(1..) {
            // 2 MiB and more is charged in steps of 2 MiB.
            let used = match size * SMALL {
                size if size >= 2 << 20 => size.next_multiple_of(2 << 20),
                size => size,
            };
            self.expect(name, "each has its own", used)?;
        }
        for (client, name) in clients.into_iter().zip(&names) {
            client.close();
            self.expect(name, "after the close", 0)?;
            sys(name, self.control.destroy(name, GPU))?;
        }
        self.report.instances = most;
        Ok(())
    }

    fn processes(&mut self, count: u32) -> Result<(), String> {
        sys("instance", self.control.create(NAME, GPU, LIMIT, 1))?;
        let clients = cgpu_uapi::Limited::Clients.number();
        let set = self
            .control
            .set_limit(NAME, GPU, clients, u64::from(count) + 1);
        sys("limit of clients", set)?;
        let (folder, instance) = (folder(NAME), self.device_instance);
        let mut pids = Vec::new();
        for _ in 0..count {
            let pid = spawn(|| {
                let Ok(client) = Client::open(&folder, GPU, instance) else {
                    return 1;
                };
                if client.memory(FIRST, SMALL).is_err() {
                    return 2;
                }
                loop {
                    os::sleep_ms(1_000_000);
                }
            });
            pids.push(sys("fork", pid)?);
        }
        let mut seen = 0;
        for _ in 0..6000 {
            let now = sys("get", self.control.get(NAME, GPU))?;
            seen = now.processes;
            if seen == count && now.memory_used_bytes == u64::from(count) * SMALL {
                break;
            }
            os::sleep_ms(20);
        }
        if seen != count {
            self.report
                .wrong
                .push(format!("{seen} of {count} processes"));
        }
        self.expect(NAME, "all processes", u64::from(count) * SMALL)?;
        for &pid in &pids {
            sys("kill", os::kill(pid, libc::SIGKILL))?;
        }
        for &pid in &pids {
            let status = sys("wait", os::wait(pid))?;
            if status != libc::SIGKILL {
                let what = format!("a process ended with status {status:#x}");
                self.report.wrong.push(what);
            }
        }
        for _ in 0..250 {
            let now = sys("get", self.control.get(NAME, GPU))?;
            if now.processes + now.open_files + now.tenant_open_files == 0 {
                break;
            }
            os::sleep_ms(20);
        }
        self.expect(NAME, "after their end", 0)?;
        sys("destroy", self.control.destroy(NAME, GPU))?;
        self.report.processes = count;
        Ok(())
    }
}

/// Runs all three.
pub fn run(objects: u32, processes: u32) -> Result<ScaleReport, String> {
    control::mount_cgpufs()?;
    let mut log = KernelLog::from_now();
    let control = control()?;
    let gpus = sys("GPUs", control.gpus())?;
    let gpu = gpus.iter().find(|gpu| gpu.minor == GPU).ok_or("no GPU")?;
    let mut scale = Scale {
        device_instance: gpu.device_instance,
        control,
        report: ScaleReport::default(),
    };
    scale.objects(objects)?;
    scale.instances()?;
    scale.processes(processes)?;
    let mut report = scale.report;
    report.kernel_warnings = log.tell_faults();
    Ok(report)
}
