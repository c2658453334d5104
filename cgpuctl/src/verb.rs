// SPDX-License-Identifier: GPL-2.0 OR MIT
//! A verb of the command line: what each file of `command/` implements.
//!
//! To add a verb: a file in `command/` with its arguments, their help and this trait (or, for a
//! setting of an instance, [`crate::command::setting::Setting`]), its `mod` line in `command.rs`,
//! its line in the tree in `cli.rs`, and its rows in docs/cgpuctl.md and docs/json.md.

use crate::{error::Failure, exit::Exit, host::Host, output::Report};
use std::io::Write;

/// A verb with its arguments.
pub trait Verb {
    /// The attempt: follows "cannot" in a sentence.
    fn attempt(&self) -> String;

    /// Does it. A failure that does not say what was attempted gets [`Self::attempt`].
    fn run(&self, host: &dyn Host) -> Result<Report, Failure>;

    /// Whether its own options ask for JSON.
    fn wants_json(&self) -> bool {
        false
    }

    /// Does it until the user or a program ends it, and prints as it goes. Tells how it ended.
    /// `None`: [`Self::run`] is meant.
    fn stay(
        &self,
        _host: &dyn Host,
        _json: bool,
        _err: &mut dyn Write,
    ) -> Option<Result<Exit, Failure>> {
        None
    }
}
