// SPDX-License-Identifier: GPL-2.0 OR MIT
//! `completions`.

use crate::{error::Problem, output::Report};
use clap::{Args, Command};
use clap_complete::Shell;
use serde::Serialize;

/// Print a script that completes this tool's command lines.
#[derive(Args)]
#[command(after_help = "Examples:\n  cgpuctl completions bash >/etc/bash_completion.d/cgpuctl")]
pub(crate) struct Completions {
    /// For which shell.
    shell: Shell,
}

#[derive(Serialize)]
struct CompletionsMembers {
    shell: String,
    script: String,
}

impl Completions {
    /// The script for this grammar.
    pub(crate) fn report(&self, grammar: &mut Command) -> Result<Report, Problem> {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, grammar, "cgpuctl", &mut script);
        let script = String::from_utf8_lossy(&script).into_owned();
        let members = CompletionsMembers {
            shell: self.shell.to_string(),
            script: script.clone(),
        };
        Report::new(members, script)
    }
}
