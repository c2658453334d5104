// SPDX-License-Identifier: GPL-2.0
//! The host engine: channels by number, doorbells, and the address space of each channel.

pub mod channel;
pub mod methods;
pub mod semaphore;

use crate::{
    clock,
    compute::Kernel,
    engine::ComputeTime,
    log::{worth_a_line, Log},
    memory::Memory,
    mmu::AddressSpace,
    names::{ChannelId, ObjectId},
    place::{NoMemory, Place},
};
use channel::{Channel, ChannelSetup, Outcome, Stop};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// The wishes of a channel to others after it ran.
#[derive(Debug, PartialEq, Eq)]
pub struct Wish {
    /// The channel.
    pub channel: ChannelId,
    /// The interrupt that does not stop its engine.
    pub non_stall: bool,
    /// It faulted, and is stopped for good.
    pub faulted: bool,
    /// Kernels that it launched.
    pub launches: Vec<Kernel>,
}

/// A channel with the objects that it was made of.
#[derive(Debug)]
struct HostChannel {
    channel: Channel,
    object: ObjectId,
    /// Its group, or itself.
    group: ObjectId,
    /// Objects that may have its address space, most specific first.
    spaces: Vec<ObjectId>,
}

/// All channels.
#[derive(Debug, Default)]
pub struct Host {
    channels: BTreeMap<ChannelId, HostChannel>,
    blocked: BTreeSet<ChannelId>,
    /// Roots that messages said, by address space, the newest last.
    roots: Vec<(ObjectId, Place)>,
    /// How long kernels take.
    pub engine: ComputeTime,
    /// Duplicates of address spaces, and what each is one of.
    duplicates: HashMap<ObjectId, ObjectId>,
    /// The channel that was rung for last, if it was there.
    last: Option<ChannelId>,
    doorbells: u64,
    methods: u64,
}

impl Host {
    /// Adds a channel. Its address space is looked for in these objects.
    pub fn add(
        &mut self,
        (object, group): (ObjectId, ObjectId),
        setup: ChannelSetup,
        spaces: Vec<ObjectId>,
    ) {
        let id = setup.id;
        let channel = Channel::new(setup);
        self.engine.remove(id);
        self.channels.insert(
            id,
            HostChannel {
                channel,
                object,
                group,
                spaces,
            },
        );
    }

    /// Forgets what an object was: a channel, an address space.
    pub fn remove(&mut self, object: ObjectId) {
        for id in self.named(object) {
            self.engine.remove(id);
            self.channels.remove(&id);
        }
        self.engine.forget(object);
        let channels = &self.channels;
        self.blocked.retain(|id| channels.contains_key(id));
        self.roots.retain(|(known, _)| *known != object);
        self.duplicates.remove(&object);
    }

    /// The channels of an object: one, or none.
    fn named(&self, object: ObjectId) -> Vec<ChannelId> {
        let all = self.channels.iter();
        let named = all.filter(|(_, channel)| channel.object == object);
        named.map(|(id, _)| *id).collect()
    }

    /// Stops a channel for good, and writes the error where its owner looks for it (nvos.h,
    /// `NvNotification`).
    pub fn fail(&mut self, id: ChannelId, error: u32, memory: &mut Memory) -> Result<(), NoMemory> {
        let Some(entry) = self.channels.get_mut(&id) else {
            return Ok(());
        };
        entry.channel.faulted = true;
        self.engine.remove(id);
        let Some(notifier) = entry.channel.setup.notifier else {
            return Ok(());
        };
        let status = u32::from(u16::MAX) << 16;
        let words = [clock::now(), u64::from(error) | u64::from(status) << 32];
        let bytes: Vec<u8> = words.into_iter().flat_map(u64::to_le_bytes).collect();
        memory.write(notifier, &bytes)
    }

    /// Switches a channel off or on again; one that is on runs on at the next doorbell. Whether
    /// there is such a channel.
    pub fn disable(&mut self, object: ObjectId, disabled: bool) -> bool {
        let named = self.named(object);
        let is_there = !named.is_empty();
        for id in named {
            self.engine.switch(clock::now(), id, disabled);
            if let Some(entry) = self.channels.get_mut(&id) {
                entry.channel.disabled = disabled;
            }
            if !disabled {
                self.blocked.insert(id);
            }
        }
        is_there
    }

    /// Removes a channel, or all channels of a group, from the runlist, or puts them back. A
    /// removed channel does nothing, because the driver then unmaps its memory
    /// (`uvm_va_space_mm_shutdown`). NVIDIA's firmware waits some seconds for the channel to become
    /// idle, unless the stop is immediate (ctrla06fgpfifo.h); this one never waits. Returns whether
    /// there is such a channel.
    pub fn schedule(&mut self, object: ObjectId, on: bool) -> bool {
        let all = self.channels.iter_mut();
        let named = all.filter(|(_, other)| other.object == object || other.group == object);
        let mut is_there = false;
        for (id, entry) in named {
            is_there = true;
            if on {
                entry.channel.stopped = false;
                self.blocked.insert(*id);
            } else {
                entry.channel.stop();
                self.engine.remove(*id);
                self.blocked.remove(id);
            }
        }
        is_there
    }

    /// The group of a channel; anything else is its own.
    fn group_of(&self, object: ObjectId) -> ObjectId {
        let channel = self.channels.values().find(|other| other.object == object);
        channel.map_or(object, |channel| channel.group)
    }

    /// A channel gets an object for compute, and so its group a context.
    pub fn begin_context(&mut self, channel: ObjectId) {
        let group = self.group_of(channel);
        self.engine.begin_context(group);
    }

    /// Whether kernels of a channel's group, or of a group, run to their end.
    pub fn set_waits(&mut self, object: ObjectId, waits: bool) {
        let group = self.group_of(object);
        self.engine.set_waits(clock::now(), group, waits);
    }

    /// Kernels have ended by now: what follows them in their channels runs.
    pub fn advance(&mut self, memory: &mut Memory, log: &mut Log) -> Vec<Wish> {
        let mut wishes = Vec::new();
        while let Some(id) = self.engine.advance(clock::now()) {
            let Some(entry) = self.channels.get_mut(&id) else {
                continue;
            };
            let mut outcome = Outcome::default();
            let done = entry.channel.finish(memory, &mut outcome);
            if let Err(stop) = done {
                log.say("host", format_args!("{id:?}: its kernel ends in {stop:?}"));
                entry.channel.faulted = true;
            }
            wishes.push(Wish {
                channel: id,
                non_stall: outcome.non_stall,
                faulted: done.is_err(),
                launches: Vec::new(),
            });
            wishes.extend(self.run(id, memory, log));
        }
        wishes
    }

    /// A duplicate is the same address space as its original.
    pub fn duplicate(&mut self, duplicate: ObjectId, original: ObjectId) {
        let original = self.original(original);
        self.duplicates.insert(duplicate, original);
    }

    fn original(&self, object: ObjectId) -> ObjectId {
        self.duplicates.get(&object).copied().unwrap_or(object)
    }

    /// A message said the root of an address space.
    pub fn set_root(&mut self, space: ObjectId, root: Place) {
        let space = self.original(space);
        self.roots.retain(|(known, _)| *known != space);
        self.roots.push((space, root));
    }

    /// The address space of a channel. (Its instance block does not say: a driver whose firmware
    /// runs the GPU leaves that to the firmware, and what stands there is older.)
    fn space(&self, entry: &HostChannel) -> Option<AddressSpace> {
        let named = entry.spaces.iter().find_map(|object| {
            let space = self.original(*object);
            self.roots.iter().find(|(known, _)| *known == space)
        });
        // A channel that names no address space has its device's: the newest of its client.
        let client = entry.object.client;
        let of_client = || {
            let mut newest = self.roots.iter().rev();
            let own = newest.find(|(known, _)| known.client == client);
            own.filter(|_| entry.spaces.is_empty())
        };
        let root = named.or_else(of_client)?.1;
        Some(AddressSpace { root })
    }

    /// Runs the channel that a doorbell names: number in bits 11:0, runlist in bits 22:16.
    pub fn ring(&mut self, token: u32, memory: &mut Memory, log: &mut Log) -> Vec<Wish> {
        let id = ChannelId {
            runlist: token >> 16 & 0x7f,
            number: token & 0xfff,
        };
        self.doorbells += 1;
        if worth_a_line(self.doorbells) {
            let (count, known) = (self.doorbells, self.channels.contains_key(&id));
            log.say(
                "host",
                format_args!("doorbell {token:#x} (#{count}), known: {known}"),
            );
        }
        if self.channels.contains_key(&id) {
            self.last = Some(id);
        }
        let mut wishes: Vec<Wish> = self.run(id, memory, log).into_iter().collect();
        wishes.extend(self.poll(memory, log));
        wishes
    }

    /// The channel that was rung for last, if it is still there.
    pub fn last(&self) -> Option<ChannelId> {
        self.last.filter(|id| self.channels.contains_key(id))
    }

    /// Runs all channels that wait for a semaphore.
    pub fn poll(&mut self, memory: &mut Memory, log: &mut Log) -> Vec<Wish> {
        let blocked: Vec<ChannelId> = self.blocked.iter().copied().collect();
        blocked
            .into_iter()
            .filter_map(|id| self.run(id, memory, log))
            .collect()
    }

    /// Whether a channel waits for what may come without a doorbell.
    pub fn has_blocked(&self) -> bool {
        !self.blocked.is_empty()
    }

    fn run(&mut self, id: ChannelId, memory: &mut Memory, log: &mut Log) -> Option<Wish> {
        let space = self.space(self.channels.get(&id)?);
        let entry = self.channels.get_mut(&id)?;
        self.blocked.remove(&id);
        if entry.channel.rests() {
            return None;
        }
        let Some(space) = space else {
            log.say("host", format_args!("{id:?} has no address space"));
            return None;
        };
        let (mut outcome, disabled) = (Outcome::default(), entry.channel.disabled);
        let group = entry.group;
        let stop = entry.channel.run(memory, space, &mut outcome);
        self.methods += outcome.methods;
        let mut faulted = false;
        for length in &outcome.working {
            let now = clock::now();
            self.engine.submit(now, (id, group), *length, disabled);
        }
        match stop {
            Ok(()) | Err(Stop::Working) => {}
            Err(Stop::Blocked) => {
                self.blocked.insert(id);
            }
            Err(Stop::Fault(fault)) => {
                log.say("host", format_args!("{id:?} faults: {fault}"));
                entry.channel.faulted = true;
                faulted = true;
            }
        }
        let launches = outcome.launches;
        Some(Wish {
            channel: id,
            non_stall: outcome.non_stall,
            faulted,
            launches,
        })
    }

    /// Forgets all channels and address spaces: the firmware was reset.
    pub fn reset(&mut self) {
        *self = Self {
            doorbells: self.doorbells,
            methods: self.methods,
            ..Self::default()
        };
    }

    /// Doorbells and methods so far.
    pub fn counts(&self) -> (u64, u64) {
        (self.doorbells, self.methods)
    }
}

#[cfg(test)]
mod tests;
