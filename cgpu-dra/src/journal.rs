// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Which claims are prepared: a file for each below `/run/cgpu/dra/claims`, written before the
//! claim's first instance is made and removed after its last one is gone. It outlives this program
//! and not the machine's run, just like the instances.
//!
//! A claim is marked as complete once each of its instances is what the plan says. Without the mark
//! this program may have been stopped between the commands that make one. The mark is a file of its
//! own, so that an older version of this program, put back by the operator, can read the plan.

use crate::{claims::Plan, names::Uid};
use cgpu_client::{files, path_error::PathError};
use serde_json::json;
use std::{collections::BTreeMap, fs, io::ErrorKind, path::PathBuf};

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

    fn mark(&self, uid: &Uid) -> PathBuf {
        self.folder.join(format!("{}.complete", uid.as_str()))
    }

    /// Writes a claim down, without the mark.
    pub fn add(&self, uid: &Uid, plan: &Plan) -> Result<(), PathError> {
        files::remove(&self.mark(uid))?;
        files::write_whole(&self.file(uid), json!(plan).to_string().as_bytes())
    }

    /// Marks a claim as complete.
    pub fn complete(&self, uid: &Uid) -> Result<(), PathError> {
        files::write_whole(&self.mark(uid), b"")
    }

    /// Strikes a claim.
    pub fn strike(&self, uid: &Uid) -> Result<(), PathError> {
        files::remove(&self.mark(uid))?;
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
        let text = fs::read(self.file(uid)).ok()?;
        serde_json::from_slice(&text).ok()
    }

    /// Whether a claim can be read and has the mark.
    pub fn is_complete(&self, uid: &Uid) -> bool {
        self.mark(uid).is_file() && self.plan(uid).is_some()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn older_versions_read_marked_plans() {
        let folder = std::env::temp_dir().join(format!("cgpu-journal-{}", std::process::id()));
        let journal = Journal::open(folder.clone()).expect("made");
        let uid = Uid::new("7b2ea4b2-0000-4000-8000-00000000000f").expect("a uid");
        let plan = Plan {
            namespace: "team-a".to_owned(),
            name: "train".to_owned(),
            shares: vec![],
        };
        journal.add(&uid, &plan).expect("written");
        let before = fs::read(journal.file(&uid)).expect("there");
        assert!(!journal.is_complete(&uid));
        journal.complete(&uid).expect("marked");
        assert!(journal.is_complete(&uid));
        // To them a key beside the plan's makes the whole file unreadable.
        assert_eq!(fs::read(journal.file(&uid)).expect("there"), before);
        assert_eq!(
            journal.plans(),
            BTreeMap::from([(uid.clone(), plan.clone())])
        );
        journal.add(&uid, &plan).expect("written");
        assert!(!journal.is_complete(&uid));
        journal.complete(&uid).expect("marked");
        journal.strike(&uid).expect("struck");
        // Nothing is left, or this fails.
        fs::remove_dir(folder).expect("removed");
    }
}
