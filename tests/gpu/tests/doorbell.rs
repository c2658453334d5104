// SPDX-License-Identifier: GPL-2.0
//! Stores of the processor's own that are trapped and carried out: in a page that may only be read, by way of another
//! mapping of the same memory.

use cgpu_gpu::doorbell::Trapped;
use std::arch::asm;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Where the page is for reading, and for writing.
static PAGE: AtomicU64 = AtomicU64::new(0);
static ALIAS: AtomicU64 = AtomicU64::new(0);
/// Stores that were carried out.
static MADE: AtomicU32 = AtomicU32::new(0);

const LENGTH: usize = 4096;

extern "C" fn trap(_signal: i32, info: *const libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel hands valid ones to a handler with SA_SIGINFO; the mappings are those of the test.
    let made = unsafe {
        let context = &mut *context.cast::<libc::ucontext_t>();
        let (page, alias) = (PAGE.load(Ordering::Relaxed), ALIAS.load(Ordering::Relaxed));
        let trapped = Trapped::new(context, (*info).si_addr() as u64);
        trapped.carry_out(context, page, alias)
    };
    if made {
        MADE.fetch_add(1, Ordering::Relaxed);
    } else {
        // The fault comes again, and ends the test.
        // SAFETY: the default action may always be set.
        unsafe { libc::signal(libc::SIGSEGV, libc::SIG_DFL) };
    }
}

fn map(file: i32, rights: i32) -> u64 {
    // SAFETY: a new mapping, whose place the kernel chooses.
    let place = unsafe {
        libc::mmap(
            core::ptr::null_mut(),
            LENGTH,
            rights,
            libc::MAP_SHARED,
            file,
            0,
        )
    };
    assert_ne!(place, libc::MAP_FAILED);
    place as u64
}

fn prepare() -> u64 {
    // SAFETY: a name and no flags; then a length for the file, and a handler for three arguments, as SA_SIGINFO says.
    let file = unsafe {
        let file = libc::memfd_create(c"doorbell".as_ptr(), 0);
        assert_eq!(libc::ftruncate(file, LENGTH as i64), 0);
        let mut action: libc::sigaction = core::mem::zeroed();
        action.sa_sigaction = trap as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO;
        assert_eq!(
            libc::sigaction(libc::SIGSEGV, &raw const action, core::ptr::null_mut()),
            0
        );
        file
    };
    ALIAS.store(
        map(file, libc::PROT_READ | libc::PROT_WRITE),
        Ordering::Relaxed,
    );
    PAGE.store(map(file, libc::PROT_READ), Ordering::Relaxed);
    PAGE.load(Ordering::Relaxed)
}

fn expect(at: u64, value: u32, made: u32) {
    // SAFETY: the page is mapped for reading.
    let stored = unsafe { (at as *const u32).read_volatile() };
    assert_eq!((stored, MADE.load(Ordering::Relaxed)), (value, made));
}

#[test]
fn what_the_processor_would_store_is_stored() {
    let at = prepare() + 0x90;
    // SAFETY: all of them store to the page above, or beside an address in it, which the handler does for them.
    unsafe {
        asm!("mov [{}], {:e}", in(reg) at, in(reg) 1_u32);
        expect(at, 1, 1);
        asm!("mov [{} + 0x10], {:e}", in(reg) at - 0x10, in(reg) 2_u32);
        expect(at, 2, 2);
        asm!("mov [{} - 0x12345], {:e}", in(reg) at + 0x12345, in(reg) 3_u32);
        expect(at, 3, 3);
        asm!("mov [{} + {} * 4 - 4], {:e}", in(reg) at - 16, in(reg) 5_u64, in(reg) 4_u32);
        expect(at, 4, 4);
        asm!("mov dword ptr [{}], 0x89abcdef", in(reg) at);
        expect(at, 0x89ab_cdef, 5);
        asm!("mov dword ptr [{} * 2], 6", in(reg) at / 2);
        expect(at, 6, 6);
        asm!("movnti [{}], {:e}", in(reg) at, in(reg) 7_u32);
        expect(at, 7, 7);
        asm!("mov [r13 + r12], r9d", in("r13") at - 5, in("r12") 5_u64, in("r9") 8_u32);
        expect(at, 8, 8);
        asm!("mov [r12], r15d", in("r12") at, in("r15") 9_u32);
        expect(at, 9, 9);
        let after: u32;
        // The program goes on right behind, with all its registers.
        asm!(
            "mov [{at}], {value:e}",
            "add {value:e}, 1",
            "mov [{at}], {value:e}",
            "add {value:e}, 10",
            at = in(reg) at,
            value = inout(reg) 20_u32 => after,
        );
        expect(at, 21, 11);
        assert_eq!(after, 31);
    }
    let value = 0x55_u32;
    for n in 0..10_000 {
        // SAFETY: as above.
        unsafe { asm!("mov [{}], {:e}", in(reg) at, in(reg) value + n) };
        expect(at, value + n, 12 + n);
    }
}
