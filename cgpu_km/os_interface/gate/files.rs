// SPDX-License-Identifier: GPL-2.0
//! The files whose mappings are behind a gate.
//!
//! A file is in a gate's list as long as it has a mapping of registers. The list is behind a
//! spinlock, under which nobody takes memory or sleeps. The thread that shuts the gate holds it to
//! take the next file of the list, and takes the pages out of that one without it. A file that is
//! closed meanwhile waits for that.

use crate::os_interface::base::{
    extra,
    wait::Semaphore, //
};
use core::ptr::NonNull;
use kernel::{
    alloc::KVVec,
    bindings,
    new_spinlock,
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        SpinLock, //
    }, //
};

/// The files of a gate.
#[pin_data]
pub(super) struct GatedFiles {
    #[pin]
    state: SpinLock<FilesState>,
    /// Given when a file that is to be closed is no longer visited.
    #[pin]
    left: Semaphore,
}

struct FilesState {
    files: KVVec<FileMappings>,
    /// So many files of the list, from its beginning, are still to be visited.
    ahead: usize,
    /// The file whose pages are being taken out.
    visited: Option<FileMappings>,
    /// It is to be closed, and its task waits.
    is_waited_for: bool,
}

/// All mappings of one file.
///
/// # Invariants
///
/// The file is open, or its `release` has not gone past [`GatedFiles::close`].
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct FileMappings(NonNull<bindings::address_space>);

// SAFETY: By the invariant it is valid; the kernel's functions for it may be called by any task.
unsafe impl Send for FileMappings {}
// SAFETY: A shared reference is only compared.
unsafe impl Sync for FileMappings {}

impl GatedFiles {
    pub(super) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            state <- new_spinlock!(FilesState {
                files: KVVec::new(),
                ahead: 0,
                visited: None,
                is_waited_for: false,
            }),
            left <- Semaphore::new(0),
        })
    }

    /// Takes the pages out of all mappings of the files that are in the list now. One task at a
    /// time.
    pub(super) fn clear(&self) {
        let mut state = self.state.lock();
        state.ahead = state.files.len();
        drop(state);
        while let Some(file) = self.next() {
            file.clear();
            let mut state = self.state.lock();
            state.visited = None;
            let is_waited_for = core::mem::take(&mut state.is_waited_for);
            drop(state);
            if is_waited_for {
                self.left.give();
            }
        }
    }

    /// Whether [`GatedFiles::clear`] would wait for no task at this moment: none changes the
    /// mappings of a file, or waits to.
    pub(super) fn are_at_hand(&self) -> bool {
        let state = self.state.lock();
        state.files.iter().all(|file| file.is_at_hand())
    }

    /// A file gets a mapping more; `mappings` counts those that it has.
    pub(super) fn enter(&self, file: FileMappings, mappings: &Atomic<u64>) -> Result {
        loop {
            let mut state = self.state.lock();
            let before = mappings.load(Relaxed);
            if before != 0 || state.files.push_within_capacity(file).is_ok() {
                mappings.store(before.saturating_add(1), Relaxed);
                return Ok(());
            }
            drop(state);
            self.grow()?;
        }
    }

    /// One of a file's mappings, which is still there, was copied.
    pub(super) fn copied(&self, mappings: &Atomic<u64>) {
        let _state = self.state.lock();
        let before = mappings.load(Relaxed);
        mappings.store(before.saturating_add(1), Relaxed);
    }

    /// One of a file's mappings is gone.
    pub(super) fn leave(&self, file: FileMappings, mappings: &Atomic<u64>) {
        let mut state = self.state.lock();
        let left = mappings.load(Relaxed).saturating_sub(1);
        mappings.store(left, Relaxed);
        if left == 0 {
            state.remove(file);
        }
    }

    /// A file without mappings is going to be closed.
    pub(super) fn close(&self, file: FileMappings) {
        let mut state = self.state.lock();
        if state.visited == Some(file) {
            state.is_waited_for = true;
            drop(state);
            self.left.take_always();
        }
    }

    /// The next file to be visited.
    fn next(&self) -> Option<FileMappings> {
        let mut state = self.state.lock();
        state.ahead = state.ahead.checked_sub(1)?;
        state.visited = state.files.get(state.ahead).copied();
        state.visited
    }

    /// Makes room for a file more than there is room for.
    fn grow(&self) -> Result {
        let room = self.state.lock().files.capacity();
        let room = room.saturating_mul(2).max(4);
        let mut larger = KVVec::with_capacity(room, GFP_KERNEL)?;
        let mut state = self.state.lock();
        if state.files.capacity() < larger.capacity() {
            for file in state.files.iter() {
                // There is room for more.
                let _ = larger.push_within_capacity(*file);
            }
            core::mem::swap(&mut state.files, &mut larger);
        }
        drop(state);
        // The smaller one is freed without the lock.
        drop(larger);
        Ok(())
    }
}

impl FilesState {
    fn remove(&mut self, file: FileMappings) {
        if let Some(at) = self.files.iter().position(|other| *other == file) {
            let _ = self.files.remove(at);
            // Those behind it move up.
            if at < self.ahead {
                self.ahead -= 1;
            }
        }
    }
}

impl FileMappings {
    /// Those of an open file.
    ///
    /// # Safety
    ///
    /// `file` is open, keeps its list of mappings, and [`GatedFiles::close`] is called before it is
    /// closed.
    pub(super) unsafe fn of(file: NonNull<bindings::file>) -> Option<Self> {
        // SAFETY: The file is open, as this function's contract says.
        let mappings = unsafe { extra::cgpu_shim_mappings(file.as_ptr()) };
        // INVARIANT: The file is open, and `close` is called before that ends.
        NonNull::new(mappings).map(Self)
    }

    fn is_at_hand(self) -> bool {
        // SAFETY: By the type's invariant the file is not closed, so its list is there.
        unsafe { extra::cgpu_shim_are_at_hand(self.0.as_ptr()) }
    }

    /// Takes all pages out.
    pub(super) fn clear(self) {
        // SAFETY: By the type's invariant the file is not closed, so its list is there.
        unsafe { bindings::unmap_mapping_range(self.0.as_ptr(), 0, 0, 1) };
    }
}
