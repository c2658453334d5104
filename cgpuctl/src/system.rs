// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The real [`Host`]: mounts of cgpufs and the module.
//!
//! The proxy nodes in cgpufs show the numbers of the real NVIDIA devices, so nobody but root may
//! reach them by path: they lie below `/run/cgpu`, which has mode 0700, and come to a container
//! only as a bind mount.

use crate::{
    bpf,
    client::{errno, Client},
    control::Control,
    host::{FileStatus, Host, Look, PathError, Watch, MODULE},
};
use cgpu_uapi::{CGPUFS_MOUNT, CGPUFS_TYPE};
use nix::{
    errno::Errno,
    fcntl::{Flock, FlockArg},
    kmod::{delete_module, DeleteModuleFlags},
    mount::{mount, umount2, MntFlags, MsFlags},
    sys::{
        inotify::{AddWatchFlags, InitFlags, Inotify},
        stat::{major, minor},
    },
};
use std::{
    ffi::OsString,
    fs::{self, DirBuilder, File, Permissions},
    io::ErrorKind,
    os::unix::{
        ffi::OsStringExt,
        fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt},
    },
    path::{Path, PathBuf},
    time::Duration,
};

/// This machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct System;

const MOUNTINFO: &str = "/proc/self/mountinfo";

/// The folder above the mount point, which keeps everybody but root out.
fn guard_folder() -> &'static Path {
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

/// Makes the guard folder, or checks that the one which is there is a folder of root's and closes
/// it to everybody else. Gives it back locked, so that two tools do not mount at once.
fn lock_guard_folder() -> Result<Flock<File>, PathError> {
    let path = guard_folder();
    make_folder(path, 0o700)?;
    let folder = fs::symlink_metadata(path).map_err(PathError::on("looking at", path))?;
    if !folder.is_dir() {
        return Err(PathError::on("using as a folder", path)(Errno::ENOTDIR));
    }
    if folder.uid() != 0 {
        return Err(PathError::on("making a folder of root's at", path)(
            Errno::EEXIST,
        ));
    }
    if folder.mode() & 0o777 != 0o700 {
        fs::set_permissions(path, Permissions::from_mode(0o700))
            .map_err(PathError::on("closing to other users", path))?;
    }
    let folder = File::open(path).map_err(PathError::on("opening", path))?;
    let locked = Flock::lock(folder, FlockArg::LockExclusive).map_err(|(_, errno)| errno);
    locked.map_err(PathError::on("locking", path))
}

/// The folder of the host nodes, which come and go with the instances.
const NODES: &str = "/dev";
/// An instance has several nodes; those of one command are taken for one change.
const SETTLE: Duration = Duration::from_millis(100);

/// Changes of the host nodes.
struct NodeWatch(Inotify);

fn unwatched() -> impl FnOnce(Errno) -> PathError {
    PathError::on("watching", Path::new(NODES))
}

impl Watch for NodeWatch {
    fn wait(&mut self) -> Result<(), PathError> {
        loop {
            let events = self.0.read_events().map_err(unwatched())?;
            let ours = |name: &std::ffi::OsString| name.to_string_lossy().starts_with("cgpu");
            if events.iter().any(|e| e.name.as_ref().is_some_and(ours)) {
                std::thread::sleep(SETTLE);
                return Ok(());
            }
        }
    }
}

impl Host for System {
    fn hook(&self) -> Option<PathBuf> {
        let own = std::env::current_exe().ok()?;
        let hook = own.with_file_name("cgpu-hook");
        hook.is_file().then_some(hook)
    }

    fn watch(&self) -> Result<Box<dyn Watch>, PathError> {
        let inotify = Inotify::init(InitFlags::IN_CLOEXEC).map_err(unwatched())?;
        let flags = AddWatchFlags::IN_CREATE | AddWatchFlags::IN_DELETE;
        inotify.add_watch(NODES, flags).map_err(unwatched())?;
        Ok(Box::new(NodeWatch(inotify)))
    }

    fn control(&self) -> Result<Box<dyn Control>, Errno> {
        Ok(Box::new(Client::open()?))
    }

    fn cgpufs_mounts(&self) -> Result<Vec<PathBuf>, PathError> {
        let text = fs::read(MOUNTINFO).map_err(PathError::on("reading", Path::new(MOUNTINFO)))?;
        Ok(mount_points(&String::from_utf8_lossy(&text), CGPUFS_TYPE))
    }

    fn mount_cgpufs(&self) -> Result<bool, PathError> {
        let point = Path::new(CGPUFS_MOUNT);
        let _lock = lock_guard_folder()?;
        if self.cgpufs_mounts()?.iter().any(|path| path == point) {
            return Ok(false);
        }
        make_folder(point, 0o755)?;
        // Not nodev: the filesystem consists of device nodes.
        let flags = MsFlags::MS_NOSUID | MsFlags::MS_NOEXEC;
        let name = Some(CGPUFS_TYPE);
        mount(name, point, name, flags, None::<&str>)
            .map_err(PathError::on("mounting cgpufs at", point))?;
        Ok(true)
    }

    fn unmount_cgpufs(&self, path: &Path) -> Result<(), PathError> {
        umount2(path, MntFlags::UMOUNT_NOFOLLOW).map_err(PathError::on("unmounting", path))
    }

    fn remove_mount_point(&self) {
        // Somebody else may have put something there; it is theirs then, and no reason to fail.
        let _ = fs::remove_dir(crate::hook::journal::FOLDER);
        let _ = fs::remove_dir(CGPUFS_MOUNT);
        let _ = fs::remove_dir(guard_folder());
    }

    fn unload_module(&self) -> Result<(), Errno> {
        let name = std::ffi::CString::new(MODULE).map_err(|_| Errno::EINVAL)?;
        delete_module(&name, DeleteModuleFlags::O_NONBLOCK)
    }

    fn look(&self) -> &dyn Look {
        self
    }
}

impl Look for System {
    fn device_programs(&self, group: &Path) -> Result<Vec<Vec<u64>>, Errno> {
        let folder = fs::File::open(group).map_err(|e| errno(&e))?;
        let (programs, _) = bpf::device_programs(&folder)?;
        programs.iter().map(bpf::instructions).collect()
    }

    fn read(&self, path: &Path) -> Result<String, Errno> {
        let bytes = fs::read(path).map_err(|e| errno(&e))?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    fn names(&self, folder: &Path) -> Result<Vec<OsString>, Errno> {
        let entries = fs::read_dir(folder).map_err(|e| errno(&e))?;
        let names = entries.map(|entry| Ok(entry?.file_name()));
        names
            .collect::<Result<_, std::io::Error>>()
            .map_err(|e| errno(&e))
    }

    fn status(&self, path: &Path) -> Result<FileStatus, Errno> {
        let metadata = fs::metadata(path).map_err(|e| errno(&e))?;
        let number = metadata.rdev();
        Ok(FileStatus {
            device: metadata.dev(),
            mode: metadata.mode(),
            uid: metadata.uid(),
            is_char_device: metadata.file_type().is_char_device(),
            major: major(number),
            minor: minor(number),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
