// SPDX-License-Identifier: GPL-2.0
//! Ways of taking a mapping away from a program, or of putting another one in its place.
//!
//! Each is a system call that the kernel must refuse for a sealed mapping. They touch no memory and
//! allocate none, so that a process which shares the memory of another (`CLONE_VM`) can make them.

use std::sync::atomic::{
    AtomicBool, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};

use crate::sys;

/// A mapping that is to be taken away, and a page elsewhere that may be used for that.
#[derive(Clone, Copy)]
pub(super) struct Taken {
    start: u64,
    length: u64,
    spare: u64,
    /// System V's shared memory, as long as the mapping.
    segment: i32,
}

const PAGE: u64 = 4096;

/// A way, by name: whether the kernel let it happen.
type Attempt = (&'static str, fn(&Taken) -> bool);

/// All of them.
pub(super) const WAYS: &[Attempt] = &[
    ("munmap of all", |it| unmaps(it.start, it.length)),
    ("munmap of a page", |it| unmaps(it.start, PAGE)),
    ("munmap of the last page", |it| {
        unmaps(it.start + it.length - PAGE, PAGE)
    }),
    ("mmap over all", |it| maps_over(it.start, it.length)),
    ("mmap over a page", |it| maps_over(it.start + PAGE, PAGE)),
    ("mremap over it", |it| {
        it.has_spare() && moves(it.spare, PAGE, it.start + PAGE)
    }),
    ("mremap of a page", |it| {
        moves(it.start + PAGE, PAGE, it.spare)
    }),
    ("mremap of all", |it| moves(it.start, it.length, it.spare)),
    ("mremap to less", |it| shrinks(it.start, it.length)),
    ("mprotect", |it| {
        protects(it.start, it.length, libc::PROT_NONE)
    }),
    ("mprotect of a page", |it| {
        protects(it.start + PAGE, PAGE, libc::PROT_READ)
    }),
    ("brk", |it| lowers_break(it.start, it.start + it.length)),
    ("shmat over it", |it| attaches(it.segment, it.start)),
    ("remap_file_pages of a page", |it| shifts(it.start, PAGE)),
    ("remap_file_pages of all", |it| shifts(it.start, it.length)),
    ("MADV_DONTNEED", |it| {
        advises(it.start, it.length, libc::MADV_DONTNEED)
    }),
    ("MADV_REMOVE", |it| {
        advises(it.start, it.length, libc::MADV_REMOVE)
    }),
    ("MADV_DOFORK", |it| {
        advises(it.start, it.length, libc::MADV_DOFORK)
    }),
];

fn at(address: u64) -> *mut libc::c_void {
    address as *mut libc::c_void
}

fn size(length: u64) -> usize {
    usize::try_from(length).unwrap_or(0)
}

fn unmaps(start: u64, length: u64) -> bool {
    // SAFETY: Nothing of the program's own lies there.
    unsafe { libc::munmap(at(start), size(length)) == 0 }
}

fn maps_over(start: u64, length: u64) -> bool {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
    // SAFETY: Nothing of the program's own lies there.
    let made = unsafe { libc::mmap(at(start), size(length), libc::PROT_READ, flags, -1, 0) };
    made != libc::MAP_FAILED
}

fn moves(from: u64, length: u64, to: u64) -> bool {
    let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
    // SAFETY: Nothing of the program's own lies at either place.
    let moved = unsafe { libc::mremap(at(from), size(length), size(length), flags, at(to)) };
    moved != libc::MAP_FAILED
}

fn shrinks(start: u64, length: u64) -> bool {
    // SAFETY: Nothing of the program's own lies there.
    let left = unsafe { libc::mremap(at(start), size(length), size(PAGE), 0) };
    left != libc::MAP_FAILED
}

fn protects(start: u64, length: u64, protection: i32) -> bool {
    // SAFETY: Nothing of the program's own lies there.
    unsafe { libc::mprotect(at(start), size(length), protection) == 0 }
}

fn advises(start: u64, length: u64, advice: i32) -> bool {
    // SAFETY: Nothing of the program's own lies there.
    unsafe { libc::madvise(at(start), size(length), advice) == 0 }
}

fn attaches(segment: i32, start: u64) -> bool {
    // SAFETY: Nothing of the program's own lies there.
    let made = unsafe { libc::shmat(segment, at(start), libc::SHM_REMAP) };
    made as isize != -1
}

fn shifts(start: u64, length: u64) -> bool {
    // SAFETY: Nothing of the program's own lies there.
    unsafe { libc::syscall(libc::SYS_remap_file_pages, start, length, 0, 1, 0) == 0 }
}

/// Says that the program's heap ends behind the mapping, and lowers that end to its beginning. The
/// heap that the program has must not grow any more.
fn lowers_break(start: u64, end: u64) -> bool {
    // struct prctl_mm_map: code, data, heap, stack, arguments, environment; no auxiliary vector, no
    // file.
    let mut map = [
        start, end, start, end, start, end, start, start, end, start, end, 0, 0,
    ];
    map[12] = u64::from(u32::MAX) << 32;
    // SAFETY: The map lives over the call.
    let told = unsafe {
        let (what, size) = (libc::PR_SET_MM_MAP, size_of_val(&map));
        libc::prctl(libc::PR_SET_MM, what, map.as_ptr(), size, 0)
    };
    // SAFETY: Nothing of the program's own lies there.
    told == 0 && unsafe { libc::syscall(libc::SYS_brk, start) } as u64 == start
}

impl Taken {
    /// The mapping that begins at `start` and has `length` bytes.
    pub(super) fn new((start, length): (u64, u64)) -> Result<Self, String> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let spare = sys::mmap(0, length, libc::PROT_READ, flags, -1, 0);
        let spare = spare.map_err(|e| format!("mmap: errno {e}"))?;
        // SAFETY: Takes no pointer.
        let segment = unsafe { libc::shmget(libc::IPC_PRIVATE, size(length), 0o600) };
        if segment < 0 {
            return Err(format!("shmget: errno {}", sys::errno()));
        }
        Ok(Self {
            start,
            length,
            spare,
            segment,
        })
    }

    /// Maps the spare place anew, of which an `mremap` to it has taken away what was there.
    fn has_spare(&self) -> bool {
        maps_over(self.spare, self.length)
    }

    /// The first way that the kernel does not refuse.
    pub(super) fn first_taken(&self) -> Option<&'static str> {
        let mut ways = WAYS.iter();
        ways.find(|(_, way)| way(self)).map(|(name, _)| *name)
    }

    /// Gives back what the ways needed.
    pub(super) fn close(self) {
        unmaps(self.spare, self.length);
        // SAFETY: The segment is this program's own.
        unsafe { libc::shmctl(self.segment, libc::IPC_RMID, std::ptr::null_mut()) };
    }
}

/// An attacker that tries all ways, over and over.
pub(super) struct Trying {
    pub(super) taken: Taken,
    pub(super) stop: AtomicBool,
    /// How often all were tried.
    pub(super) rounds: AtomicU64,
    /// The number of a way that was not refused, and 1.
    pub(super) worked: AtomicU64,
}

impl Trying {
    pub(super) fn new(taken: Taken) -> Self {
        Self {
            taken,
            stop: AtomicBool::new(false),
            rounds: AtomicU64::new(0),
            worked: AtomicU64::new(0),
        }
    }

    /// Tries until it is to stop, or one way is not refused.
    pub(super) fn run(&self) {
        while !self.stop.load(Acquire) {
            for (number, (_, way)) in (1..).zip(WAYS) {
                if way(&self.taken) {
                    self.worked.store(number, Release);
                    return;
                }
            }
            self.rounds.fetch_add(1, Relaxed);
        }
    }

    /// The way that was not refused.
    pub(super) fn worked(&self) -> Option<&'static str> {
        let number = usize::try_from(self.worked.load(Acquire)).ok()?;
        WAYS.get(number.checked_sub(1)?).map(|(name, _)| *name)
    }
}

extern "C" fn try_on(trying: *mut libc::c_void) -> i32 {
    // SAFETY: `beside` waits for this process before it gives the value back.
    let trying = unsafe { &*trying.cast::<Trying>() };
    trying.run();
    0
}

/// Runs `work` while another process, with the same memory, tries.
pub(super) fn beside<T>(trying: &Trying, work: impl FnOnce() -> T) -> Result<T, String> {
    let mut stack = vec![0_u64; 8192];
    let top = stack.as_mut_ptr_range().end;
    // SAFETY: The stack and the value live until the process has been waited for. It makes system
    // calls, whose errno it may write where this thread has its own, and atomic operations.
    let pid = unsafe {
        let flags = libc::CLONE_VM | libc::SIGCHLD;
        let trying = (&raw const *trying).cast_mut();
        libc::clone(try_on, top.cast(), flags, trying.cast())
    };
    if pid < 0 {
        return Err(format!("clone: errno {}", sys::errno()));
    }
    let result = work();
    trying.stop.store(true, Release);
    match sys::wait(pid) {
        Ok(0) => Ok(result),
        Ok(status) => Err(format!("the other process ended with status {status:#x}")),
        Err(e) => Err(format!("wait: errno {e}")),
    }
}
