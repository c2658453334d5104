// SPDX-License-Identifier: GPL-2.0 OR MIT
//! `inst set-weight`.

use super::{open, target};
use crate::cli::SetWeight;
use crate::control::Host;
use crate::error::{Failure, Problem};
use crate::json;
use crate::output::{lines, Report};
use cgpu_uapi::{Instance, InstanceSetWeight};
use zerocopy::FromZeros;

const VERB: &str = "set the weight of";

pub(super) fn run(host: &dyn Host, args: &SetWeight) -> Result<Report, Failure> {
    let name = &args.target.name;
    let fail = |problem: Problem| problem.when(format!("{VERB} {}", target::called(name)));
    let control = open(host).map_err(fail)?;
    let instances = target::instances(&*control, name, &args.target.gpus).map_err(fail)?;
    target::each(&*control, &instances, (VERB, "set"), |instance| {
        let mut request = InstanceSetWeight::new_zeroed();
        request.key = target::key(*name, instance.key.gpu_minor);
        request.weight = args.weight;
        control.set_weight(&request)
    })?;
    report(args, &instances).map_err(fail)
}

/// `before`: the instances as they were.
fn report(args: &SetWeight, before: &[Instance]) -> Result<Report, Problem> {
    let body = json::WeightSet {
        instances: before
            .iter()
            .map(|i| json::WeightSetInstance {
                id: i.into(),
                weight: args.weight,
                previous_weight: i.weight,
            })
            .collect(),
    };
    let text = lines(before.iter().map(|i| {
        format!(
            "{} on GPU {}: weight {}, was {}",
            i.key.name.as_str().unwrap_or_default(),
            i.key.gpu_minor,
            args.weight,
            i.weight
        )
    }));
    Report::new(body, text)
}
