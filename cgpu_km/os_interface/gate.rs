// SPDX-License-Identifier: GPL-2.0
//! Gates before a GPU's registers: the doorbell by which programs submit work.
//!
//! A mapping of registers is made without pages. The first access faults; what becomes of it
//! depends on the [`Position`] of its instance's gate: the driver's own fault handler puts the
//! pages in (it also wakes a sleeping GPU), or the task sleeps until the gate is opened. When the
//! gate leaves `Open`, the pages are taken out of every mapping of every process, children of fork
//! included, by way of the files that are mapped (`unmap_mapping_range`).
//!
//! # No page stays behind
//!
//! Whether to let a task pass and the driver's fault handler are one step under [`Gate::state`]. So
//! when the position was changed, every page that was put in before is there to be taken out, and
//! no further one comes.
//!
//! # Who sleeps
//!
//! A task sleeps without `mmap_lock`, so other threads of its process map, unmap and fault as they
//! like; the mapping itself may go meanwhile. It holds the file, which holds this module, and looks
//! at nothing else of the mapping afterwards: the kernel does the fault anew. A kill ends the
//! sleep; so does any signal, if the program itself made the access. Where the kernel cannot do a
//! fault anew (a futex on such an address) it fails: to let it pass would put the page in for all.
//! So does an access of a task that exits, which no signal would wake.
//!
//! # Locks
//!
//! `mmap_lock`, [`Gate::state`], then what the report of an access takes (the scheduler's) and what
//! the driver's fault handler takes. [`Gate::files`] is taken under `mmap_lock` too, and over the
//! locks of mappings.

pub(super) mod doorbell;

use super::base::{
    extra,
    file_ref::FileRef,
    vma::{FaultHandler, PageFault},
    wait::{is_exiting, Completion},
};
use crate::policy::sched::Position;
use core::ptr::NonNull;
use kernel::{
    bindings, new_mutex,
    prelude::*,
    sync::{
        atomic::{Atomic, Relaxed},
        Arc, Mutex,
    },
};

/// The gate of one instance.
#[pin_data]
pub struct Gate {
    #[pin]
    state: Mutex<GateState>,
    #[pin]
    files: Mutex<KVec<FileMappings>>,
    /// Tasks that sleep now.
    blocked: Atomic<u32>,
    /// How often a task went to sleep.
    times_blocked: Atomic<u64>,
    /// Whether it is shut and all pages are out.
    is_shut: Atomic<bool>,
}

struct GateState {
    position: Position,
    /// The event that wakes tasks which come now. There is one exactly while the gate is shut.
    opened: Option<Arc<Completion>>,
}

/// All mappings of one file.
///
/// # Invariants
///
/// The file is open: whoever enters it takes it out before the driver's `release`.
#[derive(Clone, Copy, PartialEq, Eq)]
struct FileMappings(NonNull<bindings::address_space>);

// SAFETY: By the invariant it is valid; the kernel's functions for it may be called by any task.
unsafe impl Send for FileMappings {}

/// The result of a fault at a gate.
enum Touched {
    Passed(bindings::vm_fault_t),
    Wait(Arc<Completion>),
}

impl Gate {
    /// An open gate.
    pub fn new() -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                state <- new_mutex!(GateState {
                    position: Position::Open,
                    opened: None,
                }),
                files <- new_mutex!(KVec::new()),
                blocked: Atomic::new(0),
                times_blocked: Atomic::new(0),
                is_shut: Atomic::new(false),
            }),
            GFP_KERNEL,
        )
    }

    /// Moves the gate; `ENOMEM` where that cannot be done, and nothing has changed.
    pub fn set(&self, position: Position) -> Result {
        let shut = position == Position::Shut;
        let new = match position {
            Position::Shut => Some(Arc::pin_init(Completion::new(), GFP_KERNEL)?),
            Position::Open | Position::Armed => None,
        };
        let mut state = self.state.lock();
        let was_open = state.position == Position::Open;
        state.position = position;
        let old = match (shut, &state.opened) {
            (true, Some(_)) => None,
            _ => core::mem::replace(&mut state.opened, new),
        };
        drop(state);
        if let Some(opened) = old {
            opened.complete();
        }
        if was_open && position != Position::Open {
            self.clear();
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

    /// Runs `step`, which hears whether the gate is open, and lets nobody move it meanwhile.
    pub(super) fn hold<R>(&self, step: impl FnOnce(bool) -> R) -> R {
        let state = self.state.lock();
        step(state.position == Position::Open)
    }

    /// Takes all pages out of all mappings.
    fn clear(&self) {
        for file in self.files.lock().iter() {
            // SAFETY: By its invariant the file is open, as nobody takes it out meanwhile.
            unsafe { bindings::unmap_mapping_range(file.0.as_ptr(), 0, 0, 1) };
        }
    }

    /// A fault in a mapping of registers: `pass` is the driver's handler, `rang` tells of it.
    fn touch(&self, rang: impl FnOnce(), pass: impl FnOnce() -> bindings::vm_fault_t) -> Touched {
        let mut state = self.state.lock();
        match (state.position, &state.opened) {
            (Position::Shut, Some(opened)) => {
                let opened = opened.clone();
                rang();
                Touched::Wait(opened)
            }
            (Position::Armed, _) => {
                state.position = Position::Open;
                rang();
                Touched::Passed(pass())
            }
            _ => Touched::Passed(pass()),
        }
    }
}

/// The entry of a file at a gate.
pub(super) struct GatedFile {
    gate: Arc<Gate>,
    file: FileMappings,
    /// It was taken out again.
    left: Atomic<bool>,
}

impl GatedFile {
    /// Enters the mappings of `file`.
    ///
    /// # Safety
    ///
    /// `file` is open, and [`GatedFile::leave`] is called before it is not.
    pub(super) unsafe fn new(gate: &Arc<Gate>, file: NonNull<bindings::file>) -> Result<Self> {
        // SAFETY: The file is open, as this function's contract says.
        let mappings = unsafe { extra::cgpu_shim_mappings(file.as_ptr()) };
        let mappings = NonNull::new(mappings).ok_or(EINVAL)?;
        // INVARIANT: `leave` is called before the file is closed, as the contract says.
        let entry = Self {
            gate: gate.clone(),
            file: FileMappings(mappings),
            left: Atomic::new(false),
        };
        let mut files = gate.files.lock();
        if let Err(e) = files.push(entry.file, GFP_KERNEL) {
            drop(files);
            entry.left.store(true, Relaxed);
            return Err(e.into());
        }
        Ok(entry)
    }

    /// Takes it out. Afterwards the file may be closed.
    pub(super) fn leave(&self) {
        let mut files = self.gate.files.lock();
        if self.left.xchg(true, Relaxed) {
            return;
        }
        // One of them: another thread may have entered the same file at the same time.
        if let Some(at) = files.iter().position(|file| *file == self.file) {
            let _ = files.remove(at);
        }
    }
}

impl Drop for GatedFile {
    fn drop(&mut self) {
        self.leave();
    }
}

/// Serves a fault in a mapping of `file`, whose registers are behind its gate. `rang` reports an
/// access while the gate is not open.
///
/// # Safety
///
/// `handler` is for the fault's mapping. If this returns `VM_FAULT_RETRY`, neither the fault nor
/// what its mapping holds is used any more.
pub(super) unsafe fn fault(
    file: &GatedFile,
    rang: impl FnOnce(),
    handler: FaultHandler,
    fault: PageFault<'_>,
) -> bindings::vm_fault_t {
    // SAFETY: The handler is for this mapping, as this function's contract says.
    let pass = || unsafe { fault.serve(handler) };
    let opened = match file.gate.touch(rang, pass) {
        Touched::Passed(result) => return result,
        Touched::Wait(opened) => opened,
    };
    // A task that exits (`mm_release()` writes to where the program said) gets no signal any more.
    if is_exiting() || !fault.has(bindings::fault_flag_FAULT_FLAG_ALLOW_RETRY) {
        return bindings::vm_fault_reason_VM_FAULT_SIGBUS;
    }
    if fault.has(bindings::fault_flag_FAULT_FLAG_RETRY_NOWAIT) {
        return bindings::vm_fault_reason_VM_FAULT_RETRY;
    }
    let by_program = fault.has(bindings::fault_flag_FAULT_FLAG_USER)
        && fault.has(bindings::fault_flag_FAULT_FLAG_INTERRUPTIBLE);
    let gate = file.gate.clone();
    let held = NonNull::new(fault.file());
    // SAFETY: The mapping holds its file until the lock is released.
    let held = held.map(|file| unsafe { FileRef::get(file) });
    // SAFETY: The fault may be done anew, and nothing of it is used below. From here on the
    // mapping, `file` and its endpoint may go, but for what is held above.
    unsafe { fault.release_lock() };
    gate.blocked.fetch_add(1, Relaxed);
    gate.times_blocked.fetch_add(1, Relaxed);
    // However the wait ends, the kernel does the fault anew, after the signal if there is one.
    let _ = if by_program {
        opened.wait_interruptible()
    } else {
        opened.wait_freezable()
    };
    gate.blocked.fetch_sub(1, Relaxed);
    drop(opened);
    drop(gate);
    // If it is the last reference, the file is closed, and with that this module may go, only when
    // this task leaves the kernel.
    drop(held);
    bindings::vm_fault_reason_VM_FAULT_RETRY
}
