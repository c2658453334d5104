// SPDX-License-Identifier: GPL-2.0
//! A container as far as a GPU program sees one: mount, PID and user namespace, a root of its own
//! with an instance's twins in `/dev`, and a device group that allows nothing else.

use std::{fs, os::unix::fs::MetadataExt};

use cgpu_uapi as uapi;

use super::{
    cgroup::{Device, Group},
    process::unshare,
};
use crate::sys;

/// Major and minor of `/dev/null`, which every container has.
const NULL: Device = (1, 3);

/// A container: its device group and its root.
#[derive(Debug)]
pub struct Container {
    name: String,
    group: Group,
    root: String,
    twins: Vec<String>,
}

impl Container {
    /// Makes the device group for an instance: its three nodes' exact numbers.
    pub fn new(instance: &uapi::Instance, gpu_minor: u32) -> Result<Self, String> {
        let name = instance.key.name.as_str().unwrap_or_default().to_owned();
        let devices = [
            (instance.major, instance.node_minor),
            (instance.major, instance.control_node_minor),
            (instance.major, instance.uvm_node_minor),
            NULL,
        ];
        Ok(Self {
            group: Group::new(&format!("cgpu-{name}"), &devices)?,
            root: format!("/tmp/container-{name}"),
            twins: vec![
                format!("nvidia{gpu_minor}"),
                "nvidiactl".to_owned(),
                "nvidia-uvm".to_owned(),
            ],
            name,
        })
    }

    /// Runs `body` as the first process of the container; its exit code is what `body` returns. To
    /// be called in a process of its own, which then waits for that.
    pub fn run(&self, body: impl FnOnce() -> i32) -> Result<i32, String> {
        unshare(libc::CLONE_NEWNS).map_err(|e| format!("mount namespace: errno {e}"))?;
        // Before the group is entered, which also forbids making the node that it must keep closed.
        self.fill_root()?;
        self.group.enter()?;
        unshare(libc::CLONE_NEWUSER | libc::CLONE_NEWPID | libc::CLONE_NEWNS)
            .map_err(|e| format!("namespaces: errno {e}"))?;
        for (file, text) in [
            ("setgroups", "deny"),
            ("uid_map", "0 0 1\n"),
            ("gid_map", "0 0 1\n"),
        ] {
            let path = format!("/proc/self/{file}");
            fs::write(&path, text).map_err(|e| format!("{path}: {e}"))?;
        }
        let pid = sys::fork().map_err(|e| format!("fork: errno {e}"))?;
        if pid == 0 {
            sys::die_with_parent();
            let code = match self.enter() {
                Ok(()) => body(),
                Err(e) => {
                    eprintln!("container {}: {e}", self.name);
                    1
                }
            };
            sys::exit_now(code);
        }
        let status = sys::wait(pid).map_err(|e| format!("wait: errno {e}"))?;
        if libc::WIFEXITED(status) {
            Ok(libc::WEXITSTATUS(status))
        } else {
            Err(format!("{} ended with wait status {status:#x}", self.name))
        }
    }

    /// A root with `/dev` and `/proc`: the twins, `null`, and a node with the real GPU's number,
    /// which the device group must keep closed.
    fn fill_root(&self) -> Result<(), String> {
        let failed = |what: &str, e: i32| format!("{what}: errno {e}");
        sys::mount("none", "/", "none", libc::MS_REC | libc::MS_PRIVATE)
            .map_err(|e| failed("private mounts", e))?;
        fs::create_dir_all(&self.root).map_err(|e| format!("{}: {e}", self.root))?;
        sys::mount("tmpfs", &self.root, "tmpfs", 0).map_err(|e| failed("tmpfs", e))?;
        for folder in ["dev", "proc", "tmp"] {
            let path = format!("{}/{folder}", self.root);
            fs::create_dir(&path).map_err(|e| format!("{path}: {e}"))?;
        }
        for twin in &self.twins {
            let from = format!("{}/{}/{twin}", uapi::CGPUFS_MOUNT, self.name);
            self.bind(&from, &format!("{}/dev/{twin}", self.root))?;
        }
        self.bind("/dev/null", &format!("{}/dev/null", self.root))?;
        let real = format!("{}/dev/real", self.root);
        sys::make_character_device(&real, 195, 0).map_err(|e| failed("mknod", e))
    }

    fn bind(&self, from: &str, to: &str) -> Result<(), String> {
        fs::write(to, "").map_err(|e| format!("{to}: {e}"))?;
        sys::mount(from, to, "none", libc::MS_BIND).map_err(|e| format!("bind {from}: errno {e}"))
    }

    /// In the first process: the new root and its own `/proc`.
    fn enter(&self) -> Result<(), String> {
        std::os::unix::fs::chroot(&self.root).map_err(|e| format!("chroot: {e}"))?;
        std::env::set_current_dir("/").map_err(|e| format!("chdir: {e}"))?;
        sys::mount("proc", "/proc", "proc", 0).map_err(|e| format!("proc: errno {e}"))
    }
}

/// The twins show the numbers of the real devices.
pub fn check_numbers(gpu_minor: u32) -> Result<(), String> {
    let number = |path: &str| {
        let meta = fs::metadata(path).map_err(|e| format!("{path}: {e}"))?;
        let rdev = meta.rdev();
        Ok::<_, String>((libc::major(rdev), libc::minor(rdev)))
    };
    let expect = |path: &str, wanted: Device| match number(path)? {
        seen if seen == wanted => Ok(()),
        seen => Err(format!("{path} shows {seen:?}, not {wanted:?}")),
    };
    expect(&format!("/dev/nvidia{gpu_minor}"), (195, gpu_minor))?;
    expect("/dev/nvidiactl", (195, 255))
}

/// A program in a container finds this: the twins show the real numbers, the real device is closed.
pub fn look_around(gpu_minor: u32) -> Result<(), String> {
    check_numbers(gpu_minor)?;
    match sys::open("/dev/real", libc::O_RDWR) {
        Err(libc::EPERM) => {}
        other => return Err(format!("the real device can be opened: {other:?}")),
    }
    if std::process::id() != 1 {
        return Err("not the first process of a PID namespace".to_owned());
    }
    Ok(())
}
