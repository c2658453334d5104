// SPDX-License-Identifier: GPL-2.0 OR MIT
//! `version`: of the tool, the module and the NVIDIA driver, for a report of a fault.

use super::{info, target};
use crate::{
    error::{Failure, Problem},
    host::Host,
    json::known,
    output::Report,
    text::pairs,
    verb::Verb,
};
use cgpu_uapi::{text, ABI_VERSION};
use clap::Args;
use serde::Serialize;

/// Versions of this tool, of the module and of the NVIDIA driver.
#[derive(Args)]
pub(crate) struct Version;

#[derive(Serialize)]
struct VersionMembers {
    tool: Numbers,
    module: Option<Numbers>,
    driver_version: Option<String>,
}

#[derive(Serialize)]
struct Numbers {
    version: String,
    abi_version: u32,
}

impl Numbers {
    fn text(&self) -> String {
        format!("{} (ABI {})", self.version, self.abi_version)
    }
}

impl Verb for Version {
    fn attempt(&self) -> String {
        "print the versions".to_owned()
    }

    fn run(&self, host: &dyn Host) -> Result<Report, Failure> {
        // Without the module or the rights to ask it the tool's own version is still an answer.
        let read = match target::open(host) {
            // A driver that is missing or not known is the reason why somebody asks.
            Ok(control) => Some(match info::driver(&*control) {
                Ok((version, _)) => version,
                Err(_) => control.version()?,
            }),
            Err(Problem::NotLoaded | Problem::NotPermitted) => None,
            Err(problem) => return Err(problem.into()),
        };
        let members = VersionMembers {
            tool: Numbers {
                version: env!("CARGO_PKG_VERSION").to_owned(),
                abi_version: ABI_VERSION,
            },
            module: read.map(|version| Numbers {
                version: text(&version.module).to_owned(),
                abi_version: version.abi,
            }),
            driver_version: read.and_then(|version| known(&version.driver)),
        };
        let module = members.module.as_ref().map(Numbers::text);
        let driver = members.driver_version.clone();
        let rows = pairs(&[
            ("cgpuctl", members.tool.text()),
            (
                "module",
                module.unwrap_or_else(|| "not loaded, or root alone may ask it".to_owned()),
            ),
            (
                "NVIDIA driver",
                driver.unwrap_or_else(|| "not known".to_owned()),
            ),
        ]);
        Ok(Report::new(members, rows)?)
    }
}
