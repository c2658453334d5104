// SPDX-License-Identifier: GPL-2.0
//! Host nodes and proxy nodes: names, numbers, modes, and what they mean when the instance is gone.

use std::{
    fs,
    os::unix::fs::{FileTypeExt, MetadataExt},
};

use cgpu_uapi as uapi;

use crate::{
    control::folder,
    guest::{
        instance::Instance,
        process::in_child,
        tools::{at, control, equal, fails, holds, sys, tests, Verdict, GIB, GPU},
    },
    sys as os,
};

tests! {
    "nodes: host nodes have our numbers, and are root's" => host_nodes;
    "nodes: proxy nodes show the driver's numbers" => proxy_nodes;
    "nodes: only root enters the proxy nodes' folder" => folder_is_roots;
    "nodes: nothing is made or removed in cgpufs" => read_only;
    "nodes: a held proxy node is ENODEV after destroy" => held_after_destroy;
    "nodes: they go with the instance" => gone;
}

fn number(path: &str) -> Result<(u32, u32), String> {
    let meta = at(path, fs::metadata(path))?;
    holds(path, meta.file_type().is_char_device())?;
    Ok((libc::major(meta.rdev()), libc::minor(meta.rdev())))
}

fn host_paths(name: &str, id: u32) -> [String; 3] {
    [
        format!("/dev/cgpu{id}"),
        format!("/dev/cgpu-{name}-ctl"),
        format!("/dev/cgpu-{name}-uvm"),
    ]
}

fn host_nodes() -> Verdict {
    let instance = Instance::new("hostnodes", GIB)?;
    let seen = instance.get()?;
    let minors = [
        seen.node_minor,
        seen.control_node_minor,
        seen.uvm_node_minor,
    ];
    for (path, minor) in host_paths("hostnodes", seen.id).iter().zip(minors) {
        equal(path, &number(path)?, &(seen.major, minor))?;
        let meta = at(path, fs::metadata(path))?;
        equal(
            "owner and mode",
            &(meta.uid(), meta.mode() & 0o7777),
            &(0, 0o660),
        )?;
        let fd = sys(path, os::open(path, libc::O_RDWR))?;
        sys("close", os::close(fd))?;
    }
    holds("the driver's number", seen.major != 195)
}

/// The driver's major number of UVM's node.
fn uvm_major() -> Result<u32, String> {
    const DEVICES: &str = "/proc/devices";
    let devices = at(DEVICES, fs::read_to_string(DEVICES))?;
    let mut lines = devices.lines();
    let major = lines.find_map(|line| line.trim().strip_suffix(" nvidia-uvm")?.parse().ok());
    major.ok_or_else(|| format!("{DEVICES} has no nvidia-uvm"))
}

fn proxy_nodes() -> Verdict {
    let instance = Instance::new("proxies", GIB)?;
    let uvm = uvm_major()?;
    let folder = instance.folder();
    for (node, wanted) in [
        (format!("{folder}/nvidia{GPU}"), (195, GPU)),
        (format!("{folder}/nvidiactl"), (195, 255)),
        (format!("{folder}/nvidia-uvm"), (uvm, 0)),
    ] {
        equal(&node, &number(&node)?, &wanted)?;
        // The same through an open file, which CUDA asks too.
        let file = at(
            &node,
            fs::File::options().read(true).write(true).open(&node),
        )?;
        let meta = at(&node, file.metadata())?;
        let rdev = (libc::major(meta.rdev()), libc::minor(meta.rdev()));
        equal("fstat", &rdev, &wanted)?;
        // As the driver's own: a container's programs need not be root. The folder is root's.
        equal("mode", &(meta.mode() & 0o7777), &0o666)?;
    }
    let mut names: Vec<String> = at(&folder, fs::read_dir(&folder))?
        .filter_map(|e| e.ok()?.file_name().into_string().ok())
        .collect();
    names.sort();
    let wanted = ["nvidia-uvm", "nvidia0", "nvidiactl"].map(str::to_owned);
    equal("folder", &names, &wanted.to_vec())
}

fn folder_is_roots() -> Verdict {
    let instance = Instance::new("rootonly", GIB)?;
    let folder = instance.folder();
    in_child(move || {
        // SAFETY: takes no pointer; this process does nothing else.
        if unsafe { libc::setresuid(65534, 65534, 65534) } != 0 {
            return Err("setresuid".to_owned());
        }
        let open = os::open(&format!("{folder}/nvidiactl"), libc::O_RDWR);
        fails("open", open, libc::EACCES)?;
        fails(
            "list",
            os::open(uapi::CGPUFS_MOUNT, libc::O_RDONLY),
            libc::EACCES,
        )
    })
}

fn read_only() -> Verdict {
    let instance = Instance::new("fixed", GIB)?;
    let folder = instance.folder();
    holds(
        "a file can be made",
        fs::write(format!("{folder}/x"), "").is_err(),
    )?;
    holds(
        "a folder can be made",
        fs::create_dir(format!("{folder}/d")).is_err(),
    )?;
    let ctl = format!("{folder}/nvidiactl");
    holds(
        "a proxy node can be removed",
        fs::remove_file(&ctl).is_err(),
    )?;
    holds(
        "a proxy node can be renamed",
        fs::rename(&ctl, format!("{folder}/y")).is_err(),
    )?;
    let node = os::make_character_device(&format!("{folder}/z"), 1, 3);
    holds("a node can be made", node.is_err())
}

fn held_after_destroy() -> Verdict {
    let c = control()?;
    sys("create", c.create("gone", GPU, GIB, 1))?;
    let folder = folder("gone");
    let mut held = Vec::new();
    for node in ["nvidia0", "nvidiactl", "nvidia-uvm"] {
        let path = format!("{folder}/{node}");
        held.push(sys(&path, os::open(&path, libc::O_PATH))?);
    }
    let target = "/tmp/bound-nvidiactl";
    at(target, fs::write(target, ""))?;
    let from = format!("{folder}/nvidiactl");
    sys("bind", os::mount(&from, target, "none", libc::MS_BIND))?;
    let destroyed = c.destroy("gone", GPU);
    // A new instance of the same name is another one.
    let again = Instance::new("gone", GIB);
    let mut result = sys("destroy", destroyed);
    for fd in held {
        let path = format!("/proc/self/fd/{fd}");
        result = result.and(fails("open", os::open(&path, libc::O_RDWR), libc::ENODEV));
        let _ = os::close(fd);
    }
    let open = os::open(target, libc::O_RDWR);
    result = result.and(fails("open of the mount", open, libc::ENODEV));
    let unmounted = os::unmount(target, 0);
    let _ = fs::remove_file(target);
    again?;
    result.and(sys("umount", unmounted))
}

fn gone() -> Verdict {
    let c = control()?;
    let id = sys("create", c.create("brief", GPU, GIB, 1))?;
    sys("destroy", c.destroy("brief", GPU))?;
    for path in host_paths("brief", id) {
        holds(&path, !fs::exists(&path).unwrap_or(true))?;
    }
    let folder = folder("brief");
    holds(&folder, !fs::exists(&folder).unwrap_or(true))?;
    let path = format!("/proc/cgpu_km/{GPU}/brief");
    holds(&path, !fs::exists(&path).unwrap_or(true))
}
