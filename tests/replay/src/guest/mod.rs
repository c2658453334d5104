// SPDX-License-Identifier: GPL-2.0
//! Programs for the test VM.

pub mod attacks;
pub mod bench;
pub mod cgroup;
pub mod chaos;
pub mod hammer;
pub mod inside;
mod instance;
pub mod pages;
pub mod process;
pub mod race;
pub mod rm;
pub mod scale;
pub mod shut;
pub mod soak;
pub mod storm;
pub mod suite;
mod taking;
mod tools;
pub mod uvm;
pub mod waits;
pub mod weights;
pub mod work;

#[cfg(test)]
mod tests {
    use super::{attacks, suite};

    /// The names that stand behind a word, in backquotes and between commas, wherever that is in a
    /// text.
    fn named<'a>(text: &'a str, word: &str) -> Vec<&'a str> {
        let mut names = Vec::new();
        for mut rest in text.split(&format!("{word} `")).skip(1) {
            while let Some((name, behind)) = rest.split_once('`') {
                names.push(name);
                let Some(next) = behind.strip_prefix(", `") else {
                    break;
                };
                rest = next;
            }
        }
        names
    }

    /// The first number of a row in the tables of `docs/testing.md`.
    fn documented(row: &str) -> Option<usize> {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/testing.md");
        let text = std::fs::read_to_string(path).expect("docs/testing.md");
        let cells = text
            .lines()
            .find_map(|l| l.strip_prefix(&format!("| {row} |")))?;
        cells.split('|').next()?.trim().parse().ok()
    }

    #[test]
    fn testing_md_counts_all_cases() {
        assert_eq!(documented("the suite"), Some(suite::names().len()));
        assert_eq!(documented("the attacks"), Some(attacks::names().len()));
    }

    #[test]
    fn cases_that_security_md_names_exist() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../SECURITY.md");
        let text = std::fs::read_to_string(path).expect("SECURITY.md");
        // A name may go on in the next line.
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        for (word, all) in [("suite", suite::names()), ("attacks", attacks::names())] {
            let quoted = named(&text, word);
            assert!(quoted.len() > 10, "{word}: {quoted:?}");
            for name in quoted {
                assert!(all.iter().any(|case| case.contains(name)), "{word}: {name}");
            }
        }
    }
}
