// SPDX-License-Identifier: GPL-2.0
//! A channel: a ring of entries that name push buffers, whose methods go to the host or to an
//! engine.

use crate::{
    clock,
    compute::{self, ComputeState},
    copy_engine::{self, CopyInterrupt},
    engine,
    host::{
        methods::{self, Method},
        semaphore::{Deferred, Progress, Semaphore},
    },
    memory::Memory,
    mmu::{AddressSpace, MmuFault},
    names::ChannelId,
    place::{NoMemory, Place},
};
use std::collections::{HashMap, VecDeque};

/// The host's own methods (class c86f, `NVC86F_*`).
mod method {
    pub(super) const SET_OBJECT: u16 = 0x00;
    pub(super) const NON_STALL_INTERRUPT: u16 = 0x20;
    pub(super) const SEM_ADDR_LO: u16 = 0x5c;
    pub(super) const SEM_ADDR_HI: u16 = 0x60;
    pub(super) const SEM_PAYLOAD_LO: u16 = 0x64;
    pub(super) const SEM_PAYLOAD_HI: u16 = 0x68;
    pub(super) const SEM_EXECUTE: u16 = 0x6c;
}

/// Offsets in the page that the channel's owner writes to (class c86f, `Nvc86fControl`).
const USERD_GP_GET: u64 = 0x88;
const USERD_GP_PUT: u64 = 0x8c;
/// `NVC86F_GP_ENTRY1_OPCODE_SET_PB_SEGMENT_EXTENDED_BASE`.
const SET_EXTENDED_BASE: u32 = 4;
/// The copy engine's subchannel (cl c86f, `NVA06F_SUBCHANNEL_COPY_ENGINE`); no object need be set
/// there.
const COPY_SUBCHANNEL: u8 = 4;
/// The class of that engine.
const COPY_CLASS: u32 = 0xc8b5;

/// Kernels of a channel that can be under way: fewer than the model has room for.
const MOST_KERNELS: usize = 8;

/// The driver's description of a new channel.
#[derive(Clone, Debug)]
pub struct ChannelSetup {
    /// Number and runlist.
    pub id: ChannelId,
    /// Virtual address of the ring.
    pub ring: u64,
    /// Entries of the ring.
    pub entries: u32,
    /// The page with the ring's pointers.
    pub userd: Place,
    /// The place in which its owner looks for errors.
    pub notifier: Option<Place>,
}

/// Events while a channel ran, for others to act upon.
#[derive(Debug, Default)]
pub struct Outcome {
    /// Engines that want the interrupt which does not stop them.
    pub non_stall: bool,
    /// Methods that were executed.
    pub methods: u64,
    /// Kernels that were launched.
    pub launches: Vec<compute::Kernel>,
    /// How long those of them take, in nanoseconds, that take time.
    pub working: Vec<u64>,
}

/// Why a channel has stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// It waits for a semaphore.
    Blocked,
    /// It waits for a kernel's end.
    Working,
    /// An address led nowhere.
    Fault(MmuFault),
}

impl From<MmuFault> for Stop {
    fn from(fault: MmuFault) -> Self {
        Self::Fault(fault)
    }
}

impl From<NoMemory> for Stop {
    fn from(no: NoMemory) -> Self {
        Self::Fault(MmuFault::Page(no))
    }
}

/// A channel and the state of its methods.
#[derive(Debug)]
pub struct Channel {
    /// The driver's description of it.
    pub setup: ChannelSetup,
    /// The driver has switched it off (FIFO_DISABLE_CHANNELS).
    pub disabled: bool,
    /// A fault stopped it; only its end helps.
    pub faulted: bool,
    /// It is off its runlist: not scheduled yet (GPFIFO_SCHEDULE), or not again (STOP_CHANNEL).
    pub stopped: bool,
    get: u32,
    extended_base: u64,
    /// Classes of the engines, by subchannel.
    objects: [u32; 8],
    /// Values of methods by subchannel and address; the host's have subchannel 0.
    state: HashMap<(u8, u16), u32>,
    compute: ComputeState,
    /// Kernels that are under way, the oldest first, and what is to be done after each.
    kernels: VecDeque<(compute::Kernel, Vec<Deferred>)>,
    pending: VecDeque<Method>,
}

impl Channel {
    /// A channel that has run nothing. It runs when it has been scheduled.
    pub fn new(setup: ChannelSetup) -> Self {
        Self {
            setup,
            disabled: false,
            faulted: false,
            stopped: true,
            get: 0,
            extended_base: 0,
            objects: [0; 8],
            state: HashMap::new(),
            compute: ComputeState::default(),
            kernels: VecDeque::new(),
            pending: VecDeque::new(),
        }
    }

    /// The oldest kernel that is under way has ended.
    pub fn finish(&mut self, memory: &mut Memory, outcome: &mut Outcome) -> Result<(), Stop> {
        let Some((kernel, after)) = self.kernels.pop_front() else {
            return Ok(());
        };
        let now = clock::now();
        kernel.complete(memory, now)?;
        for deferred in after {
            match deferred {
                Deferred::Semaphore(semaphore) => {
                    semaphore.execute(memory, kernel.space, now)?;
                }
                Deferred::Interrupt => outcome.non_stall = true,
            }
        }
        Ok(())
    }

    /// Removes it from its runlist. Its running kernels end without effect: neither their
    /// semaphores nor what waits for them is written.
    pub fn stop(&mut self) {
        self.stopped = true;
        self.kernels.clear();
    }

    /// Whether it does nothing now.
    pub fn rests(&self) -> bool {
        self.disabled || self.faulted || self.stopped
    }

    /// Whether a method waits for kernels that are under way: copies by the same channel do, and
    /// all methods when there are too many kernels.
    fn waits(&self, method: Method) -> bool {
        let copies = method.address == copy_engine::LAUNCH_DMA
            && self.class(method.subchannel) & 0xff == 0xb5;
        self.kernels.len() >= MOST_KERNELS || copies && !self.kernels.is_empty()
    }

    /// Runs until the ring is empty, or a semaphore or a kernel holds it.
    pub fn run(
        &mut self,
        memory: &mut Memory,
        space: AddressSpace,
        outcome: &mut Outcome,
    ) -> Result<(), Stop> {
        self.execute(memory, space, outcome)?;
        loop {
            let put = memory.read32(self.setup.userd.plus(USERD_GP_PUT))?;
            if self.get == put || self.setup.entries == 0 {
                return Ok(());
            }
            self.fetch(memory, space)?;
            self.get = (self.get + 1) % self.setup.entries;
            memory.write32(self.setup.userd.plus(USERD_GP_GET), self.get)?;
            self.execute(memory, space, outcome)?;
        }
    }

    /// Reads the next entry of the ring, and the push buffer that it names.
    fn fetch(&mut self, memory: &mut Memory, space: AddressSpace) -> Result<(), Stop> {
        let mut entry = [0; 8];
        let at = self.setup.ring + 8 * u64::from(self.get);
        space.read(memory, at, &mut entry)?;
        let entry = u64::from_le_bytes(entry);
        let (low, high) = (entry as u32, (entry >> 32) as u32);
        let length = (high >> 10 & 0x1f_ffff) as usize;
        if length == 0 {
            if high & 0xff == SET_EXTENDED_BASE {
                self.extended_base = u64::from(low >> 8 & 0x1_ffff) << 40;
            }
            return Ok(());
        }
        let address = u64::from(low & !3) | u64::from(high & 0xff) << 32 | self.extended_base;
        let mut segment = vec![0; 4 * length];
        space.read(memory, address, &mut segment)?;
        self.pending.extend(methods::decode(&segment));
        Ok(())
    }

    fn execute(
        &mut self,
        memory: &mut Memory,
        space: AddressSpace,
        outcome: &mut Outcome,
    ) -> Result<(), Stop> {
        while let Some(method) = self.pending.front().copied() {
            if self.waits(method) {
                return Err(Stop::Working);
            }
            match self.method(memory, space, method, outcome)? {
                Progress::Done => self.pending.pop_front(),
                Progress::Blocked => return Err(Stop::Blocked),
            };
            outcome.methods += 1;
        }
        Ok(())
    }

    fn value(&self, subchannel: u8, address: u16) -> u32 {
        self.state.get(&(subchannel, address)).copied().unwrap_or(0)
    }

    fn method(
        &mut self,
        memory: &mut Memory,
        space: AddressSpace,
        method: Method,
        outcome: &mut Outcome,
    ) -> Result<Progress, MmuFault> {
        let (subchannel, address) = (method.subchannel, method.address);
        let value = method.value;
        if address < 0x100 {
            return self.host_method(memory, space, method, outcome);
        }
        self.state.insert((subchannel, address), value);
        match self.class(subchannel) & 0xff {
            0xb5 if address == copy_engine::LAUNCH_DMA => {
                let state = |address| self.value(subchannel, address);
                let launch = copy_engine::Launch {
                    space,
                    state: &state,
                    flags: value,
                    now: clock::now(),
                };
                let interrupt = launch.run(memory)?;
                outcome.non_stall |= interrupt == CopyInterrupt::NonBlocking;
            }
            0xc0 => {
                let state = &self.state;
                let get = |address| state.get(&(subchannel, address)).copied().unwrap_or(0);
                let mut at = compute::Surroundings {
                    memory,
                    space,
                    get: &get,
                    deferred: self.kernels.back_mut().map(|(_, after)| after),
                };
                if let Some(kernel) = self.compute.method(&mut at, address, value)? {
                    let length = engine::length(&kernel.parameters);
                    if length == 0 && self.kernels.is_empty() {
                        kernel.complete(memory, clock::now())?;
                    } else {
                        // One without a length waits for those before it.
                        outcome.working.push(length.max(1));
                        self.kernels.push_back((kernel.clone(), Vec::new()));
                    }
                    outcome.launches.push(kernel);
                }
            }
            _ => {}
        }
        Ok(Progress::Done)
    }

    /// The class of a subchannel's engine.
    fn class(&self, subchannel: u8) -> u32 {
        match self.objects[subchannel as usize & 7] {
            0 if subchannel == COPY_SUBCHANNEL => COPY_CLASS,
            class => class,
        }
    }

    fn host_method(
        &mut self,
        memory: &mut Memory,
        space: AddressSpace,
        method: Method,
        outcome: &mut Outcome,
    ) -> Result<Progress, MmuFault> {
        let value = method.value;
        match method.address {
            method::SET_OBJECT => self.objects[method.subchannel as usize & 7] = value & 0xffff,
            method::NON_STALL_INTERRUPT => match self.kernels.back_mut() {
                Some((_, after)) => after.push(Deferred::Interrupt),
                None => outcome.non_stall = true,
            },
            method::SEM_EXECUTE => {
                let host = |address| self.value(0, address);
                let semaphore = Semaphore::of_host(
                    [host(method::SEM_ADDR_LO), host(method::SEM_ADDR_HI)],
                    [host(method::SEM_PAYLOAD_LO), host(method::SEM_PAYLOAD_HI)],
                    value,
                );
                match (semaphore, self.kernels.back_mut()) {
                    (Some(semaphore), Some((_, after))) if semaphore.releases() => {
                        after.push(Deferred::Semaphore(semaphore));
                    }
                    (Some(semaphore), _) => {
                        return semaphore.execute(memory, space, clock::now());
                    }
                    (None, _) => {}
                }
            }
            _ => {
                self.state.insert((0, method.address), value);
            }
        }
        Ok(Progress::Done)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{host::methods::incrementing, mmu::tests::Tables};

    const RING: u64 = 0x1000;
    const PUSH: u64 = 0x2000;
    const SEMAPHORE: u64 = 0x3000;

    fn bench() -> (Memory, AddressSpace, Channel) {
        let mut memory = Memory::new(1 << 30);
        let mut tables = Tables::new(1 << 20);
        for page in 0..16 {
            tables.map(&mut memory, page << 12, 12, (0x200 + page) << 12);
        }
        let setup = ChannelSetup {
            id: ChannelId {
                runlist: 0,
                number: 3,
            },
            ring: RING,
            entries: 8,
            userd: Place::video(0x30_0000),
            notifier: None,
        };
        (
            memory,
            AddressSpace { root: tables.root },
            Channel::new(setup),
        )
    }

    fn push(memory: &mut Memory, space: AddressSpace, entry: u64, at: u64, words: &[u32]) {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        space.write(memory, at, &bytes).expect("is mapped");
        let value = at | (words.len() as u64) << 42;
        space
            .write(memory, RING + 8 * entry, &value.to_le_bytes())
            .expect("is mapped");
        let put = (entry + 1) as u32 % 8;
        memory
            .write32(Place::video(0x30_0000 + USERD_GP_PUT), put)
            .expect("is memory");
    }

    fn semaphore(execute: u32, payload: u32) -> Vec<u32> {
        let address = SEMAPHORE as u32;
        vec![incrementing(0, 0x5c, 5), address, 0, payload, 0, execute]
    }

    #[test]
    fn ring_is_run_to_its_end() {
        let (mut memory, space, mut channel) = bench();
        push(&mut memory, space, 0, PUSH, &semaphore(1, 77));
        let mut outcome = Outcome::default();
        assert_eq!(channel.run(&mut memory, space, &mut outcome), Ok(()));
        let place = space.place(&memory, SEMAPHORE).expect("is mapped");
        assert_eq!(memory.read32(place), Ok(77));
        assert_eq!(memory.read32(Place::video(0x30_0000 + USERD_GP_GET)), Ok(1));
        assert_eq!(outcome.methods, 5);
    }

    #[test]
    fn acquire_holds_the_channel_until_its_value() {
        let (mut memory, space, mut channel) = bench();
        let mut words = semaphore(0, 5);
        words.extend(semaphore(1, 6));
        push(&mut memory, space, 0, PUSH, &words);
        let mut outcome = Outcome::default();
        assert_eq!(
            channel.run(&mut memory, space, &mut outcome),
            Err(Stop::Blocked)
        );
        assert_eq!(
            channel.run(&mut memory, space, &mut outcome),
            Err(Stop::Blocked)
        );
        let place = space.place(&memory, SEMAPHORE).expect("is mapped");
        memory.write32(place, 5).expect("is memory");
        assert_eq!(channel.run(&mut memory, space, &mut outcome), Ok(()));
        assert_eq!(memory.read32(place), Ok(6));
    }

    #[test]
    fn copy_engine_needs_no_object_on_its_subchannel() {
        let (mut memory, space, mut channel) = bench();
        space
            .write(&mut memory, 0x4000, b"copied")
            .expect("is mapped");
        let words = [
            incrementing(4, 0x400, 4),
            0,
            0x4000,
            0,
            0x5000,
            incrementing(4, 0x418, 1),
            6,
            incrementing(4, 0x300, 1),
            2 | 2 << 5,
        ];
        push(&mut memory, space, 0, PUSH, &words);
        let mut outcome = Outcome::default();
        assert_eq!(channel.run(&mut memory, space, &mut outcome), Ok(()));
        let mut back = [0; 6];
        space
            .read(&mut memory, 0x5000, &mut back)
            .expect("is mapped");
        assert_eq!((&back, outcome.non_stall), (b"copied", true));
    }

    #[test]
    fn fault_is_reported_with_its_address() {
        let (mut memory, space, mut channel) = bench();
        push(&mut memory, space, 0, PUSH, &semaphore(1, 1));
        space
            .write(&mut memory, PUSH + 4, &0x80_0000_u32.to_le_bytes())
            .expect("is mapped");
        let stop = channel.run(&mut memory, space, &mut Outcome::default());
        let wanted = MmuFault::Unmapped {
            address: 0x80_0000,
            level: 12,
        };
        assert_eq!(stop, Err(Stop::Fault(wanted)));
    }
}
