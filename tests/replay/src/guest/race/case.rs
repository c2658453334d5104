// SPDX-License-Identifier: GPL-2.0
//! A call that is raced: its bytes, the field in them, and the way in which that is changed.

use crate::{
    bytes::{put_u32, put_u64},
    sys,
};

pub(super) const PAGE: u64 = 4096;
/// The parameters' offset in the caller's pages.
pub(super) const PARAMS: u64 = 3 * PAGE;

/// Handles of objects that come and go.
pub(super) const FIRST: u32 = 0x5C00_1000;
pub(super) const SMALL: u64 = 2 << 20;
pub(super) const LARGE: u64 = 6 << 20;
/// The address of UVM's first mapping.
const BASE: u64 = 0x20_0000_0000;

/// A way of changing it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Method {
    /// Stores of another thread.
    Store,
    /// Stores of another process that has the same memory (`CLONE_VM` without `CLONE_THREAD`).
    OtherProcess,
    /// `pread(2)` into it.
    Read,
    /// `recv(2)` into it.
    Receive,
    /// `process_vm_writev(2)` into it.
    VmWrite,
    /// io_uring reads into it.
    Uring,
    /// Another page at the same address, by `mmap` with `MAP_FIXED`.
    Remap,
    /// Another page at the same address, by `mremap`.
    Move,
    /// A private page is thrown away (`MADV_DONTNEED`), and what is below it comes up.
    Discard,
    /// Another file under the number of a descriptor, by `dup2(2)`.
    Descriptor,
}

/// Those that change memory.
pub(super) const ON_MEMORY: &[Method] = &[
    Method::Store,
    Method::OtherProcess,
    Method::Read,
    Method::Receive,
    Method::VmWrite,
    Method::Uring,
    Method::Remap,
    Method::Move,
    Method::Discard,
];

/// How it is seen that something was acted on that was not checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Judge {
    /// The driver tells that it read it.
    Log,
    /// Both values may be had, and what is charged is not what the heap holds.
    Accounting,
}

/// The field's place, and its values.
#[derive(Debug, Clone, Copy)]
pub(super) struct Patch {
    /// 0: in the argument, 1: in what that points to.
    pub(super) part: u64,
    pub(super) offset: u64,
    /// Bytes, 4 or 8.
    pub(super) width: u8,
    pub(super) good: u64,
    pub(super) bad: u64,
}

impl Patch {
    /// Its offset from the beginning of the caller's memory.
    pub(super) fn place(&self) -> u64 {
        self.part * PARAMS + self.offset
    }
}

/// A descriptor's number, and the descriptors that it is made to stand for.
#[derive(Debug, Clone, Copy)]
pub(super) struct SwappedFiles {
    pub(super) number: i32,
    pub(super) good: i32,
    pub(super) bad: i32,
}

/// The only one: a control file of the caller's, new for every call, and another tenant's.
pub(super) const FILES: SwappedFiles = SwappedFiles {
    number: 200,
    good: 201,
    bad: 202,
};

/// The mark of the caller's file.
pub(super) const MARK: i32 = libc::O_NONBLOCK;

impl SwappedFiles {
    /// Whether the number stands for the caller's file now. That one alone is marked, by a flag
    /// that means nothing to the driver. (`kcmp(2)` is not in every kernel.)
    pub(super) fn looks_good(&self) -> bool {
        sys::file_flags(self.number).is_ok_and(|flags| flags & MARK != 0)
    }

    /// Closes all, those of them that are open.
    pub(super) fn close_all() {
        for fd in [FILES.number, FILES.good, FILES.bad] {
            let _ = sys::close(fd);
        }
    }
}

/// A call with a field in it.
#[derive(Debug, Clone)]
pub(super) struct RacedCall {
    pub(super) uvm: bool,
    pub(super) request: u32,
    pub(super) outer: Vec<u8>,
    pub(super) params: Vec<u8>,
    /// The attacker's parameters, if they differ in more than the field.
    pub(super) other_params: Option<Vec<u8>>,
    pub(super) patch: Patch,
    /// The field says the same all the time, and what it stands for changes.
    pub(super) files: Option<SwappedFiles>,
    /// A handle that is another one in every call of a batch: its offset in the argument.
    pub(super) counted: Option<usize>,
    pub(super) judge: Judge,
}

impl RacedCall {
    /// With the handles of the call of that number in its batch.
    pub(super) fn numbered(&self, number: u32) -> Self {
        let mut case = self.clone();
        if let Some(at) = case.counted {
            put_u32(&mut case.outer, at, FIRST + number);
        }
        if case.judge == Judge::Accounting && case.counted.is_none() {
            // The field itself is the handle: of an even and an odd one.
            case.patch.good = u64::from(FIRST + 2 * number);
            case.patch.bad = u64::from(FIRST + 2 * number + 1);
            if case.uvm {
                put_u64(&mut case.outer, 0, base(number));
            }
        }
        case
    }

    /// The places where the field can be in the scratch of a process that makes one call at a time:
    /// the first place, and how many there are, two pages apart. Both parts are on one page,
    /// another one with each call, or each has whole pages, always the same, with a free one before
    /// it.
    pub(super) fn places_in_scratch(&self) -> (u64, u64) {
        let pages = |part: &[u8]| (part.len() as u64).div_ceil(PAGE);
        let second = (self.outer.len() as u64).next_multiple_of(64);
        match self.patch.part {
            _ if second + self.params.len() as u64 > PAGE => match self.patch.part {
                0 => (PAGE + self.patch.offset, 1),
                _ => ((2 + pages(&self.outer)) * PAGE + self.patch.offset, 1),
            },
            0 => (PAGE + self.patch.offset, 15),
            _ => (PAGE + second + self.patch.offset, 15),
        }
    }

    /// Argument and parameters.
    pub(super) fn pages(&self, hostile: bool) -> (Vec<u8>, Vec<u8>) {
        let (mut outer, mut params) = (self.outer.clone(), self.params.clone());
        if let (true, Some(other)) = (hostile, &self.other_params) {
            params.clone_from(other);
        }
        let value = if hostile {
            self.patch.bad
        } else {
            self.patch.good
        };
        let page = if self.patch.part == 0 {
            &mut outer
        } else {
            &mut params
        };
        let at = usize::try_from(self.patch.offset).unwrap_or(0);
        match self.patch.width {
            8 => put_u64(page, at, value),
            _ => put_u32(page, at, u32::try_from(value).unwrap_or(0)),
        }
        (outer, params)
    }

    /// The driver's checksum of parameters that are as they should be.
    pub(super) fn sum(&self) -> u64 {
        let bytes = self.pages(false).1;
        // FNV-1a, as in the stand-in's README.
        bytes.iter().fold(0xCBF2_9CE4_8422_2325, |sum, byte| {
            (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01B3)
        })
    }
}

/// The address of a numbered call's range.
pub(super) fn base(number: u32) -> u64 {
    BASE + u64::from(number) * (LARGE << 4)
}
