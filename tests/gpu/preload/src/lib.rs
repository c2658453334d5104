// SPDX-License-Identifier: GPL-2.0
//! The preloaded library: takes the place of the C library's functions that open, call, map and
//! close the driver's files, and runs the module's code there.
//!
//! The environment says what it does: an instance (`CGPU_GPU_STATE`), a recording
//! (`CGPU_GPU_RECORD`), both or neither. NVIDIA's libraries are linked with the C library, so this
//! sees all that they do; a program with system calls of its own goes past it. It must not be
//! linked with anything: a program that has it has these functions for all its files, and for all
//! but the driver's they do what they always did.
//!
//! The C library's functions are variadic. On x86-64 a variadic argument is passed as any other, so
//! they can be defined with all the arguments that they may have.

use std::{
    ffi::CStr,
    sync::{
        atomic::{AtomicI32, AtomicU64, Ordering},
        Mutex,
    },
};

use cgpu_gpu::{
    arena::Allocator,
    call,
    record::Mmap,
    state::{Place, State},
    sys,
};
use cgpu_km::{policy::GpuId, proxy::Role};
use libc::{c_char, c_int, c_long, c_void, msghdr};

mod channels;
mod nodes;
mod setting;
mod sockets;
mod stat;

use nodes::*;
use setting::{setting, SETTING};

#[global_allocator]
static ALLOCATOR: Allocator = Allocator;

/// Addresses of mappings of the driver's files, for the recording of `munmap`.
static MAPPED: Mutex<Vec<u64>> = Mutex::new(Vec::new());
static MAPPINGS: AtomicU64 = AtomicU64::new(0);

/// The process whose descriptors these are. A child of `vfork` runs in its parent's memory and has
/// descriptors of its own until it runs its program: what it closes is none of the parent's.
static PROCESS: AtomicI32 = AtomicI32::new(0);

/// Whether the descriptors are this process's.
fn is_own() -> bool {
    PROCESS.load(Ordering::Relaxed) == sys::process()
}

/// Runs when the library is loaded, before the program.
extern "C" fn begin() {
    PROCESS.store(sys::process(), Ordering::Relaxed);
    setting();
    // SAFETY: The handler takes no argument and lives as long as the library, which is for good.
    unsafe { libc::pthread_atfork(None, None, Some(forked)) };
}

#[used]
#[link_section = ".init_array"]
static BEGIN: extern "C" fn() = begin;

/// Runs when the program ends in good order.
extern "C" fn end() {
    if let Some(times) = SETTING.get().and_then(|setting| setting.times.as_ref()) {
        times.write();
    }
}

#[used]
#[link_section = ".fini_array"]
static END: extern "C" fn() = end;

/// In the child of a fork: it has the parent's files, too.
extern "C" fn forked() {
    sys::forked();
    PROCESS.store(sys::process(), Ordering::Relaxed);
    let Some(setting) = SETTING.get() else { return };
    if let Some(times) = &setting.times {
        times.forked();
    }
    if let Some(state) = setting.state {
        for (place, uses) in USES.iter().enumerate() {
            if uses.load(Ordering::Relaxed) != 0 {
                state.hold(Place::new(place));
            }
        }
    }
}

/// `openat(2)`, with what it is to the instance.
///
/// # Safety
///
/// `path` is a string of C.
unsafe fn open_at(folder: c_int, path: *const c_char, flags: c_int, mode: c_int) -> i64 {
    // CAST: registers are 64 bits wide.
    let arguments = [folder as u64, path as u64, flags as u64, mode as u64, 0, 0];
    // SAFETY: `path` is a string of C, which is all that this call reads.
    let open = || unsafe { sys::call(libc::SYS_openat, arguments) };
    if path.is_null() {
        return open();
    }
    // SAFETY: It is a string of C, as the contract says, and not null.
    let text = unsafe { CStr::from_ptr(path) };
    if !text.to_bytes().starts_with(b"/dev/nvidia") {
        return open();
    }
    let setting = setting();
    let opened = match (is_absent(text), node(text)) {
        (true, _) => -i64::from(libc::ENOENT),
        (false, Some(node)) => open_node(node, setting.state, open),
        (false, None) => open(),
    };
    if let Some(recorder) = &setting.recorder {
        recorder.open(&text.to_string_lossy(), flags, opened);
    }
    opened
}

fn open_node(node: u32, state: Option<&'static State>, open: impl FnOnce() -> i64) -> i64 {
    let mut role = match node & GPU {
        CONTROL => Role::Control,
        _ => Role::Uvm,
    };
    if let (GPU, Some(gpu)) = (node & GPU, state.and_then(|state| gpu_of(state, node))) {
        role = Role::Gpu(GpuId(gpu.facts.device_instance));
    }
    let fd = open();
    let Some(descriptor) = i32::try_from(fd).ok().and_then(descriptor) else {
        return fd;
    };
    let mut value = node;
    if let Some(state) = state {
        let Some(place) = state.open(role) else {
            // CAST: it is a descriptor.
            close_raw(fd as c_int);
            return -i64::from(libc::ENFILE);
        };
        USES[place.number()].store(1, Ordering::Relaxed);
        // CAST: below 2^16.
        value |= place.number() as u32;
    }
    descriptor.store(value, Ordering::Relaxed);
    fd
}

fn close_raw(fd: c_int) -> i64 {
    // SAFETY: Closes what the caller gave up. CAST: registers are 64 bits wide.
    unsafe { sys::call(libc::SYS_close, [fd as u64, 0, 0, 0, 0, 0]) }
}

/// `close(2)`. The number is free for others as soon as it is closed, so it is forgotten before.
fn close_fd(fd: c_int) -> i64 {
    if known(fd).is_none() || !is_own() {
        return close_raw(fd);
    }
    let before = descriptor(fd).map_or(0, |d| d.swap(0, Ordering::Relaxed));
    let result = close_raw(fd);
    if before != 0 {
        forget(before);
        if let Some(recorder) = &setting().recorder {
            recorder.close(fd, &path_of(before));
        }
    }
    result
}

/// One descriptor less of a file.
fn forget(node: u32) {
    if let Some(state) = setting().state {
        let place = place(node);
        if USES[place.number()].fetch_sub(1, Ordering::Relaxed) == 1 {
            state.close(place);
        }
    }
}

/// `to` is now what `from` is.
fn duplicated(from: c_int, to: i64) {
    let Some(to) = i32::try_from(to).ok().and_then(descriptor) else {
        return;
    };
    if !is_own() {
        return;
    }
    let value = known(from).unwrap_or(0);
    if value != 0 && setting().state.is_some() {
        USES[place(value).number()].fetch_add(1, Ordering::Relaxed);
    }
    let before = to.swap(value, Ordering::Relaxed);
    if before != 0 {
        forget(before);
    }
}

fn ioctl_fd(fd: c_int, request: u64, argument: u64) -> i64 {
    // SAFETY: The program makes this call, with arguments that are its own affair.
    let forward = || unsafe { sys::ioctl(fd, request, argument) };
    let Some(node) = known(fd) else {
        return forward();
    };
    let setting = setting();
    let decide = || match setting.state {
        Some(state) => {
            let find = |fd| known(fd).map(place);
            let answer = call::ioctl(state, (place(node), find), fd, request, argument);
            if answer == 0 {
                channels::learn(state, fd, request, argument);
            }
            answer
        }
        None => forward(),
    };
    let run = || match &setting.times {
        Some(times) => times.of(node & GPU == UVM, request, argument, decide),
        None => decide(),
    };
    match &setting.recorder {
        Some(recorder) => {
            let path = path_of(node);
            let before = recorder.before(&path, request, argument);
            let answer = run();
            recorder.after(&before, fd, &path, request, answer);
            answer
        }
        None => run(),
    }
}

fn mmap_fd(call: Mmap) -> i64 {
    // CAST: registers are 64 bits wide.
    let arguments = [
        call.addr,
        call.len,
        call.prot as u64,
        call.flags as u64,
        call.fd as u64,
        call.offset,
    ];
    // SAFETY: The program makes this call, with arguments that are its own affair.
    let at = unsafe { sys::call(libc::SYS_mmap, arguments) };
    if let (Some(_), Some(state), Ok(start)) = (known(call.fd), setting().state, u64::try_from(at))
    {
        channels::map(state, call.fd, start, call.len);
    }
    // The mapping replaces those that were there before.
    if let (Some(state), Ok(start)) = (setting().state, u64::try_from(at)) {
        let pages = call.len.next_multiple_of(4096);
        call::unmapped(state, start, pages);
        let node = known(call.fd);
        if node.is_some_and(|node| !call::mapped(state, place(node), call.fd, start, pages)) {
            give_up(start, pages, call.flags);
            return -i64::from(libc::ENOMEM);
        }
    }
    if let (Some(node), Some(recorder)) = (known(call.fd), &setting().recorder) {
        recorder.mmap(&call, &path_of(node), at);
        if let (Ok(at), Ok(mut mapped)) = (u64::try_from(at), MAPPED.lock()) {
            mapped.push(at);
            MAPPINGS.fetch_add(1, Ordering::Relaxed);
        }
    }
    at
}

/// Takes away what was mapped, as a kernel does whose file refuses it: a place that the program has
/// chosen stays reserved (`vms_abort_munmap_vmas()` in mm/vma.c, since 6.12).
fn give_up(start: u64, pages: u64, flags: c_int) {
    // CAST: registers are 64 bits wide.
    let reserve = [
        start,
        pages,
        libc::PROT_NONE as u64,
        (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED) as u64,
        u64::MAX,
        0,
    ];
    // SAFETY: The program has not been told yet that anything is mapped there.
    unsafe {
        match flags & libc::MAP_FIXED {
            0 => sys::call(libc::SYS_munmap, [start, pages, 0, 0, 0, 0]),
            _ => sys::call(libc::SYS_mmap, reserve),
        };
    }
}

fn munmap_range(addr: u64, len: u64) -> i64 {
    let mut had_ours = false;
    if MAPPINGS.load(Ordering::Relaxed) != 0 {
        if let Ok(mut mapped) = MAPPED.lock() {
            let end = addr.saturating_add(len);
            mapped.retain(|at| {
                let inside = (addr..end).contains(at);
                had_ours |= inside;
                !inside
            });
        }
    }
    // SAFETY: The program makes this call, with arguments that are its own affair.
    let result = unsafe { sys::call(libc::SYS_munmap, [addr, len, 0, 0, 0, 0]) };
    if let (Some(state), 0) = (setting().state, result) {
        call::unmapped(state, addr, len.next_multiple_of(4096));
    }
    if let (true, Some(recorder)) = (had_ours, &setting().recorder) {
        recorder.munmap(addr, len, result);
    }
    result
}

/// Defines the C library's functions that open a file. On 64-bit machines those with 64 in their
/// names are the same as the others.
macro_rules! opens {
    ($($doc:literal, $($name:ident)+, $arguments:tt => $open:expr;)+) => {$($(
        #[doc = $doc]
        ///
        /// # Safety
        ///
        /// As the C library's.
        #[no_mangle]
        pub unsafe extern "C" fn $name $arguments -> c_int {
            // SAFETY: The C library's function has the same contract.
            result(unsafe { $open })
        }
    )+)+};
}

opens! {
    "`open(3)`.", open open64, (path: *const c_char, flags: c_int, mode: c_int)
        => open_at(libc::AT_FDCWD, path, flags, mode);
    "`openat(3)`.", openat openat64,
        (folder: c_int, path: *const c_char, flags: c_int, mode: c_int)
        => open_at(folder, path, flags, mode);
    "What `open` is where the program was compiled with checks (`_FORTIFY_SOURCE`).",
        __open_2 __open64_2, (path: *const c_char, flags: c_int)
        => open_at(libc::AT_FDCWD, path, flags, 0);
}

/// `close(3)`.
#[no_mangle]
pub extern "C" fn close(fd: c_int) -> c_int {
    result(close_fd(fd))
}

fn dup_fd(fd: c_int) -> i64 {
    // SAFETY: Makes a descriptor. CAST: registers are 64 bits wide.
    let to = unsafe { sys::call(libc::SYS_dup, [fd as u64, 0, 0, 0, 0, 0]) };
    duplicated(fd, to);
    to
}

/// `dup(3)`.
#[no_mangle]
pub extern "C" fn dup(fd: c_int) -> c_int {
    result(dup_fd(fd))
}

fn dup2_fd(fd: c_int, wanted: c_int) -> i64 {
    // SAFETY: The program makes this call for descriptors of its own.
    // CAST: registers are 64 bits wide.
    let to = unsafe { sys::call(libc::SYS_dup2, [fd as u64, wanted as u64, 0, 0, 0, 0]) };
    if fd != wanted {
        duplicated(fd, to);
    }
    to
}

/// `dup2(3)`.
#[no_mangle]
pub extern "C" fn dup2(fd: c_int, wanted: c_int) -> c_int {
    result(dup2_fd(fd, wanted))
}

fn dup3_fd(fd: c_int, wanted: c_int, flags: c_int) -> i64 {
    // CAST: registers are 64 bits wide.
    let arguments = [fd as u64, wanted as u64, flags as u64, 0, 0, 0];
    // SAFETY: The program makes this call for descriptors of its own.
    let to = unsafe { sys::call(libc::SYS_dup3, arguments) };
    duplicated(fd, to);
    to
}

/// `dup3(3)`.
#[no_mangle]
pub extern "C" fn dup3(fd: c_int, wanted: c_int, flags: c_int) -> c_int {
    result(dup3_fd(fd, wanted, flags))
}

fn fcntl_fd(fd: c_int, command: c_int, argument: u64) -> i64 {
    // SAFETY: The program makes this call for descriptors of its own.
    // CAST: registers are 64 bits wide.
    let answer = unsafe {
        sys::call(
            libc::SYS_fcntl,
            [fd as u64, command as u64, argument, 0, 0, 0],
        )
    };
    if matches!(command, libc::F_DUPFD | libc::F_DUPFD_CLOEXEC) {
        duplicated(fd, answer);
    }
    answer
}

/// `fcntl(3)`.
#[no_mangle]
pub extern "C" fn fcntl(fd: c_int, command: c_int, argument: u64) -> c_int {
    result(fcntl_fd(fd, command, argument))
}

/// `fcntl64(3)`: on 64-bit machines the same as [`fcntl`].
#[no_mangle]
pub extern "C" fn fcntl64(fd: c_int, command: c_int, argument: u64) -> c_int {
    result(fcntl_fd(fd, command, argument))
}

/// `ioctl(3)`.
#[no_mangle]
pub extern "C" fn ioctl(fd: c_int, request: u64, argument: u64) -> c_int {
    result(ioctl_fd(fd, request, argument))
}

/// `mmap(3)`.
#[no_mangle]
pub extern "C" fn mmap(
    addr: *mut c_void,
    len: usize,
    prot: c_int,
    flags: c_int,
    fd: c_int,
    offset: i64,
) -> *mut c_void {
    let call = Mmap {
        // CAST: registers are 64 bits wide, here and below.
        addr: addr as u64,
        len: len as u64,
        prot,
        flags,
        fd,
        offset: offset as u64,
    };
    to_c(mmap_fd(call)) as *mut c_void
}

/// `mmap64(3)`: on 64-bit machines the same as [`mmap`].
#[no_mangle]
pub extern "C" fn mmap64(
    addr: *mut c_void,
    len: usize,
    prot: c_int,
    flags: c_int,
    fd: c_int,
    offset: i64,
) -> *mut c_void {
    mmap(addr, len, prot, flags, fd, offset)
}

/// `munmap(3)`.
#[no_mangle]
pub extern "C" fn munmap(addr: *mut c_void, len: usize) -> c_int {
    // CAST: registers are 64 bits wide.
    result(munmap_range(addr as u64, len as u64))
}

/// `syscall(3)`: the same calls, made by their numbers.
///
/// # Safety
///
/// As the C library's.
#[no_mangle]
pub unsafe extern "C" fn syscall(
    number: c_long,
    a: u64,
    b: u64,
    c: u64,
    d: u64,
    e: u64,
    f: u64,
) -> c_long {
    // CAST: the kernel takes the low 32 bits of descriptors, flags and protections.
    let answer = match number {
        // SAFETY: The program gave syscall(2) these arguments for this call.
        libc::SYS_open => unsafe {
            open_at(libc::AT_FDCWD, a as *const c_char, b as c_int, c as c_int)
        },
        // SAFETY: The program gave syscall(2) these arguments for this call.
        libc::SYS_openat => unsafe {
            open_at(a as c_int, b as *const c_char, c as c_int, d as c_int)
        },
        libc::SYS_close => close_fd(a as c_int),
        libc::SYS_dup => dup_fd(a as c_int),
        libc::SYS_dup2 => dup2_fd(a as c_int, b as c_int),
        libc::SYS_dup3 => dup3_fd(a as c_int, b as c_int, c as c_int),
        // SAFETY: The program gave syscall(2) these arguments for this call.
        libc::SYS_sendmsg => unsafe { sockets::send(a as c_int, b as *const msghdr, c as c_int) },
        // SAFETY: The program gave syscall(2) these arguments for this call.
        libc::SYS_recvmsg => unsafe { sockets::receive(a as c_int, b as *mut msghdr, c as c_int) },
        libc::SYS_stat
        | libc::SYS_lstat
        | libc::SYS_newfstatat
        | libc::SYS_statx
        | libc::SYS_access
        | libc::SYS_faccessat => {
            let path = match number {
                libc::SYS_stat | libc::SYS_lstat | libc::SYS_access => a,
                _ => b,
            };
            // SAFETY: The program gave syscall(2) these arguments for this call.
            unsafe { stat::look(path as *const c_char, number, [a, b, c, d, e, f]) }
        }
        libc::SYS_ioctl => ioctl_fd(a as c_int, b, c),
        libc::SYS_fcntl => fcntl_fd(a as c_int, b as c_int, c),
        libc::SYS_mmap => mmap_fd(Mmap {
            addr: a,
            len: b,
            prot: c as c_int,
            flags: d as c_int,
            fd: e as c_int,
            offset: f,
        }),
        libc::SYS_munmap => munmap_range(a, b),
        // SAFETY: The program gave syscall(2) these arguments for this call.
        _ => unsafe { sys::call(number, [a, b, c, d, e, f]) },
    };
    to_c(answer)
}
