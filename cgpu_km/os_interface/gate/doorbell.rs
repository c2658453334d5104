// SPDX-License-Identifier: GPL-2.0
//! A doorbell page of ours, through BAR1, in the place of the one through BAR0 that the driver
//! maps.
//!
//! `proxy/alloc.rs` says why programs are shown one. The module looks at each entry that the driver
//! has put into a mapping. A frame of the doorbell in BAR0 is replaced by ours in BAR1, with the
//! same caching. Any other frame stays. The driver need not know: before the GPU sleeps it takes
//! entries out of a mapping, and it never reads them.
//!
//! # No ring goes through BAR0 meanwhile
//!
//! The driver puts in pages that give nobody access ([`super`]). They get it together with their
//! new frame. A processor never remembers an entry without access, so nothing has to be flushed.

use crate::os_interface::base::frame::Frame;
use kernel::page::PAGE_SIZE;

/// Pages of a doorbell's region: 64 KiB, `NVC361_NV_USERMODE__SIZE` (clc361.h), as all later
/// classes.
pub(in crate::os_interface) const PAGES: usize = 16;

/// The place of a GPU's doorbell.
pub struct Doorbell {
    /// Its first frame in BAR0; the others follow.
    registers: u64,
    /// The frame of each of its pages in BAR1.
    bar1: [u64; PAGES],
}

impl Doorbell {
    /// One whose region begins at a physical address in BAR0, and of whose pages each is at one in
    /// BAR1. `None` where one is no page's.
    pub(in crate::os_interface) fn new(registers: u64, bar1: [u64; PAGES]) -> Option<Self> {
        // CAST: a page's size.
        let page = PAGE_SIZE as u64;
        let whole = registers % page == 0 && bar1.iter().all(|address| address % page == 0);
        whole.then(|| Self {
            registers: registers / page,
            bar1: bar1.map(|address| address / page),
        })
    }

    /// Whether its frames are what they are to be: each one through BAR0 a register, each one
    /// through BAR1 there.
    pub(in crate::os_interface) fn lies_in(
        &self,
        is_register: impl Fn(Frame) -> bool,
        is_bar1: impl Fn(Frame) -> bool,
    ) -> bool {
        let mut registers = (self.registers..).take(PAGES);
        registers.all(|frame| is_register(Frame::new(frame)))
            && self.bar1.iter().all(|frame| is_bar1(Frame::new(*frame)))
    }

    /// The frame that stands for this one; itself, if it is none of the doorbell in BAR0.
    pub(super) fn instead_of(&self, frame: Frame) -> Frame {
        let page = frame.number().checked_sub(self.registers);
        let page = page.and_then(|page| usize::try_from(page).ok());
        let instead = page.and_then(|page| self.bar1.get(page));
        instead.map_or(frame, |instead| Frame::new(*instead))
    }
}
