// SPDX-License-Identifier: GPL-2.0 OR MIT
//! cgpufs, the filesystem of the proxy nodes: where it is mounted, how it is mounted and unmounted.
//!
//! The proxy nodes show the numbers of the real NVIDIA devices, so nobody but root may reach them
//! by path: they lie below `/run/cgpu`, which has mode 0700, and come to a container only as a
//! bind mount.

use crate::{files, path_error::PathError};
use cgpu_uapi::{CGPUFS_MOUNT, CGPUFS_TYPE};
use nix::{
    errno::Errno,
    fcntl::Flock,
    mount::{umount2, MntFlags, MsFlags},
};
use std::{
    fs::{self, DirBuilder, File, Permissions},
    io::ErrorKind,
    os::unix::{
        ffi::OsStringExt,
        fs::{DirBuilderExt, MetadataExt, PermissionsExt},
    },
    path::{Path, PathBuf},
};

const MOUNTINFO: &str = "/proc/self/mountinfo";

/// The folder above the mount point, which keeps everybody but root out.
pub fn guard_folder() -> &'static Path {
    let point = Path::new(CGPUFS_MOUNT);
    point.parent().unwrap_or(point)
}

/// The mount points of this filesystem type in the text of `/proc/PID/mountinfo` (proc(5)): the
/// fifth field, where the type is the first field behind the lone `-`.
fn mount_points(mountinfo: &str, fs_type: &str) -> Vec<PathBuf> {
    mountinfo
        .lines()
        .filter_map(|line| {
            let (mount, source) = line.split_once(" - ")?;
            let same = source.split(' ').next() == Some(fs_type);
            let point = mount.split(' ').nth(4)?;
            same.then(|| unescape(point))
        })
        .collect()
}

/// Undoes the kernel's `\ooo` for space, tab, newline and backslash.
fn unescape(field: &str) -> PathBuf {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field.as_bytes();
    while let Some((&first, tail)) = rest.split_first() {
        let octal = tail
            .get(..3)
            .filter(|_| first == b'\\')
            .and_then(|digits| std::str::from_utf8(digits).ok())
            .and_then(|digits| u8::from_str_radix(digits, 8).ok());
        match octal {
            Some(byte) => {
                bytes.push(byte);
                rest = tail.get(3..).unwrap_or_default();
            }
            None => {
                bytes.push(first);
                rest = tail;
            }
        }
    }
    PathBuf::from(std::ffi::OsString::from_vec(bytes))
}

/// Makes the folder with this mode, or accepts the one that is there.
fn make_folder(path: &Path, mode: u32) -> Result<(), PathError> {
    match DirBuilder::new().mode(mode).create(path) {
        Err(e) if e.kind() != ErrorKind::AlreadyExists => {
            Err(PathError::on("making the folder", path)(e))
        }
        _ => Ok(()),
    }
}

/// Makes a folder that only its owner can enter, or checks that the one which is there is of this
/// owner, and closes it to everybody else.
fn make_closed(path: &Path, owner: u32) -> Result<(), PathError> {
    make_folder(path, 0o700)?;
    let folder = fs::symlink_metadata(path).map_err(PathError::on("looking at", path))?;
    if !folder.is_dir() {
        return Err(PathError::on("using as a folder", path)(Errno::ENOTDIR));
    }
    if folder.uid() != owner {
        return Err(PathError::on("making a folder of root's at", path)(
            Errno::EEXIST,
        ));
    }
    if folder.mode() & 0o777 != 0o700 {
        fs::set_permissions(path, Permissions::from_mode(0o700))
            .map_err(PathError::on("closing to other users", path))?;
    }
    Ok(())
}

/// Makes the guard folder, or closes the one that is there to everybody but root. A kubelet makes
/// it with mode 0755, as it does all folders of the host for its pods.
pub fn close_guard_folder() -> Result<(), PathError> {
    make_closed(guard_folder(), 0)
}

/// Closes the guard folder and locks it, so that two tools do not mount at once.
fn lock_guard_folder() -> Result<Flock<File>, PathError> {
    close_guard_folder()?;
    files::lock_folder(guard_folder())
}

/// The places at which cgpufs, or a file of it, is mounted in this mount namespace; a path that is
/// mounted over twice is listed twice.
pub fn mounts() -> Result<Vec<PathBuf>, PathError> {
    let text = fs::read(MOUNTINFO).map_err(PathError::on("reading", Path::new(MOUNTINFO)))?;
    Ok(mount_points(&String::from_utf8_lossy(&text), CGPUFS_TYPE))
}

/// Mounts cgpufs at [`CGPUFS_MOUNT`], below a folder that only root can enter, unless it is mounted
/// there. Tells whether it did.
pub fn mount() -> Result<bool, PathError> {
    let point = Path::new(CGPUFS_MOUNT);
    let _lock = lock_guard_folder()?;
    if mounts()?.iter().any(|path| path == point) {
        return Ok(false);
    }
    make_folder(point, 0o755)?;
    // Not nodev: the filesystem consists of device nodes.
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NOEXEC;
    let name = Some(CGPUFS_TYPE);
    nix::mount::mount(name, point, name, flags, None::<&str>)
        .map_err(PathError::on("mounting cgpufs at", point))?;
    Ok(true)
}

/// Unmounts cgpufs from this path.
pub fn unmount(path: &Path) -> Result<(), PathError> {
    umount2(path, MntFlags::UMOUNT_NOFOLLOW).map_err(PathError::on("unmounting", path))
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::unistd::geteuid;

    #[test]
    fn an_open_folder_is_closed() {
        let name = format!("cgpu-guard-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        let own = geteuid().as_raw();
        let mode = || fs::metadata(&folder).expect("there").mode() & 0o7777;
        fs::create_dir(&folder).expect("made");
        fs::set_permissions(&folder, Permissions::from_mode(0o755)).expect("opened");
        make_closed(&folder, own).expect("closed");
        assert_eq!(mode(), 0o700);
        make_closed(&folder, own + 1).expect_err("somebody else's");
        fs::remove_dir(&folder).expect("removed");
        make_closed(&folder, own).expect("made");
        assert_eq!(mode(), 0o700);
        fs::remove_dir(&folder).expect("removed");
    }

    #[test]
    fn mounts_of_cgpufs_are_found_among_others() {
        let text = "\
22 28 0:21 / /proc rw,nosuid shared:12 - proc proc rw
90 28 0:50 / /run/cgpu/dev rw,nosuid,noexec shared:44 - cgpufs cgpufs rw
91 28 0:50 /train/nvidia0 /srv/a\\040b/dev\\134nvidia0 rw - cgpufs cgpufs rw
92 28 0:51 / /mnt/cgpufs rw master:3 - tmpfs cgpufs rw
93 90 0:50 / /run/cgpu/dev rw - cgpufs none rw
";
        let points = mount_points(text, "cgpufs");
        assert_eq!(
            points,
            [
                Path::new("/run/cgpu/dev"),
                Path::new("/srv/a b/dev\\nvidia0"),
                Path::new("/run/cgpu/dev")
            ]
        );
        assert!(mount_points(text, "nothing").is_empty());
    }
}
