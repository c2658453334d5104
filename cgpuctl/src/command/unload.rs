// SPDX-License-Identifier: GPL-2.0 OR MIT
//! `unload`: unmounts the proxy nodes and unloads the module, or leaves everything as it was.
//!
//! Nothing is destroyed before it is certain that the module goes: the idle instances go with it.
//! If a container still holds a proxy node, the kernel refuses and the mount is put back.

use super::{inst_list, target};
use crate::{
    error::{Failure, Problem},
    host::{Host, MODULE},
    json::InstanceId,
    output::Report,
    text::lines,
    verb::Verb,
};
use cgpu_uapi::{Instance, CGPUFS_MOUNT};
use clap::Args;
use nix::errno::Errno;
use serde::Serialize;
use std::{path::Path, thread::sleep, time::Duration};

/// Unmount the proxy nodes and unload the module.
///
/// It is refused while an instance is in use. Idle instances go with the module, and their names
/// are printed.
#[derive(Args)]
pub(crate) struct Unload;

#[derive(Serialize)]
struct UnloadMembers {
    destroyed: Vec<InstanceId>,
    unmounted: Vec<String>,
}

impl Verb for Unload {
    fn attempt(&self) -> String {
        "unload the module".to_owned()
    }

    fn run(&self, host: &dyn Host) -> Result<Report, Failure> {
        Ok(report(host)?)
    }
}

fn in_use(instance: &Instance) -> bool {
    instance.open_files != 0
        || instance.tenant_open_files != 0
        || instance.processes != 0
        || instance.memory_used_bytes != 0
        || instance.memory_reserved_bytes != 0
}

/// How often more, and how long in between, the module is tried to be unloaded. udev lets `cdi
/// generate` run at each change, and that has the control device open for a moment.
const TRIES: u32 = 50;
const PAUSE: Duration = Duration::from_millis(100);

fn unload(host: &dyn Host) -> Result<(), Errno> {
    let mut tries = 0;
    loop {
        match host.unload_module() {
            Err(Errno::EAGAIN | Errno::EBUSY) if tries < TRIES => tries += 1,
            unloaded => return unloaded,
        }
        sleep(host.pause(PAUSE));
    }
}

fn report(host: &dyn Host) -> Result<Report, Problem> {
    // The open control device would keep the module; it is closed at the end of the block.
    let instances = {
        let control = target::open(host)?;
        inst_list::all(&*control)?
    };
    let busy: Vec<_> = instances
        .iter()
        .filter(|i| in_use(i))
        .map(target::label)
        .collect();
    if !busy.is_empty() {
        return Err(Problem::InstancesInUse { instances: busy });
    }
    let point = Path::new(CGPUFS_MOUNT);
    let (own, other): (Vec<_>, Vec<_>) = host
        .cgpufs_mounts()?
        .into_iter()
        .partition(|path| path == point);
    if !other.is_empty() {
        return Err(Problem::ProxyNodesMounted {
            paths: other.iter().map(|p| p.display().to_string()).collect(),
        });
    }
    for path in &own {
        host.unmount_cgpufs(path).map_err(|e| match e.errno {
            Errno::EBUSY => Problem::Pinned { what: CGPUFS_MOUNT },
            _ => e.into(),
        })?;
    }
    if let Err(errno) = unload(host) {
        if !own.is_empty() {
            // The failure to report is the other one; `inst create` and `inst mounts` mount again.
            let _ = host.mount_cgpufs();
        }
        return Err(match errno {
            Errno::EAGAIN | Errno::EBUSY => Problem::Pinned { what: "the module" },
            Errno::ENOENT => Problem::NotLoaded,
            errno => errno.into(),
        });
    }
    host.remove_mount_point();
    let body = UnloadMembers {
        destroyed: instances.iter().map(InstanceId::from).collect(),
        unmounted: own.iter().map(|p| p.display().to_string()).collect(),
    };
    let gone = instances
        .iter()
        .map(|i| format!("{}: destroyed (it was idle)", target::label(i)));
    let unmounted = own.iter().map(|p| format!("{}: unmounted", p.display()));
    let text = lines(gone.chain(unmounted).chain([format!("{MODULE}: unloaded")]));
    Report::new(body, text)
}
