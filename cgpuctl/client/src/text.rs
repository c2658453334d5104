// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Text for people: lists in a sentence, and text of the module's records that may be missing.

use std::fmt::Display;

/// "a", "a and b", "a, b and c", with `word` before the last.
pub fn enumerate<T: Display>(items: &[T], word: &str) -> String {
    let mut text = String::new();
    for (i, item) in items.iter().enumerate() {
        if i > 0 && i + 1 == items.len() {
            text.push_str(&format!(" {word} "));
        } else if i > 0 {
            text.push_str(", ");
        }
        text.push_str(&item.to_string());
    }
    text
}

/// The text of a field, if there is any.
pub fn known(field: &[u8]) -> Option<String> {
    Some(cgpu_uapi::text(field).to_owned()).filter(|text| !text.is_empty())
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
}
