// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Entry point of the hook that container runtimes call.

use cgpuctl::hook::{run, Arguments};
use cgpuctl::system::System;
use clap::Parser;
use std::io::{stderr, stdin};
use std::process::ExitCode;

fn main() -> ExitCode {
    run(
        &Arguments::parse(),
        &System,
        &mut stdin().lock(),
        &mut stderr().lock(),
    )
    .into()
}
