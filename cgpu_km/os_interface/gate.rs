// SPDX-License-Identifier: GPL-2.0
//! Gates before a GPU's registers: the doorbell by which programs submit work.
//!
//! A mapping of registers gives access to its pages only while the [`Position`] of its instance's
//! gate allows it. Otherwise an access faults. If the gate is open or armed, the driver's own fault
//! handler puts the pages in (and wakes a sleeping GPU). If it is shut, the task sleeps until the
//! gate is opened. When the gate leaves `Open`, the pages are taken out of every mapping of every
//! process, children of fork included, through the files that are mapped (`unmap_mapping_range`).
//!
//! # No page stays behind
//!
//! While the driver puts pages in, it may sleep, allocate memory or lose the processor. A thread
//! that moves a gate must not wait for that. So the driver's pages give nobody access. They get
//! access under [`Gate::state`], in the same step in which the gate is seen to be open. A thread
//! that moves the gate afterwards finds them, because the mapping was entered before. If the gate
//! is no longer open, they are taken out again, and the access faults once more.
//!
//! # Tasks that sleep
//!
//! A task sleeps without `mmap_lock`, so other threads of its process map, unmap and fault as they
//! like. Even its own mapping may go. The task holds the file, which holds this module. After the
//! sleep it uses nothing else of the mapping: the kernel repeats the fault. Any signal ends the
//! sleep.
//!
//! Only a program's own instruction waits so. An access of the kernel, in a system call or as a
//! task exits, fails at once, and the call gives `EFAULT`. The task may hold a lock that the whole
//! host waits for: SIOCGIFCONF copies to the program under that of all network devices. No signal
//! would wake a task that exits. Programs ring doorbells by stores.
//!
//! # Locks
//!
//! [`Gate::state`] and the list of [files] are behind spinlocks, taken under `mmap_lock`. Entries
//! of page tables are changed under the first; each table has a lock of its own. An access is
//! reported to the scheduler without these spinlocks.

pub(super) mod doorbell;
mod files;

use super::base::{
    clock::now,
    file_ref::FileRef,
    vma::{
        LockedVma,
        PageFault, //
    },
    wait::Completion, //
};
use crate::policy::sched::{
    Knocks,
    Position, //
};
use core::{
    ops::ControlFlow,
    ptr::NonNull, //
};
use doorbell::Doorbell;
use files::{
    FileMappings,
    GatedFiles, //
};
use kernel::{
    bindings,
    new_spinlock,
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc,
        SpinLock, //
    }, //
};

/// How much of a mapping gets access under the lock at once, bytes: the entries of a page table.
const STEP: usize = 2 << 20;

/// The gate of one instance. One task moves it.
#[pin_data]
pub struct Gate {
    #[pin]
    state: SpinLock<GateState>,
    #[pin]
    files: GatedFiles,
    /// Tasks that sleep now.
    blocked: Atomic<u32>,
    /// How often a task went to sleep.
    times_blocked: Atomic<u64>,
    /// Whether it is shut and all pages are out.
    is_shut: Atomic<bool>,
}

struct GateState {
    position: Position,
    knocks: Knocks,
    /// The event that wakes tasks which come now. There is one exactly while the gate is shut.
    opened: Option<Arc<Completion>>,
}

/// The result of an access at a gate.
enum Touched {
    Passed,
    Wait(Arc<Completion>),
}

impl Gate {
    /// An open gate.
    pub fn new() -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                state <- new_spinlock!(GateState {
                    position: Position::Open,
                    knocks: Knocks::NONE,
                    opened: None,
                }),
                files <- GatedFiles::new(),
                blocked: Atomic::new(0),
                times_blocked: Atomic::new(0),
                is_shut: Atomic::new(false),
            }),
            GFP_KERNEL,
        )
    }

    /// Moves the gate. `ENOMEM` or `EAGAIN` where that cannot be done now, and nothing has changed.
    ///
    /// The kernel's lock of a file's mappings is a program's, and one that gives its own task no
    /// processor can hold it for long. So the gate is not moved while a task of the program would
    /// be waited for.
    pub fn set(&self, position: Position) -> Result {
        let shut = position == Position::Shut;
        let new = match position {
            Position::Shut => Some(Arc::pin_init(Completion::new(), GFP_KERNEL)?),
            Position::Open | Position::Armed => None,
        };
        let closes = position != Position::Open && self.if_open(|| {});
        if closes && !self.files.are_at_hand() {
            return Err(EAGAIN);
        }
        let mut state = self.state.lock();
        let was_open = state.position == Position::Open;
        state.position = position;
        state.knocks.moved();
        let old = match (shut, &state.opened) {
            (true, Some(_)) => None,
            _ => core::mem::replace(&mut state.opened, new),
        };
        drop(state);
        if let Some(opened) = old {
            opened.complete();
        }
        if was_open && position != Position::Open {
            self.files.clear();
        }
        self.is_shut.store(shut, Relaxed);
        Ok(())
    }

    /// Whether it was shut, and nobody passes any more. As good as the moment: it is moved by its
    /// GPU's scheduler, a moment after an instance is suspended, say.
    pub fn is_shut(&self) -> bool {
        self.is_shut.load(Relaxed)
    }

    /// Tasks that sleep at it now.
    pub fn blocked(&self) -> u32 {
        self.blocked.load(Relaxed)
    }

    /// How often a task went to sleep at it.
    pub fn times_blocked(&self) -> u64 {
        self.times_blocked.load(Relaxed)
    }

    /// Runs `step` if it is open, and lets nobody move it meanwhile. `step` does not sleep. Whether
    /// it is open.
    fn if_open(&self, step: impl FnOnce()) -> bool {
        let state = self.state.lock();
        let is_open = state.position == Position::Open;
        if is_open {
            step();
        }
        is_open
    }

    /// An access to registers whose page is not there. `rang` tells the scheduler of it; while the
    /// gate is shut, only if that is news.
    fn touch(&self, rang: impl Fn()) -> Touched {
        loop {
            let mut state = self.state.lock();
            let opened = match state.position {
                Position::Open => return Touched::Passed,
                Position::Armed => None,
                Position::Shut => state.opened.clone(),
            };
            let moves = state.knocks.moves();
            let is_news = opened.is_none() || state.knocks.is_news(now());
            drop(state);
            // Before anybody passes: what passes unheard of is not accounted for.
            if is_news {
                rang();
            }
            if let Some(opened) = opened {
                return Touched::Wait(opened);
            }
            let mut state = self.state.lock();
            if state.knocks.moves() == moves {
                state.position = Position::Open;
                return Touched::Passed;
            }
        }
    }

    /// Gives the access that the mapping's flags name to the pages that were put into it, if it is
    /// still open. Otherwise the caller takes them out.
    ///
    /// # Safety
    ///
    /// The mapping is one of page frames that was entered, and no processor remembers an entry of
    /// it to which nobody has access.
    pub(super) unsafe fn give_access(
        &self,
        vma: LockedVma<'_>,
        doorbell: Option<&Doorbell>,
    ) -> bool {
        let end = vma.end();
        let mut at = vma.start();
        while at < end {
            let next = at.saturating_add(STEP).min(end);
            let is_open = self.if_open(|| match doorbell {
                None => vma.give_access(at, next),
                Some(own) => vma.each_entry(at, next, |entry| {
                    if let Some(frame) = entry.frame() {
                        entry.set_frame(own.instead_of(frame));
                    }
                    ControlFlow::Continue(())
                }),
            });
            if !is_open {
                return false;
            }
            at = next;
        }
        true
    }
}

/// A file that may have mappings behind a gate.
pub(super) struct GatedFile {
    gate: Arc<Gate>,
    file: FileMappings,
    /// Mappings that are behind the gate. Changed under the lock of the list.
    mappings: Atomic<u64>,
}

impl GatedFile {
    /// A file that has no mappings yet.
    ///
    /// # Safety
    ///
    /// `file` is open, keeps its list of mappings, and [`GatedFile::close`] is called before it is
    /// closed.
    pub(super) unsafe fn new(gate: Arc<Gate>, file: NonNull<bindings::file>) -> Option<Self> {
        Some(Self {
            gate,
            // SAFETY: The file keeps its list of mappings while it is open.
            file: unsafe { FileMappings::of(file) }?,
            mappings: Atomic::new(0),
        })
    }

    /// Its gate.
    pub(super) fn gate(&self) -> &Arc<Gate> {
        &self.gate
    }

    /// It gets a mapping. The pages that this has are found from now on.
    pub(super) fn enter(&self) -> Result {
        self.gate.files.enter(self.file, &self.mappings)
    }

    /// One of its mappings, which is still there, was copied.
    pub(super) fn copied(&self) {
        self.gate.files.copied(&self.mappings);
    }

    /// One of its mappings is gone.
    pub(super) fn leave(&self) {
        self.gate.files.leave(self.file, &self.mappings);
    }

    /// It is going to be closed, and nothing of it is mapped any more.
    pub(super) fn close(&self) {
        self.gate.files.close(self.file);
    }
}

/// Serves a fault in a mapping of `file`, whose registers are behind its gate. `rang` reports an
/// access while the gate is not open, `pass` serves one that it lets pass.
///
/// # Safety
///
/// If this returns `VM_FAULT_RETRY`, neither the fault nor what its mapping holds is used any more.
pub(super) unsafe fn fault(
    file: &GatedFile,
    rang: impl Fn(),
    pass: impl FnOnce() -> bindings::vm_fault_t,
    fault: PageFault<'_>,
) -> bindings::vm_fault_t {
    // The kernel's own access may be made under any of its locks.
    let by_program = fault.has(bindings::fault_flag_FAULT_FLAG_USER);
    let opened = match file.gate().touch(rang) {
        Touched::Passed => {
            let served = pass();
            // While the host goes to sleep the driver serves no fault, and has it come again
            // (`nvidia_fault()`, nv-mmap.c). A program is frozen meanwhile. An access of the
            // kernel's would come again until the host wakes, and no signal would end it.
            let is_lost = served == bindings::vm_fault_reason_VM_FAULT_NOPAGE
                && !by_program
                && !fault.is_served();
            return if is_lost {
                bindings::vm_fault_reason_VM_FAULT_SIGBUS
            } else {
                served
            };
        }
        Touched::Wait(opened) => opened,
    };
    if !by_program || !fault.has(bindings::fault_flag_FAULT_FLAG_ALLOW_RETRY) {
        return bindings::vm_fault_reason_VM_FAULT_SIGBUS;
    }
    let gate = file.gate().clone();
    let held = NonNull::new(fault.file());
    // SAFETY: The mapping holds its file until the lock is released.
    let held = held.map(|file| unsafe { FileRef::get(file) });
    // SAFETY: The fault may be done anew, and nothing of it is used below. From here on the
    // mapping, `file` and its endpoint may go, but for what is held above.
    unsafe { fault.release_lock() };
    gate.blocked.fetch_add(1, Relaxed);
    gate.times_blocked.fetch_add(1, Relaxed);
    // However the wait ends, the kernel does the fault anew, after the signal if there is one.
    let _ = opened.wait_interruptible();
    gate.blocked.fetch_sub(1, Relaxed);
    drop(opened);
    drop(gate);
    // If it is the last reference, the file is closed, and with that this module may go, only when
    // this task leaves the kernel.
    drop(held);
    bindings::vm_fault_reason_VM_FAULT_RETRY
}
