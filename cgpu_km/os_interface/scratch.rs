// SPDX-License-Identifier: GPL-2.0
//! The sealed scratch: where the driver reads the parameters that were checked.
//!
//! The driver copies its parameters from user memory by itself, after we looked at them; another
//! thread of the process can change them in between (91 of 100 plain forwarded calls were tampered
//! with in a test that tried). So the checked copy is put on pages of ours that are mapped into the
//! process at an address that nobody but the driver, inside this call, can write:
//!
//! * The mapping is sealed and shared, and has no page of the process's own: it cannot be unmapped,
//!   moved, protected, split or replaced, `ptrace` and `process_vm_writev` do not reach it, and a
//!   fork child has none of it.
//! * A page is mapped only on a fault of the task that executes the driver (the owner of the slot),
//!   and read-only until that task writes to it. Another thread's store, and any system call of
//!   another thread that writes to user memory, gets `SIGBUS` or `EFAULT`. The owner itself is in
//!   the driver.
//! * After the call the pages are unmapped again, before their content is read back.
//!
//! Once the driver has written to a page, other threads can too until the call ends. So each
//! separately copied struct has pages of its own, and what comes back is trusted no more than what
//! the process could have written into its own memory.
//!
//! A part has pages of its own, with a page that is never there before and after it, so nothing that
//! runs over the end of one reaches another. An address inside the mapping among the parameters is
//! refused: the driver, which may write there, would do it for the caller.
//!
//! A process has one mapping with [`SLOTS`] slots, one for each call in flight; a caller who finds
//! none free waits, killably. Pages are allocated when they are first needed, charged to the
//! process's memory cgroup, and freed when the mapping goes with its address space.
//!
//! # Lock rules
//!
//! 1. A slot is held over a call into the driver, which faults, which takes `mmap_lock`. So no
//!    callback of the mapping (`mmap`, `fault`, `pfn_mkwrite`, `close`) may wait for a slot.
//! 2. A fault takes no lock at all: it reads atomics and pages that are set once.
//! 3. `close` runs under `mmap_lock` and takes the lock of a table shard. So nothing that faults or
//!    takes `mmap_lock` runs under a shard's lock; it is a spin lock, held for list operations.
//! 4. [`Pool`]'s `mapping` is taken before `mmap_lock` (by `vm_mmap`), never by a callback.
//! 5. The driver does not copy to or from user memory with `mmap_lock` held; it never could.

mod mapping;
mod pool;
mod table;

pub use table::Scratch;

use super::wait::Semaphore;
use crate::proxy::{Part, PointerAt};
use core::{marker::PhantomData, ptr::null_mut};
use kernel::{
    bindings,
    page::{Page, PAGE_SIZE},
    prelude::*,
    sync::{
        atomic::{Acquire, Relaxed, Release},
        Arc, SetOnce,
    },
    types::NotThreadSafe,
};
use pool::{Pool, Slot};

/// Calls that a process can have in flight through the scratch.
const SLOTS: usize = 8;
/// Most bytes of one part.
const PART_MAX: usize = 96 << 10;
/// Most parts of one call.
const PARTS_MAX: usize = 16;
/// Pages of a slot, of which a bit each fits into a word: room for the outer struct, a parameter
/// struct of the largest size, the lists that it points to, and the pages between them.
const SLOT_PAGES: usize = 40;
const SLOT_BYTES: usize = SLOT_PAGES * PAGE_SIZE;
const POOL_BYTES: usize = SLOTS * SLOT_BYTES;

/// A slot of the current address space, for one call.
///
/// # Invariants
///
/// The slot's bit in `taken` is ours. Between calls, and so before [`Lease::grant`] and after
/// [`Lease::finish`], the slot has no owner and no page of it is mapped.
pub(super) struct Lease {
    pool: Arc<Pool>,
    slot: usize,
    /// The slot is of the address space of the task that took it, which alone can unmap it.
    _task: PhantomData<NotThreadSafe>,
}

/// A place in a slot, as [`Lease::place`] found it.
#[derive(Clone, Copy)]
pub(super) struct Place {
    /// Page where its part begins.
    first: usize,
    /// Bytes from there.
    offset: usize,
}

/// While this exists, the task that made it may touch the lease's pages.
pub(super) struct Grant<'a>(&'a Slot);

impl Drop for Grant<'_> {
    fn drop(&mut self) {
        self.0.owner.store(null_mut(), Release);
    }
}

/// Pages that a part takes.
fn pages(part: &Part<'_>) -> usize {
    part.bytes.len().div_ceil(PAGE_SIZE)
}

/// The pointer at `at`, if that is inside a part.
fn pointer(parts: &[Part<'_>], at: PointerAt) -> Option<[u8; 8]> {
    let holder = parts.get(at.part)?;
    holder.bytes.get(at.offset..)?.first_chunk().copied()
}

/// The page of the slot where part `number` of `parts` starts: one after the pages of those before
/// it, and after a page for each of them, and for the slot, that is never mapped.
fn first_page(parts: &[Part<'_>], number: usize) -> usize {
    let before = parts.iter().take(number).map(|part| pages(part) + 1);
    1 + before.sum::<usize>()
}

impl Lease {
    /// Takes a slot of the current address space, waiting for one if all are in use.
    ///
    /// `EINTR` if the task is killed while it waits, `ENOMEM`, or `EFAULT` for a task without an
    /// address space.
    pub(super) fn take() -> Result<Self> {
        Self::take_by(Semaphore::take)
    }

    /// The same for a call that must not be left out: a task that is killed waits, too. (Slots are
    /// held over calls of the driver alone.)
    pub(super) fn take_always() -> Result<Self> {
        Self::take_by(|free| {
            free.take_always();
            Ok(())
        })
    }

    fn take_by(wait: impl FnOnce(&Semaphore) -> Result) -> Result<Self> {
        let task = current!();
        let pool = Pool::current(task.mm().ok_or(EFAULT)?)?;
        wait(&pool.free)?;
        let mut taken = pool.taken.load(Relaxed);
        loop {
            let slot = taken.trailing_ones();
            match pool.taken.cmpxchg(taken, taken | 1 << slot, Acquire) {
                // INVARIANT: The bit was clear, and whoever clears it has put the slot in order.
                Ok(_) => {
                    // CAST: below SLOTS, since the semaphore counts the clear bits.
                    let slot = slot as usize;
                    return Ok(Self {
                        pool,
                        slot,
                        _task: PhantomData,
                    });
                }
                Err(now) => taken = now,
            }
        }
    }

    fn slot(&self) -> &Slot {
        // INDEX: `take` found the number below SLOTS.
        &self.pool.slots[self.slot % SLOTS]
    }

    /// The address of a page of the slot, for the driver.
    fn address(&self, page: usize) -> u64 {
        let base = self.pool.base.load(Relaxed);
        let address = base + self.slot * SLOT_BYTES + page * PAGE_SIZE;
        // CAST: usize is 64 bits wide.
        address as u64
    }

    /// Puts `parts` on the pages of the slot, each on pages of its own, with the pointers between
    /// them turned to where they are, and gives the address of the first one.
    ///
    /// `E2BIG` where a part, their number or their sum is too large, `EINVAL` where a pointer is not
    /// inside an earlier part, `EFAULT` where an address in a part lies in the scratch, `ENOMEM`.
    pub(super) fn fill(&mut self, parts: &[Part<'_>]) -> Result<u64> {
        if parts.len() > PARTS_MAX || parts.iter().any(|part| part.bytes.len() > PART_MAX) {
            return Err(E2BIG);
        }
        if parts.iter().any(|part| self.pool.is_named_in(part.bytes)) {
            return Err(EFAULT);
        }
        let slot = self.slot();
        let mut live = 0;
        for number in 0..parts.len() {
            let first = first_page(parts, number);
            let pages = parts.get(number).map_or(0, pages);
            for page in first..first + pages {
                let place = slot.pages.get(page).ok_or(E2BIG)?;
                if place.as_ref().is_none() {
                    place.populate(Page::alloc_page(GFP_KERNEL_ACCOUNT | __GFP_ZERO)?);
                }
                live |= 1 << page;
            }
        }
        slot.live.store(live, Relaxed);
        for (number, part) in parts.iter().enumerate() {
            let first = first_page(parts, number);
            self.copy_in(first, 0, part.bytes)?;
            if let Some(at) = part.pointer {
                let place = pointer(parts, at).filter(|_| at.part < number);
                place.ok_or(EINVAL)?;
                if !part.bytes.is_empty() {
                    let address = self.address(first).to_ne_bytes();
                    self.copy_in(first_page(parts, at.part), at.offset, &address)?;
                }
            }
        }
        Ok(self.address(first_page(parts, 0)))
    }

    /// Where in the slot the 4 bytes at `offset` of part number `part` are, once `parts` were put there.
    ///
    /// `EINVAL` where they are not inside.
    pub(super) fn place(parts: &[Part<'_>], part: usize, offset: usize) -> Result<Place> {
        let bytes = &parts.get(part).ok_or(EINVAL)?.bytes;
        let inside = bytes.get(offset..).and_then(|bytes| bytes.get(..4));
        inside.ok_or(EINVAL)?;
        Ok(Place {
            first: first_page(parts, part),
            offset,
        })
    }

    /// Puts a number there. Before a grant.
    pub(super) fn put(&self, place: Place, number: i32) -> Result {
        self.copy_in(place.first, place.offset, &number.to_ne_bytes())
    }

    /// Lets the current task touch the pages until the result is dropped. Nothing of `self` is
    /// changed meanwhile.
    pub(super) fn grant(&self) -> Grant<'_> {
        let slot = self.slot();
        // SAFETY: Reads a per-CPU variable; there is no precondition.
        let current = unsafe { bindings::get_current() };
        slot.owner.store(current, Release);
        Grant(slot)
    }

    /// Unmaps the pages and then reads `parts` back, as the driver left them, the pointers as the
    /// caller gave them.
    pub(super) fn finish(&mut self, parts: &mut [Part<'_>]) -> Result {
        self.seal();
        let mut pointers = [[0; 8]; PARTS_MAX];
        for number in 0..parts.len() {
            let at = parts.get(number).and_then(|part| part.pointer);
            let saved = at.and_then(|at| pointer(parts, at));
            if let (Some(place), Some(saved)) = (pointers.get_mut(number), saved) {
                *place = saved;
            }
        }
        for number in 0..parts.len() {
            let first = first_page(parts, number);
            if let Some(part) = parts.get_mut(number) {
                self.copy_out(first, part.bytes)?;
            }
        }
        for (number, saved) in pointers.iter().enumerate() {
            if let Some(at) = parts.get(number).and_then(|part| part.pointer) {
                let holder = parts.get_mut(at.part).ok_or(EINVAL)?;
                let place = holder.bytes.get_mut(at.offset..);
                let place = place.and_then(|bytes| bytes.get_mut(..8));
                place.ok_or(EINVAL)?.copy_from_slice(saved);
            }
        }
        Ok(())
    }

    /// Takes the pages out of the process's page tables.
    fn seal(&mut self) {
        let slot = self.slot();
        let live = slot.live.load(Relaxed);
        if live == 0 {
            return;
        }
        slot.live.store(0, Relaxed);
        let base = self.pool.base.load(Relaxed);
        let start = base + self.slot * SLOT_BYTES;
        // CAST: at most 64.
        let pages = (u64::BITS - live.leading_zeros()) as usize;
        let task = current!();
        let Some(mm) = task.mm() else {
            return;
        };
        mapping::with(&self.pool, mm, base, |vma| {
            // SAFETY: The mapping is valid under its lock, is one of page frames, and spans the
            // whole pool.
            unsafe { bindings::zap_special_vma_range(vma.as_ptr(), start, pages * PAGE_SIZE) }
        });
    }

    /// Copies `bytes` to `offset` bytes after the start of page `first`.
    fn copy_in(&self, first: usize, offset: usize, bytes: &[u8]) -> Result {
        let mut at = offset;
        let mut rest = bytes;
        while !rest.is_empty() {
            let (page, start) = (first + at / PAGE_SIZE, at % PAGE_SIZE);
            let (now, later) = rest.split_at(rest.len().min(PAGE_SIZE - start));
            let page = self.slot().pages.get(page).and_then(SetOnce::as_ref);
            // SAFETY: `now` is that long, and nobody else has the page: by the type's invariant it
            // is not mapped, and the slot is ours.
            unsafe {
                page.ok_or(E2BIG)?
                    .write_raw(now.as_ptr(), start, now.len())?
            };
            at += now.len();
            rest = later;
        }
        Ok(())
    }

    /// Copies from the start of page `first`.
    fn copy_out(&self, first: usize, bytes: &mut [u8]) -> Result {
        for (number, now) in bytes.chunks_mut(PAGE_SIZE).enumerate() {
            let page = self
                .slot()
                .pages
                .get(first + number)
                .and_then(SetOnce::as_ref);
            // SAFETY: `now` is that long, and nobody else has the page: `seal` unmapped it, and the
            // slot is ours.
            unsafe {
                page.ok_or(E2BIG)?
                    .read_raw(now.as_mut_ptr(), 0, now.len())?
            };
        }
        Ok(())
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.seal();
        let mut taken = self.pool.taken.load(Relaxed);
        while let Err(now) = self
            .pool
            .taken
            .cmpxchg(taken, taken & !(1 << self.slot), Release)
        {
            taken = now;
        }
        self.pool.free.give();
    }
}
