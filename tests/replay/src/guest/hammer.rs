// SPDX-License-Identifier: GPL-2.0
//! `hammer`: opens and closes every proxy very often, in every way in which a file can come and go,
//! and looks whether the driver's reference counts are where they were.

use std::{collections::BTreeMap, os::unix::net::UnixStream};

use serde::{Deserialize, Serialize};

use crate::{
    control,
    guest::{
        process::{receive_fd, send_fd, spawn},
        rm,
        tools::control,
    },
    layout,
    standin::{self, KernelLog},
    sys,
};

/// Name of the instance that is made.
const NAME: &str = "hammer";
/// Processes that hammer at the same time.
const WORKERS: u32 = 4;
/// Of so many opens the stand-in fails one, when it is told to.
const FAIL_EVERY: u32 = 7;

/// Counts of what was done.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Done {
    /// Opens that worked.
    pub opens: u64,
    /// Opens that failed because the stand-in was told to fail them.
    pub failed_opens: u64,
    /// Processes that were forked with a file open.
    pub forks: u64,
    /// Files that were duplicated.
    pub dups: u64,
    /// Files that were sent over a socket.
    pub passed: u64,
    /// Files that were sent and never received.
    pub abandoned: u64,
    /// Processes that were killed in the middle of something.
    pub kills: u64,
}

impl Done {
    /// Adds what one worker has done.
    fn add(&mut self, part: &Self) {
        self.opens += part.opens;
        self.failed_opens += part.failed_opens;
        self.forks += part.forks;
        self.dups += part.dups;
        self.passed += part.passed;
        self.abandoned += part.abandoned;
    }
}

/// The result.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HammerReport {
    /// Opens of each proxy that were asked for.
    pub count: u64,
    /// The counts of each proxy.
    pub proxies: BTreeMap<String, Done>,
    /// The driver's counts before, and the module's own.
    pub before: BTreeMap<String, String>,
    /// Those that are different afterwards.
    pub different: BTreeMap<String, String>,
    /// Lines of the kernel's log that tell of a fault in the kernel.
    pub kernel_warnings: usize,
}

/// The driver's reference counts and the module's.
fn counts() -> Result<BTreeMap<String, String>, String> {
    let mut counts = BTreeMap::new();
    if standin::is_in_reach() {
        counts = standin::read("refs")?;
        let leaks = standin::read("leaks").unwrap_or_default();
        counts.extend(leaks.into_iter().map(|(k, v)| (format!("leaks_{k}"), v)));
    }
    for module in ["cgpu_km", "fake_nvidia", "nvidia", "nvidia_uvm"] {
        let path = format!("/sys/module/{module}/refcnt");
        if let Ok(text) = std::fs::read_to_string(&path) {
            counts.insert(format!("{module}_refcnt"), text.trim().to_owned());
        }
    }
    Ok(counts)
}

fn different(
    before: &BTreeMap<String, String>,
    after: &BTreeMap<String, String>,
) -> BTreeMap<String, String> {
    let mut all: BTreeMap<String, String> = BTreeMap::new();
    for key in before.keys().chain(after.keys()) {
        let (old, new) = (before.get(key), after.get(key));
        if old != new {
            let text = |v: Option<&String>| v.map_or("absent", String::as_str).to_owned();
            all.insert(key.clone(), format!("{} -> {}", text(old), text(new)));
        }
    }
    all
}

/// Lets the stand-in fail every n-th open; 0 for none. Another driver cannot be told to. Whether
/// opens may fail now.
fn fail_every(n: u32) -> Result<bool, String> {
    lever("fail_open", n)?;
    Ok(n != 0 && standin::is_in_reach())
}

/// Sets a parameter of the stand-in, if it is there.
fn lever(name: &str, value: u32) -> Result<(), String> {
    if standin::is_in_reach() {
        standin::parameter(name, value)
    } else {
        Ok(())
    }
}

/// One worker's part: `rounds` opens of one node, which fail only if they `may_fail`.
fn work(path: &str, rounds: u64, seed: u32, may_fail: bool) -> Result<Done, i32> {
    let mut done = Done::default();
    let (ours, theirs) = UnixStream::pair().map_err(|_| libc::EMFILE)?;
    for round in 0..rounds {
        let way = (round.wrapping_mul(2_654_435_761) >> 8).wrapping_add(u64::from(seed)) % 64;
        let flags = match way {
            0..=3 => libc::O_RDONLY,
            4..=7 => libc::O_RDWR | libc::O_NONBLOCK,
            _ => libc::O_RDWR,
        };
        let fd = match sys::open(path, flags | libc::O_CLOEXEC) {
            Ok(fd) => fd,
            Err(libc::EIO) if may_fail => {
                done.failed_opens += 1;
                continue;
            }
            Err(e) => return Err(e),
        };
        done.opens += 1;
        match way {
            8..=9 => {
                // The child is the last one to hold the file.
                let pid = spawn(|| 0)?;
                sys::close(fd)?;
                sys::wait(pid)?;
                done.forks += 1;
                continue;
            }
            10..=13 => {
                let copy = sys::dup_above(fd, 3)?;
                sys::close(fd)?;
                sys::close(copy)?;
                done.dups += 1;
                continue;
            }
            14..=17 => {
                send_fd(&ours, fd)?;
                sys::close(fd)?;
                drop(receive_fd(&theirs)?);
                done.passed += 1;
                continue;
            }
            18 => {
                let (a, b) = UnixStream::pair().map_err(|_| libc::EMFILE)?;
                send_fd(&a, fd)?;
                sys::close(fd)?;
                drop((a, b));
                done.abandoned += 1;
                continue;
            }
            _ => {}
        }
        sys::close(fd)?;
    }
    Ok(done)
}

/// A process that is killed while it opens, calls, allocates.
fn victim(folder: &str, node: &str) -> i32 {
    let path = format!("{folder}/{node}");
    loop {
        let Ok(fd) = sys::open(&path, libc::O_RDWR) else {
            continue;
        };
        if node == "nvidia-uvm" {
            let _ = sys::ioctl(fd, layout::UVM_INITIALIZE, &mut [0; 16]);
        } else if let Ok(client) = rm::Client::open(folder, 0, 0) {
            for i in 0..8 {
                let _ = client.memory(0x5C00_0100 + i, 2 << 20);
            }
            client.close();
        }
        let _ = sys::close(fd);
    }
}

fn kill_some(folder: &str, node: &str, times: u64) -> Result<u64, String> {
    for i in 0..times {
        // Every fourth one while it waits in the driver's open.
        lever("slow_open_ms", if i % 4 == 3 { 5 } else { 0 })?;
        let pid = spawn(|| victim(folder, node)).map_err(|e| format!("fork: errno {e}"))?;
        std::thread::sleep(std::time::Duration::from_micros(500 + 977 * (i % 16)));
        sys::kill(pid, libc::SIGKILL).map_err(|e| format!("kill: errno {e}"))?;
        sys::wait(pid).map_err(|e| format!("wait: errno {e}"))?;
    }
    lever("slow_open_ms", 0)?;
    Ok(times)
}

/// Hammers one node with several processes at once.
fn hammer(path: &str, count: u64, may_fail: bool) -> Result<Done, String> {
    let file = "/tmp/hammer";
    let mut pids = Vec::new();
    for seed in 0..WORKERS {
        let share =
            count / u64::from(WORKERS) + u64::from(u64::from(seed) < count % u64::from(WORKERS));
        let pid = spawn(|| match work(path, share, seed, may_fail) {
            Ok(done) => {
                let text = serde_json::to_string(&done).unwrap_or_default();
                i32::from(std::fs::write(format!("{file}.{seed}"), text).is_err())
            }
            Err(errno) => errno,
        });
        pids.push(pid.map_err(|e| format!("fork: errno {e}"))?);
    }
    let mut sum = Done::default();
    let mut bad = None;
    for (seed, pid) in pids.into_iter().enumerate() {
        let status = sys::wait(pid).map_err(|e| format!("wait: errno {e}"))?;
        if status != 0 {
            bad = Some(format!(
                "{path}: a worker ended with wait status {status:#x}"
            ));
            continue;
        }
        let name = format!("{file}.{seed}");
        let text = std::fs::read_to_string(&name).map_err(|e| format!("{name}: {e}"))?;
        let part: Done = serde_json::from_str(&text).map_err(|e| e.to_string())?;
        sum.add(&part);
    }
    if let Some(bad) = bad {
        return Err(bad);
    }
    // An open that neither worked nor failed as it was asked to has ended its worker.
    let (opens, failed) = (sum.opens, sum.failed_opens);
    let none_failed = may_fail && count >= u64::from(FAIL_EVERY) && failed == 0;
    if opens + failed != count || opens == 0 && count != 0 || none_failed {
        return Err(format!(
            "{path}: of {count} opens {opens} worked and {failed} failed"
        ));
    }
    Ok(sum)
}

/// Opens each proxy `count` times and compares all counts.
pub fn run(count: u64) -> Result<HammerReport, String> {
    control::mount_cgpufs()?;
    let mut log = KernelLog::from_now();
    let device = control()?;
    let id = device
        .create(NAME, 0, 1 << 30, 1)
        .map_err(|e| format!("instance: errno {e}"))?;
    let folder = control::folder(NAME);
    let result = hammer_all(count, id, &folder);
    let destroyed = device.destroy(NAME, 0);
    let mut report = result?;
    destroyed.map_err(|e| format!("the instance cannot be removed: errno {e}"))?;
    report.kernel_warnings = log.tell_faults();
    Ok(report)
}

fn hammer_all(count: u64, id: u32, folder: &str) -> Result<HammerReport, String> {
    let proxy_nodes = ["nvidia0", "nvidiactl", "nvidia-uvm"];
    let host_nodes = [
        format!("/dev/cgpu{id}"),
        format!("/dev/cgpu-{NAME}-ctl"),
        format!("/dev/cgpu-{NAME}-uvm"),
    ];
    // Once each, so that every inode that will be used is there before the counts are read.
    for path in proxy_nodes
        .map(|n| format!("{folder}/{n}"))
        .iter()
        .chain(&host_nodes)
    {
        let fd = sys::open(path, libc::O_RDWR).map_err(|e| format!("{path}: errno {e}"))?;
        let _ = sys::close(fd);
    }
    sys::sleep_ms(100);
    let mut report = HammerReport {
        count,
        before: counts()?,
        ..HammerReport::default()
    };
    for (proxy_node, host_node) in proxy_nodes.iter().zip(&host_nodes) {
        eprintln!("hammer: {proxy_node}");
        // Nine tenths through the proxy node, one tenth through the host node; half of it with
        // opens that fail in the driver.
        let mut done = Done::default();
        for (path, share, fail) in [
            (&format!("{folder}/{proxy_node}"), count * 5 / 10, 0),
            (
                &format!("{folder}/{proxy_node}"),
                count * 4 / 10,
                FAIL_EVERY,
            ),
            (host_node, count - count * 9 / 10, 0),
        ] {
            let may_fail = fail_every(fail)?;
            let part = hammer(path, share, may_fail);
            fail_every(0)?;
            let part = part?;
            done.add(&part);
        }
        done.kills = kill_some(folder, proxy_node, (count / 1000).clamp(8, 100))?;
        report.proxies.insert((*proxy_node).to_owned(), done);
    }
    // Files in sockets and of killed processes are released by work of the kernel.
    for _ in 0..600 {
        report.different = different(&report.before, &counts()?);
        if report.different.is_empty() {
            break;
        }
        sys::sleep_ms(100);
    }
    Ok(report)
}
