// SPDX-License-Identifier: GPL-2.0
//! Channels and channel groups that came and went, for the scheduler of the GPU's time.
//!
//! Changes of the accounting are noted here in their order and taken out again before the
//! accounting is unlocked (`Accounting::take_channel_change`). A free must not fail, so room for
//! its note is reserved when the object is asked for. A test that never takes any out loses the
//! rest.

use crate::{
    nvidia::handle::{
        ClientHandle,
        ObjectHandle, //
    },
    policy::{
        count::lower,
        ids::{
            GpuId,
            ProcessId,
            ShareId, //
        }, //
    },
    store::{
        Exhausted,
        List, //
    }, //
};

/// A channel or a channel group came or went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChannelChange {
    /// Of which GPU.
    pub gpu: GpuId,
    /// Its client.
    pub client: ClientHandle,
    /// Its handle.
    pub object: ObjectHandle,
    /// The change.
    pub what: ChannelEvent,
}

/// A change of a channel or a channel group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChannelEvent {
    /// The driver has made a channel.
    Made {
        /// Its group; the channel itself where it is in none.
        group: ObjectHandle,
        /// It is for compute or graphics.
        compute: bool,
        /// The process that its client counts for, in the driver too.
        process: ProcessId,
    },
    /// The channel, or the group with all that was in it, is gone.
    Gone,
}

/// A change, before its GPU's name is looked up.
#[derive(Clone, Copy, Debug)]
pub(super) struct Noted {
    pub(super) share: ShareId,
    pub(super) client: ClientHandle,
    pub(super) object: ObjectHandle,
    pub(super) what: ChannelEvent,
}

/// The changes that were not taken yet.
#[derive(Debug, Default)]
pub(super) struct Journal {
    /// In the order in which they happened; those before `taken` were taken.
    noted: List<Noted>,
    taken: usize,
    /// Objects that are asked for or there, each of which may still come and go.
    objects: usize,
    /// Changes for which there is room: of the most objects that there ever were at once.
    room: usize,
}

impl Journal {
    /// Makes room for the coming and the going of one more object.
    pub(super) fn reserve(&mut self) -> Result<(), Exhausted> {
        let objects = self.objects.saturating_add(1);
        let room = objects.saturating_mul(2).max(self.room);
        self.noted.reserve(room.saturating_sub(self.noted.len()))?;
        self.room = room;
        Ok(())
    }

    /// An object is asked for, for which there is [room](Self::reserve).
    pub(super) fn announce(&mut self) {
        self.objects = self.objects.saturating_add(1);
    }

    /// An object that was asked for is gone, or never came.
    pub(super) fn forget(&mut self) {
        lower(&mut self.objects, 1);
    }

    /// Objects that are asked for or there.
    pub(super) fn objects(&self) -> usize {
        self.objects
    }

    /// Notes a change of an object that was asked for.
    pub(super) fn note(&mut self, change: Noted) {
        if self.noted.len() < self.room {
            // There is room for as many.
            let _ = self.noted.push(change);
        }
    }

    /// The oldest change that was not taken yet.
    pub(super) fn take(&mut self) -> Option<Noted> {
        match self.noted.get(self.taken) {
            Some(change) => {
                self.taken += 1;
                Some(*change)
            }
            None => {
                self.noted.truncate(0);
                self.taken = 0;
                None
            }
        }
    }
}
