// SPDX-License-Identifier: GPL-2.0
//! A mapping of one page, or a file by which it can be made, and what is read through it.

use std::sync::atomic::{
    AtomicU64,
    Ordering::{Acquire, Relaxed},
};

use super::board::{count, is_tag, PagesBoard};
use crate::sys;

/// The part of an object that is mapped.
pub(super) const PAGE: u64 = 4096;
const WORDS: usize = PAGE as usize / 8;
/// Findings of a kind that are printed.
const PRINTED: u64 = 5;

/// The process's knowledge of a mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ViewState {
    /// It is of this object of the process, and nothing has ended it.
    Whole(u32),
    /// The process has ended it.
    Ended,
    /// It is somebody else's, who may end it at any moment.
    Theirs,
}

/// A file that shows an object, mapped or not.
#[derive(Clone, Copy, Debug)]
pub(super) struct PageView {
    /// `None`: it is closed, and the page alone is left.
    pub(super) fd: Option<i32>,
    pub(super) address: Option<u64>,
    /// The object's tag.
    pub(super) tag: u64,
    /// How the driver names the mapping.
    pub(super) told: u64,
    pub(super) state: ViewState,
}

/// A page by which the kernel reads and writes what is mapped. Where no page is any more, it says
/// so, and no signal ends the process.
#[derive(Clone, Copy)]
pub(super) struct Scratch {
    fd: i32,
    words: &'static [AtomicU64; WORDS],
}

impl Scratch {
    pub(super) fn new() -> Option<Self> {
        let fd = sys::memory_file(c"page").ok()?;
        sys::set_len(fd, PAGE).ok()?;
        let prot = libc::PROT_READ | libc::PROT_WRITE;
        let at = sys::mmap(0, PAGE, prot, libc::MAP_SHARED, fd, 0).ok()?;
        // SAFETY: The mapping is a page of the file, is never unmapped, and any bytes are atomics.
        let words = unsafe { &*(at as *const [AtomicU64; WORDS]) };
        Some(Self { fd, words })
    }

    /// Fills a page with a tag; whether there was one.
    pub(super) fn fill(&self, address: u64, tag: u64) -> bool {
        for word in self.words {
            word.store(tag, Relaxed);
        }
        sys::pread_into(self.fd, address, PAGE as usize) == Ok(PAGE as usize)
    }

    /// The first word of a page that is not the tag, or the tag. `None`: there is no page.
    fn word(&self, address: u64, tag: u64) -> Option<u64> {
        let read = sys::pwrite_from(self.fd, address, PAGE as usize).ok()?;
        let mut words = self.words[..read / 8].iter().map(|word| word.load(Acquire));
        let first = words.next()?;
        Some(
            words
                .chain([first])
                .find(|&word| word != tag)
                .unwrap_or(tag),
        )
    }
}

fn tell(board: &PagesBoard, counter: &AtomicU64, view: &PageView, what: &str) {
    if count(counter) <= PRINTED && board.direct.load(Relaxed) == 0 {
        eprintln!("storm: {what}: {view:x?}");
    }
}

impl PageView {
    /// Maps the page; whether that worked.
    pub(super) fn map(&mut self) -> bool {
        let prot = libc::PROT_READ | libc::PROT_WRITE;
        let mapped = self
            .fd
            .and_then(|fd| sys::mmap(0, PAGE, prot, libc::MAP_SHARED, fd, 0).ok());
        self.address = self.address.or(mapped);
        mapped.is_some()
    }

    pub(super) fn unmap(&mut self) {
        if let Some(address) = self.address.take() {
            // SAFETY: The page of this view, which nothing else uses.
            let _ = unsafe { sys::munmap(address, PAGE) };
        }
    }

    pub(super) fn close(&mut self) {
        let _ = self.fd.take().map(sys::close);
    }

    /// Reads the page, and judges what is there; `false`: there is none.
    pub(super) fn read(&self, scratch: &Scratch, board: &PagesBoard) -> bool {
        let word = self.address.and_then(|at| scratch.word(at, self.tag));
        let Some(word) = word else {
            self.faulted(board);
            return false;
        };
        count(&board.reads);
        if word != self.tag {
            let found = if is_tag(word) {
                &board.foreign
            } else {
                &board.odd
            };
            tell(board, found, self, &format!("a page has {word:#x}"));
        }
        if self.state == ViewState::Ended {
            tell(
                board,
                &board.outlived,
                self,
                "a page can be read after its end",
            );
        }
        true
    }

    /// Writes the tag once more.
    pub(super) fn write(&self, scratch: &Scratch, board: &PagesBoard) -> Option<()> {
        if !scratch.fill(self.address?, self.tag) {
            self.faulted(board);
        }
        Some(())
    }

    /// There is no page, or no mapping could be made.
    pub(super) fn faulted(&self, board: &PagesBoard) {
        count(&board.faults);
        if matches!(self.state, ViewState::Whole(_)) {
            tell(board, &board.lost, self, "a page is gone");
        }
    }
}
