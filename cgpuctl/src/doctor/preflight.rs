// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The checks of the installed script `cgpu-preflight`, which install.sh and the package run too:
//! Secure Boot, SELinux, MIG, engines without CDI, and why there is no module for this kernel.

use super::scene::{Finding, Scene};
use crate::text::printable;
use nix::errno::Errno;

/// Subjects of the script that the checks of this program look at more closely.
const LOOKED_AT: [&str; 2] = ["driver", "headers"];

/// The script found nothing that stops the module or a container.
pub(super) fn host(scene: &Scene<'_>) -> Vec<Finding> {
    let finding = |subject: &str, found: &str| {
        let wanted = "nothing that stops the module or a container";
        Finding::ok("preflight", printable(subject), printable(found), wanted)
    };
    let text = match scene.host.preflight() {
        Ok(text) => text,
        Err(errno) => {
            let found = match errno {
                Errno::ENOENT => "not beside cgpuctl, or bash is missing",
                _ => errno.desc(),
            };
            let how = "install cgpu again (install.sh, or the package cgpu)";
            return vec![finding("cgpu-preflight", found).unknown(how)];
        }
    };
    let mut findings: Vec<_> = text
        .lines()
        .filter_map(|line| {
            let parts: Vec<_> = line.split('\t').collect();
            match *parts.as_slice() {
                [_, subject, _, _] if LOOKED_AT.contains(&subject) => None,
                ["lack", subject, found, fix] => {
                    Some(finding(subject, found).failed(printable(fix)))
                }
                ["warn", subject, found, fix] => {
                    Some(finding(subject, found).warning(printable(fix)))
                }
                _ => Some(finding("cgpu-preflight", line).unknown("run cgpu-preflight")),
            }
        })
        .collect();
    if findings.is_empty() {
        findings.push(finding("host", "nothing stands in the way"));
    }
    findings
}
