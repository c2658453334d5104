// SPDX-License-Identifier: GPL-2.0
//! `replay`: recordings of CUDA programs against an instance or against the stand-in driver.

use std::{path::PathBuf, process::ExitCode};

use cgpu_replay::{
    check,
    record::Trace,
    relaunch,
    run::{self, RunSettings},
    size, sys,
};
use cgpu_uapi as uapi;
use clap::{Parser, Subcommand};

/// Replays recordings of CUDA programs.
#[derive(Parser)]
#[command(version)]
struct ReplayArguments {
    #[command(subcommand)]
    command: ReplayCommand,
}

#[derive(Subcommand)]
enum ReplayCommand {
    /// Replays recordings in the test VM and prints a JSON object.
    ///
    /// Several recordings are merged by their clock, a process for each. Without --direct they run
    /// through an instance that is made for them. Compared are the statuses, with --direct also the
    /// outputs. The exit code is 0 when the replay could be done, whatever it found.
    Run {
        /// Use the driver's own nodes, without the module.
        #[arg(long)]
        direct: bool,
        /// Memory limit of the instance, like 8GiB; the GPU's whole memory if not given.
        #[arg(long, value_parser = size::parse)]
        mem: Option<u64>,
        /// The treatment of managed memory that does not fit: spill, charge or deny.
        #[arg(long, default_value = "spill", value_parser = managed_mode)]
        managed: u32,
        /// The instance's capabilities, like `compute,utility`; the default if not given.
        #[arg(long, value_delimiter = ',')]
        caps: Vec<String>,
        /// Name of the instance.
        #[arg(long, default_value = "replay")]
        name: String,
        /// Say on stderr what does not go as recorded.
        #[arg(long, short)]
        verbose: bool,
        /// Recordings, plain or xz.
        #[arg(required = true)]
        files: Vec<PathBuf>,
    },
    /// Prints what a replay would map in each kind of call, and what it does not know.
    Check {
        /// Recordings, plain or xz.
        #[arg(required = true)]
        files: Vec<PathBuf>,
    },
}

fn managed_mode(text: &str) -> Result<u32, &'static str> {
    let mode = uapi::ManagedMode::from_name(text).ok_or("the modes are spill, charge and deny")?;
    Ok(mode.number())
}

fn read(files: &[PathBuf]) -> Result<Vec<Trace>, String> {
    files
        .iter()
        .map(|f| Trace::read(f).map_err(|e| e.to_string()))
        .collect()
}

/// The bits of capabilities; 0 for none.
fn capabilities(names: &[String]) -> Result<u32, String> {
    let bit = |name: &String| {
        let known = cgpu_uapi::capability::NAMES;
        let found = known.into_iter().find(|(_, known)| known == name);
        found
            .map(|(bit, _)| bit)
            .ok_or_else(|| format!("{name} is no capability"))
    };
    names.iter().try_fold(0, |bits, name| Ok(bits | bit(name)?))
}

fn work(command: ReplayCommand) -> Result<(), String> {
    match command {
        ReplayCommand::Run {
            direct,
            mem,
            managed,
            caps,
            name,
            verbose,
            files,
        } => {
            relaunch::without_random_layout();
            sys::raise_fd_limit();
            sys::stay_on_this_processor();
            let traces = read(&files)?;
            let settings = RunSettings {
                direct,
                limit: mem,
                managed_mode: managed,
                capabilities: capabilities(&caps)?,
                name,
                verbose,
            };
            let summary = run::run(&traces, &settings)?;
            let text = serde_json::to_string_pretty(&summary).map_err(|e| e.to_string())?;
            println!("{text}");
        }
        ReplayCommand::Check { files } => {
            for trace in read(&files)? {
                println!("{}: {} calls", trace.name, trace.records.len());
                for (title, row) in check::check(&trace) {
                    let unknown = row.unknown.map_or_else(String::new, |u| format!("  ! {u}"));
                    println!("{:6}  {title}: {}{unknown}", row.count, row.mapped);
                }
            }
        }
    }
    Ok(())
}

fn main() -> ExitCode {
    sys::die_of_closed_pipes();
    match work(ReplayArguments::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("replay: {e}");
            ExitCode::FAILURE
        }
    }
}
