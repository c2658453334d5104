// SPDX-License-Identifier: GPL-2.0 OR MIT
//! `mount_setattr(2)`: what may be done through a mount. rustix has no such call.

use nix::libc;
use rustix::mount::MountAttrFlags;
use std::{
    io::Error,
    os::fd::{AsFd, AsRawFd},
};

/// Forbids more of what may be done through a mount that is nowhere yet. From now on, nothing that
/// is mounted in it is seen elsewhere.
pub(crate) fn forbid(mount: &impl AsFd, more: MountAttrFlags) -> Result<(), Error> {
    let mut attributes = libc::mount_attr {
        attr_set: u64::from(more.bits()),
        attr_clr: 0,
        propagation: libc::MS_PRIVATE,
        userns_fd: 0,
    };
    // SAFETY: the path is an empty string, and the attributes have the size that is told.
    let ret = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            mount.as_fd().as_raw_fd(),
            c"".as_ptr(),
            libc::AT_EMPTY_PATH,
            &raw mut attributes,
            size_of::<libc::mount_attr>(),
        )
    };
    if ret < 0 {
        return Err(Error::last_os_error());
    }
    Ok(())
}
