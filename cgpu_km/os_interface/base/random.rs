// SPDX-License-Identifier: GPL-2.0
//! Random numbers.

use kernel::bindings;

/// A number that nobody outside the kernel can guess.
pub fn random() -> u64 {
    let mut bytes = [0; 8];
    // SAFETY: The place is as long as is said.
    unsafe { bindings::get_random_bytes(bytes.as_mut_ptr().cast(), bytes.len()) };
    u64::from_ne_bytes(bytes)
}
