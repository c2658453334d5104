// SPDX-License-Identifier: GPL-2.0
//! The instances of a GPU, their channel groups and channels, and what was done to each.

use super::{
    authority::{
        Engine,
        InstanceId,
        RmName, //
    },
    instance::{
        SchedInstance,
        DEFAULT_SLICE_US, //
    },
    retry::Retry,
    time::Nanos,
    time_alone::SeenAtWork,
    trials::SliceTrials, //
};
use crate::{
    nvidia::handle::ClientHandle,
    policy::ProcessId,
    store::{
        Exhausted,
        List, //
    },
    uapi::MAX_INSTANCES_PER_GPU, //
};

/// A group's time slice in the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum GroupSlice {
    /// It is not known.
    Unknown,
    /// So many microseconds.
    Set(u32),
    /// 0, and the group is to be preempted once, so that it takes effect.
    ToPreempt,
}

impl GroupSlice {
    /// The driver has just set so many microseconds.
    pub(super) fn set(microseconds: u32) -> Self {
        match microseconds {
            0 => Self::ToPreempt,
            _ => Self::Set(microseconds),
        }
    }

    /// The group was preempted.
    pub(super) fn preempted(self) -> Self {
        match self {
            Self::ToPreempt => Self::Set(0),
            Self::Unknown | Self::Set(_) => self,
        }
    }

    /// Whether it is known to be so many microseconds.
    pub(super) fn is(self, microseconds: u32) -> bool {
        match self {
            Self::Unknown => false,
            Self::Set(slice) => slice == microseconds,
            Self::ToPreempt => microseconds == 0,
        }
    }
}

/// A channel group, or a channel that has none.
#[derive(Debug)]
pub(super) struct SchedGroup {
    pub(super) name: RmName,
    pub(super) owner: InstanceId,
    pub(super) engine: Engine,
    pub(super) slice: GroupSlice,
    /// The call that is being made is for it.
    pub(super) in_call: bool,
    pub(super) retry: Retry,
    /// Its client is about to be freed: no call is made on it.
    pub(super) is_leaving: bool,
    /// The driver made it for a channel that has none, and nobody can name it.
    pub(super) is_nameless: bool,
}

/// A channel that the driver has just made, and its group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewChannel {
    /// The instance that has it.
    pub instance: InstanceId,
    /// Its group, or its own name if it has none.
    pub group: RmName,
    /// Its name.
    pub channel: RmName,
    /// The engine that it runs on.
    pub engine: Engine,
    /// The process that the driver's samples name for it.
    pub process: ProcessId,
}

/// A channel.
#[derive(Debug)]
pub(super) struct SchedChannel {
    pub(super) name: RmName,
    pub(super) group: RmName,
    pub(super) owner: InstanceId,
    pub(super) engine: Engine,
    /// The process that the driver's samples name for it.
    pub(super) process: ProcessId,
    /// Switched off; `None`: not known. A call that failed may have done it for some of its
    /// channels. And a call for another channel of this name may have come after this one was made.
    pub(super) off: Option<bool>,
    /// The call that is being made is for it, too.
    pub(super) in_call: bool,
    /// A channel whose call failed is tried alone.
    pub(super) retry: Retry,
}

/// All of them.
#[derive(Debug)]
pub(super) struct Fleet {
    instances: List<SchedInstance>,
    groups: List<SchedGroup>,
    channels: List<SchedChannel>,
}

/// Memory for channels and their groups, made without a lock.
#[derive(Debug)]
pub struct Room {
    groups: List<SchedGroup>,
    channels: List<SchedChannel>,
}

impl Room {
    /// For so many channels, each in a group of its own.
    pub fn of(channels: usize) -> Result<Self, Exhausted> {
        Ok(Self {
            groups: List::with_room(channels)?,
            channels: List::with_room(channels)?,
        })
    }
}

/// Channels for which there is room at first.
const FIRST_ROOM: usize = 64;

/// Keeps the values of a list for which `keep` holds; their order may change.
fn retain<T>(list: &mut List<T>, mut keep: impl FnMut(&T) -> bool) {
    let mut at = 0;
    while let Some(value) = list.get(at) {
        if keep(value) {
            at += 1;
        } else {
            list.swap_remove(at);
        }
    }
}

impl Fleet {
    pub(super) const fn new() -> Self {
        Self {
            instances: List::new(),
            groups: List::new(),
            channels: List::new(),
        }
    }

    /// Makes room for all instances that a GPU can have, while there is none.
    pub(super) fn make_room(&mut self) -> Result<(), Exhausted> {
        self.instances = List::with_room(MAX_INSTANCES_PER_GPU)?;
        Ok(())
    }

    pub(super) fn instances(&self) -> impl Iterator<Item = &SchedInstance> {
        self.instances.iter()
    }

    pub(super) fn instances_mut(&mut self) -> impl Iterator<Item = &mut SchedInstance> {
        self.instances.iter_mut()
    }

    pub(super) fn groups(&self) -> impl Iterator<Item = &SchedGroup> {
        self.groups.iter()
    }

    pub(super) fn groups_mut(&mut self) -> impl Iterator<Item = &mut SchedGroup> {
        self.groups.iter_mut()
    }

    pub(super) fn channels(&self) -> impl Iterator<Item = &SchedChannel> {
        self.channels.iter()
    }

    pub(super) fn channels_mut(&mut self) -> impl Iterator<Item = &mut SchedChannel> {
        self.channels.iter_mut()
    }

    /// The instances that have work and may have the GPU.
    pub(super) fn competing(&self) -> impl Iterator<Item = &SchedInstance> {
        self.instances().filter(|i| i.competes())
    }

    /// How many compete.
    pub(super) fn count_competing(&self) -> u64 {
        u64::try_from(self.competing().count()).unwrap_or(1)
    }

    /// Whether this instance competes.
    pub(super) fn competes(&self, id: InstanceId) -> bool {
        self.find(id).is_some_and(SchedInstance::competes)
    }

    pub(super) fn find(&self, id: InstanceId) -> Option<&SchedInstance> {
        self.instances.iter().find(|i| i.id == id)
    }

    pub(super) fn find_mut(&mut self, id: InstanceId) -> Option<&mut SchedInstance> {
        self.instances.iter_mut().find(|i| i.id == id)
    }

    pub(super) fn add(&mut self, instance: SchedInstance) -> Result<(), Exhausted> {
        self.instances.push(instance)
    }

    pub(super) fn remove(&mut self, id: InstanceId) {
        retain(&mut self.instances, |i| i.id != id);
        retain(&mut self.groups, |g| g.owner != id);
        retain(&mut self.channels, |c| c.owner != id);
    }

    /// An instance is about to have so many channels, and at most as many groups. `None`: all that
    /// were expected, of all instances, can be noted without memory. Otherwise for how many there
    /// has to be room before this is asked again.
    pub(super) fn expect_channels(&mut self, id: InstanceId, channels: usize) -> Option<usize> {
        let capacity = self.capacity();
        let rooms = self.instances.iter().filter(|i| i.id != id).map(|i| i.room);
        let others = rooms.fold(0, usize::saturating_add);
        let instance = self.find_mut(id)?;
        let own = instance.room.max(channels);
        let all = others.saturating_add(own);
        if all <= capacity {
            instance.room = own;
            return None;
        }
        Some(all.max(capacity.saturating_mul(2)).max(FIRST_ROOM))
    }

    /// For how many channels, each in a group of its own, there is room.
    fn capacity(&self) -> usize {
        let groups = self.groups.len().saturating_add(self.groups.room());
        let channels = self.channels.len().saturating_add(self.channels.room());
        groups.min(channels)
    }

    /// Moves all channels to a larger room, if it is one. Gives the other one back, to be dropped
    /// without a lock.
    pub(super) fn move_to(&mut self, mut room: Room) -> Room {
        if room.groups.room().min(room.channels.room()) > self.capacity() {
            room.groups.take_all(&mut self.groups);
            room.channels.take_all(&mut self.channels);
            core::mem::swap(&mut room.groups, &mut self.groups);
            core::mem::swap(&mut room.channels, &mut self.channels);
        }
        room
    }

    /// Notes a channel, and its group if that is new. This takes no memory if the channel was
    /// [expected](Self::expect_channels).
    pub(super) fn add_channel(&mut self, new: NewChannel) -> Result<(), Exhausted> {
        self.channels.reserve(1)?;
        if !self.groups.iter().any(|g| g.name == new.group) {
            self.groups.push(SchedGroup {
                name: new.group,
                owner: new.instance,
                engine: new.engine,
                slice: GroupSlice::Set(DEFAULT_SLICE_US),
                in_call: false,
                retry: Retry::NEVER_FAILED,
                is_leaving: false,
                is_nameless: new.group == new.channel,
            })?;
        }
        self.channels.push(SchedChannel {
            name: new.channel,
            group: new.group,
            owner: new.instance,
            engine: new.engine,
            process: new.process,
            off: Some(false),
            in_call: false,
            retry: Retry::NEVER_FAILED,
        })
    }

    /// A group or a channel is gone. A channel without a group is its own.
    pub(super) fn free(&mut self, name: RmName) {
        retain(&mut self.groups, |g| g.name != name);
        retain(&mut self.channels, |c| c.name != name && c.group != name);
        self.forget_trials();
    }

    /// A client is gone with all that it had.
    pub(super) fn free_client(&mut self, client: ClientHandle) {
        retain(&mut self.groups, |g| g.name.client != client);
        retain(&mut self.channels, |c| c.name.client != client);
        self.forget_trials();
    }

    /// A client is about to go.
    pub(super) fn leave_client(&mut self, client: ClientHandle) {
        for group in self.groups_mut().filter(|g| g.name.client == client) {
            group.is_leaving = true;
        }
    }

    /// How slices went tells nothing of an instance whose programs are gone.
    fn forget_trials(&mut self) {
        let Self {
            instances, groups, ..
        } = self;
        for instance in instances.iter_mut() {
            let own = |g: &SchedGroup| g.owner == instance.id && g.engine == Engine::Compute;
            if !groups.iter().any(own) {
                instance.trials = SliceTrials::default();
            }
        }
    }

    /// The channels of the call that is being made are off since then, or on.
    pub(super) fn switched(&mut self, off_since: Option<Nanos>) {
        for channel in self.channels.iter().filter(|c| c.in_call) {
            if let Some(owner) = self.instances.iter_mut().find(|i| i.id == channel.owner) {
                owner.off_since = off_since;
            }
        }
    }

    /// The one instance in which this process has compute channels. `None` if there are several: on
    /// the host a process may open the nodes of more than one.
    fn owner_of(&self, process: ProcessId) -> Option<InstanceId> {
        let own = |c: &&SchedChannel| c.process == process && c.engine == Engine::Compute;
        let mut owners = self.channels.iter().filter(own).map(|c| c.owner);
        let first = owners.next()?;
        owners.all(|other| other == first).then_some(first)
    }

    /// Whom a sample saw at work that names this process.
    pub(super) fn seen_at_work(&self, process: Option<ProcessId>) -> SeenAtWork {
        match process.map(|process| self.owner_of(process)) {
            Some(Some(id)) => SeenAtWork::Instance(id),
            Some(None) => SeenAtWork::Stranger,
            None => SeenAtWork::Nobody,
        }
    }

    /// Compute groups of an instance.
    pub(super) fn count_compute_groups(&self, id: InstanceId) -> usize {
        self.compute_groups(id).count()
    }

    /// The compute groups of an instance.
    fn compute_groups(&self, id: InstanceId) -> impl Iterator<Item = &SchedGroup> {
        let own = move |g: &&SchedGroup| g.owner == id && g.engine == Engine::Compute;
        self.groups.iter().filter(own)
    }

    /// Whether an instance has compute groups, and each can be given a time slice.
    pub(super) fn takes_slices(&self, id: InstanceId) -> bool {
        let mut groups = self.compute_groups(id).peekable();
        groups.peek().is_some() && groups.all(|group| !group.is_nameless)
    }
}
