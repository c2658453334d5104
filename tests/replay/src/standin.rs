// SPDX-License-Identifier: GPL-2.0
//! The stand-in driver's debugfs (`tests/fake_nvidia/README.md`) and the kernel's log.

use std::{
    collections::BTreeMap,
    fs::{self, File, OpenOptions},
    io::{Read, Write},
    os::unix::fs::OpenOptionsExt,
};

/// Its folder.
pub const DEBUGFS: &str = "/sys/kernel/debug/fake_nvidia";
/// The folder of its parameters.
const PARAMETERS: &str = "/sys/module/fake_nvidia/parameters";

/// A file of `key: value` lines.
pub fn read(file: &str) -> Result<BTreeMap<String, String>, String> {
    let path = format!("{DEBUGFS}/{file}");
    let text = fs::read_to_string(&path).map_err(|e| format!("{path}: {e}"))?;
    Ok(parse(&text))
}

fn parse(text: &str) -> BTreeMap<String, String> {
    text.lines()
        .filter_map(|line| line.split_once(": "))
        .map(|(key, value)| (key.trim().to_owned(), value.trim().to_owned()))
        .collect()
}

/// A number of such a file, 0 where there is none.
pub fn number(values: &BTreeMap<String, String>, key: &str) -> u64 {
    let Some(value) = values.get(key) else {
        return 0;
    };
    match value.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).unwrap_or(0),
        None => value.parse().unwrap_or(0),
    }
}

/// Writes a line to a file, which resets what the file counts. With another driver there is nothing
/// to reset.
pub fn reset(file: &str) -> Result<(), String> {
    if !is_in_reach() {
        return Ok(());
    }
    let path = format!("{DEBUGFS}/{file}");
    fs::write(&path, "0\n").map_err(|e| format!("{path}: {e}"))
}

/// Replaces the answers.
pub fn load_answers(blob: &[u8]) -> Result<(), String> {
    let path = format!("{DEBUGFS}/answers");
    let failed = |e: std::io::Error| format!("{path}: {e}");
    let mut file = OpenOptions::new()
        .write(true)
        .truncate(true)
        .open(&path)
        .map_err(failed)?;
    let written = file.write(blob).map_err(failed)?;
    if written == blob.len() {
        Ok(())
    } else {
        Err(format!("{path}: took {written} of {} bytes", blob.len()))
    }
}

/// Takes the answers out again and tells on stderr what was asked that nobody knew. Both are memory
/// of the stand-in's, which is to hold none when nobody uses it.
pub fn put_away() -> Result<(), String> {
    let path = format!("{DEBUGFS}/unanswered");
    let asked = fs::read_to_string(&path).map_err(|e| format!("{path}: {e}"))?;
    for line in asked.lines().filter(|l| !l.starts_with("total: 0")) {
        eprintln!("unanswered: {line}");
    }
    reset("unanswered")?;
    let path = format!("{DEBUGFS}/answers");
    let opened = OpenOptions::new().write(true).truncate(true).open(&path);
    opened.map(drop).map_err(|e| format!("{path}: {e}"))
}

/// The content of a GPU's heap now, bytes: objects, contexts, managed memory, page tables.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Heap {
    /// Objects.
    pub used: u64,
    /// Contexts.
    pub overhead: u64,
    /// Managed memory.
    pub managed: u64,
    /// Of it, what holds data; the rest is free for whoever needs it.
    pub resident: u64,
    /// Page tables of UVM's address spaces.
    pub tables: u64,
    /// Those of ranges of addresses that were made with them.
    pub ranges: u64,
    /// Pools of groups of channels, which `overhead` has in it.
    pub pools: u64,
    /// Highest `used`.
    pub peak: u64,
    /// Total memory (FB_GET_INFO index 0x08).
    pub total: u64,
}

/// The heap of the GPU with a minor.
pub fn heap(minor: u32) -> Result<Heap, String> {
    let values = read("heap")?;
    let get = |what: &str| number(&values, &format!("gpu{minor}_{what}_bytes"));
    Ok(Heap {
        used: get("used"),
        overhead: get("overhead"),
        managed: get("managed"),
        resident: get("managed_resident"),
        tables: get("tables"),
        ranges: get("range_tables"),
        pools: get("pools"),
        peak: get("peak"),
        total: get("total"),
    })
}

/// Whether the stand-in's files in debugfs can be seen: not from a container.
pub fn is_in_reach() -> bool {
    std::path::Path::new(DEBUGFS).exists()
}

/// The kernel and the driver under the tests, in words that `tests/attacks.py` reads.
pub fn machine() -> Result<String, String> {
    let read = |path: &str| fs::read_to_string(path).map_err(|e| format!("{path}: {e}"));
    let kernel = read("/proc/sys/kernel/osrelease")?;
    let driver = read("/proc/driver/nvidia/version")?;
    let is_version = |word: &&str| word.contains('.') && word.starts_with(char::is_numeric);
    let version = driver.split_whitespace().find(is_version);
    Ok(format!(
        "Linux {}, {} {}",
        kernel.trim(),
        if is_in_reach() { "stand-in" } else { "driver" },
        version.ok_or("the driver does not say its version")?
    ))
}

/// The text before the reason for which a test is left out.
const NOT_HERE: &str = "not with this driver: ";

/// An error unless the driver is the stand-in: the test is left out for this reason.
pub fn needed(reason: &str) -> Result<(), String> {
    if is_in_reach() {
        return Ok(());
    }
    Err(not_here(reason))
}

/// An error for whose reason a test is left out unless the driver is the stand-in.
pub fn not_here(reason: &str) -> String {
    format!("{NOT_HERE}{reason}")
}

/// With another driver: why a test is left out, if its error says so or names a file that only the
/// stand-in has.
pub fn missing(error: &str) -> Option<String> {
    if is_in_reach() {
        return None;
    }
    if let Some((_, reason)) = error.split_once(NOT_HERE) {
        return Some(reason.to_owned());
    }
    let file = |folder: &str| {
        let (_, rest) = error.split_once(folder)?;
        rest.trim_start_matches('/').split([':', ' ']).next()
    };
    let file = file(DEBUGFS).or_else(|| file(PARAMETERS))?;
    Some(format!("needs the stand-in's `{file}`"))
}

/// Does to managed memory what accesses of this process's GPU work would do.
pub fn touch(minor: u32, base: u64, length: u64) -> Result<(), String> {
    let path = format!("{DEBUGFS}/gpu_touch");
    fs::write(&path, format!("{minor} {base:#x} {length:#x}")).map_err(|e| format!("{path}: {e}"))
}

/// Sets one of its parameters.
pub fn parameter(name: &str, value: u32) -> Result<(), String> {
    let path = format!("{PARAMETERS}/{name}");
    fs::write(&path, format!("{value}\n")).map_err(|e| format!("{path}: {e}"))
}

/// Whether GPUs touch managed memory the moment that it is mapped.
pub fn touch_new(on: bool) -> Result<(), String> {
    parameter("touch_new", u32::from(on))
}

/// Whether tasks stay in its fault handler, before the pages are put in.
pub fn hold_faults(on: bool) -> Result<(), String> {
    parameter("hold_faults", u32::from(on))
}

/// Whether tasks stay in its `mmap`, after the pages were put in.
pub fn hold_maps(on: bool) -> Result<(), String> {
    parameter("hold_maps", u32::from(on))
}

/// A switch of the stand-in that is on as long as this lives.
pub struct Switched(fn(bool) -> Result<(), String>);

impl Switched {
    /// Turns it on. The switch is a function like [`hold_maps`].
    pub fn on(switch: fn(bool) -> Result<(), String>) -> Result<Self, String> {
        switch(true)?;
        Ok(Self(switch))
    }
}

impl Drop for Switched {
    fn drop(&mut self) {
        let _ = (self.0)(false);
    }
}

/// Runs `work` while a task that looks for an object without a lock takes a millisecond for it.
/// Returns as well how often the object was freed in that time.
pub fn with_slow_lookup<T>(work: impl FnOnce() -> T) -> Result<(T, u32), String> {
    parameter("freed_in_lookup", 0)?;
    parameter("slow_lookup", 1)?;
    let result = work();
    parameter("slow_lookup", 0)?;
    let path = format!("{PARAMETERS}/freed_in_lookup");
    let freed = fs::read_to_string(&path).map_err(|e| format!("{path}: {e}"))?;
    let freed = freed.trim().parse();
    Ok((result, freed.map_err(|e| format!("{path}: {e}"))?))
}

/// Whether the driver has an interface for other kernel modules that ask from now on.
pub fn kernel_rmapi(on: bool) -> Result<(), String> {
    parameter("kernel_rmapi", u32::from(on))
}

/// Whether its GPUs are joined by NVSwitch.
pub fn fabric(on: bool) -> Result<(), String> {
    parameter("fabric", u32::from(on))
}

/// The kernel's log from now on.
pub struct KernelLog {
    file: Option<File>,
}

/// Words in a line of the kernel's log that report a fault.
const FAULTS: &[&str] = &[
    "BUG:",
    "WARNING:",
    "Oops",
    "general protection fault",
    "refcount_t:",
    "KASAN:",
    "UBSAN:",
    "possible recursive locking",
    "possible circular locking",
    "suspicious RCU usage",
    "INFO: task",
    "sleeping function called",
    "unable to handle",
    "kernel BUG",
    "list_add corruption",
    "list_del corruption",
];

impl KernelLog {
    /// Begins here. Without `/dev/kmsg` there is nothing to read.
    pub fn from_now() -> Self {
        let file = OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_NONBLOCK)
            .open("/dev/kmsg")
            .ok();
        let mut log = Self { file };
        log.lines();
        log
    }

    /// The lines that came since.
    pub fn lines(&mut self) -> Vec<String> {
        let mut lines = Vec::new();
        let Some(file) = &mut self.file else {
            return lines;
        };
        let mut record = [0; 8192];
        loop {
            match file.read(&mut record) {
                Ok(0) => return lines,
                Ok(len) => {
                    let text = String::from_utf8_lossy(&record[..len]);
                    let message = text.split_once(';').map_or(&*text, |(_, m)| m);
                    lines.push(message.lines().next().unwrap_or("").to_owned());
                }
                // The ring was overwritten behind us: what is left can be read.
                Err(e) if e.raw_os_error() == Some(libc::EPIPE) => {}
                Err(_) => return lines,
            }
        }
    }

    /// Of the lines that came since, those that tell of a fault in the kernel.
    pub fn faults(&mut self) -> Vec<String> {
        let mut lines = self.lines();
        lines.retain(|line| is_fault(line));
        lines
    }

    /// Prints the lines of [`KernelLog::faults`], and counts them.
    pub fn tell_faults(&mut self) -> usize {
        let faults = self.faults();
        for line in &faults {
            eprintln!("kernel: {line}");
        }
        faults.len()
    }
}

/// Whether a line of the kernel's log tells of a fault in the kernel.
pub fn is_fault(line: &str) -> bool {
    FAULTS.iter().any(|f| line.contains(f))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debugfs_text_is_parsed() {
        let values = parse("gpu0_used_bytes: 12\nmodule: 0x1f\nnonsense\n");
        assert_eq!(number(&values, "gpu0_used_bytes"), 12);
        assert_eq!(number(&values, "module"), 31);
        assert_eq!(number(&values, "absent"), 0);
    }

    #[test]
    fn faults_are_known_by_their_words() {
        assert!(is_fault("WARNING: CPU: 0 PID: 1 at fs/x.c:1 f+0x1/0x2"));
        assert!(is_fault("BUG: unable to handle page fault for address: 0"));
        assert!(!is_fault("cgpu_km: instance a made"));
    }
}
