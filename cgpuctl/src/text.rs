// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Text for people: tables, pairs of label and value, and lists in a sentence.

use std::fmt::Display;
use tabled::{
    builder::Builder,
    settings::{Padding, Style},
};

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
