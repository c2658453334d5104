// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The result of a command: text for people, or one JSON object for programs.
//!
//! Results go to stdout, warnings and errors to stderr. Only `doctor` has colors.

use crate::{
    error::{Failure, Problem},
    exit::Exit,
};
use nix::errno::Errno;
use serde::Serialize;
use std::io::Write;

/// Number of the schema of docs/json.md. It changes only if a key changes its meaning or goes away.
const SCHEMA: u32 = 1;

/// A JSON object: the schema's number beside the members of a command.
#[derive(Serialize)]
struct Document<T> {
    schema: u32,
    #[serde(flatten)]
    body: T,
}

/// The members of a failed command.
#[derive(Serialize)]
struct ErrorObject {
    error: ErrorMembers,
}

#[derive(Serialize)]
struct ErrorMembers {
    cause: &'static str,
    exit_code: u8,
    message: String,
}

/// The result of a command, in both forms.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// For people, with a newline at its end unless it is empty.
    pub text: String,
    /// For programs: one object.
    pub json: String,
    /// For both, on stderr.
    pub warnings: Vec<String>,
    /// How the command ends.
    pub exit: Exit,
}

impl Report {
    /// A result without warnings. `body` becomes the object, beside the schema's number.
    pub fn new(body: impl Serialize, text: String) -> Result<Self, Problem> {
        // Records of numbers and text always become JSON; if ever not, that is a failed output.
        let document = Document {
            schema: SCHEMA,
            body,
        };
        let json = serde_json::to_string_pretty(&document)
            .map_err(|_| Problem::Output { errno: Errno::EIO })?;
        Ok(Self {
            text,
            json,
            warnings: vec![],
            exit: Exit::Done,
        })
    }

    /// The same with another end.
    pub fn ending(mut self, exit: Exit) -> Self {
        self.exit = exit;
        self
    }

    /// The same with warnings.
    pub fn warn(mut self, warnings: Vec<String>) -> Self {
        self.warnings = warnings;
        self
    }
}

/// Tells a warning.
pub fn warn(err: &mut dyn Write, warning: &str) {
    // Nothing is left to tell it to if stderr is closed.
    let _ = writeln!(err, "cgpuctl: warning: {warning}");
}

/// How a JSON object is laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// For readers, in many lines.
    Pretty,
    /// One line, as each of those that a command has printed before it.
    Line,
}

/// The JSON object of a failure.
pub fn failure(failure: &Failure, layout: Layout) -> Result<String, Problem> {
    let error = ErrorMembers {
        cause: failure.problem.slug(),
        exit_code: failure.problem.exit().code(),
        message: failure.to_string(),
    };
    let document = Document {
        schema: SCHEMA,
        body: ErrorObject { error },
    };
    let json = match layout {
        Layout::Pretty => serde_json::to_string_pretty(&document),
        Layout::Line => serde_json::to_string(&document),
    };
    json.map_err(|_| Problem::Output { errno: Errno::EIO })
}
