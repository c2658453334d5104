// SPDX-License-Identifier: GPL-2.0
//! The channels that UVM has of a tenant.
//!
//! UVM keeps a channel's id, its memory and its group when the channel is freed
//! (`nvGpuOpsRetainChannel()`, nv_gpu_ops.c; `uvmchanrtnrConstruct_IMPL()`,
//! uvm_channel_retainer.c), until it is told to let it go, its GPU's address space goes or the file
//! is closed. So each is a hold on what the channel costs.
//!
//! A channel has one name in a file at a time, which is that of its client and its handle, and UVM
//! lets go of it by that name alone (`find_user_channel()`, uvm_user_channel.c). If it does not
//! find the name, another call may be about to let go of the channel. So holds are released when no
//! such call is in flight on the file.

use crate::{
    nvidia::handle::{
        ClientHandle,
        ObjectHandle, //
    },
    policy::{
        count::lower,
        ids::{
            FileId,
            GpuId, //
        },
        life::{
            Moments,
            UvmLife, //
        },
        object::key_of,
        records::{
            RecordId,
            Ref, //
        },
        skip_list::{
            Keyed,
            SkipList, //
        }, //
    },
    store::{
        Exhausted,
        List, //
    }, //
};

/// File; client and handle.
type ChannelKey = (u64, u64);

#[derive(Debug)]
struct Registration {
    key: ChannelKey,
    client: ClientHandle,
    channel: ObjectHandle,
    gpu: GpuId,
    uuid: [u8; 16],
    /// Leaving: UVM has it no longer, as soon as the calls in flight have ended.
    life: UvmLife,
    hold: Option<RecordId>,
}

impl Keyed for Registration {
    type Key = ChannelKey;

    fn key(&self) -> ChannelKey {
        self.key
    }
}

/// A channel that UVM has, as `Accounting::registered` tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FoundChannel {
    pub(super) name: Ref,
    /// Its GPU, as UVM names it.
    pub uuid: [u8; 16],
    /// hClient.
    pub client: ClientHandle,
    /// hChannel.
    pub channel: ObjectHandle,
}

/// A registration, for [`RegisteredChannels::insert`].
#[derive(Clone, Copy, Debug)]
pub struct Registered {
    /// The UVM file.
    pub file: FileId,
    /// The GPU.
    pub gpu: GpuId,
    /// The same, as UVM names it.
    pub uuid: [u8; 16],
    /// hClient.
    pub client: ClientHandle,
    /// hChannel.
    pub channel: ObjectHandle,
}

/// All channels of a tenant that UVM has.
#[derive(Debug)]
pub(super) struct RegisteredChannels {
    records: SkipList<Registration>,
    /// Files with calls in flight that let go of channels, and how many.
    ending: List<(FileId, u32)>,
    moments: Moments,
}

impl RegisteredChannels {
    pub(super) const fn new(seed: u64) -> Self {
        Self {
            records: SkipList::new(seed),
            ending: List::new(),
            moments: Moments::new(),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.records.len() == 0 && self.ending.is_empty()
    }

    /// The present moment: see [`Moments::now`].
    pub(super) fn now(&self) -> u64 {
        self.moments.now()
    }

    /// Makes room for one more.
    pub(super) fn reserve(&mut self) -> Result<(), Exhausted> {
        self.records.reserve()
    }

    /// A registration of that name.
    pub(super) fn find(
        &self,
        file: FileId,
        client: ClientHandle,
        channel: ObjectHandle,
    ) -> Option<FoundChannel> {
        let key = (file.0, key_of(client, channel));
        let id = self.records.from(key)?;
        let record = self.records.get(id)?;
        (record.key == key).then(|| self.found(id, record))?
    }

    fn found(&self, id: RecordId, record: &Registration) -> Option<FoundChannel> {
        Some(FoundChannel {
            name: self.records.name(id)?,
            uuid: record.uuid,
            client: record.client,
            channel: record.channel,
        })
    }

    /// Adds one that the driver is about to be asked for. There is [room](Self::reserve) for it,
    /// and none of its name.
    pub(super) fn insert(
        &mut self,
        of: &Registered,
        hold: Option<RecordId>,
    ) -> Result<Ref, Exhausted> {
        let key = (of.file.0, key_of(of.client, of.channel));
        let path = self.records.path(key);
        let id = self.records.insert(Registration {
            key,
            client: of.client,
            channel: of.channel,
            gpu: of.gpu,
            uuid: of.uuid,
            life: UvmLife::Coming,
            hold,
        })?;
        self.records.link(id, &path);
        self.records.name(id).ok_or(Exhausted)
    }

    /// The driver has it.
    pub(super) fn settle(&mut self, name: Ref) {
        let now = self.moments.next();
        if let Some(record) = self.records.named_mut(name) {
            record.life.settle(now);
        }
    }

    /// The next one of a GPU in a file that was there at that moment.
    pub(super) fn next(&self, file: FileId, gpu: GpuId, moment: u64) -> Option<FoundChannel> {
        let mut at = self.records.from((file.0, 0));
        while let Some(id) = at {
            let record = self.records.get(id)?;
            if record.key.0 != file.0 {
                return None;
            }
            if record.life.was_here(moment) && record.gpu == gpu {
                return self.found(id, record);
            }
            at = self.records.behind(Some(id));
        }
        None
    }

    /// A call is about to let go of channels of a file.
    pub(super) fn begin_end(&mut self, file: FileId) -> Result<(), Exhausted> {
        let mut files = self.ending.iter_mut();
        if let Some((_, calls)) = files.find(|(ending, _)| *ending == file) {
            *calls = calls.checked_add(1).ok_or(Exhausted)?;
            return Ok(());
        }
        self.ending.push((file, 1))
    }

    /// The driver was asked to let go of just this one. It is gone when no call that lets go of
    /// channels of its file is in flight.
    pub(super) fn let_go(&mut self, name: Ref) {
        if let Some(record) = self.records.named_mut(name) {
            if record.life.is_here() {
                record.life = UvmLife::Leaving;
            }
        }
    }

    /// Such a call has ended.
    pub(super) fn end_end(&mut self, file: FileId) {
        let place = self.ending.iter().position(|(ending, _)| *ending == file);
        let Some(place) = place else { return };
        if let Some((_, calls)) = self.ending.get_mut(place) {
            lower(calls, 1);
            if *calls > 0 {
                return;
            }
        }
        self.ending.swap_remove(place);
    }

    /// Takes one out that is gone for certain; gives its hold.
    pub(super) fn take_gone(&mut self, file: FileId) -> Option<Option<RecordId>> {
        if self.ending.iter().any(|(ending, _)| *ending == file) {
            return None;
        }
        let mut at = self.records.from((file.0, 0));
        while let Some(id) = at {
            let record = self.records.get(id)?;
            if record.key.0 != file.0 {
                return None;
            }
            if record.life == UvmLife::Leaving {
                return Some(self.remove(id));
            }
            at = self.records.behind(Some(id));
        }
        None
    }

    /// The driver never had it; gives its hold.
    pub(super) fn cancel(&mut self, name: Ref) -> Option<RecordId> {
        let id = self.records.find(name)?;
        self.remove(id)
    }

    /// The driver has closed the file; takes one of its out, as long as there are any.
    pub(super) fn take_of(&mut self, file: FileId) -> Option<Option<RecordId>> {
        let id = self.records.from((file.0, 0))?;
        let is_of = self.records.get(id)?.key.0 == file.0;
        is_of.then(|| self.remove(id))
    }

    fn remove(&mut self, id: RecordId) -> Option<RecordId> {
        let record = self.records.get(id)?;
        let (key, hold) = (record.key, record.hold);
        let path = self.records.path(key);
        self.records.unlink(id, &path);
        self.records.discard(id);
        hold
    }
}
