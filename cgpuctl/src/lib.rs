// SPDX-License-Identifier: GPL-2.0 OR MIT
//! `cgpuctl`, the command line tool of cgpu: makes instances (shares of a GPU), changes and shows
//! them, and prints how to give them to a container.
//!
//! A verb ([`verb::Verb`]) is a function from the host ([`host::Host`], with the control device in
//! it) and its arguments to a [`output::Report`] or an [`error::Failure`]; [`run`] writes either of
//! them. `cgpu-hook`, which container runtimes call, is [`hook`]; `cgpu-runtime`, which
//! stands in front of one, is [`runtime`]. Only `bpf.rs` and `mount_attributes.rs` have
//! unsafe code. What other programs of the host need as well is the crate `cgpu-client`.

#![deny(unsafe_code)]

pub use cgpu_client::{
    capabilities, cdi, client, container, control, files, installation, metrics, size,
};

pub mod args;
#[expect(unsafe_code, reason = "bpf(2)")]
pub mod bpf;
pub mod cli;
pub mod command;
pub mod compute;
pub mod doctor;
pub mod error;
pub mod exit;
pub mod hook;
pub mod host;
pub mod json;
#[expect(unsafe_code, reason = "mount_setattr(2)")]
mod mount_attributes;
pub mod output;
pub mod runtime;
pub mod selector;
mod spawn;
pub mod system;
pub mod text;
pub mod verb;

use exit::Exit;
use output::Layout;
use std::io::{ErrorKind, Write};

/// Runs a command: its result to `out`, warnings and errors to `err`.
pub fn run(
    cli: &cli::Cli,
    host: &dyn host::Host,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> Exit {
    let verb = cli.verb();
    let json = cli.json || verb.wants_json();
    let (result, layout) = match verb.stay(host, json, err) {
        Some(ended) => {
            let report = |exit| output::Report::default().ending(exit);
            (ended.map(report), Layout::Line)
        }
        None => (verb.run(host), Layout::Pretty),
    };
    let (text, exit) = match result.map_err(|failure| failure.during(|| verb.attempt())) {
        Ok(report) => {
            for warning in &report.warnings {
                output::warn(err, warning);
            }
            let text = match json {
                true if report.json.is_empty() => String::new(),
                true => report.json + "\n",
                false => report.text,
            };
            (text, report.exit)
        }
        Err(failure) => {
            let _ = writeln!(err, "cgpuctl: {failure}");
            let json = match output::failure(&failure, layout) {
                Ok(object) if json => object + "\n",
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
