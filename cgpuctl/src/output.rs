// SPDX-License-Identifier: GPL-2.0 OR MIT
//! What a command says: a table or lines for people, or one JSON object for programs.
//!
//! Results go to stdout, warnings and errors to stderr. Nothing is colored.

use crate::error::{Failure, Problem};
use crate::exit::Exit;
use crate::json::{self, Document};
use nix::errno::Errno;
use serde::Serialize;
use std::fmt::Display;
use tabled::builder::Builder;
use tabled::settings::{Padding, Style};

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
        let json = serde_json::to_string_pretty(&Document::new(body))
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

/// The object that stands for a failure.
pub fn failure(failure: &Failure) -> Result<String, Problem> {
    Ok(Report::new(json::Error::from(failure), String::new())?.json)
}

/// A table of left-aligned columns; the head is the first row.
pub fn table<const N: usize>(
    head: [&str; N],
    rows: impl IntoIterator<Item = [String; N]>,
) -> String {
    let mut builder = Builder::default();
    builder.push_record(head);
    for row in rows {
        builder.push_record(row);
    }
    let mut table = builder.build();
    table.with(Style::empty()).with(Padding::new(0, 2, 0, 0));
    lines(table.to_string().lines().map(str::trim_end))
}

/// Label and value pairs, one per line, the values in one column.
pub fn pairs<const N: usize>(pairs: [(&str, String); N]) -> String {
    let width = pairs
        .iter()
        .map(|(label, _)| label.len())
        .max()
        .unwrap_or(0);
    lines(
        pairs
            .iter()
            .map(|(label, value)| format!("{label:width$}  {value}")),
    )
}

/// Each with a newline behind it.
pub fn lines<T: AsRef<str>>(lines: impl IntoIterator<Item = T>) -> String {
    lines.into_iter().fold(String::new(), |mut text, line| {
        text.push_str(line.as_ref());
        text.push('\n');
        text
    })
}

/// "a", "a and b", "a, b and c".
pub fn enumerate<T: Display>(items: &[T], word: &str) -> String {
    let mut text = String::new();
    for (i, item) in items.iter().enumerate() {
        if i > 0 {
            text.push_str(if i + 1 == items.len() { " " } else { ", " });
            if i + 1 == items.len() {
                text.push_str(word);
                text.push(' ');
            }
        }
        text.push_str(&item.to_string());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_read_like_english() {
        assert_eq!(enumerate::<u32>(&[], "and"), "");
        assert_eq!(enumerate(&[0], "and"), "0");
        assert_eq!(enumerate(&[0, 1], "or"), "0 or 1");
        assert_eq!(enumerate(&[0, 1, 2], "and"), "0, 1 and 2");
    }

    #[test]
    fn columns_line_up_without_trailing_blanks() {
        let rows = [["a".into(), "1".into()], ["long".into(), String::new()]];
        assert_eq!(table(["NAME", "N"], rows), "NAME  N\na     1\nlong\n");
        assert_eq!(
            pairs([("a", "x".into()), ("abc", "y".into())]),
            "a    x\nabc  y\n"
        );
    }
}
