// SPDX-License-Identifier: GPL-2.0
//! Which instance may use the GPU now: the scheduler of one GPU, as a state machine.
//!
//! It knows no clock, no lock and no driver. [`Scheduler::event`] and the operator's methods tell
//! it what happens, each with the time. [`Scheduler::next`] says what is to be done, one action at
//! a time. [`Scheduler::deadline`] says when to come back though nothing happens. A caller goes
//! round like this, on one thread for each GPU (the events may come from others, under the same
//! lock):
//!
//! ```text
//! lock: match scheduler.next(now)
//!     Some(action) => copy scheduler.switched(); unlock; perform; lock; event(Answer)
//!     None         => unlock; sleep until woken or deadline(); event(Tick)
//! ```
//!
//! # How time is shared
//!
//! * **Native**, by policy or because channels cannot be switched: nothing is done. Only a
//!   suspended instance is held back, by its doorbells.
//! * **Free**, while no instance has work, or one that is under no cap: all channels are on, the
//!   doorbell of that one is open for good, the others are armed. No timer.
//! * **Windows**, while several have work or one is capped: one instance at a time has its channels
//!   on. All others that have work are switched off, which preempts them (`windows.rs`).
//! * **Slices**, if all that compete keep their queues full of short kernels: all channels are on,
//!   and the hardware goes round in proportion (`slices.rs`).
//!
//! Windows hold for kernels of every length and for programs that wait for each kernel. Slices cost
//! no call, and a change costs a fifth; the doorbells tell whether each instance has its part.
//!
//! # The states of a turn
//!
//! ```text
//!               an instance is owed a window              its calls were made
//!    Nobody  ------------------------------->  Due  ------------------------->  Open
//!      ^      (a turn without one: the next      |  it does not compete any       |
//!      |       begins, or slices, or a cap's     |  more, or the plan changed     |
//!      |       pause)                            v                                |
//!      +<----------------------------------------+<-------------------------------+
//!                 its time is over; it was silent for too long; high priority
//!                 waits; it does not compete any more; the plan changed
//!
//!    slices:  Off  ---->  Prepared  ---->  On, one channel group on  ---->  On, all open
//!              ^   all are    |   so at the   |   that one has the GPU         |
//!              |   ready      |   next turn   |                                |
//!              +<-------------+<--------------+<-------------------------------+
//!                    one is not ready, lacks its part, or the plan changed
//! ```
//!
//! # Which instances have work
//!
//! The driver does not say when a channel runs dry. The doorbell can be seen: while it is
//! not mapped, the next launch is an event. So the doorbell of an instance is armed when its window
//! begins, and every few milliseconds in it. The gaps between launches (in time that the instance
//! had the GPU) tell how long its kernels are, but for the time that the doorbell was open. An
//! instance that stays silent for more than twice its longest recent gap may have no work, or a
//! kernel of unusual length. So it gives way and is switched off, and the gap that is allowed
//! doubles. If it launches while it is off, it was thinking, and its silence is believed from then
//! on. A silence of more than a tenth of a second is always believed. An instance that is taken to
//! have no work keeps its channels on, so that a kernel goes on beside whatever has the window
//! then. The driver's samples tell of it, if there are any (`habits.rs`, `samples.rs`).
//!
//! # Wishes and facts
//!
//! Planning sets what each instance should have: channels on or off, gate, slice (`plan.rs`).
//! [`Scheduler::next`] compares that with what was done, and names the next call (`calls.rs`,
//! `answers.rs`). So a channel that appears in the middle of another's window, a call that fails
//! and a rule that the operator changes are all one case. Calls are limited to
//! [`CALLS_PER_SECOND`].

mod answers;
mod authority;
mod balance;
mod budget;
mod bursts;
mod calls;
mod charging;
mod costs;
mod door;
mod doubt;
mod fleet;
mod habits;
mod instance;
mod knocks;
mod lag;
mod limit;
mod parts;
mod plan;
mod retry;
mod rules;
mod samples;
mod scheduler;
mod slices;
mod stage;
mod time;
mod time_alone;
mod trials;
mod turn;
mod usage;
mod views;
mod windows;

#[cfg(test)]
mod tests;

pub use authority::{
    Action,
    Authority,
    CallError,
    Engine,
    InstanceId,
    Mechanisms,
    Position,
    RmName,
    SWITCH_MAX, //
};
pub use costs::Costs;
pub use fleet::{
    NewChannel,
    Room, //
};
pub use knocks::Knocks;
pub use limit::CALLS_PER_SECOND;
pub use rules::{
    Misfit,
    Rules,
    Terms,
    BURST_DEFAULT,
    WHOLE, //
};
pub use samples::Sample;
pub use scheduler::{
    ChangeRefused,
    Event,
    Scheduler, //
};
pub use time::{
    Nanos,
    MS,
    US, //
};
pub use views::{
    Account,
    GpuView,
    InstanceView, //
};

pub use crate::uapi::{
    Mode,
    Period,
    Policy, //
};
