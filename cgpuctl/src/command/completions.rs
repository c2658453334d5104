// SPDX-License-Identifier: GPL-2.0 OR MIT
//! `completions`.

use crate::cli::Cli;
use crate::error::Failure;
use crate::json;
use crate::output::Report;
use clap::CommandFactory;
use clap_complete::Shell;

pub(super) fn run(shell: Shell) -> Result<Report, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "cgpuctl", &mut script);
    let script = String::from_utf8_lossy(&script).into_owned();
    let body = json::Completions {
        shell: shell.to_string(),
        script: script.clone(),
    };
    Report::new(body, script).map_err(|problem| problem.when("print the completions"))
}
