// SPDX-License-Identifier: GPL-2.0
//! Messages between the scheduler and the programs of an instance, in their shared memory.
//!
//! The scheduler ([`cgpu_km::policy::sched`], the module's own) runs in the tool that started the
//! instances. The programs tell it of their channels and of the doorbells that they touch
//! ([`Compute::tell`], [`Compute::ring`]); it asks them, one agent thread in each, to make the
//! driver's calls on their own clients, since the kernel's interface cannot be reached from user
//! space.

use std::{
    cell::UnsafeCell,
    sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering},
    time::{Duration, Instant},
};

use cgpu_km::nvidia::samples::SAMPLES;

use crate::{arena::Lock, sys};

/// Most GPUs of an instance.
pub const GPUS: usize = 16;
/// Most agents of an instance: two for each process that has channels.
pub const AGENTS: usize = 128;
/// News that wait to be heard.
const NEWS: usize = 4096;
/// Channels of one request.
pub const CHANNELS: usize = 64;
/// How long an agent may take. The driver's calls take less than a millisecond.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long the doorbells may take: page rights wait for the process's lock on its mappings, which
/// a thread of it can hold in the driver until work on the GPU has ended.
const GATE_PATIENCE: Duration = Duration::from_millis(50);

/// [`Compute::gate`]: the doorbells are mapped.
pub const OPEN: u32 = 0;
/// The doorbells are not mapped; the first touch opens the gate.
pub const ARMED: u32 = 1;
/// The doorbells are not mapped; who touches one waits.
pub const SHUT: u32 = 2;

/// A client's and an object's handle.
pub type Name = [u32; 2];

/// A sample of the driver's: when it was taken, 0 if there is none, and the process that was on the
/// compute engine, 0 if none was.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Seen {
    /// By the driver's clock.
    pub stamp: u64,
    /// The process.
    pub process: i32,
}

/// Something that a program did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub enum News {
    /// A new channel in a group; whether it is for compute.
    Channel {
        /// The group, or the channel itself.
        group: Name,
        /// The channel.
        channel: Name,
        /// Of the engine for graphics and compute.
        compute: bool,
        /// Index of the agent of its process.
        agent: u32,
    },
    /// An object was freed.
    Freed(Name),
    /// A client was freed.
    ClientFreed(u32),
}

/// A request to an agent.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub enum Request {
    /// Switch channels off or on: the first so many of [`Agent`]'s names.
    Switch {
        /// Off.
        disable: bool,
        /// How many.
        count: u32,
    },
    /// Set a group's time slice: of the first name.
    Timeslice {
        /// Microseconds.
        microseconds: u32,
    },
    /// Preempt a group: the first name.
    Preempt,
    /// Make the doorbells be what the gate says.
    Gate,
    /// Read the driver's samples: [`Compute::samples`].
    Samples,
}

/// The duty of an agent. They are two threads, since what one waits for may need what the other
/// does: see [`GATE_PATIENCE`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Duty {
    /// Calls into the driver.
    Calls = 1,
    /// The doorbells.
    Gates = 2,
}

/// A thread that can be asked.
#[repr(C)]
pub struct Agent {
    process: AtomicI32,
    /// A [`Duty`]; 0 while it is not known yet.
    duty: AtomicU32,
    asked: AtomicU32,
    answered: AtomicU32,
    /// The result of the last request: a status; negative: an errno.
    result: AtomicI32,
    request: UnsafeCell<Request>,
    names: UnsafeCell<[Name; CHANNELS]>,
}

/// The part of an instance's shared memory that is about compute.
#[repr(C)]
pub struct Compute {
    /// Whether there is a scheduler. Without one the programs keep this to themselves.
    pub scheduled: AtomicU32,
    /// [`OPEN`], [`ARMED`] or [`SHUT`].
    pub gate: AtomicU32,
    /// How often a doorbell was touched while the gate was not open.
    pub rang: AtomicU32,
    /// Nanoseconds that threads waited at doorbells.
    pub blocked_ns: AtomicU64,
    /// The boost of each GPU in the accounting, by its place among the instance's
    /// ([`cgpu_km::policy::Boost::number`]).
    pub boosts: [AtomicU32; GPUS],
    lock: Lock,
    heard: UnsafeCell<u64>,
    told: UnsafeCell<u64>,
    news: UnsafeCell<[News; NEWS]>,
    agents: [Agent; AGENTS],
    ring: UnsafeCell<[Seen; SAMPLES]>,
}

// SAFETY: Fields that are not atomic are written under `lock`, or by the one side whose turn it is.
// The scheduler writes an agent's request before it raises `asked`, and the agent reads it after.
// The one agent that was asked for the ring writes it before it answers.
unsafe impl Sync for Compute {}

impl Compute {
    /// Tells the scheduler something.
    pub fn tell(&self, what: News) {
        self.lock.take();
        // SAFETY: The lock is ours. CAST: a remainder of 4096.
        unsafe {
            let at = *self.told.get();
            (*self.news.get())[(at % NEWS as u64) as usize] = what;
            *self.told.get() = at + 1;
        }
        self.lock.give_back();
    }

    /// Takes the oldest news that were not heard yet.
    pub fn hear(&self) -> Option<News> {
        self.lock.take();
        // SAFETY: The lock is ours. CAST: a remainder of 4096.
        let what = unsafe {
            let at = *self.heard.get();
            (at < *self.told.get()).then(|| {
                *self.heard.get() = at + 1;
                (*self.news.get())[(at % NEWS as u64) as usize]
            })
        };
        self.lock.give_back();
        what
    }

    /// A doorbell was touched while the gate was not open: waits for as long as it is shut. The
    /// caller may be a signal handler.
    pub fn ring(&self) {
        let began = Instant::now();
        let mut told = false;
        loop {
            let gate = self.gate.load(Ordering::Acquire);
            match gate {
                OPEN => break,
                ARMED => {
                    let armed = self.gate.compare_exchange(
                        ARMED,
                        OPEN,
                        Ordering::AcqRel,
                        Ordering::Relaxed,
                    );
                    if armed.is_ok() {
                        self.rang.fetch_add(1, Ordering::AcqRel);
                        break;
                    }
                }
                _ => {
                    if !told {
                        self.rang.fetch_add(1, Ordering::AcqRel);
                        told = true;
                    }
                    sys::sleep_while(&self.gate, gate, PATIENCE);
                }
            }
        }
        if told {
            // CAST: a wait takes less than centuries.
            let waited = began.elapsed().as_nanos() as u64;
            self.blocked_ns.fetch_add(waited, Ordering::Relaxed);
        }
    }

    /// Sets the gate and wakes the threads that wait at it.
    pub fn set_gate(&self, gate: u32) {
        self.gate.store(gate, Ordering::Release);
        if gate != SHUT {
            sys::wake(&self.gate);
        }
    }

    /// Makes the calling process one that can be asked; the agent's index.
    pub fn attend(&self, duty: Duty) -> Option<usize> {
        let me = sys::process();
        let mut agents = self.agents.iter();
        let index = agents.position(|agent| {
            let before = agent.process.load(Ordering::Acquire);
            // Questions to an ended process do not pass to its successor.
            let free = before == 0 || sys::has_ended(before);
            free && agent
                .process
                .compare_exchange(before, me, Ordering::AcqRel, Ordering::Relaxed)
                .is_ok()
        })?;
        let agent = &self.agents[index];
        let asked = agent.asked.load(Ordering::Acquire);
        agent.answered.store(asked, Ordering::Release);
        // CAST: the number of the duty.
        self.agents[index]
            .duty
            .store(duty as u32, Ordering::Release);
        Some(index)
    }

    /// Serves the requests to an agent of this process, for good.
    pub fn serve(&self, index: usize, mut perform: impl FnMut(&Request, &[Name]) -> i32) -> ! {
        let agent = &self.agents[index];
        let mut served = agent.answered.load(Ordering::Relaxed);
        loop {
            let asked = agent.asked.load(Ordering::Acquire);
            if asked == served {
                sys::sleep_while(&agent.asked, asked, PATIENCE);
                continue;
            }
            // SAFETY: The scheduler writes before it raises `asked`, and waits for the answer.
            let result = unsafe { perform(&*agent.request.get(), &*agent.names.get()) };
            agent.result.store(result, Ordering::Relaxed);
            served = asked;
            agent.answered.store(served, Ordering::Release);
        }
    }

    /// Tells the driver's samples, as the agent that was asked for them.
    pub fn tell_samples(&self, samples: impl Iterator<Item = Seen>) {
        let mut ring = [Seen::default(); SAMPLES];
        for (place, sample) in ring.iter_mut().zip(samples) {
            *place = sample;
        }
        // SAFETY: One agent is asked for them at a time, and who asks reads after its answer.
        unsafe { *self.ring.get() = ring }
    }

    /// The samples that the agent told that was asked for them, and has answered.
    pub fn samples(&self) -> Vec<Seen> {
        // SAFETY: No agent writes them after its answer, until it is asked again.
        let ring = unsafe { *self.ring.get() };
        ring.into_iter().filter(|seen| seen.stamp != 0).collect()
    }

    /// Asks an agent; [`Compute::answer`] tells what became of it.
    pub fn ask(&self, index: usize, request: Request, names: &[Name]) {
        let agent = &self.agents[index];
        // SAFETY: One thread asks, and it waits for each answer before it asks again.
        unsafe {
            *agent.request.get() = request;
            (&mut *agent.names.get())[..names.len()].copy_from_slice(names);
        }
        agent.asked.fetch_add(1, Ordering::AcqRel);
        sys::wake(&agent.asked);
    }

    /// Waits for the answer to the last request: a status; `None` where the process is gone or does
    /// not answer.
    pub fn answer(&self, index: usize) -> Option<i32> {
        self.answer_within(index, PATIENCE)
    }

    /// Whether the process of an agent has ended.
    pub fn has_ended(&self, index: usize) -> bool {
        sys::has_ended(self.agents[index].process.load(Ordering::Relaxed))
    }

    fn answer_within(&self, index: usize, patience: Duration) -> Option<i32> {
        let agent = &self.agents[index];
        let began = Instant::now();
        let mut looks = 0u32;
        while agent.answered.load(Ordering::Acquire) != agent.asked.load(Ordering::Relaxed) {
            // To find out that a process is a zombie takes longer, so it is looked at rarely.
            looks = looks.wrapping_add(1);
            let gone = looks % 1024 == 0 && sys::has_ended(agent.process.load(Ordering::Relaxed));
            if gone || began.elapsed() > patience {
                return None;
            }
            sys::give_way();
        }
        Some(agent.result.load(Ordering::Relaxed))
    }

    /// Makes the doorbells of all processes be what the gate says. `false`: those of one are not
    /// yet.
    pub fn move_gates(&self) -> bool {
        let agents: Vec<_> = self.agents(Duty::Gates).collect();
        for agent in &agents {
            self.ask(*agent, Request::Gate, &[]);
        }
        let mut all = true;
        for agent in agents {
            let moved = self.answer_within(agent, GATE_PATIENCE).is_some();
            // One that has ended has no doorbell any more.
            all &= moved || sys::has_ended(self.agents[agent].process.load(Ordering::Relaxed));
        }
        all
    }

    /// Whether a process is one of the agents'.
    pub fn has(&self, process: i32) -> bool {
        let mut agents = self.agents.iter();
        process != 0 && agents.any(|agent| agent.process.load(Ordering::Relaxed) == process)
    }

    /// The agents for something whose processes exist.
    pub fn agents(&self, duty: Duty) -> impl Iterator<Item = usize> + '_ {
        (0..AGENTS).filter(move |index| {
            let agent = &self.agents[*index];
            // CAST: the number of the duty.
            let fits = agent.duty.load(Ordering::Acquire) == duty as u32;
            fits && sys::exists(agent.process.load(Ordering::Acquire))
        })
    }
}
