// SPDX-License-Identifier: GPL-2.0
//! System calls made without the C library, whose functions the preloaded library takes the place
//! of.

use core::{
    arch::asm,
    sync::atomic::{AtomicI32, AtomicU32, Ordering},
    time::Duration,
};

/// A system call with six arguments; a negative result is an errno.
///
/// # Safety
///
/// The call may do to memory and descriptors what it does with these arguments.
#[cfg(target_arch = "x86_64")]
pub unsafe fn call(number: i64, arguments: [u64; 6]) -> i64 {
    let result: i64;
    let [a, b, c, d, e, f] = arguments;
    // SAFETY: The x86-64 convention: rax, rcx and r11 are written, nothing else. The call may do
    // what it does to memory and descriptors.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") number => result,
            in("rdi") a, in("rsi") b, in("rdx") c, in("r10") d, in("r8") e, in("r9") f,
            lateout("rcx") _, lateout("r11") _,
            options(nostack),
        );
    }
    result
}

#[cfg(not(target_arch = "x86_64"))]
compile_error!("the harness knows the system calls of x86-64 only");

/// `ioctl(2)`; a negative result is an errno.
///
/// # Safety
///
/// `argument` is what the request of that file demands.
pub unsafe fn ioctl(fd: i32, request: u64, argument: u64) -> i64 {
    // SAFETY: `argument` is what the request of this file demands.
    // CAST: the kernel takes the low 32 bits of a descriptor.
    unsafe { call(libc::SYS_ioctl, [fd as u64, request, argument, 0, 0, 0]) }
}

/// This process.
pub fn process() -> i32 {
    // SAFETY: Takes no argument.
    // CAST: numbers of processes are below 2^22.
    unsafe { call(libc::SYS_getpid, [0; 6]) as i32 }
}

/// Seconds of the system's monotonic clock.
pub fn uptime_s() -> f64 {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: Writes to the local that it is given.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    // CAST: a recording's times need microseconds, for which a double has room.
    now.tv_sec as f64 + now.tv_nsec as f64 / 1e9
}

/// This thread.
pub fn thread() -> i32 {
    // SAFETY: Takes no argument.
    // CAST: a thread's number is a positive i32.
    unsafe { call(libc::SYS_gettid, [0; 6]) as i32 }
}

/// The result of [`own`], once it was asked for; 0: not yet.
static OWN: AtomicI32 = AtomicI32::new(0);

/// The number of the calling process, asked for once: a system call takes longer than all else that
/// is done with a lock. In a child of `vfork`, which has its parent's memory, it is the parent, who
/// waits.
pub fn own() -> i32 {
    match OWN.load(Ordering::Relaxed) {
        0 => {
            let own = process();
            OWN.store(own, Ordering::Relaxed);
            own
        }
        own => own,
    }
}

/// To be called in the child of a `fork`: it is somebody else than its parent, whose memory it has
/// a copy of.
pub fn forked() {
    OWN.store(0, Ordering::Relaxed);
}

/// Gives the processor to somebody else.
pub fn give_way() {
    // SAFETY: Takes no argument.
    unsafe { call(libc::SYS_sched_yield, [0; 6]) };
}

/// Whether a process (or thread) exists. A zombie does.
pub fn exists(process: i32) -> bool {
    // SAFETY: Signal 0 is sent to nobody.
    // CAST: numbers of processes are positive.
    let answer = unsafe { call(libc::SYS_kill, [process as u64, 0, 0, 0, 0, 0]) };
    answer != -i64::from(libc::ESRCH)
}

/// Sleeps while `word` is `value`, but not longer than `most`. Other processes may have the word
/// mapped.
pub fn sleep_while(word: &AtomicU32, value: u32, most: Duration) {
    let timeout = libc::timespec {
        // CAST: both are small.
        tv_sec: most.as_secs() as i64,
        tv_nsec: i64::from(most.subsec_nanos()),
    };
    // CAST: pointers are 64 bits wide.
    let arguments = [
        word.as_ptr() as u64,
        libc::FUTEX_WAIT as u64,
        u64::from(value),
        &raw const timeout as u64,
        0,
        0,
    ];
    // SAFETY: The word and the time are there during the call; nothing is written to either.
    unsafe { call(libc::SYS_futex, arguments) };
}

/// Wakes all who sleep at `word`.
pub fn wake(word: &AtomicU32) {
    // CAST: pointers are 64 bits wide.
    let arguments = [
        word.as_ptr() as u64,
        libc::FUTEX_WAKE as u64,
        i32::MAX as u64,
        0,
        0,
        0,
    ];
    // SAFETY: The word is there; nothing is written to it.
    unsafe { call(libc::SYS_futex, arguments) };
}

/// Whether a process (or thread) runs no more: it is gone, or waits for nothing but to be counted
/// by its parent, and the kernel has closed its files.
pub fn has_ended(process: i32) -> bool {
    let Ok(text) = std::fs::read_to_string(format!("/proc/{process}/stat")) else {
        return !exists(process);
    };
    // The name before the state is in parentheses, and may have some itself.
    let state = text
        .rsplit_once(") ")
        .and_then(|(_, rest)| rest.chars().next());
    matches!(state, Some('Z' | 'X'))
}

/// An address at which nothing can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotThere;

/// Copies from an address of this process that may not be there.
///
/// # Errors
///
/// It is not there, or not all of it.
pub fn peek(from: u64, into: &mut [u8]) -> Result<(), NotThere> {
    // CAST: pointers and lengths are 64 bits wide.
    let (local, remote) = (
        [into.as_mut_ptr() as u64, into.len() as u64],
        [from, into.len() as u64],
    );
    // CAST: the process is positive, pointers are 64 bits wide.
    let arguments = [
        process() as u64,
        local.as_ptr() as u64,
        1,
        remote.as_ptr() as u64,
        1,
        0,
    ];
    // SAFETY: The kernel checks both sides; the local one is a slice of the caller's.
    let moved = unsafe { call(libc::SYS_process_vm_readv, arguments) };
    // CAST: a length of a slice fits.
    if moved == into.len() as i64 {
        Ok(())
    } else {
        Err(NotThere)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_forked_child_is_somebody_else() {
        let parent = own();
        assert_eq!(parent, process());
        // SAFETY: The child asks for numbers and ends at once.
        let child = unsafe { libc::fork() };
        if child == 0 {
            forked();
            let is_right = own() == process() && own() != parent;
            // SAFETY: Ends the child without what the parent has to do at its end.
            unsafe { libc::_exit(i32::from(!is_right)) };
        }
        let mut status = 1;
        // SAFETY: Waits for the child; the pointer is to a local.
        unsafe { libc::waitpid(child, &raw mut status, 0) };
        assert_eq!(status, 0);
    }
}
