// SPDX-License-Identifier: GPL-2.0
//! `suite`: the module's behaviour on a real kernel, one line for each test.
//!
//! Every test runs in a process of its own and makes the instances that it needs. Tests that take
//! the module apart come last.

mod boosts;
mod capabilities;
mod clients;
mod compat;
mod compute;
mod control;
pub(super) mod doorbell;
mod exports;
mod files;
mod handles;
mod isolation;
mod lists;
mod managed;
pub(super) mod mappings;
mod memory;
mod nodes;
mod procfs;
mod scratch;
mod shared_data;
mod tenants;
mod turns;
mod unload;
mod uvm;

use std::fmt::Display;

use cgpu_uapi as uapi;

use super::process::in_child;
use super::rm;
use crate::control::{mount_cgpufs, Control};
use crate::standin::{self, KernelLog};

/// What a test says: nothing, or why it failed.
type Outcome = Result<(), String>;
/// A test.
type Test = (&'static str, fn() -> Outcome);

/// The GPU of tests that need one.
pub(super) const GPU: u32 = 0;
/// A mebibyte.
const MIB: u64 = 1 << 20;
/// A gibibyte.
pub(super) const GIB: u64 = 1 << 30;

/// Puts what was being done before an error.
pub(super) fn at<T, E: Display>(what: &str, result: Result<T, E>) -> Result<T, String> {
    result.map_err(|e| format!("{what}: {e}"))
}

/// The same for errnos.
pub(super) fn sys<T>(what: &str, result: Result<T, i32>) -> Result<T, String> {
    result.map_err(|e| format!("{what}: errno {e}"))
}

/// Wants two things to be equal.
fn equal<T: PartialEq + std::fmt::Debug>(what: &str, seen: &T, wanted: &T) -> Outcome {
    if seen == wanted {
        Ok(())
    } else {
        Err(format!("{what}: {seen:?}, not {wanted:?}"))
    }
}

/// Wants something to hold.
fn holds(what: &str, true_: bool) -> Outcome {
    if true_ {
        Ok(())
    } else {
        Err(what.to_owned())
    }
}

/// Wants a call to fail with an errno.
fn fails<T: std::fmt::Debug>(what: &str, result: Result<T, i32>, errno: i32) -> Outcome {
    match result {
        Err(seen) if seen == errno => Ok(()),
        other => Err(format!("{what}: {other:?}, not errno {errno}")),
    }
}

/// The control device.
fn control() -> Result<Control, String> {
    sys("control device", Control::open())
}

/// Where an instance's twins are.
fn folder(name: &str) -> String {
    format!("{}/{name}", uapi::CGPUFS_MOUNT)
}

/// An instance that goes away with this value. Tests hold it over everything that uses it.
pub(super) struct Instance {
    pub(super) control: Control,
    pub(super) name: &'static str,
    gpu: u32,
}

impl Instance {
    pub(super) fn new(name: &'static str, limit: u64) -> Result<Self, String> {
        let control = control()?;
        let made = control.create(name, GPU, limit, 1);
        sys(&format!("create {name}"), made)?;
        Ok(Self {
            control,
            name,
            gpu: GPU,
        })
    }

    fn get(&self) -> Result<uapi::Instance, String> {
        sys("get", self.control.get(self.name, self.gpu))
    }

    fn used(&self) -> Result<u64, String> {
        self.get().map(|i| i.memory_used_bytes)
    }

    fn set_memory(&self, limit: u64) -> Outcome {
        let set = self.control.set_memory(self.name, self.gpu, limit);
        sys("set-mem", set)
    }

    fn folder(&self) -> String {
        folder(self.name)
    }

    /// A program with a client, a device and a subdevice in it.
    pub(super) fn client(&self) -> Result<rm::Client, String> {
        let instance = device_instance(&self.control, self.gpu)?;
        at(
            "client",
            rm::Client::open(&self.folder(), self.gpu, instance),
        )
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        // A test that leaves something open has failed already or is seen by the next one, whose
        // name is taken.
        let _ = self.control.destroy(self.name, self.gpu);
    }
}

/// Whether the host has a second GPU, which some tests need.
fn second_gpu(control: &Control) -> Result<Option<u32>, String> {
    let gpus = sys("list of GPUs", control.gpus())?;
    Ok(gpus.iter().map(|g| g.minor).find(|&minor| minor != GPU))
}

/// RM's device instance of a GPU.
fn device_instance(control: &Control, minor: u32) -> Result<u32, String> {
    let gpus = sys("list of GPUs", control.gpus())?;
    let gpu = gpus.iter().find(|g| g.minor == minor);
    gpu.map(|g| g.device_instance)
        .ok_or_else(|| format!("no GPU with minor {minor}"))
}

/// All tests whose names have `filter` in them.
fn chosen(filter: &str, with_unload: bool) -> Vec<Test> {
    let mut tests: Vec<Test> = Vec::new();
    for group in [
        control::TESTS,
        nodes::TESTS,
        procfs::TESTS,
        files::TESTS,
        mappings::TESTS,
        shared_data::TESTS,
        doorbell::TESTS,
        turns::TESTS,
        compute::TESTS,
        boosts::TESTS,
        memory::TESTS,
        exports::TESTS,
        uvm::TESTS,
        managed::TESTS,
        isolation::TESTS,
        capabilities::TESTS,
        lists::TESTS,
        handles::TESTS,
        clients::TESTS,
        scratch::TESTS,
        tenants::TESTS,
        compat::TESTS,
    ] {
        tests.extend(group);
    }
    if with_unload {
        tests.extend(unload::TESTS);
    }
    tests.retain(|(name, _)| name.contains(filter));
    tests
}

/// The names of all tests.
#[must_use]
pub fn names() -> Vec<&'static str> {
    chosen("", true).into_iter().map(|(name, _)| name).collect()
}

/// Instances that a failed test left behind must not fail the others.
pub(super) fn clean_up() {
    let Ok(control) = Control::open() else { return };
    for instance in control.instances().unwrap_or_default() {
        if let Some(name) = instance.key.name.as_str() {
            let _ = control.destroy(name, instance.key.gpu_minor);
        }
    }
}

/// Runs the tests; whether all passed.
pub fn run(filter: &str, with_unload: bool) -> Result<bool, String> {
    mount_cgpufs()?;
    let mut log = KernelLog::from_now();
    let (mut passed, mut failed) = (0, 0);
    for (name, test) in chosen(filter, with_unload) {
        let mut result = in_child(test);
        let faults = log.faults();
        if let (Ok(()), Some(fault)) = (&result, faults.first()) {
            result = Err(format!("the kernel said: {fault}"));
        }
        match result {
            Ok(()) => {
                passed += 1;
                println!("ok      {name}");
            }
            Err(e) => {
                failed += 1;
                println!("FAILED  {name}: {e}");
            }
        }
        clean_up();
    }
    // The tests ask for things that the stand-in does not know; that is not to be told.
    standin::reset("unanswered")?;
    println!("{passed} passed, {failed} failed");
    Ok(failed == 0 && passed > 0)
}
