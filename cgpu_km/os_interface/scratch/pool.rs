// SPDX-License-Identifier: GPL-2.0
//! The scratch of one address space: its mapping and its slots.

use super::{
    mapping, table, ALL_CELLS, CELLS_AT, CELL_STRIDE, ROUND, SLOTS, SLOT_PAGES, SLOT_STRIDE,
};
use crate::os_interface::{creds::Kept, wait::Semaphore};
use core::{cell::UnsafeCell, ops::Range, ptr::null_mut};
use kernel::{
    bindings, impl_list_arc_safe, impl_list_item,
    list::ListLinks,
    mm::MmWithUser,
    new_mutex,
    page::Page,
    prelude::*,
    sync::{
        atomic::{Acquire, Atomic, Relaxed, Release},
        Arc, Mutex, SetOnce,
    },
};

/// Pages for one call at a time.
pub(super) struct Slot {
    /// The task that may touch the pages now; null between calls.
    pub(super) owner: Atomic<*mut bindings::task_struct>,
    /// A bit per page that belongs to the call. Written while there is no owner.
    pub(super) live: Atomic<u64>,
    /// The first page that no call has had since all were unmapped. Written while there is no owner.
    pub(super) next: Atomic<usize>,
    /// The first cell that no call has had since. Written while there is no owner.
    pub(super) cell: Atomic<usize>,
    /// A bit per page that may be mapped. Written by the owner's faults, and while there is none.
    pub(super) mapped: Atomic<u64>,
    pub(super) pages: [SetOnce<Page>; SLOT_PAGES],
    /// The reduced credentials of the last call. Whoever has the slot's bit in `taken` may use it.
    pub(super) creds: UnsafeCell<Option<Kept>>,
}

impl Slot {
    const fn new() -> Self {
        Self {
            owner: Atomic::new(null_mut()),
            live: Atomic::new(0),
            next: Atomic::new(1),
            cell: Atomic::new(0),
            mapped: Atomic::new(0),
            pages: [const { SetOnce::new() }; SLOT_PAGES],
            creds: UnsafeCell::new(None),
        }
    }
}

/// Where a pool's mapping is.
#[derive(Clone, Copy)]
enum Place {
    /// Not made yet.
    None,
    /// At the pool's `base`, until `close`.
    Made,
    /// It could not be made, or is gone: the pool is out of the table, and useless.
    Dead,
}

/// The scratch of one address space.
///
/// # Invariants
///
/// * `base` is the start of the mapping, or 0 before that is made and once it is closed.
/// * The mapping's `vm_private_data` and its file's `private_data` are this pool; the file holds a
///   reference of it, so the pages outlive every page-table entry that maps them.
#[pin_data]
pub(super) struct Pool {
    /// The address space, for comparison only.
    mm: *const bindings::mm_struct,
    pub(super) base: Atomic<usize>,
    #[pin]
    mapping: Mutex<Place>,
    /// One place per slot without its bit in `taken`.
    #[pin]
    pub(super) free: Semaphore,
    /// A bit per slot in use.
    pub(super) taken: Atomic<u32>,
    pub(super) slots: [Slot; SLOTS],
    #[pin]
    links: ListLinks,
}

// SAFETY: `mm` and the owners are never dereferenced, only compared.
unsafe impl Send for Pool {}
// SAFETY: As above; everything that changes is atomic, set once, behind a lock or of whoever has a slot.
unsafe impl Sync for Pool {}

impl_list_arc_safe! {
    impl ListArcSafe<0> for Pool { untracked; }
}
impl_list_item! {
    impl ListItem<0> for Pool { using ListLinks { self.links }; }
}

impl Pool {
    /// A pool without a mapping, for the table.
    pub(super) fn new(mm: &MmWithUser) -> impl PinInit<Self, Error> + '_ {
        // CAST: 8.
        let places = SLOTS as c_int;
        try_pin_init!(Self {
            mm: mm.as_raw().cast_const(),
            base: Atomic::new(0),
            mapping <- new_mutex!(Place::None),
            free <- Semaphore::new(places),
            taken: Atomic::new(0),
            slots: [const { Slot::new() }; SLOTS],
            links <- ListLinks::new(),
        })
    }

    /// The pool of `mm`, the current task's address space, and where its mapping is.
    pub(super) fn current(mm: &MmWithUser) -> Result<(Arc<Self>, usize)> {
        loop {
            let pool = table::find_or_insert(mm)?;
            if let Some(base) = pool.ready()? {
                return Ok((pool, base));
            }
        }
    }

    /// The mapping is closed.
    pub(super) fn close(&self) {
        self.base.store(0, Release);
        table::remove(self);
    }

    /// Whether this is the pool of `mm`.
    pub(super) fn is_of(&self, mm: &MmWithUser) -> bool {
        core::ptr::eq(self.mm, mm.as_raw())
    }

    /// Where the mapping is, in the current task's address space; it is made if it is not there yet. `None` if
    /// the pool is dead and another one is to be made.
    fn ready(self: &Arc<Self>) -> Result<Option<usize>> {
        let base = self.base.load(Acquire);
        if base != 0 {
            return Ok(Some(base));
        }
        let mut place = self.mapping.lock();
        match *place {
            Place::Dead => return Ok(None),
            Place::Made => {
                let base = self.base.load(Acquire);
                if base != 0 {
                    return Ok(Some(base));
                }
                // Nothing can take a sealed mapping away; if something did, start anew.
                *place = Place::Dead;
                drop(place);
                table::remove(self);
                return Ok(None);
            }
            Place::None => {}
        }
        match mapping::make(self) {
            Ok(base) => {
                *place = Place::Made;
                self.base.store(base, Release);
                Ok(Some(base))
            }
            Err(e) => {
                *place = Place::Dead;
                drop(place);
                table::remove(self);
                Err(e)
            }
        }
    }

    /// The address space, as a key.
    pub(super) fn address_space(&self) -> usize {
        self.mm.addr()
    }

    /// The slot that page `index` of the mapping is in, and its number there, if the current task may touch
    /// it now.
    pub(super) fn admits(&self, index: usize) -> Option<(&Slot, usize)> {
        // SAFETY: Reads a per-CPU variable; there is no precondition.
        let current = unsafe { bindings::get_current() };
        let slot = self.slots.get(index / SLOT_STRIDE)?;
        let page = index % SLOT_STRIDE;
        // Acquire: what `Lease::fill` set up for this owner is seen with him.
        let is_owner = core::ptr::eq(slot.owner.load(Acquire), current);
        (is_owner && slot.live.load(Relaxed) & 1 << page != 0).then_some((slot, page))
    }
}

impl Slot {
    /// A page, which is allocated if it is not there yet.
    pub(super) fn page(&self, number: usize) -> Result<&Page> {
        let place = self.pages.get(number).ok_or(E2BIG)?;
        if let Some(page) = place.as_ref() {
            return Ok(page);
        }
        place.populate(Page::alloc_page(GFP_KERNEL_ACCOUNT | __GFP_ZERO)?);
        place.as_ref().ok_or(ENOMEM)
    }

    /// Pages, a bit each, are going to be mapped.
    pub(super) fn maps(&self, pages: u64) {
        self.mapped
            .store(self.mapped.load(Relaxed) | pages, Relaxed);
    }

    /// The pages that may be written once one of them is: all of the argument, if it is one of its. The driver has copied
    /// the whole of that before it writes any of it back (`__UVM_ROUTE_CMD_ALLOC()`, uvm_api.h).
    pub(super) fn written_with(&self, number: usize) -> Range<usize> {
        // The first pages of a call, up to one that it has not.
        let live = self.live.load(Relaxed);
        // CAST: at most 64.
        let first = live.trailing_zeros() as usize;
        let rest = live.checked_shr(live.trailing_zeros()).unwrap_or(0);
        // CAST: at most 64.
        let pages = first..first + rest.trailing_ones() as usize;
        match pages.contains(&number) {
            true => pages,
            false => number..number + 1,
        }
    }

    /// A bit for each page that a read maps, if it is allocated: those of the call, and where that has a page of the round
    /// or a cell, what the next such calls will have until all are unmapped.
    pub(super) fn readable(&self) -> u64 {
        let live = self.live.load(Relaxed);
        // CAST: at most that of all pages.
        let from = |page: usize| u64::MAX.checked_shl(page as u32).unwrap_or(0);
        let later = match self.cell.load(Relaxed) {
            _ if live.count_ones() == 1 => ROUND & from(self.next.load(Relaxed)),
            0 => 0,
            cell => ALL_CELLS & from(CELLS_AT + cell * CELL_STRIDE),
        };
        live | later
    }

    /// A page, if it is there.
    pub(super) fn present(&self, number: usize) -> Option<&Page> {
        self.pages.get(number)?.as_ref()
    }
}
