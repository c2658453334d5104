// SPDX-License-Identifier: GPL-2.0
//! A mapping of a proxied file.

use crate::{
    os_interface::{
        base::{
            extra,
            frame::Frame,
            vma::{
                LockedVma,
                NewVma, //
            }, //
        },
        driver::shared_page::ShownPage, //
    },
    proxy::UserAddr, //
};
use core::ops::ControlFlow;
use kernel::page::PAGE_SIZE;

/// A part of a program's address space that a file is mapped to, or is to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProgramMapping {
    /// Its first byte.
    pub start: UserAddr,
    /// Its length in bytes, whole pages.
    pub length: u64,
    /// From which byte of the file on.
    pub offset: u64,
    /// The program can read it.
    pub readable: bool,
    /// The program can write to it.
    pub writable: bool,
    /// The program can make it writable, if it is not.
    pub may_be_writable: bool,
    /// It is the file's own memory, not a copy made on writing.
    pub shared: bool,
}

impl ProgramMapping {
    pub(super) fn of(vma: LockedVma<'_>) -> Self {
        use kernel::mm::virt::flags;
        let extra::cgpu_vma {
            start,
            end,
            flags,
            page,
            ..
        } = vma.seen();
        // CAST: `c_ulong` and `usize` are 64 bits wide.
        Self {
            start: UserAddr::new(start as u64),
            length: end.saturating_sub(start) as u64,
            offset: (page as u64).saturating_mul(PAGE_SIZE as u64),
            readable: flags & flags::READ != 0,
            writable: flags & flags::WRITE != 0,
            may_be_writable: flags & flags::MAYWRITE != 0,
            shared: flags & flags::SHARED != 0,
        }
    }
}

/// How a mapping, or a part of one, went away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unmapped {
    /// The program unmapped or replaced it, moved it, or executed another program.
    ByProgram,
    /// The program ended. UVM keeps the managed memory of such a mapping until the file is closed
    /// (`uvm_vm_close_managed()`, uvm.c: a range becomes a zombie where nobody's address space is
    /// that of the current task).
    ByExit,
}

/// The pages that a program gets for its `mmap`.
#[derive(Clone, Copy)]
pub enum Shown<'a> {
    /// The driver's pages.
    AsMade,
    /// The same, after the endpoint has settled it, in the same task and without a lock.
    Later,
    /// The driver's pages, behind the file's gate. While that is not open, the mapping has no
    /// pages; they come with faults that the gate lets pass.
    Gated,
    /// This page, for reading, in the place of the driver's one. `EINVAL` for a mapping of more
    /// than a page.
    Instead(&'a ShownPage),
}

/// The pages that the driver put into a mapping that it has just made.
pub struct Pages<'a>(pub(super) NewVma<'a>);

impl Pages<'_> {
    /// The frame of the first page; `None` if there is none yet and pages come with faults, as for
    /// UVM's managed memory. (Its semaphore pools have their pages at once.)
    pub fn first(&self) -> Option<Frame> {
        let mut found = None;
        let here = self.0.start();
        self.look(here, here.saturating_add(PAGE_SIZE), |frame| {
            found = Some(frame);
            ControlFlow::Break(())
        });
        found
    }

    /// Whether each access reaches the device by itself and in order, as those to registers must.
    pub fn are_uncached(&self) -> bool {
        self.0.is_uncached()
    }

    /// Whether there is a page whose frame is one that is asked for.
    pub fn any(&self, wanted: impl Fn(Frame) -> bool) -> bool {
        let mut found = false;
        self.look(self.0.start(), self.0.end(), |frame| {
            found = wanted(frame);
            if found {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        });
        found
    }

    /// Calls `each` for the frames from `start` to `end`, until it breaks.
    fn look(&self, start: usize, end: usize, mut each: impl FnMut(Frame) -> ControlFlow<()>) {
        self.0.each_entry(start, end, |entry| match entry.frame() {
            Some(frame) => each(frame),
            None => ControlFlow::Continue(()),
        });
    }
}

/// How a mapping of registers came to be there twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopiedBy {
    /// For a child of fork.
    Fork,
    /// It is moved: the other one goes.
    Move,
}

/// An instance has more mappings of registers than it may have, by copies of fork's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooManyCopies;
