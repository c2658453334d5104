// SPDX-License-Identifier: GPL-2.0
//! Lets the kernel's printing, which has traits of its own, print what the pure code can print.

use kernel::fmt;

/// Something that implements core's `Display`.
pub struct Printed<'a, T: core::fmt::Display>(pub &'a T);

impl<T: core::fmt::Display> fmt::Display for Printed<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        core::fmt::Display::fmt(self.0, f)
    }
}
