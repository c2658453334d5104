// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Text for people: tables, and pairs of label and value.

pub use cgpu_client::text::enumerate;
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

#[cfg(test)]
mod tests {
    use super::*;

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
