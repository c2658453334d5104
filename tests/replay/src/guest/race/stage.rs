// SPDX-License-Identifier: GPL-2.0
//! The memory that a call is made from: pages with the argument and a page with what it points to,
//! and the same pages once more as an attacker wants them.
//!
//! All are pages of one file, so that those that the caller uses can be exchanged for the others.

use super::{
    case::{Method, RacedCall, PAGE, PARAMS},
    scene::Scene,
};
use crate::sys;

/// Pages of a side: three of the argument, one of the parameters.
const SIDE: u64 = 4;
/// All lie between two multiples of this, so that the addresses of the parameters, as they are and
/// as they must not be, differ in one byte alone: the module copies byte by byte, and of two halves
/// it would read a third address, which is nothing that it did not check.
const APART: u64 = 16 * PAGE;

/// Addresses of the pages.
pub(super) struct Stage {
    /// The file.
    pub(super) file: i32,
    /// All pages, for writing: argument and parameters, and both again as they must not be.
    all: u64,
    /// The caller's argument and, behind it, its parameters.
    pub(super) live: u64,
}

fn map(at: u64, pages: u64, file: i32, first: u64, kind: i32) -> Result<u64, i32> {
    let fixed = if at == 0 { 0 } else { libc::MAP_FIXED };
    let prot = libc::PROT_READ | libc::PROT_WRITE;
    let len = usize::try_from(pages * PAGE).map_err(|_| libc::EINVAL)?;
    let offset = i64::try_from(first * PAGE).map_err(|_| libc::EINVAL)?;
    // SAFETY: A fixed address is that of the stage's own pages, which only raw reads and writes
    // touch.
    let at = unsafe {
        libc::mmap(
            at as *mut libc::c_void,
            len,
            prot,
            kind | fixed,
            file,
            offset,
        )
    };
    if at == libc::MAP_FAILED {
        Err(sys::errno())
    } else {
        Ok(at as u64)
    }
}

impl Stage {
    pub(super) fn new() -> Result<Self, String> {
        let failed = |e: i32| format!("the stage: errno {e}");
        let file = sys::memory_file(c"stage").map_err(failed)?;
        // SAFETY: Takes no pointer.
        if unsafe { libc::ftruncate(file, 2 * 4 * 4096) } < 0 {
            return Err(failed(sys::errno()));
        }
        let (pages, kind) = (2 * APART / PAGE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        let room = map(0, pages, -1, 0, kind).map_err(failed)?;
        let all = room.next_multiple_of(APART);
        let live = all + 2 * SIDE * PAGE;
        map(all, 2 * SIDE, file, 0, libc::MAP_SHARED).map_err(failed)?;
        map(live, SIDE, file, 0, libc::MAP_SHARED).map_err(failed)?;
        Ok(Self { file, all, live })
    }

    /// Puts other pages of the file at the caller's address: those as they are, or as they must not
    /// be.
    pub(super) fn show(live: u64, file: i32, hostile: bool, private: bool) -> bool {
        let kind = if private {
            libc::MAP_PRIVATE
        } else {
            libc::MAP_SHARED
        };
        map(live, SIDE, file, if hostile { SIDE } else { 0 }, kind).is_ok()
    }

    /// The same by a mapping that is made elsewhere and moved there.
    pub(super) fn move_over(live: u64, file: i32, hostile: bool) -> Result<(), i32> {
        let first = if hostile { SIDE } else { 0 };
        let from = map(0, SIDE, file, first, libc::MAP_SHARED)?;
        let len = usize::try_from(SIDE * PAGE).map_err(|_| libc::EINVAL)?;
        let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
        // SAFETY: The first address was just mapped, the second one is the stage's, see `map`.
        let moved = unsafe {
            let from = from as *mut libc::c_void;
            libc::mremap(from, len, len, flags, live as *mut libc::c_void)
        };
        if moved == libc::MAP_FAILED {
            Err(sys::errno())
        } else {
            Ok(())
        }
    }

    fn put(at: u64, bytes: &[u8]) {
        // SAFETY: `at` is where a part begins in the stage's pages, and no part is longer than its
        // pages. Others write there at the same time: nothing but raw writes and reads touches
        // these pages.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), at as *mut u8, bytes.len()) };
    }

    /// The parameters as an attacker wants them.
    pub(super) fn hostile_params(&self) -> u64 {
        self.all + SIDE * PAGE + PARAMS
    }

    /// Everything as it is to be, before a cell.
    pub(super) fn set(&self, case: &RacedCall) {
        let _ = Self::show(self.live, self.file, false, false);
        self.reset(case, Method::Store, 0);
    }

    /// Everything as it is to be, before a call.
    pub(super) fn reset(&self, case: &RacedCall, method: Method, number: u32) {
        let case = case.numbered(number);
        let (good, bad) = (case.pages(false), case.pages(true));
        for (side, (outer, params)) in (0..).zip([&good, &bad]) {
            let at = self.all + side * SIDE * PAGE;
            Self::put(at, outer);
            Self::put(at + PARAMS, params);
        }
        if method == Method::Discard {
            // A private copy, which the attacker throws away.
            Self::put(self.live, &good.0);
            Self::put(self.live + PARAMS, &good.1);
        }
    }

    /// Whether the field is now what it should be.
    pub(super) fn looks_good(&self, case: &RacedCall) -> bool {
        if let Some(files) = case.files {
            return files.looks_good();
        }
        let at = self.live + case.patch.place();
        // SAFETY: The field lies in the stage's pages.
        let seen = unsafe {
            match case.patch.width {
                8 => (at as *const u64).read_volatile(),
                _ => u64::from((at as *const u32).read_volatile()),
            }
        };
        seen == case.patch.good
    }

    /// Makes the call; its outcome is of no interest.
    pub(super) fn call(&self, case: &RacedCall, scene: &Scene) {
        let fd = if case.uvm {
            scene.uvm.fd
        } else {
            scene.own.ctl
        };
        // SAFETY: The argument lies in the stage's pages, as does what it points to.
        unsafe { libc::ioctl(fd, libc::Ioctl::from(case.request), self.live) };
    }

    pub(super) fn close(&self) {
        for (at, pages) in [(self.all, 2 * SIDE), (self.live, SIDE)] {
            // SAFETY: Nobody uses the stage any more.
            let _ = unsafe { sys::munmap(at, pages * PAGE) };
        }
        let _ = sys::close(self.file);
    }
}
