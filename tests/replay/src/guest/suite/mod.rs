// SPDX-License-Identifier: GPL-2.0
//! `suite`: the module's behaviour on a real kernel, one line for each test.
//!
//! Every test runs in a process of its own and makes the instances that it needs. Tests that take
//! the module apart come last.

mod boosts;
mod capabilities;
mod channels;
mod clients;
mod compat;
mod compute;
mod control;
pub(super) mod doorbell;
mod exports;
mod files;
mod handles;
mod isolation;
mod limits;
mod lists;
mod managed;
pub(super) mod mappings;
mod memory;
mod nodes;
mod procfs;
mod reports;
mod scratch;
mod shared_data;
mod tenants;
pub(super) mod turns;
mod unload;
mod uvm;

use super::{instance::clean_up, process::in_child, tools::Test};
use crate::{
    control::mount_cgpufs,
    standin::{self, KernelLog},
};

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
        channels::TESTS,
        limits::TESTS,
        managed::TESTS,
        isolation::TESTS,
        capabilities::TESTS,
        lists::TESTS,
        handles::TESTS,
        clients::TESTS,
        reports::TESTS,
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

/// Runs the tests; whether all passed. With another driver than the stand-in, those are left out
/// that need what only the stand-in has.
pub fn run(filter: &str, with_unload: bool) -> Result<bool, String> {
    mount_cgpufs()?;
    let mut log = KernelLog::from_now();
    let (mut passed, mut failed, mut left_out) = (0, 0, 0);
    println!("suite on {}", standin::machine()?);
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
            Err(e) => match standin::missing(&e) {
                Some(reason) => {
                    left_out += 1;
                    println!("left out {name}: {reason}");
                }
                None => {
                    failed += 1;
                    println!("FAILED  {name}: {e}");
                }
            },
        }
        clean_up();
    }
    if left_out != 0 {
        println!("{left_out} left out: this driver is not the stand-in");
    }
    // The tests ask for things that the stand-in does not know; that is not to be told.
    standin::reset("unanswered")?;
    println!("{passed} passed, {failed} failed");
    Ok(failed == 0 && passed > 0)
}
