// SPDX-License-Identifier: GPL-2.0
//! A turn for one task of the whole host, which a task that gets no processor loses.
//!
//! The task that has the [`SharedTurn`] may be starved by its owner: of idle priority, behind busy
//! threads of its own. So the turn is no lock. A waiting task takes it from one that has had it for
//! [`PATIENCE_NS`] and is ready to run but does not run, or has had it for [`LONGEST_NS`]. A task
//! that has lost its turn learns it at the end ([`OwnSharedTurn::is_kept`]). What it did meanwhile
//! must count for nothing.
//!
//! Turns go in the order of asking. For turns among tenants the caller lets one task of each tenant
//! ask at a time.

use super::{clock::now, extra, wait::Completion};
use core::ptr::NonNull;
use kernel::{
    bindings, impl_list_arc_safe, impl_list_item,
    list::{List, ListArc, ListLinks},
    new_spinlock,
    prelude::*,
    sync::{
        atomic::{Atomic, Relaxed},
        Arc, SpinLock,
    },
};

/// How long a task that does not run keeps the turn, nanoseconds.
const PATIENCE_NS: u64 = 4_000_000;
/// How long a task keeps the turn at most while others wait, nanoseconds: the driver's calls can
/// take long while it initializes a GPU.
const LONGEST_NS: u64 = 50_000_000;
/// How often a task that waits looks, milliseconds.
const LOOK_MS: u32 = 2;

/// A lock that one task has at a time.
#[pin_data]
pub struct SharedTurn {
    #[pin]
    state: SpinLock<TurnState>,
}

struct TurnState {
    holder: Option<TurnHolder>,
    /// Numbers turns; never used twice.
    next: u64,
    waiting: List<Waiter>,
}

/// The holder of the turn. Its task is in a call: it gives the turn back before it leaves, or has
/// lost it. So the task is valid while it stands here.
struct TurnHolder {
    number: u64,
    since: u64,
    task: TurnTask,
}

#[derive(Clone, Copy)]
struct TurnTask(NonNull<bindings::task_struct>);

// SAFETY: The task is only looked at through the pointer, under the turn's lock.
unsafe impl Send for TurnTask {}
// SAFETY: Whoever looks through a shared reference holds the turn's lock, too.
unsafe impl Sync for TurnTask {}

#[pin_data]
struct Waiter {
    task: TurnTask,
    /// Its turn's number, before it is told that it has it.
    number: Atomic<u64>,
    #[pin]
    granted: Completion,
    #[pin]
    links: ListLinks,
}

impl_list_arc_safe! {
    impl ListArcSafe<0> for Waiter { untracked; }
}
impl_list_item! {
    impl ListItem<0> for Waiter { using ListLinks { self.links }; }
}

/// It is the turn of the task that has this, as far as it knows.
pub struct OwnSharedTurn<'a> {
    turn: &'a SharedTurn,
    number: u64,
}

impl TurnState {
    /// Gives the turn to a task; its number.
    fn give(&mut self, task: TurnTask) -> u64 {
        let number = self.next;
        self.next = number.wrapping_add(1);
        self.holder = Some(TurnHolder {
            number,
            since: now(),
            task,
        });
        number
    }

    /// Whether nobody has the turn who is to be waited for.
    fn is_free(&self) -> bool {
        let Some(holder) = &self.holder else {
            return true;
        };
        let held = now().saturating_sub(holder.since);
        // SAFETY: While it stands here the task is valid.
        let starves = || unsafe { extra::cgpu_shim_is_kept_waiting(holder.task.0.as_ptr()) };
        held >= LONGEST_NS || held >= PATIENCE_NS && starves()
    }
}

impl SharedTurn {
    /// Nobody's turn.
    ///
    /// # Errors
    ///
    /// No memory.
    pub fn new() -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                state <- new_spinlock!(TurnState {
                    holder: None,
                    next: 0,
                    waiting: List::new(),
                }),
            }),
            GFP_KERNEL,
        )
    }

    /// Waits for the calling task's turn.
    ///
    /// # Errors
    ///
    /// `ERESTARTSYS`: the calling task was killed while it waited. `ENOMEM`.
    pub fn take(&self) -> Result<OwnSharedTurn<'_>> {
        // SAFETY: The current task is valid.
        let task = NonNull::new(unsafe { bindings::get_current() }).ok_or(EINVAL)?;
        let task = TurnTask(task);
        let own = |number| OwnSharedTurn { turn: self, number };
        // Before the lock, under which nothing is allocated.
        let waiter = ListArc::pin_init(
            try_pin_init!(Waiter {
                task,
                number: Atomic::new(0),
                granted <- Completion::new(),
                links <- ListLinks::new(),
            }),
            GFP_KERNEL_ACCOUNT,
        )?;
        let asked = waiter.clone_arc();
        let mut state = self.state.lock();
        if state.holder.is_none() {
            let number = state.give(task);
            drop(state);
            return Ok(own(number));
        }
        state.waiting.push_back(waiter);
        drop(state);
        loop {
            let granted = asked.granted.wait_killable_for(LOOK_MS);
            if granted == Ok(true) {
                return Ok(own(asked.number.load(Relaxed)));
            }
            let mut state = self.state.lock();
            let takes = granted.is_ok() && state.is_free();
            if !takes && granted.is_ok() {
                continue;
            }
            // SAFETY: A waiter is put into the list of its turn only.
            let waited = unsafe { state.waiting.remove(&asked) };
            match (granted, waited.is_some()) {
                (Ok(_), true) => {
                    let number = state.give(task);
                    drop(state);
                    drop(waited);
                    return Ok(own(number));
                }
                // It was granted this very moment.
                (Ok(_), false) => {}
                (Err(killed), was_waiting) => {
                    drop(state);
                    drop(waited);
                    if !was_waiting {
                        drop(own(asked.number.load(Relaxed)));
                    }
                    return Err(killed);
                }
            }
        }
    }
}

impl OwnSharedTurn<'_> {
    /// Whether nobody else has had the turn since it was taken.
    pub fn is_kept(&self) -> bool {
        let state = self.turn.state.lock();
        state.holder.as_ref().map(|holder| holder.number) == Some(self.number)
    }
}

impl Drop for OwnSharedTurn<'_> {
    fn drop(&mut self) {
        let mut state = self.turn.state.lock();
        if state.holder.as_ref().map(|holder| holder.number) != Some(self.number) {
            return;
        }
        state.holder = None;
        let Some(next) = state.waiting.pop_front() else {
            return;
        };
        // Also to one that does not run: then those behind it take it.
        let number = state.give(next.task);
        next.number.store(number, Relaxed);
        drop(state);
        next.granted.complete();
    }
}
