// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Which container has which instance: a file for each below `/run/cgpu/hook`, written before the
//! instance is made and removed after it is gone. So an instance whose container ended without its
//! hook, or whose hook ended half-way, is found by the next one.

use crate::{
    files,
    host::{Host, PathError},
};
use cgpu_client::pods::{self, PodFiles};
use cgpu_uapi::Instance;
use nix::fcntl::Flock;
use serde::{Deserialize, Serialize};
use std::{
    fs::{self, File},
    path::{Path, PathBuf},
};

/// The folder of the files. The folder above is closed to everybody but root.
pub(crate) const FOLDER: &str = "/run/cgpu/hook";

/// A container and its instance.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct JournalEntry {
    /// The engine's name for the container.
    pub(super) container: String,
    /// Name of the instance.
    pub(super) instance: String,
    /// Minors of its GPUs.
    pub(super) gpus: Vec<u32>,
    /// The number of its instance on each of them. Not known before the instance is made, and in
    /// entries of earlier releases; then whatever has the name counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) ids: Option<Vec<u32>>,
    /// The container's first process.
    pub(super) pid: i32,
    /// When that process began, in clock ticks since boot: numbers are used again.
    pub(super) began: u64,
}

impl JournalEntry {
    /// The minor of each GPU, and the number of the instance there if it is known.
    pub(super) fn instances(&self) -> Vec<(u32, Option<u32>)> {
        match &self.ids {
            None => self.gpus.iter().map(|minor| (*minor, None)).collect(),
            Some(ids) => {
                let pairs = self.gpus.iter().zip(ids);
                pairs.map(|(minor, id)| (*minor, Some(*id))).collect()
            }
        }
    }

    /// Whether an instance is one of this entry: a later one of its name is somebody else's.
    fn has(&self, instance: &Instance) -> bool {
        let ids = self.ids.as_ref();
        instance.key.name.as_str() == Some(&self.instance)
            && ids.is_none_or(|ids| ids.contains(&instance.id))
    }

    /// Whether the container's first process is there.
    pub(super) fn lives(&self) -> bool {
        began(self.pid) == Some(self.began)
    }
}

/// The journal, for one hook at a time.
pub(super) struct Journal {
    folder: PathBuf,
    /// Held open for the lock.
    _lock: Flock<File>,
}

impl Journal {
    /// Opens it, waiting for other hooks.
    pub(super) fn open(folder: &Path) -> Result<Self, PathError> {
        loop {
            files::make_folder(folder)?;
            let lock = files::lock_folder(folder)?;
            // The one before us may have removed the folder that we were waiting at.
            if lock
                .metadata()
                .is_ok_and(|m| std::os::unix::fs::MetadataExt::nlink(&m) > 0)
            {
                return Ok(Self {
                    folder: folder.to_owned(),
                    _lock: lock,
                });
            }
        }
    }

    /// Name of a container's file: no id that an engine allows has a slash.
    fn file(&self, container: &str) -> PathBuf {
        self.folder
            .join(format!("{}.json", container.replace('/', "_")))
    }

    /// Writes an entry down.
    pub(super) fn add(&self, entry: &JournalEntry) -> Result<(), PathError> {
        let path = self.file(&entry.container);
        let text = serde_json::to_vec(entry).unwrap_or_default();
        files::write_whole(&path, &text)
    }

    /// Strikes a container's entry.
    pub(super) fn strike(&self, container: &str) -> Result<(), PathError> {
        files::remove(&self.file(container))
    }

    /// All entries. A file that is none, left by a stop in the middle of writing, is no entry.
    pub(super) fn entries(&self) -> Vec<JournalEntry> {
        read(&self.folder)
    }
}

fn read(folder: &Path) -> Vec<JournalEntry> {
    let files = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut entries: Vec<JournalEntry> = files
        .map(|file| file.path())
        .filter(|path| path.extension().is_some_and(|e| e == "json"))
        .filter_map(|path| serde_json::from_slice(&fs::read(path).ok()?).ok())
        .collect();
    entries.sort_by(|a, b| a.container.cmp(&b.container));
    entries
}

impl Drop for Journal {
    fn drop(&mut self) {
        // Only goes if it is empty.
        let _ = fs::remove_dir(&self.folder);
    }
}

/// Which instances go with containers and pods, read once.
pub(crate) struct Owners {
    entries: Vec<JournalEntry>,
    pods: PodFiles,
}

impl Owners {
    /// Reads what the hook and the cluster's driver have written down.
    pub(crate) fn read(host: &dyn Host) -> Result<Self, PathError> {
        let [hook, state, cdi] =
            [FOLDER, pods::STATE, "/run/cdi"].map(|folder| host.path(Path::new(folder)));
        // `read` has no entries where this fails.
        files::names(&hook)?;
        Ok(Self {
            entries: read(&hook),
            pods: PodFiles::read(&state, &cdi)?,
        })
    }

    /// Whether an instance goes with a container or a pod.
    pub(crate) fn have(&self, instance: &Instance) -> bool {
        let name = instance.key.name.as_str().unwrap_or_default();
        self.entries.iter().any(|entry| entry.has(instance)) || self.pods.have(name)
    }
}

/// When a process began, if it is there and has not ended (proc(5): `/proc/PID/stat`).
pub(super) fn began(pid: i32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name is in parentheses and may have anything in it.
    let (_, rest) = text.rsplit_once(')')?;
    let mut fields = rest.split_whitespace();
    let state = fields.next()?;
    if matches!(state, "Z" | "X") {
        return None;
    }
    // The 22nd field of the line; the state is the third.
    fields.nth(18)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_found_until_it_is_struck() {
        let folder = std::env::temp_dir().join(format!("cgpu-journal-{}", std::process::id()));
        let entry = |container: &str| JournalEntry {
            container: container.to_owned(),
            instance: "i".to_owned(),
            gpus: vec![0, 1],
            ids: Some(vec![3, 4]),
            pid: 1,
            began: 2,
        };
        {
            let journal = Journal::open(&folder).expect("opened");
            assert_eq!(journal.entries(), []);
            journal.add(&entry("b")).expect("added");
            journal.add(&entry("a")).expect("added");
            journal.add(&entry("a")).expect("again");
            fs::write(folder.join("c.json"), "{").expect("written");
            assert_eq!(journal.entries(), [entry("a"), entry("b")]);
            journal.strike("a").expect("struck");
            journal.strike("a").expect("again");
            assert_eq!(journal.entries(), [entry("b")]);
            journal.strike("b").expect("struck");
            fs::remove_file(folder.join("c.json")).expect("removed");
        }
        assert!(!folder.exists(), "an empty journal leaves no folder");
    }

    #[test]
    fn entries_without_numbers_stay_readable() {
        let old = r#"{"container": "c", "instance": "i", "gpus": [0, 1], "pid": 1, "began": 2}"#;
        let entry: JournalEntry = serde_json::from_str(old).expect("an entry");
        assert_eq!(entry.instances(), [(0, None), (1, None)]);
        let text = serde_json::to_string(&entry).expect("JSON");
        assert!(!text.contains("ids"), "{text}");
    }

    #[test]
    fn reused_process_id_is_recognised() {
        let own = i32::try_from(std::process::id()).expect("a number");
        let at = began(own).expect("it runs");
        assert_eq!(began(own), Some(at));
        assert!(at > 0);
        assert_eq!(began(-1), None);
    }
}
