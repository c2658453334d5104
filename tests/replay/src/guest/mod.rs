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
}
