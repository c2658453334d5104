// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Entry point: parse, run, exit.

use cgpuctl::{cli::Cli, run, system::System};
use clap::Parser;
use std::{
    io::{stderr, stdout},
    process::ExitCode,
};

fn main() -> ExitCode {
    let cli = Cli::parse();
    run(&cli, &System, &mut stdout(), &mut stderr()).into()
}
