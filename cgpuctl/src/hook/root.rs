// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The root of a container that is being made: files are mounted into it before anything runs
//! there.
//!
//! A mount is taken on the host, as a mount that is nowhere yet, and put into the
//! container's mount namespace by descriptor: no path leads from one to the other. The image
//! decides what lies at a path in the container, so every path there is resolved below the root,
//! and links cannot lead out.

use crate::{host::PathError, mount_attributes::forbid};
use nix::unistd::{setfsgid, setfsuid, Gid, Uid};
use rustix::{
    fs::{fstat, mkdirat, openat2, FileType, Mode, OFlags, ResolveFlags, CWD},
    mount::{
        fsconfig_create, fsconfig_reconfigure, fsconfig_set_flag, fsconfig_set_string, fsmount,
        fsopen, fspick, move_mount, open_tree, FsMountFlags, FsOpenFlags, FsPickFlags,
        MountAttrFlags, MoveMountFlags, OpenTreeFlags,
    },
};
use std::{
    fs::File,
    io::Write,
    os::fd::OwnedFd,
    path::{Component, Path, PathBuf},
};

/// A mount that is nowhere yet.
pub(super) struct Loose(OwnedFd);

/// A file of the host, as containers get it by CDI: a library or program cannot be written, and is
/// no device; a device runs nothing. The container's root is the host's, unless it has a user
/// namespace, so without that it could change the host's libraries.
pub(super) fn loose(source: &Path) -> Result<Loose, PathError> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    let tree = open_tree(CWD, source, flags).map_err(PathError::on("taking", source))?;
    let kind = fstat(&tree).map_err(PathError::on("looking at", source))?;
    let kind = FileType::from_raw_mode(kind.st_mode);
    let forbidden = if kind == FileType::CharacterDevice {
        MountAttrFlags::MOUNT_ATTR_NOEXEC
    } else {
        MountAttrFlags::MOUNT_ATTR_RDONLY | MountAttrFlags::MOUNT_ATTR_NODEV
    };
    forbid(&tree, forbidden | MountAttrFlags::MOUNT_ATTR_NOSUID)
        .map_err(PathError::on("restricting the mount of", source))?;
    Ok(Loose(tree))
}

/// A file system in memory with these files (path and text), which nobody can change.
pub(super) fn filled(files: &[(PathBuf, Vec<u8>)]) -> Result<Loose, PathError> {
    let name = Path::new("tmpfs");
    let wrap = || PathError::on("making a file system of the kind", name);
    let context = fsopen("tmpfs", FsOpenFlags::FSOPEN_CLOEXEC).map_err(wrap())?;
    fsconfig_set_string(&context, "mode", "0555").map_err(wrap())?;
    fsconfig_create(&context).map_err(wrap())?;
    let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID
        | MountAttrFlags::MOUNT_ATTR_NODEV
        | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    let mount = fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, attributes).map_err(wrap())?;
    let inside = Root(mount);
    for (path, text) in files {
        let mut file = File::from(inside.make(path, 0o444)?);
        file.write_all(text)
            .map_err(PathError::on("filling", path))?;
    }
    let Root(mount) = inside;
    let picked = fspick(
        &mount,
        "",
        FsPickFlags::FSPICK_EMPTY_PATH | FsPickFlags::FSPICK_CLOEXEC,
    )
    .map_err(wrap())?;
    fsconfig_set_flag(&picked, "ro").map_err(wrap())?;
    fsconfig_reconfigure(&picked).map_err(wrap())?;
    Ok(Loose(mount))
}

/// The kind of file that a mount is put on.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// A file, made if it is not there.
    File,
    /// A folder, which must be there.
    Folder,
}

/// The root of a container.
pub(super) struct Root(OwnedFd);

impl Root {
    /// Opens it, in the mount namespace that this process is in.
    pub(super) fn open(path: &Path) -> Result<Self, PathError> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root =
            rustix::fs::open(path, flags, Mode::empty()).map_err(PathError::on("opening", path))?;
        Ok(Self(root))
    }

    /// Whether there is something at a path.
    pub(super) fn has(&self, path: &Path) -> bool {
        self.find(path, OFlags::PATH).is_ok()
    }

    /// Puts a mount at a path.
    pub(super) fn put(&self, mount: &Loose, path: &Path, kind: Kind) -> Result<(), PathError> {
        let target = match kind {
            Kind::File => {
                if !self.has(path) {
                    self.make(path, 0o644)?;
                }
                self.find(path, OFlags::PATH)
            }
            Kind::Folder => self.find(path, OFlags::PATH | OFlags::DIRECTORY),
        };
        let target = target.map_err(PathError::on("finding in the container", path))?;
        let flags =
            MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
        move_mount(&mount.0, "", &target, "", flags)
            .map_err(PathError::on("mounting in the container at", path))
    }

    fn find(&self, path: &Path, flags: OFlags) -> rustix::io::Result<OwnedFd> {
        openat2(
            &self.0,
            path,
            flags | OFlags::CLOEXEC,
            Mode::empty(),
            ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS,
        )
    }

    /// Makes a file and the folders above it.
    fn make(&self, path: &Path, mode: u32) -> Result<OwnedFd, PathError> {
        let wrap = || PathError::on("making in the container", path);
        let mut above = PathBuf::from("/");
        let mut folder = self
            .find(&above, OFlags::PATH | OFlags::DIRECTORY)
            .map_err(wrap())?;
        let parent = path.parent().unwrap_or(Path::new("/"));
        for part in parent.components() {
            let Component::Normal(name) = part else {
                continue;
            };
            above.push(name);
            let found = self.find(&above, OFlags::PATH | OFlags::DIRECTORY);
            folder = match found {
                Err(rustix::io::Errno::NOENT) => {
                    as_owner(&folder, || {
                        mkdirat(&folder, name, Mode::from_raw_mode(0o755))
                    })
                    .map_err(wrap())?;
                    self.find(&above, OFlags::PATH | OFlags::DIRECTORY)
                        .map_err(wrap())?
                }
                found => found.map_err(wrap())?,
            };
        }
        let name = path.file_name().unwrap_or_default();
        let open = || {
            openat2(
                &folder,
                name,
                OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC,
                Mode::from_raw_mode(mode),
                ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS,
            )
        };
        as_owner(&folder, open).map_err(wrap())
    }
}

/// Makes something in a folder, as the folder's owner where it must be: the file systems of a
/// container with a user namespace of its own have no number for the host's root.
fn as_owner<T>(
    folder: &OwnedFd,
    make: impl Fn() -> rustix::io::Result<T>,
) -> rustix::io::Result<T> {
    match make() {
        Err(rustix::io::Errno::OVERFLOW) => {}
        made => return made,
    }
    let owner = fstat(folder)?;
    // Of this thread only. The user comes last and goes first, whose capabilities the group needs.
    let group = setfsgid(Gid::from_raw(owner.st_gid));
    let user = setfsuid(Uid::from_raw(owner.st_uid));
    let made = make();
    setfsuid(user);
    setfsgid(group);
    made
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        fs,
        io::{BufRead, BufReader},
        os::unix::fs::MetadataExt,
        process::{Child, Command, Stdio},
    };

    /// Programs that end with the test.
    struct Running(Child);

    impl Running {
        /// Starts one and waits until it says something; `None` where it cannot.
        fn start(program: &str, arguments: &[&str]) -> Option<Self> {
            let mut command = Command::new(program);
            let command = command.args(arguments).stdin(Stdio::piped());
            let mut own = Self(command.stdout(Stdio::piped()).spawn().ok()?);
            let mut line = String::new();
            let said = BufReader::new(own.0.stdout.take()?).read_line(&mut line);
            (said.ok()? > 0).then_some(own)
        }

        fn place(&self, name: &str) -> String {
            format!("/proc/{}/{name}", self.0.id())
        }
    }

    impl Drop for Running {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    /// A program in a user namespace without the host's root, with a file system at `/tmp`.
    fn container(first: u32) -> Option<[Running; 2]> {
        let user = Running::start("unshare", &["--user", "sh", "-c", "echo; read x"])?;
        for map in ["uid_map", "gid_map"] {
            fs::write(user.place(map), format!("0 {first} 1000")).ok()?;
        }
        let namespace = format!("--user={}", user.place("ns/user"));
        let script = "mount -t tmpfs -o mode=0755 tmpfs /tmp && echo && read x";
        let arguments = [&*namespace, "unshare", "--mount", "sh", "-c", script];
        let mount = Running::start("nsenter", &arguments)?;
        Some([user, mount])
    }

    #[test]
    fn files_are_made_in_user_namespaces() {
        let first = 100_000;
        let Some([_user, mount]) = container(first) else {
            eprintln!("skipped: no user namespace can be made here");
            return;
        };
        let root = Root::open(Path::new(&mount.place("root/tmp"))).expect("opened");
        let made = root.make(Path::new("/dev/a/nvidia0"), 0o644);
        made.expect("made");
        for name in ["dev", "dev/a", "dev/a/nvidia0"] {
            let path = mount.place(&format!("root/tmp/{name}"));
            let status = fs::metadata(path).expect("there");
            assert_eq!((status.uid(), status.gid()), (first, first), "{name}");
        }
        // Root again, here.
        let own = std::env::temp_dir().join(format!("cgpu-root-{}", std::process::id()));
        fs::write(&own, "").expect("written");
        let owner = fs::metadata(&own).expect("there").uid();
        fs::remove_file(&own).expect("removed");
        assert_eq!(owner, nix::unistd::geteuid().as_raw());
    }
}
