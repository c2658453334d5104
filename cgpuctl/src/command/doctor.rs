// SPDX-License-Identifier: GPL-2.0 OR MIT
//! `doctor`: what must be true of this host so that the limits hold, what is, and how to mend it.

use crate::control::Host;
use crate::doctor::{examine, Finding, State};
use crate::error::{Failure, Problem};
use crate::exit::Exit;
use crate::json;
use crate::output::{table, Report};

pub(super) fn run(host: &dyn Host) -> Result<Report, Failure> {
    report(examine(host)).map_err(|problem| problem.when("examine this host"))
}

fn report(findings: Vec<Finding>) -> Result<Report, Problem> {
    let is_sound = findings.iter().all(|f| f.state != State::Failed);
    let rows = findings.iter().map(|f| {
        [
            f.state.word().to_owned(),
            f.check.to_owned(),
            f.subject.clone(),
            f.found.clone(),
            f.wanted.clone(),
        ]
    });
    let mut text = table(["STATE", "CHECK", "ABOUT", "FOUND", "WANTED"], rows);
    for f in findings.iter().filter(|f| !f.mend.is_empty()) {
        text.push_str(&format!("\n{}, {}: {}", f.check, f.subject, f.mend));
    }
    if !text.ends_with('\n') {
        text.push('\n');
    }
    let body = json::Doctor {
        sound: is_sound,
        findings,
    };
    let exit = if is_sound { Exit::Done } else { Exit::Unsound };
    Ok(Report::new(body, text)?.ending(exit))
}
