// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The user space of the NVIDIA driver on this host: the libraries and programs that a container
//! needs beside its device files, found as libnvidia-container finds them.
//!
//! A library counts if the loader's cache has it, its name is in the lists, and the file behind its
//! links ends in the version of the running driver: a stub or a left-over of another version does
//! not.

pub mod ldcache;
pub mod lists;

use crate::path_error::PathError;
use lists::{Capability, LIBRARY_FOLDERS, PROGRAM_FOLDERS, SOCKETS};
use nix::errno::Errno;
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    io::ErrorKind,
    path::{Component, Path, PathBuf},
};

/// How many links a path may go through, as in the kernel.
const MOST_LINKS: usize = 40;

/// The driver's files on a host. Paths are as programs see them, without the root that was
/// searched.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Installation {
    /// By path.
    pub libraries: Vec<Linked>,
    /// By path.
    pub programs: Vec<Linked>,
    /// Firmware of the GPU's own processors, which the kernel loads.
    pub firmware: Vec<PathBuf>,
    /// Sockets of NVIDIA's daemons, and why a container does not get them.
    pub sockets: Vec<(PathBuf, &'static str)>,
}

/// A file and the links that lead to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Linked {
    /// The file.
    pub path: PathBuf,
    /// The links by which it is found.
    pub links: Vec<PathBuf>,
}

/// Looks below `root` for what belongs to this version of the driver.
pub fn find(
    root: &Path,
    version: &str,
    capabilities: &[Capability],
) -> Result<Installation, PathError> {
    let names: BTreeSet<_> = capabilities.iter().flat_map(|c| c.libraries()).collect();
    let mut libraries: BTreeMap<PathBuf, BTreeSet<PathBuf>> = BTreeMap::new();
    for candidate in candidates(root)? {
        let Some(file) = resolve(root, &candidate) else {
            continue;
        };
        let stem = file_name(&file).strip_suffix(version);
        let Some(stem) = stem.and_then(|stem| stem.strip_suffix('.')) else {
            continue;
        };
        if names.contains(&stem) {
            let links = libraries.entry(file.clone()).or_default();
            if candidate != file {
                links.insert(candidate);
            }
            // The link for building programs; the cache may lack it.
            if let Some(folder) = file.parent() {
                let plain = folder.join(stem);
                if plain != file {
                    links.insert(plain);
                }
            }
        }
    }
    let mut programs: BTreeMap<PathBuf, BTreeSet<PathBuf>> = BTreeMap::new();
    for name in capabilities.iter().flat_map(|c| c.programs()) {
        let found = PROGRAM_FOLDERS
            .iter()
            .map(|folder| Path::new(folder).join(name))
            .find_map(|path| Some((resolve(root, &path)?, path)));
        if let Some((file, path)) = found {
            let links = programs.entry(file.clone()).or_default();
            if path != file {
                links.insert(path);
            }
        }
    }
    Ok(Installation {
        libraries: linked(libraries),
        programs: linked(programs),
        firmware: firmware(root, version),
        sockets: SOCKETS
            .iter()
            .map(|&(path, why)| (PathBuf::from(path), why))
            .filter(|(path, _)| under(root, path).exists())
            .collect(),
    })
}

fn linked(files: BTreeMap<PathBuf, BTreeSet<PathBuf>>) -> Vec<Linked> {
    files
        .into_iter()
        .map(|(path, links)| Linked {
            path,
            links: links.into_iter().collect(),
        })
        .collect()
}

/// Every library that the loader would find: by its cache or, where there is none, in its folders.
fn candidates(root: &Path) -> Result<Vec<PathBuf>, PathError> {
    let path = under(root, Path::new("/etc/ld.so.cache"));
    match fs::read(&path) {
        Ok(bytes) => match ldcache::parse(&bytes) {
            Some(entries) => Ok(entries.into_iter().map(|e| e.path).collect()),
            None => Err(PathError::on("understanding the loader's cache", &path)(
                Errno::EINVAL,
            )),
        },
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(LIBRARY_FOLDERS
            .iter()
            .filter_map(|folder| {
                fs::read_dir(under(root, Path::new(folder)))
                    .ok()
                    .map(|d| (folder, d))
            })
            .flat_map(|(folder, entries)| {
                entries
                    .filter_map(Result::ok)
                    .map(move |entry| Path::new(folder).join(entry.file_name()))
            })
            .collect()),
        Err(e) => Err(PathError::on("reading", &path)(e)),
    }
}

fn firmware(root: &Path, version: &str) -> Vec<PathBuf> {
    let folder = Path::new("/lib/firmware/nvidia").join(version);
    let Some(folder) = resolve(root, &folder) else {
        return vec![];
    };
    let mut files: Vec<_> = fs::read_dir(under(root, &folder))
        .into_iter()
        .flatten()
        .filter_map(Result::ok)
        .map(|entry| folder.join(entry.file_name()))
        .filter(|path| path.extension().is_some_and(|e| e == "bin"))
        .collect();
    files.sort();
    files
}

fn file_name(path: &Path) -> &str {
    path.file_name()
        .and_then(|n| n.to_str())
        .unwrap_or_default()
}

/// A path of the searched system, as this program has to open it.
pub fn under(root: &Path, path: &Path) -> PathBuf {
    root.join(path.strip_prefix("/").unwrap_or(path))
}

/// The file behind a path of the searched system, with all links resolved as they are there; `None`
/// if there is nothing. The result has neither links nor dots.
pub fn resolve(root: &Path, path: &Path) -> Option<PathBuf> {
    let mut done = PathBuf::from("/");
    let mut rest: Vec<PathBuf> = vec![path.to_owned()];
    let mut links = 0;
    while let Some(next) = rest.pop() {
        let mut parts = next.components();
        let Some(part) = parts.next() else { continue };
        let tail = parts.as_path().to_owned();
        if !tail.as_os_str().is_empty() {
            rest.push(tail);
        }
        match part {
            Component::RootDir => done = PathBuf::from("/"),
            Component::ParentDir => {
                done.pop();
            }
            Component::CurDir | Component::Prefix(_) => {}
            Component::Normal(name) => {
                let step = done.join(name);
                let place = under(root, &step);
                if fs::symlink_metadata(&place).ok()?.is_symlink() {
                    links += 1;
                    if links > MOST_LINKS {
                        return None;
                    }
                    rest.push(fs::read_link(&place).ok()?);
                } else {
                    done = step;
                }
            }
        }
    }
    Some(done)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    /// A system below a folder of its own, which goes with it.
    struct System(PathBuf);

    impl System {
        fn new(name: &str) -> Self {
            let root = std::env::temp_dir().join(format!("cgpu-{name}-{}", std::process::id()));
            let _ = fs::remove_dir_all(&root);
            Self(root)
        }
        fn file(&self, path: &str, bytes: &[u8]) {
            let place = under(&self.0, Path::new(path));
            fs::create_dir_all(place.parent().expect("a folder")).expect("made");
            fs::write(place, bytes).expect("written");
        }
        fn link(&self, path: &str, to: &str) {
            let place = under(&self.0, Path::new(path));
            fs::create_dir_all(place.parent().expect("a folder")).expect("made");
            symlink(to, place).expect("linked");
        }
    }

    impl Drop for System {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    const LIB: &str = "/usr/lib/x86_64-linux-gnu";

    /// A host with CUDA of one version, a stub, a left-over of another version, and nvidia-smi as
    /// Debian installs it, behind an alternative.
    fn host(name: &str) -> System {
        let host = System::new(name);
        let real = format!("{LIB}/nvidia/current");
        host.file(&format!("{real}/libcuda.so.580.159.04"), b"");
        host.link(&format!("{real}/libcuda.so.1"), "libcuda.so.580.159.04");
        host.link(
            "/etc/alternatives/libcuda.so.1",
            &format!("{real}/libcuda.so.1"),
        );
        host.link(
            &format!("{LIB}/libcuda.so.1"),
            "/etc/alternatives/libcuda.so.1",
        );
        host.file(&format!("{LIB}/libnvidia-ml.so.580.159.04"), b"");
        host.link(
            &format!("{LIB}/libnvidia-ml.so.1"),
            "libnvidia-ml.so.580.159.04",
        );
        host.file(&format!("{LIB}/libnvidia-opencl.so.575.1"), b"");
        host.link(
            &format!("{LIB}/libnvidia-opencl.so.1"),
            "libnvidia-opencl.so.575.1",
        );
        host.file(&format!("{LIB}/libc.so.6"), b"");
        host.file(&format!("{LIB}/libnvidia-encode.so.580.159.04"), b"");
        host.link("/usr/bin/nvidia-smi", "/etc/alternatives/nvidia-smi");
        host.link(
            "/etc/alternatives/nvidia-smi",
            "../../usr/lib/nvidia/current/nvidia-smi",
        );
        host.file("/usr/lib/nvidia/current/nvidia-smi", b"");
        host.link("/lib", "usr/lib");
        host.file("/usr/lib/firmware/nvidia/580.159.04/gsp_ga10x.bin", b"");
        host.file("/run/nvidia-persistenced/socket", b"");
        host
    }

    fn cache(host: &System) {
        let names = [
            "libcuda.so.1",
            "libnvidia-ml.so.1",
            "libnvidia-opencl.so.1",
            "libc.so.6",
        ];
        let entries: Vec<_> = names
            .iter()
            .map(|name| (*name, format!("{LIB}/{name}")))
            .collect();
        let entries: Vec<_> = entries
            .iter()
            .map(|(n, p)| (*n, p.as_str(), 0x0303))
            .collect();
        host.file("/etc/ld.so.cache", &ldcache::tests::make(&entries));
    }

    #[test]
    fn libraries_are_found_behind_their_links() {
        let host = host("libraries");
        cache(&host);
        let both = [Capability::Compute, Capability::Utility];
        let found = find(&host.0, "580.159.04", &both).expect("found");
        let real = format!("{LIB}/nvidia/current");
        assert_eq!(
            found.libraries,
            [
                Linked {
                    path: format!("{LIB}/libnvidia-ml.so.580.159.04").into(),
                    links: vec![
                        format!("{LIB}/libnvidia-ml.so").into(),
                        format!("{LIB}/libnvidia-ml.so.1").into()
                    ],
                },
                Linked {
                    path: format!("{real}/libcuda.so.580.159.04").into(),
                    links: vec![
                        format!("{LIB}/libcuda.so.1").into(),
                        format!("{real}/libcuda.so").into()
                    ],
                },
            ]
        );
        assert_eq!(
            found.programs,
            [Linked {
                path: "/usr/lib/nvidia/current/nvidia-smi".into(),
                links: vec!["/usr/bin/nvidia-smi".into()],
            }]
        );
        assert_eq!(
            found.firmware,
            [Path::new(
                "/usr/lib/firmware/nvidia/580.159.04/gsp_ga10x.bin"
            )]
        );
        assert_eq!(found.sockets.len(), 1);
    }

    #[test]
    fn host_without_cache_is_searched_by_folder() {
        let host = host("folders");
        let found = find(&host.0, "580.159.04", &[Capability::Video]).expect("found");
        assert_eq!(found.libraries.len(), 1);
        assert!(found.libraries[0]
            .path
            .ends_with("libnvidia-encode.so.580.159.04"));
        assert!(found.programs.is_empty());
    }

    #[test]
    fn broken_cache_is_an_error() {
        let host = host("broken");
        host.file("/etc/ld.so.cache", b"glibc-ld.so.cache1.1 but no more");
        let error = find(&host.0, "580.159.04", &Capability::ALL).expect_err("an error");
        assert!(error.path.ends_with("etc/ld.so.cache"));
    }

    #[test]
    fn links_stay_inside_the_root_and_end() {
        let host = System::new("links");
        host.link("/a", "/b");
        host.link("/b", "/a");
        host.link("/up", "../../../../c");
        host.file("/c", b"");
        assert_eq!(resolve(&host.0, Path::new("/a")), None);
        assert_eq!(resolve(&host.0, Path::new("/up")), Some("/c".into()));
        assert_eq!(resolve(&host.0, Path::new("/nothing")), None);
    }
}
