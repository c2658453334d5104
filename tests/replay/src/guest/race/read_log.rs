// SPDX-License-Identifier: GPL-2.0
//! The stand-in driver's log of what it read of calls.

use std::collections::BTreeMap;

use crate::standin;

/// A line of `read_log`.
#[derive(Debug)]
pub(super) struct ReadCall(BTreeMap<String, u64>);

impl ReadCall {
    fn parse(line: &str) -> Self {
        let pairs = line.split(' ').filter_map(|word| word.split_once('='));
        let number = |text: &str| match text.strip_prefix("0x") {
            Some(hex) => u64::from_str_radix(hex, 16).ok(),
            None => text.parse().ok(),
        };
        Self(
            pairs
                .filter_map(|(key, value)| Some((key.to_owned(), number(value)?)))
                .collect(),
        )
    }

    pub(super) fn get(&self, key: &str) -> u64 {
        self.0.get(key).copied().unwrap_or(0)
    }
}

/// The calls that the driver has read since the last reset: for this process, or for its client on
/// another task.
pub(super) fn read_log(client: u32) -> Result<Vec<ReadCall>, String> {
    let path = format!("{}/read_log", standin::DEBUGFS);
    let text = std::fs::read_to_string(&path).map_err(|e| format!("{path}: {e}"))?;
    let own = u64::from(std::process::id());
    let entries = text.lines().map(ReadCall::parse);
    let is_ours =
        |entry: &ReadCall| entry.get("pid") == own || entry.get("client") == u64::from(client);
    Ok(entries.filter(is_ours).collect())
}
