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
        record_table::RecordTable,
        records::Records, //
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
    records: Records<EventKey>,
    by_key: RecordTable,
}

impl OsEvents {
    pub(super) const fn new(seed: u64) -> Self {
        Self {
            records: Records::new(),
            by_key: RecordTable::new(seed),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.records.len() == 0
    }

    /// How far a key is, and the file that it is of.
    pub(super) fn state(&self, key: u64) -> Option<(KeyState, FileId)> {
        let record = self.records.get(self.by_key.get(key)?)?;
        Some((record.state, record.file))
    }

    pub(super) fn set_state(&mut self, key: u64, state: KeyState) {
        let id = self.by_key.get(key);
        if let Some(record) = id.and_then(|id| self.records.get_mut(id)) {
            record.state = state;
        }
    }

    /// Enters a key that the driver is going to be asked for.
    pub(super) fn insert(&mut self, key: u64, file: FileId) -> Result<(), Exhausted> {
        self.records.reserve()?;
        self.by_key.reserve()?;
        let id = self.records.insert(EventKey {
            key,
            file,
            state: KeyState::InFlight,
        })?;
        self.by_key.insert(key, id)
    }

    /// Removes a key. `false`: there is none.
    pub(super) fn remove(&mut self, key: u64) -> bool {
        let Some(id) = self.by_key.get(key) else {
            return false;
        };
        self.by_key.remove(key);
        self.records.remove(id).is_some()
    }

    /// Removes a key of a file, as long as there is one.
    pub(super) fn take_of(&mut self, file: FileId) -> bool {
        let is_of_it = |record: &&EventKey| record.file == file;
        let key = self.records.iter().find(is_of_it).map(|record| record.key);
        key.is_some_and(|key| self.remove(key))
    }
}
