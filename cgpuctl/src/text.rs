// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Text for people: tables, and pairs of label and value.

pub use cgpu_client::text::enumerate;
use tabled::{
    builder::Builder,
    settings::{Padding, Style},
};

/// The text without what would steer a terminal: a program chooses its own name.
pub(crate) fn printable(text: &str) -> String {
    let shown = |c: char| if c.is_control() { '?' } else { c };
    text.chars().map(shown).collect()
}

/// A table of left-aligned columns; the head is the first row.
pub fn table<const N: usize>(
    head: [&str; N],
    rows: impl IntoIterator<Item = [String; N]>,
) -> String {
    aligned(head, rows)
}

/// A column of a list of records.
pub struct Column<T> {
    /// The first row.
    pub head: &'static str,
    /// Which lists have it.
    pub shown: Shown,
    /// The text of a record.
    pub cell: fn(&T) -> String,
}

/// Which lists have a column.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Shown {
    /// All.
    Always,
    /// Those in 80 columns.
    Narrow,
    /// Those that tell everything.
    Wide,
}

/// The table of a list, narrow or wide.
pub fn list_table<T>(columns: &[Column<T>], width: Shown, records: &[T]) -> String {
    let shown = |column: &&Column<T>| column.shown == Shown::Always || column.shown == width;
    let columns: Vec<_> = columns.iter().filter(shown).collect();
    let row = |record| columns.iter().map(move |column| (column.cell)(record));
    aligned(
        columns.iter().map(|column| column.head),
        records.iter().map(row),
    )
}

fn aligned<H: Into<String>>(
    head: impl IntoIterator<Item = H>,
    rows: impl IntoIterator<Item = impl IntoIterator<Item = String>>,
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
pub fn pairs(pairs: &[(&str, String)]) -> String {
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

/// The text in lines of at most so many columns, broken at blanks; all lines but the first are
/// indented. A word that is too long has a line of its own.
pub fn wrapped(text: &str, width: usize, indent: usize) -> String {
    let mut lines = String::new();
    let mut line = String::new();
    for word in text.split_inclusive(' ') {
        let length = |text: &str| text.trim().chars().count();
        if length(&line) > 0 && line.chars().count() + length(word) > width {
            lines.push_str(line.trim_end());
            lines.push('\n');
            line = " ".repeat(indent);
        }
        line.push_str(word);
    }
    lines.push_str(line.trim_end());
    lines.push('\n');
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_broken_at_blanks() {
        assert_eq!(wrapped("a b", 80, 4), "a b\n");
        assert_eq!(wrapped("aaa bbb ccc", 7, 2), "aaa bbb\n  ccc\n");
        assert_eq!(wrapped("aaa  bbb", 5, 1), "aaa\n bbb\n");
        assert_eq!(wrapped("é é é", 3, 0), "é é\né\n");
        // Nothing is lost where a word does not fit.
        assert_eq!(
            wrapped("x /very/long/path y", 8, 2),
            "x\n  /very/long/path\n  y\n"
        );
        assert_eq!(wrapped("", 8, 2), "\n");
    }

    #[test]
    fn columns_line_up_without_trailing_blanks() {
        let rows = [["a".into(), "1".into()], ["long".into(), String::new()]];
        assert_eq!(table(["NAME", "N"], rows), "NAME  N\na     1\nlong\n");
        assert_eq!(
            pairs(&[("a", "x".into()), ("abc", "y".into())]),
            "a    x\nabc  y\n"
        );
    }
}
