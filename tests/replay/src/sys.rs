// SPDX-License-Identifier: GPL-2.0
//! The system calls that the replayer and the guest programs make, with their errno as a value.

use std::{
    ffi::{CStr, CString},
    io,
};

/// An errno.
pub type Errno = i32;

/// Descriptors from here on are the replayer's own; recordings have smaller ones.
pub(crate) const OWN_FDS: i32 = 3000;

/// The errno of the last failed call of this thread.
pub fn errno() -> Errno {
    io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

fn check(ret: i32) -> Result<i32, Errno> {
    if ret < 0 {
        Err(errno())
    } else {
        Ok(ret)
    }
}

/// `open(2)`.
pub fn open(path: &str, flags: i32) -> Result<i32, Errno> {
    let path = CString::new(path).map_err(|_| libc::EINVAL)?;
    // SAFETY: the path is a C string that lives over the call.
    check(unsafe { libc::open(path.as_ptr(), flags) })
}

/// `close(2)`.
pub fn close(fd: i32) -> Result<(), Errno> {
    // SAFETY: takes no pointer; the callers close descriptors that they opened.
    check(unsafe { libc::close(fd) }).map(drop)
}

/// `flock(2)` that does not wait.
pub fn flock(fd: i32, operation: i32) -> Result<(), Errno> {
    // SAFETY: takes no pointer.
    check(unsafe { libc::flock(fd, operation | libc::LOCK_NB) }).map(drop)
}

/// Has a second descriptor stand for what `fd` does, closing what had that number.
pub fn dup2(fd: i32, number: i32) -> Result<(), Errno> {
    // SAFETY: takes no pointer.
    check(unsafe { libc::dup2(fd, number) }).map(drop)
}

/// The flags of an open file, `F_GETFL` of `fcntl(2)`.
pub fn file_flags(fd: i32) -> Result<i32, Errno> {
    // SAFETY: Takes no pointer.
    check(unsafe { libc::fcntl(fd, libc::F_GETFL) })
}

/// Gives a descriptor a number, closing what had it. `cloexec` as with `O_CLOEXEC`.
pub fn renumber(fd: i32, wanted: i32, cloexec: bool) -> Result<(), Errno> {
    if fd == wanted {
        return Ok(());
    }
    let made = copy_to(fd, wanted, cloexec);
    close(fd)?;
    made
}

/// Gives what a descriptor means a second number, closing what had that. `cloexec` as with
/// `O_CLOEXEC`.
pub fn copy_to(fd: i32, wanted: i32, cloexec: bool) -> Result<(), Errno> {
    let flags = if cloexec { libc::O_CLOEXEC } else { 0 };
    // SAFETY: takes no pointer.
    check(unsafe { libc::dup3(fd, wanted, flags) }).map(drop)
}

/// `ioctl(2)` with a buffer as argument, or a null pointer for an empty one.
///
/// The callers answer for what the parameters point to: in a replay the kernel may write only to
/// buffers whose addresses were put into them.
pub fn ioctl(fd: i32, request: u32, argument: &mut [u8]) -> Result<i32, Errno> {
    let pointer = if argument.is_empty() {
        std::ptr::null_mut()
    } else {
        argument.as_mut_ptr()
    };
    // SAFETY: the buffer is as long as the request's size says (or as the recorder read).
    check(unsafe { libc::ioctl(fd, libc::Ioctl::from(request), pointer) })
}

/// `mmap(2)` at an address that must be free, or anywhere for 0.
pub fn mmap(
    addr: u64,
    len: u64,
    prot: i32,
    flags: i32,
    fd: i32,
    offset: u64,
) -> Result<u64, Errno> {
    let flags = if addr == 0 {
        flags & !libc::MAP_FIXED
    } else {
        flags & !libc::MAP_FIXED | libc::MAP_FIXED_NOREPLACE
    };
    let (Ok(len), Ok(offset)) = (usize::try_from(len), i64::try_from(offset)) else {
        return Err(libc::EINVAL);
    };
    // SAFETY: without MAP_FIXED no mapping of ours is replaced.
    let at = unsafe { libc::mmap(addr as *mut libc::c_void, len, prot, flags, fd, offset) };
    if at == libc::MAP_FAILED {
        Err(errno())
    } else {
        Ok(at as u64)
    }
}

/// A value of zeros that this process shares with the children that it will have, for as long as it
/// lives.
///
/// `T` is made of atomics, for which zeros are a value.
pub fn shared<T: Sync>() -> Result<&'static T, String> {
    let prot = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_SHARED | libc::MAP_ANONYMOUS;
    let at = mmap(0, size_of::<T>() as u64, prot, flags, -1, 0);
    let at = at.map_err(|e| format!("shared memory: errno {e}"))?;
    // SAFETY: The mapping is as large as a `T`, begins with a page, is never unmapped, and is
    // zeros.
    Ok(unsafe { &*(at as *const T) })
}

/// An empty file in memory.
pub fn memory_file(name: &CStr) -> Result<i32, Errno> {
    // SAFETY: the name lives over the call.
    check(unsafe { libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC) })
}

/// Gives a file in memory so many bytes.
pub fn set_len(fd: i32, bytes: u64) -> Result<(), Errno> {
    let bytes = i64::try_from(bytes).map_err(|_| libc::EINVAL)?;
    // SAFETY: there is no address in it.
    check(unsafe { libc::ftruncate(fd, bytes) }).map(drop)
}

/// `pread(2)` from the beginning of a file to any address, where there is memory or not. Not to
/// memory of the program's own.
pub fn pread_into(fd: i32, address: u64, length: usize) -> Result<usize, Errno> {
    // SAFETY: The kernel refuses addresses where nothing can be written; what lies there is not
    // this program's, as the caller says.
    let got = unsafe { libc::pread(fd, address as *mut libc::c_void, length, 0) };
    usize::try_from(got).map_err(|_| errno())
}

/// `pwrite(2)` to the beginning of a file from any address, where there is memory or not.
pub fn pwrite_from(fd: i32, address: u64, length: usize) -> Result<usize, Errno> {
    // SAFETY: The kernel refuses addresses where nothing can be read.
    let written = unsafe { libc::pwrite(fd, address as *const libc::c_void, length, 0) };
    usize::try_from(written).map_err(|_| errno())
}

/// `mmap(2)` of a shared, readable and writable file at its own address, in the place of whatever
/// is there.
///
/// # Safety
///
/// Nothing that the program uses may lie in the range.
pub unsafe fn map_over(fd: i32, addr: u64, len: u64) -> Result<(), Errno> {
    let (Ok(len), Ok(offset)) = (usize::try_from(len), i64::try_from(addr)) else {
        return Err(libc::EINVAL);
    };
    let prot = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_SHARED | libc::MAP_FIXED;
    // SAFETY: nothing that the program uses lies there, as the contract says.
    let at = unsafe { libc::mmap(addr as *mut libc::c_void, len, prot, flags, fd, offset) };
    if at == libc::MAP_FAILED {
        Err(errno())
    } else {
        Ok(())
    }
}

/// `mremap(2)` to anywhere, with the same length.
///
/// # Safety
///
/// Nothing that the program uses may lie in the range.
pub unsafe fn move_mapping(addr: u64, to: u64, len: u64) -> Result<(), Errno> {
    let len = usize::try_from(len).map_err(|_| libc::EINVAL)?;
    let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
    let (addr, to) = (addr as *mut libc::c_void, to as *mut libc::c_void);
    // SAFETY: nothing that the program uses lies there, as the contract says.
    let at = unsafe { libc::mremap(addr, len, len, flags, to) };
    if at == libc::MAP_FAILED {
        Err(errno())
    } else {
        Ok(())
    }
}

/// `munmap(2)`.
///
/// # Safety
///
/// Nothing that the program uses may lie in the range.
pub unsafe fn munmap(addr: u64, len: u64) -> Result<(), Errno> {
    let len = usize::try_from(len).map_err(|_| libc::EINVAL)?;
    // SAFETY: nothing that the program uses lies there, as the contract says.
    check(unsafe { libc::munmap(addr as *mut libc::c_void, len) }).map(drop)
}

/// `fork(2)`: 0 in the child.
pub fn fork() -> Result<i32, Errno> {
    // SAFETY: these programs have one thread when they fork, or their child makes system calls
    // alone.
    check(unsafe { libc::fork() })
}

/// Ends the process without running anything that the parent set up.
pub fn exit_now(code: i32) -> ! {
    // SAFETY: does not return.
    unsafe { libc::_exit(code) }
}

/// Waits for a child; its wait status.
pub fn wait(pid: i32) -> Result<i32, Errno> {
    let mut status = 0;
    loop {
        // SAFETY: `status` lives over the call.
        match check(unsafe { libc::waitpid(pid, &mut status, 0) }) {
            Err(libc::EINTR) => {}
            Err(e) => return Err(e),
            Ok(_) => return Ok(status),
        }
    }
}

/// `kill(2)`.
pub fn kill(pid: i32, signal: i32) -> Result<(), Errno> {
    // SAFETY: takes no pointer.
    check(unsafe { libc::kill(pid, signal) }).map(drop)
}

/// Sleeps.
pub fn sleep_ms(ms: u64) {
    std::thread::sleep(std::time::Duration::from_millis(ms));
}

/// Lets the process have as many descriptors as the hard limit allows.
pub fn raise_fd_limit() {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: `limit` lives over both calls.
    unsafe {
        if libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) == 0 {
            limit.rlim_cur = limit.rlim_max;
            libc::setrlimit(libc::RLIMIT_NOFILE, &limit);
        }
    }
}

/// A copy of a descriptor with a number of at least `least`, closed on exec.
pub fn dup_above(fd: i32, least: i32) -> Result<i32, Errno> {
    // SAFETY: takes no pointer.
    check(unsafe { libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, least) })
}

/// Gets what a descriptor of another process stands for (`pidfd_getfd(2)`).
pub fn take_descriptor(process: i32, fd: i32) -> Result<i32, Errno> {
    let number = |number: libc::c_long| i32::try_from(number).unwrap_or(-1);
    // SAFETY: takes no pointer.
    let other = check(number(unsafe {
        libc::syscall(libc::SYS_pidfd_open, process, 0)
    }))?;
    // SAFETY: takes no pointer.
    let taken = check(number(unsafe {
        libc::syscall(libc::SYS_pidfd_getfd, other, fd, 0)
    }));
    close(other)?;
    taken
}

/// Whether the address space of this process is laid out at random.
pub fn has_random_layout() -> bool {
    // SAFETY: 0xffffffff only asks.
    let now = unsafe { libc::personality(0xFFFF_FFFF) };
    now & libc::ADDR_NO_RANDOMIZE == 0
}

/// Switches random layout off for the programs that this process executes.
pub fn fix_layout() -> Result<(), Errno> {
    // SAFETY: takes no pointer.
    check(unsafe { libc::personality(libc::ADDR_NO_RANDOMIZE as libc::c_ulong) }).map(drop)
}

/// `mount(2)` without options.
pub fn mount(source: &str, target: &str, kind: &str, flags: libc::c_ulong) -> Result<(), Errno> {
    let text = |s: &str| CString::new(s).map_err(|_| libc::EINVAL);
    let (source, target, kind) = (text(source)?, text(target)?, text(kind)?);
    // SAFETY: the three are C strings that live over the call; data may be null.
    check(unsafe {
        libc::mount(
            source.as_ptr(),
            target.as_ptr(),
            kind.as_ptr(),
            flags,
            std::ptr::null(),
        )
    })
    .map(drop)
}

/// `umount2(2)`.
pub fn unmount(target: &str, flags: i32) -> Result<(), Errno> {
    let target = CString::new(target).map_err(|_| libc::EINVAL)?;
    // SAFETY: a C string that lives over the call.
    check(unsafe { libc::umount2(target.as_ptr(), flags) }).map(drop)
}

/// Closes the descriptors from `first` to `last`.
pub fn close_between(first: i32, last: i32) {
    // SAFETY: takes no pointer; called in a fresh child that owns nothing in that range.
    unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) };
}

/// Lets this process be killed when its parent dies.
pub fn die_with_parent() {
    // SAFETY: takes no pointer.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
}

/// Makes this process the parent of what its children leave behind.
pub fn adopt_orphans() {
    // SAFETY: takes no pointer.
    unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1) };
}

/// Lets a closed pipe end the program quietly, as it does with other programs.
pub fn die_of_closed_pipes() {
    // SAFETY: sets the default action; the program has one thread.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
}

/// `mknod(2)` of a character device, for everybody to read and write.
pub fn make_character_device(path: &str, major: u32, minor: u32) -> Result<(), Errno> {
    let path = CString::new(path).map_err(|_| libc::EINVAL)?;
    let mode = libc::S_IFCHR | 0o666;
    // SAFETY: a C string that lives over the call.
    check(unsafe { libc::mknod(path.as_ptr(), mode, libc::makedev(major, minor)) }).map(drop)
}

/// Gives this thread the processor only where nobody else wants it (`SCHED_IDLE`).
pub fn be_idle() {
    // SAFETY: the parameters live over the call; anybody may have this policy.
    unsafe {
        let priority: libc::sched_param = std::mem::zeroed();
        libc::sched_setscheduler(0, libc::SCHED_IDLE, &raw const priority);
    }
}

/// Gives the calling thread a realtime priority, the lowest.
pub fn be_realtime() {
    // SAFETY: the parameters live over the call; root may have this policy.
    unsafe {
        let priority = libc::sched_param { sched_priority: 1 };
        libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const priority);
    }
}

/// Keeps this process and its children on the processor where it is. Processes that take turns hand
/// over faster so, by far on an emulated machine.
pub fn stay_on_this_processor() {
    // SAFETY: the set lives over the call; a failure leaves the process as it was.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        let Ok(here) = usize::try_from(libc::sched_getcpu()) else {
            return;
        };
        libc::CPU_SET(here, &mut set);
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &set);
    }
}
