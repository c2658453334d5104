// SPDX-License-Identifier: GPL-2.0
//! The scratch of one address space: its slots, and where its mapping is.

use super::{
    layout::{
        SLOTS,
        SLOT_STRIDE, //
    },
    slot::ScratchSlot, //
};
use crate::os_interface::base::wait::Semaphore;
use kernel::{
    bindings,
    impl_list_arc_safe,
    impl_list_item,
    list::ListLinks,
    mm::MmWithUser,
    new_mutex,
    prelude::*,
    sync::{
        atomic::{
            Acquire,
            Atomic,
            Relaxed, //
        },
        Mutex, //
    }, //
};
use pin_init::init_array_from_fn;

/// How far a pool has come.
#[derive(Clone, Copy)]
pub(super) enum PoolStage {
    /// Its mapping is not made yet.
    New,
    /// Its mapping is at `base`, until `close`.
    Made,
    /// Its mapping could not be made, or is gone: the pool is out of the table, and useless.
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
    pub(super) stage: Mutex<PoolStage>,
    /// One place per slot without its bit in `taken`.
    #[pin]
    pub(super) free: Semaphore,
    /// A bit per slot in use.
    pub(super) taken: Atomic<u32>,
    pub(super) slots: [ScratchSlot; SLOTS],
    #[pin]
    links: ListLinks,
}

// SAFETY: `mm` and the owners are never dereferenced, only compared.
unsafe impl Send for Pool {}
// SAFETY: Everything that changes is atomic, set once, behind a lock or of whoever has a
// slot.
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
            stage <- new_mutex!(PoolStage::New),
            free <- Semaphore::new(places),
            taken: Atomic::new(0),
            slots <- init_array_from_fn(|_| ScratchSlot::new()),
            links <- ListLinks::new(),
        })
    }

    /// Whether this is the pool of `mm`.
    pub(super) fn is_of(&self, mm: &MmWithUser) -> bool {
        core::ptr::eq(self.mm, mm.as_raw())
    }

    /// The address space, as a key.
    pub(super) fn address_space(&self) -> usize {
        self.mm.addr()
    }

    /// The slot that page `index` of the mapping is in, and its number there, if the current task
    /// may touch it now.
    pub(super) fn admits(&self, index: usize) -> Option<(&ScratchSlot, usize)> {
        // SAFETY: Reads a per-CPU variable; there is no precondition.
        let current = unsafe { bindings::get_current() };
        let slot = self.slots.get(index / SLOT_STRIDE)?;
        let page = index % SLOT_STRIDE;
        // Acquire: what `Lease::fill` set up for this owner is seen with it.
        let is_owner = core::ptr::eq(slot.owner.load(Acquire), current);
        (is_owner && slot.live.load(Relaxed) & 1 << page != 0).then_some((slot, page))
    }
}
