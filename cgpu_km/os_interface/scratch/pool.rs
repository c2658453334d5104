// SPDX-License-Identifier: GPL-2.0
//! The scratch of one address space: its mapping and its slots.

use super::{mapping, table, POOL_BYTES, SLOTS, SLOT_PAGES};
use crate::nvidia::wire::points_into;
use crate::os_interface::wait::Semaphore;
use core::ptr::null_mut;
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
    pub(super) pages: [SetOnce<Page>; SLOT_PAGES],
}

impl Slot {
    const fn new() -> Self {
        Self {
            owner: Atomic::new(null_mut()),
            live: Atomic::new(0),
            pages: [const { SetOnce::new() }; SLOT_PAGES],
        }
    }
}

/// Where a pool's mapping is.
#[derive(Clone, Copy)]
enum Place {
    /// Not made yet.
    None,
    /// Here, until `close`.
    At(usize),
    /// It could not be made, or is gone: the pool is out of the table, and useless.
    Dead,
}

/// The scratch of one address space.
///
/// # Invariants
///
/// * `base` is 0 or the start of the mapping.
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
// SAFETY: As above; everything that changes is atomic, set once or behind a lock.
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

    /// The pool of `mm`, the current task's address space, with its mapping in place.
    pub(super) fn current(mm: &MmWithUser) -> Result<Arc<Self>> {
        loop {
            let pool = table::find_or_insert(mm)?;
            if pool.ready(mm)? {
                return Ok(pool);
            }
        }
    }

    /// Whether this is the pool of `mm`.
    pub(super) fn is_of(&self, mm: &MmWithUser) -> bool {
        core::ptr::eq(self.mm, mm.as_raw())
    }

    /// Whether an address inside the mapping stands anywhere in `bytes` where a pointer can stand. Numbers
    /// that are no pointers hit the mapping's part of the address space by chance only.
    pub(super) fn is_named_in(&self, bytes: &[u8]) -> bool {
        // CAST: usize is 64 bits wide.
        points_into(bytes, self.base.load(Acquire) as u64, POOL_BYTES as u64)
    }

    /// Makes sure that the mapping is there, in `mm`, the current task's address space. `false` if
    /// the pool is dead and another one is to be made.
    fn ready(self: &Arc<Self>, mm: &MmWithUser) -> Result<bool> {
        let base = self.base.load(Acquire);
        if base != 0 && mapping::is_in_place(self, mm, base) {
            return Ok(true);
        }
        let mut place = self.mapping.lock();
        match *place {
            Place::Dead => return Ok(false),
            Place::At(base) => {
                if mapping::is_in_place(self, mm, base) {
                    return Ok(true);
                }
                // Nothing can take a sealed mapping away; if something did, start anew.
                *place = Place::Dead;
                drop(place);
                table::remove(self);
                return Ok(false);
            }
            Place::None => {}
        }
        match mapping::make(self) {
            Ok(base) => {
                *place = Place::At(base);
                self.base.store(base, Release);
                Ok(true)
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

    /// Whether the current task may touch page `index` of the mapping now.
    pub(super) fn admits(&self, index: usize) -> bool {
        self.admitted(index).any(|(other, _)| other == index)
    }

    /// The pages of the same slot as page `index` of the mapping that the current task may touch now, with
    /// their indexes.
    pub(super) fn admitted(&self, index: usize) -> impl Iterator<Item = (usize, &Page)> {
        let first = index - index % SLOT_PAGES;
        // SAFETY: Reads a per-CPU variable; there is no precondition.
        let current = unsafe { bindings::get_current() };
        let slot = self.slots.get(index / SLOT_PAGES);
        // Acquire: what `Lease::fill` set up for this owner is seen with him.
        let slot = slot.filter(|slot| core::ptr::eq(slot.owner.load(Acquire), current));
        let mut live = slot.map_or(0, |slot| slot.live.load(Relaxed));
        core::iter::from_fn(move || {
            // CAST: below 64.
            let page = (live != 0).then(|| live.trailing_zeros() as usize)?;
            live &= live - 1;
            Some(page)
        })
        .filter_map(move |page| Some((first + page, slot?.pages.get(page)?.as_ref()?)))
    }
}
