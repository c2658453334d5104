// SPDX-License-Identifier: GPL-2.0 OR MIT
//! `inst set-managed`.

use super::{open, target};
use crate::cli::SetManaged;
use crate::control::Host;
use crate::error::{Failure, Problem};
use crate::json;
use crate::output::{lines, Report};
use cgpu_uapi::{Instance, InstanceSetManaged, ManagedMode};
use zerocopy::FromZeros;

const VERB: &str = "set the managed memory of";

pub(super) fn run(host: &dyn Host, args: &SetManaged) -> Result<Report, Failure> {
    let name = &args.target.name;
    let fail = |problem: Problem| problem.when(format!("{VERB} {}", target::called(name)));
    let control = open(host).map_err(fail)?;
    let instances = target::instances(&*control, name, &args.target.gpus).map_err(fail)?;
    target::each(&*control, &instances, (VERB, "set"), |instance| {
        let mut request = InstanceSetManaged::new_zeroed();
        request.key = target::key(*name, instance.key.gpu_minor);
        request.managed_mode = args.managed.number();
        control.set_managed(&request)
    })?;
    report(args, &instances).map_err(fail)
}

/// `before`: the instances as they were.
fn report(args: &SetManaged, before: &[Instance]) -> Result<Report, Problem> {
    let mode = args.managed.name();
    let body = json::ManagedSet {
        instances: before
            .iter()
            .map(|i| json::ManagedSetInstance {
                id: i.into(),
                managed_mode: mode,
                previous_managed_mode: ManagedMode::name_of(i.managed_mode),
            })
            .collect(),
    };
    let text = lines(before.iter().map(|i| {
        format!(
            "{} on GPU {}: managed memory {mode}, was {}",
            i.key.name.as_str().unwrap_or_default(),
            i.key.gpu_minor,
            ManagedMode::name_of(i.managed_mode)
        )
    }));
    Report::new(body, text)
}
