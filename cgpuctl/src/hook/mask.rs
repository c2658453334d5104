// SPDX-License-Identifier: GPL-2.0 OR MIT
//! `/proc/driver/nvidia` as a container sees it: its own GPUs, and a driver that makes no device
//! nodes.
//!
//! The driver lists every GPU there, and libraries read `ModifyDeviceFiles`: where it is 1 they
//! remove a node whose number they do not like and make another one, that of the real GPU.

use super::root::{filled, Kind, Loose, Root};
use crate::host::PathError;
use std::{
    fs,
    path::{Path, PathBuf},
};

/// The driver's folder.
pub(super) const FOLDER: &str = "/proc/driver/nvidia";
/// The files that are shown of it, and of the folder of each GPU (nv-procfs.c).
const FILES: [&str; 3] = ["version", "params", "registry"];
const GPU_FILES: [&str; 4] = ["information", "registry", "power", "numa_status"];

/// The files that the container is to see: paths below the folder, and texts.
pub(super) fn contents(folder: &Path, gpus: &[String]) -> Vec<(PathBuf, Vec<u8>)> {
    let of_gpus = gpus.iter().flat_map(|address| {
        let gpu = Path::new("gpus").join(address.to_ascii_lowercase());
        GPU_FILES.map(|name| gpu.join(name))
    });
    FILES
        .iter()
        .map(PathBuf::from)
        .chain(of_gpus)
        // A file that this branch lacks, or does not let be read, is left out.
        .filter_map(|path| Some((fs::read(folder.join(&path)).ok()?, path)))
        .map(|(text, path)| {
            let text = if path == Path::new("params") {
                no_nodes(&text)
            } else {
                text
            };
            (path, text)
        })
        .collect()
}

/// The parameters, with nodes made by nobody.
fn no_nodes(params: &[u8]) -> Vec<u8> {
    let text = String::from_utf8_lossy(params);
    let line = |line: &str| match line.split_once(':') {
        Some(("ModifyDeviceFiles", _)) => "ModifyDeviceFiles: 0\n".to_owned(),
        _ => format!("{line}\n"),
    };
    text.lines().map(line).collect::<String>().into_bytes()
}

/// The mask, ready to be put in place; `None` where the driver has no such folder.
pub(super) fn make(gpus: &[String]) -> Result<Option<Loose>, PathError> {
    if !Path::new(FOLDER).is_dir() {
        return Ok(None);
    }
    filled(&contents(Path::new(FOLDER), gpus)).map(Some)
}

/// Puts it over the container's own view, if it has one.
pub(super) fn put(mask: &Loose, root: &Root) -> Result<(), PathError> {
    if root.has(Path::new(FOLDER)) {
        root.put(mask, Path::new(FOLDER), Kind::Folder)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_gpus_and_mknod_are_masked() {
        let folder = std::env::temp_dir().join(format!("cgpu-mask-{}", std::process::id()));
        for (path, text) in [
            ("version", "NVRM version: 580\n"),
            (
                "params",
                "ResmanDebugLevel: 4294967295\nModifyDeviceFiles: 1\nDeviceFileMode: 438\n",
            ),
            ("gpus/0000:29:00.0/information", "Model: H200\n"),
            ("gpus/0000:2a:00.0/information", "Model: H200\n"),
            ("suspend", "x"),
        ] {
            let path = folder.join(path);
            fs::create_dir_all(path.parent().expect("a folder")).expect("made");
            fs::write(path, text).expect("written");
        }
        let seen = contents(&folder, &["0000:2A:00.0".to_owned()]);
        fs::remove_dir_all(&folder).expect("removed");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let seen: Vec<_> = seen
            .iter()
            .map(|(p, t)| (p.to_str().expect("UTF-8"), text(t)))
            .collect();
        assert_eq!(
            seen,
            [
                ("version", "NVRM version: 580\n".to_owned()),
                (
                    "params",
                    "ResmanDebugLevel: 4294967295\nModifyDeviceFiles: 0\nDeviceFileMode: 438\n"
                        .to_owned()
                ),
                ("gpus/0000:2a:00.0/information", "Model: H200\n".to_owned()),
            ]
        );
    }
}
