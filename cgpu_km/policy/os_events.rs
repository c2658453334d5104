// SPDX-License-Identifier: GPL-2.0
//! Keys of events for programs (`NV_ESC_ALLOC_OS_EVENT`): pairs of a client and a number.
//!
//! The driver keeps them in one list for all programs, which it goes through for each call
//! (`allocate_os_event()`, `free_os_event()` in osapi.c). A key goes with the file that it was made
//! on, or when it is freed. A free of a key that does not exist puts three lines into the host's
//! log. So the accounting knows which keys exist.

use crate::{
    policy::{
        ids::FileId,
        record_table::RecordMap, //
    },
    store::Exhausted, //
};

/// How far a key is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KeyState {
    /// The driver is being asked for it, or to free it.
    InFlight,
    /// The driver says that it is there.
    Made,
    /// The driver says that it is not. That is an output, so it counts as if it were.
    Refused,
}

#[derive(Debug)]
struct EventKey {
    key: u64,
    file: FileId,
    state: KeyState,
}

/// The keys of a tenant.
#[derive(Debug)]
pub(super) struct OsEvents {
    keys: RecordMap<EventKey>,
}

impl OsEvents {
    pub(super) const fn new(seed: u64) -> Self {
        Self {
            keys: RecordMap::new(seed),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// How far a key is, and the file that it is of.
    pub(super) fn state(&self, key: u64) -> Option<(KeyState, FileId)> {
        let record = self.keys.get(key)?;
        Some((record.state, record.file))
    }

    pub(super) fn set_state(&mut self, key: u64, state: KeyState) {
        if let Some(record) = self.keys.get_mut(key) {
            record.state = state;
        }
    }

    /// Enters a key that the driver is going to be asked for.
    pub(super) fn insert(&mut self, key: u64, file: FileId) -> Result<(), Exhausted> {
        let record = EventKey {
            key,
            file,
            state: KeyState::InFlight,
        };
        self.keys.insert(key, record)?;
        Ok(())
    }

    /// Removes a key and gives its file; `None`: there is no such key.
    pub(super) fn remove(&mut self, key: u64) -> Option<FileId> {
        self.keys.remove(key).map(|record| record.file)
    }

    /// Removes a key of a file, as long as there is one.
    pub(super) fn take_of(&mut self, file: FileId) -> bool {
        let is_of_it = |record: &&EventKey| record.file == file;
        let record = self.keys.records().iter().find(is_of_it);
        let key = record.map(|record| record.key);
        key.is_some_and(|key| self.remove(key).is_some())
    }
}
