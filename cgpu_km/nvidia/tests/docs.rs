// SPDX-License-Identifier: GPL-2.0 OR MIT
//! `docs/memory.md` names tests that exist, and pointers as the tables have them.

use super::*;
use std::{
    collections::{
        BTreeMap,
        BTreeSet, //
    },
    path::Path, //
};

const DOCUMENT: &str = include_str!("../../../docs/memory.md");
const CONTROLS: &str = include_str!("../../../tests/abi/controls.txt");

/// The links whose text is code: text and target.
fn links(document: &str) -> Vec<(&str, &str)> {
    let mut links = Vec::new();
    for piece in document.split("[`").skip(1) {
        let (text, rest) = piece.split_once("`](").expect("a link");
        links.push((text, rest.split_once(')').expect("a target").0));
    }
    links
}

#[test]
fn every_test_that_the_document_names_exists() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs");
    let links = links(DOCUMENT);
    assert!(links.len() > 50, "only {} links", links.len());
    for (text, target) in links {
        let file = std::fs::read_to_string(docs.join(target));
        let file = file.unwrap_or_else(|e| panic!("{target}: {e}"));
        // A sentence may go on in the next line.
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        let wanted = match text.as_str() {
            _ if target.ends_with(&text) => continue,
            // A sentence of the suite's, or a function.
            sentence if sentence.contains(' ') => format!("\"{sentence}\""),
            function => format!("fn {function}("),
        };
        assert!(file.contains(&wanted), "{target} has no {wanted}");
    }
}

/// The rows of the table of pointers: name and member of a control, its number, and whether the
/// member's target is moved.
fn rows() -> BTreeMap<(&'static str, &'static str), (u32, bool)> {
    let mut rows = BTreeMap::new();
    let lines = DOCUMENT.lines().filter(|line| line.starts_with("| `NV"));
    for line in lines.filter(|line| line.contains("_CTRL_CMD_")) {
        let cells: Vec<_> = line.split('|').map(str::trim).collect();
        let [_, control, member, verdict, _] = cells[..] else {
            panic!("not control, pointer and verdict: {line}");
        };
        let (name, number) = control.split_once(' ').expect("a name and a number");
        let number = number.trim_start_matches("0x");
        let number = u32::from_str_radix(number, 16).expect("a number");
        let moved = match verdict {
            "moved" => true,
            "passed" => false,
            other => panic!("{control} is {other}"),
        };
        let key = (name.trim_matches('`'), member.trim_matches('`'));
        assert_eq!(rows.insert(key, (number, moved)), None, "{key:?} twice");
    }
    rows
}

#[test]
fn document_has_the_pointers_of_controls_txt() {
    let mut control = "";
    let mut made = BTreeMap::new();
    for line in CONTROLS.lines() {
        let words: Vec<_> = line.split_whitespace().collect();
        match words[..] {
            ["ptr", member, ..] => made.insert((control, member), true),
            ["unused", member] => made.insert((control, member), false),
            ["client", _] => None,
            [_, _, name, ..] if !line.starts_with('#') => {
                control = name;
                None
            }
            _ => None,
        };
    }
    let documented: BTreeMap<_, _> = rows().into_iter().map(|(k, (_, m))| (k, m)).collect();
    assert_eq!(documented, made);
}

#[test]
fn document_has_the_pointers_of_every_branch() {
    let rows = rows();
    let mut seen = BTreeSet::new();
    for (branch, tables) in all() {
        for entry in tables.controls() {
            let moved = rows.iter().filter(|((name, _), (number, moved))| {
                *name == entry.name && *number == entry.cmd.0 && *moved
            });
            let (here, documented) = (entry.pointers.len(), moved.count());
            // An older branch can have fewer of them.
            let agree = here == documented || (branch < Branch::R580 && here < documented);
            assert!(agree, "{}: {here} of {documented}", entry.name);
            seen.insert(entry.name);
        }
    }
    for (name, member) in rows.keys() {
        assert!(
            seen.contains(name),
            "{name} ({member}) is not on the allowlist"
        );
    }
}
