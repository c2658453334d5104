// SPDX-License-Identifier: GPL-2.0 OR MIT
//! `list`: the files, nodes and sockets of this host that have to do with GPUs in containers, as
//! libnvidia-container's `list` tells them. What a container with an instance does not get is there too,
//! with the reason.

use super::info::driver;
use super::{inst_list, open};
use crate::cdi::tenants;
use crate::cli::List;
use crate::container::{devices, twins, Device, Mount};
use crate::control::Host;
use crate::error::{Failure, Problem};
use crate::installation::{find, Installation, Linked};
use crate::output::{table, Report};
use cgpu_uapi::text;
use serde::Serialize;

#[derive(Serialize)]
struct Body {
    devices: Vec<Device>,
    mounts: Vec<Mount>,
    libraries: Vec<File>,
    programs: Vec<File>,
    firmware: Vec<String>,
    sockets: Vec<Socket>,
}

#[derive(Serialize)]
struct File {
    path: String,
    links: Vec<String>,
}

#[derive(Serialize)]
struct Socket {
    path: String,
    withheld: &'static str,
}

pub(super) fn run(host: &dyn Host, args: &List) -> Result<Report, Failure> {
    report(host, args).map_err(|problem| problem.when("list what containers need"))
}

fn report(host: &dyn Host, args: &List) -> Result<Report, Problem> {
    let control = open(host)?;
    let (version, _) = driver(&*control)?;
    let (mut nodes, mut mounts) = (vec![], vec![]);
    for tenant in tenants(inst_list::all(&*control)?) {
        let name = tenant.name.as_str().unwrap_or_default();
        nodes.extend(devices(name, &tenant.instances));
        mounts.extend(twins(name, &tenant.instances));
    }
    let found = find(
        &host.path(&args.files.root()),
        text(&version.driver),
        &args.files.wanted(),
    )?;
    let body = body(nodes, mounts, &found);
    Report::new(&body, text_of(&body))
}

fn body(devices: Vec<Device>, mounts: Vec<Mount>, found: &Installation) -> Body {
    let files = |files: &[Linked]| {
        let file = |file: &Linked| File {
            path: file.path.display().to_string(),
            links: file.links.iter().map(|l| l.display().to_string()).collect(),
        };
        files.iter().map(file).collect()
    };
    Body {
        devices,
        mounts,
        libraries: files(&found.libraries),
        programs: files(&found.programs),
        firmware: found
            .firmware
            .iter()
            .map(|p| p.display().to_string())
            .collect(),
        sockets: found
            .sockets
            .iter()
            .map(|(path, withheld)| Socket {
                path: path.display().to_string(),
                withheld,
            })
            .collect(),
    }
}

fn text_of(body: &Body) -> String {
    let row = |kind: &str, path: &str, note: String| [kind.to_owned(), path.to_owned(), note];
    let mut rows = Vec::new();
    for d in &body.devices {
        rows.push(row("node", &d.path, format!("{}:{}", d.major, d.minor)));
    }
    for m in &body.mounts {
        rows.push(row("twin", &m.source, format!("at {}", m.destination)));
    }
    for (kind, files) in [("library", &body.libraries), ("program", &body.programs)] {
        for f in files {
            rows.push(row(kind, &f.path, String::new()));
            for link in &f.links {
                rows.push(row("  link", link, String::new()));
            }
        }
    }
    for path in &body.firmware {
        rows.push(row("firmware", path, "for the kernel".to_owned()));
    }
    for s in &body.sockets {
        rows.push(row(
            "socket",
            &s.path,
            format!("not given out: {}", s.withheld),
        ));
    }
    if rows.is_empty() {
        return "Nothing.\n".to_owned();
    }
    table(["KIND", "PATH", "NOTE"], rows)
}
