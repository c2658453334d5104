// SPDX-License-Identifier: GPL-2.0
//! Marks around a call, which `tests/vm/profile.c` finds. To the processor they are nothing.

/// Runs `work` between two marks.
pub(super) fn marked<R>(work: impl FnOnce() -> R) -> R {
    // SAFETY: A `nop` with an operand that is not accessed.
    unsafe {
        std::arch::asm!(
            "nop dword ptr [rax + rax + 0x43475055]",
            options(nomem, nostack)
        )
    };
    let result = work();
    // SAFETY: A `nop`, whose operand is not accessed.
    unsafe {
        std::arch::asm!(
            "nop dword ptr [rax + rax + 0x43475056]",
            options(nomem, nostack)
        )
    };
    result
}
