// SPDX-License-Identifier: GPL-2.0
//! Lines in the kernel's log.
//!
//! The kernel's own macros for Rust give `printk` a pointer to Rust's arguments, which only a
//! kernel that was built with Rust knows how to print. These format first, and give it text.

use super::extra;
use core::fmt::{
    self,
    Write, //
};

/// Longest line, bytes; the rest of a longer one is left out.
const LONGEST: usize = 512;

/// How important a line is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Level {
    /// Something that is as it should be.
    Info,
    /// Something that an operator should look at.
    Warning,
}

/// A line while it is put together.
struct Line {
    bytes: [u8; LONGEST],
    length: usize,
}

impl Write for Line {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let free = self.bytes.get_mut(self.length..).unwrap_or_default();
        let fits = text.len().min(free.len());
        let (place, text) = (free.get_mut(..fits), text.as_bytes().get(..fits));
        if let (Some(place), Some(text)) = (place, text) {
            place.copy_from_slice(text);
            self.length += fits;
        }
        Ok(())
    }
}

/// Writes a line, which should end with a line feed.
#[inline(never)] // The line is no part of its caller's stack frame.
pub fn write(level: Level, text: fmt::Arguments<'_>) {
    let mut line = Line {
        bytes: [0; LONGEST],
        length: 0,
    };
    // A value that cannot be printed ends the line.
    let _ = line.write_fmt(text);
    let warns = level == Level::Warning;
    // SAFETY: As many bytes are there; they are only read.
    unsafe { extra::cgpu_shim_log(warns, line.bytes.as_ptr().cast(), line.length) };
}

/// Writes a line about something that is as it should be.
macro_rules! pr_info {
    ($($text:tt)*) => {
        $crate::os_interface::log::write(
            $crate::os_interface::log::Level::Info,
            core::format_args!($($text)*),
        )
    };
}

/// Writes a line that an operator should look at.
macro_rules! pr_warn {
    ($($text:tt)*) => {
        $crate::os_interface::log::write(
            $crate::os_interface::log::Level::Warning,
            core::format_args!($($text)*),
        )
    };
}

pub(crate) use {
    pr_info,
    pr_warn, //
};
