// SPDX-License-Identifier: GPL-2.0
//! Ways of changing the memory of a call behind its caller's back.
//!
//! Each writes the field, over and over, as it should be and as it should not, where the caller has
//! it; and now and then what it should not be where the module's scratch has it.

use std::{
    os::fd::{FromRawFd, OwnedFd, RawFd},
    sync::{
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
        Arc,
    },
    thread::JoinHandle,
};

use io_uring::{opcode, types, IoUring};

use super::{
    case::{Method, RacedCall, SwappedFiles, PAGE},
    stage::Stage,
};
use crate::sys;

/// Every so many writes one goes to the scratch.
const SCRATCH_EVERY: u64 = 8;

/// State that attackers and the caller share.
#[derive(Default)]
struct Shared {
    stop: AtomicBool,
    writes: AtomicU64,
    into_scratch: AtomicU64,
}

/// The attackers' target: places and bytes.
#[derive(Clone, Copy)]
struct Target {
    live: u64,
    file: i32,
    field: u64,
    /// The first place in the scratch, and how many there are.
    scratch: Option<(u64, u64)>,
    width: u8,
    good: u64,
    bad: u64,
    files: Option<SwappedFiles>,
}

impl Target {
    /// The bytes and the place of the write with this number.
    fn turn(&self, number: u64) -> (u64, bool, bool) {
        match self.scratch {
            Some((first, places)) if number % SCRATCH_EVERY == 0 => {
                let place = number / SCRATCH_EVERY % places;
                (first + place * 2 * PAGE, true, true)
            }
            _ => (self.field, number % 2 == 0, false),
        }
    }

    fn value(&self, hostile: bool) -> [u8; 8] {
        if hostile { self.bad } else { self.good }.to_le_bytes()
    }
}

/// An method that goes on until it is stopped.
pub(super) struct Methoders {
    shared: Arc<Shared>,
    thread: JoinHandle<()>,
}

impl Methoders {
    /// Ends it; how many writes there were, and how many into the scratch that were not refused.
    pub(super) fn stop(self) -> (u64, u64) {
        self.shared.stop.store(true, Relaxed);
        let _ = self.thread.join();
        let shared = &self.shared;
        (
            shared.writes.load(Relaxed),
            shared.into_scratch.load(Relaxed),
        )
    }
}

/// Begins an method.
pub(super) fn start(
    method: Method,
    stage: &Stage,
    case: &RacedCall,
    scratch: Option<u64>,
) -> Result<Methoders, String> {
    // The fields of calls with numbers are those of the first call.
    let case = case.numbered(0);
    let target = Target {
        live: stage.live,
        file: stage.file,
        field: stage.live + case.patch.place(),
        scratch: scratch.map(|at| {
            let (first, places) = case.places_in_scratch();
            (at + first, places)
        }),
        width: case.patch.width,
        good: case.patch.good,
        bad: case.patch.bad,
        files: case.files,
    };
    if method == Method::Discard && !Stage::show(stage.live, stage.file, true, true) {
        return Err("a private stage".into());
    }
    let shared = Arc::new(Shared::default());
    let theirs = Arc::clone(&shared);
    let (ready, go) = std::sync::mpsc::channel();
    let thread = std::thread::spawn(move || {
        let failed = run(method, &target, &theirs, &ready).err();
        let _ = ready.send(failed);
    });
    match go.recv() {
        Ok(None) => Ok(Methoders { shared, thread }),
        Ok(Some(why)) => Err(format!("{method:?}: {why}")),
        Err(_) => Err(format!("{method:?} ended")),
    }
}

type Ready = std::sync::mpsc::Sender<Option<String>>;

/// Takes turns until it is to stop. `write` says whether what it wrote was taken.
fn turns(
    target: &Target,
    shared: &Shared,
    ready: &Ready,
    mut write: impl FnMut(u64, bool) -> bool,
) {
    let mut number = 0;
    while !shared.stop.load(Relaxed) {
        let (at, hostile, in_scratch) = target.turn(number);
        let taken = write(at, hostile);
        shared.writes.fetch_add(1, Relaxed);
        if in_scratch && taken {
            shared.into_scratch.fetch_add(1, Relaxed);
        }
        if number == 0 {
            let _ = ready.send(None);
        }
        number += 1;
    }
}

fn run(method: Method, target: &Target, shared: &Shared, ready: &Ready) -> Result<(), String> {
    let failed = |what: &'static str| move |e: i32| format!("{what}: errno {e}");
    let width = usize::from(target.width);
    match method {
        Method::Store => turns(target, shared, ready, |at, hostile| {
            store(at, u64::from_le_bytes(target.value(hostile)), target.width);
            // A refused store does not tell: see `survive_refused_stores`.
            false
        }),
        Method::OtherProcess => other_process(target, shared, ready)?,
        Method::Read => {
            let values = values(target).map_err(failed("values"))?;
            let fd = raw(&values);
            turns(target, shared, ready, |at, hostile| {
                // SAFETY: The address is one of the stage's or of the scratch; the kernel checks
                // it.
                let read = unsafe {
                    libc::pread(fd, at as *mut libc::c_void, width, i64::from(hostile) * 8)
                };
                read > 0
            });
        }
        Method::Receive => {
            let mut ends = [0; 2];
            // SAFETY: `ends` has room for two descriptors.
            if unsafe { libc::socketpair(libc::AF_UNIX, libc::SOCK_STREAM, 0, ends.as_mut_ptr()) }
                < 0
            {
                return Err(failed("sockets")(sys::errno()));
            }
            // SAFETY: Both were just made and are nobody else's.
            let ends = ends.map(|fd| unsafe { OwnedFd::from_raw_fd(fd) });
            let (send, receive) = (raw(&ends[0]), raw(&ends[1]));
            turns(target, shared, ready, |at, hostile| {
                let value = target.value(hostile);
                // SAFETY: The value lives over the call; of the other address see `Read`.
                unsafe {
                    libc::send(send, value.as_ptr().cast(), width, 0);
                    let flags = libc::MSG_DONTWAIT;
                    let got = libc::recv(receive, at as *mut libc::c_void, width, flags);
                    if got <= 0 {
                        // Bytes that could not be written are still in the socket.
                        let mut rest = [0_u8; 64];
                        libc::recv(receive, rest.as_mut_ptr().cast(), 64, flags);
                    }
                    got > 0
                }
            });
        }
        Method::VmWrite => {
            // SAFETY: Takes no pointer.
            let own = unsafe { libc::getpid() };
            turns(target, shared, ready, |at, hostile| {
                let mut value = target.value(hostile);
                let from = libc::iovec {
                    iov_base: value.as_mut_ptr().cast(),
                    iov_len: width,
                };
                let to = libc::iovec {
                    iov_base: at as *mut libc::c_void,
                    iov_len: width,
                };
                // SAFETY: Both vectors live over the call; of the other address see `Read`.
                unsafe { libc::process_vm_writev(own, &from, 1, &to, 1, 0) > 0 }
            });
        }
        Method::Uring => uring(target, shared, ready)?,
        Method::Remap => turns(target, shared, ready, |_, hostile| {
            Stage::show(target.live, target.file, hostile, false);
            false
        }),
        Method::Move => turns(target, shared, ready, |_, hostile| {
            // Made elsewhere, and moved over what is there.
            let _ = Stage::move_over(target.live, target.file, hostile);
            false
        }),
        Method::Discard => turns(target, shared, ready, |_, _| {
            let page = target.field & !(PAGE - 1);
            // SAFETY: The page is the stage's, which nothing but raw reads and writes touches.
            unsafe { libc::madvise(page as *mut libc::c_void, 4096, libc::MADV_DONTNEED) };
            false
        }),
        Method::Descriptor => {
            let files = target.files.ok_or("no files to exchange")?;
            turns(target, shared, ready, |_, hostile| {
                let file = if hostile { files.bad } else { files.good };
                let _ = sys::dup2(file, files.number);
                false
            });
        }
    }
    Ok(())
}

fn raw(fd: &OwnedFd) -> RawFd {
    std::os::fd::AsRawFd::as_raw_fd(fd)
}

/// A file with both values, 8 bytes each.
fn values(target: &Target) -> Result<OwnedFd, i32> {
    let fd = sys::memory_file(c"values")?;
    // SAFETY: The descriptor was just made and is nobody else's.
    let file = unsafe { OwnedFd::from_raw_fd(fd) };
    let bytes = [target.value(false), target.value(true)].concat();
    // SAFETY: The bytes live over the call.
    let written = unsafe { libc::pwrite(raw(&file), bytes.as_ptr().cast(), bytes.len(), 0) };
    if written == 16 {
        Ok(file)
    } else {
        Err(sys::errno())
    }
}

fn uring(target: &Target, shared: &Shared, ready: &Ready) -> Result<(), String> {
    let values = values(target).map_err(|e| format!("values: errno {e}"))?;
    let fd = types::Fd(raw(&values));
    let mut ring = IoUring::new(4).map_err(|e| format!("io_uring: {e}"))?;
    turns(target, shared, ready, |at, hostile| {
        let read = opcode::Read::new(fd, at as *mut u8, u32::from(target.width));
        let entry = read.offset(u64::from(hostile) * 8).build();
        // SAFETY: The file lives as long as the ring; of the address see `Method::Read`.
        let pushed = unsafe { ring.submission().push(&entry) };
        if pushed.is_err() || ring.submit_and_wait(1).is_err() {
            return false;
        }
        ring.completion().all(|done| done.result() > 0)
    });
    Ok(())
}

/// One store of 4 or 8 bytes, in one of the two forms that `skip_store` knows.
fn store(at: u64, value: u64, width: u8) {
    // SAFETY: The address is the stage's, which nothing but raw reads and writes touches, or the
    // scratch's, where the store is refused and skipped.
    unsafe {
        if width == 8 {
            std::arch::asm!("mov qword ptr [rdi], rsi", in("rdi") at, in("rsi") value);
        } else {
            std::arch::asm!("mov dword ptr [rdi], esi", in("rdi") at, in("rsi") value);
        }
    }
}

/// Goes on behind the store that was refused.
extern "C" fn skip_store(_: i32, _: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: The kernel passes the context of the interrupted code, which was in `store`: its
    // instruction pointer can be read, and is moved behind the instruction.
    unsafe {
        let context = context.cast::<libc::ucontext_t>();
        let place = &mut (*context).uc_mcontext.gregs[libc::REG_RIP as usize];
        // 48 89 37 or 89 37.
        *place += if *(*place as *const u8) == 0x48 { 3 } else { 2 };
    }
}

/// Lets stores into the scratch be refused without an end of the program.
pub(super) fn survive_refused_stores() {
    // SAFETY: The handler touches nothing but the interrupted context.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = skip_store as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO;
        libc::sigaction(libc::SIGBUS, &action, std::ptr::null_mut());
    }
}

/// The other process's needs; it must not use the thread-local data that it has in common with
/// us.
struct CloneOrder {
    target: Target,
    shared: *const Shared,
}

extern "C" fn store_on(order: *mut libc::c_void) -> i32 {
    // SAFETY: The parent waits for this process before it drops the order.
    let (target, shared) = unsafe {
        let order = order.cast::<CloneOrder>();
        ((*order).target, &*(*order).shared)
    };
    let mut number = 0;
    while !shared.stop.load(Relaxed) {
        let (at, hostile, _) = target.turn(number);
        store(at, u64::from_le_bytes(target.value(hostile)), target.width);
        shared.writes.fetch_add(1, Relaxed);
        number += 1;
    }
    0
}

fn other_process(target: &Target, shared: &Shared, ready: &Ready) -> Result<(), String> {
    let mut stack = vec![0_u64; 8192];
    let mut order = CloneOrder {
        target: *target,
        shared,
    };
    let top = stack.as_mut_ptr_range().end;
    // SAFETY: The stack and the order live until the process has been waited for; it makes stores
    // and atomic operations alone.
    let pid = unsafe {
        let flags = libc::CLONE_VM | libc::SIGCHLD;
        libc::clone(store_on, top.cast(), flags, (&raw mut order).cast())
    };
    if pid < 0 {
        return Err(format!("clone: errno {}", sys::errno()));
    }
    while shared.writes.load(Relaxed) == 0 {
        std::thread::yield_now();
    }
    let _ = ready.send(None);
    match sys::wait(pid) {
        Ok(0) => Ok(()),
        Ok(status) => Err(format!("it ended with status {status:#x}")),
        Err(e) => Err(format!("wait: errno {e}")),
    }
}
