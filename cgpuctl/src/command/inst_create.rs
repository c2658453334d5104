// SPDX-License-Identifier: GPL-2.0 OR MIT
//! `inst create`: an instance on one GPU, or one on each of several, all or none.

use super::{open, small_limit, target};
use crate::cli::Create;
use crate::control::{Control, Host};
use crate::error::{gpus, Facts, Failure, Problem};
use crate::json;
use crate::output::{table, Report};
use crate::size::Bytes;
use cgpu_uapi::{InstanceCreate, ManagedMode, CGPUFS_MOUNT, FLAG_OVERCOMMIT};
use std::path::Path;
use zerocopy::FromZeros;

pub(super) fn run(host: &dyn Host, args: &Create) -> Result<Report, Failure> {
    let attempt = format!("create {}", target::called(&args.name));
    let fail = |problem: Problem| problem.when(attempt.as_str());
    let control = open(host).map_err(fail)?;
    let present = control
        .gpus()
        .map_err(|errno| fail(Problem::explain(errno, &Facts::default())))?;
    let minors = target::select(&present, &args.gpus).map_err(fail)?;
    // First, so that an instance that was made can be given to a container.
    let mounted = host.mount_cgpufs().map_err(|e| fail(e.into()))?;
    let requests = minors.iter().map(|&minor| {
        let mut request = request(args.name, minor, args.mem, args.weight);
        request.managed_mode = args.managed.number();
        request.capabilities = args.caps.0;
        request.flags = if args.overcommit { FLAG_OVERCOMMIT } else { 0 };
        request
    });
    let made = create_all(&*control, requests.collect()).inspect_err(|_| {
        if mounted {
            // The failure to report is the other one; a mount left over does no harm.
            let _ = host.unmount_cgpufs(Path::new(CGPUFS_MOUNT));
            host.remove_mount_point();
        }
    })?;
    report(args, &made).map_err(fail)
}

/// What makes an instance of this name on one GPU.
pub(crate) fn request(
    name: cgpu_uapi::Name,
    minor: u32,
    limit: Bytes,
    weight: u32,
) -> InstanceCreate {
    let mut request = InstanceCreate::new_zeroed();
    request.key = target::key(name, minor);
    request.memory_limit_bytes = limit.0;
    request.weight = weight;
    request
}

/// Makes the instances in turn. When one fails, those before it are removed again.
pub(crate) fn create_all(
    control: &dyn Control,
    requests: Vec<InstanceCreate>,
) -> Result<Vec<InstanceCreate>, Failure> {
    let mut made: Vec<InstanceCreate> = Vec::new();
    for mut request in requests {
        let (name, minor) = (request.key.name, request.key.gpu_minor);
        if let Err(errno) = control.create(&mut request) {
            let facts = Facts::about(control, &name, Some(minor));
            let attempt = format!("create {} on GPU {minor}", target::called(&name));
            let mut failure = Problem::explain(errno, &facts).when(attempt);
            failure.aftermath = undo(control, &made);
            return Err(failure);
        }
        made.push(request);
    }
    Ok(made)
}

/// Removes what was made; tells what became of it.
fn undo(control: &dyn Control, made: &[InstanceCreate]) -> Option<String> {
    let (removed, kept): (Vec<_>, Vec<_>) = made
        .iter()
        .rev()
        .map(|request| &request.key)
        .partition(|key| control.destroy(key).is_ok());
    let minors = |keys: Vec<&cgpu_uapi::InstanceKey>| {
        let mut minors: Vec<_> = keys.iter().map(|key| key.gpu_minor).collect();
        minors.sort_unstable();
        gpus(&minors)
    };
    match (removed.is_empty(), kept.is_empty()) {
        (true, true) => None,
        (_, true) => Some(format!(
            "; what this command had made on {} was removed again",
            minors(removed)
        )),
        _ => Some(format!(
            "; what this command had made on {} could not be removed again",
            minors(kept)
        )),
    }
}

fn report(args: &Create, made: &[InstanceCreate]) -> Result<Report, Problem> {
    let warnings: Vec<_> = small_limit(args.mem).into_iter().collect();
    let body = json::Created {
        instances: made
            .iter()
            .map(|request| json::CreatedInstance {
                id: json::InstanceId::new(&request.key, request.id),
                weight: request.weight,
                memory_limit_bytes: request.memory_limit_bytes,
                managed_mode: ManagedMode::name_of(request.managed_mode),
            })
            .collect(),
        warnings: warnings.clone(),
    };
    let rows = made.iter().map(|request| {
        [
            args.name.as_str().unwrap_or_default().to_owned(),
            request.key.gpu_minor.to_string(),
            json::device_path(request.id),
            Bytes(request.memory_limit_bytes).to_string(),
            request.weight.to_string(),
        ]
    });
    let text = table(["NAME", "GPU", "DEVICE", "LIMIT", "WEIGHT"], rows);
    Ok(Report::new(body, text)?.warn(warnings))
}
