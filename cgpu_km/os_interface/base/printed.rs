// SPDX-License-Identifier: GPL-2.0
//! What the pure code can print, for the kernel's own printing, whose traits are not core's.

use kernel::fmt;

/// Something that core can print.
pub struct Printed<'a, T: core::fmt::Display>(pub &'a T);

impl<T: core::fmt::Display> fmt::Display for Printed<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        core::fmt::Display::fmt(self.0, f)
    }
}
