// SPDX-License-Identifier: GPL-2.0
//! Commands that run in the midst of a CUDA program.

use std::process::Command;

/// Runs the only word, a command for the shell.
pub(crate) fn only_shell(words: &[String]) -> Result<(), String> {
    match words {
        [command] => shell(command),
        _ => Err("one command is wanted".into()),
    }
}

/// Runs a command for the shell, and fails if that does.
pub(crate) fn shell(command: &str) -> Result<(), String> {
    let ended = Command::new("sh").args(["-c", command]).status();
    let ended = ended.map_err(|error| format!("{command}: {error}"))?;
    if ended.success() {
        Ok(())
    } else {
        Err(format!("{command}: {ended}"))
    }
}
