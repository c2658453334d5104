// SPDX-License-Identifier: GPL-2.0
//! The host engine: channels by number, doorbells, and the address space of each channel.

pub mod channel;
pub mod methods;
pub mod semaphore;

use crate::{
    clock,
    compute::Kernel,
    log::{worth_a_line, Log},
    memory::Memory,
    mmu::AddressSpace,
    place::{NoMemory, Place},
};
use channel::{Channel, ChannelId, ChannelSetup, Outcome, Stop};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// An object of the driver's: its client and its handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ObjectId {
    /// The client.
    pub client: u32,
    /// The handle in that client.
    pub handle: u32,
}

/// What a channel wants of others after it ran.
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
    /// Where its address space may be found, most specific first.
    spaces: Vec<ObjectId>,
}

/// All channels.
#[derive(Debug, Default)]
pub struct Host {
    channels: BTreeMap<ChannelId, HostChannel>,
    blocked: BTreeSet<ChannelId>,
    /// Roots that messages said, by address space, the newest last.
    roots: Vec<(ObjectId, Place)>,
    /// Duplicates of address spaces, and what each is one of.
    duplicates: HashMap<ObjectId, ObjectId>,
    /// The channel that was rung for last, if it was there.
    last: Option<ChannelId>,
    doorbells: u64,
    methods: u64,
}

impl Host {
    /// Adds a channel. Its address space is looked for in these objects.
    pub fn add(&mut self, object: ObjectId, setup: ChannelSetup, spaces: Vec<ObjectId>) {
        let id = setup.id;
        let channel = Channel::new(setup);
        self.channels.insert(
            id,
            HostChannel {
                channel,
                object,
                spaces,
            },
        );
    }

    /// Forgets what an object was: a channel, an address space.
    pub fn remove(&mut self, object: ObjectId) {
        self.channels.retain(|_, channel| channel.object != object);
        let channels = &self.channels;
        self.blocked.retain(|id| channels.contains_key(id));
        self.roots.retain(|(known, _)| *known != object);
        self.duplicates.remove(&object);
    }

    /// Stops a channel for good, and writes the error where its owner looks for it (nvos.h,
    /// `NvNotification`).
    pub fn fail(&mut self, id: ChannelId, error: u32, memory: &mut Memory) -> Result<(), NoMemory> {
        let Some(entry) = self.channels.get_mut(&id) else {
            return Ok(());
        };
        entry.channel.faulted = true;
        let Some(notifier) = entry.channel.setup.notifier else {
            return Ok(());
        };
        let status = u32::from(u16::MAX) << 16;
        let words = [clock::now(), u64::from(error) | u64::from(status) << 32];
        let bytes: Vec<u8> = words.into_iter().flat_map(u64::to_le_bytes).collect();
        memory.write(notifier, &bytes)
    }

    /// Switches a channel off or on again; one that is on runs on at the next doorbell.
    pub fn disable(&mut self, object: ObjectId, disabled: bool) {
        for entry in self
            .channels
            .values_mut()
            .filter(|entry| entry.object == object)
        {
            entry.channel.disabled = disabled;
            if !disabled {
                self.blocked.insert(entry.channel.setup.id);
            }
        }
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
            self.roots
                .iter()
                .rev()
                .find(|(known, _)| known.client == client)
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
        if entry.channel.disabled || entry.channel.faulted {
            return None;
        }
        let Some(space) = space else {
            log.say("host", format_args!("{id:?} has no address space"));
            return None;
        };
        let mut outcome = Outcome::default();
        let stop = entry.channel.run(memory, space, &mut outcome);
        self.methods += outcome.methods;
        let mut faulted = false;
        match stop {
            Ok(()) => {}
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
