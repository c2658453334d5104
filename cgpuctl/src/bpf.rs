// SPDX-License-Identifier: GPL-2.0 OR MIT
//! `bpf(2)`, as far as the device programs of control groups need it: find, read, make and replace
//! them.
//!
//! The only unsafe code of this crate beside `mount_setattr(2)`.

pub(crate) mod program;

use crate::client::errno;
use nix::{errno::Errno, libc};
use std::{
    io::Error,
    os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd},
};

const PROG_LOAD: libc::c_long = 5;
const PROG_ATTACH: libc::c_long = 8;
const PROG_GET_FD_BY_ID: libc::c_long = 13;
const OBJ_GET_INFO_BY_FD: libc::c_long = 15;
const PROG_QUERY: libc::c_long = 16;
/// `BPF_PROG_TYPE_CGROUP_DEVICE`.
const TYPE: u32 = 15;
/// `BPF_CGROUP_DEVICE`.
const ATTACH: u32 = 6;
/// `BPF_F_ALLOW_MULTI`: several programs, all of which must allow.
const ALLOW_MULTI: u32 = 2;
/// `BPF_F_REPLACE`: puts a program in the place of another.
const REPLACE: u32 = 4;
/// Most programs that one control group can have (`BPF_CGROUP_MAX_PROGS`).
const MOST_PROGRAMS: usize = 64;
/// Most instructions of a privileged program (`BPF_COMPLEXITY_LIMIT_INSNS`).
const MOST_INSTRUCTIONS: usize = 1_000_000;

/// The union of arguments: 8-byte words, those that a command does not use zero.
type BpfArguments = [u64; 16];

/// Two neighbouring 32-bit fields.
fn pair(low: u32, high: u32) -> u64 {
    u64::from(low) | u64::from(high) << 32
}

/// The half that comes first in memory.
fn low(word: u64) -> u32 {
    // CAST: the low half is what is wanted.
    (word & 0xffff_ffff) as u32
}

fn raw(fd: &impl AsFd) -> u32 {
    // CAST: an open descriptor is not negative.
    fd.as_fd().as_raw_fd() as u32
}

/// Calls the kernel.
///
/// # Safety
///
/// An address among the arguments is that of memory as large as the arguments say, and writable if
/// the command writes there.
unsafe fn bpf(command: libc::c_long, arguments: &mut BpfArguments) -> Result<i32, Errno> {
    let size = size_of_val(arguments);
    // SAFETY: the arguments are `size` bytes; addresses among them are of memory that is as large
    // as they say, and writable where the command writes.
    let ret = unsafe { libc::syscall(libc::SYS_bpf, command, arguments.as_mut_ptr(), size) };
    if ret < 0 {
        return Err(errno(&Error::last_os_error()));
    }
    i32::try_from(ret).map_err(|_| Errno::EOVERFLOW)
}

fn owned(fd: i32) -> OwnedFd {
    // SAFETY: the kernel has just opened it for us, and nobody else knows it.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

/// The device programs of a control group itself (not those above it), and how they are attached.
pub fn device_programs(group: &impl AsFd) -> Result<(Vec<OwnedFd>, u32), Errno> {
    let mut ids = [0u32; MOST_PROGRAMS];
    let mut arguments: BpfArguments = [0; 16];
    arguments[0] = pair(raw(group), ATTACH);
    // CAST: an address, which has 64 bits.
    arguments[2] = ids.as_mut_ptr() as u64;
    // CAST: a small constant.
    arguments[3] = MOST_PROGRAMS as u64;
    // SAFETY: `ids` has room for as many numbers as the arguments say.
    unsafe { bpf(PROG_QUERY, &mut arguments) }?;
    let flags = low(arguments[1] >> 32);
    let count = usize::try_from(low(arguments[3])).map_err(|_| Errno::EOVERFLOW)?;
    let programs = ids.iter().take(count).map(|&id| {
        let mut arguments: BpfArguments = [0; 16];
        arguments[0] = pair(id, 0);
        // SAFETY: no address is among the arguments.
        unsafe { bpf(PROG_GET_FD_BY_ID, &mut arguments) }.map(owned)
    });
    Ok((programs.collect::<Result<_, _>>()?, flags))
}

/// The instructions of a program, as the kernel has them.
pub fn instructions(program: &OwnedFd) -> Result<Vec<u64>, Errno> {
    // The head of `struct bpf_prog_info`: type, id, tag, two lengths, two addresses.
    let mut info = [0u64; 5];
    let ask = |info: &mut [u64; 5]| {
        let mut arguments: BpfArguments = [0; 16];
        // CAST: 40 bytes.
        arguments[0] = pair(raw(program), size_of_val(info) as u32);
        // CAST: an address, which has 64 bits.
        arguments[1] = info.as_mut_ptr() as u64;
        // SAFETY: `info` has as many bytes as the arguments say, and what its own address points to
        // has the length beside it: nothing at first, then `code` below.
        unsafe { bpf(OBJ_GET_INFO_BY_FD, &mut arguments) }
    };
    ask(&mut info)?;
    let bytes = usize::try_from(info[2] >> 32).map_err(|_| Errno::EOVERFLOW)?;
    if bytes == 0 || bytes % 8 != 0 || bytes / 8 > MOST_INSTRUCTIONS {
        return Err(Errno::EINVAL);
    }
    let mut code = vec![0u64; bytes / 8];
    // CAST: checked above, it came from 32 bits.
    info = [0, 0, pair(0, bytes as u32), 0, code.as_mut_ptr() as u64];
    ask(&mut info)?;
    // It does not change while we hold it; if it could not be told, the kernel says a length of 0.
    if info[2] >> 32 != bytes as u64 {
        return Err(Errno::EPERM);
    }
    Ok(code)
}

/// Puts a program of these instructions in the place of another one of a control group.
pub fn replace(group: &impl AsFd, old: &OwnedFd, flags: u32, code: &[u64]) -> Result<(), Errno> {
    let mut arguments: BpfArguments = [0; 16];
    let count = u32::try_from(code.len()).map_err(|_| Errno::E2BIG)?;
    arguments[0] = pair(TYPE, count);
    // CAST: addresses, which have 64 bits.
    arguments[1] = code.as_ptr() as u64;
    arguments[2] = c"GPL".as_ptr() as u64;
    // SAFETY: `code` has as many instructions as the arguments say, the licence ends in a NUL; the
    // kernel only reads them.
    let fresh = owned(unsafe { bpf(PROG_LOAD, &mut arguments) }?);
    let mut arguments: BpfArguments = [0; 16];
    arguments[0] = pair(raw(group), raw(&fresh));
    let (flags, instead) = if flags & ALLOW_MULTI != 0 {
        (ALLOW_MULTI | REPLACE, raw(old))
    } else {
        (flags, 0)
    };
    arguments[1] = pair(ATTACH, flags);
    arguments[2] = pair(instead, 0);
    // SAFETY: no address is among the arguments.
    unsafe { bpf(PROG_ATTACH, &mut arguments) }?;
    Ok(())
}
