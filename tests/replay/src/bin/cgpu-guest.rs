// SPDX-License-Identifier: GPL-2.0
//! `cgpu-guest`: programs that run in the test VM.

use std::{path::PathBuf, process::ExitCode};

use cgpu_replay::{
    answers,
    guest::{
        attacks, bench, chaos, hammer, inside, pages, race, rm, scale, shut, soak, storm, suite,
        waits, weights,
    },
    orchestrate,
    record::Trace,
    size, standin, sys,
};
use clap::{Parser, Subcommand};

/// Programs for the test VM.
#[derive(Parser)]
#[command(version)]
struct GuestArguments {
    #[command(subcommand)]
    command: GuestCommand,
}

#[derive(Subcommand)]
enum GuestCommand {
    /// The cost of calls on the driver's own nodes and through an instance, by turns, and how that
    /// grows. Prints a JSON object.
    Bench {
        /// Rounds of each side, of which the median is taken.
        #[arg(long, default_value_t = 15)]
        rounds: u32,
        /// Calls of a round.
        #[arg(long, default_value_t = 50)]
        calls: u32,
        /// Most objects of one client.
        #[arg(long, default_value_t = 100_000)]
        objects: u32,
        /// Most processes with a client.
        #[arg(long, default_value_t = 1000)]
        processes: u32,
        /// Each kind of call alone, with a line on stdout for each that was marked (see
        /// tests/vm/profile.py).
        #[arg(long)]
        marked: bool,
        /// Only what it takes to unmap a page; also without the module.
        #[arg(long, conflicts_with = "marked")]
        unmap: bool,
    },
    /// Opens and closes each proxy very often, with forks, copies, passed descriptors, failing
    /// opens and kills, and compares the driver's reference counts. Prints a JSON object.
    Hammer {
        /// Opens of each of the three proxies.
        #[arg(default_value_t = 100_000)]
        count: u64,
    },
    /// Calls whose parameters other threads change meanwhile, through an instance and on the
    /// driver's own nodes. Prints a JSON object.
    Race {
        /// Calls through an instance.
        #[arg(default_value_t = 1_000_000)]
        count: u64,
    },
    /// Very many objects, instances and processes. Prints a JSON object.
    Scale {
        /// Objects of one client.
        #[arg(long, default_value_t = 100_000)]
        objects: u32,
        /// Processes at the same time.
        #[arg(long, default_value_t = 1000)]
        processes: u32,
    },
    /// How long a gate takes to shut, by the number of mappings behind it. Prints a JSON list.
    Shut {
        /// Numbers of mappings, multiples of 8.
        #[arg(default_values_t = [16, 1000, 4096])]
        mappings: Vec<u32>,
    },
    /// Processes of two tenants take and give memory in every way at once and are killed meanwhile.
    /// Prints a JSON object.
    StormMemory {
        /// How long.
        #[arg(long, default_value_t = 60)]
        seconds: u64,
        /// The seed of the random numbers, as the last run printed it.
        #[arg(long, value_parser = seed)]
        seed: Option<u64>,
        /// Let the module's own allocations fail (needs a kernel with fault injection).
        #[arg(long)]
        fail_allocations: bool,
    },
    /// Processes of two tenants map memory, free it under mappings, fork and pass files on. No page
    /// shows another object than the one that was mapped, but on the driver's own nodes, where the
    /// storm comes first. Prints a JSON object.
    StormPages {
        /// How long through instances; a quarter more on the driver's own nodes.
        #[arg(long, default_value_t = 60)]
        seconds: u64,
        /// The seed of the random numbers, as the last run printed it.
        #[arg(long, value_parser = seed)]
        seed: Option<u64>,
    },
    /// The storms, the opens and the cases about compute time over and over; the kernel's memory
    /// must not grow. Prints a JSON object.
    Soak {
        /// How long.
        #[arg(long, default_value_t = 3600)]
        seconds: u64,
    },
    /// The programs' shares of a GPU's compute time under weights and caps, on the stand-in's model
    /// of a GPU. A line of JSON for each case; ends in "N passed, N failed".
    Weights {
        /// Only cases whose names have this in them.
        #[arg(long, default_value = "")]
        only: String,
    },
    /// How long a neighbour waits for a client, a launch and its window while a tenant does its
    /// worst. A line of JSON for each; judges nothing.
    Waits {
        /// Only loads whose names have this in them.
        #[arg(long, default_value = "")]
        only: String,
        /// How long each sort of wait is looked at.
        #[arg(long, default_value_t = 10)]
        seconds: u64,
    },
    /// Tests of the module, one line each; ends in "N passed, N failed".
    Suite {
        /// Only tests whose names have this in them.
        #[arg(long, default_value = "")]
        only: String,
        /// Take the module out at the end.
        #[arg(long)]
        unload: bool,
    },
    /// Attacks of a hostile container on its neighbour: each on the driver's own nodes and
    /// then through an instance, one line each; ends in "N passed, N failed". Needs two GPUs.
    Attacks {
        /// Only attacks whose names have this in them.
        #[arg(long, default_value = "")]
        only: String,
        /// How many other instances have programs that work meanwhile. They are to be unharmed,
        /// which is one more line.
        #[arg(long, default_value_t = 0)]
        beside: u32,
    },
    /// Random and mutated calls, mappings and forks through all proxies, of several processes at
    /// once.
    Storm {
        /// Seconds.
        #[arg(long, default_value_t = 20)]
        seconds: u64,
        /// The seed; by default the clock.
        #[arg(long)]
        seed: Option<u64>,
        /// Processes.
        #[arg(long, default_value_t = 4)]
        processes: u32,
    },
    /// Makes an RM client on an inherited descriptor (the suite executes this).
    #[command(hide = true)]
    UseFd {
        /// The descriptor.
        fd: i32,
    },
    /// Looks at its instance from within a container, as a program of the engine's; a line for each
    /// thing that is as it must be.
    Inside {
        /// Its limit, like 8GiB.
        #[arg(long, value_parser = size::parse)]
        limit: u64,
        /// Minor of its GPU.
        #[arg(long, default_value_t = 0)]
        gpu: u32,
        /// RM's device instance of its GPU.
        #[arg(long, default_value_t = 0)]
        device_instance: u32,
        /// Replay this recording, too.
        #[arg(long)]
        trace: Option<PathBuf>,
        /// Stay, with half of the memory, until killed.
        #[arg(long)]
        hold: bool,
    },
    /// Gives the stand-in driver the answers of recordings, for programs elsewhere that replay
    /// them.
    Answers {
        /// Recordings, plain or xz.
        #[arg(required = true)]
        files: Vec<PathBuf>,
    },
}

/// A number as the programs print it: with 0x, or without.
fn seed(text: &str) -> Result<u64, std::num::ParseIntError> {
    match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16),
        None => text.parse(),
    }
}

fn print(report: &impl serde::Serialize) -> Result<(), String> {
    let text = serde_json::to_string_pretty(report).map_err(|e| e.to_string())?;
    println!("{text}");
    Ok(())
}

fn work(command: GuestCommand) -> Result<bool, String> {
    match command {
        GuestCommand::Bench {
            rounds,
            calls,
            objects,
            processes,
            marked,
            unmap,
        } => {
            if unmap {
                print(&bench::unmap::run(rounds, calls)?)?;
                return Ok(true);
            }
            print(&bench::run(bench::BenchSettings {
                rounds,
                calls,
                objects,
                processes,
                marked,
            })?)?;
            Ok(true)
        }
        GuestCommand::Hammer { count } => {
            let report = hammer::run(count)?;
            print(&report)?;
            for (what, values) in &report.different {
                eprintln!("FAILED {what}: {values}");
            }
            Ok(report.different.is_empty() && report.kernel_warnings == 0)
        }
        GuestCommand::Race { count } => {
            let report = race::run(count)?;
            print(&report)?;
            for what in &report.wrong {
                eprintln!("FAILED {what}");
            }
            Ok(report.wrong.is_empty() && report.kernel_warnings == 0)
        }
        GuestCommand::Scale { objects, processes } => {
            let report = scale::run(objects, processes)?;
            print(&report)?;
            Ok(report.wrong.is_empty() && report.kernel_warnings == 0)
        }
        GuestCommand::Shut { mappings } => {
            print(&shut::run(&mappings)?)?;
            Ok(true)
        }
        GuestCommand::StormMemory {
            seconds,
            seed,
            fail_allocations,
        } => {
            let mut report = storm::run(storm::StormSettings {
                seconds,
                seed,
                fail: fail_allocations,
            })?;
            if !report.says_something() {
                report.wrong.push("too little has happened".into());
            }
            print(&report)?;
            Ok(report.wrong.is_empty() && report.kernel_warnings == 0)
        }
        GuestCommand::StormPages { seconds, seed } => {
            let report = pages::run(seconds, seed)?;
            print(&report)?;
            for what in &report.wrong {
                eprintln!("FAILED {what}");
            }
            Ok(report.wrong.is_empty() && report.kernel_warnings == 0)
        }
        GuestCommand::Soak { seconds } => {
            let report = soak::run(seconds)?;
            print(&report)?;
            Ok(report.wrong.is_empty() && report.grown.is_empty() && report.kernel_warnings == 0)
        }
        GuestCommand::Weights { only } => weights::run(&only),
        GuestCommand::Waits { only, seconds } => waits::run(&only, seconds).map(|()| true),
        GuestCommand::Suite { only, unload } => suite::run(&only, unload),
        GuestCommand::Attacks { only, beside } => attacks::run(&only, beside),
        GuestCommand::Storm {
            seconds,
            seed,
            processes,
        } => chaos::run(seconds, seed, processes),
        GuestCommand::UseFd { fd } => Ok(rm::alloc(fd, 0, 0, 0, rm::ROOT, &mut []).is_ok()),
        GuestCommand::Inside {
            limit,
            gpu,
            device_instance,
            trace,
            hold,
        } => inside::run(&inside::InsideSettings {
            gpu,
            device_instance,
            limit,
            trace,
            hold,
        }),
        GuestCommand::Answers { files } => {
            let traces: Result<Vec<_>, _> = files.iter().map(|f| Trace::read(f)).collect();
            let traces = traces.map_err(|e| e.to_string())?;
            standin::load_answers(&answers::blob(&traces, &orchestrate::merged(&traces)))?;
            Ok(true)
        }
    }
}

fn main() -> ExitCode {
    sys::die_of_closed_pipes();
    sys::raise_fd_limit();
    match work(GuestArguments::parse().command) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(e) => {
            eprintln!("cgpu-guest: {e}");
            ExitCode::FAILURE
        }
    }
}
