// SPDX-License-Identifier: GPL-2.0 OR MIT
//! `inst destroy`.

use super::{open, target};
use crate::cli::Target;
use crate::control::Host;
use crate::error::{Failure, Problem};
use crate::json;
use crate::output::{lines, Report};

pub(super) fn run(host: &dyn Host, args: &Target) -> Result<Report, Failure> {
    let fail = |problem: Problem| problem.when(format!("destroy {}", target::called(&args.name)));
    let control = open(host).map_err(fail)?;
    let instances = target::instances(&*control, &args.name, &args.gpus).map_err(fail)?;
    target::each(
        &*control,
        &instances,
        ("destroy", "destroyed"),
        |instance| control.destroy(&target::key(args.name, instance.key.gpu_minor)),
    )?;
    let body = json::Destroyed {
        destroyed: instances.iter().map(json::InstanceId::from).collect(),
    };
    let text = lines(instances.iter().map(|i| {
        format!(
            "{} on GPU {}: destroyed",
            i.key.name.as_str().unwrap_or_default(),
            i.key.gpu_minor
        )
    }));
    Report::new(body, text).map_err(fail)
}
