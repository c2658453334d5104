// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Names and files of the instances of pods. `cgpu-dra` makes and destroys these instances, and
//! other programs of the host leave them alone.

use crate::{files, path_error::PathError};
use std::{collections::BTreeSet, ffi::OsString, fs, path::Path};

/// In front of a claim's uid: the name of its instances.
pub const CLAIM: &str = "claim-";
/// In front of a slot's name: the name of its instance.
pub const SLOT: &str = "slot-";
/// The folder of what `cgpu-dra` knows until the next boot.
pub const STATE: &str = "/run/cgpu/dra";
/// The folder in it with a file for each claim, UID.json.
pub const CLAIMS: &str = "claims";
/// The name of the slots' CDI file. It is there as long as there are slots.
pub const SLOTS_FILE: &str = "cgpu.io-slot.json";

/// The files that say which instances belong to pods, read once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodFiles {
    /// Names of the files of claims.
    claims: BTreeSet<OsString>,
    /// Whether there are slots.
    slots: bool,
}

impl PodFiles {
    /// Reads them. `state` and `cdi` are the folders of that state and of the CDI files; a folder
    /// that is not there has no files. Fails if one that is there cannot be read: then nobody knows
    /// which instances are in use.
    pub fn read(state: &Path, cdi: &Path) -> Result<Self, PathError> {
        let slots = cdi.join(SLOTS_FILE);
        Ok(Self {
            claims: files::names(&state.join(CLAIMS))?,
            slots: fs::exists(&slots).map_err(PathError::on("looking for", &slots))?,
        })
    }

    /// Whether an instance of this name belongs to a pod, or waits for one.
    pub fn have(&self, name: &str) -> bool {
        let of_claim = |uid| self.claims.contains(&OsString::from(format!("{uid}.json")));
        name.starts_with(SLOT) && self.slots || name.strip_prefix(CLAIM).is_some_and(of_claim)
    }
}
