// SPDX-License-Identifier: GPL-2.0
//! A slot while one call has it: the parts go in, the driver runs, the results come out.

use super::{
    current::current,
    layout::{
        CELLS,
        CELLS_AT,
        CELL_PAGES,
        CELL_STRIDE,
        PARTS_MAX,
        PART_MAX,
        POOL_BYTES,
        ROUND_PAGES,
        SLOTS,
        SLOT_STRIDE, //
    },
    place::{
        fits_cell,
        inside,
        place,
        pointer,
        put_back,
        shared_page,
        Alone,
        ScratchPlace, //
    },
    pool::Pool,
    pool_mapping,
    recent::Recent,
    slot::ScratchSlot, //
};
use crate::{
    nvidia::wire::points_into,
    os_interface::base::{
        creds,
        extra,
        vma::memory_of,
        wait::Semaphore, //
    },
    proxy::Part, //
};
use core::{
    marker::PhantomData,
    ops::Range,
    ptr::null_mut, //
};
use kernel::{
    bindings,
    page::PAGE_SIZE,
    prelude::*,
    sync::{
        atomic::{
            Acquire,
            Relaxed,
            Release, //
        },
        Arc,
        SetOnce, //
    },
    types::NotThreadSafe, //
};

/// A slot of the current address space, for one call.
///
/// # Invariants
///
/// The slot's bit in `taken` is ours. Between calls, and so before [`Lease::grant`] and after
/// [`Lease::finish`], the slot has no owner, and no page from its `next` on to the end of the
/// round, and none of its cells from `cell` on, was written to by the driver since it was last
/// unmapped.
pub(in crate::os_interface) struct Lease {
    pool: Arc<Pool>,
    /// Address of the mapping.
    base: usize,
    slot: usize,
    /// Address of the first part.
    start: usize,
    /// How the parts lie.
    shape: Shape,
    /// The slot is of the address space of the task that took it, which alone can unmap it.
    _task: PhantomData<NotThreadSafe>,
}

/// How the parts of a call lie among the pages of its slot.
#[derive(Clone, Copy)]
enum Shape {
    /// On a page of the round, up to this byte.
    Page { end: usize },
    /// In a cell.
    Cell,
    /// Each on pages of its own.
    Apart,
}

/// While this exists, the task that made it may touch the lease's pages.
pub(in crate::os_interface) struct Grant<'a>(&'a ScratchSlot);

impl Drop for Grant<'_> {
    fn drop(&mut self) {
        self.0.owner.store(null_mut(), Release);
    }
}

impl Lease {
    /// Takes a slot of the current address space, waiting for one if all are in use. `recent`: of
    /// the file that the call is made on, if it keeps one.
    ///
    /// `EINTR` if the task is killed while it waits, `ENOMEM`, or `EFAULT` for a task without an
    /// address space.
    pub(in crate::os_interface) fn take(recent: Option<&Recent>) -> Result<Self> {
        Self::take_by(recent, Semaphore::take)
    }

    /// The same for a call that must not be left out: a task that is killed waits, too. (Slots are
    /// held over calls of the driver alone.)
    pub(in crate::os_interface) fn take_always() -> Result<Self> {
        Self::take_by(None, |free| {
            free.take_always();
            Ok(())
        })
    }

    fn take_by(recent: Option<&Recent>, wait: impl FnOnce(&Semaphore) -> Result) -> Result<Self> {
        let task = current!();
        let mm = memory_of(task).ok_or(EFAULT)?;
        let (pool, base) = match recent {
            Some(recent) => recent.pool(mm)?,
            None => current(mm)?,
        };
        wait(&pool.free)?;
        let mut taken = pool.taken.load(Relaxed);
        loop {
            let slot = taken.trailing_ones();
            match pool.taken.cmpxchg(taken, taken | 1 << slot, Acquire) {
                // INVARIANT: The bit was clear, and the slot is put in order before that.
                Ok(_) => {
                    // CAST: below SLOTS, since the semaphore counts the clear bits.
                    let slot = slot as usize;
                    return Ok(Self {
                        pool,
                        base,
                        slot,
                        start: 0,
                        shape: Shape::Apart,
                        _task: PhantomData,
                    });
                }
                Err(now) => taken = now,
            }
        }
    }

    fn slot(&self) -> &ScratchSlot {
        // INDEX: `take` found the number below SLOTS.
        &self.pool.slots[self.slot % SLOTS]
    }

    /// An address for the driver.
    fn address(&self, place: ScratchPlace) -> u64 {
        let page = self.slot * SLOT_STRIDE + self.start + place.page;
        let address = self.base + page * PAGE_SIZE + place.offset;
        // CAST: usize is 64 bits wide.
        address as u64
    }

    /// Whether an address inside the mapping stands anywhere in `bytes` where a pointer can stand.
    /// Numbers that are no pointers hit the mapping's part of the address space by chance only.
    fn is_named_in(&self, bytes: &[u8]) -> bool {
        // CAST: usize is 64 bits wide, and a pool is far smaller than 4 GiB.
        points_into(bytes, self.base as u64, POOL_BYTES as u32)
    }

    /// Puts `parts` into the slot, with the pointers between them turned to where they are, and
    /// gives the address of the first one.
    ///
    /// `E2BIG` where a part, their number or their sum is too large, `EINVAL` where a pointer is
    /// not inside an earlier part, `EFAULT` where an address in a part lies in the scratch,
    /// `ENOMEM`.
    pub(in crate::os_interface) fn fill(&mut self, parts: &[Part<'_>]) -> Result<u64> {
        if parts.iter().any(|part| self.is_named_in(part.bytes)) {
            return Err(EFAULT);
        }
        let next = self.slot().next.load(Relaxed);
        if let Some(alone) = Alone::of(parts) {
            if next + 2 > ROUND_PAGES {
                self.seal();
            }
            return self.fill_page(&alone);
        }
        if parts.len() > PARTS_MAX || parts.iter().any(|part| part.size() > PART_MAX) {
            return Err(E2BIG);
        }
        if let (true, [only]) = (fits_cell(parts), parts) {
            return self.fill_cell(only);
        }
        // Several pages begin anew, so that the free ones between them are.
        if next != 1 || self.slot().cell.load(Relaxed) != 0 {
            self.seal();
        }
        self.start = 1;
        self.shape = Shape::Apart;
        let slot = self.slot();
        let mut live = 0;
        for (number, part) in parts.iter().enumerate() {
            let first = self.start + place(parts, number).page;
            for page in first..first + part.size().div_ceil(PAGE_SIZE) {
                slot.page(page)?;
                live |= 1 << page;
            }
        }
        slot.next
            .store(self.start + place(parts, parts.len()).page, Relaxed);
        slot.live.store(live, Relaxed);
        for (number, part) in parts.iter().enumerate() {
            let here = place(parts, number);
            for (offset, piece) in part.pieces() {
                self.copy_in(here.behind(offset), piece)?;
            }
            if let Some(at) = part.pointer {
                let holder = pointer(parts, at).filter(|_| at.part < number);
                holder.ok_or(EINVAL)?;
                if !part.bytes.is_empty() {
                    let address = self.address(here).to_ne_bytes();
                    self.copy_in(inside(parts, at.part, at.offset), &address)?;
                }
            }
        }
        Ok(self.address(place(parts, 0)))
    }

    /// The same with parts of one page.
    fn fill_page(&mut self, alone: &Alone<'_>) -> Result<u64> {
        let slot = self.slot();
        let start = slot.next.load(Relaxed);
        slot.page(start)?;
        slot.next.store(start + 2, Relaxed);
        slot.live.store(1 << start, Relaxed);
        self.start = start;
        self.shape = Shape::Page { end: alone.end() };
        let page = self.page(0)?;
        page.put(0, alone.first)?;
        if let Some((at, pointer, second)) = alone.second {
            page.put(at, second)?;
            if let (Some(offset), false) = (pointer, second.is_empty()) {
                let place = ScratchPlace {
                    page: 0,
                    offset: at,
                };
                page.put(offset, &self.address(place).to_ne_bytes())?;
            }
        }
        Ok(self.address(ScratchPlace::START))
    }

    /// The same with an argument of a cell.
    fn fill_cell(&mut self, argument: &Part<'_>) -> Result<u64> {
        if self.slot().cell.load(Relaxed) >= CELLS {
            self.seal();
        }
        let slot = self.slot();
        let cell = slot.cell.load(Relaxed);
        let start = CELLS_AT + cell * CELL_STRIDE;
        for page in start..start + CELL_PAGES {
            slot.page(page)?;
        }
        slot.cell.store(cell + 1, Relaxed);
        slot.live.store(((1 << CELL_PAGES) - 1) << start, Relaxed);
        self.start = start;
        self.shape = Shape::Cell;
        for (offset, piece) in argument.pieces() {
            self.copy_in(ScratchPlace::START.behind(offset), piece)?;
        }
        Ok(self.address(ScratchPlace::START))
    }

    /// The place of the 4 bytes at `offset` of part number `part` among the pages of a call with
    /// `parts`.
    ///
    /// `EINVAL` where they are not inside.
    pub(in crate::os_interface) fn place(
        parts: &[Part<'_>],
        part: usize,
        offset: usize,
    ) -> Result<ScratchPlace> {
        let bytes = &parts.get(part).ok_or(EINVAL)?.bytes;
        let number = bytes.get(offset..).and_then(|bytes| bytes.get(..4));
        number.ok_or(EINVAL)?;
        Ok(inside(parts, part, offset))
    }

    /// Puts a number there. Before a grant.
    pub(in crate::os_interface) fn put(&self, place: ScratchPlace, number: i32) -> Result {
        self.copy_in(place, &number.to_ne_bytes())
    }

    /// Lets the current task touch the pages until the result is dropped. Nothing of `self` is
    /// changed meanwhile.
    pub(in crate::os_interface) fn grant(&self) -> Grant<'_> {
        let slot = self.slot();
        // SAFETY: Reads a per-CPU variable; there is no precondition.
        let current = unsafe { bindings::get_current() };
        slot.owner.store(current, Release);
        Grant(slot)
    }

    /// Runs `call`, in the task that took the slot, without the capabilities that are withheld.
    pub(in crate::os_interface) fn reduced<R>(&self, call: impl FnOnce() -> R) -> Result<R> {
        // SAFETY: The slot is ours, and `self` is of one task.
        let kept = unsafe { &mut *self.slot().creds.get() };
        creds::reduced_by(kept, call)
    }

    /// Reads `parts` back, as the driver left them, the pointers as the caller gave them. They are
    /// those that [`Lease::fill`] was given.
    pub(in crate::os_interface) fn finish(&mut self, parts: &mut [Part<'_>]) -> Result {
        match self.shape {
            Shape::Page { end } => return self.finish_page(parts, end),
            Shape::Cell => return self.finish_cell(parts),
            Shape::Apart => {}
        }
        self.seal();
        let mut pointers = [[0; 8]; PARTS_MAX];
        for (place, part) in pointers.iter_mut().zip(parts.iter()) {
            let saved = part.pointer.and_then(|at| pointer(parts, at));
            *place = saved.unwrap_or_default();
        }
        for number in 0..parts.len() {
            let start = place(parts, number);
            if let Some(part) = parts.get_mut(number) {
                let (offset, results) = part.results();
                self.copy_out(start.behind(offset), results)?;
            }
        }
        for (number, saved) in pointers.iter().enumerate().take(parts.len()) {
            if let Some(at) = parts.get(number).and_then(|part| part.pointer) {
                put_back(parts, at, saved)?;
            }
        }
        Ok(())
    }

    /// The same with parts of one page, which end at `end`.
    fn finish_page(&mut self, parts: &mut [Part<'_>], end: usize) -> Result {
        let at = parts.get(1).and_then(|part| part.pointer);
        let saved = at.and_then(|at| pointer(parts, at));
        let page = self.page(0)?;
        let second = shared_page(parts).unwrap_or(0);
        for (part, at) in parts.iter_mut().zip([0, second]) {
            page.take(at, part.bytes)?;
        }
        page.wipe(0, end)?;
        self.slot().live.store(0, Relaxed);
        if let Some((at, saved)) = at.zip(saved) {
            put_back(parts, at, &saved)?;
        }
        Ok(())
    }

    /// The same with an argument of a cell.
    fn finish_cell(&mut self, parts: &mut [Part<'_>]) -> Result {
        for part in parts {
            let inputs = part.hole.at;
            let (offset, results) = part.results();
            let place = ScratchPlace::START.behind(offset);
            self.each_page(place, results.len(), |page, at, part| {
                let results = results.get_mut(part).ok_or(E2BIG)?;
                page.take(at, results)?;
                page.wipe(at, results.len())
            })?;
            self.each_page(ScratchPlace::START, inputs, |page, at, part| {
                page.wipe(at, part.len())
            })?;
        }
        self.slot().live.store(0, Relaxed);
        Ok(())
    }

    /// Takes all pages out of the process's page tables.
    fn seal(&mut self) {
        let slot = self.slot();
        slot.live.store(0, Relaxed);
        slot.next.store(1, Relaxed);
        slot.cell.store(0, Relaxed);
        let mapped = slot.mapped.load(Relaxed);
        if mapped == 0 {
            return;
        }
        slot.mapped.store(0, Relaxed);
        // CAST: at most 64.
        let first = mapped.trailing_zeros() as usize;
        let end = (u64::BITS - mapped.leading_zeros()) as usize;
        let start = self.base + (self.slot * SLOT_STRIDE + first) * PAGE_SIZE;
        let length = (end - first) * PAGE_SIZE;
        let task = current!();
        let Some(mm) = memory_of(task) else {
            return;
        };
        pool_mapping::with(&self.pool, mm, self.base, |vma| {
            // SAFETY: The mapping is valid under its lock, is one of page frames, and spans the
            // whole pool.
            unsafe { extra::cgpu_shim_zap_frames(vma.as_ptr(), start, length) }
        });
    }

    /// A page of the call: so many after the first one.
    fn page(&self, after: usize) -> Result<LeasePage<'_>> {
        let page = self.slot().pages.get(self.start + after);
        let page = page.and_then(SetOnce::as_ref).ok_or(E2BIG)?;
        Ok(LeasePage {
            // SAFETY: The page is allocated.
            memory: unsafe { extra::cgpu_shim_page_address(page.as_ptr()) }.cast(),
            _lease: PhantomData,
        })
    }

    /// Works on so many bytes from a place on, page by page: with the page, the offset there, and
    /// which of the bytes are there.
    fn each_page(
        &self,
        mut place: ScratchPlace,
        count: usize,
        mut work: impl FnMut(&LeasePage<'_>, usize, Range<usize>) -> Result,
    ) -> Result {
        let mut done = 0;
        while done < count {
            let room = PAGE_SIZE.checked_sub(place.offset).ok_or(E2BIG)?;
            let end = count.min(done + room);
            work(&self.page(place.page)?, place.offset, done..end)?;
            done = end;
            place = place.after();
        }
        Ok(())
    }

    /// Copies `bytes` to a place.
    fn copy_in(&self, place: ScratchPlace, bytes: &[u8]) -> Result {
        self.each_page(place, bytes.len(), |page, at, part| {
            page.put(at, bytes.get(part).ok_or(E2BIG)?)
        })
    }

    /// Copies from a place.
    fn copy_out(&self, place: ScratchPlace, bytes: &mut [u8]) -> Result {
        self.each_page(place, bytes.len(), |page, at, part| {
            page.take(at, bytes.get_mut(part).ok_or(E2BIG)?)
        })
    }
}

/// One page of a lease.
///
/// # Invariants
///
/// `memory` is that of a page of the slot, of which the lease has the call.
struct LeasePage<'a> {
    memory: *mut u8,
    _lease: PhantomData<&'a Lease>,
}

impl LeasePage<'_> {
    /// The memory at an offset; `E2BIG` where there are not so many bytes behind it.
    fn at(&self, offset: usize, count: usize) -> Result<*mut c_void> {
        let fits = offset
            .checked_add(count)
            .is_some_and(|end| end <= PAGE_SIZE);
        let memory = fits.then(|| self.memory.wrapping_add(offset));
        Ok(memory.ok_or(E2BIG)?.cast())
    }

    /// Copies to it.
    fn put(&self, offset: usize, bytes: &[u8]) -> Result {
        let memory = self.at(offset, bytes.len())?;
        // SAFETY: Both are that long. Nobody else writes to the page: the slot is ours, and by the
        // lease's invariant the page is not mapped, or read-only.
        unsafe { extra::cgpu_shim_copy(memory, bytes.as_ptr().cast(), bytes.len()) };
        Ok(())
    }

    /// Copies from it.
    fn take(&self, offset: usize, bytes: &mut [u8]) -> Result {
        let memory = self.at(offset, bytes.len())?;
        // SAFETY: Both are that long. The program may write to the page meanwhile, which is why C
        // copies it: what that makes of it is what the program could have had there before.
        unsafe { extra::cgpu_shim_copy(bytes.as_mut_ptr().cast(), memory, bytes.len()) };
        Ok(())
    }

    /// Wipes so many bytes from an offset on, and what else is in the words that they are in.
    fn wipe(&self, offset: usize, count: usize) -> Result {
        const WORD: usize = size_of::<u64>();
        let first = offset / WORD;
        let words = (offset + count).div_ceil(WORD) - first;
        let memory = self.at(first * WORD, words * WORD)?.cast::<u64>();
        // (memset() is an instruction that takes longer to start than most calls have words.)
        for word in 0..words {
            // SAFETY: A page is aligned, and has as many. As to the program see `take`.
            unsafe { memory.wrapping_add(word).write_volatile(0) };
        }
        Ok(())
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if self.slot().live.load(Relaxed) != 0 {
            // Its results were not taken.
            self.seal();
        }
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
