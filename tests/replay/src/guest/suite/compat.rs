// SPDX-License-Identifier: GPL-2.0
//! Calls of 32-bit programs: the same requests through the compatibility entry.

use crate::{
    bytes::u32_at,
    guest::{
        instance::Instance,
        tools::{equal, holds, sys, Test, Verdict, GIB},
    },
    sys as os,
};

pub(super) const TESTS: &[Test] = &[("compat: a 32-bit program's ioctl works", ioctl)];

/// `ioctl` through the 32-bit system call entry, which a 64-bit program can use too.
fn compat_ioctl(fd: i32, request: u32, argument: u32) -> i32 {
    let ret: i32;
    // SAFETY: system call 54 of the 32-bit table; the argument lies below 4 GiB and belongs to the
    // caller. rbx is saved by hand as the compiler keeps it for itself.
    unsafe {
        std::arch::asm!(
            "push rbx",
            "mov ebx, {fd:e}",
            "int 0x80",
            "pop rbx",
            fd = in(reg) fd,
            inlateout("eax") 54 => ret,
            in("ecx") request,
            in("edx") argument,
            out("r8") _, out("r9") _, out("r10") _, out("r11") _,
        );
    }
    ret
}

fn ioctl() -> Verdict {
    let instance = Instance::new("compat", GIB)?;
    let path = format!("{}/nvidiactl", instance.folder());
    let fd = sys(&path, os::open(&path, libc::O_RDWR | libc::O_CLOEXEC))?;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_32BIT;
    let at = os::mmap(0, 4096, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0);
    let at = sys("mmap", at)?;
    let low = u32::try_from(at).map_err(|_| "memory above 4 GiB".to_owned())?;
    // RM_ALLOC of a root client.
    let ret = compat_ioctl(fd, 0xC030_462B, low);
    let mut outer = [0_u8; 48];
    // SAFETY: the page was mapped above.
    unsafe { std::ptr::copy_nonoverlapping(at as *const u8, outer.as_mut_ptr(), 48) };
    equal("return", &ret, &0)?;
    equal("status", &u32_at(&outer, 40), &0)?;
    holds("no client", u32_at(&outer, 8) != 0)?;
    sys("close", os::close(fd))
}
