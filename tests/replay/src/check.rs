// SPDX-License-Identifier: GPL-2.0
//! `replay check`: what a replay would do with a recording, without a driver.

use std::collections::BTreeMap;

use crate::{
    bytes::u64_at,
    decode::Decoded,
    layout,
    nodes::Nodes,
    record::{NestedKind, Op, Trace},
};

/// One kind of call of a recording.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Row {
    /// How often.
    pub count: usize,
    /// The parts that are mapped: handles, descriptors, pointers.
    pub mapped: String,
    /// The parts that a replay does not know.
    pub unknown: Option<String>,
}

/// The kinds of calls of a recording, by name.
pub fn check(trace: &Trace) -> BTreeMap<String, Row> {
    let mut rows: BTreeMap<String, Row> = BTreeMap::new();
    for record in &trace.records {
        let (title, mapped, unknown) = match &record.op {
            Op::Open { path, .. } => {
                let optional = Nodes::is_optional(path);
                let unknown = optional.then(|| "not a node of an instance".to_owned());
                (format!("open {path}"), "descriptor".to_owned(), unknown)
            }
            Op::Close { .. } => ("close".to_owned(), "descriptor".to_owned(), None),
            Op::Mmap { .. } => ("mmap".to_owned(), "descriptor, address".to_owned(), None),
            Op::Munmap { .. } => ("munmap".to_owned(), "address".to_owned(), None),
            Op::Send { .. } => ("send".to_owned(), String::new(), None),
            Op::Receive { .. } => ("receive".to_owned(), "descriptor".to_owned(), None),
            Op::Ioctl(io) => {
                let d = Decoded::new(io);
                (d.title(), mapped(&d), unknown(&d))
            }
        };
        let row = rows.entry(title).or_default();
        row.count += 1;
        row.mapped = mapped;
        if row.unknown.is_none() {
            row.unknown = unknown;
        }
    }
    rows
}

fn mapped(d: &Decoded<'_>) -> String {
    let mut parts: Vec<String> = d
        .call
        .fields
        .iter()
        .map(|f| format!("{:?}@{}", f.kind, f.at))
        .collect();
    if let Some(nested) = &d.io.nested {
        if nested.bytes.is_some() {
            parts.push(format!("parameters of {} bytes", d.nested_size(nested)));
        }
        if nested.kind == NestedKind::Control {
            for p in layout::pointers(nested.code) {
                parts.push(format!("pointer@{}", p.at));
            }
        }
    }
    parts.join(", ")
}

/// The parts of a call that a replay cannot do right.
fn unknown(d: &Decoded<'_>) -> Option<String> {
    if !d.known {
        return Some("unknown request: no status, no handles".to_owned());
    }
    if !d.uvm && d.nr == layout::NR_XFER {
        return Some("points to a call that was not recorded".to_owned());
    }
    let nested = d.io.nested.as_ref()?;
    match nested.kind {
        NestedKind::Alloc if layout::class_params(nested.code).is_none() => {
            Some("unknown class: parameters compared whole".to_owned())
        }
        NestedKind::Control if nested.bytes.is_none() && u64_at(d.input(), 16) != 0 => {
            Some("parameters were not recorded".to_owned())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    fn recordings() -> Vec<Trace> {
        let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../traces");
        let mut paths: Vec<_> = std::fs::read_dir(folder)
            .expect("tests/traces")
            .map(|e| e.expect("entry").path())
            .filter(|p| p.extension().is_some_and(|e| e == "xz"))
            .collect();
        paths.sort();
        let read = |p: &PathBuf| Trace::read(p).expect("recording");
        paths.iter().map(read).collect()
    }

    #[test]
    fn every_call_of_the_recordings_is_known() {
        let traces = recordings();
        assert!(traces.len() >= 7);
        for trace in &traces {
            for (title, row) in check(trace) {
                // Nodes that no container has from us.
                let optional = title.starts_with("open /dev/nvidia-caps/")
                    || title == "open /dev/nvidia-modeset";
                assert_eq!(row.unknown.is_some(), optional, "{}: {title}", trace.name);
            }
        }
    }

    #[test]
    fn statuses_lie_inside_the_arguments() {
        for trace in &recordings() {
            for record in &trace.records {
                let Op::Ioctl(io) = &record.op else { continue };
                let d = Decoded::new(io);
                if let Some(at) = d.call.status {
                    assert!(at + 4 <= d.size(), "{} in {}", d.title(), trace.name);
                }
            }
        }
    }

    #[test]
    fn answers_of_each_recording_fit_one_write() {
        for trace in recordings() {
            let order = crate::orchestrate::merged(std::slice::from_ref(&trace));
            let blob = crate::answers::blob(std::slice::from_ref(&trace), &order);
            assert!(blob.len() > 1000 && blob.len() < 64 << 20, "{}", trace.name);
        }
    }
}
