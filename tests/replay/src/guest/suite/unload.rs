// SPDX-License-Identifier: GPL-2.0
//! Taking the module out: refused while it is used, complete when it is not.

use std::{ffi::CStr, fs};

use cgpu_uapi as uapi;

use crate::{
    control::folder,
    guest::tools::{control, equal, fails, holds, sys, Test, Verdict, GIB, GPU},
    standin, sys as os,
};

pub(super) const TESTS: &[Test] = &[
    ("unload: refused while proxy nodes are mounted", mounted),
    ("unload: leaves nothing behind", clean),
];

/// `delete_module(2)`, without waiting.
pub(super) fn delete_module(name: &CStr) -> Result<(), i32> {
    // SAFETY: a C string that lives over the call.
    let ret = unsafe { libc::syscall(libc::SYS_delete_module, name.as_ptr(), libc::O_NONBLOCK) };
    if ret < 0 {
        Err(os::errno())
    } else {
        Ok(())
    }
}

fn mounted() -> Verdict {
    fails("rmmod", delete_module(c"cgpu_km"), libc::EWOULDBLOCK)?;
    // A mount of a single proxy node is enough.
    let c = control()?;
    sys("create", c.create("mounted", GPU, GIB, 1))?;
    let target = "/tmp/bound";
    fs::write(target, "").map_err(|e| e.to_string())?;
    let from = format!("{}/nvidiactl", folder("mounted"));
    sys("bind", os::mount(&from, target, "none", libc::MS_BIND))?;
    sys("destroy", c.destroy("mounted", GPU))?;
    drop(c);
    sys("umount", os::unmount(uapi::CGPUFS_MOUNT, 0))?;
    let refused = delete_module(c"cgpu_km");
    sys("umount", os::unmount(target, 0))?;
    let _ = fs::remove_file(target);
    fails("rmmod", refused, libc::EWOULDBLOCK)
}

fn clean() -> Verdict {
    let _ = os::unmount(uapi::CGPUFS_MOUNT, 0);
    sys("rmmod", delete_module(c"cgpu_km"))?;
    holds("/proc", !fs::exists("/proc/cgpu_km").unwrap_or(true))?;
    holds(
        "control device",
        !fs::exists(uapi::CONTROL_PATH).unwrap_or(true),
    )?;
    let nodes = fs::read_dir("/dev").map_err(|e| e.to_string())?;
    for node in nodes.flatten() {
        let name = node.file_name().to_string_lossy().into_owned();
        holds(&name, !name.starts_with("cgpu"))?;
    }
    let filesystems = fs::read_to_string("/proc/filesystems").map_err(|e| e.to_string())?;
    holds("filesystem", !filesystems.contains(uapi::CGPUFS_TYPE))?;
    let refs = standin::read("refs")?;
    equal("the driver's files", &standin::number(&refs, "files"), &0)?;
    let users = "/sys/module/fake_nvidia/refcnt";
    let users = fs::read_to_string(users).map_err(|e| e.to_string())?;
    equal("the driver's users", &users.trim(), &"0")
}
