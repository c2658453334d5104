// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Exit codes: what a script can tell without reading the sentence.
//!
//! They are documented in `docs/cgpuctl.md` and never change their meaning.

use std::process::ExitCode;

/// How a command ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    /// Everything that was asked for was done.
    #[default]
    Done = 0,
    /// It failed for a reason that none of the other codes names.
    Failed = 1,
    /// The command line is wrong, or not precise enough.
    Usage = 2,
    /// The module is not loaded.
    NotLoaded = 3,
    /// There is no such GPU or instance.
    NotFound = 4,
    /// The caller lacks the rights.
    NotPermitted = 5,
    /// Refused by a rule: name taken, limit too high, in use, no room.
    Refused = 6,
    /// The NVIDIA driver is not loaded, does not answer, or is not known.
    Driver = 7,
    /// `doctor` found that something must be fixed.
    Unsound = 8,
}

impl Exit {
    /// Every code, in order.
    pub const ALL: [Self; 9] = [
        Self::Done,
        Self::Failed,
        Self::Usage,
        Self::NotLoaded,
        Self::NotFound,
        Self::NotPermitted,
        Self::Refused,
        Self::Driver,
        Self::Unsound,
    ];

    /// The number that the shell sees.
    pub const fn code(self) -> u8 {
        // CAST: the enum is `repr(u8)`.
        self as u8
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.code())
    }
}
