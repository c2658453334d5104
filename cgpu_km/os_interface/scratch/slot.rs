// SPDX-License-Identifier: GPL-2.0
//! A slot of the scratch: the pages of one call at a time, and which of them are mapped.

use super::layout::{
    ALL_CELLS,
    CELLS_AT,
    CELL_STRIDE,
    ROUND,
    SLOT_PAGES, //
};
use crate::os_interface::base::creds::KeptCreds;
use core::{
    cell::UnsafeCell,
    ops::Range,
    ptr::null_mut, //
};
use kernel::{
    bindings,
    page::Page,
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        SetOnce, //
    }, //
};
use pin_init::init_array_from_fn;

/// Pages for one call at a time.
pub(super) struct ScratchSlot {
    /// The task that may touch the pages now; null between calls.
    pub(super) owner: Atomic<*mut bindings::task_struct>,
    /// A bit per page that belongs to the call. Written while there is no owner.
    pub(super) live: Atomic<u64>,
    /// The first page that no call has had since all were unmapped. Written while there is no
    /// owner.
    pub(super) next: Atomic<usize>,
    /// The first cell that no call has had since. Written while there is no owner.
    pub(super) cell: Atomic<usize>,
    /// A bit per page that may be mapped. Written by the owner's faults, and while there is none.
    pub(super) mapped: Atomic<u64>,
    pub(super) pages: [SetOnce<Page>; SLOT_PAGES],
    /// The reduced credentials of the last call. The holder of the slot's bit may use it.
    pub(super) creds: UnsafeCell<Option<KeptCreds>>,
}

impl ScratchSlot {
    /// A slot without pages, made in its place: it would fill half of what a stack has left.
    pub(super) fn new() -> impl Init<Self> {
        init!(Self {
            owner: Atomic::new(null_mut()),
            live: Atomic::new(0),
            next: Atomic::new(1),
            cell: Atomic::new(0),
            mapped: Atomic::new(0),
            pages <- init_array_from_fn(|_| SetOnce::new()),
            creds: UnsafeCell::new(None),
        })
    }

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

    /// The pages that may be written once one of them is: all of the argument, if it is one of its.
    /// The driver has copied the whole of that before it writes any of it back
    /// (`__UVM_ROUTE_CMD_ALLOC()`, uvm_api.h).
    pub(super) fn written_with(&self, number: usize) -> Range<usize> {
        // The first pages of a call, up to one that it has not.
        let live = self.live.load(Relaxed);
        // CAST: at most 64.
        let first = live.trailing_zeros() as usize;
        let rest = live.checked_shr(live.trailing_zeros()).unwrap_or(0);
        // CAST: at most 64.
        let pages = first..first + rest.trailing_ones() as usize;
        if pages.contains(&number) {
            pages
        } else {
            number..number + 1
        }
    }

    /// A bit for each page that a read maps, if it is allocated: those of the call, and where that
    /// has a page of the round or a cell, what the next such calls will have until all are
    /// unmapped.
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
