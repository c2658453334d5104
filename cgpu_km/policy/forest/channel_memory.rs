// SPDX-License-Identifier: GPL-2.0
//! Memory that channels use: for their errors, and for their control pages. It stays as long as
//! they do.
//!
//! The driver would free it. It goes on noting errors there, and the GPU goes on reading and
//! writing the control page, whoever has the memory by then.

use super::Forest;
use crate::{
    nvidia::class::Kind,
    policy::{
        count::lower,
        event::RefusalCause,
        object::ObjectLife,
        records::RecordId,
        steps::step, //
    }, //
};

/// Objects that a new channel uses: for its errors, and for its control page.
type ChannelMemory = [Option<RecordId>; 2];

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

    /// Whether two objects are below one device, which is there.
    pub(in crate::policy) fn are_of_one_device(&self, one: RecordId, other: RecordId) -> bool {
        let device = self.device_of(one);
        device.is_some() && device == self.device_of(other)
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

    /// Keeps what a new channel is to use, and so all above it, until [`Forest::let_go`].
    pub(in crate::policy) fn keep(
        &mut self,
        [errors, page]: ChannelMemory,
    ) -> Result<ChannelMemory, RefusalCause> {
        let errors = errors.map(|id| self.keep_one(id)).transpose()?;
        let page = page.map(|id| self.keep_one(id)).transpose();
        let page = page.inspect_err(|_| self.let_go([errors, None], None))?;
        Ok([errors, page])
    }

    fn keep_one(&mut self, id: RecordId) -> Result<RecordId, RefusalCause> {
        if !self.can_be_shown(id) {
            return Err(RefusalCause::MemoryInFlight);
        }
        self.channel_memory.promise()?;
        let kept = self.kept.insert(id);
        Ok(kept.inspect_err(|_| self.channel_memory.forget_promise())?)
    }

    /// The call that kept objects is over. If it has made its channel, they are the channel's until
    /// that is gone.
    pub(in crate::policy) fn let_go(&mut self, kept: ChannelMemory, channel: Option<RecordId>) {
        let is_here = |id: &RecordId| {
            let object = self.objects.get(*id);
            object.is_some_and(|object| object.life == ObjectLife::Here)
        };
        let keys = channel.filter(is_here).map(keys);
        for (place, kept) in kept.into_iter().enumerate() {
            let Some(kept) = kept else { continue };
            let key = keys.as_ref().and_then(|keys| keys.get(place));
            let used = self.kept.remove(kept);
            let object = used.and_then(|used| self.objects.get_mut(used));
            if let (Some(key), Some(used), Some(object)) = (key, used, object) {
                object.named = object.named.saturating_add(1);
                self.channel_memory.insert_promised(*key, used);
            } else {
                self.channel_memory.forget_promise();
            }
        }
    }

    /// A channel is gone.
    pub(super) fn forget_channel_memory(&mut self, channel: RecordId) {
        for key in keys(channel) {
            let Some(used) = self.channel_memory.get(key) else {
                continue;
            };
            self.channel_memory.remove(key);
            if let Some(object) = self.objects.get_mut(used) {
                lower(&mut object.named, 1);
            }
            self.bury(used);
        }
    }

    /// Whether a channel uses an object or one below it, and stays when that is freed.
    pub(in crate::policy) fn is_channel_memory(&self, top: RecordId) -> bool {
        let kind = self.objects.get(top).map(|object| object.kind);
        // A channel and what it uses are below the same device. With that, with the client and with
        // the client's file the driver frees all channels before all memory
        // (rmclientPostProcessPendingFreeList_IMPL(), client.c; serverFreeClientList(),
        // rs_server.c).
        if matches!(kind, Some(Kind::Root | Kind::Device)) {
            return false;
        }
        // There are few channels, and few objects have any below them.
        let is_above = self
            .objects
            .get(top)
            .is_some_and(|object| object.child.is_some());
        let mut used = self.channel_memory.values();
        used.any(|used| used == top || is_above && self.is_below(used, top))
    }

    /// Whether a call in flight keeps an object, or one below it.
    pub(in crate::policy) fn is_kept(&self, id: RecordId) -> bool {
        self.kept.iter().any(|kept| self.is_below(*kept, id))
    }
}

/// The keys of a channel in [`Forest::channel_memory`], in the order of [`ChannelMemory`].
fn keys(channel: RecordId) -> [u64; 2] {
    let key = u64::from(channel.number().get()) << 1;
    [key, key | 1]
}
