// SPDX-License-Identifier: GPL-2.0
//! Answers of a real H200's driver to controls: the recordings of `tests/traces`, driver
//! 580.159.04.
//!
//! A control whose parameters have another size in this release finds no answer here.

use serde::Deserialize;
use std::collections::HashMap;

/// The recordings that are used. Those of the H200 come last, so that its answers are preferred.
const FILES: [&[u8]; 7] = [
    include_bytes!("../../../traces/h100-nvidia-smi-q.jsonl.xz"),
    include_bytes!("../../../traces/h200-vmm-a.jsonl.xz"),
    include_bytes!("../../../traces/h200-torch-train.jsonl.xz"),
    include_bytes!("../../../traces/managed-memory.jsonl.xz"),
    include_bytes!("../../../traces/nvidia-smi-busy.jsonl.xz"),
    include_bytes!("../../../traces/nvidia-smi-idle.jsonl.xz"),
    include_bytes!("../../../traces/cuda-driver-api.jsonl.xz"),
];

/// Offset of the status in the argument of NV_ESC_RM_CONTROL (`NVOS54_PARAMETERS.status`).
const STATUS: usize = 28;

/// A call, as the recordings have it.
#[derive(Deserialize)]
struct Call<'a> {
    #[serde(borrow, default)]
    kind: &'a str,
    #[serde(borrow, default)]
    cmd: &'a str,
    #[serde(borrow, default)]
    out: &'a str,
    #[serde(borrow, default)]
    nin: &'a str,
    #[serde(borrow, default)]
    nout: &'a str,
}

/// One recorded answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recorded {
    /// Parameters before and after.
    before: Vec<u8>,
    /// Parameters after.
    pub after: Vec<u8>,
    /// The status.
    pub status: u32,
}

/// All recorded answers, by control.
#[derive(Debug, Default)]
pub struct Recordings {
    answers: HashMap<u32, Vec<Recorded>>,
}

fn bytes(hex: &str) -> Option<Vec<u8>> {
    let digit = |at: usize| u8::from_str_radix(hex.get(at..at + 2)?, 16).ok();
    (0..hex.len()).step_by(2).map(digit).collect()
}

impl Recordings {
    /// Reads the recordings.
    pub fn read() -> Self {
        let mut recordings = Self::default();
        for file in FILES {
            recordings.add(file);
        }
        recordings
    }

    fn add(&mut self, packed: &[u8]) {
        let mut plain = Vec::new();
        let mut packed = packed;
        lzma_rs::xz_decompress(&mut packed, &mut plain).expect("a recording is xz data");
        let text = String::from_utf8(plain).expect("a recording is text");
        for line in text
            .lines()
            .filter(|line| line.contains("\"kind\":\"control\""))
        {
            if let Some((control, answer)) = control(line) {
                let known = self.answers.entry(control).or_default();
                // The newest answer to the same question counts.
                known.retain(|other| other.before != answer.before);
                known.push(answer);
            }
        }
    }

    /// The recorded answer to a control: that to the same parameters, or else the newest to as
    /// many bytes.
    pub fn find(&self, control: u32, params: &[u8]) -> Option<&Recorded> {
        let known = self.answers.get(&control)?;
        let fits = |answer: &&Recorded| answer.before.len() == params.len();
        let same = known
            .iter()
            .rev()
            .filter(fits)
            .find(|answer| answer.before == params);
        same.or_else(|| known.iter().rev().find(fits))
    }

    /// All successful answers to a control.
    pub fn all(&self, control: u32) -> impl Iterator<Item = &Recorded> {
        self.answers
            .get(&control)
            .into_iter()
            .flatten()
            .filter(|answer| answer.status == 0)
    }
}

fn control(line: &str) -> Option<(u32, Recorded)> {
    let call: Call<'_> = serde_json::from_str(line).ok()?;
    if call.kind != "control" {
        return None;
    }
    let control = u32::from_str_radix(call.cmd.strip_prefix("0x")?, 16).ok()?;
    let out = bytes(call.out)?;
    let status = u32::from_le_bytes(out.get(STATUS..STATUS + 4)?.try_into().ok()?);
    Some((
        control,
        Recorded {
            before: bytes(call.nin)?,
            after: bytes(call.nout)?,
            status,
        },
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn same_question_finds_its_answer() {
        let mut recordings = Recordings::default();
        recordings.add(FILES[5]);
        let name = recordings
            .find(0x2080_0110, &[0; 132])
            .expect("nvidia-smi asks the name");
        assert_eq!(name.status, 0);
        assert!(name.after[4..].starts_with(b"NVIDIA H200\0"));
        assert!(recordings.find(0x2080_0110, &[0; 131]).is_none());
    }
}
