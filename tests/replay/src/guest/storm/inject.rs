// SPDX-License-Identifier: GPL-2.0
//! Failing allocations and copies in the module, and nowhere else (the kernel's fault injection).
//!
//! An allocation with the module's code on its stack fails now and then. One with the stand-in
//! driver's code there as well does not, because the driver's failures are not what is to be shown.

use std::fs;

const DEBUGFS: &str = "/sys/kernel/debug";
/// The calls that fail, and how often, per cent.
const KINDS: [(&str, u32); 3] = [
    ("failslab", 8),
    ("fail_page_alloc", 8),
    ("fail_usercopy", 2),
];
/// More often than that nothing fails.
const TIMES: u64 = 1_000_000_000;

/// While this lasts, allocations fail.
pub(super) struct Injection(());

fn set(kind: &str, attribute: &str, value: &str) -> Result<(), String> {
    let path = format!("{DEBUGFS}/{kind}/{attribute}");
    fs::write(&path, format!("{value}\n")).map_err(|e| format!("{path}: {e}"))
}

/// The first and last byte of a module's code, as its symbols have it.
fn code(module: &str) -> Result<(u64, u64), String> {
    let symbols = fs::read_to_string("/proc/kallsyms").map_err(|e| format!("kallsyms: {e}"))?;
    let tag = format!("[{module}]");
    let places = symbols.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        let (place, kind) = (words.next()?, words.next()?);
        let own = line.ends_with(&tag) && matches!(kind, "t" | "T");
        own.then(|| u64::from_str_radix(place, 16).ok()).flatten()
    });
    let places: Vec<u64> = places.filter(|&place| place != 0).collect();
    match (places.iter().min(), places.iter().max()) {
        // Code fills whole pages; the last function ends in its page or the next one.
        (Some(first), Some(last)) => Ok((*first, (*last | 0xfff) + 0x1000)),
        _ => Err(format!("{module} has no symbols")),
    }
}

impl Injection {
    /// Begins.
    pub(super) fn start() -> Result<Self, String> {
        let (module, driver) = (code("cgpu_km")?, code("fake_nvidia")?);
        for (kind, percent) in KINDS {
            for (attribute, value) in [
                ("require-start", format!("{:#x}", module.0)),
                ("require-end", format!("{:#x}", module.1)),
                ("reject-start", format!("{:#x}", driver.0)),
                ("reject-end", format!("{:#x}", driver.1)),
                ("stacktrace-depth", "32".to_owned()),
                ("task-filter", "N".to_owned()),
                ("verbose", "0".to_owned()),
                ("space", "0".to_owned()),
                ("interval", "1".to_owned()),
                ("times", TIMES.to_string()),
            ] {
                set(kind, attribute, &value)?;
            }
            match kind {
                "failslab" => set(kind, "ignore-gfp-wait", "N")?,
                "fail_page_alloc" => {
                    set(kind, "ignore-gfp-wait", "N")?;
                    set(kind, "min-order", "0")?;
                }
                _ => {}
            }
            set(kind, "probability", &percent.to_string())?;
        }
        Ok(Self(()))
    }

    /// Ends; how often something was made to fail.
    pub(super) fn stop(self) -> Result<u64, String> {
        let mut injected = 0;
        for (kind, _) in KINDS {
            set(kind, "probability", "0")?;
            let path = format!("{DEBUGFS}/{kind}/times");
            let text = fs::read_to_string(&path).map_err(|e| format!("{path}: {e}"))?;
            let left: u64 = text.trim().parse().map_err(|e| format!("{path}: {e}"))?;
            eprintln!("storm: {kind}: {} times", TIMES - left);
            injected += TIMES - left;
        }
        Ok(injected)
    }
}
