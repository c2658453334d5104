// SPDX-License-Identifier: GPL-2.0
//! Shared by the programs of the test machine: verdicts, and words for errors.

use std::fmt::{Debug, Display};

use crate::{control::Control, sys as os};

/// The GPU of tests that need one: its minor number.
pub(super) const GPU: u32 = 0;
/// A mebibyte.
pub(super) const MIB: u64 = 1 << 20;
/// A gibibyte.
pub(super) const GIB: u64 = 1 << 30;

/// The result of a check: nothing, or the reason why it failed.
pub(super) type Verdict = Result<(), String>;

/// A test: its name, and what it does.
pub(super) type Test = (&'static str, fn() -> Verdict);

/// Declares the tests of a file: `"name" => function;`.
macro_rules! tests {
    ($($name:literal => $run:path;)*) => {
        pub(super) const TESTS: &[crate::guest::tools::Test] = &[$(($name, $run)),*];
    };
}
pub(super) use tests;

/// Puts what was attempted in front of an error.
pub(super) fn at<T, E: Display>(what: &str, result: Result<T, E>) -> Result<T, String> {
    result.map_err(|e| format!("{what}: {e}"))
}

/// Puts what was attempted in front of an errno.
pub(super) fn sys<T>(what: &str, result: Result<T, i32>) -> Result<T, String> {
    result.map_err(|e| format!("{what}: errno {e}"))
}

/// Wants two things to be equal.
pub(super) fn equal<T: PartialEq + Debug>(what: &str, seen: &T, wanted: &T) -> Verdict {
    if seen == wanted {
        Ok(())
    } else {
        Err(format!("{what}: {seen:?}, not {wanted:?}"))
    }
}

/// Wants something to hold.
pub(super) fn holds(what: &str, true_: bool) -> Verdict {
    if true_ {
        Ok(())
    } else {
        Err(what.to_owned())
    }
}

/// Wants a call to fail with an errno.
pub(super) fn fails<T: Debug>(what: &str, result: Result<T, i32>, errno: i32) -> Verdict {
    match result {
        Err(seen) if seen == errno => Ok(()),
        other => Err(format!("{what}: {other:?}, not errno {errno}")),
    }
}

/// The control device.
pub(super) fn control() -> Result<Control, String> {
    sys("control device", Control::open())
}

/// Opens a node of an instance, or of the driver, to read and write.
pub(super) fn open_node(folder: &str, node: &str) -> Result<i32, String> {
    let path = format!("{folder}/{node}");
    sys(&path, os::open(&path, libc::O_RDWR | libc::O_CLOEXEC))
}

/// RM's device instance of a GPU.
pub(super) fn device_instance(control: &Control, minor: u32) -> Result<u32, String> {
    let gpus = sys("list of GPUs", control.gpus())?;
    let gpu = gpus.iter().find(|g| g.minor == minor);
    gpu.map(|g| g.device_instance)
        .ok_or_else(|| format!("no GPU with minor {minor}"))
}

/// Whether the host has a second GPU, which some tests need.
pub(super) fn second_gpu(control: &Control) -> Result<Option<u32>, String> {
    let gpus = sys("list of GPUs", control.gpus())?;
    Ok(gpus.iter().map(|g| g.minor).find(|&minor| minor != GPU))
}

/// While this exists the module has another limit of the calls that the driver may refuse in a
/// second.
pub(super) struct RefusalsAllowed(String);

impl RefusalsAllowed {
    const PARAMETER: &'static str = "/sys/module/cgpu_km/parameters/driver_refusals";

    /// Sets the limit; 0: none, for tests that are refused more calls than honest programs.
    pub(super) fn set(rate: u32) -> Result<Self, String> {
        let before = at(Self::PARAMETER, std::fs::read_to_string(Self::PARAMETER))?;
        let rate = rate.to_string();
        at(Self::PARAMETER, std::fs::write(Self::PARAMETER, rate))?;
        Ok(Self(before))
    }
}

impl Drop for RefusalsAllowed {
    fn drop(&mut self) {
        // It was the limit before, so it is one.
        let _ = std::fs::write(Self::PARAMETER, &self.0);
    }
}
