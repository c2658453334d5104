// SPDX-License-Identifier: GPL-2.0
//! The recordings' answers in the form in which the stand-in driver takes them
//! (`tests/fake_nvidia/README.md`): for the calls that it does not model.

use std::collections::{HashMap, HashSet};

use crate::{
    bytes::{u32_at, u64_at},
    decode::Decoded,
    layout::{self, Kind},
    record::{NestedKind, Op, Trace},
    space::words,
};

const MAGIC: u32 = 0x4156_4E46;
const VERSION: u32 = 1;
/// In the number of a control: it goes to the GPU's firmware (`RM_GSS_LEGACY_MASK`, ctrlxxxx.h).
const GSS_LEGACY: u32 = 0x8000;
/// `NV_ERR_OBJECT_NOT_FOUND`.
const OBJECT_NOT_FOUND: u32 = 0x57;

/// An answer.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Entry {
    kind: u32,
    cmd: u32,
    ret: i32,
    status: u32,
    input: Vec<u8>,
    input_mask: Vec<u8>,
    output: Vec<u8>,
    output_mask: Vec<u8>,
}

impl Entry {
    fn new(kind: u32, cmd: u32, input: &[u8], output: &[u8]) -> Self {
        Self {
            kind,
            cmd,
            ret: 0,
            status: 0,
            input: input.to_vec(),
            input_mask: vec![0xFF; input.len()],
            output: output.to_vec(),
            output_mask: vec![0xFF; output.len()],
        }
    }

    /// Marks bytes that are different in every run. The program's own bytes stay in the output.
    fn volatile(&mut self, at: usize, len: usize) {
        for mask in [&mut self.input_mask, &mut self.output_mask] {
            for byte in mask.iter_mut().skip(at).take(len) {
                *byte = 0;
            }
        }
    }

    /// Of parameters of which only the first bytes were recorded: the others fit any question, and
    /// stay as they are in the answer.
    fn unknown_up_to(&mut self, size: usize) {
        for bytes in [
            &mut self.input,
            &mut self.input_mask,
            &mut self.output,
            &mut self.output_mask,
        ] {
            bytes.resize(size, 0);
        }
    }

    fn volatile_handles(&mut self, handles: &HashSet<u32>) {
        let found: Vec<_> = words(&self.input)
            .filter(|(_, word)| handles.contains(word))
            .map(|(at, _)| at)
            .collect();
        for at in found {
            self.volatile(at, 4);
        }
    }

    fn same_question(&self, other: &Self) -> bool {
        (self.kind, self.cmd, &self.input_mask) == (other.kind, other.cmd, &other.input_mask)
            && self
                .input
                .iter()
                .zip(&other.input)
                .zip(&self.input_mask)
                .all(|((a, b), mask)| (a ^ b) & mask == 0)
    }

    fn same_answer(&self, other: &Self) -> bool {
        (self.ret, self.status) == (other.ret, other.status)
            && self.output_mask == other.output_mask
            && self
                .output
                .iter()
                .zip(&other.output)
                .zip(&self.output_mask)
                .all(|((a, b), mask)| (a ^ b) & mask == 0)
    }

    fn write(&self, blob: &mut Vec<u8>) {
        let size = |b: &[u8]| u32::try_from(b.len()).unwrap_or(0);
        for word in [self.kind, self.cmd] {
            blob.extend(word.to_le_bytes());
        }
        blob.extend(self.ret.to_le_bytes());
        for word in [self.status, size(&self.input), size(&self.output)] {
            blob.extend(word.to_le_bytes());
        }
        for bytes in [
            &self.input,
            &self.input_mask,
            &self.output,
            &self.output_mask,
        ] {
            blob.extend(bytes);
        }
        blob.resize(blob.len().next_multiple_of(8), 0);
    }
}

/// The blob with the answers of recordings, in the order in which they will be replayed.
pub fn blob(traces: &[Trace], order: &[(usize, usize)]) -> Vec<u8> {
    let handles: Vec<_> = traces.iter().map(driver_chosen).collect();
    let mut entries: Vec<Entry> = Vec::new();
    // Questions by kind and command: the answers of one question that never changes are one entry.
    let mut asked: HashMap<(u32, u32), Vec<usize>> = HashMap::new();
    let mut changing: HashSet<usize> = HashSet::new();
    for &(trace, index) in order {
        let Op::Ioctl(io) = &traces[trace].records[index].op else {
            continue;
        };
        let Some(entry) = entry(&Decoded::new(io), &handles[trace]) else {
            continue;
        };
        let known = asked.entry((entry.kind, entry.cmd)).or_default();
        let before: Vec<_> = known
            .iter()
            .copied()
            .filter(|&i| entries[i].same_question(&entry))
            .collect();
        if let Some(&first) = before.first() {
            if !entries[first].same_answer(&entry) {
                changing.insert(first);
            }
        }
        known.push(entries.len());
        entries.push(entry);
    }
    let mut kept: Vec<&Entry> = Vec::new();
    let mut constant: HashSet<usize> = HashSet::new();
    for (i, entry) in entries.iter().enumerate() {
        let first = asked[&(entry.kind, entry.cmd)]
            .iter()
            .copied()
            .find(|&j| entries[j].same_question(entry))
            .unwrap_or(i);
        if changing.contains(&first) || constant.insert(first) {
            kept.push(entry);
        }
    }
    let mut blob = Vec::new();
    let count = u32::try_from(kept.len()).unwrap_or(0);
    for word in [MAGIC, VERSION, count, 0] {
        blob.extend(word.to_le_bytes());
    }
    for entry in kept {
        entry.write(&mut blob);
    }
    blob
}

/// Handles that the driver chose in a recording.
fn driver_chosen(trace: &Trace) -> HashSet<u32> {
    let mut handles = HashSet::new();
    for record in &trace.records {
        let Op::Ioctl(io) = &record.op else { continue };
        let d = Decoded::new(io);
        if let (layout::Effect::Create(at), Some(argument)) = (d.call.effect, &io.argument) {
            let (sent, made) = (u32_at(&argument.input, at), u32_at(&argument.output, at));
            if sent != made {
                handles.insert(made);
            }
        }
    }
    handles
}

fn entry(d: &Decoded<'_>, handles: &HashSet<u32>) -> Option<Entry> {
    let argument = d.io.argument.as_ref()?;
    let status_at = d.call.status;
    let mut entry = match &d.io.nested {
        Some(nested) if nested.kind == NestedKind::Control => {
            let size = usize::try_from(u32_at(&argument.input, 24)).ok()?;
            let mut entry = match &nested.bytes {
                Some(b) if b.input.len() <= size => {
                    let mut entry = Entry::new(2, nested.code, &b.input, &b.output);
                    entry.unknown_up_to(size);
                    entry
                }
                None if size == 0 => Entry::new(2, nested.code, &[], &[]),
                // Not recorded.
                _ => return None,
            };
            entry.status = u32_at(&argument.output, status_at?);
            if nested.code & GSS_LEGACY != 0 && entry.status == OBJECT_NOT_FOUND {
                // The driver looks for the object before the firmware is asked, and so does the
                // stand-in.
                return None;
            }
            entry.volatile_handles(handles);
            for pointer in layout::pointers(nested.code) {
                if u64_at(&entry.input, pointer.at) != 0 {
                    entry.volatile(pointer.at, 8);
                }
            }
            if let Some(at) = layout::control_fd(nested.code) {
                entry.volatile(at, 4);
            }
            entry
        }
        Some(_) => return None,
        None => {
            let size = d.size();
            let (input, output) = (&argument.input[..size], &argument.output[..size]);
            let mut entry = Entry::new(if d.uvm { 3 } else { 1 }, d.nr, input, output);
            for field in d.call.fields {
                let len = match field.kind {
                    Kind::Client | Kind::Object | Kind::ObjectOf(_) | Kind::Fd => 4,
                    _ => 8,
                };
                entry.volatile(field.at, len);
            }
            entry
        }
    };
    entry.ret = if d.io.ret < 0 { -d.io.errno } else { d.io.ret };
    Some(entry)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trace(lines: &[&str]) -> (Trace, Vec<(usize, usize)>) {
        let t = Trace::parse("t", "t".into(), lines.join("\n").as_bytes()).expect("valid");
        let order = (0..t.records.len()).map(|i| (0, i)).collect();
        (t, order)
    }

    fn control(cmd: &str, nin: &str, nout: &str) -> String {
        let size = nin.len() / 2;
        let outer =
            format!("1800d0c10300005c00000000000000000000000000000000{size:02x}00000000000000");
        format!(
            r#"{{"op":"ioctl","fd":8,"path":"/dev/nvidiactl","req":"0xc020462a","ret":0,"kind":"control","cmd":"{cmd}","in":"{outer}","out":"{outer}","nin":"{nin}","nout":"{nout}"}}"#
        )
    }

    #[test]
    fn an_answer_that_never_changes_is_one_entry() {
        let same = control("0x111", "00000000", "01000000");
        let (t, order) = trace(&[&same, &same, &same]);
        assert_eq!(u32_at(&blob(&[t], &order), 8), 1);
    }

    #[test]
    fn an_answer_that_changes_is_kept_in_order() {
        let lines = ["01", "01", "02"].map(|v| control("0x111", "00000000", &format!("{v}000000")));
        let (t, order) = trace(&lines.each_ref().map(String::as_str));
        let blob = blob(&[t], &order);
        assert_eq!(u32_at(&blob, 8), 3);
        // Header 16, entry head 24, input 4, mask 4, output.
        assert_eq!(u32_at(&blob, 16 + 24 + 8), 1);
        assert_eq!(blob.len() % 8, 0);
    }

    #[test]
    fn an_unasked_control_has_no_firmware_answer() {
        let asked = control("0x20808165", "00", "01");
        let gone = asked.replace(r#"00000000","nin""#, r#"57000000","nin""#);
        assert_ne!(asked, gone);
        let (t, order) = trace(&[&asked, &gone, &asked]);
        assert_eq!(u32_at(&blob(&[t], &order), 8), 1);
    }

    #[test]
    fn cut_parameters_count_as_far_as_recorded() {
        let cut = control("0x111", "01000000", "02000000")
            .replace("0400000000000000\"", "0800000000000000\"");
        let (t, order) = trace(&[&cut]);
        let blob = blob(&[t], &order);
        let at = 16 + 24;
        assert_eq!((u32_at(&blob, 16 + 16), u32_at(&blob, 16 + 20)), (8, 8));
        assert_eq!(blob[at..at + 8], [1, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(blob[at + 8..at + 16], [255, 255, 255, 255, 0, 0, 0, 0]);
        assert_eq!(blob[at + 16..at + 24], [2, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(blob[at + 24..at + 32], [255, 255, 255, 255, 0, 0, 0, 0]);
    }

    #[test]
    fn handles_of_the_driver_do_not_count() {
        let root = r#"{"op":"ioctl","fd":8,"path":"/dev/nvidiactl","req":"0xc030462b","ret":0,"kind":"alloc","cmd":"0x0","in":"000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000","out":"00000000000000001800d0c1410000000000000000000000000000000000000000000000000000000000000000000000"}"#;
        let (t, order) = trace(&[
            root,
            &control("0x111", "1800d0c105000000", "1800d0c106000000"),
        ]);
        let blob = blob(&[t], &order);
        let at = 16 + 24;
        assert_eq!(blob[at + 8..at + 16], [0, 0, 0, 0, 255, 255, 255, 255]);
        assert_eq!(blob[at + 24..at + 32], [0, 0, 0, 0, 255, 255, 255, 255]);
    }
}
