// SPDX-License-Identifier: GPL-2.0
//! Memory in which the driver notes the errors of channels. It stays as long as the driver uses it.

use super::Forest;
use crate::{
    nvidia::class::Kind,
    policy::{
        count::lower,
        object::ObjectLife,
        records::RecordId,
        steps::step, //
    },
    store::Exhausted, //
};

impl Forest {
    /// The device that an object is or is below of.
    pub(in crate::policy) fn device_of(&self, id: RecordId) -> Option<RecordId> {
        let mut at = Some(id);
        while let Some(id) = at {
            step();
            let object = self.objects.get(id)?;
            if object.kind == Kind::Device {
                return Some(id);
            }
            at = object.parent;
        }
        None
    }

    /// Whether the driver can note the errors of a channel there: memory, or a context for DMA over
    /// it. (Over a range of addresses the driver makes another range in its place.)
    pub(in crate::policy) fn takes_notes(&self, id: RecordId) -> bool {
        let Some(object) = self.objects.get(id) else {
            return false;
        };
        let above = object.parent.and_then(|above| self.objects.get(above));
        let memory = match object.kind {
            Kind::ContextDma => above.map(|above| above.kind),
            kind => Some(kind),
        };
        matches!(
            memory,
            Some(Kind::SystemMemory | Kind::VideoMemory | Kind::OsDescriptor)
        )
    }

    /// Keeps an object, and so all above it, until [`Forest::let_go`]. `None`: it is being freed.
    pub(in crate::policy) fn keep(&mut self, id: RecordId) -> Result<Option<RecordId>, Exhausted> {
        if !self.can_be_shown(id) {
            return Ok(None);
        }
        self.errors.promise()?;
        let kept = self.kept.insert(id);
        if kept.is_err() {
            self.errors.forget_promise();
        }
        kept.map(Some)
    }

    /// The call that kept an object is over. If it has made its channel, the channel's errors go
    /// there until the channel is gone.
    pub(in crate::policy) fn let_go(&mut self, kept: RecordId, channel: Option<RecordId>) {
        let notes = self.kept.remove(kept);
        let is_here = |id: &RecordId| {
            let object = self.objects.get(*id);
            object.is_some_and(|object| object.life == ObjectLife::Here)
        };
        let channel = channel.filter(is_here);
        let object = notes.and_then(|notes| self.objects.get_mut(notes));
        if let (Some(channel), Some(notes), Some(object)) = (channel, notes, object) {
            object.named = object.named.saturating_add(1);
            self.errors.insert_promised(key(channel), notes);
        } else {
            self.errors.forget_promise();
        }
    }

    /// A channel is gone.
    pub(super) fn forget_errors(&mut self, channel: RecordId) {
        let Some(notes) = self.errors.get(key(channel)) else {
            return;
        };
        self.errors.remove(key(channel));
        if let Some(object) = self.objects.get_mut(notes) {
            lower(&mut object.named, 1);
        }
        self.bury(notes);
    }

    /// Whether the errors of a channel go to an object or one below it, and the channel stays when
    /// that is freed.
    pub(in crate::policy) fn takes_errors(&self, top: RecordId) -> bool {
        let kind = self.objects.get(top).map(|object| object.kind);
        // A channel and what it names are below the same device. With that the driver frees all
        // channels before all memory (rmclientPostProcessPendingFreeList_IMPL(), client.c).
        if matches!(kind, Some(Kind::Root | Kind::Device)) {
            return false;
        }
        // There are few channels, and few objects have any below them.
        let is_above = self
            .objects
            .get(top)
            .is_some_and(|object| object.child.is_some());
        let mut notes = self.errors.values();
        notes.any(|notes| notes == top || is_above && self.is_below(notes, top))
    }

    /// Whether a call in flight keeps an object, or one below it.
    pub(in crate::policy) fn is_kept(&self, id: RecordId) -> bool {
        self.kept.iter().any(|kept| self.is_below(*kept, id))
    }
}

/// The key of a channel in [`Forest::errors`].
fn key(channel: RecordId) -> u64 {
    u64::from(channel.number().get())
}
