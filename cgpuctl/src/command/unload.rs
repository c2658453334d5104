// SPDX-License-Identifier: GPL-2.0 OR MIT
//! `unload`: unmounts the twins and unloads the module, or leaves everything as it was.
//!
//! Nothing is destroyed before it is certain that the module goes: the idle instances go with it,
//! and if a container still holds a twin, the kernel refuses and the mount is put back.

use super::open;
use crate::control::{Host, MODULE};
use crate::error::{Facts, Failure, Problem};
use crate::json;
use crate::output::{lines, Report};
use cgpu_uapi::{Instance, CGPUFS_MOUNT};
use nix::errno::Errno;
use std::path::Path;

pub(super) fn run(host: &dyn Host) -> Result<Report, Failure> {
    report(host).map_err(|problem| problem.when("unload the module"))
}

fn in_use(instance: &Instance) -> bool {
    instance.open_files != 0
        || instance.tenant_open_files != 0
        || instance.processes != 0
        || instance.memory_used_bytes != 0
        || instance.memory_reserved_bytes != 0
}

fn label(instance: &Instance) -> String {
    format!(
        "{} on GPU {}",
        instance.key.name.as_str().unwrap_or_default(),
        instance.key.gpu_minor
    )
}

fn report(host: &dyn Host) -> Result<Report, Problem> {
    // The open control device would keep the module; it is closed at the end of the block.
    let instances = {
        let control = open(host)?;
        super::inst_list::all(&*control)?
    };
    let busy: Vec<_> = instances.iter().filter(|i| in_use(i)).map(label).collect();
    if !busy.is_empty() {
        return Err(Problem::InstancesInUse { instances: busy });
    }
    let point = Path::new(CGPUFS_MOUNT);
    let (own, other): (Vec<_>, Vec<_>) = host
        .cgpufs_mounts()?
        .into_iter()
        .partition(|path| path == point);
    if !other.is_empty() {
        return Err(Problem::TwinsMounted {
            paths: other.iter().map(|p| p.display().to_string()).collect(),
        });
    }
    for path in &own {
        host.unmount_cgpufs(path).map_err(|e| match e.errno {
            Errno::EBUSY => Problem::Pinned { what: CGPUFS_MOUNT },
            _ => e.into(),
        })?;
    }
    if let Err(errno) = host.unload_module() {
        if !own.is_empty() {
            // The failure to report is the other one; `inst create` and `inst mounts` mount again.
            let _ = host.mount_cgpufs();
        }
        return Err(match errno {
            Errno::EAGAIN | Errno::EBUSY => Problem::Pinned { what: "the module" },
            Errno::ENOENT => Problem::NotLoaded,
            errno => Problem::explain(errno, &Facts::default()),
        });
    }
    host.remove_mount_point();
    let body = json::Unloaded {
        destroyed: instances.iter().map(json::InstanceId::from).collect(),
        unmounted: own.iter().map(|p| p.display().to_string()).collect(),
    };
    let gone = instances
        .iter()
        .map(|i| format!("{}: destroyed (it was idle)", label(i)));
    let unmounted = own.iter().map(|p| format!("{}: unmounted", p.display()));
    let text = lines(gone.chain(unmounted).chain([format!("{MODULE}: unloaded")]));
    Report::new(body, text)
}
