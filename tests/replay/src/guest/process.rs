// SPDX-License-Identifier: GPL-2.0
//! Processes, and descriptors passed between them.

use std::{
    io::{Read, Write},
    os::{
        fd::{AsRawFd, FromRawFd, OwnedFd},
        unix::net::UnixStream,
    },
    sync::atomic::{AtomicU32, Ordering},
};

use crate::sys::{self, Errno};

/// Runs `body` in a process of its own; what it returned, or why it did not.
pub fn in_child(body: impl FnOnce() -> Result<(), String>) -> Result<(), String> {
    let (mut ours, mut theirs) = UnixStream::pair().map_err(|e| e.to_string())?;
    let pid = sys::fork().map_err(|e| format!("fork: errno {e}"))?;
    if pid == 0 {
        drop(ours);
        let code = match body() {
            Ok(()) => 0,
            Err(text) => {
                let _ = theirs.write_all(text.as_bytes());
                1
            }
        };
        sys::exit_now(code);
    }
    drop(theirs);
    let mut text = String::new();
    let _ = ours.read_to_string(&mut text);
    let status = sys::wait(pid).map_err(|e| format!("wait: errno {e}"))?;
    match status {
        0 => Ok(()),
        _ if text.is_empty() => Err(format!("the process ended with status {status:#x}")),
        _ => Err(text),
    }
}

/// Makes a process that runs `body` and exits with what it returns. Its id.
pub fn spawn(body: impl FnOnce() -> i32) -> Result<i32, Errno> {
    let pid = sys::fork()?;
    if pid == 0 {
        sys::die_with_parent();
        sys::exit_now(body());
    }
    Ok(pid)
}

/// Waits until so many processes are ready, for a minute.
pub(super) fn gather(ready: &AtomicU32, all: u32) -> Result<(), String> {
    for _ in 0..6000 {
        if ready.load(Ordering::Acquire) == all {
            return Ok(());
        }
        sys::sleep_ms(10);
    }
    Err(format!("{all} processes are not ready"))
}

/// Room for the control message of one descriptor, aligned as `cmsghdr` needs.
#[repr(C, align(8))]
struct ControlRoom([u8; 64]);

/// Sends a descriptor over a socket.
pub fn send_fd(socket: &UnixStream, fd: i32) -> Result<(), Errno> {
    send_with_fd(socket, &[0], fd)
}

/// The same with bytes, of which there is at least one.
pub fn send_with_fd(socket: &impl AsRawFd, bytes: &[u8], fd: i32) -> Result<(), Errno> {
    let mut vector = libc::iovec {
        iov_base: bytes.as_ptr().cast_mut().cast(),
        iov_len: bytes.len(),
    };
    let mut room = ControlRoom([0; 64]);
    // SAFETY: the header points to `vector` and `room`, which live over the call, and nothing is
    // written to the bytes; CMSG_FIRSTHDR lies in `room`, which has space for one descriptor.
    let sent = unsafe {
        let mut header: libc::msghdr = std::mem::zeroed();
        header.msg_iov = &mut vector;
        header.msg_iovlen = 1;
        header.msg_control = room.0.as_mut_ptr().cast();
        header.msg_controllen = libc::CMSG_SPACE(4) as usize;
        let message = libc::CMSG_FIRSTHDR(&header);
        (*message).cmsg_level = libc::SOL_SOCKET;
        (*message).cmsg_type = libc::SCM_RIGHTS;
        (*message).cmsg_len = libc::CMSG_LEN(4) as usize;
        libc::CMSG_DATA(message).cast::<i32>().write_unaligned(fd);
        libc::sendmsg(socket.as_raw_fd(), &header, 0)
    };
    if sent < 0 {
        Err(sys::errno())
    } else {
        Ok(())
    }
}

/// Receives a descriptor from a socket.
pub fn receive_fd(socket: &UnixStream) -> Result<OwnedFd, Errno> {
    receive_with_fd(socket, &mut [0])
}

/// The same with bytes, as many as were sent.
pub fn receive_with_fd(socket: &impl AsRawFd, bytes: &mut [u8]) -> Result<OwnedFd, Errno> {
    let mut vector = libc::iovec {
        iov_base: bytes.as_mut_ptr().cast(),
        iov_len: bytes.len(),
    };
    let mut room = ControlRoom([0; 64]);
    // SAFETY: the header points to `vector` and `room`, which live over the call; a descriptor that
    // arrived belongs to us alone.
    unsafe {
        let mut header: libc::msghdr = std::mem::zeroed();
        header.msg_iov = &mut vector;
        header.msg_iovlen = 1;
        header.msg_control = room.0.as_mut_ptr().cast();
        header.msg_controllen = libc::CMSG_SPACE(4) as usize;
        if libc::recvmsg(socket.as_raw_fd(), &mut header, 0) < 0 {
            return Err(sys::errno());
        }
        let message = libc::CMSG_FIRSTHDR(&header);
        if message.is_null() || (*message).cmsg_type != libc::SCM_RIGHTS {
            return Err(libc::EBADMSG);
        }
        let fd = libc::CMSG_DATA(message).cast::<i32>().read_unaligned();
        Ok(OwnedFd::from_raw_fd(fd))
    }
}

/// Takes CAP_SYS_ADMIN away from this process for good.
pub fn drop_admin() -> Result<(), Errno> {
    const CAP_SYS_ADMIN: u32 = 21;
    #[repr(C)]
    struct Header {
        version: u32,
        pid: i32,
    }
    #[repr(C)]
    #[derive(Clone, Copy)]
    struct Data {
        effective: u32,
        permitted: u32,
        inheritable: u32,
    }
    let mut header = Header {
        version: 0x2008_0522,
        pid: 0,
    };
    let mut data = [Data {
        effective: 0,
        permitted: 0,
        inheritable: 0,
    }; 2];
    // SAFETY: header and data have the layout of version 3 and live over both calls.
    let failed = unsafe {
        let get = libc::syscall(libc::SYS_capget, &mut header, data.as_mut_ptr());
        for set in [&mut data[0].effective, &mut data[0].permitted] {
            *set &= !(1 << CAP_SYS_ADMIN);
        }
        data[0].inheritable = 0;
        get != 0 || libc::syscall(libc::SYS_capset, &mut header, data.as_ptr()) != 0
    };
    if failed {
        Err(sys::errno())
    } else {
        Ok(())
    }
}

/// `unshare(2)`.
pub fn unshare(flags: i32) -> Result<(), Errno> {
    // SAFETY: takes no pointer; these programs have one thread.
    if unsafe { libc::unshare(flags) } < 0 {
        Err(sys::errno())
    } else {
        Ok(())
    }
}
