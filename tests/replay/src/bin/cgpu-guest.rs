// SPDX-License-Identifier: GPL-2.0
//! `cgpu-guest`: programs that run in the test VM.

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use cgpu_replay::guest::hammer;
use cgpu_replay::sys;

/// Programs for the test VM.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Opens and closes each proxy very often, with forks, copies, passed descriptors, failing opens
    /// and kills, and compares the driver's reference counts. Prints a JSON object.
    Hammer {
        /// Opens of each of the three proxies.
        #[arg(default_value_t = 100_000)]
        count: u64,
    },
}

fn work(command: Command) -> Result<bool, String> {
    match command {
        Command::Hammer { count } => {
            let report = hammer::run(count)?;
            let text = serde_json::to_string_pretty(&report).map_err(|e| e.to_string())?;
            println!("{text}");
            Ok(report.different.is_empty() && report.kernel_warnings == 0)
        }
    }
}

fn main() -> ExitCode {
    sys::die_of_closed_pipes();
    sys::raise_fd_limit();
    match work(Arguments::parse().command) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(e) => {
            eprintln!("cgpu-guest: {e}");
            ExitCode::FAILURE
        }
    }
}
