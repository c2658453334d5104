// SPDX-License-Identifier: GPL-2.0 OR MIT
//! `inst set-caps`.

use super::{open, target};
use crate::capabilities::Capabilities;
use crate::cli::SetCaps;
use crate::control::Host;
use crate::error::{Failure, Problem};
use crate::json;
use crate::output::{lines, Report};
use cgpu_uapi::{Instance, InstanceSetCapabilities};
use zerocopy::FromZeros;

const VERB: &str = "set the capabilities of";

pub(super) fn run(host: &dyn Host, args: &SetCaps) -> Result<Report, Failure> {
    let name = &args.target.name;
    let fail = |problem: Problem| problem.when(format!("{VERB} {}", target::called(name)));
    let control = open(host).map_err(fail)?;
    let instances = target::instances(&*control, name, &args.target.gpus).map_err(fail)?;
    target::each(&*control, &instances, (VERB, "set"), |instance| {
        let mut request = InstanceSetCapabilities::new_zeroed();
        request.key = target::key(*name, instance.key.gpu_minor);
        request.capabilities = args.caps.0;
        control.set_capabilities(&request)
    })?;
    report(args, &instances).map_err(fail)
}

/// `before`: the instances as they were.
fn report(args: &SetCaps, before: &[Instance]) -> Result<Report, Problem> {
    let body = json::CapabilitiesSet {
        instances: before
            .iter()
            .map(|i| json::CapabilitiesSetInstance {
                id: i.into(),
                capabilities: args.caps.names(),
                previous_capabilities: Capabilities(i.capabilities).names(),
            })
            .collect(),
    };
    let text = lines(before.iter().map(|i| {
        format!(
            "{} on GPU {}: {}, was {}",
            i.key.name.as_str().unwrap_or_default(),
            i.key.gpu_minor,
            args.caps,
            Capabilities(i.capabilities)
        )
    }));
    Report::new(body, text)
}
