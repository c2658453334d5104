// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Which claims are prepared: a file for each below `/run/cgpu/dra/claims`, written before the
//! claim's first instance is made and removed after its last one is gone. It outlives this program
//! and not the machine's run, just like the instances.
//!
//! A claim is marked as complete once each of its instances is what the plan says. Without the mark
//! this program may have been stopped between the commands that make one.

use crate::{claims::Plan, names::Uid};
use cgpu_client::{files, path_error::PathError};
use serde_json::{json, Map, Value};
use std::{collections::BTreeMap, fs, io::ErrorKind, path::PathBuf};

/// The mark.
const COMPLETE: &str = "complete";

/// The folder of the files.
#[derive(Clone, Debug)]
pub struct Journal {
    folder: PathBuf,
}

impl Journal {
    /// The journal in a folder, which is made.
    pub fn open(folder: PathBuf) -> Result<Self, PathError> {
        files::make_folder(&folder)?;
        Ok(Self { folder })
    }

    fn file(&self, uid: &Uid) -> PathBuf {
        self.folder.join(format!("{}.json", uid.as_str()))
    }

    /// Writes a claim down, without the mark.
    pub fn add(&self, uid: &Uid, plan: &Plan) -> Result<(), PathError> {
        self.write(uid, &json!(plan))
    }

    /// Marks a claim as complete.
    pub fn complete(&self, uid: &Uid, plan: &Plan) -> Result<(), PathError> {
        let mut marked = json!(plan);
        marked[COMPLETE] = true.into();
        self.write(uid, &marked)
    }

    fn write(&self, uid: &Uid, written: &Value) -> Result<(), PathError> {
        files::write_whole(&self.file(uid), written.to_string().as_bytes())
    }

    /// Strikes a claim.
    pub fn strike(&self, uid: &Uid) -> Result<(), PathError> {
        files::remove(&self.file(uid))
    }

    /// Whether a claim is written down, also if its file cannot be read, such as one of a newer
    /// version.
    pub fn knows(&self, uid: &Uid) -> bool {
        let found = fs::symlink_metadata(self.file(uid));
        !found.is_err_and(|e| e.kind() == ErrorKind::NotFound)
    }

    /// A claim, if it is written down and its file can be read.
    pub fn plan(&self, uid: &Uid) -> Option<Plan> {
        self.read(uid).map(|(plan, _)| plan)
    }

    /// Whether a claim has the mark.
    pub fn is_complete(&self, uid: &Uid) -> bool {
        self.read(uid).is_some_and(|(_, complete)| complete)
    }

    fn read(&self, uid: &Uid) -> Option<(Plan, bool)> {
        let text = fs::read(self.file(uid)).ok()?;
        let mut written: Map<String, Value> = serde_json::from_slice(&text).ok()?;
        let complete = written.remove(COMPLETE) == Some(true.into());
        let plan = serde_json::from_value(written.into()).ok()?;
        Some((plan, complete))
    }

    /// All claims whose files can be read.
    pub fn plans(&self) -> BTreeMap<Uid, Plan> {
        let files = fs::read_dir(&self.folder).into_iter().flatten().flatten();
        files
            .filter_map(|file| {
                let name = file.file_name().into_string().ok()?;
                let uid = Uid::new(name.strip_suffix(".json")?)?;
                Some((uid.clone(), self.plan(&uid)?))
            })
            .collect()
    }
}
