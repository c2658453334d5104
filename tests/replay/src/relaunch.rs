// SPDX-License-Identifier: GPL-2.0
//! Starting again with a fixed address layout, so that the addresses of a recording are free.

use std::{os::unix::process::CommandExt, process::Command};

use crate::sys;

/// Executes this program again without random layout, unless that is so already. Where it cannot be
/// done the program goes on; a recorded address that is taken shows as a mismatch then.
pub fn without_random_layout() {
    if !sys::has_random_layout() || sys::fix_layout().is_err() || sys::has_random_layout() {
        return;
    }
    let mut arguments = std::env::args_os();
    let name = arguments.next().unwrap_or_default();
    let error = Command::new("/proc/self/exe")
        .arg0(name)
        .args(arguments)
        .exec();
    eprintln!("cannot start again without random layout: {error}");
}
