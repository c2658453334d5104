// SPDX-License-Identifier: GPL-2.0
//! Who may use the GPU now: the scheduler of one GPU, as a state machine.
//!
//! It knows no clock, no lock and no driver. What happens is told by [`Scheduler::event`] and by the
//! operator's methods, each with the time; what is to be done is asked for by [`Scheduler::next`], one
//! action at a time; when to come back though nothing happens is [`Scheduler::deadline`]. A caller goes
//! round like this, on one thread for each GPU (the events may come from others, under the same lock):
//!
//! ```text
//! lock: match scheduler.next(now)
//!     Some(action) => copy scheduler.switched(); unlock; perform; lock; event(Answer)
//!     None         => unlock; sleep until woken or deadline(); event(Tick)
//! ```
//!
//! # How time is shared
//!
//! * Nobody has work, or one instance that is under no cap: everybody's channels are on, the one's doorbell
//!   is open for good, the doorbells of the others are armed. No timer.
//! * Several have work, or somebody is capped: **windows**. One instance at a time has its channels on, all
//!   others that have work are switched off, which preempts them. Turn by turn each gets its part of the
//!   turn. It holds for kernels of every length and for programs that wait for each kernel.
//! * **Slices** in proportion, with everybody's channels on, where all that compete keep their queues full of short kernels:
//!   no call, and a change costs a fifth. Whether each has its part is told by the doorbells (`slices.rs`).
//! * Where channels cannot be switched, the driver shares the GPU as it likes, and doorbells only stop a
//!   suspended instance.
//!
//! # Who has work
//!
//! The driver does not say when a channel runs dry. What can be seen is the doorbell: while it is not
//! mapped, the next launch is an event. So the doorbell of an instance is armed when its window begins, and
//! every few milliseconds in it. From the gaps between launches (in time that the instance had the
//! GPU) it is learnt how long its kernels are, but for the time that the doorbell was open. One that stays silent for more
//! than twice the longest recent gap, or that and a time so long, may have no work, or a kernel of unusual length. So it gives way and is switched off, and the gap that is
//! allowed doubles: if it launches while it is off, it was thinking, and its silence is believed from then on; one
//! of more than a tenth of a second is believed of anybody. Who is taken to have no work keeps its channels on, so that a kernel
//! goes on beside whoever has the window then; the driver's samples tell of it, if there are any.
//!
//! # Wishes and facts
//!
//! Planning sets what each instance should have: channels on or off, gate, slice. [`Scheduler::next`]
//! compares that with what was done, and names the next call. So a channel that appears in the middle of
//! another's window, a call that fails and an operator who changes his mind are all one case. Calls are
//! limited to [`limit::CALLS_PER_SECOND`].

mod account;
mod authority;
mod fleet;
mod limit;
mod next;
mod parts;
mod rules;
mod samples;
mod slices;
mod windows;
mod wishes;

#[cfg(test)]
mod tests;

pub use account::{GpuView, InstanceView, Mode};
pub use authority::{
    Action, Authority, CallError, Capabilities, Engine, Gate, InstanceId, Nanos, RmName, MS,
    SWITCH_MAX, US,
};
pub use limit::CALLS_PER_SECOND;
pub use rules::{Misfit, Period, Policy, Rules, Terms, WHOLE};
pub use samples::Sample;

use super::ProcessId;
use crate::store::{Exhausted, List};
use fleet::{Fleet, Instance};
use limit::Limit;
use next::Pending;
use slices::Slices;
use windows::Turn;

/// What calls cost and when they take effect, in nanoseconds. The figures were measured on one H200 with
/// driver 580.159.04, under load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Costs {
    /// From the beginning of a call that switches channels off to the moment they are off the GPU.
    pub disabled_after: Nanos,
    /// From that moment to the end of the call, at most.
    pub disabled_rest: Nanos,
    /// From the beginning of a call that switches channels on to the moment they may run.
    pub enabled_after: Nanos,
    /// From that moment to the end of the call, at most.
    pub enabled_rest: Nanos,
    /// A change of the running channel group.
    pub switch: Nanos,
    /// The same after the channels of the one that ran were switched off, by which its context was saved: in windows of 3.4 to
    /// 29 ms programs did as much as in the time from the call that switches them on to the one that switches them
    /// off, less 0.03 to 0.09 ms (docs/measurements/2026-11-22-weights.md).
    pub switch_saved: Nanos,
    /// The shortest window that is worth its calls (0.43 to 0.70 ms to switch off, 0.26 to 0.32 ms on).
    pub shortest_window: Nanos,
    /// The shortest window that is begun; a part that is smaller waits for a later turn.
    pub least_window: Nanos,
}

impl Costs {
    /// As measured.
    pub const MEASURED: Self = Self {
        disabled_after: 200 * US,
        disabled_rest: 500 * US,
        enabled_after: 200 * US,
        enabled_rest: 240 * US,
        switch: 180 * US,
        switch_saved: 60 * US,
        shortest_window: 3 * MS,
        least_window: 1200 * US,
    };
}

/// Something that happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// An instance has a new channel, in this group (its own name where it has no group). A channel that
    /// the driver has just made is on.
    Channel {
        /// Whose.
        instance: InstanceId,
        /// The group that it is in.
        group: RmName,
        /// Its name.
        channel: RmName,
        /// What it runs on.
        engine: Engine,
        /// Whose the driver takes it to be, in its samples.
        process: ProcessId,
    },
    /// A group (with all its channels) or a channel was freed.
    Freed(RmName),
    /// A client was freed or its file closed, with all that it had.
    ClientFreed(crate::nvidia::handle::ClientHandle),
    /// A program of the instance touched its doorbell while the gate was not open. It went on if the gate
    /// was armed (which is open now), and sleeps if it was shut.
    Rang(InstanceId),
    /// The action that [`Scheduler::next`] named last was tried.
    Answer {
        /// When the call was begun.
        began: Nanos,
        /// What became of it.
        result: Result<(), CallError>,
    },
    /// Time has passed.
    Tick,
}

/// Why the scheduler refuses what the operator wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// The policy cannot give what would be promised.
    Misfit(Misfit),
    /// There is no such instance.
    NoSuchInstance,
    /// No memory was left.
    Exhausted,
}

impl From<Exhausted> for Refused {
    fn from(_: Exhausted) -> Self {
        Self::Exhausted
    }
}

impl From<Misfit> for Refused {
    fn from(misfit: Misfit) -> Self {
        Self::Misfit(misfit)
    }
}

/// The scheduler of one GPU.
#[derive(Debug)]
pub struct Scheduler {
    capabilities: Capabilities,
    costs: Costs,
    rules: Rules,
    fleet: Fleet,
    turn: Turn,
    slices: Slices,
    mode: Mode,
    /// When `mode` began, or was last charged to who had the GPU.
    charged_until: Nanos,
    /// The action that is being tried.
    pending: Option<Pending>,
    /// The channels of the last [`Action::Switch`].
    switched: List<RmName>,
    limit: Limit,
    /// A call is due and has to wait for the limit.
    held_back: bool,
    deadline: Option<Nanos>,
    /// Samples are wanted until then: somebody was taken to have no work, and may have a long kernel.
    doubt_until: Nanos,
    /// Turns are of uneven length until then, so that samples find everybody.
    uneven_until: Nanos,
    next_sample: Nanos,
    /// The moment of the last sample that was told, by the driver's clock.
    sampled_until: Nanos,
}

impl Scheduler {
    /// A scheduler without instances.
    pub fn new(capabilities: Capabilities, costs: Costs, rules: Rules) -> Result<Self, Exhausted> {
        let mut switched = List::new();
        switched.reserve(SWITCH_MAX)?;
        Ok(Self {
            capabilities,
            costs,
            rules,
            fleet: Fleet::new(),
            turn: Turn::new(),
            slices: Slices::new(),
            mode: Mode::Free,
            charged_until: 0,
            pending: None,
            switched,
            limit: Limit::new(),
            held_back: false,
            deadline: None,
            doubt_until: 0,
            uneven_until: 0,
            next_sample: 0,
            sampled_until: 0,
        })
    }

    /// What works here; less than at the beginning where the driver refused a call for good.
    pub fn capabilities(&self) -> Capabilities {
        self.capabilities
    }

    /// Changes what works here: a backend was found, or went away.
    pub fn set_capabilities(&mut self, now: Nanos, capabilities: Capabilities) {
        self.capabilities = capabilities;
        self.replan(now);
    }

    /// The operator's rules.
    pub fn rules(&self) -> Rules {
        self.rules
    }

    /// Changes the rules of the GPU.
    pub fn set_rules(&mut self, now: Nanos, rules: Rules) -> Result<(), Refused> {
        rules.admit(self.fleet.instances().map(|i| i.terms.weight))?;
        self.charge(now);
        if self.rules.policy == Policy::Native {
            self.presume();
        }
        self.rules = rules;
        self.replan(now);
        Ok(())
    }

    /// Adds an instance, which has no channels yet.
    pub fn add(&mut self, now: Nanos, id: InstanceId, terms: Terms) -> Result<(), Refused> {
        let others = self.fleet.instances().map(|i| i.terms.weight);
        self.rules
            .admit(others.chain(core::iter::once(terms.weight)))?;
        self.fleet.add(Instance::new(id, terms))?;
        self.replan(now);
        Ok(())
    }

    /// Removes an instance and all that is known of its channels. Its gate is of no meaning any more: the
    /// caller lets go whoever sleeps at it.
    pub fn remove(&mut self, now: Nanos, id: InstanceId) {
        self.fleet.remove(id);
        self.turn.forget(id);
        self.forgive_slices(now);
        self.replan(now);
    }

    /// Changes the terms of an instance.
    pub fn set_terms(&mut self, now: Nanos, id: InstanceId, terms: Terms) -> Result<(), Refused> {
        let weights = self.fleet.instances().map(|i| {
            if i.id == id {
                terms.weight
            } else {
                i.terms.weight
            }
        });
        self.rules.admit(weights)?;
        // By the terms until now: who is resumed had nothing while it was suspended.
        self.charge(now);
        let instance = self.fleet.find_mut(id).ok_or(Refused::NoSuchInstance)?;
        instance.terms = terms;
        self.replan(now);
        Ok(())
    }

    /// Something happened. Fails only where a new channel cannot be noted.
    pub fn event(&mut self, now: Nanos, event: Event) -> Result<(), Exhausted> {
        match event {
            Event::Channel {
                instance,
                group,
                channel,
                engine,
                process,
            } => self
                .fleet
                .add_channel(instance, group, channel, engine, process)?,
            Event::Freed(name) => self.fleet.free(name),
            Event::ClientFreed(client) => self.fleet.free_client(client),
            Event::Rang(id) => self.rang(now, id),
            Event::Answer { began, result } => self.answered(now, began, result),
            Event::Tick => {}
        }
        Ok(())
    }

    /// When [`Scheduler::next`] is to be asked again although nothing happened; `None`: never.
    pub fn deadline(&self) -> Option<Nanos> {
        self.deadline
    }

    /// The channels of the [`Action::Switch`] that was named last.
    pub fn switched(&self) -> &[RmName] {
        &self.switched
    }
}
