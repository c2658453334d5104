// SPDX-License-Identifier: GPL-2.0 OR MIT
//! `doctor`: what must be true of this host so that the limits hold, what is, and how to fix it.

use crate::{
    doctor::{examine, Finding, FindingState},
    error::{Failure, Problem},
    exit::Exit,
    host::Host,
    output::Report,
    text::wrapped,
    verb::Verb,
};
use clap::Args;
use serde::Serialize;
use std::cmp::Reverse;

/// Check what must be true of this host so that the limits hold, and say how to fix it.
#[derive(Args)]
pub(crate) struct Doctor;

#[derive(Serialize)]
struct DoctorMembers {
    sound: bool,
    findings: Vec<Finding>,
}

impl Verb for Doctor {
    fn attempt(&self) -> String {
        "examine this host".to_owned()
    }

    fn run(&self, host: &dyn Host) -> Result<Report, Failure> {
        Ok(report(examine(host), host.is_colored())?)
    }
}

/// Columns of a terminal that nobody has widened.
const WIDTH: usize = 80;
/// Columns before a check: the longest state and two blanks.
const INDENT: usize = 9;

fn report(mut findings: Vec<Finding>, is_colored: bool) -> Result<Report, Problem> {
    let is_sound = findings.iter().all(|f| f.state != FindingState::Failed);
    // The worst first; what is equally bad in the order of the checks.
    findings.sort_by_key(|f| Reverse(f.state));
    let remedy = |f: &Finding| (f.state, f.check, f.wanted.clone(), f.fix.clone());
    let alike = findings.chunk_by(|a, b| remedy(a) == remedy(b));
    let mut text: String = alike.map(|group| paragraph(group, is_colored)).collect();
    text.push_str(&summary(&findings));
    let body = DoctorMembers {
        sound: is_sound,
        findings,
    };
    let exit = if is_sound { Exit::Done } else { Exit::Unsound };
    Ok(Report::new(body, text)?.ending(exit))
}

/// Findings of one check with the same remedy: how each thing is, and if that is not as it should
/// be, how it should be and what to do.
fn paragraph(alike: &[Finding], is_colored: bool) -> String {
    let mut text: String = alike.iter().map(|f| head(f, is_colored)).collect();
    let Some(f) = alike.first() else {
        return text;
    };
    if f.state != FindingState::Ok {
        let wanted = format!("{:INDENT$}wanted: {}", "", f.wanted);
        text.push_str(&wrapped(&wanted, WIDTH, INDENT + 2));
    }
    if !f.fix.is_empty() {
        let fix = format!("{:INDENT$}fix: {}", "", f.fix);
        text.push_str(&wrapped(&fix, WIDTH, INDENT + 2));
    }
    text
}

/// How a thing is.
fn head(f: &Finding, is_colored: bool) -> String {
    let word = f.state.word();
    let line = format!("{word:INDENT$}{}  {}: {}", f.check, f.subject, f.found);
    let mut text = wrapped(&line, WIDTH, INDENT);
    if is_colored {
        text.replace_range(
            ..word.len(),
            &format!("\x1b[{}m{word}\x1b[0m", color(f.state)),
        );
    }
    text
}

/// The color of a state, as terminals number them (ECMA-48, SGR).
fn color(state: FindingState) -> u8 {
    match state {
        FindingState::Ok => 32,
        FindingState::Unknown => 35,
        FindingState::Warning => 33,
        FindingState::Failed => 31,
    }
}

/// `1 failed, 2 warning, 0 unknown, 11 ok`, by the words of the states.
fn summary(findings: &[Finding]) -> String {
    let count = |state| findings.iter().filter(|f| f.state == state).count();
    format!(
        "\n{} failed, {} warning, {} unknown, {} ok\n",
        count(FindingState::Failed),
        count(FindingState::Warning),
        count(FindingState::Unknown),
        count(FindingState::Ok)
    )
}
