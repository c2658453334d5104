// SPDX-License-Identifier: GPL-2.0 OR MIT
//! `files`: the files, nodes and sockets of this host that concern GPUs in containers, as
//! libnvidia-container's `list` prints them. What a container with an instance does not get is
//! there too, with the reason.

use super::{info, inst_list, target};
use crate::{
    args::Files,
    cdi::tenants,
    container::{host_nodes, proxy_nodes, HostNode, Mount},
    error::Failure,
    host::Host,
    installation::{find, Installation, Linked},
    output::Report,
    text::table,
    verb::Verb,
};
use cgpu_uapi::text;
use clap::Args;
use serde::Serialize;

/// List the nodes, files and sockets of this host that containers with GPUs use.
#[derive(Args)]
#[command(after_help = "Examples:\n  cgpuctl files --capabilities compute,video")]
pub(crate) struct List {
    #[command(flatten)]
    files: Files,
}

#[derive(Serialize)]
struct ListMembers {
    devices: Vec<HostNode>,
    mounts: Vec<Mount>,
    libraries: Vec<InstalledFile>,
    programs: Vec<InstalledFile>,
    firmware: Vec<String>,
    sockets: Vec<Socket>,
}

#[derive(Serialize)]
struct InstalledFile {
    path: String,
    links: Vec<String>,
}

#[derive(Serialize)]
struct Socket {
    path: String,
    withheld: &'static str,
}

impl Verb for List {
    fn attempt(&self) -> String {
        "list what containers need".to_owned()
    }

    fn run(&self, host: &dyn Host) -> Result<Report, Failure> {
        let control = target::open(host)?;
        let (version, _) = info::driver(&*control)?;
        let (mut nodes, mut mounts) = (vec![], vec![]);
        for tenant in tenants(inst_list::all(&*control)?) {
            let name = tenant.name.as_str().unwrap_or_default();
            nodes.extend(host_nodes(name, &tenant.instances));
            mounts.extend(proxy_nodes(name, &tenant.instances));
        }
        let root = host.path(&self.files.root());
        let found = find(&root, text(&version.driver), &self.files.wanted())?;
        let members = members(nodes, mounts, &found);
        Ok(Report::new(&members, text_of(&members))?)
    }
}

fn members(devices: Vec<HostNode>, mounts: Vec<Mount>, found: &Installation) -> ListMembers {
    let files = |files: &[Linked]| {
        let file = |file: &Linked| InstalledFile {
            path: file.path.display().to_string(),
            links: file.links.iter().map(|l| l.display().to_string()).collect(),
        };
        files.iter().map(file).collect()
    };
    ListMembers {
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

fn text_of(members: &ListMembers) -> String {
    let row = |kind: &str, path: &str, note: String| [kind.to_owned(), path.to_owned(), note];
    let mut rows = Vec::new();
    for d in &members.devices {
        rows.push(row(
            "host node",
            &d.path,
            format!("{}:{}", d.major, d.minor),
        ));
    }
    for m in &members.mounts {
        rows.push(row(
            "proxy node",
            &m.source,
            format!("at {}", m.destination),
        ));
    }
    for (kind, files) in [
        ("library", &members.libraries),
        ("program", &members.programs),
    ] {
        for f in files {
            rows.push(row(kind, &f.path, String::new()));
            for link in &f.links {
                rows.push(row("  link", link, String::new()));
            }
        }
    }
    for path in &members.firmware {
        rows.push(row("firmware", path, "for the kernel".to_owned()));
    }
    for s in &members.sockets {
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
