// SPDX-License-Identifier: GPL-2.0
//! The end of a panic, which the object has besides the module and the kernel's crate.
//!
//! The module is written so that it does not panic. Should it do so after all, the kernel ends the
//! task, as it does for a bug of its own.

#![no_std]

use core::fmt::{
    self,
    Write, //
};

extern "C" {
    fn cgpu_shim_log(warns: bool, line: *const u8, length: usize);
}

/// The kernel's log, piece by piece.
struct Log;

impl Write for Log {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        // SAFETY: As many bytes are there; they are only read.
        unsafe { cgpu_shim_log(true, text.as_ptr(), text.len()) };
        Ok(())
    }
}

#[panic_handler]
fn panic(info: &core::panic::PanicInfo<'_>) -> ! {
    let _ = writeln!(Log, "{info}");
    // An instruction that the kernel takes for a bug; objtool knows that nothing comes after it.
    // SAFETY: It does not return.
    unsafe { core::arch::asm!("ud2", options(noreturn)) }
}
