// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Files of the host that other programs read at any time: they appear whole or not at all.
//!
//! A link stays, and the file that it leads to is written. Another thing than a file, such as
//! `/dev/stdout` or `/dev/null`, is written to, never replaced and never removed.

use crate::path_error::PathError;
use nix::{
    errno::Errno,
    fcntl::{Flock, FlockArg},
    unistd::geteuid,
};
use std::{
    collections::BTreeSet,
    ffi::OsString,
    fs::{self, DirBuilder, File, Metadata, OpenOptions, Permissions},
    io::{self, ErrorKind, Write},
    os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

/// Writes a file whole or not at all, also if the machine stops in the middle.
pub fn write_whole(path: &Path, text: &[u8]) -> Result<(), PathError> {
    put(path, text, None).map_err(PathError::on("writing", path))
}

/// Puts a text in the place of a file that is there, whole or not at all, with its permissions.
pub fn replace_whole(path: &Path, text: &[u8]) -> Result<(), PathError> {
    let permissions = fs::metadata(path).map(|before| before.permissions());
    let replaced = permissions.and_then(|permissions| put(path, text, Some(permissions)));
    replaced.map_err(PathError::on("replacing", path))
}

/// Removes a file; that it is not there is no failure.
pub fn remove(path: &Path) -> Result<(), PathError> {
    let place = Place::of(path).map_err(PathError::on("removing", path))?;
    let Place::File(file) = place else {
        return Ok(());
    };
    match fs::remove_file(file) {
        Err(e) if e.kind() != ErrorKind::NotFound => Err(PathError::on("removing", path)(e)),
        _ => Ok(()),
    }
}

/// The names of what is in a folder. One that is not there has nothing in it.
pub fn names(folder: &Path) -> Result<BTreeSet<OsString>, PathError> {
    let names = match fs::read_dir(folder) {
        Ok(entries) => entries.map(|e| Ok(e?.file_name())).collect(),
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(BTreeSet::new()),
        Err(e) => Err(e),
    };
    names.map_err(PathError::on("reading the folder", folder))
}

/// Removes the files of a folder that a process was writing when it was stopped, if their names
/// begin so. Whoever writes such a file meanwhile fails.
pub fn remove_unfinished(folder: &Path, begin: &str) -> Result<(), PathError> {
    for name in names(folder)? {
        let text = name.to_str().filter(|text| text.starts_with(begin));
        let stem = text.and_then(|text| text.strip_suffix(UNFINISHED));
        let pid = stem.and_then(|stem| Some(stem.rsplit_once('.')?.1));
        if pid.is_none_or(|pid| pid.parse::<u32>().is_err()) {
            continue;
        }
        let path = folder.join(name);
        match fs::remove_file(&path) {
            Err(e) if e.kind() != ErrorKind::NotFound => {
                return Err(PathError::on("removing", &path)(e));
            }
            _ => {}
        }
    }
    Ok(())
}

/// Makes a folder that only its owner can enter, and those above it.
pub fn make_folder(folder: &Path) -> Result<(), PathError> {
    let made = DirBuilder::new().mode(0o700).recursive(true).create(folder);
    made.map_err(PathError::on("making the folder", folder))
}

/// Locks a folder against others who do so, and waits for them.
pub fn lock_folder(folder: &Path) -> Result<Flock<File>, PathError> {
    let opened = File::open(folder).map_err(PathError::on("opening", folder))?;
    let locked = Flock::lock(opened, FlockArg::LockExclusive).map_err(|(_, errno)| errno);
    locked.map_err(PathError::on("locking", folder))
}

/// A turn at writing a file, for one who asks at a time. Its lock is a file beside it that only the
/// owner can open: whoever can open a file or a folder can lock it. It goes with the turn.
/// There is none at a thing that is no file.
pub struct FileTurn(Option<(PathBuf, Flock<File>)>);

impl FileTurn {
    /// Waits for the others' turns at the file.
    pub fn wait(file: &Path) -> Result<Self, PathError> {
        let Place::File(file) = Place::of(file).map_err(PathError::on("locking", file))? else {
            return Ok(Self(None));
        };
        let mut name = file.file_name().unwrap_or_default().to_owned();
        name.push(".lock");
        let path = file.with_file_name(name);
        let mut options = OpenOptions::new();
        let options = options.write(true).create(true).mode(0o600);
        options.custom_flags(nix::libc::O_NOFOLLOW);
        loop {
            let opened = options
                .open(&path)
                .map_err(PathError::on("opening", &path))?;
            let locked = Flock::lock(opened, FlockArg::LockExclusive).map_err(|(_, errno)| errno);
            let lock = locked.map_err(PathError::on("locking", &path))?;
            // The one before us has removed the file that we were waiting at.
            if lock.metadata().is_ok_and(|m| m.nlink() > 0) {
                return Ok(Self(Some((path, lock))));
            }
        }
    }
}

impl Drop for FileTurn {
    fn drop(&mut self) {
        if let Some((path, _lock)) = &self.0 {
            // If it stays, the next one takes it.
            let _ = fs::remove_file(path);
        }
    }
}

/// The thing that a path leads to.
enum Place {
    /// A file that is there or can be made, at this path.
    File(PathBuf),
    /// A device, a pipe or the like.
    Other,
}

impl Place {
    fn of(path: &Path) -> io::Result<Self> {
        let mut path = path.to_owned();
        for _ in 0..LINKS_MAX {
            match fs::symlink_metadata(&path) {
                Ok(link) if link.is_symlink() && is_trusted(&link) => {}
                Ok(other) if !other.is_symlink() && !other.is_file() && !other.is_dir() => {
                    return Ok(Self::Other);
                }
                Err(e) if e.kind() != ErrorKind::NotFound => return Err(e),
                _ => return Ok(Self::File(path)),
            }
            // The links of `/proc/PID/fd` to what has no path are followed by the kernel alone.
            if fs::metadata(&path).is_ok_and(|it| !it.is_file() && !it.is_dir()) {
                return Ok(Self::Other);
            }
            let target = fs::read_link(&path)?;
            path = path.parent().unwrap_or(Path::new("/")).join(target);
        }
        Err(Errno::ELOOP.into())
    }
}

/// How many links lead to a file at most, as in the kernel (path_resolution(7)).
const LINKS_MAX: u32 = 40;

/// Whether a link may be followed. One that somebody else has put into `/tmp`, say, is replaced:
/// this program may write where they may not.
fn is_trusted(link: &Metadata) -> bool {
    link.uid() == 0 || link.uid() == geteuid().as_raw()
}

/// The end of the name of a file that is being written. In front of it is the writer's pid.
const UNFINISHED: &str = ".new";

/// Fills a file beside the path and gives it that name. Its own name ends in `.new`: container
/// engines read files that end in `.json` or `.yaml`, and so do this project's journals.
fn put(path: &Path, text: &[u8], permissions: Option<Permissions>) -> io::Result<()> {
    let Place::File(path) = Place::of(path)? else {
        return OpenOptions::new().write(true).open(path)?.write_all(text);
    };
    let fresh = path.with_extension(format!("{}{UNFINISHED}", std::process::id()));
    let written = fill(&fresh, text, permissions).and_then(|()| fs::rename(&fresh, &path));
    if written.is_err() {
        // The failure to report is the other one.
        let _ = fs::remove_file(&fresh);
    }
    written
}

fn fill(path: &Path, text: &[u8], permissions: Option<Permissions>) -> io::Result<()> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true);
    if permissions.is_some() {
        // The text may be secret: nobody reads it before its permissions are set.
        options.mode(0o600);
    }
    let mut file = options.open(path)?;
    if let Some(permissions) = permissions {
        file.set_permissions(permissions)?;
    }
    file.write_all(text)?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        io::Read,
        os::{
            fd::AsRawFd,
            unix::{
                fs::{symlink, PermissionsExt},
                net::UnixListener,
            },
        },
    };

    /// A new folder, which goes away with this value.
    struct Scratch(std::path::PathBuf);

    impl Scratch {
        fn new(name: &str) -> Self {
            let name = format!("cgpu-files-{name}-{}", std::process::id());
            let folder = std::env::temp_dir().join(name);
            make_folder(&folder).expect("made");
            Self(folder)
        }

        fn names(&self) -> Vec<std::ffi::OsString> {
            let files = fs::read_dir(&self.0).expect("read").flatten();
            files.map(|file| file.file_name()).collect()
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn written_files_leave_nothing_beside_them() {
        let scratch = Scratch::new("written");
        let path = scratch.0.join("a.json");
        for text in ["longer", "short"] {
            write_whole(&path, text.as_bytes()).expect("written");
            assert_eq!(fs::read_to_string(&path).expect("read"), text);
        }
        assert_eq!(scratch.names(), ["a.json"]);
        remove(&path).expect("removed");
        remove(&path).expect("again");
        assert!(scratch.names().is_empty());
    }

    #[test]
    fn unfinished_files_are_removed_by_name() {
        let scratch = Scratch::new("unfinished");
        let kept = ["a.json", "a.new", "a.x.new", "a.1.new.json", "b.1.new"];
        for name in kept.into_iter().chain(["a.1.new", "a-b.c.4711.new"]) {
            fs::write(scratch.0.join(name), "").expect("written");
        }
        remove_unfinished(&scratch.0, "a").expect("removed");
        let left: BTreeSet<_> = scratch.names().into_iter().collect();
        assert_eq!(left, kept.map(OsString::from).into());
        remove_unfinished(&scratch.0, "").expect("removed");
        assert_eq!(scratch.names().len(), kept.len() - 1);
        remove_unfinished(&scratch.0.join("none"), "").expect("nothing");
    }

    #[test]
    fn turns_at_a_file_are_the_owners() {
        let scratch = Scratch::new("turns");
        let path = scratch.0.join("a.json");
        let turn = FileTurn::wait(&path).expect("free");
        let lock = scratch.0.join("a.json.lock");
        let mode = fs::metadata(&lock).expect("there").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let next = {
            let path = path.clone();
            std::thread::spawn(move || FileTurn::wait(&path).map(|_turn| path.exists()))
        };
        std::thread::sleep(std::time::Duration::from_millis(50));
        fs::write(&path, "").expect("written");
        drop(turn);
        assert!(next.join().expect("no panic").expect("free again"));
        assert_eq!(scratch.names(), ["a.json"]);
    }

    #[test]
    fn a_replaced_file_keeps_its_permissions() {
        let scratch = Scratch::new("replaced");
        let path = scratch.0.join("a.json");
        fs::write(&path, "before").expect("written");
        fs::set_permissions(&path, Permissions::from_mode(0o640)).expect("set");
        replace_whole(&path, b"after").expect("replaced");
        assert_eq!(fs::read_to_string(&path).expect("read"), "after");
        let mode = fs::metadata(&path).expect("there").permissions().mode();
        assert_eq!(mode & 0o777, 0o640);
    }

    #[test]
    fn links_stay_and_lead_to_the_written_file() {
        let scratch = Scratch::new("links");
        let (link, file) = (scratch.0.join("link.json"), scratch.0.join("folder/a.json"));
        make_folder(&scratch.0.join("folder")).expect("made");
        symlink("folder/a.json", &link).expect("linked");
        for text in ["new", "old"] {
            write_whole(&link, text.as_bytes()).expect("written");
            assert_eq!(fs::read_to_string(&file).expect("read"), text);
        }
        let turn = FileTurn::wait(&link).expect("free");
        assert!(scratch.0.join("folder/a.json.lock").exists());
        drop(turn);
        remove(&link).expect("removed");
        assert!(link.is_symlink() && !file.exists());
        symlink("b", scratch.0.join("c")).expect("linked");
        symlink("c", scratch.0.join("b")).expect("linked");
        let failed = write_whole(&scratch.0.join("b"), b"text").expect_err("a loop");
        assert_eq!(failed.errno, Errno::ELOOP);
    }

    #[test]
    fn what_is_no_file_stays() {
        let scratch = Scratch::new("other");
        let (socket, null) = (scratch.0.join("socket"), scratch.0.join("null"));
        let _listener = UnixListener::bind(&socket).expect("bound");
        symlink("/dev/null", &null).expect("linked");
        write_whole(&null, b"text").expect("written");
        let failed = write_whole(&socket, b"text").expect_err("no socket can be opened");
        assert_eq!(failed.errno, Errno::ENXIO);
        for path in [&socket, &null, Path::new("/dev/null")] {
            drop(FileTurn::wait(path).expect("none to wait for"));
            remove(path).expect("left alone");
        }
        assert!(socket.exists() && null.is_symlink() && !null.is_file());
        assert_eq!(scratch.names().len(), 2);
    }

    #[test]
    fn a_pipe_of_stdout_is_written_to() {
        let (reader, writer) = nix::unistd::pipe().expect("a pipe");
        let path = format!("/proc/self/fd/{}", writer.as_raw_fd());
        write_whole(Path::new(&path), b"text").expect("written");
        drop(writer);
        let mut said = String::new();
        File::from(reader).read_to_string(&mut said).expect("read");
        assert_eq!(said, "text");
    }

    #[test]
    fn a_failure_leaves_nothing_and_names_the_file() {
        let scratch = Scratch::new("failed");
        let path = scratch.0.join("a.json");
        // A folder cannot be replaced by a file.
        fs::create_dir(&path).expect("made");
        let failed = write_whole(&path, b"text").expect_err("a folder");
        assert_eq!((failed.action, &failed.path), ("writing", &path));
        assert_eq!(scratch.names(), ["a.json"]);
        let absent = scratch.0.join("b.json");
        let failed = replace_whole(&absent, b"text").expect_err("not there");
        assert_eq!((failed.action, failed.path), ("replacing", absent));
        assert_eq!(scratch.names(), ["a.json"]);
    }
}
