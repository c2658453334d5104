// SPDX-License-Identifier: GPL-2.0 OR MIT
//! `doctor`: what must be true of this host so that the limits hold, what is, and how to fix it.

use crate::{
    doctor::{examine, Finding, FindingState},
    error::{Failure, Problem},
    exit::Exit,
    host::Host,
    output::Report,
    text::table,
    verb::Verb,
};
use clap::Args;
use serde::Serialize;

/// Check what must be true of this host so that the limits hold, and say how to fix it.
#[derive(Args)]
pub(crate) struct Doctor;

#[derive(Serialize)]
struct DoctorMembers {
    sound: bool,
    findings: Vec<FindingMembers>,
}

#[derive(Serialize)]
struct FindingMembers {
    /// Deprecated: the same as `fix`.
    mend: String,
    #[serde(flatten)]
    finding: Finding,
}

impl Verb for Doctor {
    fn attempt(&self) -> String {
        "examine this host".to_owned()
    }

    fn run(&self, host: &dyn Host) -> Result<Report, Failure> {
        Ok(report(examine(host))?)
    }
}

fn report(findings: Vec<Finding>) -> Result<Report, Problem> {
    let is_sound = findings.iter().all(|f| f.state != FindingState::Failed);
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
    for f in findings.iter().filter(|f| !f.fix.is_empty()) {
        text.push_str(&format!("\n{}, {}: {}", f.check, f.subject, f.fix));
    }
    if !text.ends_with('\n') {
        text.push('\n');
    }
    let body = DoctorMembers {
        sound: is_sound,
        findings: findings
            .into_iter()
            .map(|finding| FindingMembers {
                mend: finding.fix.clone(),
                finding,
            })
            .collect(),
    };
    let exit = if is_sound { Exit::Done } else { Exit::Unsound };
    Ok(Report::new(body, text)?.ending(exit))
}
