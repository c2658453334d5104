// SPDX-License-Identifier: GPL-2.0 OR MIT
//! `inst destroy`.

use super::target;
use crate::{
    args::Target, error::Failure, host::Host, json::InstanceId, output::Report, text::lines,
    verb::Verb,
};
use clap::Args;
use serde::Serialize;

/// Destroy an instance that is not in use.
#[derive(Args)]
pub(crate) struct InstDestroy {
    #[command(flatten)]
    target: Target,
}

#[derive(Serialize)]
struct DestroyMembers {
    destroyed: Vec<InstanceId>,
}

impl Verb for InstDestroy {
    fn attempt(&self) -> String {
        format!("destroy {}", target::called(&self.target.name))
    }

    fn run(&self, host: &dyn Host) -> Result<Report, Failure> {
        let control = target::open(host)?;
        let instances = target::instances(&*control, &self.target.name, &self.target.gpus)?;
        target::each(&*control, &instances, ("destroy", "destroyed"), |key| {
            control.destroy(&key)
        })?;
        let members = DestroyMembers {
            destroyed: instances.iter().map(InstanceId::from).collect(),
        };
        let gone = instances
            .iter()
            .map(|i| format!("{}: destroyed", target::label(i)));
        Ok(Report::new(members, lines(gone))?)
    }
}
