// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The real [`Host`]: mounts of cgpufs and the module.

use crate::{
    bpf,
    client::{errno, Client},
    container::Mount,
    control::Control,
    error::Problem,
    exit::Exit,
    host::{FileStatus, Host, Look, PathError, Watch, MODULE},
    spawn,
};
use cgpu_client::cgpufs;
use cgpu_uapi::CGPUFS_MOUNT;
use nix::{
    errno::Errno,
    kmod::{delete_module, DeleteModuleFlags},
    sys::{
        inotify::{AddWatchFlags, InitFlags, Inotify},
        stat::makedev,
    },
};
use rustix::fs::{statx, AtFlags, FileType, StatxFlags, CWD};
use std::{
    ffi::OsString,
    fs,
    io::{IsTerminal, Read},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

/// This machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct System;

/// The folder of the host nodes, which come and go with the instances.
const NODES: &str = "/dev";
/// An instance has several nodes; those of one command are taken for one change.
const SETTLE: Duration = Duration::from_millis(100);

/// Whether this process is the host's root, and not that of a user's containers, which has the
/// number 0 in its own user namespace only.
fn is_hosts_root() -> bool {
    // One line for all numbers: each is itself (user_namespaces(7)). Kernels can lack it.
    let map = fs::read_to_string("/proc/self/uid_map");
    let is_whole = |map: String| map.split_whitespace().eq(["0", "0", "4294967295"]);
    nix::unistd::geteuid().is_root() && map.map_or(true, is_whole)
}

impl Problem {
    /// Why a file operation failed. Sudo would not help root, which is told where.
    pub fn of_path(error: PathError, is_root: bool) -> Self {
        if error.is_permission() && !is_root {
            return Self::NotPermitted;
        }
        Self::Path(error)
    }
}

impl From<PathError> for Problem {
    fn from(error: PathError) -> Self {
        Self::of_path(error, is_hosts_root())
    }
}

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
    /// On a terminal that can, unless the user does not want any (no-color.org).
    fn is_colored(&self) -> bool {
        let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
        let is_plain = set("NO_COLOR").is_some() || set("TERM").is_none_or(|term| term == "dumb");
        std::io::stdout().is_terminal() && !is_plain
    }

    fn hook(&self) -> Option<PathBuf> {
        let own = std::env::current_exe().ok()?;
        let hook = own.with_file_name("cgpu-hook");
        hook.is_file().then_some(hook)
    }

    fn preflight(&self) -> Result<String, Errno> {
        let own = std::env::current_exe().map_err(|e| errno(&e))?;
        let mut script = Command::new(own.with_file_name("cgpu-preflight"));
        let ended = script.arg("--report").stdin(Stdio::null()).output();
        let ended = ended.map_err(|e| errno(&e))?;
        // 1: something must be changed.
        match ended.status.code() {
            Some(0 | 1) => Ok(String::from_utf8_lossy(&ended.stdout).into_owned()),
            _ => Err(Errno::EIO),
        }
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
        cgpufs::mounts()
    }

    fn mount_cgpufs(&self) -> Result<bool, PathError> {
        cgpufs::mount()
    }

    fn run_program(&self, program: &[OsString], mounts: &[Mount]) -> Result<Exit, PathError> {
        spawn::run(program, mounts)
    }

    fn unmount_cgpufs(&self, path: &Path) -> Result<(), PathError> {
        cgpufs::unmount(path)
    }

    fn remove_mount_point(&self) {
        // Somebody else may have put something there; it is theirs then, and no reason to fail.
        let _ = fs::remove_dir(crate::hook::journal::FOLDER);
        let _ = fs::remove_dir(CGPUFS_MOUNT);
        let _ = fs::remove_dir(cgpufs::guard_folder());
    }

    fn unload_module(&self) -> Result<(), Errno> {
        let name = std::ffi::CString::new(MODULE).map_err(|_| Errno::EINVAL)?;
        delete_module(&name, DeleteModuleFlags::O_NONBLOCK)
    }

    fn kernel_log(&self) -> Result<String, Errno> {
        let mut options = fs::OpenOptions::new();
        let flags = nix::libc::O_NONBLOCK;
        let log = options.read(true).custom_flags(flags).open("/dev/kmsg");
        let mut log = log.map_err(|e| errno(&e))?;
        let mut text = String::new();
        // A record a read; one is of 1 KiB at most, and 8 with what goes with it.
        let mut record = [0; 8192];
        loop {
            match log.read(&mut record) {
                Ok(0) => return Ok(text),
                Ok(n) => {
                    let line = String::from_utf8_lossy(record.get(..n).unwrap_or_default());
                    // Priority, number, microseconds and flags stand before the semicolon.
                    let (head, said) = line.split_once(';').unwrap_or(("", &line));
                    let at = head.split(',').nth(2).unwrap_or_default();
                    let said = said.lines().next().unwrap_or_default();
                    text.push_str(&format!("[{at}] {said}\n"));
                }
                Err(e) => match errno(&e) {
                    Errno::EAGAIN => return Ok(text),
                    // It was overwritten meanwhile; the next one is there.
                    Errno::EPIPE => {}
                    errno => return Err(errno),
                },
            }
        }
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

    fn link(&self, path: &Path) -> Result<PathBuf, Errno> {
        fs::read_link(path).map_err(|e| errno(&e))
    }

    fn status(&self, path: &Path) -> Result<FileStatus, Errno> {
        // Without an answer of a file's server: a dead one would never give it, and a process may
        // have such a file open.
        let (flags, wanted) = (AtFlags::STATX_DONT_SYNC, StatxFlags::BASIC_STATS);
        let facts = statx(CWD, path, flags, wanted)
            .map_err(|errno| Errno::from_raw(errno.raw_os_error()))?;
        let mode = u32::from(facts.stx_mode);
        Ok(FileStatus {
            device: makedev(facts.stx_dev_major.into(), facts.stx_dev_minor.into()),
            mode,
            uid: facts.stx_uid,
            is_char_device: FileType::from_raw_mode(mode) == FileType::CharacterDevice,
            major: facts.stx_rdev_major.into(),
            minor: facts.stx_rdev_minor.into(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn facts_are_those_of_stat() {
        let null = System.status(Path::new("/dev/null")).expect("there");
        assert!(null.is_char_device);
        assert_eq!((null.major, null.minor), (1, 3));
        for path in ["/dev/null", "/proc/self/exe", "/proc"] {
            let facts = System.status(Path::new(path)).expect("there");
            let wanted = fs::metadata(path).expect("there");
            let found = (facts.device, facts.mode, facts.uid);
            assert_eq!(found, (wanted.dev(), wanted.mode(), wanted.uid()), "{path}");
        }
        let absent = System.status(Path::new("/nobody"));
        assert_eq!(absent, Err(Errno::ENOENT));
    }
}
