// SPDX-License-Identifier: GPL-2.0 OR MIT
//! `cgpuctl`, the command line tool of cgpu: makes instances (shares of a GPU), changes and shows
//! them, and says how to give them to a container.
//!
//! A command is a function from the host ([`control::Host`], with the control device in it) and its
//! arguments to a [`output::Report`] or an [`error::Failure`]; [`run`] writes either of them.
//! `cgpu-hook`, which container runtimes call, is [`hook`]. Only `client.rs` and `bpf.rs` have unsafe
//! code.

#![deny(unsafe_code)]

#[expect(unsafe_code, reason = "bpf(2)")]
pub mod bpf;
pub mod capabilities;
pub mod cdi;
pub mod cli;
#[expect(unsafe_code, reason = "ioctl(2)")]
pub mod client;
pub mod command;
pub mod container;
pub mod control;
pub mod doctor;
pub mod error;
pub mod exit;
pub mod hook;
pub mod installation;
pub mod json;
pub mod metrics;
pub mod output;
pub mod selector;
pub mod size;
pub mod system;

use exit::Exit;
use std::io::{ErrorKind, Write};

/// Runs a command: its result to `out`, warnings and errors to `err`.
pub fn run(
    cli: &cli::Cli,
    host: &dyn control::Host,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> Exit {
    let result = match &cli.command {
        cli::Command::Metrics(cli::Metrics {
            listen: Some(address),
        }) => {
            command::metrics::serve(host, *address, None, err).map(|()| output::Report::default())
        }
        cli::Command::Top(args) if command::top::is_live(args, cli.json) => {
            command::top::watch(host, args).map(|()| output::Report::default())
        }
        command => command::run(command, host),
    };
    let (text, exit) = match result {
        Ok(report) => {
            for warning in &report.warnings {
                // Nothing is left to tell it to if stderr is closed.
                let _ = writeln!(err, "cgpuctl: warning: {warning}");
            }
            let text = if cli.json {
                report.json + "\n"
            } else {
                report.text
            };
            (text, report.exit)
        }
        Err(failure) => {
            let _ = writeln!(err, "cgpuctl: {failure}");
            let json = match output::failure(&failure) {
                Ok(json) if cli.json => json + "\n",
                _ => String::new(),
            };
            (json, failure.problem.exit())
        }
    };
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        // A reader that has seen enough, like `head`, is no failure.
        Err(e) if e.kind() != ErrorKind::BrokenPipe => {
            let problem = error::Problem::Output {
                errno: client::errno(&e),
            };
            let _ = writeln!(err, "cgpuctl: {problem}");
            Exit::Failed
        }
        _ => exit,
    }
}
